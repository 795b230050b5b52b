/* SPDX-License-Identifier: Apache-2.0
 *
 * test_abi_check.c: ranks that are asked for different things, with ARFUSION_CHECK=1 and without, and the numbers of
 * NaNs that ARFUSION_COUNT_NAN=1 counts. On the host device; on GPUs: test_watchdog_cuda.c.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "test/unit/support.h"

static const arfusionPlugin_v1_t* const plugin = &arfusionPlugin_v1;

enum { NRANKS = 3, WIDE = 4 * SUPPORT_ELEMENTS };

static void* checking;       /* ARFUSION_CHECK=1 */
static void* checking_hasty; /* the same with a time-out of 2 s */
static void* trusting;       /* a time-out of 2 s */
static void* counting;       /* ARFUSION_COUNT_NAN=1 */

static void* context_with(const char* name, const char* value, const char* seconds) {
  support_setting("ARFUSION_DEVICE", "host");
  support_setting("ARFUSION_TIMEOUT", seconds);
  if (name) support_setting(name, value);
  void* ctx = support_context();
  if (name) support_setting(name, NULL);
  return ctx;
}

static int set_up(void** state) {
  (void)state;
  checking = context_with("ARFUSION_CHECK", "1", "30");
  checking_hasty = context_with("ARFUSION_CHECK", "1", "2");
  trusting = context_with(NULL, NULL, "2");
  counting = context_with("ARFUSION_COUNT_NAN", "1", "30");
  return !checking || !checking_hasty || !trusting || !counting;
}

static int tear_down(void** state) {
  (void)state;
  plugin->finalize(checking);
  plugin->finalize(checking_hasty);
  plugin->finalize(trusting);
  return plugin->finalize(counting) != arfusionSuccess;
}

static void comms_make(void* ctx, void** comms, int64_t tokens) {
  const arfusionConfig_t config = {
      .size = sizeof config, .maxTokens = tokens, .hidden = 64, .dataType = arfusionFloat32};
  assert_int_equal(plugin->commInitAll(ctx, NRANKS, NULL, &config, comms), arfusionSuccess);
}

static void comms_end(void** comms) {
  for (int r = 0; r < NRANKS; ++r) assert_int_equal(plugin->commFinalize(comms[r]), arfusionSuccess);
}

/* ---------------------------------------------------------------- what differs */

static void pattern_differs(arfusionRequest_t* q) {
  q->pattern = arfusionPatternAllReduce;
  q->allreduceOut = q->normOut;
  q->residualOut = q->normOut = NULL;
}
static void tokens_differ(arfusionRequest_t* q) { q->tokens = 2; }
static void hidden_differs(arfusionRequest_t* q) { q->hidden = 32; }
/* As many bytes: without a check nothing would be missing. */
static void shape_differs(arfusionRequest_t* q) {
  q->tokens *= 2;
  q->hidden /= 2;
}
static void type_differs(arfusionRequest_t* q) {
  q->dataType = q->gammaDataType = arfusionBfloat16;
}
static void gamma_differs(arfusionRequest_t* q) {
  q->dataType = arfusionBfloat16;
  q->gammaDataType = arfusionFloat32;
}
static void hint_differs(arfusionRequest_t* q) { q->algorithmHint = arfusionAlgoTwoshot; }
static void algorithm_differs(arfusionRequest_t* q) { q->algorithmHint = arfusionAlgoOneshotSync; }
static float fp8_scale = 1;
static unsigned char codes[NRANKS][WIDE];
static void quantization_differs(arfusionRequest_t* q) {
  q->quantization = arfusionQuantFp8;
  q->fp8Scale = &fp8_scale;
  q->quantOut = codes[0];
}

