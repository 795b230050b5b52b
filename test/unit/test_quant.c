/* SPDX-License-Identifier: Apache-2.0
 *
 * test_quant.c: quantization on the host: every instruction set against the reference of arfusion-bench, which looks
 * codes up in tables, for every bit pattern of the 16-bit types, next to every rounding boundary and in shapes that
 * leave bytes of the scales unused; the sizes; and how far what is written lies from what was to be quantized.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "kernels/host/host_internal.h"
#include "plugin/tools/bench/reference.h"
#include "test/unit/host_problem.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))
#define GUARD 64

struct form {
  arfusionDataType_t dtype;
  arfusionQuant_t quantization;
  arfusionScaleLayout_t layout;
  int group;
  int64_t tokens, hidden;
  float scale;
  int64_t slice; /* tokens of an op; 0: all */
};

static arfusionRequest_t form_request(const struct form* form) {
  return (arfusionRequest_t){.quantization = form->quantization, .scaleLayout = form->layout, .groupSize = form->group,
                             .tokens = form->tokens, .hidden = form->hidden};
}

struct outputs {
  unsigned char *codes, *scales;
  size_t code_bytes, scale_bytes;
};

static struct outputs outputs_make(const struct form* form) {
  arfusionRequest_t request = form_request(form);
  struct outputs o = {.code_bytes = (size_t)arfusionQuantOutBytes(&request),
                      .scale_bytes = (size_t)arfusionScaleOutBytes(&request)};
  o.codes = malloc(o.code_bytes + 2 * GUARD);
  o.scales = malloc(o.scale_bytes + 2 * GUARD);
  memset(o.codes, 0xa5, o.code_bytes + 2 * GUARD);
  memset(o.scales, 0xa5, o.scale_bytes + 2 * GUARD);
  return o;
}

static void outputs_free(struct outputs* o) {
  free(o->codes);
  free(o->scales);
}

static void assert_equal_to(const struct form* form, const char* set, const char* what, const unsigned char* got,
                            const unsigned char* expected, size_t bytes) {
  for (size_t i = 0; i < bytes; i++) {
    if (got[i] == expected[i]) continue;
    fail_msg("%s, quantization %d, dtype %d, %ld x %ld, group %d, scale %a: byte %ld of %s is 0x%02x, not 0x%02x", set,
             form->quantization, form->dtype, (long)form->tokens, (long)form->hidden, form->group, (double)form->scale,
             (long)i - GUARD, what, got[i], expected[i]);
  }
}

static void quantize(const struct form* form, const struct host_compute* compute, const void* n, struct outputs* o) {
  struct kernel_op op = {.pattern = arfusionPatternResidualRmsNorm, .dtype = form->dtype, .hidden = form->hidden,
                         .quantization = form->quantization, .scale_layout = form->layout, .group_size = form->group,
                         .quant_scale = &form->scale, .scale_out = o->scales + GUARD, .all_tokens = form->tokens};
  int64_t slice = form->slice ? form->slice : form->tokens;
  size_t row = (size_t)form->hidden * (size_t)kernel_element_size(form->dtype);
  for (int64_t t = 0; t < form->tokens; t++) {
    struct host_task task;
    op.first_token = t / slice * slice;
    op.tokens = form->tokens - op.first_token < slice ? form->tokens - op.first_token : slice;
    op.quant_out = o->codes + GUARD + (size_t)op.first_token * (o->code_bytes / (size_t)form->tokens);
    host_task_start(&task, NULL, arfusionAlgoNone, &op);
    task.compute = compute;
    host_quant_row(&task, t - op.first_token, (const unsigned char*)n + (size_t)t * row);
  }
}

static void check_form(const struct form* form, const void* n) {
  const struct host_compute* set[] = {host_compute_base(form->dtype), host_compute_select(form->dtype)};
  static const char* const name[] = {"plain", "best"};
  struct outputs expected = outputs_make(form);
  struct reference_quant reference = {.dtype = form->dtype, .quantization = form->quantization, .layout = form->layout,
                                      .group = form->group, .tokens = form->tokens, .hidden = form->hidden,
                                      .all_tokens = form->tokens, .scale = form->scale,
                                      .scales = expected.scales + GUARD};
  reference_quant(&reference, n, expected.codes + GUARD);
  for (int s = 0; s < 2; s++) {
    struct outputs got = outputs_make(form);
    quantize(form, set[s], n, &got);
    assert_equal_to(form, name[s], "the scales", got.scales, expected.scales, got.scale_bytes + 2 * GUARD);
    assert_equal_to(form, name[s], "the codes", got.codes, expected.codes, got.code_bytes + 2 * GUARD);
    outputs_free(&got);
  }
  outputs_free(&expected);
}

