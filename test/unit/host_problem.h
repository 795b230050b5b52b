/* SPDX-License-Identifier: Apache-2.0
 *
 * host_problem.h: problems for the host kernels' test: their inputs, the bits that must come out, by a scalar reference
 * written from the numerics contract that shares no code with the kernels, and one rank's memory, with guard bytes.
 */
#ifndef ARFUSION_TEST_HOST_PROBLEM_H_
#define ARFUSION_TEST_HOST_PROBLEM_H_

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/op.h"

/* ---------------------------------------------------------------- reference */

static float float_of(uint32_t bits) {
  float v;
  memcpy(&v, &bits, 4);
  return v;
}
static uint32_t bits_of(float v) {
  uint32_t bits;
  memcpy(&bits, &v, 4);
  return bits;
}

static float ref_widen(arfusionDataType_t dtype, uint32_t bits) {
  if (dtype == arfusionFloat32) return float_of(bits);
  if (dtype == arfusionBfloat16) return float_of(bits << 16);
  int exponent = (int)(bits >> 10 & 31), mantissa = (int)(bits & 1023);
  float v = exponent == 31  ? (mantissa ? NAN : INFINITY)
            : exponent == 0 ? ldexpf((float)mantissa, -24)
                            : ldexpf((float)(1024 + mantissa), exponent - 25);
  return bits & 0x8000 ? -v : v;
}

static uint32_t ref_round(arfusionDataType_t dtype, float v) {
  if (isnan(v)) return dtype == arfusionFloat32 ? 0x7fffffffu : 0x7fffu;
  uint32_t bits = bits_of(v);
  if (dtype == arfusionFloat32) return bits;
  if (dtype == arfusionBfloat16) {
    uint32_t rest = bits & 0xffffu, kept = bits >> 16;
    return kept + (rest > 0x8000u || (rest == 0x8000u && (kept & 1)));
  }
  uint32_t sign = bits >> 16 & 0x8000u;
  double magnitude = fabs((double)v);
  if (magnitude >= 65520.0) return sign | 0x7c00u;
  int exponent = -14;
  if (magnitude >= ldexp(1, -14)) exponent = ilogb(magnitude);
  uint32_t steps = (uint32_t)nearbyint(ldexp(magnitude, 10 - exponent)); /* 1024 or more: normal */
  return sign | (((uint32_t)(exponent + 14) << 10) + steps);
}

/* 32 lanes: lane l adds lane l^16, then l^8, ... */
static float ref_lanes(const float* value) {
  float lane[32], next[32];
  memcpy(lane, value, sizeof(lane));
  for (int d = 16; d; d >>= 1) {
    for (int l = 0; l < 32; l++) next[l] = lane[l] + lane[l ^ d];
    memcpy(lane, next, sizeof(lane));
  }
  return lane[0];
}

static float ref_sum_of_squares(const float* y, int64_t hidden) {
  static float segment[4096], pack[32];
  int64_t segments = (hidden + 255) / 256;
  memset(segment, 0, sizeof(segment));
  for (int64_t s = 0; s < segments; s++) {
    for (int p = 0; p < 32; p++) {
      pack[p] = 0;
      for (int64_t i = s * 256 + p * 8; i < s * 256 + p * 8 + 8; i++) pack[p] += i < hidden ? y[i] * y[i] : 0.0f;
    }
    segment[s] = ref_lanes(pack);
  }
  float total = 0;
  for (int64_t s = 0; s < segments; s += 32) total += ref_lanes(segment + s);
  return total;
}

/* ---------------------------------------------------------------- problems */

enum kind { UNIFORM, MIXED, RAW, ZEROS, LARGE, KINDS };
enum tensor { INPUT, RESIDUAL, GAMMA };

/* What all ranks agree on, and the bits that must come out (one word an element). */
struct problem {
  arfusionPattern_t pattern;
  arfusionDataType_t dtype, gamma_dtype;
  int nranks, residual;
  enum kind kind;
  int64_t tokens, hidden;
  float eps, bias;
  uint64_t seed;
  uint32_t *sum, *y, *norm;
};

static uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

