/* SPDX-License-Identifier: Apache-2.0
 *
 * reference_quant.c: the quantization step of the reference; see reference.h. Codes are found by looking for the
 * nearest value among all that the format has.
 */
#include <math.h>

#include "plugin/tools/bench/bench.h"
#include "plugin/tools/bench/case.h"
#include "plugin/tools/bench/number.h"
#include "plugin/tools/bench/reference.h"

/* A format without infinity: the values of its codes without sign, in rising order. */
struct format {
  int count;
  unsigned nan, sign;
  double value[127];
};

static struct format format_e4m3(void) {
  struct format f = {.count = 127, .nan = 0x7f, .sign = 0x80};
  for (int code = 0; code < f.count; code++) {
    int exponent = code / 8, mantissa = code % 8;
    f.value[code] = exponent == 0 ? ldexp(mantissa, -9) : ldexp(8 + mantissa, exponent - 10);
  }
  return f;
}

static struct format format_e2m1(void) {
  return (struct format){.count = 8, .nan = 7, .sign = 8, .value = {0, 0.5, 1, 1.5, 2, 3, 4, 6}};
}

static unsigned format_code(const struct format* f, float v) {
  if (isnan(v)) return f->nan;
  double magnitude = fabs((double)v);
  int low = 0, high = f->count - 1; /* the last value that is not above the magnitude */
  while (low < high) {
    int middle = (low + high + 1) / 2;
    if (f->value[middle] <= magnitude) low = middle;
    else high = middle - 1;
  }
  if (low + 1 < f->count) {
    double below = magnitude - f->value[low], above = f->value[low + 1] - magnitude;
    if (above < below || (above == below && low % 2 == 1)) low++;
  }
  return (unsigned)low | (signbit(v) ? f->sign : 0);
}

/* The largest magnitude, or NaN. */
static float largest(const float* n, int64_t count) {
  float most = 0;
  for (int64_t i = 0; i < count; i++) {
    if (isnan(n[i])) return NAN;
    if (fabsf(n[i]) > most) most = fabsf(n[i]);
  }
  return most;
}

/* The place of a group's exponent byte: columns of words of four groups, a word a token. */
static int64_t group_scale_place(const struct reference_quant* q, int64_t token, int64_t group) {
  int64_t rows = (q->all_tokens + 3) / 4 * 4;
  return ((group / 4) * rows + token) * 4 + group % 4;
}

static void quant_group(const struct reference_quant* q, const struct format* e4m3, const float* n, int64_t token,
                        unsigned char* codes) {
  int64_t groups = q->hidden / q->group, columns = (groups + 3) / 4;
  unsigned char* scales = q->scales;
  for (int64_t g = 0; g < groups; g++) {
    float scale = largest(n + g * q->group, q->group) / 448.0f;
    unsigned biased = 255;
    if (scale < 1e-10f) scale = 1e-10f;
    if (isfinite(scale)) {
      int exponent;
      float fraction = frexpf(scale, &exponent); /* 0.5 and up, below 1 */
      if (fraction == 0.5f) exponent--;
      scale = ldexpf(1, exponent);
      biased = (unsigned)(exponent + 127);
    }
    scales[group_scale_place(q, token, g)] = (unsigned char)biased;
    for (int64_t i = g * q->group; i < (g + 1) * q->group; i++)
      codes[i] = (unsigned char)format_code(e4m3, n[i] / scale);
  }
  for (int64_t g = groups; g < columns * 4; g++) scales[group_scale_place(q, token, g)] = 0;
  for (int64_t t = q->all_tokens; token + 1 == q->all_tokens && t % 4 != 0; t++) {
    for (int64_t g = 0; g < (columns - 1) * 4; g++) scales[group_scale_place(q, t, g)] = 0;
  }
}

