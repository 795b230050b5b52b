/* SPDX-License-Identifier: Apache-2.0
 *
 * test_nccl_abort.c: communicators that are aborted while they are set up, in every way that a set-up begins. The
 * other rank never comes, so that only the abort ends it; the mock ends the test where NCCL's communicator is used
 * after that.
 *
 *   test_nccl_abort [CASE]
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "arfusion_plugin.h"
#include "test/nccl/cases.h"
#include "test/nccl/support.h"

enum { RANKS = 2, COUNT = 8 };

static void* comms[RANKS];

static void pause_ms(long ms) { nanosleep(&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL); }

/* ---------------------------------------------------------------- threads that stop after they have made one */

typedef int create_function(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);

static _Thread_local int stops; /* so that what the new thread does comes first */
static atomic_int stopped;

/* Also in place of the one that the libraries call. */
__attribute__((visibility("default"))) int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                                                          void* (*run)(void*), void* argument) {
  void* symbol = dlsym(RTLD_NEXT, "pthread_create");
  create_function* create;
  memcpy(&create, &symbol, sizeof create);
  const int result = create(thread, attributes, run, argument);
  if (stops) {
    pause_ms(50);
    atomic_store(&stopped, 1);
    pause_ms(200);
  }
  return result;
}

/* ---------------------------------------------------------------- the thread that sets up */

static int all_reduce(void) {
  static float a[COUNT];
  return ncclAllReduce(a, a, COUNT, arfusionFloat32, NCCL_SUM, comms[0], NULL);
}

static void* call(void* argument) {
  (void)argument;
  CHECK(all_reduce() == NCCL_INVALID_USAGE);
  return NULL;
}

static void* call_in_group(void* argument) {
  (void)argument;
  CHECK(ncclGroupStart() == NCCL_SUCCESS && all_reduce() == NCCL_SUCCESS);
  CHECK(ncclGroupEnd() == NCCL_INVALID_USAGE);
  return NULL;
}

static void* call_and_stop(void* argument) {
  (void)argument;
  stops = 1;
  CHECK(all_reduce() == NCCL_IN_PROGRESS);
  stops = 0;
  return NULL;
}

static void* make(void* id) {
  CHECK(ncclCommInitRank(&comms[0], RANKS, *(nccl_unique_id*)id, 0) == NCCL_INVALID_USAGE);
  CHECK(comms[0] == NULL);
  return NULL;
}

/* ---------------------------------------------------------------- cases */

static void make_nonblocking(void) {
  struct nccl_config config = support_nonblocking();
  nccl_unique_id id;
  CHECK(ncclGetUniqueId(&id) == NCCL_SUCCESS);
  for (int r = 0; r < RANKS; ++r) {
    const int result = ncclCommInitRankConfig(&comms[r], RANKS, id, r, &config);
    CHECK(result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS);
  }
  for (int r = 0; r < RANKS; ++r) CHECK(support_wait(comms[r]) == NCCL_SUCCESS);
}

/* Replaces the communicators by blocking children, which are set up at their first call as their parents are. */
static void make_blocking_children(void* parents[RANKS]) {
  struct nccl_config config = support_nonblocking();
  static void* children[RANKS];
  config.blocking = 1;
  make_nonblocking();
  for (int r = 0; r < RANKS; ++r) {
    const int result = ncclCommSplit(comms[r], 0, r, &children[r], &config);
    CHECK(result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS);
  }
  for (int r = 0; r < RANKS; ++r) {
    CHECK(support_wait(comms[r]) == NCCL_SUCCESS);
    parents[r] = comms[r];
    comms[r] = children[r];
  }
}

static void abort_all(void** of) {
  for (int r = 0; r < RANKS; ++r) CHECK(ncclCommAbort(of[r]) == NCCL_SUCCESS);
}

/* Aborts rank 0, which `run` sets up or has begun to. */
static void abort_during(void* (*run)(void*), void* argument) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, run, argument) == 0);
  pause_ms(200);
  const double start = support_seconds();
  void* comm = comms[0];
  CHECK(ncclCommAbort(comm) == NCCL_SUCCESS);
  CHECK(support_seconds() - start < 5);
  CHECK(pthread_join(thread, NULL) == 0);
}

static void of_a_nonblocking_communicator(void) {
  make_nonblocking();
  CHECK(all_reduce() == NCCL_IN_PROGRESS);
  pause_ms(100);
  const double start = support_seconds();
  abort_all(comms);
  CHECK(support_seconds() - start < 1);
  CHECK(mockCommunicators() == 0);
}

