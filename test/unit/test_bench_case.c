/* SPDX-License-Identifier: Apache-2.0
 *
 * Case files: what is read, and that what is wrong is an error that names it. Number formats, where no case reaches.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "plugin/tools/bench/case.h"
#include "plugin/tools/bench/number.h"

#define DIGEST "0123456789abcdef0123456789abcdef"
#define BASE "\"id\": \"a\", \"nranks\": 2, \"dtype\": \"bf16\", \"tokens\": 3, \"hidden\": 256, \"seed\": 7, "
#define ALLREDUCE BASE "\"pattern\": \"allreduce\", \"digests\": {\"allreduce_out\": \"" DIGEST "\"}"
#define NORM_DIGESTS "\"residual_out\": \"" DIGEST "\", \"norm_out\": \"" DIGEST "\""
#define NORM BASE "\"pattern\": \"residual_rmsnorm\", \"digests\": {" NORM_DIGESTS "}"

static char error[512];

/* Loads a file with this text; the result of case_list_load. */
static int load(const char* text, struct case_list* list) {
  char path[] = "/tmp/arfusion-case-XXXXXX";
  int fd = mkstemp(path);
  assert_true(fd >= 0);
  assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
  close(fd);
  error[0] = '\0';
  int result = case_list_load(path, list, error, sizeof(error));
  unlink(path);
  return result;
}

static void test_defaults(void** state) {
  (void)state;
  struct case_list list;
  assert_int_equal(load("[{" ALLREDUCE "}, {" NORM "}]", &list), 0);
  assert_int_equal(list.count, 2);
  const struct bench_case* c = &list.cases[1];
  assert_string_equal(c->id, "a");
  assert_int_equal(c->pattern, arfusionPatternResidualRmsNorm);
  assert_int_equal(c->gamma_dtype, arfusionBfloat16);
  assert_int_equal(c->quantization, arfusionQuantNone);
  assert_int_equal(c->residual, 1);
  assert_true(c->eps == 1e-5f && c->weight_bias == 0.0f && c->scale == 1.0f);
  assert_int_equal(c->inputs, GENERATOR_UNIFORM);
  assert_int_equal(case_output_bytes(c, OUTPUT_NORM), 3 * 256 * 2);
  assert_int_equal(case_output_bytes(c, OUTPUT_ALLREDUCE), 0);
  assert_int_equal(case_output_bytes(&list.cases[0], OUTPUT_ALLREDUCE), 3 * 256 * 2);
  case_list_free(&list);
}

static void test_quantized_sizes(void** state) {
  (void)state;
  static const struct {
    const char* fields;
    size_t quant_bytes, scale_bytes;
  } rows[] = {
      {"\"quant\": \"fp8_token\"", 768, 12},
      {"\"quant\": \"fp8_group\", \"group\": 32", 768, (4 + 3) * 4}, /* 8 groups: 2 columns, the last with 3 tokens */
      {"\"quant\": \"nvfp4\"", 384, 48},
      {"\"quant\": \"nvfp4\", \"layout\": \"swizzled_128x4\"", 384, 4 * 512},
  };
  for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
    char text[1024];
    struct case_list list;
    snprintf(text, sizeof(text),
             "[{" BASE "\"pattern\": \"residual_rmsnorm\", %s, \"digests\": {" NORM_DIGESTS ", \"quant_out\": \"" DIGEST
             "\", \"scale_out\": \"" DIGEST "\"}}]",
             rows[i].fields);
    if (load(text, &list) != 0) fail_msg("%s", error);
    assert_int_equal(case_output_bytes(&list.cases[0], OUTPUT_QUANT), rows[i].quant_bytes);
    assert_int_equal(case_output_bytes(&list.cases[0], OUTPUT_SCALE), rows[i].scale_bytes);
    case_list_free(&list);
  }
}

