/* SPDX-License-Identifier: Apache-2.0
 *
 * test_abi_failure.c: communicators that fail while they are used: aborts, time-outs, ranks that die. Nobody waits
 * longer than promised, everybody learns why, and nobody else is harmed.
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "test/unit/support.h"

static const arfusionPlugin_v1_t* const plugin = &arfusionPlugin_v1;

enum { NRANKS = 3 };

static void* patient; /* a context with a long time-out */
static void* hasty;   /* one with a time-out of 1 s */

static int set_up(void** state) {
  (void)state;
  support_setting("ARFUSION_DEVICE", "host");
  patient = support_context();
  support_setting("ARFUSION_TIMEOUT", "1");
  hasty = support_context();
  support_setting("ARFUSION_TIMEOUT", NULL);
  return !patient || !hasty;
}

static int tear_down(void** state) {
  (void)state;
  return plugin->finalize(patient) != arfusionSuccess || plugin->finalize(hasty) != arfusionSuccess;
}

/* ---------------------------------------------------------------- a rank that is waiting */

struct waiter {
  pthread_t thread;
  void* comm;
  int rank;
  arfusionAlgorithm_t hint;
  arfusionResult_t result;
  char text[1024];
  double seconds;
};

static void* waiter_run(void* argument) {
  struct waiter* waiter = argument;
  struct support_tensors tensors;
  arfusionRequest_t request = support_request(&tensors, waiter->rank);
  arfusionRoute_t route = {.size = sizeof route};
  request.algorithmHint = waiter->hint;
  const double start = support_now();
  waiter->result = plugin->enqueue(waiter->comm, &request, NULL, &route);
  waiter->seconds = support_now() - start;
  snprintf(waiter->text, sizeof waiter->text, "%s", plugin->getLastError());
  return NULL;
}

static void waiter_start(struct waiter* waiter, void* comm, int rank, arfusionAlgorithm_t hint) {
  *waiter = (struct waiter){.comm = comm, .rank = rank, .hint = hint};
  assert_int_equal(pthread_create(&waiter->thread, NULL, waiter_run, waiter), 0);
}

static void comms_make(void* ctx, void** comms) {
  const arfusionConfig_t config = {.size = sizeof config, .maxTokens = 8, .hidden = 64, .dataType = arfusionFloat32};
  assert_int_equal(plugin->commInitAll(ctx, NRANKS, NULL, &config, comms), arfusionSuccess);
  assert_true(support_operation_all(comms, NRANKS));
}

static void comms_end(void** comms) {
  const double start = support_now();
  for (int r = 0; r < NRANKS; ++r) assert_int_equal(plugin->commFinalize(comms[r]), arfusionSuccess);
  assert_true(support_now() - start < 1);
}

/* The communicator has failed with `expected` and says so in every way, at once, writing nothing. */
static void check_failed(void* comm, arfusionResult_t expected, const char* words) {
  struct support_tensors tensors, copy;
  arfusionRequest_t request = support_request(&tensors, 0);
  arfusionStats_t before = {.size = sizeof before}, after = {.size = sizeof after};
  arfusionRoute_t route = {.size = sizeof route};
  arfusionResult_t result = arfusionSuccess;
  char text[512] = "";
  assert_int_equal(plugin->commGetAsyncError(comm, &result, text, sizeof text), arfusionSuccess);
  if (result != expected) fail_msg("%d instead of %d: %s", result, expected, text);
  assert_true(support_text_has(text, words));
  copy = tensors;
  plugin->commGetStats(comm, &before);
  const double start = support_now();
  for (int i = 0; i < 3; ++i) {
    assert_int_equal(plugin->enqueue(comm, &request, NULL, &route), expected);
    assert_true(support_text_has(plugin->getLastError(), words));
  }
  request.operation = arfusionMax; /* also what would have been turned down */
  assert_int_equal(plugin->enqueue(comm, &request, NULL, &route), expected);
  assert_true(support_now() - start < 0.5);
  plugin->commGetStats(comm, &after);
  assert_int_equal(after.errors, before.errors + 4);
  assert_int_equal(after.requests, before.requests);
  assert_memory_equal(&copy, &tensors, sizeof copy);
  request.operation = arfusionSum; /* what needs no other rank goes on */
  assert_int_equal(plugin->route(comm, &request, &route), arfusionSuccess);
  assert_int_equal(plugin->epilogue(comm, &request, NULL), arfusionSuccess);
  assert_int_equal(plugin->commGetCapacity(comm, &(arfusionCapacity_t){.size = sizeof(arfusionCapacity_t)}),
                   arfusionSuccess);
}

