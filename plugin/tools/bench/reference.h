/* SPDX-License-Identifier: Apache-2.0
 *
 * reference.h: the fused operation for all ranks at once in one plain program, step by step as the numerics contract
 * has it. It shares no code with kernels/: it is what their bits are compared with where no digest is at hand. Tensors
 * are dense; each step's output may be its input.
 */
#ifndef ARFUSION_BENCH_REFERENCE_H_
#define ARFUSION_BENCH_REFERENCE_H_

#include "arfusion_plugin.h"

/* Step 1: the sum of the ranks' inputs, in rank order, in fp32, rounded once. -0.0 counts as +0.0. */
void reference_sum(arfusionDataType_t dtype, int nranks, const void* const* inputs, int64_t count, void* sum);

/* Step 2: sum + residual, rounded. */
void reference_residual(arfusionDataType_t dtype, const void* sum, const void* residual, int64_t count, void* out);

/* Steps 3 to 5: RMSNorm of each row of y. */
struct reference_norm {
  arfusionDataType_t dtype; /* of y and the output */
  arfusionDataType_t gamma_dtype;
  int64_t tokens, hidden;
  float eps, weight_bias;
  const void* gamma;
};
void reference_norm(const struct reference_norm* norm, const void* y, void* out);

/* Step 6: the codes and scales of norm_out (`n`), both dense, as large as the request's size functions say. n may be a
 * part of a request: its tokens from first_token on. The request's last token has all rows that fill up the scales'
 * layout. */
struct reference_quant {
  arfusionDataType_t dtype; /* of n */
  arfusionQuant_t quantization;
  arfusionScaleLayout_t layout;
  int group;
  int64_t tokens, hidden;
  int64_t first_token, all_tokens;
  float scale;  /* fp8: what is divided by; nvfp4: the global scale */
  void* scales; /* of all_tokens; not for fp8 */
};
void reference_quant(const struct reference_quant* quant, const void* n, unsigned char* codes);

/* The same of a whole case. */
struct bench_case;
void reference_quant_case(const struct bench_case* c, const void* n, unsigned char* codes, void* scales);

#endif
