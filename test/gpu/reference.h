/* SPDX-License-Identifier: Apache-2.0
 *
 * reference.h: the numerics contract as a scalar program, for the tests of this folder; its last step is
 * arfusion-bench's. Shares nothing with kernels/.
 */
#ifndef ARFUSION_TEST_GPU_REFERENCE_H_
#define ARFUSION_TEST_GPU_REFERENCE_H_

#include "kernels/op.h"
#include "plugin/tools/bench/reference.h"
#include "test/gpu/number.h"

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

/* Step 6 of one row, n[hidden] of the data type. */
static inline void ref_quant_row(const struct kernel_op* op, int64_t token, const void* n) {
  const struct reference_quant quant = {.dtype = op->dtype,
                                        .quantization = op->quantization,
                                        .layout = op->scale_layout,
                                        .group = op->group_size,
                                        .tokens = 1,
                                        .hidden = op->hidden,
                                        .first_token = op->first_token + token,
                                        .all_tokens = op->all_tokens,
                                        .scale = op->quant_scale ? *op->quant_scale : 0.0f,
                                        .scales = op->scale_out};
  const int64_t bytes = op->quantization == arfusionQuantNvfp4 ? op->hidden / 2 : op->hidden;
  reference_quant(&quant, n, (unsigned char*)op->quant_out + token * bytes);
}

/* One row: s[hidden] is the sum, and is overwritten. The pointers of `op` are to host memory. */
static inline void ref_epilogue_row(const struct kernel_op* op, int64_t token, float* s) {
  for (int64_t i = 0; i < op->hidden; ++i) {
    if (op->residual_in) {
      s[i] = ref_round(s[i] + ref_load(op->residual_in, token * op->residual_in_stride + i, op->dtype), op->dtype);
    }
  }
  for (int64_t i = 0; op->residual_out && i < op->hidden; ++i) {
    ref_store(op->residual_out, token * op->residual_out_stride + i, s[i], op->dtype);
  }
  if (!op->norm_out && !op->quant_out) return;
  const float mean = ref_sum_of_squares(s, op->hidden) * (1.0f / (float)op->hidden);
  const float scale = (float)(1.0 / sqrt((double)(mean + op->eps)));
  for (int64_t i = 0; i < op->hidden; ++i) { /* in s, whose elements are at least as large */
    const float weight = op->weight_bias + ref_load(op->gamma, i, op->gamma_dtype);
    ref_store(s, i, s[i] * scale * weight, op->dtype);
  }
  const size_t size = (size_t)kernel_element_size(op->dtype);
  if (op->norm_out)
    memcpy((char*)op->norm_out + (size_t)(token * op->norm_out_stride) * size, s, (size_t)op->hidden * size);
  if (op->quant_out) ref_quant_row(op, token, s);
}

#endif
