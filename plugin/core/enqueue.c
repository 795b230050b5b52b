/* SPDX-License-Identifier: Apache-2.0
 *
 * enqueue.c: route a request, cut it into launches, show it to tools, count it.
 */
#include "plugin/core/comm.h"
#include "plugin/core/counters.h"
#include "plugin/core/failure.h"
#include "plugin/core/log.h"
#include "plugin/core/names.h"
#include "plugin/core/ranges.h"
#include "plugin/core/request.h"
#include "plugin/core/structs.h"

arfusionResult_t comm_route(struct comm* comm, const arfusionRequest_t* request, arfusionRoute_t* route) {
  arfusionRequest_t own;
  arfusionRoute_t selected = {.size = sizeof selected};
  FORWARD_IF_ERROR(struct_check_output(route, ARFUSION_ROUTE_V1_SIZE, "route"));
  FORWARD_IF_ERROR(request_read(&own, request));
  route_select(&comm->facts, &own, &selected);
  struct_write(route, &selected, sizeof selected);
  return arfusionSuccess;
}

static arfusionResult_t check_alive(struct comm* comm) {
  char text[512];
  const arfusionResult_t failed = comm_async_error(comm, text, sizeof text);
  return failed == arfusionSuccess ? failed : error_set(failed, "the communicator has failed: %s", text);
}

static arfusionResult_t launch(struct comm* comm, const arfusionRequest_t* request, const arfusionRoute_t* route,
                               const struct kernel_op* op, void* stream) {
  if (comm->check) {
    const struct kernel_call call = failure_call(request, route->algorithm);
    FORWARD_IF_ERROR(comm->device->check(comm->device_comm, route->algorithm, &call, stream));
  }
  if (route->launches == 1) {
    FORWARD_IF_ERROR(comm->device->run(comm->device_comm, route->algorithm, op, stream));
  } else {
    const int64_t rows = op->pattern == arfusionPatternAllReduce ? op->hidden : op->tokens;
    const int64_t step = route_rows_per_launch(&comm->facts, request, route->algorithm);
    for (int64_t first = 0; first < rows; first += step) {
      const struct kernel_op slice = request_slice(op, first, rows - first < step ? rows - first : step);
      FORWARD_IF_ERROR(comm->device->run(comm->device_comm, route->algorithm, &slice, stream));
    }
  }
  return arfusionSuccess;
}

static arfusionResult_t enqueue(struct comm* comm, const arfusionRequest_t* callers, void* stream,
                                arfusionRoute_t* callers_route) {
  arfusionRequest_t request;
  arfusionRoute_t route = {.size = sizeof route}, unused;
  struct kernel_op op;
  if (callers_route) FORWARD_IF_ERROR(struct_check_output(callers_route, ARFUSION_ROUTE_V1_SIZE, "route"));
  FORWARD_IF_ERROR(request_read(&request, callers));
  route_select(&comm->facts, &request, &route);
  /* What is wrong with the pointers is an error even if the request is turned down: nobody else could do it either. */
  if (request.tokens && (request.pattern == arfusionPatternAllReduce || route_request_supported(&request, &unused))) {
    FORWARD_IF_ERROR(request_to_op(&request, &op));
  }
  if (request.tokens) FORWARD_IF_ERROR(check_alive(comm));
  if (route.algorithm == arfusionAlgoNone) {
    counters_log_reason(comm, &route);
    if (!callers_route) {
      return error_set(arfusionInvalidUsage, "the request is turned down (%s) and route is NULL",
                       name_of_reason(route.reason));
    }
  } else if (route.algorithm != arfusionAlgoEmpty) {
    range_begin(request.pattern, route.algorithm, request_bytes(&request));
    const arfusionResult_t result = launch(comm, &request, &route, &op, stream);
    range_end();
    FORWARD_IF_ERROR(result);
  }
  counters_add(comm, &request, &route);
  if (callers_route) struct_write(callers_route, &route, sizeof route);
  return arfusionSuccess;
}

arfusionResult_t comm_enqueue(struct comm* comm, const arfusionRequest_t* request, void* stream,
                              arfusionRoute_t* route) {
  const arfusionResult_t result = enqueue(comm, request, stream, route);
  if (result != arfusionSuccess) ++comm->stats.errors;
  return result;
}

/* There is nobody to hand an epilogue on to, so what would be turned down is an error here. */
arfusionResult_t comm_epilogue(struct comm* comm, const arfusionRequest_t* callers, void* stream) {
  arfusionRequest_t request;
  arfusionRoute_t route;
  struct kernel_op op;
  FORWARD_IF_ERROR(request_read(&request, callers));
  if (request.pattern != arfusionPatternResidualRmsNorm) {
    return error_set(arfusionInvalidArgument, "request.pattern is %d, an epilogue needs residual_rmsnorm (%d)",
                     request.pattern, arfusionPatternResidualRmsNorm);
  }
  if (!route_request_supported(&request, &route)) {
    char text[256];
    return error_set(arfusionInvalidArgument, "the epilogue cannot do this: %s",
                     text_of_reason(text, sizeof text, route.reason, route.value, route.limit));
  }
  if (request.tokens == 0) return arfusionSuccess;
  FORWARD_IF_ERROR(request_to_op(&request, &op));
  range_begin(request.pattern, arfusionAlgoNone, request_bytes(&request));
  const arfusionResult_t result = comm->device->epilogue(comm->dev, &op, stream);
  range_end();
  return result;
}
