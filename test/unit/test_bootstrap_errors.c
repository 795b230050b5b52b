/* SPDX-License-Identifier: Apache-2.0
 *
 * test_bootstrap_errors.c: what can go wrong when ranks meet. All that are there must get an error that says what it
 * was, within the time limit, and nothing may be left open. Strangers: test_bootstrap_strangers.c.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>

#include "test/unit/bootstrap_world.h"

/* ---------------------------------------------------------------- the start */

static void test_missing_rank(void** state) {
  struct world world;
  (void)state;

  world_make(&world, 4, SHORT_S);
  world.rank[2] = -1;
  world.delay_ms[0] = 200; /* whoever gives up first, all hear the same */
  world.delay_ms[3] = 100;
  ranks_as_processes(4, world_rank, &world, outcomes);
  for (int i = 0; i < 4; i++) {
    if (i != 2) assert_failed(i, arfusionRemoteError, "bootstrap: rank 2 of 4 did not come within 1 s", LATE);
  }
  world.rank[3] = -1;
  ranks_as_threads(4, world_rank, &world, outcomes);
  assert_failed(0, arfusionRemoteError, "bootstrap: ranks 2, 3 of 4 did not come within 1 s", LATE);
  assert_failed(1, arfusionRemoteError, "bootstrap: ranks 2, 3 of 4 did not come within 1 s", LATE);
}

static void test_missing_rank_0(void** state) {
  struct world world;
  (void)state;

  world_make(&world, 3, SHORT_S);
  world.rank[0] = -1;
  ranks_as_processes(3, world_rank, &world, outcomes);
  assert_failed(1, arfusionRemoteError, "bootstrap: rank 0 of 3 did not come within 1 s", LATE);
  assert_failed(2, arfusionRemoteError, "bootstrap: rank 0 of 3 did not come within 1 s", LATE);
}

static void test_many_missing(void** state) {
  struct world world;
  (void)state;

  world_make(&world, 1000, SHORT_S);
  ranks_as_threads(1, world_rank, &world, outcomes);
  assert_failed(
      0, arfusionRemoteError,
      "bootstrap: ranks 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, ... (999 of them) of 1000 did not come",
      LATE);
}

static void test_duplicate_rank(void** state) {
  struct world world;
  (void)state;

  world_make(&world, 4, LIMIT_S);
  world.rank[3] = 1;
  ranks_as_processes(4, world_rank, &world, outcomes);
  for (int i = 0; i < 4; i++) assert_failed(i, arfusionInvalidUsage, "bootstrap: there are two ranks 1: pid ", SOON);
}

static void test_duplicate_rank_0(void** state) {
  struct world world;
  (void)state;

  world_make(&world, 3, LIMIT_S);
  world.rank[1] = 0;
  ranks_as_processes(3, world_rank, &world, outcomes);
  for (int i = 0; i < 3; i++) assert_failed(i, arfusionInvalidUsage, "bootstrap: there are two ranks 0: pid ", SOON);
}

static void test_different_nranks(void** state) {
  struct world world;
  (void)state;

  for (int said = 2; said <= 4; said += 2) {
    world_make(&world, 3, LIMIT_S);
    world.nranks[1] = said;
    world.delay_ms[2] = 400; /* comes when the others have failed */
    ranks_as_processes(3, world_rank, &world, outcomes);
    for (int i = 0; i < 3; i++) {
      char text[64];
      snprintf(text, sizeof(text), " says that there are %d ranks, rank 0 says 3", said);
      assert_failed(i, arfusionInvalidUsage, text, SOON);
    }
  }
}

static arfusionResult_t dies_rank(int index, void* context) {
  struct world* world = context;
  if (index == 2) { /* is in, then ends */
    pid_t parent = getpid(), child = fork();
    if (child == 0) {
      pause_ms(300);
      kill(parent, SIGKILL);
      _exit(0);
    }
  }
  return world_rank(index, world);
}

static void test_dies_in_start(void** state) {
  struct world world;
  (void)state;

  world_make(&world, 4, LIMIT_S);
  world.rank[3] = -1;
  ranks_as_processes(4, dies_rank, &world, outcomes);
  assert_failed(0, arfusionRemoteError, "bootstrap: rank 2 of 4 (pid ", SOON);
  assert_failed(1, arfusionRemoteError, "bootstrap: rank 2 of 4 (pid ", SOON);
}