static uint32_t problem_element(const struct problem* p, enum tensor tensor, int rank, int64_t i) {
  uint64_t h = mix(mix(p->seed * 64 + (uint64_t)tensor * 16 + (uint64_t)rank) + (uint64_t)i * 0x9e3779b97f4a7c15u);
  arfusionDataType_t dtype = tensor == GAMMA ? p->gamma_dtype : p->dtype;
  uint32_t sign = dtype == arfusionFloat32 ? 0x80000000u : 0x8000u;
  float v = (float)(h & 0xffff) / 32768 - 1;
  if (tensor == GAMMA) return ref_round(dtype, v);
  switch (p->kind) {
    case RAW: return (uint32_t)(h >> 32) & (sign | (sign - 1));
    case ZEROS: return h >> 20 & 1 ? sign : 0;
    case LARGE: return ref_round(dtype, v * 60000);
    case MIXED:
      if ((h >> 20 & 7) == 0) return sign;
      if ((h >> 20 & 7) == 1) return (uint32_t)(h >> 32) & (dtype == arfusionFloat32 ? 0x807fffffu : 0x807fu);
      if ((h >> 20 & 255) == 2) return ref_round(dtype, h >> 30 & 1 ? INFINITY : NAN);
      return ref_round(dtype, v);
    default: return ref_round(dtype, v);
  }
}

static void problem_solve(struct problem* p) {
  int64_t count = p->tokens * p->hidden;
  float* y = malloc((size_t)p->hidden * sizeof(float));
  p->sum = malloc((size_t)count * 4);
  p->y = malloc((size_t)count * 4);
  p->norm = malloc((size_t)count * 4);
  for (int64_t t = 0; t < p->tokens; t++) {
    for (int64_t c = 0; c < p->hidden; c++) {
      int64_t i = t * p->hidden + c;
      float s = 0;
      for (int r = 0; r < p->nranks; r++) {
        float x = ref_widen(p->dtype, problem_element(p, INPUT, r, i));
        if (x == 0) x = 0.0f;
        s = r ? s + x : x;
      }
      p->sum[i] = ref_round(p->dtype, s);
      y[c] = ref_widen(p->dtype, p->sum[i]);
      if (p->residual) y[c] += ref_widen(p->dtype, problem_element(p, RESIDUAL, 0, i));
      p->y[i] = ref_round(p->dtype, y[c]);
      y[c] = ref_widen(p->dtype, p->y[i]);
    }
    if (p->pattern == arfusionPatternAllReduce) continue;
    float mean = ref_sum_of_squares(y, p->hidden) * (1.0f / (float)p->hidden);
    float scale = (float)(1.0 / sqrt((double)(mean + p->eps)));
    for (int64_t c = 0; c < p->hidden; c++) {
      float n = y[c] * scale, g = p->bias + ref_widen(p->gamma_dtype, problem_element(p, GAMMA, 0, c));
      p->norm[t * p->hidden + c] = ref_round(p->dtype, n * g);
    }
  }
  free(y);
}

static void problem_free(struct problem* p) {
  free(p->sum);
  free(p->y);
  free(p->norm);
}

static inline struct problem problem_flat(arfusionDataType_t dtype, int nranks, int64_t count, enum kind kind,
                                          uint64_t seed) {
  struct problem p = {.pattern = arfusionPatternAllReduce, .dtype = dtype, .nranks = nranks, .kind = kind, .tokens = 1,
                      .hidden = count, .seed = seed};
  problem_solve(&p);
  return p;
}

static struct problem problem_rows(arfusionDataType_t dtype, int nranks, int64_t tokens, int64_t hidden, enum kind kind,
                                   uint64_t seed) {
  struct problem p = {.pattern = arfusionPatternResidualRmsNorm, .dtype = dtype, .nranks = nranks, .kind = kind,
                      .tokens = tokens, .hidden = hidden, .seed = seed};
  p.gamma_dtype = mix(seed) & 1 ? arfusionFloat32 : dtype;
  p.residual = (mix(seed) >> 1 & 3) != 0;
  p.bias = mix(seed) >> 3 & 1 ? 1.0f : 0.0f;
  p.eps = 1e-5f;
  problem_solve(&p);
  return p;
}

/* ---------------------------------------------------------------- memory of one rank */

/* Rows with guard bytes around and between them. */
struct image {
  unsigned char *memory, *first;
  size_t bytes;
  int element;
  int64_t rows, columns, stride;
};

static struct image image_make(int64_t rows, int64_t columns, arfusionDataType_t dtype, int64_t gap, int shift) {
  struct image image = {
      .element = kernel_element_size(dtype), .rows = rows, .columns = columns, .stride = columns + gap};
  image.bytes = (size_t)((rows * image.stride + 32) * image.element);
  image.memory = malloc(image.bytes);
  image.first = image.memory + (16 / image.element + shift) * image.element;
  memset(image.memory, 0xa5, image.bytes);
  return image;
}

