/* SPDX-License-Identifier: Apache-2.0
 *
 * state.h: what is kept beside each ncclComm_t, found by its pointer. It is dropped when the communicator is destroyed
 * or aborted, since NCCL uses pointers again; who works with it holds a reference, so that an abort from another thread
 * takes nothing away.
 */
#ifndef ARFUSION_NCCL_STATE_H_
#define ARFUSION_NCCL_STATE_H_

#include <stdatomic.h>

#include "plugin/host/nccl_gather.h"

enum state_phase {
  STATE_LATER,    /* is set up at its first allreduce */
  STATE_STARTING, /* is set up by the call that makes it */
  STATE_SERVED,   /* plugin_comm is there */
  STATE_LEFT,     /* everything is left to NCCL, because of `reason` */
  STATE_FAILED,   /* set-up failed with `error` */
};

struct state_child;

struct child;

struct state {
  void* nccl;
  int blocking;
  atomic_int phase;  /* enum state_phase */
  atomic_int reason; /* enum stats_reason */
  atomic_int error;  /* a result: what ncclCommGetAsyncError gives if NCCL has nothing to say */
  atomic_int cancelled;  /* ends set-up */
  atomic_int setting_up; /* threads that do, and call NCCL for it */
  atomic_int calling;    /* one of them is within NCCL's all-gather, which may wait for the other ranks */
  const arfusionPlugin_v1_t* plugin;
  void* plugin_comm;
  struct nccl_gather gather; /* of set-up */
  atomic_int busy; /* nonblocking: a helper thread does its first allreduce */
  struct child* children; /* that NCCL was still making when it was to end it; children.h */
  int lasts; /* NCCL said that it was still ending it */
  /* of state.c */
  int references;
  struct state* next;
};

/* A new state for this pointer, in place of one that may be there; NULL: out of memory. The caller gets a reference. */
struct state* state_add(void* nccl, int blocking, enum state_phase phase);

/* The state of this pointer, with a reference for the caller; NULL: there is none. */
struct state* state_get(void* nccl);

/* Another reference. */
struct state* state_hold(struct state* state);

/* Forgets the pointer. The caller gets the state with a reference; NULL: there was none. */
struct state* state_remove(void* nccl);

/* Gives a reference back; the last one ends the plugin's communicator, once its enqueued work has ended. NULL is
 * allowed. The one that state_remove gave goes back after NCCL's communicator is gone. */
void state_put(struct state* state);

/* NCCL has been asked to end its communicator, with this result; before the reference goes back. If that goes on,
 * nobody learns how long, and what is stuck in it is never freed. */
void state_ended(struct state* state, int result);

/* The same as state_put by a thread of its own, where that may take long. */
void state_put_aside(struct state* state);

/* STATE_FAILED with this error, unless everything has been left to NCCL meanwhile. */
void state_fail(struct state* state, int error);

/* What ncclCommGetAsyncError is to say: that set-up or the first allreduce failed, or why the plugin's communicator
 * did. */
int state_error(const struct state* state);

/* Around what sets it up. enter: an error if it has been aborted; else nobody ends NCCL's communicator before leave. */
arfusionResult_t state_enter(struct state* state);
void state_leave(struct state* state);

/* Waits until nobody is setting it up any more. */
void state_join(struct state* state);

/* Ends set-up, for good, and operations that wait for other ranks. */
void state_abort(struct state* state);

#endif
