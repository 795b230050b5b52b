/* SPDX-License-Identifier: Apache-2.0
 *
 * test_bootstrap.c: the bootstraps when all goes well: from threads and from a unique id, with every number of ranks;
 * the vote; descriptors. What goes wrong is in test_bootstrap_errors.c, the environment in
 * test_bootstrap_environment.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>

#include "test/unit/bootstrap_ranks.h"

#define LIMIT_S 20

static struct outcome outcomes[RANKS_MAX];

static void assert_all_success(int count) {
  for (int i = 0; i < count; i++) {
    if (outcomes[i].result != arfusionSuccess) fail_msg("rank %d: %d %s", i, (int)outcomes[i].result, outcomes[i].text);
  }
}

/* ---------------------------------------------------------------- what every bootstrap must do */

static arfusionResult_t talk_once(const arfusionBootstrap_t* bootstrap, size_t bytes, int round) {
  size_t total = bytes * (size_t)bootstrap->nranks;
  unsigned char *send = malloc(bytes + 1), *recv = malloc(total + 1);
  arfusionResult_t result;

  memset(send, bootstrap->rank * 7 + round, bytes);
  recv[total] = 0xee;
  result = bootstrap_all_gather(bootstrap, send, recv, bytes);
  for (size_t i = 0; result == arfusionSuccess && i < total; i++) {
    if (recv[i] == (unsigned char)((int)(i / bytes) * 7 + round)) continue;
    result = error_set(arfusionInternalError, "byte %zu of round %d is %d", i, round, recv[i]);
  }
  if (result == arfusionSuccess && recv[total] != 0xee)
    result = error_set(arfusionInternalError, "too much was written");
  free(send);
  free(recv);
  return result;
}

static arfusionResult_t descriptors_once(const arfusionBootstrap_t* bootstrap) {
  int mine = memfd_create("rank", MFD_CLOEXEC), fds[RANKS_MAX];
  arfusionResult_t result;
  int32_t word = 1000 + bootstrap->rank;

  if (pwrite(mine, &word, sizeof(word), 0) != sizeof(word)) return error_set(arfusionSystemError, "pwrite");
  result = bootstrap_exchange_fds(bootstrap, mine, fds, LIMIT_S);
  for (int r = 0; result == arfusionSuccess && r < bootstrap->nranks; r++) {
    word = 0;
    if (r == bootstrap->rank) {
      if (fds[r] != -1) result = error_set(arfusionInternalError, "the own descriptor is %d", fds[r]);
      continue;
    }
    if (pread(fds[r], &word, sizeof(word), 0) != sizeof(word) || word != 1000 + r) {
      result = error_set(arfusionInternalError, "the descriptor of rank %d is of %d", r, word);
    }
    if ((fcntl(fds[r], F_GETFD) & FD_CLOEXEC) == 0) result = error_set(arfusionInternalError, "not close-on-exec");
    close(fds[r]);
  }
  if (fcntl(mine, F_GETFD) < 0) result = error_set(arfusionInternalError, "the own descriptor was closed");
  close(mine);
  return result;
}

/* Two failures, and the lowest rank's counts, alike on all. */
static arfusionResult_t vote_once(const arfusionBootstrap_t* bootstrap) {
  int last = bootstrap->nranks - 1, first = last / 2;
  arfusionResult_t mine = arfusionSuccess, result;
  char want[64];

  FORWARD_IF_ERROR(bootstrap_vote(bootstrap, arfusionSuccess));
  if (bootstrap->rank == last) mine = error_set(arfusionInvalidUsage, "the last one");
  if (bootstrap->rank == first) mine = error_set(arfusionSystemError, "no memory for %d bytes", 4096);
  result = bootstrap_vote(bootstrap, mine);
  snprintf(want, sizeof(want), "rank %d: no memory for 4096 bytes", first);
  if (result == arfusionSystemError && strcmp(error_last(), want) == 0) return arfusionSuccess;
  return error_set(arfusionInternalError, "the vote was %d: %.100s", (int)result, error_last());
}

static arfusionResult_t talk(const arfusionBootstrap_t* bootstrap) {
  static const size_t sizes[] = {1, 8, 4096, 0, 3, 20000, 16};

  for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
    FORWARD_IF_ERROR(talk_once(bootstrap, sizes[s], (int)s));
  }
  FORWARD_IF_ERROR(descriptors_once(bootstrap));
  FORWARD_IF_ERROR(vote_once(bootstrap));
  return talk_once(bootstrap, 64, 99);
}

/* ---------------------------------------------------------------- threads */

static arfusionResult_t thread_rank(int index, void* context) {
  arfusionBootstrap_t* bootstraps = context;
  arfusionResult_t result = talk(&bootstraps[index]);

  bootstrap_destroy(&bootstraps[index]);
  bootstrap_destroy(&bootstraps[index]); /* nothing is left to do */
  return result;
}

