/* SPDX-License-Identifier: Apache-2.0
 *
 * test_profiler_report.c: the judgement of calls: on GPUs that are not here, with estimates that are checked against
 * the measurements they come from.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "plugin/core/comm.h"
#include "plugin/nccl/profiler_file.h"
#include "plugin/nccl/profiler_report.h"
#include "test/unit/support.h"

static struct profiler_calls calls;
static struct profiler_facts facts;

/* A communicator of `nranks` GPUs. */
static void begin(int compute_major, int compute_minor, int nranks) {
  memset(&calls, 0, sizeof calls);
  facts = (struct profiler_facts){
      .id = 0xabc,
      .host = "host",
      .pid = 1,
      .nranks = nranks,
      .nnodes = 1,
      .device = "a GPU",
      .compute_major = compute_major,
      .compute_minor = compute_minor,
      .route = {.nranks = nranks, .max_request_bytes = 256 << 20},
  };
  for (int a = arfusionAlgoOneshotLamport; a < ARFUSION_NUM_ALGORITHMS; ++a) facts.route.launch_bytes[a] = 32 << 20;
  facts.table = tuning_builtin(compute_major, compute_minor, nranks, &facts.route.table);
  tuning_arch(compute_major, compute_minor, facts.arch);
}

static void count(arfusionDataType_t type, uint64_t elements, int eager, int captured) {
  for (int i = 0; i < eager; ++i) profiler_calls_count(&calls, type, elements, 0);
  for (int i = 0; i < captured; ++i) profiler_calls_count(&calls, type, elements, 1);
}

static struct report make(void) {
  struct report report;
  assert_int_equal(report_make(&report, &facts, &calls), 0);
  return report;
}

static const struct report_size* size_of(const struct report* report, arfusionDataType_t type, uint64_t elements) {
  for (int i = 0; i < report->nsizes; ++i) {
    if (report->sizes[i].calls.type == type && report->sizes[i].calls.count == elements) return &report->sizes[i];
  }
  fail_msg("no calls of %llu %s", (unsigned long long)elements, report_type_name(type));
  return NULL;
}

/* ---------------------------------------------------------------- estimates */

static double number(const json_t* object, const char* name) {
  return json_number_value(json_object_get(object, name));
}

/* The medians of h200x2.json for a shape, in a graph with dependent launch. */
static double measured_us(const json_t* document, int tokens, int hidden, const char* path) {
  size_t i;
  const json_t* entry;
  json_array_foreach(json_object_get(document, "measurements"), i, entry) {
    if (number(entry, "tokens") == tokens && number(entry, "hidden") == hidden &&
        !strcmp(json_string_value(json_object_get(entry, "path")), path) &&
        json_is_true(json_object_get(entry, "pdl")) &&
        !strcmp(json_string_value(json_object_get(entry, "launch")), "graph")) {
      return number(entry, "median_us");
    }
  }
  fail_msg("%s was not measured at %d x %d", path, tokens, hidden);
  return 0;
}

static void expect_near(double estimate, double measured, double share, const char* what, int tokens, int hidden) {
  if (estimate < measured * (1 - share) || estimate > measured * (1 + share)) {
    fail_msg("%s, %d x %d: %.2f, measured %.2f", what, tokens, hidden, estimate, measured);
  }
}

static void estimates_are_near_what_was_measured(void** state) {
  static const int hiddens[] = {2880, 4096, 5120, 7168, 8192};
  static const struct {
    arfusionAlgorithm_t algorithm;
    const char* path;
  } algorithms[] = {{arfusionAlgoOneshotLamport, "oneshot_lamport"}, {arfusionAlgoTwoshot, "twoshot"},
                    {arfusionAlgoOneshotSync, "oneshot_sync"}};
  json_error_t error;
  (void)state;
  json_t* document = json_load_file("test/bench/results/h200x2.json", 0, &error);
  if (!document) fail_msg("%s", error.text);
  for (int tokens = 1; tokens <= 8192; tokens *= 2) {
    for (size_t h = 0; h < sizeof hiddens / sizeof hiddens[0]; ++h) {
      const int hidden = hiddens[h];
      struct tuning_times times;
      for (size_t a = 0; a < sizeof algorithms / sizeof algorithms[0]; ++a) {
        const char* basis = tuning_estimate(9, 0, 2, algorithms[a].algorithm, (int64_t)tokens * hidden * 2, &times);
        assert_non_null(strstr(basis, "two H200"));
        assert_null(strstr(basis, "model"));
        expect_near(times.operation_us, measured_us(document, tokens, hidden, algorithms[a].path), 0.5,
                    algorithms[a].path, tokens, hidden);
      }
      tuning_estimate(9, 0, 2, arfusionAlgoOneshotLamport, (int64_t)tokens * hidden * 2, &times);
      expect_near(times.operation_us, measured_us(document, tokens, hidden, "oneshot_lamport"), 0.18,
                  "one-shot Lamport", tokens, hidden);
      expect_near(times.nccl_us + times.epilogue_us, measured_us(document, tokens, hidden, "nccl"), 0.18, "nccl",
                  tokens, hidden);
    }
  }
  json_decref(document);
}

