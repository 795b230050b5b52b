/* SPDX-License-Identifier: Apache-2.0
 *
 * test_abi_lifecycle.c: contexts and communicators from init to finalize, as hosts of all kinds make them: in threads
 * and in processes, over every bootstrap, many times. What one does with them is in test_abi_use.c.
 */
#include <pthread.h>
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

static const arfusionConfig_t small = {.size = sizeof small, .maxTokens = 8, .hidden = 64, .dataType = arfusionFloat32};

static void* ctx;

static int set_up(void** state) {
  (void)state;
  support_setting("ARFUSION_DEVICE", "host");
  support_setting("ARFUSION_INIT_TIMEOUT", "20");
  ctx = support_context();
  return !ctx;
}

static int tear_down(void** state) {
  (void)state;
  return plugin->finalize(ctx) != arfusionSuccess;
}

/* A context made while a setting has a value. */
static void* context_with(const char* name, const char* value) {
  support_setting(name, value);
  void* own = support_context();
  support_setting(name, NULL);
  assert_non_null(own);
  return own;
}

static void comms_finalize(void* const* comms, int nranks) {
  for (int r = 0; r < nranks; ++r) assert_int_equal(plugin->commFinalize(comms[r]), arfusionSuccess);
}

/* Every request is turned down with this. */
static void check_turned_down(void* comm, arfusionReason_t reason, int64_t value, int64_t limit) {
  struct support_tensors tensors, copy;
  arfusionRequest_t request = support_request(&tensors, 0);
  arfusionRoute_t route = {.size = sizeof route};
  copy = tensors;
  for (int hint = 0; hint <= arfusionAlgoTwoshot; hint += hint ? 1 : 3) {
    request.algorithmHint = (arfusionAlgorithm_t)hint;
    assert_int_equal(plugin->enqueue(comm, &request, NULL, &route), arfusionSuccess);
    assert_int_equal(route.algorithm, arfusionAlgoNone);
    assert_int_equal(route.reason, reason);
    assert_int_equal(route.value, value);
    assert_int_equal(route.limit, limit);
    assert_int_equal(route.launches, 0);
  }
  assert_memory_equal(&copy, &tensors, sizeof copy);
  request.tokens = 0;
  assert_int_equal(plugin->enqueue(comm, &request, NULL, &route), arfusionSuccess);
  assert_int_equal(route.algorithm, arfusionAlgoEmpty);
}

/* ---------------------------------------------------------------- contexts */

static void contexts_come_and_go(void** state) {
  (void)state;
  void* contexts[8];
  const int lines = support_lines_logged();
  for (int i = 0; i < 50; ++i) {
    void* own = support_context();
    assert_non_null(own);
    assert_int_equal(plugin->finalize(own), arfusionSuccess);
  }
  assert_true(support_lines_logged() >= lines + 50);
  for (int i = 0; i < 8; ++i) contexts[i] = support_context();
  for (int i = 0; i < 8; ++i) {
    void* comms[2];
    assert_int_equal(plugin->commInitAll(contexts[i], 2, NULL, &small, comms), arfusionSuccess);
    assert_true(support_operation_all(comms, 2));
    comms_finalize(comms, 2);
    assert_int_equal(plugin->finalize(contexts[i]), arfusionSuccess);
  }
}

static arfusionResult_t context_of_a_thread(int rank, void* argument, struct support_outcome* outcome) {
  void *own = support_context(), *comms[2];
  (void)rank;
  (void)argument;
  arfusionResult_t result = plugin->commInitAll(own, 2, NULL, &small, comms);
  if (result != arfusionSuccess) return result;
  outcome->value[0] = support_operation_all(comms, 2);
  for (int r = 0; r < 2; ++r) plugin->commFinalize(comms[r]);
  return plugin->finalize(own);
}

static void threads_may_have_contexts_of_their_own(void** state) {
  (void)state;
  struct support_outcome outcomes[4];
  support_threads(4, context_of_a_thread, NULL, outcomes);
  for (int r = 0; r < 4; ++r) assert_true(outcomes[r].result == arfusionSuccess && outcomes[r].value[0]);
}

