/* SPDX-License-Identifier: Apache-2.0
 *
 * mock_comm.c: the mock's communicators.
 */
#include <stdlib.h>
#include <string.h>

#include "test/nccl/mock/mock_internal.h"

MOCK_API int ncclGetUniqueId(nccl_unique_id* id);
MOCK_API int ncclCommInitRank(void** comm, int nranks, nccl_unique_id id, int rank);
MOCK_API int ncclCommInitRankConfig(void** comm, int nranks, nccl_unique_id id, int rank, struct nccl_config* config);
MOCK_API int ncclCommInitRankScalable(void** comm, int nranks, int rank, int nids, nccl_unique_id* ids,
                                      struct nccl_config* config);
MOCK_API int ncclCommInitAll(void** comms, int ndev, const int* devs);
MOCK_API int ncclCommSplit(void* comm, int color, int key, void** child, struct nccl_config* config);
MOCK_API int ncclCommShrink(void* comm, int* excluded, int nexcluded, void** child, struct nccl_config* config,
                            int flags);
MOCK_API int ncclCommGrow(void* comm, int nranks, const nccl_unique_id* id, int rank, void** child,
                          struct nccl_config* config);
MOCK_API int ncclCommFinalize(void* comm);
MOCK_API int ncclCommDestroy(void* comm);
MOCK_API int ncclCommAbort(void* comm);
MOCK_API int ncclCommRevoke(void* comm, int flags);
MOCK_API int ncclCommGetAsyncError(void* comm, int* error);
MOCK_API int ncclCommCount(void* comm, int* nranks);
MOCK_API int ncclCommUserRank(void* comm, int* rank);
MOCK_API int ncclCommCuDevice(void* comm, int* dev);
MOCK_API int ncclRedOpCreatePreMulSum(int* operation, void* scalar, int type, int residence, void* comm);
MOCK_API int ncclRedOpDestroy(int operation, void* comm);
MOCK_API int ncclMemAlloc(void** memory, size_t bytes);
MOCK_API int ncclMemFree(void* memory);

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of what follows */
static struct mock_clique* cliques;
static struct mock_comm* free_comms;
static uint64_t cliques_made, ids_made;
static int comms_alive;

/* Begun in this thread's group: communicators that wait for their ranks, parents that wait for their children. */
enum { MOST_BEGUN = 64 };
static _Thread_local struct mock_comm* begun[MOST_BEGUN];
static _Thread_local int begun_count;

/* ---------------------------------------------------------------- cliques */

static struct mock_clique* clique_join(const uint64_t key[3], int nranks) {
  pthread_mutex_lock(&mutex);
  struct mock_clique* clique = cliques;
  while (clique && memcmp(clique->key, key, sizeof clique->key)) clique = clique->next;
  if (!clique) {
    clique = calloc(1, sizeof *clique);
    if (!clique) mock_die("out of memory");
    memcpy(clique->key, key, sizeof clique->key);
    pthread_mutex_init(&clique->mutex, NULL);
    pthread_cond_init(&clique->changed, NULL);
    clique->nranks = nranks;
    clique->number = ++cliques_made;
    clique->next = cliques;
    cliques = clique;
  }
  if (clique->nranks != nranks) mock_die("ranks disagree on the number of ranks");
  ++clique->references;
  pthread_mutex_unlock(&mutex);
  pthread_mutex_lock(&clique->mutex);
  ++clique->joined;
  pthread_cond_broadcast(&clique->changed);
  pthread_mutex_unlock(&clique->mutex);
  return clique;
}

void mock_clique_get(struct mock_clique* clique) {
  pthread_mutex_lock(&mutex);
  ++clique->references;
  pthread_mutex_unlock(&mutex);
}

void mock_clique_put(struct mock_clique* clique) {
  pthread_mutex_lock(&mutex);
  const int last = --clique->references == 0;
  if (last) {
    struct mock_clique** at = &cliques;
    while (*at != clique) at = &(*at)->next;
    *at = clique->next;
  }
  pthread_mutex_unlock(&mutex);
  if (!last) return;
  for (struct mock_message *message = clique->messages, *next; message; message = next) {
    next = message->next;
    free(message);
  }
  for (struct mock_split *split = clique->splits, *next; split; split = next) {
    next = split->next;
    free(split);
  }
  pthread_cond_destroy(&clique->changed);
  pthread_mutex_destroy(&clique->mutex);
  free(clique);
}

/* ---------------------------------------------------------------- communicators */

static struct mock_comm* comm_new(struct mock_clique* clique, int rank, int blocking) {
  pthread_mutex_lock(&mutex);
  struct mock_comm* comm = free_comms; /* the one that was freed last */
  if (comm) free_comms = comm->next_free;
  ++comms_alive;
  pthread_mutex_unlock(&mutex);
  if (!comm) comm = malloc(sizeof *comm);
  if (!comm) mock_die("out of memory");
  *comm = (struct mock_comm){
      .clique = clique, .rank = rank, .blocking = blocking, .alive = 1, .stream = mockStreamCreate()};
  return comm;
}