static void quant_token(const struct reference_quant* q, const struct format* e4m3, const float* n, int64_t token,
                        unsigned char* codes) {
  float scale = largest(n, q->hidden) / 448.0f, least = 1.0f / (512.0f * 448.0f);
  if (scale < least) scale = least;
  number_store(arfusionFloat32, &scale, 1, (float*)q->scales + token);
  for (int64_t i = 0; i < q->hidden; i++) codes[i] = (unsigned char)format_code(e4m3, n[i] / scale);
}

static int64_t block_scale_place(const struct reference_quant* q, int64_t token, int64_t block) {
  int64_t blocks = q->hidden / NVFP4_BLOCK;
  if (q->layout == arfusionScaleLinear) return token * blocks + block;
  int64_t tile = token / 128 * ((blocks + 3) / 4) + block / 4;
  return tile * 512 + token % 32 * 16 + token % 128 / 32 * 4 + block % 4;
}

static void quant_nvfp4(const struct reference_quant* q, const struct format* e4m3, const float* n, int64_t token,
                        unsigned char* codes) {
  struct format e2m1 = format_e2m1();
  unsigned char* scales = q->scales;
  int64_t blocks = q->hidden / NVFP4_BLOCK, columns = (blocks + 3) / 4 * 4;
  for (int64_t b = 0; b < blocks; b++) {
    float wanted = q->scale * (largest(n + b * NVFP4_BLOCK, NVFP4_BLOCK) * (1.0f / 6.0f));
    unsigned scale = format_code(e4m3, wanted);
    float factor = scale == 0 ? 0.0f : scale == e4m3->nan ? NAN : q->scale / (float)e4m3->value[scale];
    scales[block_scale_place(q, token, b)] = (unsigned char)scale;
    for (int64_t i = b * NVFP4_BLOCK; i < (b + 1) * NVFP4_BLOCK; i += 2) {
      codes[i / 2] = (unsigned char)(format_code(&e2m1, n[i] * factor) | format_code(&e2m1, n[i + 1] * factor) << 4);
    }
  }
  if (q->layout == arfusionScaleLinear) return;
  for (int64_t b = blocks; b < columns; b++) scales[block_scale_place(q, token, b)] = 0;
  for (int64_t t = q->all_tokens; token + 1 == q->all_tokens && t % 128 != 0; t++) {
    for (int64_t b = 0; b < columns; b++) scales[block_scale_place(q, t, b)] = 0;
  }
}

void reference_quant(const struct reference_quant* q, const void* n, unsigned char* codes) {
  struct format e4m3 = format_e4m3();
  float row[ARFUSION_MAX_HIDDEN];
  for (int64_t t = 0; t < q->tokens; t++) {
    number_load(q->dtype, (const unsigned char*)n + (size_t)(t * q->hidden) * bench_dtype_bytes(q->dtype), q->hidden,
                row);
    unsigned char* out = codes + t * (q->quantization == arfusionQuantNvfp4 ? q->hidden / 2 : q->hidden);
    switch (q->quantization) {
      case arfusionQuantFp8:
        for (int64_t i = 0; i < q->hidden; i++) out[i] = (unsigned char)format_code(&e4m3, row[i] * (1.0f / q->scale));
        break;
      case arfusionQuantFp8Token: quant_token(q, &e4m3, row, q->first_token + t, out); break;
      case arfusionQuantFp8Group: quant_group(q, &e4m3, row, q->first_token + t, out); break;
      case arfusionQuantNvfp4: quant_nvfp4(q, &e4m3, row, q->first_token + t, out); break;
      case arfusionQuantNone: break;
    }
  }
}

void reference_quant_case(const struct bench_case* c, const void* n, unsigned char* codes, void* scales) {
  const struct reference_quant quant = {.dtype = c->dtype,
                                        .quantization = c->quantization,
                                        .layout = c->layout,
                                        .group = c->group,
                                        .tokens = c->tokens,
                                        .hidden = c->hidden,
                                        .all_tokens = c->tokens,
                                        .scale = c->scale,
                                        .scales = scales};
  reference_quant(&quant, n, codes);
}
