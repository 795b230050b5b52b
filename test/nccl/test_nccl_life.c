/* SPDX-License-Identifier: Apache-2.0
 *
 * test_nccl_life.c: what becomes of communicators and calls that the random sequences leave out: errors, ranks that
 * never come, ranks without the library, plugins that cannot serve, aborts.
 *
 *   test_nccl_life [CASE]
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "arfusion_plugin.h"
#include "test/nccl/cases.h"
#include "test/nccl/support.h"

enum { RANKS = 2, COUNT = 1000 };

/* A float32 sum of `count` elements, each the rank + 1, on every communicator of this thread, in one group. */
static void all_reduce_all(void** comms, int count, size_t elements, int ranks) {
  void* streams[8];
  float* buffers[8];
  for (int r = 0; r < count; ++r) {
    streams[r] = mockStreamCreate();
    buffers[r] = malloc(elements * sizeof(float));
    CHECK(buffers[r]);
    for (size_t i = 0; i < elements; ++i) buffers[r][i] = (float)(r + 1);
  }
  CHECK(ncclGroupStart() == NCCL_SUCCESS);
  for (int r = 0; r < count; ++r) {
    CHECK(ncclAllReduce(buffers[r], buffers[r], elements, arfusionFloat32, NCCL_SUM, comms[r], streams[r]) ==
          NCCL_SUCCESS);
  }
  CHECK(ncclGroupEnd() == NCCL_SUCCESS);
  for (int r = 0; r < count; ++r) {
    mockStreamDestroy(streams[r]);
    for (size_t i = 0; i < elements; ++i) CHECK(buffers[r][i] == (float)(ranks * (ranks + 1) / 2));
    free(buffers[r]);
  }
}

/* ncclAllReduce calls of all_reduce_all that reach NCCL. */
static int forwarded(void** comms, int count, size_t elements) {
  const uint64_t before = mockAllReduces();
  all_reduce_all(comms, count, elements, count);
  return (int)(mockAllReduces() - before);
}

static void destroy_all(void** comms, int count) {
  for (int r = 0; r < count; ++r) CHECK(ncclCommDestroy(comms[r]) == NCCL_SUCCESS);
  CHECK(mockCommunicators() == 0);
}

/* ---------------------------------------------------------------- cases */

static void errors_are_nccls(void) {
  void* comms[RANKS];
  float a[4] = {0}, b[4];
  int error;
  CHECK(ncclAllReduce(a, b, 4, arfusionFloat32, NCCL_SUM, NULL, NULL) == NCCL_INVALID_ARGUMENT);
  CHECK(strcmp(ncclGetLastError(NULL), "comm is NULL") == 0);
  CHECK(ncclCommInitRank(&comms[0], 0, (nccl_unique_id){{0}}, 0) == NCCL_INVALID_ARGUMENT);
  CHECK(ncclCommInitAll(comms, RANKS, NULL) == NCCL_SUCCESS);
  CHECK(ncclAllReduce(a, b, 4, 99, NCCL_SUM, comms[0], NULL) == NCCL_INVALID_ARGUMENT);
  CHECK(strcmp(ncclGetLastError(comms[0]), "invalid data type") == 0);
  CHECK(ncclAllReduce(NULL, b, 4, arfusionFloat32, NCCL_SUM, comms[0], NULL) == NCCL_INVALID_ARGUMENT);
  CHECK(ncclAllReduce(a, b, 0, arfusionFloat32, NCCL_SUM, comms[0], NULL) == NCCL_SUCCESS);
  CHECK(ncclGroupEnd() == NCCL_INVALID_USAGE);
  CHECK(ncclCommGetAsyncError(comms[0], &error) == NCCL_SUCCESS && error == NCCL_SUCCESS);
  CHECK(strcmp(ncclGetErrorString(NCCL_INVALID_USAGE), "invalid usage") == 0);
  /* An error in a group: NCCL does nothing of it, and neither does the plugin. */
  const uint64_t before = mockAllReduces();
  b[0] = 5;
  CHECK(ncclGroupStart() == NCCL_SUCCESS);
  CHECK(ncclAllReduce(a, b, 4, arfusionFloat32, NCCL_SUM, comms[0], NULL) == NCCL_SUCCESS);
  CHECK(ncclAllReduce(a, b, 4, arfusionFloat32, NCCL_SUM, NULL, NULL) == NCCL_INVALID_ARGUMENT);
  CHECK(ncclGroupEnd() == NCCL_INVALID_ARGUMENT);
  CHECK(b[0] == 5 && mockAllReduces() == before + 1);
  CHECK(forwarded(comms, RANKS, COUNT) == 0); /* the next group is none the worse */
  destroy_all(comms, RANKS);
}