static const struct difference {
  void (*make)(arfusionRequest_t* request);
  const char* words; /* of the error's text on the odd rank */
} differences[] = {
    {pattern_differs, "pattern is 0 on rank 1, 1 on rank"},
    {tokens_differ, "tokens is 2 on rank 1, 3 on rank"},
    {hidden_differs, "hidden is 32 on rank 1, 64 on rank"},
    {shape_differs, "tokens is 6 on rank 1, 3 on rank|hidden is 32 on rank 1, 64"},
    {type_differs, "; dataType is 9 on rank 1, 7 on rank|gammaDataType is 9 on rank 1, 7"},
    {gamma_differs, "; dataType is 9 on rank 1, 7 on rank"},
    {quantization_differs, "quantization is 1 on rank 1, 0 on rank"},
    {hint_differs, "algorithmHint is twoshot on rank 1, auto on rank|the algorithm is twoshot on rank 1"},
    {algorithm_differs, "algorithmHint is oneshot_sync on rank 1, auto on rank"},
};
enum { DIFFERENCES = sizeof differences / sizeof differences[0], ODD = 1 };

/* ---------------------------------------------------------------- calls */

struct calls {
  void** comms;
  int count[NRANKS];                            /* of each rank */
  void (*make[NRANKS][4])(arfusionRequest_t*); /* how each call differs from the usual one; NULL: not at all */
  struct support_tensors tensors[NRANKS];      /* of the last call */
  char text[NRANKS][512];                      /* what commGetAsyncError says */
};

static arfusionResult_t calls_run(int rank, void* argument, struct support_outcome* outcome) {
  struct calls* calls = argument;
  arfusionResult_t result = arfusionSuccess, async;
  for (int i = 0; i < calls->count[rank] && result == arfusionSuccess; ++i) {
    arfusionRequest_t request = support_request(&calls->tensors[rank], rank);
    arfusionRoute_t route = {.size = sizeof route};
    if (calls->make[rank][i]) calls->make[rank][i](&request);
    result = plugin->enqueue(calls->comms[rank], &request, NULL, &route);
    outcome->value[0] = i; /* the last call */
  }
  plugin->commGetAsyncError(calls->comms[rank], &async, calls->text[rank], sizeof calls->text[rank]);
  outcome->value[1] = async;
  return result;
}

/* Outputs are as support_request has left them. */
static int untouched(const struct support_tensors* tensors) {
  for (int i = 0; i < SUPPORT_ELEMENTS; ++i) {
    uint32_t y, n;
    memcpy(&y, &tensors->residual_out[i], 4);
    memcpy(&n, &tensors->norm_out[i], 4);
    if (y != 0xa5a5a5a5u || n != 0xa5a5a5a5u) return 0;
  }
  return 1;
}

static void calls_succeed(struct calls* calls) {
  struct support_outcome outcomes[NRANKS];
  support_threads(NRANKS, calls_run, calls, outcomes);
  for (int r = 0; r < NRANKS; ++r) {
    if (outcomes[r].result != arfusionSuccess) fail_msg("rank %d: %s", r, calls->text[r]);
    assert_true(support_outputs_right(&calls->tensors[r], NRANKS));
  }
}

/* Every rank has been told at its call `at`, at once, and refuses to go on. */
static void check_told(struct calls* calls, const struct support_outcome* outcomes, int at) {
  for (int r = 0; r < NRANKS; ++r) {
    arfusionRoute_t route = {.size = sizeof route};
    struct support_tensors tensors;
    const arfusionRequest_t request = support_request(&tensors, r);
    if (outcomes[r].result != arfusionInvalidUsage) fail_msg("rank %d: %d %s", r, outcomes[r].result, calls->text[r]);
    assert_true(support_text_has(outcomes[r].text, "was not begun|nothing was written|different things"));
    assert_int_equal(outcomes[r].value[0], at);
    assert_int_equal(outcomes[r].value[1], arfusionInvalidUsage);
    assert_true(support_text_has(calls->text[r], "were asked for different things|ARFUSION_CHECK"));
    assert_true(outcomes[r].seconds < 5);
    assert_true(untouched(&calls->tensors[r]));
    const double start = support_now();
    for (int i = 0; i < 3; ++i) {
      assert_int_equal(plugin->enqueue(calls->comms[r], &request, NULL, &route), arfusionInvalidUsage);
      assert_true(support_text_has(plugin->getLastError(), "different things"));
    }
    assert_true(support_now() - start < 0.5 && untouched(&tensors));
  }
}

