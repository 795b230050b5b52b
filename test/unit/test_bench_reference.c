/* SPDX-License-Identifier: Apache-2.0
 *
 * The reference of arfusion-bench, its generator and its digests against the recorded cases.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plugin/tools/bench/bench.h"
#include "plugin/tools/bench/case.h"
#include "plugin/tools/bench/reference.h"

#define CASES "test/data/cases.json" /* tests run from the repository's root */
#define CASE_COUNT 239

static void* tensor(const struct bench_case* c, enum generator_tensor which, int rank) {
  int gamma = which == GENERATOR_GAMMA;
  arfusionDataType_t dtype = gamma ? c->gamma_dtype : c->dtype;
  int64_t count = gamma ? c->hidden : c->tokens * c->hidden;
  void* data = malloc((size_t)count * bench_dtype_bytes(dtype));
  assert_non_null(data);
  generator_fill(data, dtype, count, c->seed, which, rank, gamma ? GENERATOR_UNIFORM : c->inputs);
  return data;
}

static void assert_digest(const struct bench_case* c, enum case_output output, const void* data) {
  char digest[DIGEST_LENGTH + 1];
  digest_compute(data, case_output_bytes(c, output), digest);
  if (strcmp(digest, c->digest[output]) != 0) fail_msg("%s: %s differs", c->id, case_output_name(output));
}

static void check_quantized(const struct bench_case* c, const void* norm) {
  unsigned char* codes = malloc(case_output_bytes(c, OUTPUT_QUANT));
  void* scales = malloc(case_output_bytes(c, OUTPUT_SCALE) + 1);
  assert_true(codes != NULL && scales != NULL);
  reference_quant_case(c, norm, codes, scales);
  assert_digest(c, OUTPUT_QUANT, codes);
  if (c->quantization != arfusionQuantFp8) assert_digest(c, OUTPUT_SCALE, scales);
  free(scales);
  free(codes);
}

static void check_case(const struct bench_case* c) {
  int64_t count = c->tokens * c->hidden;
  void* inputs[ARFUSION_MAX_RANKS];
  for (int r = 0; r < c->nranks; r++) inputs[r] = tensor(c, GENERATOR_INPUT, r);
  void* y = malloc((size_t)count * bench_dtype_bytes(c->dtype));
  assert_non_null(y);
  reference_sum(c->dtype, c->nranks, (const void* const*)inputs, count, y);
  if (c->pattern == arfusionPatternAllReduce) {
    assert_digest(c, OUTPUT_ALLREDUCE, y);
  } else {
    void* residual = tensor(c, GENERATOR_RESIDUAL, 0);
    void* gamma = tensor(c, GENERATOR_GAMMA, 0);
    if (c->residual) reference_residual(c->dtype, y, residual, count, y);
    assert_digest(c, OUTPUT_RESIDUAL, y);
    struct reference_norm norm = {.dtype = c->dtype,
                                  .gamma_dtype = c->gamma_dtype,
                                  .tokens = c->tokens,
                                  .hidden = c->hidden,
                                  .eps = c->eps,
                                  .weight_bias = c->weight_bias,
                                  .gamma = gamma};
    reference_norm(&norm, y, y);
    assert_digest(c, OUTPUT_NORM, y);
    if (c->quantization != arfusionQuantNone) check_quantized(c, y);
    free(gamma);
    free(residual);
  }
  free(y);
  for (int r = 0; r < c->nranks; r++) free(inputs[r]);
}

static void test_cases(void** state) {
  (void)state;
  struct case_list list;
  char error[512];
  if (case_list_load(CASES, &list, error, sizeof(error)) != 0) fail_msg("%s", error);
  assert_int_equal(list.count, CASE_COUNT);
  for (int i = 0; i < list.count; i++) check_case(&list.cases[i]);
  case_list_free(&list);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_cases)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