/* Each of the calls that fail a group of NCCL's; those that the mock lacks are errors too. */
static int call_wrongly(int which, void* comm) {
  switch (which) {
    case 0: return ncclSend(NULL, 1, 99, 0, comm, NULL);
    case 1: return ncclRecv(NULL, 1, 99, 0, comm, NULL);
    case 2: return ncclAllReduceConfig(NULL, NULL, 1, 99, 0, NULL, NULL, NULL);
    case 3: return ncclCommFinalize(NULL);
    case 4: return ncclAllGatherConfig(NULL, NULL, 1, 99, NULL, NULL, NULL);
    case 5: return ncclAlltoAllConfig(NULL, NULL, 1, 99, NULL, NULL, NULL);
    case 6: return ncclBroadcastConfig(NULL, NULL, 1, 99, 0, NULL, NULL, NULL);
    case 7: return ncclGatherConfig(NULL, NULL, 1, 99, 0, NULL, NULL, NULL);
    case 8: return ncclReduceConfig(NULL, NULL, 1, 99, 0, 0, NULL, NULL, NULL);
    case 9: return ncclReduceScatterConfig(NULL, NULL, 1, 99, 0, NULL, NULL, NULL);
    case 10: return ncclScatterConfig(NULL, NULL, 1, 99, 0, NULL, NULL, NULL);
    case 11: return ncclPutSignal(NULL, 1, 99, 0, NULL, 0, 0, 0, 0, comm, NULL);
    case 12: return ncclSignal(0, 0, 0, 0, comm, NULL);
    case 13: return ncclWaitSignal(0, NULL, comm, NULL);
    case 14: return ncclCommWindowRegister(comm, NULL, 0, NULL, 0);
    case 15: return ncclCommSuspend(comm, 0);
    case 16: return ncclCommResume(comm);
    case 17: return ncclDevCommCreate(comm, NULL, NULL);
    default: return NCCL_SUCCESS;
  }
}

/* The allreduces beside such a call are NCCL's, which does nothing of them where it knows of the error. */
static void a_wrong_call_fails_its_group(void) {
  void *comms[RANKS], *streams[RANKS];
  float a[4] = {1, 1, 1, 1}, b[RANKS][4];
  int error;
  CHECK(ncclCommInitAll(comms, RANKS, NULL) == NCCL_SUCCESS);
  for (int r = 0; r < RANKS; ++r) streams[r] = mockStreamCreate();
  for (int which = 0;; ++which) {
    const uint64_t before = mockAllReduces();
    for (int r = 0; r < RANKS; ++r) b[r][0] = 5;
    CHECK(ncclGroupStart() == NCCL_SUCCESS);
    for (int r = 0; r < RANKS; ++r) {
      CHECK(ncclAllReduce(a, b[r], 4, arfusionFloat32, NCCL_SUM, comms[r], streams[r]) == NCCL_SUCCESS);
    }
    if ((error = call_wrongly(which, comms[0])) == NCCL_SUCCESS) break;
    const int ended = ncclGroupEnd();
    for (int r = 0; r < RANKS; ++r) mockStreamWait(streams[r]);
    CHECK(mockAllReduces() - before == RANKS);
    for (int r = 0; r < RANKS; ++r) CHECK(b[r][0] == (ended ? 5 : RANKS));
    CHECK(ended || which > 3);
  }
  CHECK(ncclGroupEnd() == NCCL_SUCCESS);
  for (int r = 0; r < RANKS; ++r) mockStreamDestroy(streams[r]);
  destroy_all(comms, RANKS);
}