static void ranks_that_agree_are_served(void** state) {
  (void)state;
  void* comms[NRANKS];
  comms_make(checking, comms, 8);
  for (int i = 0; i < 50; ++i) assert_true(support_operation_all(comms, NRANKS));
  struct calls calls = {.comms = comms, .count = {4, 4, 4}};
  for (int r = 0; r < NRANKS; ++r) {
    calls.make[r][0] = algorithm_differs;
    calls.make[r][1] = hint_differs;
    calls.make[r][2] = tokens_differ;
  }
  calls_succeed(&calls);
  comms_end(comms);
}

/* Of a request that goes out as several launches the first one waits for the check. */
static arfusionResult_t large_run(int rank, void* argument, struct support_outcome* outcome) {
  enum { COUNT = 100000 };
  void** comms = argument;
  float* in = malloc(COUNT * sizeof *in);
  arfusionRoute_t route = {.size = sizeof route};
  for (int i = 0; i < COUNT; ++i) in[i] = support_input(rank, i);
  const arfusionRequest_t request = {.size = sizeof request, .dataType = arfusionFloat32, .tokens = 1, .hidden = COUNT,
                                     .algorithmHint = arfusionAlgoOneshotLamport, .input = in, .allreduceOut = in};
  arfusionResult_t result = plugin->enqueue(comms[rank], &request, NULL, &route);
  outcome->value[0] = route.launches;
  for (int i = 0; i < COUNT && result == arfusionSuccess; ++i) {
    if (in[i] != support_input(0, i) + support_input(1, i) + support_input(2, i)) result = arfusionInternalError;
  }
  free(in);
  return result;
}

static void large_requests_are_checked_once(void** state) {
  (void)state;
  void* comms[NRANKS];
  struct support_outcome outcomes[NRANKS];
  support_setting("ARFUSION_WORKSPACE_LIMIT", "1M");
  void* ctx = context_with("ARFUSION_CHECK", "1", "30");
  support_setting("ARFUSION_WORKSPACE_LIMIT", NULL);
  comms_make(ctx, comms, 4096);
  for (int i = 0; i < 3; ++i) {
    support_threads(NRANKS, large_run, comms, outcomes);
    for (int r = 0; r < NRANKS; ++r) {
      assert_int_equal(outcomes[r].result, arfusionSuccess);
      assert_true(outcomes[r].value[0] > 1);
    }
    assert_true(support_operation_all(comms, NRANKS));
  }
  comms_end(comms);
  plugin->finalize(ctx);
}

static void every_agreed_field_is_compared(void** state) {
  (void)state;
  for (int d = 0; d < DIFFERENCES; ++d) {
    void* comms[NRANKS];
    struct support_outcome outcomes[NRANKS];
    struct calls calls = {.comms = comms, .count = {2, 2, 2}, .make = {[ODD] = {[1] = differences[d].make}}};
    comms_make(checking, comms, 8);
    support_threads(NRANKS, calls_run, &calls, outcomes);
    check_told(&calls, outcomes, 1);
    assert_true(support_text_has(calls.text[ODD], differences[d].words));
    for (int r = 0; r < NRANKS; r += 2) {
      char words[64];
      snprintf(words, sizeof words, "ranks %d and %d|on rank %d|on rank %d", r, ODD, r, ODD);
      assert_true(support_text_has(calls.text[r], words));
    }
    comms_end(comms);
  }
}

static void another_order_is_noticed(void** state) {
  (void)state;
  void* comms[NRANKS];
  struct support_outcome outcomes[NRANKS];
  struct calls calls = {.comms = comms, .count = {3, 3, 3}};
  for (int r = 0; r < NRANKS; ++r) calls.make[r][r == ODD ? 1 : 2] = shape_differs;
  comms_make(checking, comms, 8);
  support_threads(NRANKS, calls_run, &calls, outcomes);
  check_told(&calls, outcomes, 1);
  comms_end(comms);
}