static void test_threads(void** state) {
  arfusionBootstrap_t bootstraps[RANKS_MAX];
  (void)state;

  for (int nranks = 1; nranks <= 17; nranks++) {
    assert_int_equal(bootstrap_from_threads(nranks, LIMIT_S, bootstraps), arfusionSuccess);
    for (int r = 0; r < nranks; r++) {
      assert_int_equal(bootstraps[r].size, sizeof(bootstraps[r]));
      assert_int_equal(bootstraps[r].rank, r);
      assert_int_equal(bootstraps[r].nranks, nranks);
    }
    ranks_as_threads(nranks, thread_rank, bootstraps, outcomes);
    assert_all_success(nranks);
  }
}

static arfusionResult_t thread_rank_often(int index, void* context) {
  arfusionBootstrap_t* bootstraps = context;
  arfusionResult_t result = arfusionSuccess;

  for (int i = 0; i < 500 && result == arfusionSuccess; i++)
    result = talk_once(&bootstraps[index], (size_t)(i % 40), i);
  bootstrap_destroy(&bootstraps[index]);
  return result;
}

static void test_threads_often(void** state) {
  arfusionBootstrap_t bootstraps[RANKS_MAX];
  (void)state;

  assert_int_equal(bootstrap_from_threads(5, LIMIT_S, bootstraps), arfusionSuccess);
  ranks_as_threads(5, thread_rank_often, bootstraps, outcomes);
  assert_all_success(5);
}

/* ---------------------------------------------------------------- unique id */

struct id_world {
  arfusionUniqueId_t id;
  int nranks;
};

static arfusionResult_t id_rank(int index, void* context) {
  struct id_world* world = context;
  arfusionBootstrap_t bootstrap;
  arfusionResult_t result;

  FORWARD_IF_ERROR(bootstrap_from_unique_id(&world->id, world->nranks, index, LIMIT_S, &bootstrap));
  if (bootstrap.rank != index || bootstrap.nranks != world->nranks)
    return error_set(arfusionInternalError, "wrong fields");
  result = talk(&bootstrap);
  bootstrap_destroy(&bootstrap);
  return result;
}

static void test_unique_id(void** state) {
  struct id_world world;
  (void)state;

  for (world.nranks = 1; world.nranks <= 16; world.nranks++) {
    assert_int_equal(bootstrap_unique_id(&world.id), arfusionSuccess);
    ranks_as_threads(world.nranks, id_rank, &world, outcomes);
    assert_all_success(world.nranks);
    ranks_as_processes(world.nranks, id_rank, &world,
                       outcomes); /* the same id once more: nothing is left of the first */
    assert_all_success(world.nranks);
  }
}

static void test_many_ranks(void** state) {
  struct id_world world = {.nranks = RANKS_MAX};
  (void)state;

  assert_int_equal(bootstrap_unique_id(&world.id), arfusionSuccess);
  ranks_as_threads(world.nranks, id_rank, &world, outcomes);
  assert_all_success(world.nranks);
}

static arfusionResult_t large_rank(int index, void* context) {
  struct id_world* world = context;
  arfusionBootstrap_t bootstrap;
  arfusionResult_t result;

  FORWARD_IF_ERROR(bootstrap_from_unique_id(&world->id, world->nranks, index, LIMIT_S, &bootstrap));
  result = talk_once(&bootstrap, BOOTSTRAP_MAX_BYTES, 1);
  if (result == arfusionSuccess &&
      bootstrap_all_gather(&bootstrap, NULL, NULL, BOOTSTRAP_MAX_BYTES + 1) != arfusionInvalidArgument) {
    result = error_set(arfusionInternalError, "too many bytes were taken");
  }
  if (result == arfusionSuccess) result = talk_once(&bootstrap, 3, 2); /* still usable */
  bootstrap_destroy(&bootstrap);
  return result;
}

static void test_largest(void** state) {
  struct id_world world = {.nranks = 5};
  (void)state;

  assert_int_equal(bootstrap_unique_id(&world.id), arfusionSuccess);
  ranks_as_processes(world.nranks, large_rank, &world, outcomes);
  assert_all_success(world.nranks);
}

static void test_ids_differ(void** state) {
  arfusionUniqueId_t a, b;
  (void)state;

  assert_int_equal(bootstrap_unique_id(&a), arfusionSuccess);
  assert_int_equal(bootstrap_unique_id(&b), arfusionSuccess);
  assert_memory_not_equal(&a, &b, sizeof(a));
}

/* ---------------------------------------------------------------- the host's own all-gather */

static arfusionResult_t own_all_gather(void* opaque, const void* send, void* recv, size_t bytes) {
  arfusionResult_t* result = opaque;
  if (*result == arfusionSuccess) memcpy(recv, send, bytes);
  return *result;
}

