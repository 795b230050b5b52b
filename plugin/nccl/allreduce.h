/* SPDX-License-Identifier: Apache-2.0
 *
 * allreduce.h: one ncclAllReduce, to the plugin or to NCCL.
 */
#ifndef ARFUSION_NCCL_ALLREDUCE_H_
#define ARFUSION_NCCL_ALLREDUCE_H_

#include <stddef.h>

#include "plugin/nccl/state.h"

struct allreduce {
  const void* send;
  void* receive;
  size_t count;
  int type, operation;
  void* nccl;
  void* stream;
};

/* Whether the plugin would take it, or may once `state` is set up. If not, *reason says why (stats.h). Decides from
 * what is the same on all ranks; what is not (NULL buffers) is NCCL's to refuse. `state` may be NULL. */
int allreduce_may_be_taken(const struct allreduce* call, const struct state* state, int* reason);

/* To the plugin, or to NCCL if the plugin turns it down. `state` is STATE_SERVED, and allreduce_may_be_taken. */
int allreduce_take(const struct allreduce* call, struct state* state);

/* To NCCL, counted under `reason`. */
int allreduce_leave(const struct allreduce* call, int reason);

/* Whether the communicator can be worked with; else an error. `state` may be NULL. */
int allreduce_check_state(const struct state* state);

/* Whether its communicator can be set up now. Not if NCCL's is not ready, which NCCL says itself, and not under
 * capture. */
int allreduce_can_start(const struct allreduce* call);

/* Outside groups: whichever of the two it is to be, also for communicators that are yet to be set up. */
int allreduce_now(const struct allreduce* call, struct state* state);

#endif