static void a_collective_with_a_config_is_company(void) {
  void* comms[RANKS];
  static float a[RANKS][8];
  CHECK(ncclCommInitAll(comms, RANKS, NULL) == NCCL_SUCCESS);
  const uint64_t before = mockAllReduces();
  CHECK(ncclGroupStart() == NCCL_SUCCESS);
  for (int r = 0; r < RANKS; ++r) {
    CHECK(ncclAllReduce(a[r], a[r], 4, arfusionFloat32, NCCL_SUM, comms[r], NULL) == NCCL_SUCCESS);
    CHECK(ncclAllReduceConfig(a[r] + 4, a[r] + 4, 4, arfusionFloat32, NCCL_SUM, comms[r], NULL, NULL) == NCCL_SUCCESS);
  }
  CHECK(ncclGroupEnd() == NCCL_SUCCESS);
  CHECK(mockAllReduces() - before == 2 * RANKS);
  destroy_all(comms, RANKS);
}

static void groups_that_only_simulate_do_nothing(void) {
  void* comms[RANKS];
  float a[4] = {1, 1, 1, 1}, b[4] = {0};
  CHECK(ncclCommInitAll(comms, RANKS, NULL) == NCCL_SUCCESS);
  CHECK(ncclGroupStart() == NCCL_SUCCESS);
  for (int r = 0; r < RANKS; ++r) {
    CHECK(ncclAllReduce(a, b, 4, arfusionFloat32, NCCL_SUM, comms[r], NULL) == NCCL_SUCCESS);
  }
  CHECK(ncclGroupSimulateEnd(NULL) == NCCL_SUCCESS);
  CHECK(b[0] == 0);
  CHECK(forwarded(comms, RANKS, COUNT) == 0);
  destroy_all(comms, RANKS);
}

static void sizes_beyond_the_workspace_are_nccls(void) {
  void* comms[RANKS];
  const size_t most = (32 << 20) / sizeof(float);
  CHECK(ncclCommInitAll(comms, RANKS, NULL) == NCCL_SUCCESS);
  CHECK(forwarded(comms, RANKS, 1) == 0);
  CHECK(forwarded(comms, RANKS, most) == 0);
  CHECK(forwarded(comms, RANKS, most + 1) == RANKS);
  CHECK(support_plugin_communicators() == RANKS);
  destroy_all(comms, RANKS);
  CHECK(support_plugin_communicators() == 0);
  /* NCCL waits for ever, and nobody wants what it does faster. */
  CHECK(strcmp(support_plugin_defaults(), "ARFUSION_TIMEOUT=0 ARFUSION_PREFER=speed ") == 0);
}

static void pointers_that_nccl_uses_again_are_new(void) {
  void *comms[RANKS], *single;
  nccl_unique_id id;
  for (int i = 0; i < 3; ++i) {
    CHECK(ncclCommInitAll(comms, RANKS, NULL) == NCCL_SUCCESS);
    CHECK(forwarded(comms, RANKS, COUNT) == 0);
    void* const last = comms[RANKS - 1];
    destroy_all(comms, RANKS);
    CHECK(ncclGetUniqueId(&id) == NCCL_SUCCESS && ncclCommInitRank(&single, 1, id, 0) == NCCL_SUCCESS);
    CHECK(single == last);
    CHECK(forwarded(&single, 1, COUNT) == 1);
    CHECK((i % 2 ? ncclCommAbort : ncclCommDestroy)(single) == NCCL_SUCCESS);
  }
}