static void a_context_keeps_the_settings_of_its_init(void** state) {
  (void)state;
  void* none = context_with("ARFUSION_ALGO", "none");
  void* twoshot = context_with("ARFUSION_ALGO", "twoshot");
  void *turned[2], *comms[2];
  struct support_tensors tensors;
  arfusionRequest_t request = support_request(&tensors, 0);
  arfusionRoute_t route = {.size = sizeof route};
  assert_int_equal(plugin->commInitAll(none, 2, NULL, &small, turned), arfusionSuccess);
  assert_int_equal(plugin->commInitAll(twoshot, 2, NULL, &small, comms), arfusionSuccess);
  check_turned_down(turned[0], arfusionReasonDisabled, 0, 0);
  assert_int_equal(plugin->route(comms[0], &request, &route), arfusionSuccess);
  assert_int_equal(route.algorithm, arfusionAlgoTwoshot);
  request.algorithmHint = arfusionAlgoOneshotSync;
  assert_int_equal(plugin->route(comms[0], &request, &route), arfusionSuccess);
  assert_int_equal(route.algorithm, arfusionAlgoOneshotSync);
  assert_true(support_operation_all(comms, 2));
  comms_finalize(turned, 2);
  comms_finalize(comms, 2);
  assert_int_equal(plugin->finalize(none), arfusionSuccess);
  assert_int_equal(plugin->finalize(twoshot), arfusionSuccess);
}

static void the_host_device_says_what_it_is(void** state) {
  (void)state;
  int ndev = -1;
  arfusionProperties_t properties = {.size = sizeof properties};
  assert_string_equal(plugin->name, "arfusion");
  assert_int_equal(plugin->size, sizeof *plugin);
  assert_int_equal(plugin->devices(ctx, &ndev), arfusionSuccess);
  assert_int_equal(ndev, 1);
  assert_int_equal(plugin->getProperties(ctx, 0, &properties), arfusionSuccess);
  assert_string_equal(properties.name, "host");
  assert_string_equal(properties.pciBusId, "");
  assert_int_equal(properties.isHost, 1);
  assert_int_equal(properties.deviceOrdinal, -1);
  assert_true(properties.multiprocessors >= 1);
  assert_true(properties.memoryBytes > 0);
}

static void every_reason_has_a_sentence(void** state) {
  (void)state;
  for (int a = 0; a < ARFUSION_NUM_REASONS; ++a) {
    assert_string_not_equal(plugin->reasonString((arfusionReason_t)a), "unknown reason");
    for (int b = 0; b < a; ++b) {
      assert_string_not_equal(plugin->reasonString((arfusionReason_t)a), plugin->reasonString((arfusionReason_t)b));
    }
  }
  assert_string_equal(plugin->reasonString((arfusionReason_t)ARFUSION_NUM_REASONS), "unknown reason");
  assert_string_equal(plugin->reasonString((arfusionReason_t)-1), "unknown reason");
}

static void* last_error_of_a_thread(void* argument) {
  snprintf(argument, 64, "%.63s", plugin->getLastError());
  plugin->devices(NULL, NULL);
  return NULL;
}

static void each_thread_has_its_last_error(void** state) {
  (void)state;
  pthread_t thread;
  char text[64] = "not called";
  assert_int_equal(plugin->devices(ctx, NULL), arfusionInvalidArgument);
  pthread_create(&thread, NULL, last_error_of_a_thread, text);
  pthread_join(thread, NULL);
  assert_string_equal(text, "");
  assert_string_equal(plugin->getLastError(), "ndev is NULL");
}

/* ---------------------------------------------------------------- all ranks in one process */

static void comm_init_all_makes_2_to_16_ranks(void** state) {
  (void)state;
  for (int nranks = 2; nranks <= ARFUSION_MAX_RANKS; ++nranks) {
    void* comms[ARFUSION_MAX_RANKS];
    const int devs[ARFUSION_MAX_RANKS] = {0};
    const double start = support_now();
    assert_int_equal(plugin->commInitAll(ctx, nranks, nranks & 1 ? devs : NULL, &small, comms), arfusionSuccess);
    assert_true(support_now() - start < 5);
    assert_true(support_operation_all(comms, nranks));
    comms_finalize(comms, nranks);
  }
}