static void test_own_all_gather(void** state) {
  arfusionResult_t answer = arfusionSuccess;
  arfusionBootstrap_t bootstrap = {
      .size = sizeof(bootstrap), .nranks = 1, .opaque = &answer, .allGather = own_all_gather};
  int in = 5, out = 0;
  (void)state;

  assert_int_equal(bootstrap_all_gather(&bootstrap, &in, &out, sizeof(in)), arfusionSuccess);
  assert_int_equal(out, 5);
  answer = arfusionRemoteError;
  assert_int_equal(bootstrap_all_gather(&bootstrap, &in, &out, sizeof(in)), arfusionRemoteError);
  assert_string_equal(error_last(), "bootstrap: the host's allGather returned 6");
  error_set(arfusionInvalidArgument, "mine");
  assert_int_equal(bootstrap_vote(&bootstrap, arfusionInvalidArgument), arfusionInvalidArgument);
  assert_string_equal(error_last(), "mine");
  bootstrap_destroy(&bootstrap); /* the host's: left alone */
  assert_ptr_equal(bootstrap.opaque, &answer);
  bootstrap.allGather = NULL;
  assert_int_equal(bootstrap_all_gather(&bootstrap, &in, &out, sizeof(in)), arfusionInvalidArgument);
}

/* ---------------------------------------------------------------- the rest */

static void test_no_leak(void** state) {
  struct id_world world = {.nranks = 3};
  int before;
  (void)state;

  before = descriptors_open();
  for (int cycle = 0; cycle < 100; cycle++) {
    assert_int_equal(bootstrap_unique_id(&world.id), arfusionSuccess);
    ranks_as_threads(world.nranks, id_rank, &world, outcomes);
    assert_all_success(world.nranks);
  }
  assert_int_equal(descriptors_open(), before);
}

static void test_host_hash(void** state) {
  (void)state;
  assert_true(bootstrap_host_hash("") == bootstrap_host_hash(""));
  assert_true(bootstrap_host_hash("") == bootstrap_host_hash(NULL));
  assert_true(bootstrap_host_hash("a") == bootstrap_host_hash("a"));
  assert_true(bootstrap_host_hash("a") != bootstrap_host_hash("b"));
  assert_true(bootstrap_host_hash("a") != bootstrap_host_hash(""));
}

/* ---------------------------------------------------------------- aborts */

struct abort_run {
  arfusionUniqueId_t id;
  int aborter;
};

static void* abort_later(void* argument) {
  net_sleep(100 * NET_MILLISECOND);
  bootstrap_abort(argument);
  return NULL;
}

/* Rank 2 gathers nothing until the others have given up; one of the three aborts. */
static arfusionResult_t abort_rank(int rank, void* context) {
  const struct abort_run* run = context;
  arfusionBootstrap_t bootstrap = {.size = sizeof(bootstrap)};
  arfusionResult_t result, again;
  pthread_t thread;

  FORWARD_IF_ERROR(bootstrap_from_unique_id(&run->id, 3, rank, LIMIT_S, &bootstrap));
  if (rank == run->aborter) pthread_create(&thread, NULL, abort_later, &bootstrap);
  if (rank == 2) net_sleep(500 * NET_MILLISECOND);
  result = talk_once(&bootstrap, 100, 1);
  again = talk_once(&bootstrap, 100, 1);
  if (rank == run->aborter) pthread_join(thread, NULL);
  bootstrap_destroy(&bootstrap);
  return again == result ? result : error_set(arfusionInternalError, "%d, then %d", (int)result, (int)again);
}

static void test_abort(void** state) {
  struct abort_run run;

  (void)state;
  for (run.aborter = 0; run.aborter < 3; run.aborter++) {
    assert_int_equal(bootstrap_unique_id(&run.id), arfusionSuccess);
    ranks_as_threads(3, abort_rank, &run, outcomes);
    for (int r = 0; r < 3; r++) {
      const arfusionResult_t expected = r == run.aborter ? arfusionInvalidUsage : arfusionRemoteError;
      if (outcomes[r].result != expected) fail_msg("rank %d: %d %s", r, (int)outcomes[r].result, outcomes[r].text);
      assert_non_null(strstr(outcomes[r].text, r == run.aborter ? "aborted" : "has left"));
      assert_true(outcomes[r].seconds < 3);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_threads),        cmocka_unit_test(test_threads_often), cmocka_unit_test(test_unique_id),
      cmocka_unit_test(test_many_ranks),     cmocka_unit_test(test_largest),       cmocka_unit_test(test_ids_differ),
      cmocka_unit_test(test_own_all_gather), cmocka_unit_test(test_no_leak),       cmocka_unit_test(test_host_hash),
      cmocka_unit_test(test_abort),
  };
  log_configure(NULL, arfusionLogNone);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
