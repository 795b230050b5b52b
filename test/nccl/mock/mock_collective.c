/* SPDX-License-Identifier: Apache-2.0
 *
 * mock_collective.c: the mock's operations. Each rank's waits on its stream until all ranks' are there; the last one to
 * come computes for all.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "plugin/tools/bench/number.h"
#include "test/nccl/mock/mock_internal.h"

MOCK_API int ncclAllReduce(const void* send, void* receive, size_t count, int type, int operation, void* comm,
                           void* stream);
MOCK_API int ncclAllReduceConfig(const void* send, void* receive, size_t count, int type, int operation, void* comm,
                                 void* stream, const void* config);
MOCK_API int ncclBroadcast(const void* send, void* receive, size_t count, int type, int root, void* comm, void* stream);
MOCK_API int ncclBcast(void* buffer, size_t count, int type, int root, void* comm, void* stream);
MOCK_API int ncclReduce(const void* send, void* receive, size_t count, int type, int operation, int root, void* comm,
                        void* stream);
MOCK_API int ncclAllGather(const void* send, void* receive, size_t count, int type, void* comm, void* stream);
MOCK_API int ncclReduceScatter(const void* send, void* receive, size_t count, int type, int operation, void* comm,
                               void* stream);
MOCK_API int ncclSend(const void* send, size_t count, int type, int peer, void* comm, void* stream);
MOCK_API int ncclRecv(void* receive, size_t count, int type, int peer, void* comm, void* stream);

enum kind { ALL_REDUCE, BROADCAST, REDUCE, ALL_GATHER, REDUCE_SCATTER, SEND, RECEIVE };

struct operation {
  struct mock_shape shape; /* root: also the peer of send and receive */
  const void* send;
  void* receive;
  struct mock_clique* clique;
  int rank;
  uint64_t number;
  void* stream;
  struct operation* next; /* of the group */
};

static _Atomic uint64_t all_reduces;
static atomic_int all_gather_hangs;
static _Thread_local struct operation *kept, **kept_last;

void mockAllGatherHangs(void) { atomic_store(&all_gather_hangs, 1); }

uint64_t mockAllReduces(void) { return atomic_load(&all_reduces); }

static size_t size_of(int type) {
  static const unsigned char sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
  return sizes[type];
}

/* ---------------------------------------------------------------- computing */

static void load(int type, const void* from, size_t count, float* to) {
  if (type == arfusionInt32) {
    for (size_t i = 0; i < count; ++i) to[i] = (float)((const int32_t*)from)[i];
  } else {
    number_load((arfusionDataType_t)type, from, (int64_t)count, to);
  }
}

static void store(int type, const float* from, size_t count, void* to) {
  if (type == arfusionInt32) {
    for (size_t i = 0; i < count; ++i) ((int32_t*)to)[i] = (int32_t)from[i];
  } else {
    number_store((arfusionDataType_t)type, from, (int64_t)count, to);
  }
}

static float combine(int operation, float a, float b) {
  switch (operation) {
    case arfusionProd: return a * b;
    case arfusionMax: return a > b ? a : b;
    case arfusionMin: return a < b ? a : b;
    default: return a + b;
  }
}

/* Of all ranks' `send`, to memory that the caller frees. */
static float* reduce(const struct mock_clique* clique, const struct mock_meeting* meeting, size_t count) {
  const struct mock_shape* shape = &meeting->shape;
  float* sum = malloc((count ? count : 1) * sizeof *sum);
  float* term = malloc((count ? count : 1) * sizeof *term);
  if (!sum || !term) mock_die("out of memory");
  for (int r = 0; r < clique->nranks; ++r) {
    load(shape->type, meeting->send[r], count, term);
    for (size_t i = 0; i < count; ++i) {
      const float value = shape->operation > arfusionAvg ? term[i] * clique->scale : term[i];
      sum[i] = r ? combine(shape->operation, sum[i], value) : value;
    }
  }
  for (size_t i = 0; i < count && shape->operation == arfusionAvg; ++i) sum[i] /= (float)clique->nranks;
  free(term);
  return sum;
}