static void one_rank_and_more_than_16_are_turned_down(void** state) {
  (void)state;
  static const int counts[] = {1, 17, 32, 100};
  for (size_t i = 0; i < sizeof counts / sizeof counts[0]; ++i) {
    void* comms[100];
    assert_int_equal(plugin->commInitAll(ctx, counts[i], NULL, NULL, comms), arfusionSuccess);
    for (int r = 0; r < counts[i]; r += 16) {
      check_turned_down(comms[r], arfusionReasonRankCount, counts[i], ARFUSION_MAX_RANKS);
    }
    comms_finalize(comms, counts[i]);
  }
}

static void several_communicators_work_side_by_side(void** state) {
  (void)state;
  enum { COMMS = 4, NRANKS = 3 };
  void* comms[COMMS][NRANKS];
  for (int c = 0; c < COMMS; ++c) {
    assert_int_equal(plugin->commInitAll(ctx, NRANKS, NULL, &small, comms[c]), arfusionSuccess);
  }
  for (int i = 0; i < 20; ++i) assert_true(support_operation_all(comms[i * 7 % COMMS], NRANKS));
  comms_finalize(comms[2], NRANKS);
  for (int i = 0; i < 6; ++i) assert_true(support_operation_all(comms[i & 1], NRANKS));
  for (int c = 0; c < COMMS; ++c) {
    if (c != 2) comms_finalize(comms[c], NRANKS);
  }
}

/* ---------------------------------------------------------------- unique ids */

struct meeting {
  int nranks, own_context;
  arfusionUniqueId_t ids[3];
};

/* Several communicators one after the other, each over an id of its own, all alive together. */
static arfusionResult_t meet(int rank, void* argument, struct support_outcome* outcome) {
  const struct meeting* meeting = argument;
  void *own = meeting->own_context ? support_context() : ctx, *comms[3];
  arfusionResult_t result = own ? arfusionSuccess : arfusionInternalError;
  for (int i = 0; i < 3 && result == arfusionSuccess; ++i) {
    arfusionBootstrap_t bootstrap = {.size = sizeof bootstrap};
    result = plugin->bootstrapUniqueId(own, &meeting->ids[i], meeting->nranks, rank, &bootstrap);
    if (result != arfusionSuccess) return result;
    outcome->value[0] += bootstrap.rank == rank && bootstrap.nranks == meeting->nranks;
    result = plugin->commInit(own, 0, &small, &bootstrap, &comms[i]);
    if (result != arfusionSuccess) return result;
    plugin->bootstrapDestroy(own, &bootstrap); /* not needed any more */
    outcome->value[0] += !bootstrap.opaque && !bootstrap.allGather;
    result = support_operation(comms[i], rank, meeting->nranks);
  }
  for (int i = 0; i < 3 && result == arfusionSuccess; ++i)
    result = support_operation(comms[2 - i], rank, meeting->nranks);
  for (int i = 0; i < 3 && result == arfusionSuccess; ++i) result = plugin->commFinalize(comms[i]);
  if (meeting->own_context && result == arfusionSuccess) result = plugin->finalize(own);
  return result;
}

static void check_meeting(int nranks, int own_context,
                          void (*run)(int, support_function, void*, struct support_outcome*)) {
  struct support_outcome outcomes[SUPPORT_MAX_RANKS];
  struct meeting meeting = {.nranks = nranks, .own_context = own_context};
  for (int i = 0; i < 3; ++i) assert_int_equal(plugin->getUniqueId(ctx, &meeting.ids[i]), arfusionSuccess);
  run(nranks, meet, &meeting, outcomes);
  for (int r = 0; r < nranks; ++r) {
    if (!outcomes[r].ended || outcomes[r].result != arfusionSuccess) {
      fail_msg("rank %d of %d: %d, %s", r, nranks, outcomes[r].result, outcomes[r].text);
    }
    assert_int_equal(outcomes[r].value[0], 6);
  }
}

static void unique_ids_join_threads(void** state) {
  (void)state;
  check_meeting(2, 0, support_threads);
  check_meeting(5, 1, support_threads);
}

static void unique_ids_join_processes(void** state) {
  (void)state;
  check_meeting(2, 0, support_processes); /* with the context that was made before the fork */
  check_meeting(5, 1, support_processes);
  check_meeting(16, 1, support_processes);
}