static void test_bad_files(void** state) {
  (void)state;
  static const struct {
    const char* text;
    const char* named; /* must be in the error */
  } rows[] = {
      {"", ":1:"},
      {"[", ":1:"},
      {"[{\"id\": \"a\\\n\"}]", ":2:"}, /* quoted by jansson */
      {"[]", "no cases"},
      {"{}", "no cases"},
      {"[1]", "object"},
      {"[{}]", "id: missing"},
      {"[{\"id\": \"a\\nb\"}]", "case without an id: id: must be 1 to 95 printable characters without blanks"},
      {"[{\"id\": \"\"}]", "id: must be 1 to"},
      {"[{\"id\": \"a b\"}]", "id: must be 1 to"},
      {"[{\"id\": \"\\u00e9\"}]", "id: must be 1 to"},
      {"[{\"id\": \"" DIGEST DIGEST DIGEST "\"}]", "id: must be 1 to"},
      {"[{" ALLREDUCE ", \"toknes\": 1}]", "toknes: is not a field of a case"},
      {"[{" ALLREDUCE ", \"id\": \"b\"}]", ":1:"},
      {"[{" ALLREDUCE ", \"eps\": \"x\"}]", "eps"},
      {"[{" ALLREDUCE ", \"residual\": 1}]", "residual"},
      {"[{" ALLREDUCE ", \"inputs\": \"odd\"}]", "inputs: must be uniform, large, tiny, zeros, mixed or special"},
      {"[{" ALLREDUCE ", \"layout\": \"odd\"}]", "layout: must be linear or swizzled_128x4"},
      {"[{" ALLREDUCE ", \"gamma_dtype\": \"fp64\"}]", "gamma_dtype"},
      {"[{" ALLREDUCE ", \"group\": 0}]", "group"},
      {"[{" NORM ", \"quant\": \"fp8_group\", \"group\": 0}]", "group: must be"}, /* not divided by */
      {"[{\"id\": \"a\", \"nranks\": 2, \"dtype\": \"bf16\", \"tokens\": 1, \"hidden\": 8, \"seed\": 7, "
       "\"pattern\": \"residual_rmsnorm\", \"quant\": \"nvfp4\", \"digests\": {" NORM_DIGESTS "}}]",
       "hidden: must be a multiple of 16 with quant nvfp4"}, /* no block, so no byte of scales */
      {"[{" ALLREDUCE ", \"quant\": \"fp8\"}]", "quant: needs pattern"},
      {"[{" NORM ", \"quant\": \"fp4\"}]", "quant: must be none, fp8, fp8_token, fp8_group or nvfp4"},
      {"[{" BASE "\"pattern\": \"sum\", \"digests\": {}}]", "pattern"},
      {"[{" BASE "\"pattern\": \"allreduce\"}]", "digests: missing"},
      {"[{" BASE "\"pattern\": \"allreduce\", \"digests\": {\"allreduce_out\": \"12\"}}]", "allreduce_out"},
      {"[{" BASE "\"pattern\": \"allreduce\", \"digests\": {\"allreduce_out\": \"" DIGEST "\", " NORM_DIGESTS "}}]",
       "does not have"},
      {"[{\"id\": \"a\", \"nranks\": 17}]", "nranks: must be an integer from 2 to 16"},
      {"[{\"id\": \"a\", \"nranks\": 2, \"dtype\": \"bf16\", \"tokens\": 0}]", "tokens"},
      {"[{\"id\": \"a\", \"nranks\": 2, \"dtype\": \"bf16\", \"tokens\": 65536, \"hidden\": 65536}]", "2^31"},
  };
  for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
    struct case_list list;
    if (load(rows[i].text, &list) == 0) fail_msg("taken: %s", rows[i].text);
    assert_null(strchr(error, '\n'));
    if (strstr(error, rows[i].named) == NULL) fail_msg("%s is not named: %s", rows[i].named, error);
  }
  struct case_list list;
  assert_int_equal(case_list_load("/nonexistent/cases.json", &list, error, sizeof(error)), -1);
  assert_non_null(strstr(error, "No such file"));
  assert_int_equal(case_list_load("/tmp", &list, error, sizeof(error)), -1);
  assert_string_equal(error, "/tmp: Is a directory");
}

/* fp16 and bf16: each finite value survives, and what lies halfway to the next one goes to the even one. */
static void test_rounding(void** state) {
  (void)state;
  static const arfusionDataType_t dtypes[] = {arfusionFloat16, arfusionBfloat16};
  static const uint16_t infinities[] = {0x7c00, 0x7f80};
  for (int k = 0; k < 2; k++) {
    for (uint16_t bits = 0; bits < infinities[k]; bits++) {
      uint16_t next = (uint16_t)(bits + 1), back;
      float value, above;
      number_load(dtypes[k], &bits, 1, &value);
      number_load(dtypes[k], &next, 1, &above);
      number_store(dtypes[k], &value, 1, &back);
      assert_int_equal(back, bits);
      if (next == infinities[k]) break;
      float half = value / 2 + above / 2; /* exact: both are far from fp32's own limits, but for bf16's subnormals */
      if (value / 2 * 2 != value || above / 2 * 2 != above) continue;
      number_store(dtypes[k], &half, 1, &back);
      assert_int_equal(back, bits & 1 ? next : bits);
      half = -half;
      number_store(dtypes[k], &half, 1, &back);
      assert_int_equal(back, 0x8000 | (bits & 1 ? next : bits));
    }
  }
  const float values[] = {65519.0f, 65520.0f, 0x1p-25f, 0x1.000002p-25f, -0x1p-26f};
  const uint16_t expected[] = {0x7bff, 0x7c00, 0x0000, 0x0001, 0x8000};
  uint16_t out[5];
  number_store(arfusionFloat16, values, 5, out);
  assert_memory_equal(out, expected, sizeof(expected));
}

static void test_nan(void** state) {
  (void)state;
  const uint32_t words[] = {0xffc00001u, 0x7f800001u};
  float values[2];
  uint16_t out16[2];
  uint32_t out32[2];
  memcpy(values, words, sizeof(words));
  number_store(arfusionFloat16, values, 2, out16);
  assert_true(out16[0] == 0x7fff && out16[1] == 0x7fff);
  number_store(arfusionBfloat16, values, 2, out16);
  assert_true(out16[0] == 0x7fff && out16[1] == 0x7fff);
  number_store(arfusionFloat32, values, 2, out32);
  assert_true(out32[0] == 0x7fffffffu && out32[1] == 0x7fffffffu);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_defaults),  cmocka_unit_test(test_quantized_sizes),
      cmocka_unit_test(test_bad_files), cmocka_unit_test(test_rounding),
      cmocka_unit_test(test_nan),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