/* All four quantizations of the same values. */
static void check_values(arfusionDataType_t dtype, int64_t tokens, int64_t hidden, const void* n) {
  static const float scales[] = {1.0f, 0.37f, 0x1p-20f, 3e38f, 0x1p-140f, 0.0f, -2.5f};
  struct form form = {.dtype = dtype, .quantization = arfusionQuantFp8, .tokens = tokens, .hidden = hidden};
  for (int s = 0; s < COUNT(scales); s++) {
    form.scale = scales[s];
    check_form(&form, n);
  }
  form.quantization = arfusionQuantFp8Token;
  check_form(&form, n);
  form.quantization = arfusionQuantFp8Group;
  for (form.group = 8; form.group <= hidden && form.group <= 128; form.group *= 4)
    if (hidden % form.group == 0) check_form(&form, n);
  if (dtype == arfusionFloat32 || hidden % 16) return;
  form.quantization = arfusionQuantNvfp4;
  for (int s = 0; s < COUNT(scales) && scales[s] > 0; s++) {
    form.scale = scales[s];
    check_form(&form, n);
  }
}

/* Every number of a 16-bit type: neighbours in value side by side, then far apart. */
static void test_every_number(void** state) {
  (void)state;
  static const arfusionDataType_t dtypes[] = {arfusionBfloat16, arfusionFloat16};
  uint16_t* n = malloc(0x10000 * sizeof(*n));
  for (int d = 0; d < 2; d++) {
    for (uint32_t i = 0; i < 0x10000u; i++) n[i] = (uint16_t)i;
    check_values(dtypes[d], 16, 4096, n);
    for (uint32_t i = 0; i < 0x10000u; i++) n[i] = (uint16_t)(i * 40503u);
    check_values(dtypes[d], 64, 1024, n);
  }
  free(n);
}

/* fp32 numbers next to where two codes of e4m3 meet, at several scales of rows; and any bits. */
static void test_fp32(void** state) {
  (void)state;
  enum { TOKENS = 64, HIDDEN = 1024 };
  uint32_t* n = malloc(TOKENS * HIDDEN * sizeof(*n));
  for (uint32_t i = 0; i < TOKENS * HIDDEN; i++) {
    uint64_t h = mix(i);
    uint32_t boundary = (100u << 23) + (uint32_t)(h & 0x1ff) * (1u << 19); /* a multiple of half a step */
    n[i] = (boundary + (uint32_t)(h >> 20 & 3) - 1) | (h >> 30 & 1) << 31;
    if (i % HIDDEN == 0) n[i] = 0x43e00000u + i / HIDDEN % 8 * 0x100000u; /* 448 and up */
  }
  check_values(arfusionFloat32, TOKENS, HIDDEN, n);
  for (uint32_t i = 0; i < TOKENS * HIDDEN; i++) n[i] = (uint32_t)mix(i + 12345);
  check_values(arfusionFloat32, TOKENS, HIDDEN, n);
  for (uint32_t i = 0; i < TOKENS * HIDDEN; i++) n[i] &= 0xbfffffffu; /* no NaN and nothing large: all scales count */
  check_values(arfusionFloat32, TOKENS, HIDDEN, n);
  check_values(arfusionFloat32, TOKENS, HIDDEN / 2 + 4, n); /* an odd number of half packs */
  free(n);
}

/* Each special number alone among ordinary ones, and alone among zeros. */
static void test_special(void** state) {
  (void)state;
  static const uint16_t special[] = {0,      0x8000, 1,      0x8001, 0x7f80, 0xff80,
                                     0x7fff, 0xffff, 0x7f81, 0x7f7f, 0xff7f, 0x0080};
  uint16_t n[2 * COUNT(special)][48];
  for (int i = 0; i < 2 * COUNT(special); i++)
    for (int k = 0; k < 48; k++)
      n[i][k] = k == 17 ? special[i / 2] : i & 1 ? (k & 1 ? 0x8000 : 0) : (uint16_t)(0x3f00 + k * 5);
  check_values(arfusionBfloat16, 2 * COUNT(special), 48, n);
}