static void unique_ids_are_unique(void** state) {
  (void)state;
  arfusionUniqueId_t ids[16];
  for (int a = 0; a < 16; ++a) {
    assert_int_equal(plugin->getUniqueId(ctx, &ids[a]), arfusionSuccess);
    for (int b = 0; b < a; ++b) assert_memory_not_equal(&ids[a], &ids[b], sizeof ids[a]);
  }
}

/* ---------------------------------------------------------------- torchrun's environment */

/* One instance of `nranks` after the other, each with a port of its own. */
static arfusionResult_t meet_by_environment(int process, void* argument, struct support_outcome* outcome) {
  const int nranks = *(int*)argument, rank = process % nranks;
  char text[16];
  void* own = support_context();
  snprintf(text, sizeof text, "%d", rank);
  support_setting("RANK", text);
  support_setting("LOCAL_RANK", text);
  snprintf(text, sizeof text, "%d", nranks);
  support_setting("WORLD_SIZE", text);
  support_setting("MASTER_ADDR", "127.0.0.1");
  snprintf(text, sizeof text, "%d", 29511 + process / nranks);
  support_setting("MASTER_PORT", text);
  for (int i = 0; i < 2; ++i) { /* the second call meets the others' second call */
    arfusionBootstrap_t bootstrap = {.size = sizeof bootstrap};
    int local = -1;
    void* comm;
    arfusionResult_t result = plugin->bootstrapEnvironment(own, &bootstrap, i ? NULL : &local);
    if (result == arfusionSuccess) result = plugin->commInit(own, 0, &small, &bootstrap, &comm);
    if (result == arfusionSuccess) result = support_operation(comm, rank, nranks);
    if (result == arfusionSuccess) result = plugin->commFinalize(comm);
    if (result == arfusionSuccess) result = plugin->bootstrapDestroy(own, &bootstrap);
    if (result != arfusionSuccess) return result;
    if (i == 0) outcome->value[0] = local;
  }
  return plugin->finalize(own);
}

static void the_environment_joins_processes(void** state) {
  (void)state;
  struct support_outcome outcomes[4];
  for (int nranks = 4; nranks >= 2; nranks -= 2) { /* one instance of 4, then two at once of 2 */
    support_processes(4, meet_by_environment, &nranks, outcomes);
    for (int p = 0; p < 4; ++p) {
      assert_true(outcomes[p].ended);
      if (outcomes[p].result != arfusionSuccess) fail_msg("process %d: %s", p, outcomes[p].text);
      assert_int_equal(outcomes[p].value[0], p % nranks);
      assert_true(outcomes[p].seconds < 5);
    }
  }
}

/* ---------------------------------------------------------------- the host's own all-gather */

enum { GATHERERS = 3 };

enum lie { TRUTH, OTHER_ORDER, SAME_RANK, NONSENSE, REFUSAL };

struct gathering {
  pthread_barrier_t barrier;
  unsigned char shared[GATHERERS][1 << 16];
  enum lie lie;
  int rank[GATHERERS]; /* what `opaque` points to */
  int closed;          /* commInit has returned everywhere: no call may come */
  unsigned slow;       /* a bit for each rank to which the answers come late */
};

static struct gathering gathering;

static arfusionResult_t gather(void* opaque, const void* send, void* recv, size_t bytes) {
  const int rank = *(int*)opaque;
  if (gathering.closed || bytes > sizeof gathering.shared[0] || gathering.lie == REFUSAL) return arfusionRemoteError;
  memcpy(gathering.shared[rank], send, bytes);
  pthread_barrier_wait(&gathering.barrier);
  for (int r = 0; r < GATHERERS; ++r) {
    const int from = gathering.lie == OTHER_ORDER ? (r + 1) % GATHERERS : r;
    memcpy((unsigned char*)recv + (size_t)r * bytes, gathering.shared[from], bytes);
    if (gathering.lie == NONSENSE && r != rank) memset((unsigned char*)recv + (size_t)r * bytes, 0, bytes);
  }
  pthread_barrier_wait(&gathering.barrier);
  if (gathering.slow >> rank & 1) support_sleep(0.02);
  return arfusionSuccess;
}

static void* gathered[GATHERERS];

