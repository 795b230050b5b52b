/* SPDX-License-Identifier: Apache-2.0
 *
 * test_tuning_init.c: ARFUSION_TUNING_FILE where communicators are made: the table in it routes, ARFUSION_PREFER=speed
 * lets it turn down what is slower, and a file that is wrong or different on one rank is an error on all of them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "test/unit/support.h"

static const arfusionPlugin_v1_t* const plugin = &arfusionPlugin_v1;

static char folder[64], table_file[96], other_file[96];

static void write_text(const char* path, const char* text) {
  FILE* file = fopen(path, "we");
  assert_non_null(file);
  assert_true(fputs(text, file) >= 0);
  assert_int_equal(fclose(file), 0);
}

static int set_up(void** state) {
  (void)state;
  support_setting("ARFUSION_DEVICE", "host");
  support_setting("ARFUSION_INIT_TIMEOUT", "5");
  support_setting("NCCL_CONF_FILE", "/dev/null");
  strcpy(folder, "/tmp/arfusion-tuned-XXXXXX");
  if (!mkdtemp(folder)) return -1;
  snprintf(table_file, sizeof table_file, "%s/table.txt", folder);
  snprintf(other_file, sizeof other_file, "%s/other.txt", folder);
  return 0;
}

static int tear_down(void** state) {
  (void)state;
  unlink(table_file);
  unlink(other_file);
  return rmdir(folder);
}

static int settings_unset(void** state) {
  (void)state;
  support_setting("ARFUSION_TUNING_FILE", NULL);
  support_setting("ARFUSION_PREFER", NULL);
  support_setting("ARFUSION_ALGO", NULL);
  return 0;
}

/* ---------------------------------------------------------------- where requests go */

static arfusionRoute_t route_of(void* comm, int64_t tokens, arfusionAlgorithm_t hint) {
  arfusionRoute_t route = {.size = sizeof route};
  arfusionRequest_t request = {.size = sizeof request,
                               .pattern = arfusionPatternResidualRmsNorm,
                               .operation = arfusionSum,
                               .dataType = arfusionFloat32,
                               .gammaDataType = arfusionFloat32,
                               .tokens = tokens,
                               .hidden = 256, /* 1 KiB a token */
                               .algorithmHint = hint};
  static float memory[64 * 256];
  request.input = request.gamma = memory;
  request.normOut = memory;
  assert_int_equal(plugin->route(comm, &request, &route), arfusionSuccess);
  return route;
}

static void make(int nranks, void** ctx, void** comms) {
  const arfusionConfig_t config = {
      .size = sizeof config, .maxTokens = 64, .hidden = 256, .dataType = arfusionFloat32};
  *ctx = support_context();
  assert_non_null(*ctx);
  const arfusionResult_t result = plugin->commInitAll(*ctx, nranks, NULL, &config, comms);
  if (result != arfusionSuccess) fail_msg("%s", plugin->getLastError());
}

static void end(int nranks, void* ctx, void** comms) {
  for (int r = 0; r < nranks; ++r) assert_int_equal(plugin->commFinalize(comms[r]), arfusionSuccess);
  assert_int_equal(plugin->finalize(ctx), arfusionSuccess);
}

static const char table_text[] =
    "arfusion-tuning 1\narch host\ngpu host\nranks 2\nup_to 4096 twoshot\nup_to 8192 oneshot_sync\n"
    "up_to unlimited oneshot_lamport\nslower_from 16384\n";

static void the_table_decides_what_auto_takes(void** state) {
  (void)state;
  void *ctx, *comms[2];
  write_text(table_file, table_text);
  support_setting("ARFUSION_TUNING_FILE", table_file);
  make(2, &ctx, comms);
  for (int r = 0; r < 2; ++r) {
    assert_int_equal(route_of(comms[r], 4, arfusionAlgoAuto).algorithm, arfusionAlgoTwoshot);
    assert_int_equal(route_of(comms[r], 5, arfusionAlgoAuto).algorithm, arfusionAlgoOneshotSync);
    assert_int_equal(route_of(comms[r], 8, arfusionAlgoAuto).algorithm, arfusionAlgoOneshotSync);
    assert_int_equal(route_of(comms[r], 9, arfusionAlgoAuto).algorithm, arfusionAlgoOneshotLamport);
    /* Without ARFUSION_PREFER=speed nothing is turned down for being slower. */
    assert_int_equal(route_of(comms[r], 64, arfusionAlgoAuto).algorithm, arfusionAlgoOneshotLamport);
  }
  assert_true(support_operation_all(comms, 2));
  end(2, ctx, comms);
}