static void models_are_said_to_be_models(void** state) {
  struct tuning_times two, eight, slow, none = {-1, -1, -1};
  (void)state;
  assert_null(tuning_estimate(0, 0, 2, arfusionAlgoOneshotLamport, 4096, &none));
  assert_true(none.nccl_us == -1);
  assert_null(strstr(tuning_estimate(9, 0, 2, arfusionAlgoTwoshot, 64 << 20, &two), "model"));
  assert_non_null(strstr(tuning_estimate(9, 0, 8, arfusionAlgoTwoshot, 64 << 20, &eight), "model"));
  assert_non_null(strstr(tuning_estimate(8, 0, 2, arfusionAlgoTwoshot, 64 << 20, &slow), "model"));
  assert_true(eight.operation_us > two.operation_us && eight.nccl_us > two.nccl_us);
  assert_true(eight.epilogue_us == two.epilogue_us); /* no rank count in it */
  assert_true(slow.operation_us > two.operation_us && slow.nccl_us > two.nccl_us);
}

/* ---------------------------------------------------------------- routes */

/* What is told of a communicator that is not there is what one gets that is made. */
static void predictions_are_what_communicators_get(void** state) {
  static const char* const settings[][2] = {{"ARFUSION_DEBUG", "none"}, {"ARFUSION_WORKSPACE_LIMIT", "9M"},
                                            {"ARFUSION_ALGO", "oneshot_sync"}, {"ARFUSION_ALGO", "none"}};
  static const int ranks[] = {1, 2, 3, 16, 17};
  (void)state;
  support_setting("ARFUSION_DEVICE", "host");
  for (size_t s = 0; s < sizeof settings / sizeof settings[0]; ++s) {
    support_setting(settings[s][0], settings[s][1]);
    struct context* ctx = support_context();
    assert_non_null(ctx);
    for (size_t n = 0; n < sizeof ranks / sizeof ranks[0]; ++n) {
      struct route_facts predicted;
      const char* source = NULL;
      void* comms[17];
      assert_int_equal(comm_predict(ctx, 0, ranks[n], 1, &predicted, &source), arfusionSuccess);
      assert_int_equal(arfusionPlugin_v1.commInitAll(ctx, ranks[n], NULL, NULL, comms), arfusionSuccess);
      const struct route_facts* real = &((struct comm*)comms[0])->facts;
      assert_int_equal(predicted.nranks, real->nranks);
      assert_int_equal(predicted.reason, real->reason);
      assert_int_equal(predicted.reason_value, real->reason_value);
      assert_int_equal(predicted.reason_limit, real->reason_limit);
      assert_int_equal(predicted.forced, real->forced);
      assert_int_equal(predicted.max_request_bytes, real->max_request_bytes);
      assert_memory_equal(predicted.launch_bytes, real->launch_bytes, sizeof real->launch_bytes);
      assert_memory_equal(&predicted.table, &real->table, sizeof real->table);
      assert_int_equal(strcmp(source, "none") == 0, real->reason != arfusionReasonNone);
      for (int r = 0; r < ranks[n]; ++r) arfusionPlugin_v1.commFinalize(comms[r]);
    }
    arfusionPlugin_v1.finalize(ctx);
    support_setting(settings[s][0], NULL);
  }
}

/* ---------------------------------------------------------------- reports */

