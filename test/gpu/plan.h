/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.h: random operations with everything that may be in their way, and what must come of them. Each rank has an
 * arena in host memory, which holds the tensors of all its operations between bytes that nobody may write; running the
 * reference turns the arenas from what the ranks start with into what they must end with.
 */
#ifndef ARFUSION_TEST_GPU_PLAN_H_
#define ARFUSION_TEST_GPU_PLAN_H_

#include <stdio.h>
#include <stdlib.h>

#include "test/gpu/random.h"
#include "test/gpu/reference.h"

struct plan_shape {
  arfusionPattern_t pattern;
  arfusionDataType_t dtype;
  int64_t tokens, hidden;
};

/* An operation on all ranks, with pointers into their arenas. */
struct planned {
  struct kernel_op op[ARFUSION_MAX_RANKS];
};

struct plan {
  int nranks, count, most; /* operations, and how many there may be */
  int first;               /* operations from here on may work on the outputs of those before them */
  uint32_t random;
  int chained;  /* operations do work on them wherever shapes allow it, and may begin before those end */
  int whole;    /* operations are whole requests, of the plugin's table */
  int plain;    /* the operation being made has dense and aligned tensors, as most callers have */
  size_t bytes; /* of an arena */
  unsigned char* arena[ARFUSION_MAX_RANKS];
  size_t used[ARFUSION_MAX_RANKS];
  struct planned* planned;
};

enum plan_values { PLAN_PLAIN, PLAN_MIXED, PLAN_WILD, PLAN_VALUES };

/* Exits if there is no memory. */
static inline void* plan_allocate(size_t bytes) {
  void* p = malloc(bytes);
  if (p) return p;
  fprintf(stderr, "out of memory\n");
  exit(1);
}

static inline uint32_t plan_draw(struct plan* plan, uint32_t below) { return random_draw(&plan->random, below); }

static inline void plan_clear(struct plan* plan) {
  plan->count = plan->first = 0;
  for (int r = 0; r < plan->nranks; ++r) {
    plan->used[r] = 0;
    memset(plan->arena[r], 0xa5, plan->bytes);
  }
}

static inline void plan_make(struct plan* plan, int nranks, size_t bytes, int most, uint32_t random) {
  *plan = (struct plan){.nranks = nranks, .most = most, .random = random, .bytes = bytes};
  plan->planned = plan_allocate((size_t)most * sizeof *plan->planned);
  for (int r = 0; r < nranks; ++r) plan->arena[r] = plan_allocate(bytes);
  plan_clear(plan);
}

static inline void plan_free(struct plan* plan) {
  for (int r = 0; r < plan->nranks; ++r) free(plan->arena[r]);
  free(plan->planned);
}

/* ---------------------------------------------------------------- making operations */

static inline void plan_fill(struct plan* plan, void* p, int64_t count, arfusionDataType_t dtype,
                             enum plan_values values) {
  for (int64_t i = 0; i < count; ++i) {
    float f = (float)plan_draw(plan, 65536) / 32768.0f - 1.0f;
    const uint32_t pick = values == PLAN_PLAIN ? 99 : plan_draw(plan, 16);
    if (pick == 0) f = -0.0f;
    if (pick == 1) f = 0.0f;
    if (pick == 2) f *= dtype == arfusionFloat16 ? 0x1p-15f : 0x1p-130f;
    ref_store(p, i, f, dtype);
    if (values == PLAN_WILD && plan_draw(plan, 4096) == 0) { /* any bits: NaN, infinity, the sentinel */
      const uint32_t bits = plan_draw(plan, 4) == 0 ? KERNEL_SENTINEL : plan_draw(plan, 0xffffffffu);
      memcpy((char*)p + i * kernel_element_size(dtype), &bits, (size_t)kernel_element_size(dtype));
    }
  }
}

/* `bytes` in a rank's arena, `skew` bytes off a multiple of 256. NULL: full. */
static inline void* plan_place(struct plan* plan, int rank, int64_t bytes, int64_t skew) {
  const size_t start = (plan->used[rank] + 255) / 256 * 256;
  if (start + (size_t)(bytes + skew) > plan->bytes) return NULL;
  plan->used[rank] = start + (size_t)(bytes + skew);
  return plan->arena[rank] + start + skew;
}