/* ---------------------------------------------------------------- aborts */

static void an_abort_ends_waiting_ranks_and_their_peers(void** state) {
  (void)state;
  for (int hint = arfusionAlgoOneshotLamport; hint <= arfusionAlgoTwoshot; ++hint) {
    void* comms[NRANKS];
    struct waiter waiters[2];
    comms_make(patient, comms);
    for (int r = 0; r < 2; ++r) waiter_start(&waiters[r], comms[r], r, (arfusionAlgorithm_t)hint);
    support_sleep(0.05);
    const double start = support_now();
    assert_int_equal(plugin->commAbort(comms[0]), arfusionSuccess);
    for (int r = 0; r < 2; ++r) pthread_join(waiters[r].thread, NULL);
    assert_true(support_now() - start < 1);
    assert_int_equal(waiters[0].result, arfusionInvalidUsage);
    assert_int_equal(waiters[1].result, arfusionRemoteError);
    check_failed(comms[0], arfusionInvalidUsage, "rank 0|abort");
    check_failed(comms[1], arfusionRemoteError, "rank 1|rank 0");
    waiter_start(&waiters[0], comms[2], 2, (arfusionAlgorithm_t)hint); /* which was not in the operation */
    pthread_join(waiters[0].thread, NULL);
    assert_int_equal(waiters[0].result, arfusionRemoteError);
    assert_true(waiters[0].seconds < 1);
    check_failed(comms[2], arfusionRemoteError, "rank 2|rank 0");
    comms_end(comms);
  }
}

static void an_abort_of_an_idle_rank_ends_its_peers(void** state) {
  (void)state;
  void* comms[NRANKS];
  struct waiter waiters[2];
  comms_make(patient, comms);
  for (int r = 0; r < 2; ++r) waiter_start(&waiters[r], comms[r], r, arfusionAlgoAuto);
  support_sleep(0.05);
  assert_int_equal(plugin->commAbort(comms[2]), arfusionSuccess);
  const double start = support_now();
  for (int r = 0; r < 2; ++r) pthread_join(waiters[r].thread, NULL);
  assert_true(support_now() - start < 1);
  for (int r = 0; r < 2; ++r) {
    assert_int_equal(waiters[r].result, arfusionRemoteError);
    check_failed(comms[r], arfusionRemoteError, "rank 2");
  }
  check_failed(comms[2], arfusionInvalidUsage, "rank 2|abort");
  comms_end(comms);
}

static void an_abort_before_anybody_calls_is_seen_by_all(void** state) {
  (void)state;
  void* comms[NRANKS];
  struct waiter waiter;
  comms_make(patient, comms);
  for (int times = 0; times < 3; ++times) assert_int_equal(plugin->commAbort(comms[1]), arfusionSuccess);
  check_failed(comms[1], arfusionInvalidUsage, "rank 1|abort");
  for (int r = 0; r < NRANKS; r += 2) {
    waiter_start(&waiter, comms[r], r, arfusionAlgoAuto);
    pthread_join(waiter.thread, NULL);
    assert_int_equal(waiter.result, arfusionRemoteError);
    assert_true(waiter.seconds < 1);
  }
  comms_end(comms);
}

static void an_abort_where_everything_is_turned_down_is_remembered(void** state) {
  (void)state;
  void* comm;
  arfusionResult_t result;
  struct support_tensors tensors;
  arfusionRequest_t request = support_request(&tensors, 0);
  arfusionRoute_t route = {.size = sizeof route};
  char text[64];
  assert_int_equal(plugin->commInitAll(patient, 1, NULL, NULL, &comm), arfusionSuccess);
  assert_int_equal(plugin->enqueue(comm, &request, NULL, &route), arfusionSuccess);
  assert_int_equal(plugin->commAbort(comm), arfusionSuccess);
  assert_int_equal(plugin->commGetAsyncError(comm, &result, text, sizeof text), arfusionSuccess);
  assert_int_equal(result, arfusionInvalidUsage);
  assert_true(support_text_has(text, "rank 0|abort"));
  assert_int_equal(plugin->enqueue(comm, &request, NULL, &route), arfusionInvalidUsage);
  assert_int_equal(plugin->commFinalize(comm), arfusionSuccess);
}