static void children_and_the_end(void) {
  void *comms[3], *children[3] = {NULL}, *grown[3] = {NULL};
  nccl_unique_id id;
  CHECK(ncclCommInitAll(comms, 3, NULL) == NCCL_SUCCESS);
  /* Without rank 1; the parent's operations are ended first. */
  int excluded = 1;
  CHECK(ncclGroupStart() == NCCL_SUCCESS);
  for (int r = 0; r < 3; r += 2) CHECK(ncclCommShrink(comms[r], &excluded, 1, &children[r], NULL, 1) == NCCL_SUCCESS);
  CHECK(ncclGroupEnd() == NCCL_SUCCESS);
  void* two[] = {children[0], children[2]};
  CHECK(forwarded(two, 2, COUNT) == 0);
  /* One more than two. */
  CHECK(ncclGetUniqueId(&id) == NCCL_SUCCESS);
  CHECK(ncclGroupStart() == NCCL_SUCCESS);
  for (int r = 0; r < 3; ++r) {
    CHECK(ncclCommGrow(r < 2 ? two[r] : NULL, 3, &id, r, &grown[r], NULL) == NCCL_SUCCESS);
  }
  CHECK(ncclGroupEnd() == NCCL_SUCCESS);
  CHECK(forwarded(grown, 3, COUNT) == 0);
  /* What has been finalized or revoked is NCCL's. */
  for (int r = 0; r < 2; ++r) CHECK(ncclCommFinalize(two[r]) == NCCL_SUCCESS);
  CHECK(forwarded(two, 2, COUNT) == 2);
  for (int r = 0; r < 3; ++r) CHECK(ncclCommRevoke(grown[r], 0) == NCCL_SUCCESS);
  const uint64_t before = mockAllReduces();
  float a[1] = {0};
  CHECK(ncclAllReduce(a, a, 1, arfusionFloat32, NCCL_SUM, grown[0], NULL) == NCCL_SUCCESS &&
        mockAllReduces() == before + 1);
  for (int r = 0; r < 3; ++r) CHECK(ncclCommDestroy(grown[r]) == NCCL_SUCCESS);
  for (int r = 0; r < 2; ++r) CHECK(ncclCommDestroy(two[r]) == NCCL_SUCCESS);
  CHECK(ncclGroupStart() == NCCL_SUCCESS);
  for (int r = 0; r < 3; ++r) CHECK(ncclCommDestroy(comms[r]) == NCCL_SUCCESS);
  CHECK(ncclGroupEnd() == NCCL_SUCCESS);
  CHECK(mockCommunicators() == 0);
  support_plugin_ends();
}

static void abort_ends_a_wait_for_a_peer_that_never_comes(void) {
  void* comms[RANKS];
  void* stream = mockStreamCreate();
  float a[COUNT] = {0};
  int error;
  CHECK(ncclCommInitAll(comms, RANKS, NULL) == NCCL_SUCCESS);
  const uint64_t before = mockAllReduces();
  CHECK(ncclAllReduce(a, a, COUNT, arfusionFloat32, NCCL_SUM, comms[0], stream) == NCCL_SUCCESS);
  CHECK(mockAllReduces() == before);
  nanosleep(&(struct timespec){0, 200000000}, NULL);
  CHECK(!mockStreamIsIdle(stream));
  CHECK(ncclCommGetAsyncError(comms[0], &error) == NCCL_SUCCESS && error == NCCL_SUCCESS);
  const double start = support_seconds();
  CHECK(ncclCommAbort(comms[0]) == NCCL_SUCCESS);
  mockStreamDestroy(stream);
  CHECK(support_seconds() - start < 1);
  CHECK(ncclCommAbort(comms[1]) == NCCL_SUCCESS);
  CHECK(mockCommunicators() == 0);
  support_plugin_ends();
}

