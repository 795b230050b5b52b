/* SPDX-License-Identifier: Apache-2.0
 *
 * route.h: where a request goes. One pure function of the request's agreed fields and of facts that all ranks agreed on
 * when the communicator was made; nothing else, so that every rank decides the same.
 */
#ifndef ARFUSION_CORE_ROUTE_H_
#define ARFUSION_CORE_ROUTE_H_

#include "arfusion_plugin.h"

#define ROUTE_MAX_SEGMENTS 8

/* What is fastest at which request bytes (tokens * hidden * element size); see tuning.h. */
struct route_table {
  /* What arfusionAlgoAuto takes: up_to_bytes in rising order, the last one INT64_MAX. */
  struct {
    int64_t up_to_bytes;
    arfusionAlgorithm_t algorithm;
  } automatic[ROUTE_MAX_SEGMENTS];
  int64_t slower_from_bytes; /* requests of this size and up are slower than the alternative; INT64_MAX: never */
};

struct route_facts {
  int nranks;
  /* Not arfusionReasonNone: everything is turned down with it. */
  arfusionReason_t reason;
  int64_t reason_value, reason_limit;
  arfusionAlgorithm_t forced;                   /* by ARFUSION_ALGO; arfusionAlgoNone turns everything down */
  int64_t max_request_bytes;                    /* what the communicator was sized for */
  int64_t launch_bytes[ARFUSION_NUM_ALGORITHMS]; /* slot bytes a launch takes; 0: the device has no such algorithm */
  struct route_table table;
};

/* `request` has passed request_read. */
void route_select(const struct route_facts* facts, const arfusionRequest_t* request, arfusionRoute_t* route);

/* The rules about the request alone, whatever the communicator: 1, or 0 with the reason in `route`. */
int route_request_supported(const arfusionRequest_t* request, arfusionRoute_t* route);

/* Rows (pattern allreduce: elements) of one launch with the route's algorithm. */
int64_t route_rows_per_launch(const struct route_facts* facts, const arfusionRequest_t* request,
                              arfusionAlgorithm_t algorithm);

#endif
