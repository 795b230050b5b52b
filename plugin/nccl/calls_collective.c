/* SPDX-License-Identifier: Apache-2.0
 *
 * calls_collective.c: NCCL's collectives and groups, as applications call them. All but ncclAllReduce are passed on at
 * once; a group must know of them (group.h). ncclAllReduceConfig is too: what is asked for there is NCCL's to do.
 */
#include "plugin/nccl/calls.h"
#include "plugin/nccl/last_error.h"

int ncclAllReduce(const void* send, void* receive, size_t count, int type, int operation, void* comm, void* stream) {
  if (PASS_THROUGH) {
    return REAL(ncclAllReduce)(send, receive, count, type, operation, comm, stream);
  }
  const struct allreduce call = {send, receive, count, type, operation, comm, stream};
  struct state* state = state_get(comm);
  const int result = group_is_open() ? group_allreduce(&call, state) : allreduce_now(&call, state);
  state_put(state);
  return result;
}
TWIN(int, ncclAllReduce, const void* send, void* receive, size_t count, int type, int operation, void* comm,
     void* stream);

#define COLLECTIVE(name, comm, count, ...)                                     \
  do {                                                                         \
    if (!FROM_NCCL && (count) && group_is_open()) group_note_collective(comm); \
    PASS_ON(name, __VA_ARGS__);                                                \
  } while (0)

int ncclBroadcast(const void* send, void* receive, size_t count, int type, int root, void* comm, void* stream) {
  COLLECTIVE(ncclBroadcast, comm, count, send, receive, count, type, root, comm, stream);
}
TWIN(int, ncclBroadcast, const void* send, void* receive, size_t count, int type, int root, void* comm, void* stream);

int ncclBcast(void* buffer, size_t count, int type, int root, void* comm, void* stream) {
  COLLECTIVE(ncclBcast, comm, count, buffer, count, type, root, comm, stream);
}
TWIN(int, ncclBcast, void* buffer, size_t count, int type, int root, void* comm, void* stream);

int ncclReduce(const void* send, void* receive, size_t count, int type, int operation, int root, void* comm,
               void* stream) {
  COLLECTIVE(ncclReduce, comm, count, send, receive, count, type, operation, root, comm, stream);
}
TWIN(int, ncclReduce, const void* send, void* receive, size_t count, int type, int operation, int root, void* comm,
     void* stream);

int ncclAllGather(const void* send, void* receive, size_t count, int type, void* comm, void* stream) {
  COLLECTIVE(ncclAllGather, comm, count, send, receive, count, type, comm, stream);
}
TWIN(int, ncclAllGather, const void* send, void* receive, size_t count, int type, void* comm, void* stream);

int ncclReduceScatter(const void* send, void* receive, size_t count, int type, int operation, void* comm,
                      void* stream) {
  COLLECTIVE(ncclReduceScatter, comm, count, send, receive, count, type, operation, comm, stream);
}
TWIN(int, ncclReduceScatter, const void* send, void* receive, size_t count, int type, int operation, void* comm,
     void* stream);

int ncclAlltoAll(const void* send, void* receive, size_t count, int type, void* comm, void* stream) {
  COLLECTIVE(ncclAlltoAll, comm, count, send, receive, count, type, comm, stream);
}
TWIN(int, ncclAlltoAll, const void* send, void* receive, size_t count, int type, void* comm, void* stream);

int ncclGather(const void* send, void* receive, size_t count, int type, int root, void* comm, void* stream) {
  COLLECTIVE(ncclGather, comm, count, send, receive, count, type, root, comm, stream);
}
TWIN(int, ncclGather, const void* send, void* receive, size_t count, int type, int root, void* comm, void* stream);

int ncclScatter(const void* send, void* receive, size_t count, int type, int root, void* comm, void* stream) {
  COLLECTIVE(ncclScatter, comm, count, send, receive, count, type, root, comm, stream);
}
TWIN(int, ncclScatter, const void* send, void* receive, size_t count, int type, int root, void* comm, void* stream);

/* ---------------------------------------------------------------- the same with settings of one call */