/* Token and block counts around those that fill a word or a tile, as one op and as several. */
static void test_shapes(void** state) {
  (void)state;
  static const int64_t tokens[] = {1, 2, 3, 4, 5, 7, 8, 31, 33, 127, 128, 129, 200, 257};
  static const int64_t hiddens[] = {16, 32, 48, 64, 80, 240, 2880};
  uint16_t* n = malloc(257 * 2880 * sizeof(*n));
  for (uint32_t i = 0; i < 257 * 2880; i++) n[i] = (uint16_t)(0x3e00 + (mix(i) & 0x81ff));
  for (int t = 0; t < COUNT(tokens); t++)
    for (int h = 0; h < COUNT(hiddens); h++)
      for (int slices = 0; slices < 2; slices++) {
        struct form form = {.dtype = arfusionBfloat16, .quantization = arfusionQuantFp8Group, .tokens = tokens[t],
                            .hidden = hiddens[h], .scale = 40.0f, .slice = slices ? (tokens[t] + 2) / 3 : 0};
        if (tokens[t] * hiddens[h] > 100000 && slices) continue;
        for (form.group = 8; form.group <= hiddens[h]; form.group += 8)
          if (hiddens[h] % form.group == 0 && (form.group < 40 || form.group == hiddens[h])) check_form(&form, n);
        form.quantization = arfusionQuantFp8Token;
        check_form(&form, n);
        form.quantization = arfusionQuantNvfp4;
        check_form(&form, n);
        form.layout = arfusionScaleSwizzled128x4;
        check_form(&form, n);
      }
  free(n);
}

static void test_sizes(void** state) {
  (void)state;
  static const struct {
    struct form form;
    int64_t codes, scales;
  } rows[] = {
      {{.quantization = arfusionQuantNone, .tokens = 3, .hidden = 256}, 0, 0},
      {{.quantization = arfusionQuantFp8, .tokens = 3, .hidden = 256}, 768, 0},
      {{.quantization = arfusionQuantFp8Token, .tokens = 3, .hidden = 256}, 768, 12},
      {{.quantization = arfusionQuantFp8Group, .tokens = 3, .hidden = 256, .group = 32}, 768, (4 + 3) * 4},
      {{.quantization = arfusionQuantFp8Group, .tokens = 8, .hidden = 256, .group = 32}, 2048, 16 * 4},
      {{.quantization = arfusionQuantFp8Group, .tokens = 5, .hidden = 256, .group = 128}, 1280, 5 * 4},
      {{.quantization = arfusionQuantFp8Group, .tokens = 0, .hidden = 256, .group = 8}, 0, 0},
      {{.quantization = arfusionQuantFp8Group, .tokens = 5, .hidden = 256, .group = 0}, 1280, 0},
      {{.quantization = arfusionQuantNvfp4, .tokens = 3, .hidden = 256}, 384, 48},
      {{.quantization = arfusionQuantNvfp4, .tokens = 129, .hidden = 80, .layout = arfusionScaleSwizzled128x4},
       5160,
       2048},
      {{.quantization = arfusionQuantNvfp4, .tokens = 0, .hidden = 80, .layout = arfusionScaleSwizzled128x4}, 0, 0},
      {{.quantization = arfusionQuantFp8, .tokens = (int64_t)1 << 40, .hidden = 65536}, (int64_t)1 << 56, 0},
  };
  for (int i = 0; i < COUNT(rows); i++) {
    arfusionRequest_t request = form_request(&rows[i].form);
    assert_int_equal(arfusionQuantOutBytes(&request), rows[i].codes);
    assert_int_equal(arfusionScaleOutBytes(&request), rows[i].scales);
  }
}

/* ---------------------------------------------------------------- how near */

static double e4m3_of(unsigned code) {
  int exponent = (int)(code >> 3 & 15), mantissa = (int)(code & 7);
  double v = exponent ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9);
  return code & 0x80 ? -v : v;
}