static void compute(const struct mock_clique* clique, const struct mock_meeting* meeting) {
  const struct mock_shape* shape = &meeting->shape;
  const size_t bytes = shape->count * size_of(shape->type);
  const int nranks = clique->nranks, kind = shape->kind;
  if (kind == BROADCAST) {
    for (int r = 0; r < nranks; ++r) memmove(meeting->receive[r], meeting->send[shape->root], bytes);
  } else if (kind == ALL_GATHER) {
    for (int r = 0; r < nranks; ++r) {
      for (int s = 0; s < nranks; ++s) memmove((char*)meeting->receive[r] + bytes * (size_t)s, meeting->send[s], bytes);
    }
  } else {
    const size_t shares = kind == REDUCE_SCATTER ? (size_t)nranks : 1;
    float* sum = reduce(clique, meeting, shape->count * shares);
    for (int r = 0; r < nranks; ++r) {
      if (kind == REDUCE && r != shape->root) continue;
      store(shape->type, sum + (kind == REDUCE_SCATTER ? shape->count * (size_t)r : 0), shape->count,
            meeting->receive[r]);
    }
    free(sum);
  }
}

/* ---------------------------------------------------------------- running */

/* As a kernel may that has not seen the abort yet. */
static void write_last(const struct operation* operation) {
  const size_t bytes = operation->shape.count * size_of(operation->shape.type) * (size_t)operation->clique->nranks;
  nanosleep(&(struct timespec){0, 300000000}, NULL);
  memset(operation->receive, 0, bytes);
}

/* With the clique's lock. */
static void run_collective(struct mock_clique* clique, struct operation* operation) {
  struct mock_meeting* meeting = &clique->meetings[operation->number % MOCK_WINDOW];
  while ((meeting->done || meeting->number != operation->number) && !clique->aborted[operation->rank]) {
    if (!meeting->done && meeting->arrived == 0) {
      meeting->number = operation->number;
      break;
    }
    pthread_cond_wait(&clique->changed, &clique->mutex);
  }
  if (clique->aborted[operation->rank]) return;
  if (meeting->arrived == 0) meeting->shape = operation->shape;
  if (memcmp(&meeting->shape, &operation->shape, sizeof meeting->shape))
    mock_die("ranks do not call the same operation");
  meeting->send[operation->rank] = operation->send;
  meeting->receive[operation->rank] = operation->receive;
  if (++meeting->arrived == clique->nranks) {
    compute(clique, meeting);
    meeting->done = 1;
    pthread_cond_broadcast(&clique->changed);
  }
  while (!meeting->done && !clique->aborted[operation->rank]) pthread_cond_wait(&clique->changed, &clique->mutex);
  if (!meeting->done && operation->shape.kind == ALL_GATHER && mock_aborts_last()) write_last(operation);
  if (!meeting->done || ++meeting->left < clique->nranks) return;
  memset(meeting, 0, sizeof *meeting);
  pthread_cond_broadcast(&clique->changed);
}

static void run_send(struct mock_clique* clique, struct operation* operation) {
  const size_t bytes = operation->shape.count * size_of(operation->shape.type);
  struct mock_message* message = malloc(sizeof *message + bytes);
  if (!message) mock_die("out of memory");
  *message = (struct mock_message){
      .from = operation->rank, .to = operation->shape.root, .number = operation->number, .bytes = bytes};
  memcpy(message->data, operation->send, bytes);
  struct mock_message** at = &clique->messages;
  while (*at) at = &(*at)->next;
  *at = message;
  pthread_cond_broadcast(&clique->changed);
}

static void run_receive(struct mock_clique* clique, struct operation* operation) {
  const size_t bytes = operation->shape.count * size_of(operation->shape.type);
  for (;;) {
    struct mock_message** at = &clique->messages;
    while (*at && ((*at)->from != operation->shape.root || (*at)->to != operation->rank ||
                   (*at)->number != operation->number)) {
      at = &(*at)->next;
    }
    struct mock_message* message = *at;
    if (clique->aborted[operation->rank]) return;
    if (message) {
      if (message->bytes != bytes) mock_die("a message is not as long as its receiver expects");
      memcpy(operation->receive, message->data, bytes);
      *at = message->next;
      free(message);
      return;
    }
    pthread_cond_wait(&clique->changed, &clique->mutex);
  }
}

static void operation_run(void* argument) {
  struct operation* operation = argument;
  struct mock_clique* clique = operation->clique;
  pthread_mutex_lock(&clique->mutex);
  switch (operation->shape.kind) {
    case SEND: run_send(clique, operation); break;
    case RECEIVE: run_receive(clique, operation); break;
    default: run_collective(clique, operation);
  }
  pthread_mutex_unlock(&clique->mutex);
  mock_clique_put(clique);
  free(operation);
}

