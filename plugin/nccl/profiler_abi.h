/* SPDX-License-Identifier: Apache-2.0
 *
 * profiler_abi.h: NCCL's profiler interface, versions 5 (NCCL 2.28 and up) and 6 (2.30 and up), as far as it is used
 * here: the table is the same in both, and version 6's events only add kinds that are not asked for. NCCL's plugin
 * headers are not among those it installs; the layout is that of profiler_v5.h and profiler_v6.h under
 * plugins/profiler/example/nccl in https://github.com/NVIDIA/nccl (v2.28.9, v2.30.7), described in
 * plugins/profiler/README.md there.
 *
 * NCCL owns the events and shows them for the length of a call. Calls come from the application's threads and from
 * NCCL's own, several at once, also for one communicator.
 */
#ifndef ARFUSION_NCCL_PROFILER_ABI_H_
#define ARFUSION_NCCL_PROFILER_ABI_H_

#include <stdbool.h>

#include "arfusion_plugin.h"

/* A kind of event, which is also the bit of the mask that asks for it: one call of a collective, as the application
 * made it. Calls with count 0 and calls on one rank have none. The group around a call arrives unasked, as another
 * kind. */
enum { NCCL_PROFILER_COLL_API = 1 << 9 };

struct nccl_profiler_event {
  uint64_t type;
  void* parent;           /* what startEvent gave for the event around this one */
  int rank;               /* not set in every kind */
  struct {                /* something else in other kinds */
    const char* func;     /* "AllReduce", "Broadcast", ... */
    size_t count;         /* elements */
    const char* datatype; /* "ncclBfloat16", ...; "Unknown" */
    int root;
    void* stream;
    bool graph_captured;
  } coll_api;
};
_Static_assert(offsetof(struct nccl_profiler_event, coll_api) == 24 &&
                   offsetof(struct nccl_profiler_event, coll_api.graph_captured) == 64,
               "the layout of NCCL's events");

/* All functions return an ncclResult_t, whose values arfusionResult_t has. Only init's may be an error, and then NCCL
 * goes on without the profiler. */
struct nccl_profiler {
  const char* name;
  /* Once for each communicator, while it is made, with its device current. `mask` is one word for all communicators of
   * the process. A NULL *context: NCCL does not call finalize for it, but shows it in events. */
  arfusionResult_t (*init)(void** context, uint64_t comm_id, int* mask, const char* comm_name, int nnodes, int nranks,
                           int rank, arfusionDebugLogger_t logger);
  /* A NULL *handle: the two below are not called for this event. */
  arfusionResult_t (*start_event)(void* context, void** handle, const struct nccl_profiler_event* event);
  arfusionResult_t (*stop_event)(void* handle);
  arfusionResult_t (*record_event_state)(void* handle, int state, const void* args);
  arfusionResult_t (*finalize)(void* context);
};

#endif