static void test_bad_ranks(void** state) {
  arfusionBootstrap_t bootstrap;
  arfusionUniqueId_t id, wrong;
  (void)state;

  assert_int_equal(bootstrap_unique_id(&id), arfusionSuccess);
  assert_int_equal(bootstrap_from_unique_id(&id, 0, 0, 1, &bootstrap), arfusionInvalidArgument);
  assert_non_null(strstr(error_last(), "nranks is 0"));
  assert_int_equal(bootstrap_from_unique_id(&id, 2, 2, 1, &bootstrap), arfusionInvalidArgument);
  assert_non_null(strstr(error_last(), "rank is 2, allowed are 0 to nranks - 1 = 1"));
  assert_int_equal(bootstrap_from_unique_id(&id, 2, -1, 1, &bootstrap), arfusionInvalidArgument);
  assert_int_equal(bootstrap_from_unique_id(NULL, 2, 0, 1, &bootstrap), arfusionInvalidArgument);
  assert_int_equal(bootstrap_from_unique_id(&id, 2, 0, 1, NULL), arfusionInvalidArgument);
  assert_int_equal(bootstrap_unique_id(NULL), arfusionInvalidArgument);
  assert_int_equal(bootstrap_from_threads(0, 1, &bootstrap), arfusionInvalidArgument);
  assert_int_equal(bootstrap_from_threads(2, 1, NULL), arfusionInvalidArgument);
  assert_int_equal(bootstrap_from_environment(1, NULL, NULL), arfusionInvalidArgument);
  wrong = id;
  wrong.internal[0] ^= 1;
  assert_int_equal(bootstrap_from_unique_id(&wrong, 1, 0, 1, &bootstrap), arfusionInvalidArgument);
  assert_non_null(strstr(error_last(), "not what getUniqueId makes"));
  wrong = id;
  wrong.internal[8] = 9;
  assert_int_equal(bootstrap_from_unique_id(&wrong, 1, 0, 1, &bootstrap), arfusionInvalidArgument);
  assert_non_null(strstr(error_last(), "version 9"));
}

/* ---------------------------------------------------------------- a meeting point that is taken */

static void test_taken(void** state) {
  struct world world;
  char text[128];
  int listener;
  (void)state;

  world_make(&world, 2, LIMIT_S);
  listener = net_listen(world.meeting.name);
  assert_true(listener >= 0);
  ranks_as_processes(1, world_rank, &world, outcomes);
  snprintf(text, sizeof(text), "is taken by pid %d of uid %u", (int)getpid(), (unsigned)geteuid());
  assert_failed(0, arfusionSystemError, text, SOON);
  close(listener);
  /* The others find somebody who does not answer. */
  world.limit_s = SHORT_S;
  world.rank[0] = 1;
  listener = net_listen(world.meeting.name);
  assert_true(listener >= 0);
  ranks_as_processes(1, world_rank, &world, outcomes);
  assert_failed(0, arfusionRemoteError, "did not answer within 1 s", LATE);
  close(listener);
}

/* ---------------------------------------------------------------- the all-gather */

enum trouble { TROUBLE_DIES, TROUBLE_LEAVES, TROUBLE_LATE, TROUBLE_BYTES };

struct troubled_world {
  struct world world;
  int troubled; /* rank */
  enum trouble trouble;
};

static arfusionResult_t troubled_rank(int index, void* context) {
  struct troubled_world* troubled = context;
  struct world* world = &troubled->world;
  arfusionBootstrap_t bootstrap;
  arfusionResult_t result, again;
  char in[64] = "", out[64 * RANKS_MAX];
  size_t bytes = 8;

  FORWARD_IF_ERROR(bootstrap_socket_create(&world->meeting, world->nranks[0], index, world->limit_s, &bootstrap));
  result = bootstrap_all_gather(&bootstrap, in, out, bytes);
  if (result == arfusionSuccess && index == troubled->troubled) {
    switch (troubled->trouble) {
      case TROUBLE_DIES: raise(SIGKILL); break;
      case TROUBLE_LEAVES: bootstrap_destroy(&bootstrap); return arfusionSuccess;
      case TROUBLE_LATE: pause_ms((int)(world->limit_s + 1) * 1000); break;
      case TROUBLE_BYTES: bytes = 9; break;
    }
  }
  if (result == arfusionSuccess) result = bootstrap_all_gather(&bootstrap, in, out, bytes);
  again = bootstrap_all_gather(&bootstrap, in, out, bytes); /* at once, and the same */
  if (again != result) result = error_set(arfusionInternalError, "first %d, then %d", (int)result, (int)again);
  bootstrap_destroy(&bootstrap);
  return result;
}