static void comm_free(struct mock_comm* comm) {
  mockStreamDestroy(comm->stream);
  mock_clique_put(comm->clique);
  comm->alive = 0;
  pthread_mutex_lock(&mutex);
  comm->next_free = free_comms;
  free_comms = comm;
  --comms_alive;
  pthread_mutex_unlock(&mutex);
}

__attribute__((destructor)) static void comms_free_all(void) {
  while (free_comms) {
    struct mock_comm* comm = free_comms;
    free_comms = comm->next_free;
    free(comm);
  }
}

int mock_comm_check(struct mock_comm* comm) {
  if (!comm) return mock_error(NCCL_INVALID_ARGUMENT, "comm is NULL");
  if (!comm->alive) mock_die("a communicator is used after it was destroyed");
  return NCCL_SUCCESS;
}

int mockCommunicators(void) {
  pthread_mutex_lock(&mutex);
  const int count = comms_alive;
  pthread_mutex_unlock(&mutex);
  return count;
}

int arfusionHostNcclDone(void* comm) { return mockStreamIsIdle(((struct mock_comm*)comm)->stream); }

/* Whether all ranks are there. */
static int is_formed(struct mock_comm* comm, int wait) {
  struct mock_clique* clique = comm->clique;
  pthread_mutex_lock(&clique->mutex);
  while (wait && clique->joined < clique->nranks) pthread_cond_wait(&clique->changed, &clique->mutex);
  const int formed = clique->joined >= clique->nranks;
  pthread_mutex_unlock(&clique->mutex);
  return formed;
}

int mock_comm_check_ready(struct mock_comm* comm) {
  if (mock_comm_check(comm)) return NCCL_INVALID_ARGUMENT;
  if (comm->blocking || is_formed(comm, 0)) return NCCL_SUCCESS;
  return mock_error(NCCL_INVALID_ARGUMENT, "the communicator is not ready");
}

/* The child that `comm` asked for, if all ranks have asked. */
static int finish_child(struct mock_comm* comm, int wait, int wait_for_child) {
  struct mock_clique* clique = comm->clique;
  struct mock_split* split = comm->child_split;
  if (!split) return 1;
  pthread_mutex_lock(&clique->mutex);
  while (wait && split->deposits < comm->child_expected) pthread_cond_wait(&clique->changed, &clique->mutex);
  const int complete = split->deposits >= comm->child_expected;
  pthread_mutex_unlock(&clique->mutex);
  if (!complete) return 0;
  comm->child_split = NULL;
  const int color = split->colors[comm->rank];
  if (color == NCCL_SPLIT_NO_COLOR) return 1;
  int nranks = 0, rank = 0;
  for (int r = 0; r < clique->nranks; ++r) {
    if (split->colors[r] != color) continue;
    ++nranks;
    rank += split->keys[r] < split->keys[comm->rank] || (split->keys[r] == split->keys[comm->rank] && r < comm->rank);
  }
  const uint64_t key[3] = {clique->number, (uint64_t)split->index, (uint64_t)color};
  struct mock_comm* child = comm_new(clique_join(key, nranks), rank, comm->child_blocking);
  if (wait_for_child) is_formed(child, 1);
  __atomic_store_n(comm->child_place, child, __ATOMIC_RELEASE);
  return 1;
}

static void begin(struct mock_comm* comm) {
  if (begun_count == MOST_BEGUN) mock_die("too many communicators in one group");
  begun[begun_count++] = comm;
}

int mock_comms_finish(void) {
  int result = NCCL_SUCCESS;
  for (int i = 0; i < begun_count; ++i) {
    const int wait = begun[i]->blocking;
    if (!is_formed(begun[i], wait)) result = NCCL_IN_PROGRESS;
    begun[i]->unmade = 0;
  }
  for (int i = 0; i < begun_count; ++i) {
    struct mock_comm* comm = begun[i];
    if (!comm->child_split) continue;
    /* Joins, without waiting for this thread's other ranks to join. */
    if (!finish_child(comm, comm->blocking, 0)) result = NCCL_IN_PROGRESS;
  }
  begun_count = 0;
  return result;
}

void mock_comms_forget(void) { begun_count = 0; }

/* ---------------------------------------------------------------- making */

int ncclGetUniqueId(nccl_unique_id* id) {
  if (!id) return mock_error(NCCL_INVALID_ARGUMENT, "id is NULL");
  pthread_mutex_lock(&mutex);
  const uint64_t number = ++ids_made;
  pthread_mutex_unlock(&mutex);
  memset(id, 0, sizeof *id);
  memcpy(id->internal, &number, sizeof number);
  return NCCL_SUCCESS;
}