static unsigned char* image_at(const struct image* image, int64_t i) {
  return image->first + (i / image->columns * image->stride + i % image->columns) * image->element;
}

static void image_fill(struct image* image, const struct problem* p, enum tensor tensor, int rank) {
  for (int64_t i = 0; i < image->rows * image->columns; i++) {
    uint32_t bits = problem_element(p, tensor, rank, i);
    memcpy(image_at(image, i), &bits, (size_t)image->element);
  }
}

/* Number of elements that differ; -1 if a guard byte was written. */
static int64_t image_compare(struct image* image, const uint32_t* expected) {
  int64_t differ = 0;
  for (int64_t i = 0; i < image->rows * image->columns; i++) {
    unsigned char* at = image_at(image, i);
    differ += memcmp(at, &expected[i], (size_t)image->element) != 0;
    memset(at, 0xa5, (size_t)image->element);
  }
  for (size_t i = 0; i < image->bytes; i++)
    if (image->memory[i] != 0xa5) return -1;
  return differ;
}

/* Local choices, which may differ between ranks. */
enum variant { IN_PLACE = 1, RESIDUAL_IN_PLACE = 2, NO_RESIDUAL_OUT = 4, NO_NORM_OUT = 8, SHIFTED = 16, STRIDED = 32 };

struct rank_memory {
  const struct problem* problem;
  struct image input, residual, gamma, y, norm;
  struct kernel_op op;
};

static void rank_memory_make(struct rank_memory* m, const struct problem* p, int rank, unsigned variant) {
  int rows = p->pattern == arfusionPatternResidualRmsNorm, shift = variant & SHIFTED ? 1 : 0;
  int64_t gap = rows && variant & STRIDED ? 1 + (int64_t)(variant % 7) : 0;
  struct kernel_op* op = &m->op;

  m->problem = p;
  m->input = image_make(p->tokens, p->hidden, p->dtype, gap, shift);
  m->residual = image_make(p->tokens, p->hidden, p->dtype, gap * 2, shift);
  m->gamma = image_make(1, p->hidden, p->gamma_dtype, 0, shift);
  m->y = image_make(p->tokens, p->hidden, p->dtype, gap * 3, shift);
  m->norm = image_make(p->tokens, p->hidden, p->dtype, gap * 4, shift);
  image_fill(&m->input, p, INPUT, rank);
  image_fill(&m->residual, p, RESIDUAL, 0);
  image_fill(&m->gamma, p, GAMMA, 0);

  struct image* norm = variant & IN_PLACE ? &m->input : &m->norm;
  struct image* y = p->residual && variant & RESIDUAL_IN_PLACE ? &m->residual : &m->y;
  *op = (struct kernel_op){.pattern = p->pattern, .dtype = p->dtype, .gamma_dtype = p->gamma_dtype, .tokens = p->tokens,
                           .hidden = p->hidden, .input = m->input.first, .input_stride = m->input.stride,
                           .eps = p->eps, .weight_bias = p->bias};
  if (!rows) {
    op->allreduce_out = norm->first;
    return;
  }
  if (p->residual) op->residual_in = m->residual.first;
  op->residual_in_stride = m->residual.stride;
  op->gamma = m->gamma.first;
  op->residual_out_stride = y->stride;
  op->norm_out_stride = norm->stride;
  if (!(variant & NO_RESIDUAL_OUT)) op->residual_out = y->first;
  if (!(variant & NO_NORM_OUT) || variant & NO_RESIDUAL_OUT) op->norm_out = norm->first;
}

static int64_t rank_memory_compare(struct rank_memory* m) {
  const struct problem* p = m->problem;
  struct image* norm = m->op.norm_out == m->input.first || m->op.allreduce_out == m->input.first ? &m->input : &m->norm;
  struct image* y = m->op.residual_out == m->residual.first ? &m->residual : &m->y;
  if (m->op.allreduce_out) return image_compare(norm, p->sum);
  int64_t differ = 0;
  if (m->op.norm_out) differ |= image_compare(norm, p->norm);
  if (m->op.residual_out) differ |= image_compare(y, p->y);
  return differ;
}

static void rank_memory_free(struct rank_memory* m) {
  free(m->input.memory);
  free(m->residual.memory);
  free(m->gamma.memory);
  free(m->y.memory);
  free(m->norm.memory);
}

#endif
