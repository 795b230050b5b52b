/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_gather.c: see nccl_gather.h.
 */
#include "plugin/host/nccl_gather.h"

#include <time.h>

#include "plugin/core/log.h"

enum { IN_PROGRESS = 7 }; /* ncclInProgress: of nonblocking communicators */

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static arfusionResult_t failed(const struct nccl_gather* gather, int code, const char* call) {
  return error_set((arfusionResult_t)code, "%s: %s (%d)", call, gather->error_string(code), code);
}

/* *done as long as a nonblocking communicator has enqueued what it was asked for. */
static arfusionResult_t query_enqueued(struct nccl_gather* gather, int* done) {
  int state = 0;
  const int result = gather->async_error(gather->comm, &state);
  if (result) return failed(gather, result, "ncclCommGetAsyncError");
  if (state && state != IN_PROGRESS) return failed(gather, state, "ncclAllGather");
  *done = state == 0;
  return arfusionSuccess;
}

arfusionResult_t nccl_gather_check(const atomic_int* cancelled) {
  if (!cancelled || !atomic_load(cancelled)) return arfusionSuccess;
  return error_set(arfusionInvalidUsage, "the communicator was aborted while it was set up");
}

/* Asks until it is done, not too often. An abort ends NCCL's all-gather too, which has gathered nothing then: so it is
 * looked for before and after. */
static arfusionResult_t wait_until(struct nccl_gather* gather, int64_t end,
                                   arfusionResult_t (*query)(struct nccl_gather*, int*)) {
  struct timespec pause = {0, 20000};
  for (;;) {
    int done = 0;
    FORWARD_IF_ERROR(nccl_gather_check(gather->cancelled));
    FORWARD_IF_ERROR(query(gather, &done));
    if (done) return nccl_gather_check(gather->cancelled);
    if (now_ns() >= end) {
      return error_set(arfusionRemoteError, "not all %d ranks of an NCCL communicator have answered within %lld s%s%s",
                       gather->nranks, (long long)gather->limit_s, gather->advice ? ": " : "",
                       gather->advice ? gather->advice : "");
    }
    nanosleep(&pause, NULL);
    if (pause.tv_nsec < 1000000) pause.tv_nsec *= 2;
  }
}

static int call(struct nccl_gather* gather, size_t bytes) {
  if (gather->calling) atomic_store(gather->calling, 1);
  const int code = gather->all_gather(gather->memory, gather->memory + bytes, bytes, arfusionUint8, gather->comm,
                                      gather->stream);
  if (gather->calling) atomic_store(gather->calling, 0);
  return code;
}

static arfusionResult_t run(struct nccl_gather* gather, const void* send, void* recv, size_t bytes) {
  const int64_t end = now_ns() + gather->limit_s * 1000000000;
  arfusionResult_t result = gather->where->put(gather, send, bytes);
  if (result == arfusionSuccess) result = nccl_gather_check(gather->cancelled);
  if (result == arfusionSuccess) {
    const int code = call(gather, bytes);
    gather->stuck = code == 0 || code == IN_PROGRESS;
    if (!gather->stuck) result = failed(gather, code, "ncclAllGather");
    if (code == IN_PROGRESS) result = wait_until(gather, end, query_enqueued);
    if (result == arfusionSuccess) result = wait_until(gather, end, gather->where->query);
    if (result == arfusionSuccess) gather->stuck = 0;
  }
  if (result == arfusionSuccess) result = gather->where->get(gather, recv, bytes);
  if (!gather->stuck) gather->where->drop(gather);
  return result;
}

arfusionResult_t nccl_gather_run(void* opaque, const void* send, void* recv, size_t bytes) {
  struct nccl_gather* gather = opaque;
  if (gather->stuck) return error_set(arfusionRemoteError, "an earlier all-gather of this communicator has not ended");
  FORWARD_IF_ERROR(gather->where->enter(gather));
  const arfusionResult_t result = run(gather, send, recv, bytes);
  gather->where->leave(gather);
  return result;
}

arfusionResult_t nccl_gather_open(struct nccl_gather* gather) {
  FORWARD_IF_ERROR(gather->where->enter(gather));
  const arfusionResult_t result = gather->where->open(gather);
  gather->where->leave(gather);
  return result;
}

void nccl_gather_close(struct nccl_gather* gather) {
  if (gather->where->enter(gather) != arfusionSuccess) return;
  gather->where->close(gather);
  gather->where->leave(gather);
}

void nccl_gather_drop_stuck(struct nccl_gather* gather) {
  if (!gather->stuck || gather->where->enter(gather) != arfusionSuccess) return;
  gather->where->drop(gather);
  gather->stuck = 0;
  gather->where->leave(gather);
}