static int blocking_of(const struct nccl_config* config, int otherwise) {
  return config && config->blocking != NCCL_UNDEFINED ? config->blocking : otherwise;
}

static int init_rank(void** place, int nranks, const nccl_unique_id* id, int rank, int blocking) {
  uint64_t key[3] = {0};
  if (!place) return mock_error(NCCL_INVALID_ARGUMENT, "comm is NULL");
  if (nranks < 1 || nranks > MOCK_MAX_RANKS || rank < 0 || rank >= nranks) {
    *place = NULL;
    return mock_error(NCCL_INVALID_ARGUMENT, "invalid rank or number of ranks");
  }
  memcpy(&key[1], id->internal, sizeof key[1]);
  struct mock_comm* comm = comm_new(clique_join(key, nranks), rank, blocking);
  __atomic_store_n(place, comm, __ATOMIC_RELEASE); /* another thread may abort it from now on */
  if (mock_group_is_open()) {
    comm->unmade = 1;
    begin(comm);
    return NCCL_SUCCESS;
  }
  return is_formed(comm, blocking) ? NCCL_SUCCESS : NCCL_IN_PROGRESS;
}

int ncclCommInitRank(void** comm, int nranks, nccl_unique_id id, int rank) {
  return init_rank(comm, nranks, &id, rank, 1);
}

int ncclCommInitRankConfig(void** comm, int nranks, nccl_unique_id id, int rank, struct nccl_config* config) {
  return init_rank(comm, nranks, &id, rank, blocking_of(config, 1));
}

int ncclCommInitRankScalable(void** comm, int nranks, int rank, int nids, nccl_unique_id* ids,
                             struct nccl_config* config) {
  return nids < 1 ? mock_error(NCCL_INVALID_ARGUMENT, "nId < 1")
                  : init_rank(comm, nranks, ids, rank, blocking_of(config, 1));
}

int ncclCommInitAll(void** comms, int ndev, const int* devs) {
  nccl_unique_id id;
  (void)devs;
  if (ndev < 1 || ndev > MOCK_MAX_RANKS) return mock_error(NCCL_INVALID_ARGUMENT, "invalid number of devices");
  ncclGetUniqueId(&id);
  for (int r = 0; r < ndev; ++r) init_rank(&comms[r], ndev, &id, r, 0);
  for (int r = 0; r < ndev; ++r) ((struct mock_comm*)comms[r])->blocking = 1;
  return NCCL_SUCCESS;
}

static int split_off(struct mock_comm* comm, int color, int key, void** place, int expected, int blocking) {
  if (mock_comm_check(comm)) return NCCL_INVALID_ARGUMENT;
  struct mock_clique* clique = comm->clique;
  *place = NULL;
  pthread_mutex_lock(&clique->mutex);
  const int index = clique->splits_of[comm->rank]++;
  struct mock_split* split = clique->splits;
  while (split && split->index != index) split = split->next;
  if (!split) {
    split = calloc(1, sizeof *split);
    if (!split) mock_die("out of memory");
    split->index = index;
    for (int r = 0; r < MOCK_MAX_RANKS; ++r) split->colors[r] = NCCL_SPLIT_NO_COLOR;
    split->next = clique->splits;
    clique->splits = split;
  }
  split->colors[comm->rank] = color;
  split->keys[comm->rank] = key;
  ++split->deposits;
  pthread_cond_broadcast(&clique->changed);
  pthread_mutex_unlock(&clique->mutex);
  comm->child_place = place;
  comm->child_split = split;
  comm->child_expected = expected;
  comm->child_blocking = blocking;
  if (mock_group_is_open()) {
    begin(comm);
    return NCCL_SUCCESS;
  }
  return finish_child(comm, comm->blocking, comm->blocking && blocking) ? NCCL_SUCCESS : NCCL_IN_PROGRESS;
}

int ncclCommSplit(void* opaque, int color, int key, void** child, struct nccl_config* config) {
  struct mock_comm* comm = opaque;
  if (mock_comm_check(comm)) return NCCL_INVALID_ARGUMENT;
  return split_off(comm, color, key, child, comm->clique->nranks, blocking_of(config, comm->blocking));
}

int ncclCommShrink(void* opaque, int* excluded, int nexcluded, void** child, struct nccl_config* config, int flags) {
  struct mock_comm* comm = opaque;
  (void)flags;
  if (mock_comm_check(comm)) return NCCL_INVALID_ARGUMENT;
  for (int i = 0; i < nexcluded; ++i) {
    if (excluded[i] == comm->rank) return mock_error(NCCL_INVALID_ARGUMENT, "an excluded rank called ncclCommShrink");
  }
  return split_off(comm, 0, comm->rank, child, comm->clique->nranks - nexcluded, blocking_of(config, comm->blocking));
}

