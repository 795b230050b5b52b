/* SPDX-License-Identifier: Apache-2.0
 *
 * generator.c: inputs from a seed; see generator.h.
 */
#include "plugin/tools/bench/generator.h"

#include <math.h>
#include <string.h>

#include "plugin/tools/bench/bench.h"
#include "plugin/tools/bench/number.h"

#define BLOCK 256 /* elements converted at a time */

static const char* const kinds[GENERATOR_KINDS] = {"uniform", "large", "tiny", "zeros", "mixed", "special"};

int generator_parse_kind(const char* text, enum generator_kind* kind) {
  for (int i = 0; i < GENERATOR_KINDS; i++) {
    if (strcmp(text, kinds[i]) != 0) continue;
    *kind = (enum generator_kind)i;
    return 0;
  }
  return -1;
}

static uint32_t mix(uint32_t x) {
  x ^= x >> 16;
  x *= 0x7feb352du;
  x ^= x >> 15;
  x *= 0x846ca68bu;
  return x ^ (x >> 16);
}

static float element(uint32_t h, enum generator_kind kind) {
  float uniform = (float)(h & 0xffffu) / 32768.0f - 1.0f;
  uint32_t pick = h >> 20;
  switch (kind) {
    case GENERATOR_LARGE: return uniform * 4096.0f;
    case GENERATOR_TINY: return uniform * 0x1p-130f;
    case GENERATOR_ZEROS: return pick & 1u ? -0.0f : 0.0f;
    case GENERATOR_MIXED:
      switch (pick & 15u) {
        case 0: return -0.0f;
        case 1: return 0.0f;
        case 2: return uniform * 0x1p-130f;
        default: return uniform;
      }
    case GENERATOR_SPECIAL:
      switch (pick & 1023u) {
        case 0: return NAN;
        case 1: return INFINITY;
        case 2: return -INFINITY;
        default: return uniform;
      }
    default: return uniform;
  }
}

void generator_fill(void* out, arfusionDataType_t dtype, int64_t count, uint32_t seed, enum generator_tensor tensor,
                    int rank, enum generator_kind kind) {
  uint32_t key = mix((seed << 12) ^ ((uint32_t)tensor << 8) ^ (uint32_t)rank);
  size_t bytes = bench_dtype_bytes(dtype);
  float values[BLOCK];
  for (int64_t start = 0; start < count; start += BLOCK) {
    int64_t length = count - start < BLOCK ? count - start : BLOCK;
    for (int64_t i = 0; i < length; i++) values[i] = element(mix((uint32_t)(start + i) ^ key), kind);
    number_store(dtype, values, length, (unsigned char*)out + (size_t)start * bytes);
  }
}
