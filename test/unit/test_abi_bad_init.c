/* SPDX-License-Identifier: Apache-2.0
 *
 * test_abi_bad_init.c: communicators that cannot be made: arguments that are wrong, ranks that disagree, that are
 * missing, that leave or that have no resources. All ranks that are there get the error, within the time limit, and
 * nothing is left over.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "test/unit/support.h"

static const arfusionPlugin_v1_t* const plugin = &arfusionPlugin_v1;

enum { MISSING_AFTER = 1 /* ARFUSION_INIT_TIMEOUT in these tests, in seconds */ };

static void* ctx;

static int set_up(void** state) {
  (void)state;
  support_setting("ARFUSION_DEVICE", "host");
  support_setting("ARFUSION_INIT_TIMEOUT", "1");
  support_setting("NCCL_CONF_FILE", "/dev/null");
  ctx = support_context();
  return !ctx;
}

static int tear_down(void** state) {
  (void)state;
  return plugin->finalize(ctx) != arfusionSuccess;
}

static void a_workspace_limit_that_no_workspace_fits_is_an_error(void** state) {
  (void)state;
  void *other, *comms[16];
  support_setting("ARFUSION_WORKSPACE_LIMIT", "1M"); /* enough for two ranks, not for sixteen */
  assert_int_equal(plugin->init(&other, support_logger), arfusionSuccess);
  assert_int_equal(plugin->commInitAll(other, 16, NULL, NULL, comms), arfusionInvalidArgument);
  assert_true(support_text_has(plugin->getLastError(), "ARFUSION_WORKSPACE_LIMIT|1048576|16 ranks"));
  assert_int_equal(plugin->commInitAll(other, 2, NULL, NULL, comms), arfusionSuccess);
  for (int r = 0; r < 2; ++r) assert_int_equal(plugin->commFinalize(comms[r]), arfusionSuccess);
  assert_int_equal(plugin->finalize(other), arfusionSuccess);
  support_setting("ARFUSION_WORKSPACE_LIMIT", NULL);
}

/* ---------------------------------------------------------------- one rank's arguments */

static arfusionResult_t gather_nothing(void* opaque, const void* send, void* recv, size_t bytes) {
  (void)opaque;
  (void)send;
  (void)recv;
  (void)bytes;
  return arfusionInternalError; /* arguments are checked before it is called */
}

static void wrong_bootstraps_are_errors_that_name_the_field(void** state) {
  (void)state;
  static const struct {
    arfusionBootstrap_t bootstrap;
    const char* words;
  } wrong[] = {
      {{.nranks = 0, .allGather = gather_nothing}, "bootstrap.nranks is 0|1"},
      {{.nranks = -3, .allGather = gather_nothing}, "bootstrap.nranks is -3|1"},
      {{.nranks = INT32_MAX, .allGather = gather_nothing}, "bootstrap.nranks is 2147483647|65536"},
      {{.nranks = 2, .rank = 2, .allGather = gather_nothing}, "bootstrap.rank is 2|0 to 1"},
      {{.nranks = 2, .rank = -1, .allGather = gather_nothing}, "bootstrap.rank is -1|0 to 1"},
      {{.nranks = 2, .nhosts = -1, .allGather = gather_nothing}, "bootstrap.nhosts is -1|0"},
      {{.nranks = 2, .allGather = NULL}, "bootstrap.allGather is NULL"},
      {{.nranks = 2, .nhosts = 1, .allGather = NULL}, "bootstrap.allGather is NULL"},
      {{.nranks = 2, .reserved = 5, .allGather = gather_nothing}, "bootstrap.reserved is 5|0"},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; ++i) {
    arfusionBootstrap_t bootstrap = wrong[i].bootstrap;
    void* comm = &bootstrap;
    bootstrap.size = sizeof bootstrap;
    assert_int_equal(plugin->commInit(ctx, 0, NULL, &bootstrap, &comm), arfusionInvalidArgument);
    assert_true(support_text_has(plugin->getLastError(), wrong[i].words));
    assert_ptr_equal(comm, &bootstrap);
  }
}