/* Unlike NCCL's, it needs the id on every rank. */
int ncclCommGrow(void* opaque, int nranks, const nccl_unique_id* id, int rank, void** child,
                 struct nccl_config* config) {
  struct mock_comm* comm = opaque;
  return init_rank(child, nranks, id, comm ? comm->rank : rank, blocking_of(config, comm ? comm->blocking : 1));
}

/* ---------------------------------------------------------------- using and ending */

int ncclCommFinalize(void* comm) {
  if (mock_comm_check(comm)) return NCCL_INVALID_ARGUMENT;
  mockStreamWait(((struct mock_comm*)comm)->stream);
  return NCCL_SUCCESS;
}

int ncclCommDestroy(void* comm) {
  if (!comm) return NCCL_SUCCESS;
  mock_comm_check(comm);
  comm_free(comm);
  return NCCL_SUCCESS;
}

int ncclCommRevoke(void* opaque, int flags) {
  struct mock_comm* comm = opaque;
  if (mock_comm_check(comm) || flags) return NCCL_INVALID_ARGUMENT;
  pthread_mutex_lock(&comm->clique->mutex);
  comm->clique->aborted[comm->rank] = 1;
  pthread_cond_broadcast(&comm->clique->changed);
  pthread_mutex_unlock(&comm->clique->mutex);
  return NCCL_SUCCESS;
}

static atomic_int aborts_last;

void mockAbortsLast(void) { atomic_store(&aborts_last, 1); }

int mock_aborts_last(void) { return atomic_load(&aborts_last); }

static void* free_last(void* comm) {
  comm_free(comm);
  return NULL;
}

int ncclCommAbort(void* comm) {
  if (!comm) return NCCL_SUCCESS;
  mock_comm_check(comm);
  const int lasts = mock_aborts_last();
  ncclCommRevoke(comm, 0);
  if (lasts) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, free_last, comm)) mock_die("no thread");
    pthread_detach(thread);
    if (!mock_group_is_open()) return NCCL_IN_PROGRESS;
    mock_group_lasts();
    return NCCL_SUCCESS;
  }
  comm_free(comm);
  return NCCL_SUCCESS;
}

int ncclCommGetAsyncError(void* opaque, int* error) {
  struct mock_comm* comm = opaque;
  if (mock_comm_check(comm)) return NCCL_INVALID_ARGUMENT;
  if (!error) return mock_error(NCCL_INVALID_ARGUMENT, "asyncError is NULL");
  *error = is_formed(comm, 0) && finish_child(comm, 0, 0) ? NCCL_SUCCESS : NCCL_IN_PROGRESS;
  return NCCL_SUCCESS;
}

int ncclCommCount(void* opaque, int* nranks) {
  struct mock_comm* comm = opaque;
  if (mock_comm_check_ready(comm)) return NCCL_INVALID_ARGUMENT;
  *nranks = comm->unmade ? 0 : comm->clique->nranks;
  return NCCL_SUCCESS;
}

int ncclCommUserRank(void* comm, int* rank) {
  if (mock_comm_check_ready(comm)) return NCCL_INVALID_ARGUMENT;
  *rank = ((struct mock_comm*)comm)->rank;
  return NCCL_SUCCESS;
}

int ncclCommCuDevice(void* comm, int* dev) {
  if (mock_comm_check_ready(comm)) return NCCL_INVALID_ARGUMENT;
  *dev = 0;
  return NCCL_SUCCESS;
}

int ncclRedOpCreatePreMulSum(int* operation, void* scalar, int type, int residence, void* comm) {
  (void)residence;
  if (mock_comm_check(comm)) return NCCL_INVALID_ARGUMENT;
  if (type != arfusionFloat32) return mock_error(NCCL_INVALID_ARGUMENT, "the mock's scalars are float32");
  struct mock_clique* clique = ((struct mock_comm*)comm)->clique;
  pthread_mutex_lock(&clique->mutex);
  memcpy(&clique->scale, scalar, sizeof clique->scale);
  pthread_mutex_unlock(&clique->mutex);
  *operation = arfusionAvg + 1;
  return NCCL_SUCCESS;
}

int ncclRedOpDestroy(int operation, void* comm) {
  return mock_comm_check(comm) || operation <= arfusionAvg ? NCCL_INVALID_ARGUMENT : NCCL_SUCCESS;
}

int ncclMemAlloc(void** memory, size_t bytes) { return (*memory = malloc(bytes)) ? NCCL_SUCCESS : NCCL_SYSTEM_ERROR; }

int ncclMemFree(void* memory) {
  free(memory);
  return NCCL_SUCCESS;
}
