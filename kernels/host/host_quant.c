/* SPDX-License-Identifier: Apache-2.0
 *
 * host_quant.c: step 6 of the numerics contract for a row of normalised values: scales, codes, and where both go.
 */
#include <string.h>

#include "kernels/host/host_internal.h"

#define E4M3_MAX 448.0f
#define E4M3_NAN 0x7f
#define NVFP4_BLOCK 16

/* One row. What is 0 in scale_out besides the scales is written along with them: the rest of the last word or tile of
 * the row, and, with the request's last token, the rows that fill up the last words or tiles. */
struct quant_row {
  const struct host_task* task;
  const unsigned char* n;
  unsigned char* codes;
  int64_t token; /* of all_tokens */
};

static uint32_t float_bits(float v) {
  uint32_t bits;
  memcpy(&bits, &v, sizeof(bits));
  return bits;
}

static float bits_float(uint32_t bits) {
  float v;
  memcpy(&v, &bits, sizeof(v));
  return v;
}

/* a if it is larger or NaN. */
static float max_or_nan(float a, float b) { return a <= b ? b : a; }

static int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

static int is_last(const struct quant_row* row) { return row->token + 1 == row->task->op->all_tokens; }

static const void* elements_at(const struct quant_row* row, int64_t column) {
  return row->n + column * row->task->element;
}

static void quant_fp8(const struct quant_row* row) {
  const struct kernel_op* op = row->task->op;
  row->task->compute->fp8_multiply(row->codes, row->n, op->hidden, 1.0f / *op->quant_scale);
}

static void quant_fp8_token(const struct quant_row* row) {
  const struct kernel_op* op = row->task->op;
  const struct host_compute* compute = row->task->compute;
  float scale = max_or_nan(compute->absmax(row->n, op->hidden) / E4M3_MAX, 1.0f / (512.0f * E4M3_MAX));
  uint32_t bits = scale == scale ? float_bits(scale) : 0x7fffffffu;
  memcpy((unsigned char*)op->scale_out + row->token * 4, &bits, sizeof(bits));
  compute->fp8_divide(row->codes, row->n, op->hidden, scale);
}

/* The smallest power of two that is not less than v: from 2^-33 on, or infinity. */
static float power_of_two_up(float v) {
  uint32_t bits = float_bits(v);
  return bits_float(bits & 0x7fffffu ? (bits + 0x800000u) & 0x7f800000u : bits);
}

static void quant_fp8_group(const struct quant_row* row) {
  const struct kernel_op* op = row->task->op;
  const struct host_compute* compute = row->task->compute;
  const int64_t groups = op->hidden / op->group_size, words = (groups + 3) / 4, rows = round_up(op->all_tokens, 4);
  uint32_t* scales = op->scale_out;
  for (int64_t word = 0; word < words; word++) {
    uint32_t packed = 0;
    for (int64_t g = word * 4; g < word * 4 + 4 && g < groups; g++) {
      const void* n = elements_at(row, g * op->group_size);
      float scale = max_or_nan(compute->absmax(n, op->group_size) / E4M3_MAX, 1e-10f);
      if (scale == scale) scale = power_of_two_up(scale);
      compute->fp8_divide(row->codes + g * op->group_size, n, op->group_size, scale);
      packed |= (float_bits(scale) >> 23 & 0xffu) << (g % 4 * 8);
    }
    scales[word * rows + row->token] = packed;
    if (word + 1 == words) continue;
    for (int64_t t = op->all_tokens; is_last(row) && t < rows; t++) scales[word * rows + t] = 0;
  }
}

static unsigned char* nvfp4_scale_at(const struct kernel_op* op, int64_t token, int64_t block) {
  unsigned char* scales = op->scale_out;
  const int64_t blocks = op->hidden / NVFP4_BLOCK, tiles = (blocks + 3) / 4;
  if (op->scale_layout == arfusionScaleLinear) return scales + token * blocks + block;
  return scales + (token / 128 * tiles + block / 4) * 512 + token % 32 * 16 + token % 128 / 32 * 4 + block % 4;
}

/* fp32 of an e4m3 code that is not negative. */
static float e4m3_value(unsigned code) {
  if (code == E4M3_NAN) return bits_float(0x7fffffffu);
  if (code < 8) return (float)code * 0x1p-9f;
  return bits_float((code + (120u << 3)) << 20);
}

static void quant_nvfp4(const struct quant_row* row) {
  const struct kernel_op* op = row->task->op;
  const struct host_compute* compute = row->task->compute;
  const float global = *op->quant_scale;
  const int64_t blocks = op->hidden / NVFP4_BLOCK;
  for (int64_t b = 0; b < blocks; b++) {
    const void* n = elements_at(row, b * NVFP4_BLOCK);
    float wanted = global * (compute->absmax(n, NVFP4_BLOCK) * (1.0f / 6.0f));
    unsigned scale = compute->e4m3(wanted);
    compute->fp4_multiply(row->codes + b * (NVFP4_BLOCK / 2), n, NVFP4_BLOCK,
                          scale ? global / e4m3_value(scale) : 0.0f);
    *nvfp4_scale_at(op, row->token, b) = (unsigned char)scale;
  }
  if (op->scale_layout == arfusionScaleLinear) return;
  const int64_t columns = round_up(blocks, 4), rows = round_up(op->all_tokens, 128);
  for (int64_t b = blocks; b < columns; b++) *nvfp4_scale_at(op, row->token, b) = 0;
  for (int64_t t = op->all_tokens; is_last(row) && t < rows; t++)
    for (int64_t b = 0; b < columns; b += 4) memset(nvfp4_scale_at(op, t, b), 0, 4);
}

void host_quant_row(const struct host_task* task, int64_t token, const void* n) {
  const struct kernel_op* op = task->op;
  const int64_t row_bytes = op->quantization == arfusionQuantNvfp4 ? op->hidden / 2 : op->hidden;
  const struct quant_row row = {.task = task,
                                .n = n,
                                .codes = (unsigned char*)op->quant_out + token * row_bytes,
                                .token = op->first_token + token};
  switch (op->quantization) {
    case arfusionQuantFp8: quant_fp8(&row); break;
    case arfusionQuantFp8Token: quant_fp8_token(&row); break;
    case arfusionQuantFp8Group: quant_fp8_group(&row); break;
    case arfusionQuantNvfp4: quant_nvfp4(&row); break;
    case arfusionQuantNone: break;
  }
}
