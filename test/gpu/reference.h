/* SPDX-License-Identifier: Apache-2.0
 *
 * reference.h: the numerics contract as a scalar program, for the tests of this folder. Shares nothing with kernels/.
 */
#ifndef ARFUSION_TEST_GPU_REFERENCE_H_
#define ARFUSION_TEST_GPU_REFERENCE_H_

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "kernels/op.h"

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

/* 32 lanes; what is left over stands in v[0]. */
static inline float ref_butterfly(float* v) {
  for (int d = 16; d > 0; d /= 2) {
    for (int l = 0; l < d; ++l) v[l] = v[l] + v[l + d];
  }
  return v[0];
}

static inline float ref_sum_of_squares(const float* y, int64_t hidden) {
  float total = 0.0f;
  for (int64_t group = 0; group < hidden; group += 8192) {
    float segments[32] = {0};
    for (int s = 0; s < 32; ++s) {
      float packs[32] = {0};
      for (int p = 0; p < 32; ++p) {
        const int64_t first = group + (s * 32 + p) * 8;
        for (int64_t i = first; i < first + 8 && i < hidden; ++i) packs[p] = packs[p] + y[i] * y[i];
      }
      segments[s] = ref_butterfly(packs);
    }
    total = total + ref_butterfly(segments);
  }
  return total;
}

/* The sum of one element's inputs, rounded. */
static inline float ref_sum(const void* const* inputs, const int64_t* index, int nranks, arfusionDataType_t dtype) {
  float sum = 0.0f;
  for (int r = 0; r < nranks; ++r) {
    float x = ref_load(inputs[r], index[r], dtype);
    if (x == 0.0f) x = 0.0f; /* -0.0 too */
    sum = r == 0 ? x : sum + x;
  }
  return ref_round(sum, dtype);
}

/* One row: s[hidden] is the sum, and is overwritten. The pointers of `op` are to host memory. */
static inline void ref_epilogue_row(const struct kernel_op* op, int64_t token, float* s) {
  for (int64_t i = 0; i < op->hidden; ++i) {
    if (op->residual_in) {
      s[i] = ref_round(s[i] + ref_load(op->residual_in, token * op->residual_in_stride + i, op->dtype), op->dtype);
    }
  }
  if (op->norm_out) {
    const float mean = ref_sum_of_squares(s, op->hidden) * (1.0f / (float)op->hidden);
    const float scale = (float)(1.0 / sqrt((double)(mean + op->eps)));
    for (int64_t i = 0; i < op->hidden; ++i) {
      const float weight = op->weight_bias + ref_load(op->gamma, i, op->gamma_dtype);
      ref_store(op->norm_out, token * op->norm_out_stride + i, s[i] * scale * weight, op->dtype);
    }
  }
  for (int64_t i = 0; op->residual_out && i < op->hidden; ++i) {
    ref_store(op->residual_out, token * op->residual_out_stride + i, s[i], op->dtype);
  }
}

#endif