static void late_rank(int rank, void* argument) {
  const nccl_unique_id* id = argument;
  struct nccl_config config = support_nonblocking();
  void* comm;
  void* stream = mockStreamCreate();
  float a[8] = {1, 1, 1, 1, 1, 1, 1, 1};
  int result = ncclCommInitRankConfig(&comm, RANKS, *id, rank, &config);
  CHECK(result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS);
  CHECK(support_wait(comm) == NCCL_SUCCESS);
  /* Captured or grouped first calls aside, this one sets up; nothing else may be called meanwhile. */
  if (rank == 1) nanosleep(&(struct timespec){0, 300000000}, NULL);
  CHECK(ncclAllReduce(a, a, 8, arfusionFloat32, NCCL_SUM, comm, stream) == NCCL_IN_PROGRESS);
  if (rank == 0) {
    CHECK(ncclAllReduce(a, a, 8, arfusionFloat32, NCCL_SUM, comm, stream) == NCCL_INVALID_USAGE);
    CHECK(strstr(ncclGetLastError(comm), "not ready"));
  }
  CHECK(support_wait(comm) == NCCL_SUCCESS);
  mockStreamWait(stream);
  CHECK(a[0] == RANKS && a[7] == RANKS);
  CHECK(ncclAllReduce(a, a, 8, arfusionFloat32, NCCL_SUM, comm, stream) == NCCL_SUCCESS);
  mockStreamDestroy(stream);
  CHECK(a[0] == RANKS * RANKS);
  CHECK(ncclCommFinalize(comm) == NCCL_SUCCESS && ncclCommDestroy(comm) == NCCL_SUCCESS);
}

static void nonblocking_communicators_are_in_progress_until_set_up(void) {
  nccl_unique_id id;
  CHECK(ncclGetUniqueId(&id) == NCCL_SUCCESS);
  support_threads(RANKS, late_rank, &id);
  CHECK(mockAllReduces() == 0 && mockCommunicators() == 0);
}

/* NCCL refuses that call, and all is well afterwards. */
static void a_communicator_that_is_not_ready_is_set_up_later(void) {
  void* comms[RANKS];
  struct nccl_config config = support_nonblocking();
  nccl_unique_id id;
  float a[4] = {0};
  CHECK(ncclGetUniqueId(&id) == NCCL_SUCCESS);
  CHECK(ncclCommInitRankConfig(&comms[0], RANKS, id, 0, &config) == NCCL_IN_PROGRESS);
  CHECK(ncclAllReduce(a, a, 4, arfusionFloat32, NCCL_SUM, comms[0], NULL) == NCCL_INVALID_ARGUMENT);
  CHECK(ncclGroupStart() == NCCL_SUCCESS);
  CHECK(ncclAllReduce(a, a, 4, arfusionFloat32, NCCL_SUM, comms[0], NULL) == NCCL_SUCCESS);
  CHECK(ncclGroupEnd() == NCCL_INVALID_ARGUMENT);
  CHECK(strcmp(ncclGetLastError(NULL), "the communicator is not ready") == 0);
  CHECK(ncclCommInitRankConfig(&comms[1], RANKS, id, 1, &config) == NCCL_SUCCESS);
  for (int r = 0; r < RANKS; ++r) CHECK(support_wait(comms[r]) == NCCL_SUCCESS);
  CHECK(forwarded(comms, RANKS, COUNT) == 0);
  destroy_all(comms, RANKS);
}

/* NCCL makes them at its end. */
static void what_a_group_makes_is_set_up_at_its_end(void) {
  void* comms[RANKS];
  CHECK(ncclGroupStart() == NCCL_SUCCESS);
  CHECK(ncclCommInitAll(comms, RANKS, NULL) == NCCL_SUCCESS);
  CHECK(ncclGroupEnd() == NCCL_SUCCESS);
  CHECK(forwarded(comms, RANKS, COUNT) == 0);
  destroy_all(comms, RANKS);
}

/* NCCL makes the children in its own time, here when the libnccl is asked behind the library; the application looks at
 * its variables, and lets them go. */
