/* SPDX-License-Identifier: Apache-2.0
 *
 * The probe's parent: what a measuring process says ends up in the matrix, and one that hangs, dies, cannot start or
 * talks nonsense ends as a state and a text, within its time limit, without keeping the other pairs from being
 * measured. This program is its own measuring process.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "plugin/tools/topo/probe.h"

#define GPUS 3
#define MODE "TOPO_PROBE_TEST"

/* ---------------------------------------------------------------- the measuring process */

static void say(enum probe_message_kind kind, int metric, int backwards, double value, uint64_t wrong,
                const char* text) {
  struct probe_message message = {.kind = kind,
                                  .metric = (uint32_t)metric,
                                  .backwards = (uint32_t)backwards,
                                  .value = value,
                                  .words = 1000,
                                  .wrong = wrong};
  snprintf(message.text, sizeof(message.text), "%s", text);
  if (write(STDOUT_FILENO, &message, sizeof(message)) != (ssize_t)sizeof(message)) _exit(9);
}

/* Values tell metric, direction and pair apart. */
static void measure_all(const char* pair, int wrong_metric) {
  double base = strstr(pair, "0000:01:00.0,0000:02:00.0") != NULL ? 100 : 200;
  for (int metric = 0; metric < PROBE_METRICS; metric++) {
    for (int backwards = 0; backwards < 2; backwards++) {
      say(PROBE_BEGIN, metric, backwards, 0, 0, "");
      say(PROBE_RESULT, metric, backwards, base + 10 * metric + backwards, metric == wrong_metric ? 7 : 0, "");
    }
  }
}

static int child_main(const char* pair) {
  const char* mode = getenv(MODE);
  int first_pair = strstr(pair, "0000:01:00.0,0000:02:00.0") != NULL;
  if (strcmp(mode, "visible") == 0) {
    const char* visible = getenv("CUDA_VISIBLE_DEVICES");
    say(PROBE_FAILED, PROBE_METRICS, 0, 0, 0, visible != NULL ? visible : "unset");
    return 1;
  }
  if (!first_pair) mode = "good"; /* trouble with one pair only */
  if (strcmp(mode, "hang-at-start") == 0) sleep(60);
  if (strcmp(mode, "hang") == 0) {
    say(PROBE_BEGIN, PROBE_STORES, 0, 0, 0, "");
    say(PROBE_RESULT, PROBE_STORES, 0, 123, 0, "");
    say(PROBE_BEGIN, PROBE_STORES, 1, 0, 0, "");
    sleep(60);
  }
  if (strcmp(mode, "die") == 0) {
    say(PROBE_BEGIN, PROBE_LOADS, 0, 0, 0, "");
    kill(getpid(), SIGKILL);
  }
  if (strcmp(mode, "fail") == 0) {
    say(PROBE_FAILED, PROBE_STORES, 0, 0, 0, "no peer access");
    return 1;
  }
  if (strcmp(mode, "nonsense") == 0) {
    say(PROBE_RESULT, 77, 0, 1, 0, "");
    return 0;
  }
  measure_all(pair, strcmp(mode, "wrong") == 0 ? PROBE_COPY : -1);
  say(PROBE_DONE, 0, 0, 0, 0, "");
  if (strcmp(mode, "linger") == 0) sleep(60);
  return 0;
}

/* ---------------------------------------------------------------- the tests */

static struct topo* model;

static int make_model(void** state) {
  static const char text[] =
      "<system version=\"1\"><cpu numaid=\"0\">"
      "<pci busid=\"0000:01:00.0\" class=\"0x030200\"/><pci busid=\"0000:02:00.0\" class=\"0x030200\"/>"
      "<pci busid=\"0000:03:00.0\" class=\"0x030200\"/></cpu></system>";
  struct topo_error error;
  (void)state;
  if (topo_read_nccl_xml_buffer(text, sizeof(text) - 1, "test", &model, &error) != 0 || model->ngpus != GPUS) return -1;
  for (int i = 0; i < GPUS; i++) {
    model->gpus[i].cuda = (struct topo_fact){.value = i, .state = TOPO_OK};
    snprintf(model->gpus[i].uuid, sizeof(model->gpus[i].uuid), "GPU-%d", i);
  }
  return 0;
}

static int free_model(void** state) {
  (void)state;
  topo_free(model);
  return 0;
}

static struct probe_results measure(const char* mode, const char* program, double most_s) {
  const struct probe_plan plan = {.program = program, .start_limit_ms = 5000, .measure_limit_ms = 2000};
  struct probe_results results;
  struct timespec start, end;
  setenv(MODE, mode, 1);
  clock_gettime(CLOCK_MONOTONIC, &start);
  assert_int_equal(probe_measure(model, &plan, &results), 0);
  clock_gettime(CLOCK_MONOTONIC, &end);
  assert_true((double)(end.tv_sec - start.tv_sec) < most_s);
  assert_int_equal(results.ngpus, GPUS);
  return results;
}

static const char self[] = "/proc/self/exe";

