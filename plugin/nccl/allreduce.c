/* SPDX-License-Identifier: Apache-2.0
 *
 * allreduce.c: see allreduce.h.
 */
#include "plugin/nccl/allreduce.h"

#include <pthread.h>
#include <stdlib.h>

#include "kernels/op.h"
#include "plugin/nccl/last_error.h"
#include "plugin/nccl/real.h"
#include "plugin/nccl/setup.h"
#include "plugin/nccl/stats.h"

static const size_t largest_count = (size_t)1 << 40; /* elements; far above what is ever taken */

static arfusionRequest_t request_of(const struct allreduce* call) {
  return (arfusionRequest_t){.size = sizeof(arfusionRequest_t),
                             .pattern = arfusionPatternAllReduce,
                             .operation = arfusionSum,
                             .dataType = (arfusionDataType_t)call->type,
                             .gammaDataType = (arfusionDataType_t)call->type,
                             .tokens = 1,
                             .hidden = (int64_t)call->count,
                             .input = call->send,
                             .allreduceOut = call->receive};
}

/* Why NCCL must do it whatever its size is; arfusionReasonNone: it need not. */
static int refuse(const struct allreduce* call, const struct state* state) {
  if (!call->nccl || !call->send || !call->receive || call->count > largest_count) return STATS_INVALID;
  if (call->count == 0) return STATS_NOTHING_TO_DO;
  if (call->operation != NCCL_SUM) return arfusionReasonOperation;
  if (call->type != arfusionFloat16 && call->type != arfusionBfloat16 && call->type != arfusionFloat32) {
    return arfusionReasonDataType;
  }
  if (!state) return STATS_NOT_SERVED;
  const int phase = atomic_load(&state->phase);
  return phase == STATE_SERVED || phase == STATE_LATER ? arfusionReasonNone : atomic_load(&state->reason);
}

int allreduce_may_be_taken(const struct allreduce* call, const struct state* state, int* reason) {
  *reason = refuse(call, state);
  if (*reason == arfusionReasonNone && atomic_load(&state->phase) == STATE_SERVED) {
    const arfusionRequest_t request = request_of(call);
    arfusionRoute_t route = {.size = sizeof route};
    /* An error is told by whoever enqueues it. */
    if (state->plugin->route(state->plugin_comm, &request, &route) == arfusionSuccess) *reason = route.reason;
  }
  return *reason == arfusionReasonNone;
}

int allreduce_leave(const struct allreduce* call, int reason) {
  stats_left(reason);
  return last_error_is_nccls(CALL_REAL(ncclAllReduce, call->send, call->receive, call->count, call->type,
                                       call->operation, call->nccl, call->stream));
}

int allreduce_take(const struct allreduce* call, struct state* state) {
  const arfusionRequest_t request = request_of(call);
  arfusionRoute_t route = {.size = sizeof route};
  const arfusionResult_t result = state->plugin->enqueue(state->plugin_comm, &request, call->stream, &route);
  if (result != arfusionSuccess) return last_error_keep(result, state->plugin->getLastError());
  if (route.algorithm == arfusionAlgoNone) return allreduce_leave(call, route.reason);
  stats_taken(call->count * (size_t)kernel_element_size((arfusionDataType_t)call->type));
  return NCCL_SUCCESS;
}

static int take_or_leave(const struct allreduce* call, struct state* state) {
  const int reason = refuse(call, state);
  return reason == arfusionReasonNone ? allreduce_take(call, state) : allreduce_leave(call, reason);
}

int allreduce_check_state(const struct state* state) {
  if (!state) return NCCL_SUCCESS;
  if (atomic_load(&state->busy)) {
    return last_error_keep(NCCL_INVALID_USAGE,
                           "the communicator is not ready: ncclCommGetAsyncError gives ncclInProgress");
  }
  if (atomic_load(&state->phase) != STATE_FAILED) return NCCL_SUCCESS;
  return last_error_keep(atomic_load(&state->error), "the communicator could not be set up");
}

/* ---------------------------------------------------------------- set up at the first call */

struct first_call {
  struct allreduce call;
  struct state* state; /* with a reference */
};

/* Sets the communicator up, then enqueues what it was called with. */
static void* first_call_run(void* argument) {
  struct first_call* first = argument;
  struct state* state = first->state;
  int result = setup_run(state);
  if (result == NCCL_SUCCESS) result = take_or_leave(&first->call, state);
  if (result != NCCL_IN_PROGRESS) atomic_store(&state->error, result);
  atomic_store(&state->busy, 0);
  state_leave(state);
  state_put(state);
  free(first);
  return NULL;
}

int allreduce_can_start(const struct allreduce* call) {
  int error = NCCL_SUCCESS;
  return CALL_REAL(ncclCommGetAsyncError, call->nccl, &error) == NCCL_SUCCESS && error == NCCL_SUCCESS &&
         !setup_stream_is_capturing(call->stream);
}

/* By a thread of its own, which has entered when this returns. */
static int start_aside(const struct allreduce* call, struct state* state) {
  pthread_t thread;
  struct first_call* first = malloc(sizeof *first);
  if (!first) return last_error_keep(NCCL_SYSTEM_ERROR, "out of memory to set a communicator up");
  const int entered = state_enter(state);
  if (entered != arfusionSuccess) {
    free(first);
    return last_error_keep(entered, NULL);
  }
  *first = (struct first_call){*call, state_hold(state)};
  atomic_store(&state->busy, 1);
  if (pthread_create(&thread, NULL, first_call_run, first) == 0) {
    pthread_detach(thread);
    return NCCL_IN_PROGRESS;
  }
  atomic_store(&state->busy, 0);
  state_leave(state);
  state_put(state);
  free(first);
  return last_error_keep(NCCL_SYSTEM_ERROR, "no thread to set a communicator up");
}

static int start(const struct allreduce* call, struct state* state) {
  if (!allreduce_can_start(call)) return allreduce_leave(call, arfusionReasonNotReady);
  if (state->blocking) {
    const int result = setup_run(state);
    return result ? last_error_keep(result, NULL) : take_or_leave(call, state);
  }
  return start_aside(call, state);
}

int allreduce_now(const struct allreduce* call, struct state* state) {
  const int checked = allreduce_check_state(state);
  if (checked) return checked;
  const int reason = refuse(call, state);
  if (reason != arfusionReasonNone) return allreduce_leave(call, reason);
  return atomic_load(&state->phase) == STATE_LATER ? start(call, state) : allreduce_take(call, state);
}