static void children_are_known_when_they_are_seen(void) {
  void *parents[RANKS], *children[RANKS], **places[RANKS];
  struct nccl_config config = support_nonblocking();
  nccl_unique_id id;
  int error, (*async_error)(void*, int*);
  void* libnccl = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
  void* symbol = dlsym(libnccl, "ncclCommGetAsyncError");
  CHECK(symbol);
  memcpy(&async_error, &symbol, sizeof async_error);
  CHECK(ncclGetUniqueId(&id) == NCCL_SUCCESS);
  for (int r = 0; r < RANKS; ++r) ncclCommInitRankConfig(&parents[r], RANKS, id, r, &config);
  for (int r = 0; r < RANKS; ++r) {
    CHECK(support_wait(parents[r]) == NCCL_SUCCESS);
    places[r] = malloc(sizeof(void*));
    CHECK(places[r]);
  }
  CHECK(ncclCommSplit(parents[0], 0, 0, places[0], &config) == NCCL_IN_PROGRESS && !*places[0]);
  CHECK(ncclCommSplit(parents[1], 0, 1, places[1], &config) == NCCL_SUCCESS && *places[1]);
  CHECK(async_error(parents[0], &error) == NCCL_SUCCESS && error == NCCL_SUCCESS);
  for (int r = 0; r < RANKS; ++r) {
    do {
      children[r] = __atomic_load_n(places[r], __ATOMIC_ACQUIRE);
    } while (!children[r]);
    free(places[r]);
    CHECK(support_wait(children[r]) == NCCL_SUCCESS);
  }
  CHECK(forwarded(children, RANKS, COUNT) == 0);
  for (int r = 0; r < RANKS; ++r) CHECK(support_wait(parents[r]) == NCCL_SUCCESS);
  for (int r = 0; r < RANKS; ++r) CHECK(ncclCommDestroy(children[r]) == NCCL_SUCCESS);
  destroy_all(parents, RANKS);
  dlclose(libnccl);
}

/* Rank 1 calls the libnccl behind the library. */
static void half_loaded_rank(int rank, void* argument) {
  nccl_unique_id* id = argument;
  void* comm = NULL;
  if (rank == 0) {
    CHECK(ncclCommInitRank(&comm, RANKS, *id, rank) == arfusionRemoteError);
    CHECK(comm == NULL);
    CHECK(strstr(ncclGetLastError(NULL), "all ranks must load libarfusion-nccl.so, or none"));
  } else {
    int (*init)(void**, int, nccl_unique_id, int);
    int (*end)(void*);
    void* libnccl = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
    void *init_symbol = dlsym(libnccl, "ncclCommInitRank"), *end_symbol = dlsym(libnccl, "ncclCommAbort");
    CHECK(init_symbol && end_symbol);
    memcpy(&init, &init_symbol, sizeof init);
    memcpy(&end, &end_symbol, sizeof end);
    CHECK(init(&comm, RANKS, *id, rank) == NCCL_SUCCESS);
    CHECK(end(comm) == NCCL_SUCCESS);
    dlclose(libnccl);
  }
}

static void ranks_without_the_library_are_told_of(void) {
  nccl_unique_id id;
  CHECK(ncclGetUniqueId(&id) == NCCL_SUCCESS);
  const double start = support_seconds();
  support_threads(RANKS, half_loaded_rank, &id);
  CHECK(support_seconds() - start < 10);
}

static void all_is_left_to_nccl(void) {
  void* comms[RANKS];
  CHECK(ncclCommInitAll(comms, RANKS, NULL) == NCCL_SUCCESS);
  CHECK(forwarded(comms, RANKS, COUNT) == RANKS);
  destroy_all(comms, RANKS);
}

static void statistics_are_printed(void) {
  void* comms[RANKS];
  CHECK(ncclCommInitAll(comms, RANKS, NULL) == NCCL_SUCCESS);
  all_reduce_all(comms, RANKS, 2000, RANKS); /* 8000 bytes */
  int numbers[4] = {0};
  for (int i = 0; i < 2 * RANKS; ++i) {
    CHECK(ncclAllReduce(numbers, numbers, 4, arfusionInt32, NCCL_SUM, comms[i % RANKS], NULL) == NCCL_SUCCESS);
  }
  destroy_all(comms, RANKS);
}