static void troubled_run(int nranks, int rank, enum trouble trouble, int64_t limit_s) {
  struct troubled_world troubled = {.troubled = rank, .trouble = trouble};
  world_make(&troubled.world, nranks, limit_s);
  ranks_as_processes(nranks, troubled_rank, &troubled, outcomes);
}

static void test_all_gather_left(void** state) {
  (void)state;
  for (int trouble = TROUBLE_DIES; trouble <= TROUBLE_LEAVES; trouble++) {
    troubled_run(4, 2, (enum trouble)trouble, LIMIT_S);
    for (int i = 0; i < 4; i++) {
      if (i != 2) assert_failed(i, arfusionRemoteError, "rank 2 of 4 has left", SOON);
    }
    troubled_run(3, 0, (enum trouble)trouble, LIMIT_S);
    for (int i = 1; i < 3; i++) assert_failed(i, arfusionRemoteError, "rank 0 of 3 has left", SOON);
  }
}

static void test_all_gather_late(void** state) {
  (void)state;
  troubled_run(4, 3, TROUBLE_LATE, SHORT_S);
  for (int i = 0; i < 4; i++) {
    assert_failed(i, arfusionRemoteError, "rank 3 of 4 did not come within 1 s", i == 3 ? LATE + 2.0 : LATE);
  }
  troubled_run(2, 0, TROUBLE_LATE, SHORT_S);
  assert_failed(1, arfusionRemoteError, "rank 0 of 2 did not answer within 1 s", LATE);
}

static void test_all_gather_bytes(void** state) {
  (void)state;
  troubled_run(3, 1, TROUBLE_BYTES, LIMIT_S);
  for (int i = 0; i < 3; i++)
    assert_failed(i, arfusionInvalidUsage, "rank 1 of 3 gathers 9 bytes, rank 0 gathers 8", SOON);
}

/* ---------------------------------------------------------------- threads */

struct thread_world {
  arfusionBootstrap_t bootstraps[RANKS_MAX];
  enum trouble trouble;
};

/* Rank 1 makes the trouble. */
static arfusionResult_t thread_rank(int index, void* context) {
  struct thread_world* world = context;
  arfusionBootstrap_t* bootstrap = &world->bootstraps[index];
  char in[64] = "", out[64 * RANKS_MAX];
  arfusionResult_t result;
  size_t bytes = 8;

  FORWARD_IF_ERROR(bootstrap_all_gather(bootstrap, in, out, bytes));
  if (index == 1) {
    if (world->trouble == TROUBLE_LEAVES) {
      pause_ms(100);
      bootstrap_destroy(bootstrap);
      return arfusionSuccess;
    }
    if (world->trouble == TROUBLE_LATE) pause_ms(SHORT_S * 1000 + 500);
    if (world->trouble == TROUBLE_BYTES) bytes = 9;
  }
  result = bootstrap_all_gather(bootstrap, in, out, bytes);
  bootstrap_destroy(bootstrap);
  return result;
}

static void test_threads(void** state) {
  static const char* const texts[] = {NULL, "rank 1 of 3 has left", "rank 1 of 3 did not come within 1 s",
                                      " gathers 9"};
  struct thread_world world;
  (void)state;

  for (int trouble = TROUBLE_LEAVES; trouble <= TROUBLE_BYTES; trouble++) {
    world.trouble = (enum trouble)trouble;
    assert_int_equal(bootstrap_from_threads(3, trouble == TROUBLE_LATE ? SHORT_S : LIMIT_S, world.bootstraps),
                     arfusionSuccess);
    ranks_as_threads(3, thread_rank, &world, outcomes);
    for (int i = 0; i < 3; i++) {
      arfusionResult_t result = trouble == TROUBLE_BYTES ? arfusionInvalidUsage : arfusionRemoteError;
      if (i == 1 && trouble == TROUBLE_LEAVES) continue;
      assert_failed(i, result, texts[trouble], trouble == TROUBLE_LATE ? LATE : SOON);
    }
  }
}

/* ---------------------------------------------------------------- descriptors */

struct fds_world {
  arfusionBootstrap_t bootstraps[RANKS_MAX];
  int wrong; /* a rank without a descriptor */
};