static void wrong_configurations_are_errors_that_name_the_field(void** state) {
  (void)state;
  static const struct {
    arfusionConfig_t config;
    const char* words;
  } wrong[] = {
      {{.maxTokens = -1, .hidden = 64, .dataType = arfusionFloat32}, "config.maxTokens is -1|1"},
      {{.maxTokens = 0, .hidden = 64, .dataType = arfusionFloat32}, "config.maxTokens is 0|1"},
      {{.maxTokens = 8, .hidden = -64, .dataType = arfusionFloat32}, "config.hidden is -64|1"},
      {{.maxTokens = 8, .hidden = 0, .dataType = arfusionFloat32}, "config.hidden is 0|1"},
      {{.maxTokens = 8, .hidden = 64, .dataType = arfusionInt8}, "config.dataType is 0|float16|float32|bfloat16"},
      {{.maxTokens = 8, .hidden = 64, .dataType = arfusionFloat64}, "config.dataType is 8"},
      {{.maxTokens = 8, .hidden = 64, .dataType = (arfusionDataType_t)-1}, "config.dataType is -1"},
      {{.maxTokens = INT64_MAX, .hidden = 64, .dataType = arfusionFloat32},
       "config.maxTokens x config.hidden|addressed"},
      {{.maxTokens = 8, .hidden = 64, .dataType = arfusionFloat32, .reserved = 3}, "config.reserved is 3|0"},
      {{.reserved = 3}, "config.reserved is 3|0"},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; ++i) {
    arfusionConfig_t config = wrong[i].config;
    config.size = sizeof config;
    for (int nhosts = 1; nhosts <= 2; ++nhosts) { /* also where the ranks cannot talk */
      const arfusionBootstrap_t bootstrap = {.size = sizeof bootstrap, .nranks = nhosts, .nhosts = nhosts};
      void* comm = &config;
      assert_int_equal(plugin->commInit(ctx, 0, &config, &bootstrap, &comm), arfusionInvalidArgument);
      assert_true(support_text_has(plugin->getLastError(), wrong[i].words));
      assert_ptr_equal(comm, &config);
    }
    void* comms[2] = {&config, &config};
    assert_int_equal(plugin->commInitAll(ctx, 2, NULL, &config, comms), arfusionInvalidArgument);
    assert_true(support_text_has(plugin->getLastError(), wrong[i].words));
    assert_true(comms[0] == &config && comms[1] == &config);
  }
}

static void wrong_devices_and_counts_are_errors(void** state) {
  (void)state;
  const arfusionBootstrap_t bootstrap = {.size = sizeof bootstrap, .nranks = 1};
  const arfusionBootstrap_t two_hosts = {.size = sizeof bootstrap, .nranks = 2, .nhosts = 2};
  const int devs[2] = {0, 7};
  void* comms[2] = {NULL, NULL};
  assert_int_equal(plugin->commInit(ctx, 1, NULL, &bootstrap, comms), arfusionInvalidArgument);
  assert_true(support_text_has(plugin->getLastError(), "dev is 1|0 to 0"));
  assert_int_equal(plugin->commInit(ctx, -1, NULL, &two_hosts, comms), arfusionInvalidArgument);
  assert_true(support_text_has(plugin->getLastError(), "dev is -1|0 to 0"));
  assert_int_equal(plugin->commInitAll(ctx, 2, devs, NULL, comms), arfusionInvalidArgument);
  assert_true(support_text_has(plugin->getLastError(), "rank 1|dev is 7|0 to 0"));
  assert_int_equal(plugin->commInitAll(ctx, 0, NULL, NULL, comms), arfusionInvalidArgument);
  assert_true(support_text_has(plugin->getLastError(), "nranks is 0|1"));
  assert_int_equal(plugin->commInitAll(ctx, -1, NULL, NULL, comms), arfusionInvalidArgument);
  assert_true(support_text_has(plugin->getLastError(), "nranks is -1|1"));
  assert_int_equal(plugin->commInitAll(ctx, 5000, NULL, NULL, comms), arfusionInvalidArgument);
  assert_true(support_text_has(plugin->getLastError(), "nranks is 5000|4096"));
  assert_true(!comms[0] && !comms[1]);
}

static void wrong_settings_are_errors_of_init_that_name_them(void** state) {
  (void)state;
  static const struct {
    const char *name, *value, *words;
  } wrong[] = {
      {"ARFUSION_ALGO", "threeshot", "ARFUSION_ALGO|threeshot|environment|twoshot"},
      {"ARFUSION_TIMEOUT", "-1", "ARFUSION_TIMEOUT|-1|environment|0 to"},
      {"ARFUSION_INIT_TIMEOUT", "0", "ARFUSION_INIT_TIMEOUT|environment|1 to"},
      {"ARFUSION_WORKSPACE_LIMIT", "12Q", "ARFUSION_WORKSPACE_LIMIT|12Q|environment"},
      {"ARFUSION_DEVICE", "tpu", "ARFUSION_DEVICE|tpu|environment|host"},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; ++i) {
    void* other = &other;
    support_setting(wrong[i].name, wrong[i].value);
    assert_int_equal(plugin->init(&other, support_logger), arfusionInvalidArgument);
    assert_true(support_text_has(plugin->getLastError(), wrong[i].words));
    assert_ptr_equal(other, &other);
    support_setting(wrong[i].name, NULL);
  }
  support_setting("ARFUSION_DEVICE", "host");
  support_setting("ARFUSION_INIT_TIMEOUT", "1");
}