static void a_decode_step_is_judged(void** state) {
  (void)state;
  begin(9, 0, 2);
  count(arfusionBfloat16, 4096, 10, 160);
  count(arfusionBfloat16, 3 * 4096, 30, 0);
  count(arfusionFloat32, 1, 5, 0);
  count(arfusionInt64, 2, 1, 0);
  struct report report = make();
  const struct report_size* token = size_of(&report, arfusionBfloat16, 4096);
  const struct report_size* scalar = size_of(&report, arfusionFloat32, 1);
  assert_int_equal(report.nsizes, 4);
  assert_ptr_equal(token, &report.sizes[0]); /* by calls */
  assert_int_equal(report.eager, 46);
  assert_int_equal(report.captured, 160);
  assert_int_equal(report.fusible, 200);
  assert_int_equal(report.divides[arfusionBfloat16], 4096);
  assert_int_equal(report.divides[arfusionFloat32], 0); /* one element is no row */
  assert_int_equal(report.form[REPORT_ALLREDUCE].taken[arfusionAlgoOneshotLamport], 205);
  assert_int_equal(report.form[REPORT_ALLREDUCE].reasons[arfusionReasonDataType], 1);
  assert_int_equal(report.form[REPORT_FUSED].taken[arfusionAlgoOneshotLamport], 200);
  assert_int_equal(report.form[REPORT_FUSED].reasons[arfusionReasonHiddenAlignment], 5);
  assert_int_equal(report.form[REPORT_FUSED].reasons[arfusionReasonDataType], 1);

  assert_int_equal(token->bytes, 8192);
  assert_true(token->form[REPORT_FUSED].now_us > 8 && token->form[REPORT_FUSED].now_us < 9);
  assert_true(token->form[REPORT_FUSED].saved_us > 5.4 && token->form[REPORT_FUSED].saved_us < 6);
  assert_true(token->form[REPORT_ALLREDUCE].saved_us < token->form[REPORT_FUSED].saved_us);
  assert_true(scalar->form[REPORT_ALLREDUCE].saved_us > 0 && scalar->form[REPORT_FUSED].now_us == 0);
  assert_int_equal(report.form[REPORT_FUSED].captured.calls, 160);
  const double captured = report.form[REPORT_FUSED].captured.saved_us - 160 * token->form[REPORT_FUSED].saved_us;
  assert_true(captured > -1e-6 && captured < 1e-6);
  assert_int_equal(report.form[REPORT_FUSED].eager.calls, 40);
  assert_int_equal(report.form[REPORT_ALLREDUCE].eager.calls, 45);
  report_free(&report);
}

static void the_route_is_the_tables(void** state) {
  (void)state;
  begin(9, 0, 8);
  const int64_t up_to = facts.route.table.automatic[0].up_to_bytes / 16 * 16; /* one-shot's */
  count(arfusionFloat16, (uint64_t)up_to / 2, 1, 0);
  count(arfusionFloat16, (uint64_t)up_to / 2 + 8, 1, 0);
  count(arfusionFloat16, (uint64_t)1 << 30, 1, 0);
  facts.route.table.slower_from_bytes = 1 << 20;
  count(arfusionFloat32, 1 << 18, 1, 0);
  struct report report = make();
  for (int form = 0; form < REPORT_FORMS; ++form) {
    assert_int_equal(report.form[form].taken[arfusionAlgoOneshotLamport], 1);
    assert_int_equal(report.form[form].taken[arfusionAlgoTwoshot], 1);
    assert_int_equal(report.form[form].reasons[arfusionReasonWorkspace], 1);
    assert_int_equal(report.form[form].reasons[arfusionReasonSlower], 1);
  }
  report_free(&report);
}