static void expect_good(const struct probe_results* results, int from, int to, double base) {
  for (int metric = 0; metric < PROBE_METRICS; metric++) {
    const struct probe_cell* cell = probe_cell(results, (enum probe_metric)metric, from, to);
    assert_int_equal(cell->state, PROBE_GOOD);
    assert_true(cell->value == base + 10 * metric + (from > to));
  }
}

static void test_good(void** state) {
  (void)state;
  struct probe_results results = measure("good", self, 30);
  expect_good(&results, 0, 1, 100);
  expect_good(&results, 1, 0, 100);
  expect_good(&results, 0, 2, 200);
  expect_good(&results, 2, 1, 200);
  assert_int_equal(probe_status(&results), TOOL_DEGRADED); /* 100 GB/s where others have 200 */
  for (int to = 0; to < 2; to++) probe_cell(&results, PROBE_STORES, !to, to)->value = 170;
  assert_int_equal(probe_status(&results), TOOL_GOOD);
  probe_free(&results);
}

/* All cells of the first pair but those listed in `measured` have this state and text; the other pairs are good. */
static void expect_trouble(const char* mode, const char* program, enum probe_state expected, const char* text,
                           int measured) {
  struct probe_results results = measure(mode, program, 30);
  for (int metric = 0; metric < PROBE_METRICS; metric++) {
    for (int backwards = 0; backwards < 2; backwards++) {
      const struct probe_cell* cell = probe_cell(&results, (enum probe_metric)metric, backwards, !backwards);
      if (metric * 2 + backwards < measured) continue;
      assert_int_equal(cell->state, expected);
      if (strstr(cell->text, text) == NULL) fail_msg("'%s' is not in '%s'", text, cell->text);
    }
  }
  expect_good(&results, 0, 2, 200);
  expect_good(&results, 1, 2, 200);
  assert_int_equal(probe_status(&results), TOOL_UNUSABLE);
  probe_free(&results);
}

static void test_hang(void** state) {
  (void)state;
  expect_trouble("hang", self, PROBE_HUNG, "stores: no answer within 2.0 s; killed", 1);
}

static void test_hang_at_start(void** state) {
  (void)state;
  expect_trouble("hang-at-start", self, PROBE_HUNG, "start: no answer within 5.0 s; killed", 0);
}

static void test_death(void** state) {
  (void)state;
  expect_trouble("die", self, PROBE_HUNG, "loads: its process died of signal 9", 0);
}

static void test_failure(void** state) {
  (void)state;
  expect_trouble("fail", self, PROBE_HUNG, "exited with code 1", 1);
}

static void test_nonsense(void** state) {
  (void)state;
  expect_trouble("nonsense", self, PROBE_HUNG, "its process ended early", 0);
}

static void test_wrong_data(void** state) {
  (void)state;
  struct probe_results results = measure("wrong", self, 30);
  assert_int_equal(probe_cell(&results, PROBE_STORES, 0, 1)->state, PROBE_GOOD);
  assert_int_equal(probe_cell(&results, PROBE_COPY, 0, 1)->state, PROBE_WRONG);
  assert_string_equal(probe_cell(&results, PROBE_COPY, 1, 0)->text, "7 of 1000 words did not arrive as they were sent");
  assert_int_equal(probe_status(&results), TOOL_UNUSABLE);
  probe_free(&results);
}

/* What it has said counts, though its process does not end by itself. */
static void test_lingering(void** state) {
  (void)state;
  struct probe_results results = measure("linger", self, 30);
  expect_good(&results, 0, 1, 100);
  probe_free(&results);
}

static void test_no_program(void** state) {
  (void)state;
  struct probe_results results = measure("good", "/no/such/program", 30);
  const struct probe_cell* cell = probe_cell(&results, PROBE_LATENCY, 2, 0);
  assert_int_equal(cell->state, PROBE_NO_WAY);
  assert_non_null(strstr(cell->text, "No such file"));
  probe_free(&results);
}

/* Each process sees its two GPUs only, whatever CUDA_VISIBLE_DEVICES was. */
static void test_visible(void** state) {
  (void)state;
  setenv("CUDA_VISIBLE_DEVICES", "2,1,0", 1);
  struct probe_results results = measure("visible", self, 30);
  assert_string_equal(probe_cell(&results, PROBE_STORES, 0, 2)->text, "GPU-0,GPU-2");
  assert_string_equal(probe_cell(&results, PROBE_LATENCY, 2, 1)->text, "GPU-1,GPU-2");
  assert_int_equal(probe_cell(&results, PROBE_STORES, 0, 2)->state, PROBE_NO_WAY);
  probe_free(&results);
}

int main(int argc, char** argv) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_good),          cmocka_unit_test(test_hang),
                                     cmocka_unit_test(test_hang_at_start), cmocka_unit_test(test_death),
                                     cmocka_unit_test(test_failure),       cmocka_unit_test(test_nonsense),
                                     cmocka_unit_test(test_wrong_data),    cmocka_unit_test(test_lingering),
                                     cmocka_unit_test(test_no_program),    cmocka_unit_test(test_visible)};
  if (argc == 3 && strcmp(argv[1], "probe") == 0) return child_main(argv[2]);
  return cmocka_run_group_tests(tests, make_model, free_model);
}