/* ---------------------------------------------------------------- ranks that do not fit together */

struct meeting {
  arfusionUniqueId_t id;
  int nranks;
  int odd_rank;                /* the one that is different */
  const char *name, *value;    /* its setting */
  arfusionConfig_t config;     /* everybody's, if its size is set */
  arfusionConfig_t odd_config;
  int odd_dev;
  int odd_nranks, odd_number;  /* what it says of itself; 0: the truth */
  int leaves;                  /* 1: it does not come; 2: it leaves between bootstrap and commInit */
  int descriptors;             /* it may open no more than these; 0: no limit */
  int file_bytes;              /* its files, which shared memory counts as, may be no larger; 0: no limit */
};

static struct meeting meeting_make(int nranks, int odd_rank) {
  struct meeting meeting = {.nranks = nranks, .odd_rank = odd_rank};
  assert_int_equal(plugin->getUniqueId(ctx, &meeting.id), arfusionSuccess);
  return meeting;
}

static arfusionResult_t meet_in(void* own, int rank, const struct meeting* meeting, struct support_outcome* outcome) {
  const int odd = rank == meeting->odd_rank;
  arfusionBootstrap_t bootstrap = {.size = sizeof bootstrap};
  void* comm = NULL;
  const int nranks = odd && meeting->odd_nranks ? meeting->odd_nranks : meeting->nranks;
  arfusionResult_t result = plugin->bootstrapUniqueId(
      own, &meeting->id, nranks, odd && meeting->odd_number ? meeting->odd_number : rank, &bootstrap);
  if (result != arfusionSuccess) return result;
  const int before = support_descriptors();
  const arfusionConfig_t* config = odd && meeting->odd_config.size ? &meeting->odd_config : &meeting->config;
  if (odd && meeting->descriptors) {
    setrlimit(RLIMIT_NOFILE, &(struct rlimit){(rlim_t)(before - 3 + meeting->descriptors), 4096});
  }
  if (odd && meeting->file_bytes) {
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){(rlim_t)meeting->file_bytes, RLIM_INFINITY});
  }
  if (!odd || meeting->leaves != 2) {
    result = plugin->commInit(own, odd ? meeting->odd_dev : 0, config->size ? config : NULL, &bootstrap, &comm);
  }
  if (odd) setrlimit(RLIMIT_NOFILE, &(struct rlimit){1024, 4096});
  if (odd) setrlimit(RLIMIT_FSIZE, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY});
  outcome->value[0] = support_descriptors() - before;
  outcome->value[1] = support_mappings("memfd:arfusion");
  outcome->value[2] = comm != NULL;
  if (result == arfusionSuccess && comm) result = support_operation(comm, rank, nranks);
  if (comm) plugin->commFinalize(comm);
  plugin->bootstrapDestroy(own, &bootstrap);
  return result;
}

static arfusionResult_t meet(int rank, void* argument, struct support_outcome* outcome) {
  const struct meeting* meeting = argument;
  const int odd = rank == meeting->odd_rank;
  if (odd && meeting->leaves == 1) return arfusionSuccess;
  if (!odd || !meeting->name) return meet_in(ctx, rank, meeting, outcome);
  support_setting(meeting->name, meeting->value);
  void* own = support_context();
  const arfusionResult_t result = own ? meet_in(own, rank, meeting, outcome) : arfusionInternalError;
  if (own) plugin->finalize(own);
  return result;
}

/* All ranks but the ones in `except` (bits) end with `expected` and all the words, in less than `seconds`. */
static void meeting_fails(struct meeting* meeting, arfusionResult_t expected, const char* words, unsigned except,
                          double seconds) {
  struct support_outcome outcomes[SUPPORT_MAX_RANKS];
  support_processes(meeting->nranks, meet, meeting, outcomes);
  for (int r = 0; r < meeting->nranks; ++r) {
    assert_true(outcomes[r].ended);
    if (except >> r & 1) continue;
    if (outcomes[r].result != expected) fail_msg("rank %d: %d, %s", r, outcomes[r].result, outcomes[r].text);
    assert_true(support_text_has(outcomes[r].text, words));
    if (outcomes[r].seconds >= seconds) fail_msg("rank %d: %.2f s", r, outcomes[r].seconds);
    assert_true(outcomes[r].value[0] <= 0); /* a bootstrap that has failed has closed its own */
    assert_int_equal(outcomes[r].value[1], 0);
    assert_int_equal(outcomes[r].value[2], 0);
  }
}