/* Rows of a tensor of `shape`, filled if asked for. */
static inline void* plan_place_rows(struct plan* plan, int rank, const struct plan_shape* s, int64_t stride,
                                    int64_t skew, int filled, enum plan_values values) {
  const int64_t size = kernel_element_size(s->dtype);
  char* p = plan_place(plan, rank, ((s->tokens - 1) * stride + s->hidden) * size, skew);
  for (int64_t t = 0; p && filled && t < s->tokens; ++t)
    plan_fill(plan, p + t * stride * size, s->hidden, s->dtype, values);
  return p;
}

static inline int64_t plan_draw_stride(struct plan* plan, const struct plan_shape* s) {
  if (plan->plain || s->pattern == arfusionPatternAllReduce || plan_draw(plan, 2)) return s->hidden;
  return s->hidden + (int64_t)plan_draw(plan, 20);
}

static inline int64_t plan_draw_skew(struct plan* plan, arfusionDataType_t dtype) {
  return plan->plain || plan_draw(plan, 3) ? 0 : (int64_t)plan_draw(plan, 16) * kernel_element_size(dtype);
}

/* A quantization for rows of this shape, or none; alike on all ranks. */
struct plan_quant {
  arfusionQuant_t kind;
  arfusionScaleLayout_t layout;
  int group;
  int64_t first_token, all_tokens; /* of the request that the operation is a part of */
};

static inline struct plan_quant plan_draw_quant(struct plan* plan, const struct plan_shape* s) {
  struct plan_quant q = {.kind = arfusionQuantNone};
  if (s->pattern == arfusionPatternAllReduce || plan_draw(plan, 2)) return q;
  q.kind = (arfusionQuant_t)(arfusionQuantFp8 + (int)plan_draw(plan, 4));
  q.layout = plan_draw(plan, 2) ? arfusionScaleSwizzled128x4 : arfusionScaleLinear;
  if (q.kind == arfusionQuantNvfp4 && (s->dtype == arfusionFloat32 || s->hidden % 16)) q.kind = arfusionQuantFp8Token;
  if (q.kind == arfusionQuantFp8Group && s->hidden % KERNEL_PACK) q.kind = arfusionQuantFp8;
  const int packs = (int)(s->hidden / KERNEL_PACK);
  for (q.group = 0; q.kind == arfusionQuantFp8Group && q.group == 0;) {
    const int wanted = 1 + (int)plan_draw(plan, plan_draw(plan, 2) ? 20 : (uint32_t)packs);
    if (packs % wanted == 0) q.group = wanted * KERNEL_PACK;
  }
  const uint32_t others = plan_draw(plan, 8) ? 9 : 130;
  q.first_token = plan_draw(plan, 4) ? 0 : (int64_t)plan_draw(plan, others);
  q.all_tokens = q.first_token + s->tokens + (plan_draw(plan, 4) ? 0 : (int64_t)plan_draw(plan, others));
  if (plan->whole) q.first_token = 0, q.all_tokens = s->tokens;
  return q;
}

/* What a quantized operation has besides. 0: the arena is full. */
static inline int plan_local_quant(struct plan* plan, int rank, const struct plan_shape* s, const struct plan_quant* q,
                                   struct kernel_op* op) {
  const arfusionRequest_t part = {.quantization = q->kind, .tokens = s->tokens, .hidden = s->hidden};
  const arfusionRequest_t whole = {.quantization = q->kind, .scaleLayout = q->layout, .groupSize = q->group,
                                   .tokens = q->all_tokens, .hidden = s->hidden};
  const int64_t unit = q->kind == arfusionQuantNvfp4 ? 1 : 4;
  op->quantization = q->kind;
  op->scale_layout = q->layout;
  op->group_size = q->group;
  op->first_token = q->first_token;
  op->all_tokens = q->all_tokens;
  if (q->kind == arfusionQuantFp8 || q->kind == arfusionQuantNvfp4) {
    float* scale = plan_place(plan, rank, sizeof *scale, 4 * (int64_t)plan_draw(plan, 4));
    if (!scale) return 0;
    *scale = plan_draw(plan, 8) ? (float)(1 + plan_draw(plan, 1000)) * 0x1p-7f
                                : ldexpf(1.0f, (int)plan_draw(plan, 250) - 126);
    op->quant_scale = scale;
  }
  const int aligned = plan->plain || plan_draw(plan, 3);
  op->quant_out = plan_place(plan, rank, arfusionQuantOutBytes(&part), aligned ? 0 : (int64_t)plan_draw(plan, 16));
  if (q->kind == arfusionQuantFp8) return op->quant_out != NULL;
  op->scale_out = plan_place(plan, rank, arfusionScaleOutBytes(&whole),
                             aligned ? 0 : (int64_t)plan_draw(plan, 16) * unit);
  return op->quant_out && op->scale_out;
}

