/* SPDX-License-Identifier: Apache-2.0
 *
 * profiler_calls.h: counters of a communicator's allreduces by data type and count. Counting is lock-free, allocates
 * nothing and may be done by several threads at once; whatever has been counted before a walk begins is in it.
 */
#ifndef ARFUSION_NCCL_PROFILER_CALLS_H_
#define ARFUSION_NCCL_PROFILER_CALLS_H_

#include <stdatomic.h>

#include "arfusion_plugin.h"

/* Different (data type, count) that have a counter of their own: more than the tokens of any prefill. */
enum { PROFILER_SLOTS = 1 << 14, PROFILER_SIZES = PROFILER_SLOTS / 4 * 3 };

#define PROFILER_TYPE_UNKNOWN ((arfusionDataType_t)254)

struct profiler_slot {
  _Atomic uint64_t key; /* 0: free */
  _Atomic uint64_t eager, captured;
};

struct profiler_calls {
  _Atomic uint64_t others;   /* collectives that are no allreduce */
  _Atomic uint64_t overflow; /* allreduces of sizes for which there was no counter left */
  _Atomic uint32_t sizes;    /* that have a counter, or were refused one */
  struct profiler_slot slots[PROFILER_SLOTS];
};

/* One call, captured into a graph or not. `calls` begins zeroed. */
void profiler_calls_count(struct profiler_calls* calls, arfusionDataType_t type, uint64_t count, int captured);

struct profiler_size {
  arfusionDataType_t type; /* PROFILER_TYPE_UNKNOWN: none of NCCL's that is known here */
  uint64_t count;          /* elements */
  uint64_t eager, captured;
};

/* Copies up to PROFILER_SIZES of them to `sizes`, in no order; returns how many. */
int profiler_calls_read(struct profiler_calls* calls, struct profiler_size* sizes);

#endif