static void async_errors_are_cut_to_the_callers_size(void** state) {
  (void)state;
  void* comms[NRANKS];
  char whole[512], text[64];
  arfusionResult_t result;
  comms_make(patient, comms);
  memset(text, 'x', sizeof text);
  assert_int_equal(plugin->commGetAsyncError(comms[0], &result, text, sizeof text), arfusionSuccess);
  assert_int_equal(result, arfusionSuccess);
  assert_string_equal(text, "");
  plugin->commAbort(comms[0]);
  plugin->commGetAsyncError(comms[0], &result, whole, sizeof whole);
  for (size_t bytes = 0; bytes <= 8; ++bytes) {
    memset(text, 'x', sizeof text);
    assert_int_equal(plugin->commGetAsyncError(comms[0], &result, text, bytes), arfusionSuccess);
    assert_int_equal(result, arfusionInvalidUsage);
    for (size_t i = bytes; i < sizeof text; ++i) assert_int_equal(text[i], 'x');
    if (bytes) assert_int_equal(strlen(text), bytes - 1);
    if (bytes) assert_memory_equal(text, whole, bytes - 1);
  }
  assert_int_equal(plugin->commGetAsyncError(comms[0], &result, NULL, 0), arfusionSuccess);
  assert_int_equal(result, arfusionInvalidUsage);
  comms_end(comms);
}

struct poller {
  void** comms;
  atomic_int stop;
  int polls;
};

static void* poller_run(void* argument) {
  struct poller* poller = argument;
  arfusionResult_t result;
  char text[256];
  while (!atomic_load(&poller->stop)) {
    for (int r = 0; r < NRANKS; ++r) plugin->commGetAsyncError(poller->comms[r], &result, text, sizeof text);
    ++poller->polls;
    support_sleep(0.001);
  }
  return NULL;
}

static void async_errors_may_be_asked_for_all_the_time(void** state) {
  (void)state;
  void* comms[NRANKS];
  pthread_t thread;
  struct waiter waiters[NRANKS];
  comms_make(patient, comms);
  struct poller poller = {.comms = comms};
  pthread_create(&thread, NULL, poller_run, &poller);
  for (int i = 0; i < 50; ++i) assert_true(support_operation_all(comms, NRANKS));
  for (int r = 0; r < NRANKS - 1; ++r) waiter_start(&waiters[r], comms[r], r, arfusionAlgoAuto);
  support_sleep(0.02);
  plugin->commAbort(comms[0]);
  for (int r = 0; r < NRANKS - 1; ++r) pthread_join(waiters[r].thread, NULL);
  support_sleep(0.01);
  atomic_store(&poller.stop, 1);
  pthread_join(thread, NULL);
  assert_true(poller.polls > 0);
  comms_end(comms);
}

/* ---------------------------------------------------------------- time-outs */

static void a_rank_that_does_not_call_is_named_at_the_time_limit(void** state) {
  (void)state;
  static const char* const names[] = {"oneshot_lamport", "oneshot_sync", "twoshot"};
  void *comms[3][NRANKS], *others[NRANKS];
  struct waiter waiters[3];
  char words[128];
  comms_make(hasty, others);
  for (int a = 0; a < 3; ++a) {
    comms_make(hasty, comms[a]);
    waiter_start(&waiters[a], comms[a][0], 0, (arfusionAlgorithm_t)(arfusionAlgoOneshotLamport + a));
  }
  assert_true(support_operation_all(others, NRANKS)); /* while they wait */
  for (int a = 0; a < 3; ++a) {
    pthread_join(waiters[a].thread, NULL);
    assert_int_equal(waiters[a].result, arfusionRemoteError);
    assert_true(waiters[a].seconds > 0.9 && waiters[a].seconds < 2);
    snprintf(words, sizeof words, "rank 0 waited for rank|ARFUSION_TIMEOUT|%s", names[a]);
    check_failed(comms[a][0], arfusionRemoteError, words);
    for (int r = 1; r < NRANKS; ++r) { /* the others come too late */
      struct waiter late;
      waiter_start(&late, comms[a][r], r, (arfusionAlgorithm_t)(arfusionAlgoOneshotLamport + a));
      pthread_join(late.thread, NULL);
      assert_int_equal(late.result, arfusionRemoteError);
      assert_true(late.seconds < 0.5);
      snprintf(words, sizeof words, "rank %d|rank 0", r);
      check_failed(comms[a][r], arfusionRemoteError, words);
    }
    comms_end(comms[a]);
  }
  assert_true(support_operation_all(others, NRANKS));
  comms_end(others);
}

