/* SPDX-License-Identifier: Apache-2.0
 *
 * test_stats.c: the counters as JSON, and the line in the log for each new reason.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>
#include <math.h>

#include "arfusion.h"
#include "plugin/core/names.h"
#include "test/unit/support.h"

enum { NRANKS = 2, OPERATIONS = 3 };
static arfusionComm_t comms[NRANKS];

/* Three that are taken, one without tokens, two that are turned down for different reasons, one error. */
static arfusionResult_t operations(int rank, void* argument, struct support_outcome* outcome) {
  struct support_tensors tensors;
  arfusionRequest_t request = support_request(&tensors, rank);
  tensors.input[rank] = NAN;
  (void)argument;
  (void)outcome;
  for (int k = 0; k < OPERATIONS; ++k) {
    const arfusionResult_t result = arfusionAllReduce(comms[rank], &request, NULL, NULL);
    if (result != arfusionSuccess) return result;
  }
  request.tokens = 0;
  if (arfusionAllReduce(comms[rank], &request, NULL, NULL) != arfusionSuccess) return arfusionInternalError;
  request.tokens = SUPPORT_TOKENS;
  request.operation = arfusionMax;
  arfusionAllReduce(comms[rank], &request, NULL, NULL); /* what follows an allreduce of this kind nobody does */
  request.operation = arfusionSum;
  request.algorithmHint = (arfusionAlgorithm_t)99;
  return arfusionAllReduce(comms[rank], &request, NULL, NULL) == arfusionInvalidArgument ? arfusionSuccess
                                                                                        : arfusionInternalError;
}

static void check_counters(const json_t* object, const uint64_t* counters, int count, int first,
                           const char* (*name_of)(int)) {
  size_t named = 0;
  for (int i = first; i < count; ++i) {
    const json_t* counter = json_object_get(object, name_of(i));
    if (counters[i] == 0) {
      assert_null(counter);
      continue;
    }
    ++named;
    assert_non_null(counter);
    assert_int_equal(json_integer_value(counter), counters[i]);
  }
  assert_int_equal(json_object_size(object), named);
}

static const char* algorithm_name(int algorithm) { return name_of_algorithm((arfusionAlgorithm_t)algorithm); }
static const char* reason_name(int reason) { return key_of_reason((arfusionReason_t)reason); }

static void json_says_what_was_counted(void** state) {
  struct support_outcome outcomes[SUPPORT_MAX_RANKS];
  arfusionStats_t stats = {.size = sizeof stats};
  char text[4096];
  (void)state;
  support_setting("ARFUSION_DEVICE", "host");
  support_setting("ARFUSION_DEBUG", "none");
  support_setting("ARFUSION_COUNT_NAN", "1");
  support_use_plugin();
  assert_int_equal(arfusionCommInitAll(comms, NRANKS, NULL, NULL), arfusionSuccess);
  support_threads(NRANKS, operations, NULL, outcomes);
  for (int r = 0; r < NRANKS; ++r) assert_int_equal(outcomes[r].result, arfusionSuccess);

  assert_int_equal(arfusionCommGetStats(comms[0], &stats), arfusionSuccess);
  assert_int_equal(arfusionCommGetStatsJson(comms[0], text, sizeof text), arfusionSuccess);
  json_t* root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
  assert_non_null(root);
  assert_int_equal(json_integer_value(json_object_get(root, "requests")), OPERATIONS + 2);
  assert_int_equal(json_integer_value(json_object_get(root, "errors")), stats.errors);
  assert_true(stats.errors > 0);
  assert_int_equal(json_integer_value(json_object_get(root, "launches")), OPERATIONS);
  assert_int_equal(json_integer_value(json_object_get(root, "bytes")), OPERATIONS * SUPPORT_ELEMENTS * 4);
  check_counters(json_object_get(root, "by_algorithm"), stats.byAlgorithm, 16, 0, algorithm_name);
  check_counters(json_object_get(root, "by_reason"), stats.byReason, 64, arfusionReasonNone + 1, reason_name);
  assert_int_equal(json_integer_value(json_object_get(json_object_get(root, "by_reason"), "operation")), 1);
  assert_int_equal(json_integer_value(json_object_get(root, "nan_inputs")), stats.nanInputs);
  assert_int_equal(json_integer_value(json_object_get(root, "nan_residuals")), stats.nanResiduals);
  assert_int_equal(json_integer_value(json_object_get(root, "nan_outputs")), stats.nanOutputs);
  assert_true(stats.nanInputs > 0);
  json_decref(root);

  const size_t needed = strlen(text) + 1;
  char words[64];
  memset(text, 'x', sizeof text);
  assert_int_equal(arfusionCommGetStatsJson(comms[0], text, needed - 1), arfusionInvalidArgument);
  snprintf(words, sizeof words, "bytes is %zu|%zu", needed - 1, needed);
  assert_true(support_text_has(arfusionGetLastError(), words));
  assert_int_equal(text[0], 'x');
  assert_int_equal(arfusionCommGetStatsJson(comms[0], text, needed), arfusionSuccess);
  assert_int_equal(text[needed], 'x');
  for (int r = 0; r < NRANKS; ++r) assert_int_equal(arfusionCommDestroy(comms[r]), arfusionSuccess);
}