static void ranks_with_other_settings_are_named_on_all_ranks(void** state) {
  (void)state;
  static const struct {
    const char *name, *value, *words;
  } different[] = {
      {"ARFUSION_DEVICE", NULL, "ARFUSION_DEVICE|host on rank 0|auto on rank 2"},
      {"ARFUSION_ALGO", "twoshot", "ARFUSION_ALGO|auto on rank 0|twoshot on rank 2"},
      {"ARFUSION_PREFER", "speed", "ARFUSION_PREFER|bits on rank 0|speed on rank 2"},
      {"ARFUSION_TIMEOUT", "7", "ARFUSION_TIMEOUT|600 on rank 0|7 on rank 2"},
      {"ARFUSION_IPC", "legacy", "ARFUSION_IPC|auto on rank 0|legacy on rank 2"},
      {"ARFUSION_SHARED_GPU", "1", "ARFUSION_SHARED_GPU|0 on rank 0|1 on rank 2"},
      {"ARFUSION_WORKSPACE_LIMIT", "1M", "ARFUSION_WORKSPACE_LIMIT|301989888 on rank 0|1048576 on rank 2"},
  };
  for (size_t i = 0; i < sizeof different / sizeof different[0]; ++i) {
    struct meeting meeting = meeting_make(3, 2);
    meeting.name = different[i].name;
    meeting.value = different[i].value;
    meeting_fails(&meeting, arfusionInvalidUsage, different[i].words, 0, MISSING_AFTER);
  }
}

static void ranks_with_other_local_settings_get_along(void** state) {
  (void)state;
  static const char* const settings[][2] = {{"ARFUSION_INIT_TIMEOUT", "3"}, {"ARFUSION_DEBUG", "none"}};
  for (size_t i = 0; i < 2; ++i) {
    struct support_outcome outcomes[2];
    struct meeting meeting = meeting_make(2, 1);
    meeting.name = settings[i][0];
    meeting.value = settings[i][1];
    support_processes(2, meet, &meeting, outcomes);
    for (int r = 0; r < 2; ++r) assert_true(outcomes[r].ended && outcomes[r].result == arfusionSuccess);
  }
}

static void ranks_with_other_configurations_are_named_on_all_ranks(void** state) {
  (void)state;
  const arfusionConfig_t config = {.size = sizeof config, .maxTokens = 8, .hidden = 64, .dataType = arfusionFloat32};
  struct meeting meeting = meeting_make(3, 1);
  meeting.config = meeting.odd_config = config;
  meeting.odd_config.maxTokens = 9;
  meeting_fails(&meeting, arfusionInvalidUsage, "config.maxTokens|8 on rank 0|9 on rank 1", 0, MISSING_AFTER);
  meeting = meeting_make(3, 1);
  meeting.config = meeting.odd_config = config;
  meeting.odd_config.hidden = 128;
  meeting_fails(&meeting, arfusionInvalidUsage, "config.hidden|64 on rank 0|128 on rank 1", 0, MISSING_AFTER);
  meeting = meeting_make(3, 1);
  meeting.config = meeting.odd_config = config;
  meeting.odd_config.dataType = arfusionBfloat16;
  meeting_fails(&meeting, arfusionInvalidUsage, "config.dataType|7 on rank 0|9 on rank 1", 0, MISSING_AFTER);
}

static void a_ranks_own_error_is_everybodys(void** state) {
  (void)state;
  struct meeting meeting = meeting_make(3, 1);
  meeting.odd_dev = 4;
  meeting_fails(&meeting, arfusionInvalidArgument, "rank 1|dev is 4|0 to 0", 0, MISSING_AFTER);
  meeting = meeting_make(3, 1);
  meeting.odd_config = (arfusionConfig_t){.size = sizeof meeting.config, .maxTokens = -8, .hidden = 64, .dataType = 7};
  meeting_fails(&meeting, arfusionInvalidArgument, "rank 1|config.maxTokens is -8", 0, MISSING_AFTER);
  meeting = meeting_make(3, 2);
  meeting.odd_config = (arfusionConfig_t){.size = 31};
  meeting_fails(&meeting, arfusionInvalidArgument, "rank 2|config.size is 31|32", 0, MISSING_AFTER);
}