int ncclAllReduceConfig(const void* send, void* receive, size_t count, int type, int operation, void* comm,
                        void* stream, const void* config) {
  COLLECTIVE(ncclAllReduceConfig, comm, count, send, receive, count, type, operation, comm, stream, config);
}
TWIN(int, ncclAllReduceConfig, const void* send, void* receive, size_t count, int type, int operation, void* comm,
     void* stream, const void* config);

int ncclBroadcastConfig(const void* send, void* receive, size_t count, int type, int root, void* comm, void* stream,
                        const void* config) {
  COLLECTIVE(ncclBroadcastConfig, comm, count, send, receive, count, type, root, comm, stream, config);
}
TWIN(int, ncclBroadcastConfig, const void* send, void* receive, size_t count, int type, int root, void* comm,
     void* stream, const void* config);

int ncclReduceConfig(const void* send, void* receive, size_t count, int type, int operation, int root, void* comm,
                     void* stream, const void* config) {
  COLLECTIVE(ncclReduceConfig, comm, count, send, receive, count, type, operation, root, comm, stream, config);
}
TWIN(int, ncclReduceConfig, const void* send, void* receive, size_t count, int type, int operation, int root,
     void* comm, void* stream, const void* config);

int ncclAllGatherConfig(const void* send, void* receive, size_t count, int type, void* comm, void* stream,
                        const void* config) {
  COLLECTIVE(ncclAllGatherConfig, comm, count, send, receive, count, type, comm, stream, config);
}
TWIN(int, ncclAllGatherConfig, const void* send, void* receive, size_t count, int type, void* comm, void* stream,
     const void* config);

int ncclReduceScatterConfig(const void* send, void* receive, size_t count, int type, int operation, void* comm,
                            void* stream, const void* config) {
  COLLECTIVE(ncclReduceScatterConfig, comm, count, send, receive, count, type, operation, comm, stream, config);
}
TWIN(int, ncclReduceScatterConfig, const void* send, void* receive, size_t count, int type, int operation, void* comm,
     void* stream, const void* config);

int ncclAlltoAllConfig(const void* send, void* receive, size_t count, int type, void* comm, void* stream,
                       const void* config) {
  COLLECTIVE(ncclAlltoAllConfig, comm, count, send, receive, count, type, comm, stream, config);
}
TWIN(int, ncclAlltoAllConfig, const void* send, void* receive, size_t count, int type, void* comm, void* stream,
     const void* config);

int ncclGatherConfig(const void* send, void* receive, size_t count, int type, int root, void* comm, void* stream,
                     const void* config) {
  COLLECTIVE(ncclGatherConfig, comm, count, send, receive, count, type, root, comm, stream, config);
}
TWIN(int, ncclGatherConfig, const void* send, void* receive, size_t count, int type, int root, void* comm, void* stream,
     const void* config);

int ncclScatterConfig(const void* send, void* receive, size_t count, int type, int root, void* comm, void* stream,
                      const void* config) {
  COLLECTIVE(ncclScatterConfig, comm, count, send, receive, count, type, root, comm, stream, config);
}
TWIN(int, ncclScatterConfig, const void* send, void* receive, size_t count, int type, int root, void* comm,
     void* stream, const void* config);

/* ---------------------------------------------------------------- groups */

int ncclGroupStart(void) {
  const int result = REAL(ncclGroupStart)();
  if (result == NCCL_SUCCESS && !FROM_NCCL) group_enter();
  return FROM_NCCL ? result : last_error_is_nccls(result);
}
TWIN(int, ncclGroupStart, void);

static int end_group(void* argument) {
  (void)argument;
  return CALL_REAL(ncclGroupEnd);
}

int ncclGroupEnd(void) {
  if (PASS_THROUGH) return REAL(ncclGroupEnd)();
  return group_leave(end_group, NULL, 0);
}
TWIN(int, ncclGroupEnd, void);

static int simulate_end(void* info) { return CALL_REAL(ncclGroupSimulateEnd, info); }

int ncclGroupSimulateEnd(void* info) {
  if (PASS_THROUGH) return REAL(ncclGroupSimulateEnd)(info);
  return group_leave(simulate_end, info, 1);
}
TWIN(int, ncclGroupSimulateEnd, void* info);