/* ---------------------------------------------------------------- lines in the log */

static int lines[ARFUSION_NUM_REASONS], other_levels;

static void reason_logger(arfusionLogLevel_t level, unsigned long flags, const char* file, int line, const char* fmt,
                          ...) {
  char text[1024];
  va_list args;
  (void)flags;
  (void)file;
  (void)line;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  if (!strstr(text, "turns a request down")) return;
  if (level != arfusionLogInfo) ++other_levels;
  for (int reason = 1; reason < ARFUSION_NUM_REASONS; ++reason) {
    if (strstr(text, name_of_reason((arfusionReason_t)reason))) ++lines[reason];
  }
}

static void each_reason_is_logged_once_at_info(void** state) {
  const arfusionPlugin_v1_t* plugin = &arfusionPlugin_v1;
  struct support_tensors tensors;
  const arfusionRequest_t good = support_request(&tensors, 0);
  void *ctx, *own[NRANKS];
  (void)state;
  assert_int_equal(plugin->init(&ctx, reason_logger), arfusionSuccess);
  assert_int_equal(plugin->commInitAll(ctx, NRANKS, NULL, NULL, own), arfusionSuccess);
  for (int k = 0; k < OPERATIONS; ++k) {
    arfusionRoute_t route = {.size = sizeof route};
    arfusionRequest_t request = good;
    request.operation = arfusionMax;
    assert_int_equal(plugin->enqueue(own[0], &request, NULL, &route), arfusionSuccess);
    request = good;
    request.gammaDataType = arfusionBfloat16;
    assert_int_equal(plugin->enqueue(own[0], &request, NULL, &route), arfusionSuccess);
    assert_int_equal(plugin->route(own[1], &request, &route), arfusionSuccess); /* asks, and is told by the route */
  }
  for (int r = 0; r < NRANKS; ++r) assert_int_equal(plugin->commFinalize(own[r]), arfusionSuccess);
  assert_int_equal(plugin->finalize(ctx), arfusionSuccess);
  for (int reason = 1; reason < ARFUSION_NUM_REASONS; ++reason) {
    const int turned_down = reason == arfusionReasonOperation || reason == arfusionReasonGammaDataType;
    if (lines[reason] != turned_down) {
      fail_msg("%d lines about: %s", lines[reason], name_of_reason((arfusionReason_t)reason));
    }
  }
  assert_int_equal(other_levels, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(json_says_what_was_counted),
      cmocka_unit_test(each_reason_is_logged_once_at_info),
  };
  return cmocka_run_group_tests_name("stats", tests, NULL, NULL);
}