static arfusionResult_t init_by_gathering(int rank, void* argument, struct support_outcome* outcome) {
  (void)argument;
  (void)outcome;
  const arfusionBootstrap_t bootstrap = {.size = sizeof bootstrap,
                                         .rank = gathering.lie == SAME_RANK ? 1 : rank,
                                         .nranks = GATHERERS,
                                         .opaque = &gathering.rank[rank],
                                         .allGather = gather};
  return plugin->commInit(ctx, 0, &small, &bootstrap, &gathered[rank]);
}

static void the_hosts_all_gather_is_enough(void** state) {
  (void)state;
  struct support_outcome outcomes[GATHERERS];
  pthread_barrier_init(&gathering.barrier, NULL, GATHERERS);
  for (int r = 0; r < GATHERERS; ++r) gathering.rank[r] = r;
  support_threads(GATHERERS, init_by_gathering, NULL, outcomes);
  gathering.closed = 1;
  for (int r = 0; r < GATHERERS; ++r) assert_int_equal(outcomes[r].result, arfusionSuccess);
  for (int i = 0; i < 5; ++i) assert_true(support_operation_all(gathered, GATHERERS));
  comms_finalize(gathered, GATHERERS);
}

static arfusionResult_t init_and_use(int rank, void* argument, struct support_outcome* outcome) {
  const arfusionResult_t result = init_by_gathering(rank, argument, outcome);
  return result == arfusionSuccess ? support_operation(gathered[rank], rank, GATHERERS) : result;
}

/* The others may use its workspace as soon as they have it: nothing of what they write there is lost. */
static void a_rank_that_is_slow_to_set_up_loses_nothing(void** state) {
  (void)state;
  struct support_outcome outcomes[GATHERERS];
  void* const usual = ctx;
  ctx = context_with("ARFUSION_TIMEOUT", "5");
  gathering.closed = 0;
  for (int slow = 0; slow < GATHERERS; ++slow) {
    gathering.slow = 1u << slow;
    support_threads(GATHERERS, init_and_use, NULL, outcomes);
    for (int r = 0; r < GATHERERS; ++r) {
      if (outcomes[r].result != arfusionSuccess) fail_msg("rank %d: %d, %s", r, outcomes[r].result, outcomes[r].text);
    }
    comms_finalize(gathered, GATHERERS);
  }
  gathering.slow = 0;
  plugin->finalize(ctx);
  ctx = usual;
}

static void an_all_gather_that_is_none_is_an_error(void** state) {
  (void)state;
  static const struct {
    enum lie lie;
    arfusionResult_t result;
    const char* words;
  } lies[] = {
      {OTHER_ORDER, arfusionInvalidUsage, "place 0 holds rank 1|rank order"},
      {SAME_RANK, arfusionInvalidUsage, "place 0 holds rank 1|same number"},
      {NONSENSE, arfusionInvalidUsage, "does not run this version of the plugin"},
      {REFUSAL, arfusionRemoteError, "allGather returned 6"},
  };
  struct support_outcome outcomes[GATHERERS];
  gathering.closed = 0;
  for (size_t i = 0; i < sizeof lies / sizeof lies[0]; ++i) {
    gathering.lie = lies[i].lie;
    support_threads(GATHERERS, init_by_gathering, NULL, outcomes);
    for (int r = 0; r < GATHERERS; ++r) {
      assert_int_equal(outcomes[r].result, lies[i].result);
      assert_true(support_text_has(outcomes[r].text, lies[i].words));
    }
  }
  gathering.lie = TRUTH;
}

/* ---------------------------------------------------------------- several hosts */

static arfusionResult_t init_on_several_hosts(int rank, void* argument, struct support_outcome* outcome) {
  const struct meeting* meeting = argument;
  arfusionBootstrap_t bootstrap = {.size = sizeof bootstrap};
  void* comm;
  support_setting("NCCL_HOSTID", rank < 2 ? "left" : "right");
  void* own = support_context();
  arfusionResult_t result = plugin->bootstrapUniqueId(own, &meeting->ids[0], meeting->nranks, rank, &bootstrap);
  if (result == arfusionSuccess) result = plugin->commInit(own, 0, NULL, &bootstrap, &comm);
  if (result != arfusionSuccess) return result;
  struct support_tensors tensors;
  const arfusionRequest_t request = support_request(&tensors, rank);
  arfusionRoute_t route = {.size = sizeof route};
  result = plugin->enqueue(comm, &request, NULL, &route);
  outcome->value[0] = route.reason;
  outcome->value[1] = route.value;
  outcome->value[2] = route.limit;
  plugin->commFinalize(comm);
  plugin->bootstrapDestroy(own, &bootstrap);
  plugin->finalize(own);
  return result;
}

