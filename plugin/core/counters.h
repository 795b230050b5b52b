/* SPDX-License-Identifier: Apache-2.0
 *
 * counters.h: what a communicator counts of its requests, and what it says the first time.
 */
#ifndef ARFUSION_CORE_COUNTERS_H_
#define ARFUSION_CORE_COUNTERS_H_

#include "plugin/core/comm.h"
#include "plugin/core/request.h"

/* A line at INFO about a request that is turned down, once for each reason. */
void counters_log_reason(struct comm* comm, const arfusionRoute_t* route);

/* A request that was enqueued, empty or turned down. In the header, as it is part of every enqueue. */
static inline void counters_add(struct comm* comm, const arfusionRequest_t* request, const arfusionRoute_t* route) {
  arfusionStats_t* stats = &comm->stats;
  ++stats->requests;
  ++stats->byAlgorithm[route->algorithm];
  ++stats->byReason[route->reason];
  if (route->launches == 0) return;
  stats->launches += (uint64_t)route->launches;
  stats->bytes += (uint64_t)request_bytes(request);
}

#endif
