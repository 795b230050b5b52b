/* SPDX-License-Identifier: Apache-2.0
 *
 * calls_comm.c: making and ending communicators, and NCCL's errors, as applications call them. Applications get NCCL's
 * own communicators and NCCL's own results; what the plugin needs is set up beside them.
 */
#include <stdio.h>
#include <stdlib.h>

#include "plugin/core/log.h"
#include "plugin/nccl/children.h"
#include "plugin/nccl/group.h"
#include "plugin/nccl/last_error.h"
#include "plugin/nccl/real.h"

/* ---------------------------------------------------------------- making */

/* Whether a communicator blocks, as NCCL decides it: NCCL_COMM_BLOCKING (also from NCCL's files, which NCCL puts into
 * the environment), the configuration, else `otherwise`. */
static int blocks(const struct nccl_config* config, int otherwise) {
  const char* text = getenv("NCCL_COMM_BLOCKING");
  if (text && (text[0] == '0' || text[0] == '1') && !text[1]) return text[0] == '1';
  return config && config->blocking != NCCL_UNDEFINED ? config->blocking != 0 : otherwise;
}

static int parent_blocks(void* parent) {
  struct state* state = state_get(parent);
  const int result = state ? state->blocking : 1;
  state_put(state);
  return result;
}

static void take_back(const struct made* made) {
  if (made->nccl) ncclCommAbort(made->nccl);
  *made->place = NULL;
}

/* After NCCL has made them. Outside groups communicators that cannot be set up are taken back, as NCCL does with what
 * it cannot make. */
static int finish(int result, struct made* made, int count) {
  if (group_passed_on(result) && result != NCCL_IN_PROGRESS) return result;
  for (int i = 0; i < count; ++i) made[i].nccl = *made[i].place;
  if (group_is_open()) {
    for (int i = 0; i < count; ++i) group_note_creation(&made[i]);
    return result;
  }
  const int set_up = count > 0 ? made_set_up(made, count) : NCCL_SUCCESS;
  for (int i = 0; set_up && i < count; ++i) take_back(&made[i]);
  return set_up ? set_up : result;
}

static int finish_own(int result, void** comm, const struct nccl_config* config) {
  const int blocking = blocks(config, 1);
  struct made made = {comm, NULL, blocking, !blocking};
  return finish(result, &made, 1);
}

static int child_blocks(const struct nccl_config* config, int parent_blocking) {
  return blocks(config, config ? 1 : parent_blocking);
}

static int finish_child(int result, void** child, int parent_blocking, const struct nccl_config* config) {
  const int blocking = child_blocks(config, parent_blocking);
  struct made made = {child, NULL, blocking, !blocking || !parent_blocking};
  return finish(result, &made, 1);
}

struct split {
  void **child, **place; /* the application's, and NCCL's */
  int parent_blocking;
};

static int split_begin(struct split* split, void* parent, void** child, const struct nccl_config* config) {
  *split = (struct split){child, child, parent_blocks(parent)};
  if (!child || split->parent_blocking) return NCCL_SUCCESS;
  split->place = children_new(parent, child, child_blocks(config, 0));
  return split->place ? NCCL_SUCCESS : last_error_keep(NCCL_SYSTEM_ERROR, "out of memory to set a communicator up");
}

static int split_finish(const struct split* split, int result, const struct nccl_config* config) {
  if (split->place == split->child) return finish_child(result, split->child, split->parent_blocking, config);
  if (result && result != NCCL_IN_PROGRESS) {
    children_give_up(split->place);
  } else {
    children_expect(split->place);
  }
  return group_passed_on(result);
}

int ncclCommInitRank(void** comm, int nranks, nccl_unique_id id, int rank) {
  if (PASS_THROUGH) return REAL(ncclCommInitRank)(comm, nranks, id, rank);
  const int result = CALL_REAL(ncclCommInitRank, comm, nranks, id, rank);
  return finish_own(result, comm, NULL);
}
TWIN(int, ncclCommInitRank, void** comm, int nranks, nccl_unique_id id, int rank);