static void local_of_rank_0(arfusionRequest_t* q) {
  q->eps = 1;
  q->normOut = NULL;
}
static void local_of_rank_1(arfusionRequest_t* q) {
  q->residualIn = NULL;
  q->weightBias = 1;
}
static void local_of_rank_2(arfusionRequest_t* q) {
  q->flags = ARFUSION_FLAG_DEPENDENT_LAUNCH;
  q->scaleLayout = arfusionScaleSwizzled128x4; /* which matters to nvfp4 alone, */
  q->groupSize = 32;                           /* and this to fp8_group */
}

static void local_fields_may_differ(void** state) {
  (void)state;
  void* comms[NRANKS];
  struct calls calls = {.comms = comms, .count = {2, 2, 2},
                        .make = {{local_of_rank_0}, {local_of_rank_1}, {local_of_rank_2}}};
  comms_make(checking, comms, 8);
  calls_succeed(&calls);
  comms_end(comms);
}

/* Two ranks have made a call more than the third: its silence is a time-out, which says what may be wrong. */
static void a_call_more_is_missed(void** state) {
  (void)state;
  void* comms[NRANKS];
  struct support_outcome outcomes[NRANKS];
  for (int with = 0; with < 2; ++with) {
    struct calls calls = {.comms = comms, .count = {3, 2, 3}};
    comms_make(with ? checking_hasty : trusting, comms, 8);
    support_threads(NRANKS, calls_run, &calls, outcomes);
    assert_int_equal(outcomes[ODD].result, arfusionSuccess);
    int timed_out = 0;
    for (int r = 0; r < NRANKS; r += 2) {
      assert_int_equal(outcomes[r].result, arfusionRemoteError);
      assert_true(outcomes[r].seconds < 6);
      if (strstr(calls.text[r], "failed first")) continue; /* told by the other one */
      timed_out = 1;
      assert_true(support_text_has(calls.text[r],
                                   with ? "waited for rank 1|time-out|what it was asked for|less often"
                                        : "waited for rank 1|time-out|asked for something else|ARFUSION_CHECK=1"));
    }
    assert_true(timed_out);
    comms_end(comms);
  }
}

/* Without the check, what is missing is waited for, and not made up. */
static void without_a_check_it_is_a_time_out(void** state) {
  (void)state;
  static void (*const makes[])(arfusionRequest_t*) = {tokens_differ, hidden_differs, hint_differs};
  for (int d = 0; d < 3; ++d) {
    void* comms[NRANKS];
    struct support_outcome outcomes[NRANKS];
    struct calls calls = {.comms = comms, .count = {3, 3, 3}, .make = {[ODD] = {[1] = makes[d]}}};
    int timed_out = 0;
    comms_make(trusting, comms, 8);
    support_threads(NRANKS, calls_run, &calls, outcomes);
    for (int r = 0; r < NRANKS; ++r) {
      assert_int_equal(outcomes[r].result, arfusionRemoteError);
      assert_true(outcomes[r].seconds < 6);
      if (!strstr(calls.text[r], "time-out")) continue;
      timed_out = 1;
      assert_true(support_text_has(calls.text[r], "asked for something else|ARFUSION_CHECK=1"));
    }
    assert_true(timed_out);
    comms_end(comms);
  }
}

static arfusionResult_t init_with(int rank, void* argument, struct support_outcome* outcome) {
  arfusionBootstrap_t bootstrap = {.size = sizeof bootstrap};
  void* comm;
  (void)outcome;
  arfusionResult_t result = plugin->bootstrapUniqueId(trusting, argument, NRANKS, rank, &bootstrap);
  if (result != arfusionSuccess) return result;
  result = plugin->commInit(rank == ODD ? checking_hasty : trusting, 0, NULL, &bootstrap, &comm);
  plugin->bootstrapDestroy(trusting, &bootstrap);
  if (result == arfusionSuccess) plugin->commFinalize(comm);
  return result;
}

static void all_ranks_check_or_none(void** state) {
  (void)state;
  arfusionUniqueId_t id;
  struct support_outcome outcomes[NRANKS];
  plugin->getUniqueId(trusting, &id);
  support_threads(NRANKS, init_with, &id, outcomes);
  for (int r = 0; r < NRANKS; ++r) {
    assert_int_equal(outcomes[r].result, arfusionInvalidUsage);
    assert_true(support_text_has(outcomes[r].text, "ARFUSION_CHECK: 0 on rank 0, 1 on rank 1"));
  }
}