static void ranks_on_several_hosts_are_turned_down(void** state) {
  (void)state;
  struct support_outcome outcomes[4];
  struct meeting meeting = {.nranks = 4};
  void* comm;
  plugin->getUniqueId(ctx, &meeting.ids[0]);
  support_processes(4, init_on_several_hosts, &meeting, outcomes);
  for (int r = 0; r < 4; ++r) {
    assert_true(outcomes[r].ended);
    assert_int_equal(outcomes[r].result, arfusionSuccess);
    assert_int_equal(outcomes[r].value[0], arfusionReasonSeveralHosts);
    assert_int_equal(outcomes[r].value[1], 2);
    assert_int_equal(outcomes[r].value[2], 1);
  }
  const arfusionBootstrap_t bootstrap = {.size = sizeof bootstrap, .rank = 5, .nranks = 24, .nhosts = 3};
  assert_int_equal(plugin->commInit(ctx, 0, NULL, &bootstrap, &comm), arfusionSuccess);
  check_turned_down(comm, arfusionReasonSeveralHosts, 3, 1);
  comms_finalize(&comm, 1);
}

/* ---------------------------------------------------------------- nothing is left over */

static void two_hundred_communicators_leave_nothing_behind(void** state) {
  (void)state;
  void* comms[3];
  int descriptors = 0, mappings = 0;
  for (int i = 0; i < 200; ++i) {
    arfusionBootstrap_t alone = {.size = sizeof alone};
    arfusionUniqueId_t id;
    assert_int_equal(plugin->commInitAll(ctx, 2 + i % 2, NULL, &small, comms), arfusionSuccess);
    assert_true(i || support_mappings("arfusion-workspace") > 0);
    if (i % 20 == 0) assert_true(support_operation_all(comms, 2 + i % 2));
    if (i % 3 == 0) plugin->commAbort(comms[0]);
    comms_finalize(comms, 2 + i % 2);
    assert_int_equal(plugin->getUniqueId(ctx, &id), arfusionSuccess);
    assert_int_equal(plugin->bootstrapUniqueId(ctx, &id, 1, 0, &alone), arfusionSuccess);
    assert_int_equal(plugin->bootstrapDestroy(ctx, &alone), arfusionSuccess);
    if (i == 0) {
      descriptors = support_descriptors();
      mappings = support_mappings("");
    }
  }
  assert_int_equal(support_descriptors(), descriptors);
  assert_int_equal(support_mappings("memfd:arfusion"), 0);
  assert_true(support_mappings("") <= mappings + 16); /* malloc's and the threads' own */
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(contexts_come_and_go),
      cmocka_unit_test(threads_may_have_contexts_of_their_own),
      cmocka_unit_test(a_context_keeps_the_settings_of_its_init),
      cmocka_unit_test(the_host_device_says_what_it_is),
      cmocka_unit_test(every_reason_has_a_sentence),
      cmocka_unit_test(each_thread_has_its_last_error),
      cmocka_unit_test(comm_init_all_makes_2_to_16_ranks),
      cmocka_unit_test(one_rank_and_more_than_16_are_turned_down),
      cmocka_unit_test(several_communicators_work_side_by_side),
      cmocka_unit_test(unique_ids_join_threads),
      cmocka_unit_test(unique_ids_join_processes),
      cmocka_unit_test(unique_ids_are_unique),
      cmocka_unit_test(the_environment_joins_processes),
      cmocka_unit_test(the_hosts_all_gather_is_enough),
      cmocka_unit_test(a_rank_that_is_slow_to_set_up_loses_nothing),
      cmocka_unit_test(an_all_gather_that_is_none_is_an_error),
      cmocka_unit_test(ranks_on_several_hosts_are_turned_down),
      cmocka_unit_test(two_hundred_communicators_leave_nothing_behind),
  };
  return cmocka_run_group_tests_name("abi_lifecycle", tests, set_up, tear_down);
}
