/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.h: random sequences of NCCL calls, the same on all ranks, and what a model says of them: which calls reach NCCL,
 * and what ends in every buffer.
 */
#ifndef ARFUSION_TEST_NCCL_PLAN_H_
#define ARFUSION_TEST_NCCL_PLAN_H_

#include <stddef.h>
#include <stdint.h>

enum { PLAN_RANKS = 4, PLAN_STEPS = 24, PLAN_CALLS = 6, PLAN_COMMS = 6, PLAN_STREAMS = 2 };

enum plan_kind {
  PLAN_CALL,   /* outside groups where a thread has one rank only */
  PLAN_GROUP,  /* several calls in one group */
  PLAN_CREATE, /* of all ranks, from an id */
  PLAN_SPLIT,
  PLAN_DESTROY,
  PLAN_FINALIZE, /* and destroy */
  PLAN_ABORT,
};

enum plan_operation {
  PLAN_ALL_REDUCE,
  PLAN_BROADCAST,
  PLAN_ALL_GATHER,
  PLAN_REDUCE_SCATTER,
  PLAN_EXCHANGE, /* to the next rank, from the one before */
};

enum { PLAN_PRE_MUL_SUM = 100 }; /* as a reduction: each term is doubled first */

struct plan_call {
  enum plan_operation operation;
  int comm; /* which of the places of communicators */
  int type, reduction;
  size_t count;
  int in_place, stream;
  int twin; /* called by its pnccl name */
};

struct plan_step {
  enum plan_kind kind;
  int comm; /* that is made or ended */
  int parent;
  int colors[PLAN_RANKS];       /* split: by world rank */
  unsigned members[PLAN_RANKS]; /* bit: world rank; of the communicator that each rank gets, 0: none */
  int blocking, in_group, wait; /* wait: for all streams, at the end of the step */
  int ncalls;
  struct plan_call calls[PLAN_CALLS];
};

struct plan {
  int nranks;
  int threads; /* that the ranks are spread over, 1 to nranks */
  int nsteps;
  struct plan_step steps[PLAN_STEPS];
  uint64_t forwarded; /* the model: ncclAllReduce calls that reach NCCL, over all ranks */
  uint64_t taken;
};

/* Draws a plan. It ends all communicators that it makes. */
void plan_draw(struct plan* plan, uint64_t seed);

#endif