static double e2m1_of(unsigned code) {
  static const double magnitude[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return code & 8 ? -magnitude[code & 7] : magnitude[code & 7];
}

/* Half the distance from a number to the next larger one of a format. */
static double half_step(double v, int mantissa_bits, int least_exponent) {
  double magnitude = fabs(v);
  int exponent = magnitude >= ldexp(1, least_exponent) ? ilogb(magnitude) : least_exponent;
  return ldexp(1, exponent - mantissa_bits - 1);
}

/* What the codes and scales of element i stand for, and half a step there. */
static double dequantize(const struct form* form, const struct outputs* o, int64_t token, int64_t column,
                         double* half) {
  const unsigned char *codes = o->codes + GUARD, *scales = o->scales + GUARD;
  int64_t i = token * form->hidden + column;
  double scale = form->scale, v;
  if (form->quantization == arfusionQuantNvfp4) {
    scale = e4m3_of(scales[i / 16]) / form->scale;
    v = e2m1_of(codes[i / 2] >> (i % 2 * 4) & 15);
    *half = half_step(v, 1, 0) * scale;
    return v * scale;
  }
  if (form->quantization == arfusionQuantFp8Token) {
    float own;
    memcpy(&own, scales + token * 4, 4);
    scale = own;
  } else if (form->quantization == arfusionQuantFp8Group) {
    int64_t group = column / form->group, rows = (form->tokens + 3) / 4 * 4;
    scale = ldexp(1, scales[(group / 4 * rows + token) * 4 + group % 4] - 127);
  }
  v = e4m3_of(codes[i]);
  *half = half_step(v, 3, -6) * scale;
  return v * scale;
}

/* Of a whole operation's epilogue on random inputs, whose values do not saturate. */
static void check_distance(struct form form, uint64_t seed) {
  struct problem p = problem_rows(form.dtype, 2, form.tokens, form.hidden, UNIFORM, seed);
  struct rank_memory m;
  struct outputs o = outputs_make(&form);
  rank_memory_make(&m, &p, 0, (unsigned)mix(seed) & (SHIFTED | STRIDED));
  for (int64_t k = 0; k < p.tokens * p.hidden; k++) memcpy(image_at(&m.input, k), &p.sum[k], (size_t)m.input.element);
  m.op.quantization = form.quantization;
  m.op.group_size = form.group;
  m.op.quant_scale = &form.scale;
  m.op.quant_out = o.codes + GUARD;
  m.op.scale_out = o.scales + GUARD;
  m.op.all_tokens = form.tokens;
  host_epilogue(&m.op);
  for (int64_t i = 0; i < form.tokens * form.hidden; i++) {
    double half, n = ref_widen(form.dtype, p.norm[i]);
    double v = dequantize(&form, &o, i / form.hidden, i % form.hidden, &half);
    if (fabs(v - n) > half * (1 + 0x1p-20)) { /* scaling rounds, too */
      fail_msg("quantization %d, dtype %d, element %ld: %.9g stands for %.9g, half a step is %.3g", form.quantization,
               form.dtype, (long)i, v, n, half);
    }
  }
  assert_int_equal(rank_memory_compare(&m), 0);
  outputs_free(&o);
  rank_memory_free(&m);
  problem_free(&p);
}

static void test_distance(void** state) {
  (void)state;
  static const arfusionDataType_t dtypes[] = {arfusionBfloat16, arfusionFloat16, arfusionFloat32};
  for (uint64_t seed = 0; seed < 60; seed++) {
    struct form form = {.dtype = dtypes[seed % 3],
                        .group = 64,
                        .tokens = 3,
                        .hidden = 64 * (int64_t)(1 + mix(seed) % 40),
                        .scale = 0.03f};
    for (int q = arfusionQuantFp8; q <= arfusionQuantNvfp4; q++) {
      form.quantization = (arfusionQuant_t)q;
      if (q == arfusionQuantNvfp4) form.scale = 100.0f;
      if (q != arfusionQuantNvfp4 || form.dtype != arfusionFloat32) check_distance(form, seed);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_sizes),   cmocka_unit_test(test_every_number), cmocka_unit_test(test_fp32),
      cmocka_unit_test(test_special), cmocka_unit_test(test_shapes),       cmocka_unit_test(test_distance),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