/* ---------------------------------------------------------------- calling */

static int hang(struct mock_clique* clique, int rank) {
  mock_clique_get(clique);
  pthread_mutex_lock(&clique->mutex);
  while (!clique->aborted[rank]) pthread_cond_wait(&clique->changed, &clique->mutex);
  pthread_mutex_unlock(&clique->mutex);
  mock_clique_put(clique);
  return NCCL_INVALID_USAGE;
}

void mock_operations_begin(void) {
  for (struct operation *operation = kept, *next; operation; operation = next) {
    next = operation->next;
    mockStreamRun(operation->stream, operation_run, operation);
  }
  kept = NULL;
}

void mock_operations_forget(void) {
  for (struct operation *operation = kept, *next; operation; operation = next) {
    next = operation->next;
    mock_clique_put(operation->clique);
    free(operation);
  }
  kept = NULL;
}

static int call(int kind, const void* send, void* receive, size_t count, int type, int reduction, int root,
                struct mock_comm* comm, void* stream) {
  if (mock_comm_check_ready(comm)) return NCCL_INVALID_ARGUMENT;
  if (type < 0 || type > arfusionFloat8e5m2) return mock_error(NCCL_INVALID_ARGUMENT, "invalid data type");
  if (count == 0) return NCCL_SUCCESS;
  if ((!send && kind != RECEIVE) || (!receive && kind != SEND))
    return mock_error(NCCL_INVALID_ARGUMENT, "a buffer is NULL");
  if (kind == ALL_GATHER && atomic_load(&all_gather_hangs)) return hang(comm->clique, comm->rank);
  if (kind == ALL_REDUCE) atomic_fetch_add(&all_reduces, 1);
  struct operation* operation = malloc(sizeof *operation);
  if (!operation) mock_die("out of memory");
  *operation = (struct operation){.shape = {kind, type, reduction, root, count},
                                  .send = send,
                                  .receive = receive,
                                  .clique = comm->clique,
                                  .rank = comm->rank,
                                  .stream = stream ? stream : comm->stream};
  operation->number = kind == SEND      ? ++comm->sends[root]
                      : kind == RECEIVE ? ++comm->receives[root]
                                        : ++comm->operations;
  mock_clique_get(comm->clique);
  if (!mock_group_is_open()) {
    mockStreamRun(operation->stream, operation_run, operation);
    return NCCL_SUCCESS;
  }
  if (!kept) kept_last = &kept;
  *kept_last = operation;
  kept_last = &operation->next;
  return NCCL_SUCCESS;
}

int ncclAllReduce(const void* send, void* receive, size_t count, int type, int operation, void* comm, void* stream) {
  return call(ALL_REDUCE, send, receive, count, type, operation, 0, comm, stream);
}

int ncclAllReduceConfig(const void* send, void* receive, size_t count, int type, int operation, void* comm,
                        void* stream, const void* config) {
  (void)config;
  return call(ALL_REDUCE, send, receive, count, type, operation, 0, comm, stream);
}

int ncclBroadcast(const void* send, void* receive, size_t count, int type, int root, void* comm, void* stream) {
  return call(BROADCAST, send, receive, count, type, 0, root, comm, stream);
}

int ncclBcast(void* buffer, size_t count, int type, int root, void* comm, void* stream) {
  return call(BROADCAST, buffer, buffer, count, type, 0, root, comm, stream);
}

int ncclReduce(const void* send, void* receive, size_t count, int type, int operation, int root, void* comm,
               void* stream) {
  return call(REDUCE, send, receive, count, type, operation, root, comm, stream);
}

int ncclAllGather(const void* send, void* receive, size_t count, int type, void* comm, void* stream) {
  return call(ALL_GATHER, send, receive, count, type, 0, 0, comm, stream);
}

int ncclReduceScatter(const void* send, void* receive, size_t count, int type, int operation, void* comm,
                      void* stream) {
  return call(REDUCE_SCATTER, send, receive, count, type, operation, 0, comm, stream);
}

int ncclSend(const void* send, size_t count, int type, int peer, void* comm, void* stream) {
  return call(SEND, send, NULL, count, type, 0, peer, comm, stream);
}

int ncclRecv(void* receive, size_t count, int type, int peer, void* comm, void* stream) {
  return call(RECEIVE, NULL, receive, count, type, 0, peer, comm, stream);
}