int ncclCommInitRankConfig(void** comm, int nranks, nccl_unique_id id, int rank, struct nccl_config* config) {
  if (PASS_THROUGH) return REAL(ncclCommInitRankConfig)(comm, nranks, id, rank, config);
  const int result = CALL_REAL(ncclCommInitRankConfig, comm, nranks, id, rank, config);
  return finish_own(result, comm, config);
}
TWIN(int, ncclCommInitRankConfig, void** comm, int nranks, nccl_unique_id id, int rank, struct nccl_config* config);

int ncclCommInitRankScalable(void** comm, int nranks, int rank, int nids, nccl_unique_id* ids,
                             struct nccl_config* config) {
  if (PASS_THROUGH) return REAL(ncclCommInitRankScalable)(comm, nranks, rank, nids, ids, config);
  const int result = CALL_REAL(ncclCommInitRankScalable, comm, nranks, rank, nids, ids, config);
  return finish_own(result, comm, config);
}
TWIN(int, ncclCommInitRankScalable, void** comm, int nranks, int rank, int nids, nccl_unique_id* ids,
     struct nccl_config* config);

int ncclCommInitAll(void** comms, int ndev, const int* devs) {
  if (PASS_THROUGH) return REAL(ncclCommInitAll)(comms, ndev, devs);
  struct made* made = calloc(ndev > 0 ? (size_t)ndev : 1, sizeof *made);
  if (!made) return last_error_keep(NCCL_SYSTEM_ERROR, "out of memory to set communicators up");
  const int blocking = blocks(NULL, 1);
  for (int i = 0; comms && i < ndev; ++i) made[i] = (struct made){&comms[i], NULL, blocking, !blocking};
  const int result = finish(CALL_REAL(ncclCommInitAll, comms, ndev, devs), made, ndev);
  free(made);
  return result;
}
TWIN(int, ncclCommInitAll, void** comms, int ndev, const int* devs);

int ncclCommSplit(void* comm, int color, int key, void** child, struct nccl_config* config) {
  if (PASS_THROUGH) return REAL(ncclCommSplit)(comm, color, key, child, config);
  if (color == NCCL_SPLIT_NO_COLOR) return group_passed_on(CALL_REAL(ncclCommSplit, comm, color, key, child, config));
  struct split split;
  const int begun = split_begin(&split, comm, child, config);
  return begun ? begun : split_finish(&split, CALL_REAL(ncclCommSplit, comm, color, key, split.place, config), config);
}
TWIN(int, ncclCommSplit, void* comm, int color, int key, void** child, struct nccl_config* config);

int ncclCommShrink(void* comm, int* excluded, int nexcluded, void** child, struct nccl_config* config, int flags) {
  if (PASS_THROUGH) return REAL(ncclCommShrink)(comm, excluded, nexcluded, child, config, flags);
  if (flags & NCCL_SHRINK_ABORTS) {
    struct state* state = state_get(comm);
    if (state) state_abort(state);
    state_put(state);
  }
  struct split split;
  const int begun = split_begin(&split, comm, child, config);
  if (begun) return begun;
  const int result = CALL_REAL(ncclCommShrink, comm, excluded, nexcluded, split.place, config, flags);
  return split_finish(&split, result, config);
}
TWIN(int, ncclCommShrink, void* comm, int* excluded, int nexcluded, void** child, struct nccl_config* config,
     int flags);

int ncclCommGrow(void* comm, int nranks, const nccl_unique_id* id, int rank, void** child, struct nccl_config* config) {
  if (PASS_THROUGH) return REAL(ncclCommGrow)(comm, nranks, id, rank, child, config);
  const int parent_blocking = parent_blocks(comm); /* a new rank has no parent */
  return finish_child(CALL_REAL(ncclCommGrow, comm, nranks, id, rank, child, config), child, parent_blocking, config);
}
TWIN(int, ncclCommGrow, void* comm, int nranks, const nccl_unique_id* id, int rank, void** child,
     struct nccl_config* config);