static arfusionResult_t fds_rank(int index, void* context) {
  struct fds_world* world = context;
  int mine = index == world->wrong ? 1000000 : memfd_create("rank", MFD_CLOEXEC), fds[RANKS_MAX];
  arfusionResult_t result = bootstrap_exchange_fds(&world->bootstraps[index], mine, fds, LIMIT_S);

  for (int r = 0; r < 3; r++) {
    if (fds[r] != -1) result = error_set(arfusionInternalError, "descriptor %d is %d", r, fds[r]);
  }
  if (index != world->wrong) close(mine);
  bootstrap_destroy(&world->bootstraps[index]);
  return result;
}

static void test_no_descriptor(void** state) {
  struct fds_world world = {.wrong = 1};
  (void)state;

  assert_int_equal(bootstrap_from_threads(3, LIMIT_S, world.bootstraps), arfusionSuccess);
  ranks_as_threads(3, fds_rank, &world, outcomes);
  assert_failed(0, arfusionRemoteError, "rank 1 of 3 has no descriptor to exchange", SOON);
  assert_failed(1, arfusionInvalidArgument, "descriptor 1000000 of rank 1 is not open", SOON);
  assert_failed(2, arfusionRemoteError, "rank 1 of 3 has no descriptor to exchange", SOON);
}

/* An all-gather after which rank 2 is no more, or takes no part any more: the exchange is left hanging in its middle.
 */
struct hanging {
  arfusionBootstrap_t inner;
  int dies;
};

static arfusionResult_t hanging_all_gather(void* opaque, const void* send, void* recv, size_t bytes) {
  struct hanging* hanging = opaque;
  arfusionResult_t result = bootstrap_all_gather(&hanging->inner, send, recv, bytes);

  if (hanging->inner.rank != 2) return result;
  if (hanging->dies) raise(SIGKILL);
  pause_ms(SHORT_S * 1000 + 600);
  return arfusionSystemError;
}

struct hanging_world {
  struct world world;
  int dies;
};

static arfusionResult_t hanging_rank(int index, void* context) {
  struct hanging_world* world = context;
  struct hanging hanging = {.dies = world->dies};
  arfusionBootstrap_t outer = {.size = sizeof(outer), .rank = index, .nranks = 4, .allGather = hanging_all_gather};
  int mine = memfd_create("rank", MFD_CLOEXEC), fds[4], before;
  arfusionResult_t result;

  outer.opaque = &hanging;
  FORWARD_IF_ERROR(bootstrap_socket_create(&world->world.meeting, 4, index, LIMIT_S, &hanging.inner));
  before = descriptors_open();
  result = bootstrap_exchange_fds(&outer, mine, fds, SHORT_S);
  if (descriptors_open() != before) result = error_set(arfusionInternalError, "descriptors were left open");
  bootstrap_destroy(&hanging.inner);
  close(mine);
  return result;
}

static void test_descriptors_missing(void** state) {
  struct hanging_world world = {.dies = 1};
  (void)state;

  world_make(&world.world, 4, LIMIT_S);
  ranks_as_processes(4, hanging_rank, &world, outcomes);
  for (int i = 0; i < 4; i++) {
    if (i != 2)
      assert_failed(i, arfusionRemoteError, " of 4 has left", SOON); /* rank 2, or one that left because of it */
  }
  world.dies = 0;
  ranks_as_processes(4, hanging_rank, &world, outcomes);
  for (int i = 0; i < 4; i++) {
    if (i != 2) assert_failed(i, arfusionRemoteError, "rank", LATE);
  }
  assert_non_null(strstr(outcomes[0].text, "did not come within 1 s"));
}

int main(void) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
  const struct CMUnitTest tests[] = {
      CASE(test_missing_rank),
      CASE(test_missing_rank_0),
      CASE(test_many_missing),
      CASE(test_duplicate_rank),
      CASE(test_duplicate_rank_0),
      CASE(test_different_nranks),
      CASE(test_dies_in_start),
      CASE(test_bad_ranks),
      CASE(test_taken),
      CASE(test_all_gather_left),
      CASE(test_all_gather_late),
      CASE(test_all_gather_bytes),
      CASE(test_threads),
      CASE(test_no_descriptor),
      CASE(test_descriptors_missing),
  };
  log_configure(NULL, arfusionLogNone);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
