/* SPDX-License-Identifier: Apache-2.0
 *
 * setup.h: the plugin's communicator beside NCCL's. All ranks of a communicator do it together, over NCCL's own
 * all-gather.
 */
#ifndef ARFUSION_NCCL_SETUP_H_
#define ARFUSION_NCCL_SETUP_H_

#include "plugin/nccl/state.h"

/* Where operations larger than this are left to NCCL, which is as fast there; the workspace covers no more. */
enum { SETUP_MAX_BYTES = 32 << 20 };

/* Sets `state` up, for as long as ARFUSION_INIT_TIMEOUT at most: its phase is STATE_SERVED or STATE_LEFT then. An error
 * (STATE_FAILED) means that the ranks have not all loaded this library, or that NCCL failed: its communicator is of no
 * more use then, since an all-gather may be left in it. */
int setup_run(struct state* state);

/* The same for several communicators of this process at once, by a thread each: also while a group of NCCL's is open in
 * this one, which would keep the all-gather back. The first error. */
int setup_run_all(struct state** states, int count);

/* Whether `stream` is being captured. */
int setup_stream_is_capturing(void* stream);

#endif
