/* SPDX-License-Identifier: Apache-2.0
 *
 * group.h: between ncclGroupStart and the outermost ncclGroupEnd of a thread. Allreduces that may be taken are kept
 * back until then: only when a group is complete can be told which of them are the only collective of their
 * communicator, and nothing of a group may run before. Point-to-point calls do not count, since ranks may differ in
 * them.
 */
#ifndef ARFUSION_NCCL_GROUP_H_
#define ARFUSION_NCCL_GROUP_H_

#include "plugin/nccl/allreduce.h"
#include "plugin/nccl/made.h"

int group_is_open(void);

/* After NCCL's group has been opened. */
void group_enter(void);

/* A collective of this communicator was called. */
void group_note_collective(void* nccl);

/* An allreduce: kept back, or left to NCCL within the group. */
int group_allreduce(const struct allreduce* call, struct state* state);

/* NCCL's result of a call, given on: if it is an error within a group, NCCL will do nothing of that group, so neither
 * is anything taken. Returns `result`. */
int group_passed_on(int result);

/* A communicator is being made, and will be set up at the end. */
void group_note_creation(const struct made* made);

/* Gives the reference back at the end. NULL is allowed. */
void group_put_later(struct state* state);

/* Instead of `end` (ncclGroupEnd, or one that only simulates): at the outermost level what was kept back is launched,
 * or left to NCCL, then NCCL's group ends, then what was made is set up. */
int group_leave(int (*end)(void* argument), void* argument, int simulated);

#endif
