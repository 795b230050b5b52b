/* SPDX-License-Identifier: Apache-2.0
 *
 * made.h: communicators that NCCL has just made.
 */
#ifndef ARFUSION_NCCL_MADE_H_
#define ARFUSION_NCCL_MADE_H_

#include "plugin/nccl/state.h"

struct made {
  void* nccl;   /* NULL: none for this rank, or a nonblocking child that NCCL is still making */
  int blocking;
};

/* Sets the blocking ones up, all at once; the others at their first allreduce. The first error. */
int made_set_up(const struct made* made, int count);

/* The state of a communicator, with a reference; also of a nonblocking child whose pointer was not known when it was made.
 * NULL: it has none. */
struct state* made_state(void* nccl);

#endif
