/* SPDX-License-Identifier: Apache-2.0
 *
 * number.h: the data types' numbers, as the numerics contract rounds them, for the tests of this folder and the
 * emulator. Shares nothing with kernels/.
 */
#ifndef ARFUSION_TEST_GPU_NUMBER_H_
#define ARFUSION_TEST_GPU_NUMBER_H_

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "arfusion_plugin.h"

static inline float ref_from_bits(uint32_t u) {
  float f;
  memcpy(&f, &u, 4);
  return f;
}

static inline uint32_t ref_to_bits(float f) {
  uint32_t u;
  memcpy(&u, &f, 4);
  return u;
}

/* fp16, rounded to nearest even by adding and subtracting what pushes the bits out. */
static inline uint16_t ref_fp16(float f) {
  const uint32_t sign = ref_to_bits(f) >> 16 & 0x8000u;
  const uint32_t u = ref_to_bits(f) & 0x7fffffffu;
  if (u >= 0x47800000u) return (uint16_t)(sign | 0x7c00u); /* 65536 and more */
  if (u < 0x38800000u) {                                   /* below 2^-14: multiples of 2^-24 */
    const float sum = ref_from_bits(u) + 0.5f;
    return (uint16_t)(sign | (ref_to_bits(sum) - 0x3f000000u));
  }
  return (uint16_t)(sign | ((u + 0xfffu + (u >> 13 & 1) - 0x38000000u) >> 13));
}

static inline float ref_from_fp16(uint16_t h) {
  const uint32_t sign = (uint32_t)(h & 0x8000u) << 16, exponent = h >> 10 & 31, fraction = h & 0x3ffu;
  float f = (float)fraction * 0x1p-24f;
  if (exponent == 31) f = ref_from_bits(0x7f800000u | fraction << 13);
  else if (exponent != 0) f = ref_from_bits((exponent + 112) << 23 | fraction << 13);
  return ref_from_bits(ref_to_bits(f) | sign);
}

static inline void ref_store(void* p, int64_t i, float f, arfusionDataType_t dtype) {
  const uint32_t u = ref_to_bits(f);
  if (dtype == arfusionFloat32) {
    ((uint32_t*)p)[i] = isnan(f) ? 0x7fffffffu : u;
  } else if (isnan(f)) {
    ((uint16_t*)p)[i] = 0x7fff;
  } else {
    ((uint16_t*)p)[i] = dtype == arfusionFloat16 ? ref_fp16(f) : (uint16_t)((u + 0x7fffu + (u >> 16 & 1)) >> 16);
  }
}

static inline float ref_load(const void* p, int64_t i, arfusionDataType_t dtype) {
  if (dtype == arfusionFloat32) return ((const float*)p)[i];
  const uint16_t h = ((const uint16_t*)p)[i];
  return dtype == arfusionFloat16 ? ref_from_fp16(h) : ref_from_bits((uint32_t)h << 16);
}

static inline float ref_round(float f, arfusionDataType_t dtype) {
  uint32_t word = 0;
  ref_store(&word, 0, f, dtype);
  return ref_load(&word, 0, dtype);
}

#endif