static void with_speed_preferred_what_is_slower_is_turned_down(void** state) {
  (void)state;
  void *ctx, *comms[2];
  write_text(table_file, table_text);
  support_setting("ARFUSION_TUNING_FILE", table_file);
  support_setting("ARFUSION_PREFER", "speed");
  make(2, &ctx, comms);
  for (int r = 0; r < 2; ++r) {
    assert_int_equal(route_of(comms[r], 15, arfusionAlgoAuto).algorithm, arfusionAlgoOneshotLamport);
    for (int64_t tokens = 16; tokens <= 64; tokens += 48) {
      const arfusionRoute_t route = route_of(comms[r], tokens, arfusionAlgoAuto);
      assert_int_equal(route.algorithm, arfusionAlgoNone);
      assert_int_equal(route.reason, arfusionReasonSlower);
      assert_int_equal(route.value, tokens * 1024);
      assert_int_equal(route.limit, 16384);
    }
    assert_int_equal(route_of(comms[r], 64, arfusionAlgoTwoshot).algorithm, arfusionAlgoTwoshot);
  }
  end(2, ctx, comms);
  support_setting("ARFUSION_ALGO", "oneshot_sync"); /* whoever names one gets it */
  make(2, &ctx, comms);
  assert_int_equal(route_of(comms[0], 64, arfusionAlgoAuto).algorithm, arfusionAlgoOneshotSync);
  end(2, ctx, comms);
}

static void without_a_file_the_built_in_table_decides(void** state) {
  (void)state;
  void *ctx, *comms[2];
  support_setting("ARFUSION_PREFER", "speed");
  make(2, &ctx, comms);
  assert_int_equal(route_of(comms[1], 4, arfusionAlgoAuto).algorithm, arfusionAlgoOneshotLamport);
  assert_int_equal(route_of(comms[1], 5, arfusionAlgoAuto).algorithm, arfusionAlgoOneshotSync);
  assert_int_equal(route_of(comms[1], 64, arfusionAlgoAuto).algorithm, arfusionAlgoOneshotSync);
  end(2, ctx, comms);
}

static void a_communicator_that_routes_nothing_needs_no_table(void** state) {
  (void)state;
  void *ctx, *comms[17];
  write_text(table_file, table_text);
  support_setting("ARFUSION_TUNING_FILE", table_file);
  make(1, &ctx, comms);
  assert_int_equal(route_of(comms[0], 1, arfusionAlgoAuto).reason, arfusionReasonRankCount);
  end(1, ctx, comms);
  make(17, &ctx, comms);
  assert_int_equal(route_of(comms[16], 1, arfusionAlgoAuto).reason, arfusionReasonRankCount);
  end(17, ctx, comms);
}

/* ---------------------------------------------------------------- files that are wrong, or wrong on one rank */

struct meeting {
  arfusionUniqueId_t id;
  int nranks, odd_rank;
  const char *file, *odd_file; /* NULL: not set */
};

static arfusionResult_t meet(int rank, void* argument, struct support_outcome* outcome) {
  const struct meeting* meeting = argument;
  arfusionBootstrap_t bootstrap = {.size = sizeof bootstrap};
  void* comm = NULL;
  support_setting("ARFUSION_TUNING_FILE", rank == meeting->odd_rank ? meeting->odd_file : meeting->file);
  void* ctx = support_context();
  if (!ctx) return arfusionInternalError;
  arfusionResult_t result = plugin->bootstrapUniqueId(ctx, &meeting->id, meeting->nranks, rank, &bootstrap);
  if (result == arfusionSuccess) {
    const int before = support_descriptors();
    result = plugin->commInit(ctx, 0, NULL, &bootstrap, &comm);
    outcome->value[0] = comm != NULL;
    outcome->value[1] = support_descriptors() - before;
  }
  if (comm) {
    result = support_operation(comm, rank, meeting->nranks);
    plugin->commFinalize(comm);
  }
  plugin->bootstrapDestroy(ctx, &bootstrap);
  plugin->finalize(ctx);
  return result;
}

/* All ranks end with `expected` and all the words, at once. */
static void expect_meeting(int nranks, const char* file, int odd_rank, const char* odd_file, arfusionResult_t expected,
                           const char* words) {
  struct support_outcome outcomes[SUPPORT_MAX_RANKS];
  struct meeting meeting = {.nranks = nranks, .odd_rank = odd_rank, .file = file, .odd_file = odd_file};
  void* ctx = support_context();
  assert_non_null(ctx);
  assert_int_equal(plugin->getUniqueId(ctx, &meeting.id), arfusionSuccess);
  support_processes(nranks, meet, &meeting, outcomes);
  assert_int_equal(plugin->finalize(ctx), arfusionSuccess);
  for (int r = 0; r < nranks; ++r) {
    assert_true(outcomes[r].ended);
    if (outcomes[r].result != expected) fail_msg("rank %d: %d, %s", r, outcomes[r].result, outcomes[r].text);
    if (expected == arfusionSuccess) continue;
    if (!support_text_has(outcomes[r].text, words)) fail_msg("rank %d: %s", r, outcomes[r].text);
    assert_int_equal(outcomes[r].value[0], 0);
    assert_int_equal(outcomes[r].value[1], 0);
    assert_true(outcomes[r].seconds < 4);
  }
}