/* Rows of the type's common divisor, within the limits of a row. */
static void rows_are_never_longer_than_they_may_be(void** state) {
  (void)state;
  begin(9, 0, 2);
  facts.route.launch_bytes[arfusionAlgoOneshotLamport] = facts.route.launch_bytes[arfusionAlgoTwoshot] =
      facts.route.launch_bytes[arfusionAlgoOneshotSync] = 128 << 10;
  count(arfusionBfloat16, 65536 * 3, 1, 0);   /* 65,536 is the longest row: exactly a launch */
  count(arfusionFloat32, 65536, 1, 0);        /* a row of that many does not fit a launch */
  count(arfusionFloat16, 8 * 1000003, 1, 0); /* of a prime number: rows of 8 */
  struct report report = make();
  assert_int_equal(size_of(&report, arfusionBfloat16, 65536 * 3)->form[REPORT_FUSED].route.algorithm,
                   arfusionAlgoOneshotLamport);
  assert_int_equal(size_of(&report, arfusionFloat32, 65536)->form[REPORT_FUSED].route.reason, arfusionReasonWorkspace);
  assert_int_equal(size_of(&report, arfusionFloat32, 65536)->form[REPORT_ALLREDUCE].route.algorithm,
                   arfusionAlgoOneshotLamport);
  assert_int_equal(size_of(&report, arfusionFloat16, 8 * 1000003)->form[REPORT_FUSED].route.algorithm,
                   arfusionAlgoOneshotLamport);
  report_free(&report);
}

static char* text_of(void (*print)(const struct report* report, FILE* out), const struct report* report) {
  char* text;
  size_t bytes;
  FILE* out = open_memstream(&text, &bytes);
  assert_non_null(out);
  print(report, out);
  assert_int_equal(fclose(out), 0);
  return text;
}

static void both_forms_say_what_it_is_based_on(void** state) {
  static const char* const said[] = {"communicator 0xabc, rank 0 of 4 on 1 node, host:1, a GPU (sm_90)",
                                     "170 calls, and 16 captured",
                                     "fusible:     181 by their shape",
                                     "multiples of 7168 elements\n",
                                     "multiples of 16 elements: hardly rows of one hidden",
                                     "as they are: 186 would be taken: oneshot_lamport 165, twoshot 21",
                                     "fused:       181 would be taken",
                                     "5 not: hidden is not a multiple of 16 bytes",
                                     "and with each replay of all graphs",
                                     "table from a model",
                                     "nobody has measured it here"};
  (void)state;
  begin(9, 0, 4);
  count(arfusionBfloat16, 7168, 155, 0);
  count(arfusionBfloat16, 7168 * 512, 5, 16);
  count(arfusionFloat32, 16, 3, 0);
  count(arfusionFloat32, 48, 2, 0);
  count(arfusionFloat32, 3, 5, 0);
  struct report report = make();
  char* text = text_of(report_print_text, &report);
  for (size_t i = 0; i < sizeof said / sizeof said[0]; ++i) {
    if (!strstr(text, said[i])) fail_msg("no '%s' in\n%s", said[i], text);
  }
  free(text);
  text = text_of(report_print_json, &report);
  json_error_t error;
  json_t* document = json_loads(text, 0, &error);
  if (!document) fail_msg("%s: %s", error.text, text);
  const json_t* fused = json_object_get(document, "fused");
  assert_true(number(json_object_get(fused, "eager"), "saved_us") > 0);
  assert_true(number(json_object_get(fused, "captured_once"), "now_us") >
              number(json_object_get(fused, "captured_once"), "saved_us"));
  assert_non_null(
      strstr(json_string_value(json_object_get(document, "estimate_basis")), "nobody has measured it here"));
  assert_int_equal(number(json_object_get(document, "fusible_divisor"), "bfloat16"), 7168);
  json_decref(document);
  free(text);
  report_free(&report);
}

static void a_path_that_is_too_long_is_an_error(void** state) {
  char name[2 * PATH_MAX], path[PATH_MAX];
  (void)state;
  begin(9, 0, 2);
  memset(name, '/', sizeof name);
  name[PATH_MAX - 1] = '\0';
  assert_int_equal(profiler_file_path(name, &facts, path), 0);
  assert_int_equal(strlen(path), PATH_MAX - 1);
  name[PATH_MAX - 1] = '/';
  name[PATH_MAX] = '\0';
  assert_int_equal(profiler_file_path(name, &facts, path), ENAMETOOLONG);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(estimates_are_near_what_was_measured),
      cmocka_unit_test(models_are_said_to_be_models),
      cmocka_unit_test(predictions_are_what_communicators_get),
      cmocka_unit_test(a_decode_step_is_judged),
      cmocka_unit_test(the_route_is_the_tables),
      cmocka_unit_test(rows_are_never_longer_than_they_may_be),
      cmocka_unit_test(both_forms_say_what_it_is_based_on),
      cmocka_unit_test(a_path_that_is_too_long_is_an_error),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