/* Half of the time `out`, which the kernel before has written and may still be writing, where `elements` fit there;
 * else NULL. */
static inline void* plan_draw_written(struct plan* plan, const struct kernel_op* before, void* out, int64_t stride,
                                      arfusionDataType_t dtype, int64_t elements) {
  if (!out || before->dtype != dtype || stride != before->hidden) return NULL;
  return before->tokens * before->hidden >= elements && (plan->chained || plan_draw(plan, 2)) ? out : NULL;
}

/* The parts of plan_local, which draws them in this order; 0: the arena is full. */
static inline int plan_local_input(struct plan* plan, int rank, const struct plan_shape* s,
                                   const struct kernel_op* before, enum plan_values values, struct kernel_op* op) {
  op->input_stride = plan_draw_stride(plan, s);
  if (before && s->pattern == arfusionPatternAllReduce) {
    op->input = plan_draw_written(plan, before, before->norm_out, before->norm_out_stride, s->dtype, s->hidden);
  }
  if (!op->input) {
    op->input = plan_place_rows(plan, rank, s, op->input_stride, plan_draw_skew(plan, s->dtype), 1, values);
  }
  return op->input != NULL;
}

static inline int plan_local_residual(struct plan* plan, int rank, const struct plan_shape* s,
                                      const struct kernel_op* before, enum plan_values values, struct kernel_op* op) {
  op->residual_in_stride = s->hidden;
  if (before) {
    op->residual_in = plan_draw_written(plan, before, before->residual_out, before->residual_out_stride, s->dtype,
                                        s->tokens * s->hidden);
  }
  if (!op->residual_in) {
    op->residual_in_stride = plan_draw_stride(plan, s);
    op->residual_in =
        plan_place_rows(plan, rank, s, op->residual_in_stride, plan_draw_skew(plan, s->dtype), 1, values);
  }
  return op->residual_in != NULL;
}

static inline int plan_local_gamma(struct plan* plan, int rank, const struct plan_shape* s,
                                   const struct kernel_op* before, struct kernel_op* op) {
  if (before) {
    op->gamma = plan_draw_written(plan, before, before->norm_out, before->norm_out_stride, op->gamma_dtype, s->hidden);
  }
  if (op->gamma) return 1;
  const int64_t bytes = s->hidden * kernel_element_size(op->gamma_dtype);
  void* gamma = plan_place(plan, rank, bytes, plan_draw_skew(plan, op->gamma_dtype));
  if (!gamma) return 0;
  plan_fill(plan, gamma, s->hidden, op->gamma_dtype, PLAN_PLAIN);
  op->gamma = gamma;
  return 1;
}

static inline int plan_local_norm_out(struct plan* plan, int rank, const struct plan_shape* s,
                                      enum plan_values values, struct kernel_op* op) {
  op->norm_out_stride = op->input_stride;
  op->norm_out = (void*)op->input;
  if (plan_draw(plan, 3)) {
    op->norm_out_stride = plan_draw_stride(plan, s);
    op->norm_out = plan_place_rows(plan, rank, s, op->norm_out_stride, plan_draw_skew(plan, s->dtype), 0, values);
  }
  return op->norm_out != NULL;
}

static inline int plan_local_residual_out(struct plan* plan, int rank, const struct plan_shape* s,
                                          enum plan_values values, struct kernel_op* op) {
  const uint32_t place = plan_draw(plan, 4);
  op->residual_out_stride = op->residual_in_stride;
  op->residual_out = (void*)op->residual_in;
  if (place == 1 && op->norm_out != op->input) {
    op->residual_out_stride = op->input_stride;
    op->residual_out = (void*)op->input;
  } else if (!op->residual_out || place) {
    op->residual_out_stride = plan_draw_stride(plan, s);
    op->residual_out =
        plan_place_rows(plan, rank, s, op->residual_out_stride, plan_draw_skew(plan, s->dtype), 0, values);
  }
  return op->residual_out != NULL;
}