/* What it counts itself, which is nothing here, and not its parent's calls. */
static void a_forked_process_has_statistics_of_its_own(void) {
  void* comms[RANKS];
  int status;
  CHECK(ncclCommInitAll(comms, RANKS, NULL) == NCCL_SUCCESS);
  all_reduce_all(comms, RANKS, 2000, RANKS);
  destroy_all(comms, RANKS); /* and all threads, for which LeakSanitizer would look there */
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) exit(0);
  CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void functions_that_the_libnccl_lacks_say_so(void) {
  int (*all_to_all)(const void*, void*, size_t, int, void*, void*) = ncclAlltoAll;
  CHECK(all_to_all(NULL, NULL, 0, 0, NULL, NULL) == NCCL_INVALID_USAGE);
}

/* At the first call, which looks for the function, and at the second. */
static void arguments_are_passed_on_whatever_they_are(void) {
  for (int call = 0; call < 2; ++call) {
    const struct mock_wide wide =
        ncclTeamCft(1, .5, 2, 1.5, 3, 2.5, 4, 3.5, 5, 4.5, 6, 5.5, 7, 6.5, 8, 7.5, 9, 8.5, 10);
    for (int i = 0; i < 10; ++i) CHECK(wide.whole[i] == i + 1);
    for (int i = 0; i < 9; ++i) CHECK(wide.real[i] == i + .5);
  }
}

/* ---------------------------------------------------------------- each in a process of its own */

static const struct process_case cases[] = {
    {CASE(errors_are_nccls), NULL, NULL, NULL, 0},
    {CASE(a_wrong_call_fails_its_group), NULL, NULL, "too old to have", 1},
    {CASE(a_collective_with_a_config_is_company), NULL, NULL, NULL, 0},
    {CASE(groups_that_only_simulate_do_nothing), NULL, NULL, NULL, 0},
    {CASE(sizes_beyond_the_workspace_are_nccls), NULL, NULL, NULL, 0},
    {CASE(pointers_that_nccl_uses_again_are_new), NULL, NULL, NULL, 0},
    {CASE(children_and_the_end), NULL, NULL, NULL, 0},
    {CASE(abort_ends_a_wait_for_a_peer_that_never_comes), NULL, NULL, "the operation did not end", 1},
    {CASE(nonblocking_communicators_are_in_progress_until_set_up), NULL, NULL, NULL, 0},
    {CASE(a_communicator_that_is_not_ready_is_set_up_later), NULL, NULL, NULL, 0},
    {CASE(what_a_group_makes_is_set_up_at_its_end), NULL, NULL, NULL, 0},
    {CASE(children_are_known_when_they_are_seen), NULL, NULL, NULL, 0},
    {CASE(ranks_without_the_library_are_told_of), "ARFUSION_INIT_TIMEOUT", "1", "within 1 s|all ranks must load", 1},
    {CASE(all_is_left_to_nccl), "ARFUSION_PLUGIN", "/no/plugin.so", "no plugin found; tried /no/plugin.so", 1},
    {CASE(all_is_left_to_nccl), "ARFUSION_PLUGIN", "none", "ARFUSION_PLUGIN=none", 1},
    {CASE(all_is_left_to_nccl), "ARFUSION_ALGO", "none", NULL, 0},
    {CASE(all_is_left_to_nccl), "ARFUSION_WORKSPACE_LIMIT", "4096", "ARFUSION_WORKSPACE_LIMIT|need at least", -1},
    {CASE(all_is_left_to_nccl), "ARFUSION_ALGO", "fastest", "ARFUSION_ALGO=fastest|not valid", -1},
    {CASE(statistics_are_printed), "ARFUSION_STATS", "1",
     "6 ncclAllReduce, 2 taken, 4 left to NCCL|taken, up to 8192 bytes: 2|left to NCCL, data type is not float16", 3},
    {CASE(a_forked_process_has_statistics_of_its_own), "ARFUSION_STATS", "1", "2 ncclAllReduce, 2 taken", 2},
    {CASE(arguments_are_passed_on_whatever_they_are), NULL, NULL, NULL, 0},
    {CASE(functions_that_the_libnccl_lacks_say_so), NULL, NULL, "too old to have ncclAlltoAll", 1},
};

int main(int argc, char** argv) { return cases_run(argc, argv, cases, sizeof cases / sizeof cases[0]); }