/* ---------------------------------------------------------------- ending */

/* Complete means that our operations have ended too. A nonblocking communicator's do so when it is destroyed. */
int ncclCommFinalize(void* comm) {
  if (PASS_THROUGH) return REAL(ncclCommFinalize)(comm);
  struct state* state = state_get(comm);
  if (state) state_join(state);
  const int result = group_passed_on(CALL_REAL(ncclCommFinalize, comm));
  if (state && result == NCCL_SUCCESS && state->blocking && !group_is_open()) {
    state_put(state_remove(comm));
    state_put(state_add(comm, 1, STATE_LEFT));
  }
  state_put(state);
  return result;
}
TWIN(int, ncclCommFinalize, void* comm);

int ncclCommDestroy(void* comm) {
  if (PASS_THROUGH) return REAL(ncclCommDestroy)(comm);
  struct state* state = state_remove(comm);
  if (state) {
    state_join(state);
    state->children = children_take(comm);
  }
  const int result = group_passed_on(CALL_REAL(ncclCommDestroy, comm));
  if (group_is_open()) {
    group_put_later(state);
  } else if (state) {
    state_ended(state, result);
    state_put(state);
  }
  return result;
}
TWIN(int, ncclCommDestroy, void* comm);

/* NCCL returns only when its kernels have ended; ours must not keep the stream from it. What the plugin holds is freed
 * by a thread of its own: that waits for the device, where other communicators may be waiting to be aborted as well. */
int ncclCommAbort(void* comm) {
  if (PASS_THROUGH) return REAL(ncclCommAbort)(comm);
  struct state* state = state_remove(comm);
  if (state) {
    state_abort(state);
    state->children = children_take(comm);
  }
  const int result = group_passed_on(CALL_REAL(ncclCommAbort, comm));
  if (group_is_open()) {
    group_put_later(state);
  } else if (state) {
    state_ended(state, result);
    state_put_aside(state);
  }
  return result;
}
TWIN(int, ncclCommAbort, void* comm);

int ncclCommRevoke(void* comm, int flags) {
  if (PASS_THROUGH) return REAL(ncclCommRevoke)(comm, flags);
  struct state* state = state_get(comm);
  if (state) {
    state_abort(state);
    atomic_store(&state->phase, STATE_LEFT);
  }
  state_put(state);
  return group_passed_on(CALL_REAL(ncclCommRevoke, comm, flags));
}
TWIN(int, ncclCommRevoke, void* comm, int flags);

/* ---------------------------------------------------------------- errors */

int ncclCommGetAsyncError(void* comm, int* error) {
  if (PASS_THROUGH) return REAL(ncclCommGetAsyncError)(comm, error);
  struct state* state = error ? state_get(comm) : NULL;
  int result = NCCL_SUCCESS;
  if (state && atomic_load(&state->busy)) {
    *error = NCCL_IN_PROGRESS;
  } else {
    result = last_error_is_nccls(CALL_REAL(ncclCommGetAsyncError, comm, error));
    children_publish();
    if (state && result == NCCL_SUCCESS && *error == NCCL_SUCCESS) {
      *error = state_error(state);
    }
  }
  state_put(state);
  return result;
}
TWIN(int, ncclCommGetAsyncError, void* comm, int* error);

const char* ncclGetErrorString(int result) {
  if (real_found(__builtin_return_address(0))) return REAL(ncclGetErrorString)(result);
  return result == NCCL_SUCCESS ? "no error" : "unhandled system error: no libnccl was found";
}
TWIN(const char*, ncclGetErrorString, int result);

const char* ncclGetLastError(void* comm) {
  if (!real_found(__builtin_return_address(0))) return error_last();
  const char* ours = FROM_NCCL ? NULL : last_error_text();
  return ours ? ours : REAL(ncclGetLastError)(comm);
}
TWIN(const char*, ncclGetLastError, void* comm);