/* One operation on one rank, with everything local drawn. 0: the arena is full. */
static inline int plan_local(struct plan* plan, int rank, const struct plan_shape* s, const struct plan_quant* q,
                             arfusionDataType_t gamma_dtype, enum plan_values values) {
  struct kernel_op* op = &plan->planned[plan->count].op[rank];
  memset(op, 0, sizeof *op);
  op->pattern = s->pattern;
  op->dtype = s->dtype;
  op->gamma_dtype = gamma_dtype;
  op->tokens = s->tokens;
  op->hidden = s->hidden;
  op->flags = plan_draw(plan, 4); /* dependent launch, early trigger */
  if (plan->chained) op->flags = ARFUSION_FLAG_DEPENDENT_LAUNCH | ARFUSION_FLAG_EARLY_TRIGGER;
  const struct kernel_op* before = plan->count > plan->first ? &plan->planned[plan->count - 1].op[rank] : NULL;
  if (!plan_local_input(plan, rank, s, before, values, op)) return 0;
  if (s->pattern == arfusionPatternAllReduce) {
    op->allreduce_out = plan_draw(plan, 2)
                            ? (void*)op->input
                            : plan_place_rows(plan, rank, s, s->hidden, plan_draw_skew(plan, s->dtype), 0, values);
    return op->allreduce_out != NULL;
  }
  op->eps = plan_draw(plan, 2) ? 1e-5f : 1e-6f;
  op->weight_bias = (float)plan_draw(plan, 2);
  if (plan_draw(plan, 4) && !plan_local_residual(plan, rank, s, before, values, op)) return 0;
  if (q->kind != arfusionQuantNone && !plan_local_quant(plan, rank, s, q, op)) return 0;
  const uint32_t outputs = op->quant_out ? plan_draw(plan, 4) : 1 + plan_draw(plan, 3);
  if ((outputs & 1 || op->quant_out) && !plan_local_gamma(plan, rank, s, before, op)) return 0;
  if (outputs & 1 && !plan_local_norm_out(plan, rank, s, values, op)) return 0;
  return !(outputs & 2) || plan_local_residual_out(plan, rank, s, values, op);
}

/* An operation of this shape. 0: there is no room for another one. */
static inline int plan_add(struct plan* plan, const struct plan_shape* s) {
  const arfusionDataType_t gamma_dtype = plan_draw(plan, 3) ? s->dtype : arfusionFloat32;
  const enum plan_values values = (enum plan_values)plan_draw(plan, PLAN_VALUES);
  plan->plain = plan_draw(plan, 2) != 0;
  const struct plan_quant quant = plan_draw_quant(plan, s);
  if (plan->count == plan->most) return 0;
  for (int r = 0; r < plan->nranks; ++r) {
    if (!plan_local(plan, r, s, &quant, gamma_dtype, values)) return 0;
  }
  ++plan->count;
  return 1;
}

static inline struct plan_shape plan_draw_shape(struct plan* plan) {
  static const arfusionDataType_t dtypes[] = {arfusionBfloat16, arfusionFloat16, arfusionFloat32};
  static const int64_t usual[] = {2880, 4096, 5120, 7168, 8192, 16384, 12288};
  struct plan_shape s;
  s.pattern = plan_draw(plan, 3) ? arfusionPatternResidualRmsNorm : arfusionPatternAllReduce;
  s.dtype = dtypes[plan_draw(plan, 3)];
  s.tokens = 1;
  if (s.pattern == arfusionPatternAllReduce) {
    const uint32_t most = plan_draw(plan, 2) ? 300 : plan_draw(plan, 4) ? 20000 : 250000;
    s.hidden = 1 + (int64_t)plan_draw(plan, most);
    return s;
  }
  const int64_t step = 16 / kernel_element_size(s.dtype);
  if (plan_draw(plan, 2))
    s.hidden = usual[plan_draw(plan, 7)];
  else
    s.hidden = step * (1 + (int64_t)plan_draw(plan, plan_draw(plan, 3) ? 400 : 65536 / (uint32_t)step));
  const int64_t most = (s.hidden > 16384 ? 100000 : 40000) / s.hidden;
  s.tokens = 1 + (int64_t)plan_draw(plan, (uint32_t)(most < 600 ? most + 1 : 600));
  return s;
}

/* ---------------------------------------------------------------- what must come of them */