static void ranks_that_count_differently_find_out(void** state) {
  (void)state;
  struct meeting meeting = meeting_make(2, 1);
  meeting.odd_nranks = 3;
  meeting_fails(&meeting, arfusionInvalidUsage, "2|3", 0, MISSING_AFTER + 1);
  meeting = meeting_make(3, 2);
  meeting.odd_number = 1;
  meeting_fails(&meeting, arfusionInvalidUsage, "two ranks 1", 0, MISSING_AFTER + 1);
}

static void ranks_outside_are_errors_at_once(void** state) {
  (void)state;
  arfusionBootstrap_t bootstrap = {.size = sizeof bootstrap};
  struct meeting meeting = meeting_make(2, 0);
  static const struct {
    int nranks, rank;
    const char* words;
  } wrong[] = {
      {2, 2, "rank is 2|1"},     {2, -1, "rank is -1|0"}, {0, 0, "nranks is 0|1"},
      {-1, 0, "nranks is -1|1"}, {1 << 20, 0, "65536"},
  };
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; ++i) {
    assert_int_equal(plugin->bootstrapUniqueId(ctx, &meeting.id, wrong[i].nranks, wrong[i].rank, &bootstrap),
                     arfusionInvalidArgument);
    assert_true(support_text_has(plugin->getLastError(), wrong[i].words));
  }
  memset(&meeting.id, 0, sizeof meeting.id);
  assert_int_equal(plugin->bootstrapUniqueId(ctx, &meeting.id, 2, 0, &bootstrap), arfusionInvalidArgument);
  assert_true(support_text_has(plugin->getLastError(), "getUniqueId"));
  assert_true(!bootstrap.opaque && !bootstrap.allGather);
}

static void missing_ranks_are_named_at_the_time_limit(void** state) {
  (void)state;
  for (int missing = 0; missing < 3; missing += 2) {
    char words[64];
    struct meeting meeting = meeting_make(3, missing);
    meeting.leaves = 1;
    snprintf(words, sizeof words, "rank %d|did not come|1 s", missing);
    meeting_fails(&meeting, arfusionRemoteError, words, 1u << missing, MISSING_AFTER + 1.5);
  }
  struct meeting meeting = meeting_make(3, 1);
  meeting.leaves = 2;
  meeting_fails(&meeting, arfusionRemoteError, "rank 1|has left", 1u << 1, MISSING_AFTER + 1.5);
}

/* memfd_create fails first, with a little more room it is the peers' descriptors that do not fit. */
static void a_rank_without_descriptors_fails_all_and_leaves_nothing(void** state) {
  (void)state;
  for (int room = 1; room <= 5; ++room) {
    struct meeting meeting = meeting_make(3, 1);
    meeting.descriptors = room;
    meeting_fails(&meeting, arfusionSystemError, "rank 1|Too many open files", 0, MISSING_AFTER + 1.5);
  }
}

static void a_rank_without_memory_fails_all_and_leaves_nothing(void** state) {
  (void)state;
  struct meeting meeting = meeting_make(3, 2);
  meeting.file_bytes = 65536;
  meeting_fails(&meeting, arfusionSystemError, "rank 2|no shared memory for a workspace of|File too large", 0,
                MISSING_AFTER + 1.5);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(wrong_bootstraps_are_errors_that_name_the_field),
      cmocka_unit_test(wrong_configurations_are_errors_that_name_the_field),
      cmocka_unit_test(wrong_devices_and_counts_are_errors),
      cmocka_unit_test(wrong_settings_are_errors_of_init_that_name_them),
      cmocka_unit_test(a_workspace_limit_that_no_workspace_fits_is_an_error),
      cmocka_unit_test(ranks_with_other_settings_are_named_on_all_ranks),
      cmocka_unit_test(ranks_with_other_local_settings_get_along),
      cmocka_unit_test(ranks_with_other_configurations_are_named_on_all_ranks),
      cmocka_unit_test(a_ranks_own_error_is_everybodys),
      cmocka_unit_test(ranks_that_count_differently_find_out),
      cmocka_unit_test(ranks_outside_are_errors_at_once),
      cmocka_unit_test(missing_ranks_are_named_at_the_time_limit),
      cmocka_unit_test(a_rank_without_descriptors_fails_all_and_leaves_nothing),
      cmocka_unit_test(a_rank_without_memory_fails_all_and_leaves_nothing),
  };
  return cmocka_run_group_tests_name("abi_bad_init", tests, set_up, tear_down);
}