static void equal_tables_in_other_files_are_no_disagreement(void** state) {
  (void)state;
  write_text(table_file, table_text);
  write_text(other_file, "# a copy of it, without the name\narfusion-tuning 1\narch host\nranks 2\nup_to 4096 twoshot\n"
                         "up_to 8192 oneshot_sync\nup_to unlimited oneshot_lamport\nslower_from 16384\n");
  expect_meeting(2, table_file, 1, other_file, arfusionSuccess, "");
}

static void ranks_that_disagree_are_named_with_their_tables(void** state) {
  (void)state;
  static const char head[] = "arfusion-tuning 1\narch host\nranks 3\n";
  char text[256];
  snprintf(text, sizeof text, "%sup_to 4096 twoshot\nup_to unlimited oneshot_sync\nslower_from never\n", head);
  write_text(table_file, text);
  expect_meeting(3, table_file, 2, NULL, arfusionInvalidUsage,
                 "disagree on ARFUSION_TUNING_FILE|rank 0 has 'twoshot up to 4096 bytes, then oneshot_sync'|"
                 "rank 2 has 'none'");
  expect_meeting(3, NULL, 1, table_file, arfusionInvalidUsage,
                 "disagree on ARFUSION_TUNING_FILE|rank 0 has 'none'|rank 1 has 'twoshot up to 4096 bytes");
  snprintf(text, sizeof text, "%sup_to 4097 twoshot\nup_to unlimited oneshot_sync\nslower_from never\n", head);
  write_text(other_file, text);
  expect_meeting(3, table_file, 1, other_file, arfusionInvalidUsage,
                 "disagree on ARFUSION_TUNING_FILE|rank 0 has 'twoshot up to 4096 bytes|"
                 "rank 1 has 'twoshot up to 4097 bytes");
  snprintf(text, sizeof text, "%sup_to 4096 twoshot\nup_to unlimited oneshot_sync\nslower_from 99\n", head);
  write_text(other_file, text);
  expect_meeting(3, table_file, 2, other_file, arfusionInvalidUsage,
                 "then oneshot_sync'|rank 2 has|slower from 99 bytes");
}

static void a_file_for_other_rank_counts_leaves_the_table_that_is_built_in(void** state) {
  (void)state;
  void *ctx, *comms[3];
  write_text(table_file, table_text);
  support_setting("ARFUSION_TUNING_FILE", table_file);
  make(3, &ctx, comms);
  assert_int_equal(route_of(comms[0], 4, arfusionAlgoAuto).algorithm, arfusionAlgoOneshotLamport); /* its: two-shot */
  assert_int_equal(route_of(comms[0], 5, arfusionAlgoAuto).algorithm, arfusionAlgoOneshotSync);
  end(3, ctx, comms);
}

static void a_file_that_is_wrong_on_one_rank_fails_all(void** state) {
  (void)state;
  write_text(table_file, table_text);
  write_text(other_file, "arfusion-tuning 1\narch host\nranks 2\nup_to many twoshot\n");
  expect_meeting(2, table_file, 1, other_file, arfusionInvalidArgument,
                 "rank 1: ARFUSION_TUNING_FILE|other.txt, line 4|'many'");
  expect_meeting(2, table_file, 0, other_file, arfusionInvalidArgument,
                 "rank 0: ARFUSION_TUNING_FILE|other.txt, line 4|'many'");
  expect_meeting(2, table_file, 1, "/nowhere/table", arfusionInvalidArgument, "rank 1|/nowhere/table|No such file");
  expect_meeting(2, NULL, 1, other_file, arfusionInvalidArgument, "rank 1|other.txt, line 4");
}

static void a_file_that_is_wrong_on_all_ranks_fails_all(void** state) {
  (void)state;
  char long_path[256];
  write_text(table_file, table_text);
  write_text(other_file, "arfusion-tuning 1\narch sm_90\nranks 2\nup_to unlimited twoshot\nslower_from never\n");
  expect_meeting(2, other_file, -1, NULL, arfusionInvalidArgument, "other.txt, line 5|no table|host");
  /* The longest name that a setting takes leaves room for what is wrong with it. */
  memset(long_path, '/', sizeof long_path);
  memcpy(long_path + sizeof long_path - 1 - strlen(other_file), other_file, strlen(other_file) + 1);
  expect_meeting(2, long_path, -1, NULL, arfusionInvalidArgument, "other.txt, line 5|no table|host");
}

#define TEST(function) cmocka_unit_test_teardown(function, settings_unset)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(the_table_decides_what_auto_takes),
      TEST(with_speed_preferred_what_is_slower_is_turned_down),
      TEST(without_a_file_the_built_in_table_decides),
      TEST(a_communicator_that_routes_nothing_needs_no_table),
      TEST(equal_tables_in_other_files_are_no_disagreement),
      TEST(ranks_that_disagree_are_named_with_their_tables),
      TEST(a_file_for_other_rank_counts_leaves_the_table_that_is_built_in),
      TEST(a_file_that_is_wrong_on_one_rank_fails_all),
      TEST(a_file_that_is_wrong_on_all_ranks_fails_all),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