static void in_a_group(void) {
  make_nonblocking();
  abort_during(call_in_group, NULL);
  CHECK(ncclCommAbort(comms[1]) == NCCL_SUCCESS && mockCommunicators() == 0);
}

static void of_a_blocking_child(void) {
  void* parents[RANKS];
  make_blocking_children(parents);
  abort_during(call, NULL);
  CHECK(ncclCommAbort(comms[1]) == NCCL_SUCCESS);
  abort_all(parents);
  CHECK(mockCommunicators() == 0);
}

/* NCCL goes on writing to what was set up with, which is seen by a build with ASAN=1. */
static void that_nccl_ends_later(void) {
  make_nonblocking();
  CHECK(all_reduce() == NCCL_IN_PROGRESS);
  pause_ms(100);
  mockAbortsLast();
  CHECK(ncclCommAbort(comms[0]) == NCCL_IN_PROGRESS);
  CHECK(ncclCommAbort(comms[1]) == NCCL_IN_PROGRESS);
  while (mockCommunicators()) pause_ms(1);
}

static void that_nccl_ends_after_a_group(void) {
  make_nonblocking();
  CHECK(all_reduce() == NCCL_IN_PROGRESS);
  pause_ms(100);
  mockAbortsLast();
  CHECK(ncclGroupStart() == NCCL_SUCCESS);
  abort_all(comms);
  CHECK(ncclGroupEnd() == NCCL_IN_PROGRESS);
  while (mockCommunicators()) pause_ms(1);
}

/* Only NCCL's own abort ends that. */
static void within_ncclAllGather(void) {
  mockAllGatherHangs();
  of_a_blocking_child();
}

static void before_its_thread_is_known(void) {
  pthread_t thread;
  make_nonblocking();
  CHECK(pthread_create(&thread, NULL, call_and_stop, NULL) == 0);
  while (!atomic_load(&stopped)) pause_ms(1);
  abort_all(comms);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(mockCommunicators() == 0);
}

/* Rank 1 has not loaded the library. */
static void in_the_call_that_makes_it(void) {
  int (*init)(void**, int, nccl_unique_id, int);
  void* libnccl = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
  void* symbol = dlsym(libnccl, "ncclCommInitRank");
  nccl_unique_id id;
  CHECK(symbol);
  memcpy(&init, &symbol, sizeof init);
  CHECK(ncclGetUniqueId(&id) == NCCL_SUCCESS);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, make, &id) == 0);
  CHECK(init(&comms[1], RANKS, id, 1) == NCCL_SUCCESS);
  dlclose(libnccl);
  pause_ms(200);
  void* comm = __atomic_load_n(&comms[0], __ATOMIC_ACQUIRE);
  CHECK(ncclCommAbort(comm) == NCCL_SUCCESS);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(ncclCommAbort(comms[1]) == NCCL_SUCCESS && mockCommunicators() == 0);
}

/* It is still there, and NCCL's to refuse. */
static void by_a_revocation(void) {
  pthread_t thread;
  make_nonblocking();
  CHECK(pthread_create(&thread, NULL, call_in_group, NULL) == 0);
  pause_ms(200);
  CHECK(ncclCommRevoke(comms[0], 0) == NCCL_SUCCESS);
  CHECK(pthread_join(thread, NULL) == 0);
  const uint64_t before = mockAllReduces();
  CHECK(all_reduce() == NCCL_SUCCESS && mockAllReduces() == before + 1);
  abort_all(comms);
  CHECK(mockCommunicators() == 0);
}

#define ABORTED NULL, NULL, "aborted while it was set up", 1
static const struct process_case cases[] = {
    {CASE(of_a_nonblocking_communicator), ABORTED}, {CASE(in_a_group), ABORTED},
    {CASE(of_a_blocking_child), ABORTED},           {CASE(within_ncclAllGather), NULL, NULL, "ncclAllGather", 1},
    {CASE(before_its_thread_is_known), ABORTED},    {CASE(in_the_call_that_makes_it), ABORTED},
    {CASE(by_a_revocation), ABORTED},               {CASE(that_nccl_ends_later), ABORTED},
    {CASE(that_nccl_ends_after_a_group), ABORTED},
};

int main(int argc, char** argv) { return cases_run(argc, argv, cases, sizeof cases / sizeof cases[0]); }
