/* SPDX-License-Identifier: Apache-2.0
 *
 * made.h: communicators that NCCL has just made.
 */
#ifndef ARFUSION_NCCL_MADE_H_
#define ARFUSION_NCCL_MADE_H_

#include "plugin/nccl/state.h"

struct made {
  void** place; /* where NCCL writes it */
  void* nccl;   /* NULL: none for this rank, or not written yet */
  int blocking;
  int later;    /* it or its parent does not block: it is set up at its first allreduce */
};

/* Sets those that are not for later up, all at once. The first error. `nccl` becomes NULL where another thread has
 * aborted or revoked the communicator meanwhile: it is that thread's to end. */
int made_set_up(struct made* made, int count);

#endif
