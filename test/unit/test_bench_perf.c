/* SPDX-License-Identifier: Apache-2.0
 *
 * The results of `perf`: what goes into the document, and at which sizes the plugin's choice is said not to be faster.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "plugin/tools/bench/perf_report.h"

/* Two GPUs; auto, nccl and epilogue as a graph, and nccl launched eagerly, which auto is not compared with. */
static const struct bench_session session = {
    .kind = BENCH_DEVICE_CUDA,
    .ndev = 2,
    .properties = {.name = "NVIDIA H200", .computeMajor = 9, .multiprocessors = 132, .memoryBytes = 1u << 30}};
static const struct perf_plan plan = {.session = &session,
                                      .nranks = 2,
                                      .dtype = arfusionBfloat16,
                                      .forms = {{arfusionAlgoAuto, BENCH_LAUNCH_GRAPH, 1},
                                                {PATH_UNFUSED, BENCH_LAUNCH_EAGER, 1},
                                                {PATH_UNFUSED, BENCH_LAUNCH_GRAPH, 1},
                                                {PATH_EPILOGUE, BENCH_LAUNCH_GRAPH, 0}},
                                      .nforms = 4};

static void take(struct perf_report* report, int64_t tokens, double own, double eager, double nccl, double epilogue) {
  const double medians[] = {own, eager, nccl, epilogue};
  struct perf_message message = {.kind = PERF_SIZE, .tokens = tokens, .hidden = 4096};
  message.results[0].algorithm = own > 0 ? arfusionAlgoTwoshot : arfusionAlgoNone;
  for (int i = 0; i < 4; i++) {
    message.results[i].summary =
        (struct measure_summary){.median = medians[i], .p10 = medians[i] - 0.25, .p90 = medians[i] + 0.5};
  }
  perf_report_take(report, &message);
}

static const char* lost(const struct perf_report* report, size_t index) {
  return json_string_value(json_array_get(report->rivals[0].lost, index));
}

static void test_comparison(void** state) {
  (void)state;
  struct perf_report report;
  perf_report_open(&report, &plan);
  assert_int_equal(report.rivals[0].form, 2);
  assert_int_equal(report.rivals[1].form, -1);
  take(&report, 1, 3, 2, 9, 2);  /* faster than the graph; that the eager one is faster does not count */
  take(&report, 2, 9, 20, 8, 2); /* slower */
  take(&report, 4, 8, 20, 8, 2); /* as fast: not faster */
  take(&report, 8, 8, 20, 0, 2); /* nothing to compare with */
  take(&report, 16, 0, 20, 8, 2);
  assert_int_equal(report.rivals[0].compared, 3);
  assert_int_equal(json_array_size(report.rivals[0].lost), 2);
  assert_string_equal(lost(&report, 0), "2 x 4096");
  assert_string_equal(lost(&report, 1), "4 x 4096");
  assert_int_equal(report.rivals[1].compared, 0);
  perf_report_compare(&report);
  perf_report_close(&report);
}

static void test_document(void** state) {
  (void)state;
  static const struct {
    const char *path, *launch;
    int pdl;
    double median;
  } rows[] = {{"auto", "graph", 1, 3}, {"nccl", "eager", 1, 12}, {"nccl", "graph", 1, 9}, {"epilogue", "graph", 0, 2}};
  struct perf_message start = {.kind = PERF_START, .nccl_version = 22803};
  struct perf_message host_time = {.kind = PERF_HOST_TIME, .enqueue_us = 4, .dependent_us = 5, .bare_launch_us = 3};
  struct perf_report report;
  perf_report_open(&report, &plan);
  perf_report_take(&report, &start);
  take(&report, 64, 3, 12, 9, 2);
  take(&report, 128, 0, 0, 0, 7); /* what is not there is left out */
  perf_report_take(&report, &host_time);
  json_t* document = perf_report_document(&report);
  perf_report_close(&report);

  json_t *machine, *measurements;
  const char *device, *compute, *nccl;
  double enqueue;
  assert_int_equal(json_unpack(document, "{s:o, s:{s:f}, s:o}", "machine", &machine, "host_time", "enqueue_us",
                               &enqueue, "measurements", &measurements),
                   0);
  assert_int_equal(json_unpack(machine, "{s:s, s:s, s:s}", "device", &device, "compute", &compute, "nccl", &nccl), 0);
  assert_string_equal(device, "NVIDIA H200");
  assert_string_equal(compute, "9.0");
  assert_string_equal(nccl, "2.28.3");
  assert_true(enqueue == 4);
  assert_int_equal(json_array_size(measurements), 5);
  for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
    const char *dtype, *pattern, *quant, *path, *launch, *commit;
    int tokens, hidden, ranks, pdl;
    double median, p10, p90;
    assert_int_equal(
        json_unpack(json_array_get(measurements, i),
                    "{s:i, s:i, s:i, s:s, s:s, s:s, s:s, s:s, s:b, s:f, s:f, s:f, s:s !}", "tokens", &tokens, "hidden",
                    &hidden, "ranks", &ranks, "dtype", &dtype, "pattern", &pattern, "quant", &quant, "path", &path,
                    "launch", &launch, "pdl", &pdl, "median_us", &median, "p10_us", &p10, "p90_us", &p90, "commit",
                    &commit),
        0);
    assert_true(tokens == 64 && hidden == 4096 && ranks == 2);
    assert_string_equal(dtype, "bf16");
    assert_string_equal(pattern, "residual_rmsnorm");
    assert_string_equal(quant, "none");
    assert_string_equal(path, rows[i].path);
    assert_string_equal(launch, rows[i].launch);
    assert_int_equal(pdl, rows[i].pdl);
    assert_true(median == rows[i].median && p10 == median - 0.25 && p90 == median + 0.5);
  }
  json_decref(document);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_comparison), cmocka_unit_test(test_document)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