static arfusionResult_t wait_or_abort(int rank, void* argument, struct support_outcome* outcome) {
  void** comms = argument;
  if (rank != ODD) return support_operation(comms[rank], rank, NRANKS);
  (void)outcome;
  support_sleep(0.1);
  return plugin->commAbort(comms[ODD]);
}

static void an_abort_ends_a_check(void** state) {
  (void)state;
  void* comms[NRANKS];
  struct support_outcome outcomes[NRANKS];
  comms_make(checking, comms, 8);
  support_threads(NRANKS, wait_or_abort, comms, outcomes);
  for (int r = 0; r < NRANKS; r += 2) {
    assert_int_equal(outcomes[r].result, arfusionRemoteError);
    assert_true(outcomes[r].seconds < 5);
  }
  comms_end(comms);
}

/* ---------------------------------------------------------------- NaNs */

struct nan_run {
  void** comms;
  arfusionPattern_t pattern;
  arfusionDataType_t dtype;
  int stride;
  uint64_t inputs[NRANKS], residuals[NRANKS], outputs[NRANKS]; /* as the counters should be */
};

static uint32_t nan_bits(arfusionDataType_t dtype, int which) {
  static const uint32_t wide[] = {0x7fc00000u, 0xff800001u, 0x7fffffffu}, bf16[] = {0x7fc0, 0xff81, 0x7fff};
  static const uint32_t fp16[] = {0x7e00, 0xfc01, 0x7fff};
  return (dtype == arfusionFloat32 ? wide : dtype == arfusionBfloat16 ? bf16 : fp16)[which % 3];
}

static void element_put(void* tensor, arfusionDataType_t dtype, int64_t i, uint32_t bits) {
  const size_t size = dtype == arfusionFloat32 ? 4 : 2;
  memcpy((char*)tensor + (size_t)i * size, &bits, size);
}

/* Rank 1's input has NaNs in row 1 (two, one of them where rank 2 has one, too), the residual has one in row 2. What
 * lies between the rows is all NaNs, which are nobody's, as are infinities. */
static arfusionResult_t nan_rank(int rank, void* argument, struct support_outcome* outcome) {
  enum { ROWS = 3, COLUMNS = 64 };
  const struct nan_run* run = argument;
  const int rows = run->pattern == arfusionPatternResidualRmsNorm, stride = rows ? run->stride : COLUMNS;
  char input[4 * ROWS * 80], residual[4 * ROWS * 80], gamma[4 * COLUMNS], y[4 * ROWS * 80], norm[4 * ROWS * 80];
  unsigned char quantized[ROWS * COLUMNS];
  arfusionRoute_t route = {.size = sizeof route};
  const uint32_t infinity = run->dtype == arfusionFloat32    ? 0x7f800000u
                            : run->dtype == arfusionBfloat16 ? 0x7f80
                                                             : 0x7c00;
  (void)outcome;
  memset(input, 0xff, sizeof input);
  memset(residual, 0xff, sizeof residual);
  memset(gamma, 0, sizeof gamma);
  for (int t = 0; t < ROWS; ++t) {
    for (int c = 0; c < COLUMNS; ++c) {
      element_put(input, run->dtype, t * stride + c, 0);
      element_put(residual, run->dtype, t * stride + c, 0);
    }
  }
  if (rank > 0) element_put(input, run->dtype, stride + 5, nan_bits(run->dtype, rank));
  if (rank == 1) element_put(input, run->dtype, stride + 63, nan_bits(run->dtype, 2));
  element_put(input, run->dtype, 7, infinity);
  element_put(residual, run->dtype, 2 * stride, nan_bits(run->dtype, 0));
  arfusionRequest_t request = {.size = sizeof request,
                               .pattern = run->pattern,
                               .dataType = run->dtype,
                               .gammaDataType = run->dtype,
                               .tokens = ROWS,
                               .hidden = COLUMNS,
                               .eps = 1e-5f,
                               .input = input};
  if (rows) {
    request.quantization = arfusionQuantFp8;
    request.fp8Scale = &fp8_scale;
    request.quantOut = quantized;
    request.inputStride = request.residualInStride = request.residualOutStride = request.normOutStride = stride;
    request.residualIn = residual;
    request.gamma = gamma;
    request.residualOut = y;
    request.normOut = rank == 2 ? input : norm;
  } else {
    request.allreduceOut = rank == 2 ? input : y;
  }
  return plugin->enqueue(run->comms[rank], &request, NULL, &route);
}

