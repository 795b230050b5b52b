/* SPDX-License-Identifier: Apache-2.0
 *
 * Parts of arfusion-bench: percentiles, guarded tensors, the forms of a request, and the lookup of the plugin.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "plugin/host/plugin_load.h"
#include "plugin/tools/bench/measure.h"
#include "plugin/tools/bench/placement.h"
#include "plugin/tools/bench/variant.h"

/* ---------------------------------------------------------------- measure */

static void test_percentiles(void** state) {
  (void)state;
  double odd[] = {5, 1, 4, 2, 3}, even[] = {4, 1, 3, 2}, one[] = {7};
  struct measure_summary summary = measure_summarize(odd, 5);
  assert_true(summary.median == 3 && summary.p10 == 1.4 && summary.p90 == 4.6);
  assert_true(measure_summarize(even, 4).median == 2.5);
  summary = measure_summarize(one, 1);
  assert_true(summary.median == 7 && summary.p10 == 7 && summary.p90 == 7);
}

static void test_fitting(void** state) {
  (void)state;
  assert_int_equal(measure_fitting(10, 100, 3, 50), 10);
  assert_int_equal(measure_fitting(1000, 100, 3, 50), 3);
  assert_int_equal(measure_fitting(1, 100, 3, 50), 50);
  assert_int_equal(measure_fitting(0, 100, 3, 50), 50);
}

/* ---------------------------------------------------------------- placement */

enum { ROWS = 3, ROW_BYTES = 16, STRIDE_BYTES = 24, OFFSET = 2 };

static void test_placement(void** state) {
  (void)state;
  struct bench_device* device;
  struct bench_buffer buffer;
  unsigned char dense[ROWS * ROW_BYTES], packed[ROWS * ROW_BYTES];
  struct placement p = {
      .buffer = &buffer, .offset = OFFSET, .rows = ROWS, .row_bytes = ROW_BYTES, .stride_bytes = STRIDE_BYTES};
  int64_t where;
  assert_int_equal(bench_device_open(BENCH_DEVICE_HOST, 0, &device), 0);
  assert_int_equal(device->alloc(device, &buffer, placement_bytes(&p)), 0);
  for (size_t i = 0; i < sizeof(dense); i++) dense[i] = (unsigned char)i;
  assert_int_equal(placement_write(device, &p, dense), 0);
  assert_int_equal(placement_read(device, &p), 0);
  assert_int_equal(placement_compare(&p, dense, &where), PLACEMENT_EQUAL);
  placement_pack(&p, packed);
  assert_memory_equal(packed, dense, sizeof(dense));

  unsigned char* data = placement_data(&p);
  const struct {
    int64_t byte; /* that is changed, from the tensor's start */
    enum placement_verdict verdict;
    int64_t where;
  } rows[] = {{-1, PLACEMENT_OUTSIDE, -1},
              {-OFFSET - PLACEMENT_GUARD, PLACEMENT_OUTSIDE, -OFFSET - PLACEMENT_GUARD},
              {0, PLACEMENT_DIFFERS, 0},
              {STRIDE_BYTES + 5, PLACEMENT_DIFFERS, ROW_BYTES + 5},
              {ROW_BYTES, PLACEMENT_OUTSIDE, ROW_BYTES},
              {2 * STRIDE_BYTES + ROW_BYTES, PLACEMENT_OUTSIDE, 2 * STRIDE_BYTES + ROW_BYTES},
              {3 * STRIDE_BYTES + PLACEMENT_GUARD - 1, PLACEMENT_OUTSIDE, 3 * STRIDE_BYTES + PLACEMENT_GUARD - 1}};
  for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
    data[rows[i].byte] ^= 0x40;
    assert_int_equal(placement_compare(&p, dense, &where), rows[i].verdict);
    assert_int_equal(where, rows[i].where);
    data[rows[i].byte] ^= 0x40;
  }
  device->release(device, &buffer);
  device->close(device);
}

/* ---------------------------------------------------------------- variants */

static int count_variants(const struct bench_case* c) {
  int count = 0;
  for (int i = 0; i < variant_count; i++) count += variant_applies(&variants[i], c);
  return count;
}

static void test_variants(void** state) {
  (void)state;
  struct bench_case flat = {.pattern = arfusionPatternAllReduce, .digest[OUTPUT_ALLREDUCE] = "x"};
  struct bench_case rows = {.pattern = arfusionPatternResidualRmsNorm,
                            .gamma_dtype = arfusionBfloat16,
                            .digest[OUTPUT_RESIDUAL] = "x",
                            .digest[OUTPUT_NORM] = "x"};
  assert_int_equal(count_variants(&flat), 3); /* plain, in place, off by one element */
  assert_int_equal(count_variants(&rows), 9); /* all but those without quantized outputs */
  rows.gamma_dtype = arfusionFloat32;
  assert_int_equal(count_variants(&rows), 8);
  assert_true(variant_applies(&variants[0], &flat) && variants[0].in_place == 0 && variants[0].left_out == 0);
}

/* ---------------------------------------------------------------- plugin lookup */

static void test_lookup(void** state) {
  (void)state;
  static const struct {
    const char* name;
    enum plugin_load_result result;
    const char* named; /* must be in the error */
  } rows[] = {{"none", PLUGIN_LOAD_OFF, "ARFUSION_PLUGIN=none"},
              {"nosuch", PLUGIN_LOAD_MISSING, "tried nosuch, libarfusion-plugin-nosuch.so, /"},
              {"libnosuch.so", PLUGIN_LOAD_MISSING, "tried libnosuch.so, /"},
              {"./nosuch.so", PLUGIN_LOAD_MISSING, "tried ./nosuch.so"},
              {"/etc/passwd", PLUGIN_LOAD_INVALID, "/etc/passwd: "},
              {"libm.so.6", PLUGIN_LOAD_INVALID, "has no symbol arfusionPlugin_v1"}};
  for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
    struct plugin_library library;
    char error[2048] = "";
    assert_int_equal(plugin_load(rows[i].name, &library, error, sizeof(error)), rows[i].result);
    if (strstr(error, rows[i].named) == NULL) fail_msg("%s is not named: %s", rows[i].named, error);
    assert_null(library.handle);
    plugin_unload(&library);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_percentiles), cmocka_unit_test(test_fitting),
                                     cmocka_unit_test(test_placement), cmocka_unit_test(test_variants),
                                     cmocka_unit_test(test_lookup)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
