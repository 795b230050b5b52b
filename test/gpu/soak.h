/* SPDX-License-Identifier: Apache-2.0
 *
 * soak.h: random requests for the soaks of the plugin's table, with the bytes that must come of them. Each request has
 * a part of its ranks' arenas to itself, so that it can be done again and again, in any order.
 */
#ifndef ARFUSION_TEST_GPU_SOAK_H_
#define ARFUSION_TEST_GPU_SOAK_H_

#include "test/gpu/plan.h"

#define SOAK_OPERATIONS 24 /* the most */
#define SOAK_ARENA_BYTES ((size_t)2 << 20)
#define SOAK_ELEMENTS 20000 /* of an operation, the most */

struct soak {
  struct plan plan; /* its arenas: what must come of the operations */
  unsigned char* initial[ARFUSION_MAX_RANKS];
  size_t at[SOAK_OPERATIONS + 1][ARFUSION_MAX_RANKS]; /* where an operation's part of an arena begins */
};

static inline void soak_make(struct soak* soak, int nranks, uint32_t random) {
  struct plan* plan = &soak->plan;
  plan_make(plan, nranks, SOAK_ARENA_BYTES, SOAK_OPERATIONS, random);
  plan->whole = 1;
  for (;;) {
    const struct plan_shape s = plan_draw_shape(plan);
    if (s.tokens * s.hidden > SOAK_ELEMENTS) continue;
    plan->first = plan->count; /* nothing is another one's output */
    for (int r = 0; r < nranks; ++r) soak->at[plan->count][r] = (plan->used[r] + 255) / 256 * 256;
    if (!plan_add(plan, &s)) break;
  }
  for (int r = 0; r < nranks; ++r) {
    soak->at[plan->count][r] = SOAK_ARENA_BYTES;
    soak->initial[r] = plan_allocate(SOAK_ARENA_BYTES);
    memcpy(soak->initial[r], plan->arena[r], SOAK_ARENA_BYTES);
  }
  for (int k = 0; k < plan->count; ++k) plan_reference(plan, k);
}

static inline void soak_free(struct soak* soak) {
  for (int r = 0; r < soak->plan.nranks; ++r) free(soak->initial[r]);
  plan_free(&soak->plan);
}

static inline size_t soak_bytes(const struct soak* soak, int k, int r) { return soak->at[k + 1][r] - soak->at[k][r]; }

/* Operation k of rank r, in an arena at `work`. */
static inline arfusionRequest_t soak_request(const struct soak* soak, int k, int r, unsigned char* work,
                                             arfusionAlgorithm_t hint) {
  const struct kernel_op op = plan_op(&soak->plan.planned[k].op[r], soak->plan.arena[r], work);
  arfusionRequest_t q = {.size = sizeof q, .pattern = op.pattern, .dataType = op.dtype, .gammaDataType = op.gamma_dtype,
                         .quantization = op.quantization, .scaleLayout = op.scale_layout, .algorithmHint = hint,
                         .groupSize = op.group_size, .tokens = op.tokens, .hidden = op.hidden, .flags = op.flags,
                         .eps = op.eps, .weightBias = op.weight_bias, .input = op.input, .residualIn = op.residual_in,
                         .gamma = op.gamma, .allreduceOut = op.allreduce_out, .residualOut = op.residual_out,
                         .normOut = op.norm_out, .quantOut = op.quant_out, .scaleOut = op.scale_out};
  if (op.pattern == arfusionPatternResidualRmsNorm) q.inputStride = op.input_stride;
  if (op.residual_in) q.residualInStride = op.residual_in_stride;
  if (op.residual_out) q.residualOutStride = op.residual_out_stride;
  if (op.norm_out) q.normOutStride = op.norm_out_stride;
  if (op.quantization == arfusionQuantFp8) q.fp8Scale = op.quant_scale;
  if (op.quantization == arfusionQuantNvfp4) q.nvfp4GlobalScale = op.quant_scale;
  return q;
}

/* 0 to 3: any algorithm, or one of them. */
static inline arfusionAlgorithm_t soak_hint(uint32_t drawn) {
  return drawn ? (arfusionAlgorithm_t)(arfusionAlgoOneshotLamport + (int)drawn - 1) : arfusionAlgoAuto;
}

#endif
