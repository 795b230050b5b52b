/* SPDX-License-Identifier: Apache-2.0
 *
 * counters.c: see counters.h.
 */
#include "plugin/core/counters.h"

#include "plugin/core/log.h"
#include "plugin/core/names.h"

void counters_log_reason(struct comm* comm, const arfusionRoute_t* route) {
  const uint64_t bit = (uint64_t)1 << route->reason;
  if (comm->reasons_logged & bit) return;
  comm->reasons_logged |= bit;
  char text[256];
  LOG_INFO(ARFUSION_LOG_COLL, "rank %d of %d turns a request down: %s", comm->rank, comm->nranks,
           text_of_reason(text, sizeof text, route->reason, route->value, route->limit));
}
