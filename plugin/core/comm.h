/* SPDX-License-Identifier: Apache-2.0
 *
 * comm.h: contexts and communicators, as the ABI's opaque pointers stand for them.
 */
#ifndef ARFUSION_CORE_COMM_H_
#define ARFUSION_CORE_COMM_H_

#include <stdatomic.h>

#include "plugin/core/device.h"

struct context {
  struct settings settings;
  const struct device_ops* device;
};

struct comm {
  const struct device_ops* device;
  struct device_comm* device_comm; /* NULL: everything is turned down */
  int dev, rank, nranks;
  struct route_facts facts;
  arfusionCapacity_t capacity;
  arfusionStats_t stats;
  int check, count_nan;    /* ARFUSION_CHECK, ARFUSION_COUNT_NAN */
  uint64_t reasons_logged; /* bit: arfusionReason_t */
  atomic_int aborted;
};

/* comm_init.c */
arfusionResult_t comm_init(struct context* ctx, int dev, const arfusionConfig_t* config,
                           const arfusionBootstrap_t* bootstrap, struct comm** out);
arfusionResult_t comm_init_all(struct context* ctx, int nranks, const int* devs, const arfusionConfig_t* config,
                               struct comm** out);
/* The facts of a communicator of the default size whose ranks, on GPUs like `dev` that reach each other, are on
 * `nhosts` hosts; and where its table is from. Makes nothing, asks no other rank. */
arfusionResult_t comm_predict(const struct context* ctx, int dev, int nranks, int nhosts, struct route_facts* route,
                              const char** source);

/* comm.c */
arfusionResult_t comm_finalize(struct comm* comm);
arfusionResult_t comm_abort(struct comm* comm);
/* Success, or why the communicator has failed, with a text of at most `bytes` characters. */
arfusionResult_t comm_async_error(struct comm* comm, char* text, size_t bytes);

/* The counters, those of the device too. */
void comm_stats(struct comm* comm, arfusionStats_t* stats);

/* enqueue.c */
arfusionResult_t comm_route(struct comm* comm, const arfusionRequest_t* request, arfusionRoute_t* route);
arfusionResult_t comm_enqueue(struct comm* comm, const arfusionRequest_t* request, void* stream,
                              arfusionRoute_t* route);
arfusionResult_t comm_epilogue(struct comm* comm, const arfusionRequest_t* request, void* stream);

#endif