static void check_counters(void** comms, const struct nan_run* run) {
  for (int r = 0; r < NRANKS; ++r) {
    arfusionStats_t stats = {.size = sizeof stats};
    assert_int_equal(plugin->commGetStats(comms[r], &stats), arfusionSuccess);
    assert_int_equal(stats.nanInputs, run->inputs[r]);
    assert_int_equal(stats.nanResiduals, run->residuals[r]);
    assert_int_equal(stats.nanOutputs, run->outputs[r]);
  }
}

static void nans_are_counted_where_they_came_in(void** state) {
  (void)state;
  static const arfusionDataType_t dtypes[] = {arfusionFloat32, arfusionBfloat16, arfusionFloat16};
  void* comms[NRANKS];
  struct support_outcome outcomes[NRANKS];
  struct nan_run run = {.comms = comms};
  comms_make(counting, comms, 8);
  assert_true(support_operation_all(comms, NRANKS));
  check_counters(comms, &run);
  for (int d = 0; d < 3; ++d) {
    for (int p = arfusionPatternAllReduce; p <= arfusionPatternResidualRmsNorm; ++p) {
      const int rows = p == arfusionPatternResidualRmsNorm;
      run.pattern = (arfusionPattern_t)p;
      run.dtype = dtypes[d];
      run.stride = 64 + 8 * d;
      support_threads(NRANKS, nan_rank, &run, outcomes);
      for (int r = 0; r < NRANKS; ++r) {
        assert_int_equal(outcomes[r].result, arfusionSuccess);
        run.inputs[r] += r == 1 ? 2 : r == 2;
        run.residuals[r] += rows ? 1 : 0;
        /* y: two of row 1, one of row 2. norm_out and its codes: all of both rows, and of row 0 where infinity met 1 /
         * infinity. */
        run.outputs[r] += rows ? 3 + 2 * (64 + 64 + 1) : 2;
      }
      check_counters(comms, &run);
    }
  }
  const int lines = support_lines_logged();
  assert_int_equal(plugin->commFinalize(comms[0]), arfusionSuccess);
  assert_int_equal(support_lines_logged(), lines + 1);
  for (int r = 1; r < NRANKS; ++r) assert_int_equal(plugin->commFinalize(comms[r]), arfusionSuccess);
}

static void nobody_counts_unless_asked_to(void** state) {
  (void)state;
  void* comms[NRANKS];
  struct support_outcome outcomes[NRANKS];
  struct nan_run run = {.comms = comms, .dtype = arfusionFloat32, .stride = 64};
  const struct nan_run none = {.comms = comms};
  comms_make(trusting, comms, 8);
  support_threads(NRANKS, nan_rank, &run, outcomes);
  check_counters(comms, &none);
  const int lines = support_lines_logged();
  comms_end(comms);
  assert_int_equal(support_lines_logged(), lines);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(ranks_that_agree_are_served),
      cmocka_unit_test(large_requests_are_checked_once),
      cmocka_unit_test(every_agreed_field_is_compared),
      cmocka_unit_test(another_order_is_noticed),
      cmocka_unit_test(local_fields_may_differ),
      cmocka_unit_test(a_call_more_is_missed),
      cmocka_unit_test(without_a_check_it_is_a_time_out),
      cmocka_unit_test(all_ranks_check_or_none),
      cmocka_unit_test(an_abort_ends_a_check),
      cmocka_unit_test(nans_are_counted_where_they_came_in),
      cmocka_unit_test(nobody_counts_unless_asked_to),
  };
  return cmocka_run_group_tests_name("abi_check", tests, set_up, tear_down);
}