static void a_rank_may_be_late(void** state) {
  (void)state;
  support_setting("ARFUSION_TIMEOUT", "0"); /* for ever */
  void* endless = support_context();
  support_setting("ARFUSION_TIMEOUT", NULL);
  void* const contexts[] = {hasty, endless};
  for (int c = 0; c < 2; ++c) {
    void* comms[NRANKS];
    struct waiter waiters[NRANKS];
    comms_make(contexts[c], comms);
    for (int r = 0; r < NRANKS; ++r) {
      waiter_start(&waiters[r], comms[r], r, arfusionAlgoAuto);
      support_sleep(0.3);
    }
    for (int r = 0; r < NRANKS; ++r) {
      pthread_join(waiters[r].thread, NULL);
      assert_int_equal(waiters[r].result, arfusionSuccess);
    }
    comms_end(comms);
  }
  assert_int_equal(plugin->finalize(endless), arfusionSuccess);
}

static void a_rank_that_has_finalized_is_missed_like_any_other(void** state) {
  (void)state;
  void* comms[NRANKS];
  struct waiter waiters[2];
  comms_make(hasty, comms);
  assert_int_equal(plugin->commFinalize(comms[2]), arfusionSuccess);
  for (int r = 0; r < 2; ++r) waiter_start(&waiters[r], comms[r], r, arfusionAlgoAuto);
  for (int r = 0; r < 2; ++r) {
    pthread_join(waiters[r].thread, NULL);
    assert_int_equal(waiters[r].result, arfusionRemoteError);
    assert_true(waiters[r].seconds < 2);
    assert_int_equal(plugin->commFinalize(comms[r]), arfusionSuccess);
  }
}

/* ---------------------------------------------------------------- processes that die */

static arfusionResult_t one_dies(int rank, void* argument, struct support_outcome* outcome) {
  arfusionBootstrap_t bootstrap = {.size = sizeof bootstrap};
  arfusionResult_t failure = arfusionSuccess;
  struct waiter waiter = {.rank = rank};
  void* comm;
  arfusionResult_t result = plugin->bootstrapUniqueId(hasty, argument, NRANKS, rank, &bootstrap);
  if (result == arfusionSuccess) result = plugin->commInit(hasty, 0, NULL, &bootstrap, &comm);
  if (result == arfusionSuccess) result = support_operation(comm, rank, NRANKS);
  if (result != arfusionSuccess) return arfusionInternalError;
  if (rank == 1) raise(SIGKILL);
  waiter.comm = comm;
  waiter_run(&waiter);
  outcome->value[0] = (int64_t)(waiter.seconds * 1000);
  plugin->commGetAsyncError(comm, &failure, NULL, 0);
  outcome->value[1] = failure;
  plugin->commFinalize(comm);
  plugin->bootstrapDestroy(hasty, &bootstrap);
  return waiter.result;
}

static void a_process_that_is_killed_ends_the_others_at_the_time_limit(void** state) {
  (void)state;
  arfusionUniqueId_t id;
  struct support_outcome outcomes[NRANKS];
  assert_int_equal(plugin->getUniqueId(hasty, &id), arfusionSuccess);
  support_processes(NRANKS, one_dies, &id, outcomes);
  assert_false(outcomes[1].ended);
  for (int r = 0; r < NRANKS; r += 2) {
    assert_true(outcomes[r].ended);
    assert_int_equal(outcomes[r].result, arfusionRemoteError);
    assert_int_equal(outcomes[r].value[1], arfusionRemoteError);
    assert_true(outcomes[r].value[0] < 2000);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_abort_ends_waiting_ranks_and_their_peers),
      cmocka_unit_test(an_abort_of_an_idle_rank_ends_its_peers),
      cmocka_unit_test(an_abort_before_anybody_calls_is_seen_by_all),
      cmocka_unit_test(an_abort_where_everything_is_turned_down_is_remembered),
      cmocka_unit_test(async_errors_are_cut_to_the_callers_size),
      cmocka_unit_test(async_errors_may_be_asked_for_all_the_time),
      cmocka_unit_test(a_rank_that_does_not_call_is_named_at_the_time_limit),
      cmocka_unit_test(a_rank_may_be_late),
      cmocka_unit_test(a_rank_that_has_finalized_is_missed_like_any_other),
      cmocka_unit_test(a_process_that_is_killed_ends_the_others_at_the_time_limit),
  };
  return cmocka_run_group_tests_name("abi_failure", tests, set_up, tear_down);
}