/* Operation k on the arenas. Operations in which no tensor is the same may run at the same time. */
static inline void plan_reference(const struct plan* plan, int k) {
  const struct kernel_op* ops = plan->planned[k].op;
  const void* inputs[ARFUSION_MAX_RANKS];
  float* sums = plan_allocate((size_t)(ops->tokens * ops->hidden) * sizeof *sums);
  float* row = plan_allocate((size_t)ops->hidden * sizeof *row);
  for (int r = 0; r < plan->nranks; ++r) inputs[r] = ops[r].input;
  for (int64_t t = 0; t < ops->tokens; ++t) {
    for (int64_t i = 0; i < ops->hidden; ++i) {
      int64_t index[ARFUSION_MAX_RANKS];
      for (int r = 0; r < plan->nranks; ++r) index[r] = t * ops[r].input_stride + i;
      sums[t * ops->hidden + i] = ref_sum(inputs, index, plan->nranks, ops->dtype);
    }
  }
  for (int r = 0; r < plan->nranks; ++r) {
    const struct kernel_op* op = &ops[r];
    for (int64_t t = 0; t < op->tokens; ++t) {
      memcpy(row, sums + t * op->hidden, (size_t)op->hidden * sizeof *row);
      if (op->pattern == arfusionPatternAllReduce) {
        for (int64_t i = 0; i < op->hidden; ++i) ref_store(op->allreduce_out, i, row[i], op->dtype);
      } else {
        ref_epilogue_row(op, t, row);
      }
    }
  }
  free(row);
  free(sums);
}

/* The stand-alone epilogue instead, on rank 0: its input is the sum. */
static inline void plan_reference_epilogue(const struct plan* plan, int k) {
  const struct kernel_op* op = &plan->planned[k].op[0];
  float* row = plan_allocate((size_t)op->hidden * sizeof *row);
  for (int64_t t = 0; t < op->tokens; ++t) {
    for (int64_t i = 0; i < op->hidden; ++i) row[i] = ref_load(op->input, t * op->input_stride + i, op->dtype);
    ref_epilogue_row(op, t, row);
  }
  free(row);
}

/* ---------------------------------------------------------------- elsewhere */

static inline void* plan_moved(const void* p, const unsigned char* from, unsigned char* to) {
  return p ? to + ((const unsigned char*)p - from) : NULL;
}

/* An operation with its tensors where `to` is in place of `from`. */
static inline struct kernel_op plan_op(const struct kernel_op* host, const unsigned char* from, unsigned char* to) {
  struct kernel_op op = *host;
  op.input = plan_moved(op.input, from, to);
  op.residual_in = plan_moved(op.residual_in, from, to);
  op.gamma = plan_moved(op.gamma, from, to);
  op.allreduce_out = plan_moved(op.allreduce_out, from, to);
  op.residual_out = plan_moved(op.residual_out, from, to);
  op.norm_out = plan_moved(op.norm_out, from, to);
  op.quant_scale = plan_moved(op.quant_scale, from, to);
  op.quant_out = plan_moved(op.quant_out, from, to);
  op.scale_out = plan_moved(op.scale_out, from, to);
  return op;
}

/* The whole of an operation in a line; places are bytes from `from` on. */
static inline void plan_print(const struct kernel_op* op, const unsigned char* from) {
  const void* const tensors[] = {op->input,    op->residual_in, op->gamma,     op->allreduce_out, op->residual_out,
                                 op->norm_out, op->quant_scale, op->quant_out, op->scale_out};
  static const char* const names[] = {"input",    "residual_in", "gamma",     "allreduce_out", "residual_out",
                                      "norm_out", "quant_scale", "quant_out", "scale_out"};
  const int64_t strides[] = {op->input_stride, op->residual_in_stride, 0, 0, op->residual_out_stride,
                             op->norm_out_stride, 0, 0, 0};
  printf("pattern %d dtype %d gamma dtype %d %lld x %lld eps %g weight bias %g flags %u;", (int)op->pattern,
         (int)op->dtype, (int)op->gamma_dtype, (long long)op->tokens, (long long)op->hidden, (double)op->eps,
         (double)op->weight_bias, op->flags);
  if (op->quant_out) {
    printf(" quantization %d layout %d group %d tokens from %lld of %lld;", (int)op->quantization,
           (int)op->scale_layout, op->group_size, (long long)op->first_token, (long long)op->all_tokens);
  }
  for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; ++i) {
    if (tensors[i])
      printf(" %s at %lld stride %lld", names[i], (long long)((const unsigned char*)tensors[i] - from),
             (long long)strides[i]);
  }
  printf("\n");
}

#endif
