/* SPDX-License-Identifier: Apache-2.0
 *
 * route.c: see route.h.
 */
#include "plugin/core/route.h"

#include <limits.h>

#include "plugin/core/request.h"

static void turn_down(arfusionRoute_t* route, arfusionReason_t reason, int64_t value, int64_t limit) {
  route->algorithm = arfusionAlgoNone;
  route->reason = reason;
  route->value = value;
  route->limit = limit;
  route->launches = 0;
}

static int data_type_supported(arfusionDataType_t dtype) {
  return dtype == arfusionFloat16 || dtype == arfusionBfloat16 || dtype == arfusionFloat32;
}

/* The slot bytes of one row; of one pack for the flat pattern, which is cut anywhere between packs. */
static int64_t unit_bytes(const arfusionRequest_t* request) {
  const int64_t elements = request->pattern == arfusionPatternAllReduce ? 1 : request->hidden;
  return kernel_slot_bytes(1, elements, request->dataType);
}

int64_t route_rows_per_launch(const struct route_facts* facts, const arfusionRequest_t* request,
                              arfusionAlgorithm_t algorithm) {
  const int64_t units = facts->launch_bytes[algorithm] / unit_bytes(request);
  return request->pattern == arfusionPatternAllReduce ? units * KERNEL_PACK : units;
}

/* The rules about rows: 1 if the request was turned down. */
static int turn_down_rows(const arfusionRequest_t* request, arfusionRoute_t* route) {
  const int64_t size = kernel_element_size(request->dataType);
  if (request->gammaDataType != request->dataType && request->gammaDataType != arfusionFloat32) {
    turn_down(route, arfusionReasonGammaDataType, request->gammaDataType, request->dataType);
  } else if (request->hidden > ARFUSION_MAX_HIDDEN) {
    turn_down(route, arfusionReasonHiddenTooLarge, request->hidden, ARFUSION_MAX_HIDDEN);
  } else if (request->hidden * size % 16) {
    turn_down(route, arfusionReasonHiddenAlignment, request->hidden * size, 16);
  } else if (request->quantization == arfusionQuantNvfp4 && request->dataType == arfusionFloat32) {
    turn_down(route, arfusionReasonQuantDataType, request->quantization, request->dataType);
  } else if (request->quantization == arfusionQuantNvfp4 && request->hidden % 16) {
    turn_down(route, arfusionReasonHiddenAlignment, request->hidden, 16);
  } else if (request->quantization == arfusionQuantFp8Group &&
             (request->groupSize <= 0 || request->groupSize % KERNEL_PACK || request->hidden % request->groupSize)) {
    turn_down(route, arfusionReasonGroupSize, request->groupSize, request->hidden);
  } else {
    return 0;
  }
  return 1;
}

static arfusionAlgorithm_t choose(const struct route_facts* facts, const arfusionRequest_t* request, int64_t bytes) {
  if (request->algorithmHint != arfusionAlgoAuto) return request->algorithmHint;
  if (facts->forced != arfusionAlgoAuto) return facts->forced;
  int i = 0;
  while (bytes > facts->table.automatic[i].up_to_bytes) ++i;
  arfusionAlgorithm_t algorithm = facts->table.automatic[i].algorithm;
  if (facts->launch_bytes[algorithm] >= unit_bytes(request)) return algorithm;
  /* A row too long for it may fit the slots of another one. */
  for (int a = 0; a < ARFUSION_NUM_ALGORITHMS; ++a) {
    if (facts->launch_bytes[a] > facts->launch_bytes[algorithm]) algorithm = (arfusionAlgorithm_t)a;
  }
  return algorithm;
}

int route_request_supported(const arfusionRequest_t* request, arfusionRoute_t* route) {
  if (request->operation != arfusionSum) {
    turn_down(route, arfusionReasonOperation, request->operation, arfusionSum);
    return 0;
  }
  if (!data_type_supported(request->dataType)) {
    turn_down(route, arfusionReasonDataType, request->dataType, 0);
    return 0;
  }
  return request->pattern == arfusionPatternAllReduce || !turn_down_rows(request, route);
}

void route_select(const struct route_facts* facts, const arfusionRequest_t* request, arfusionRoute_t* route) {
  route->reason = arfusionReasonNone;
  route->value = route->limit = 0;
  route->launches = 0;
  route->reserved = 0;
  if (request->tokens == 0) {
    route->algorithm = arfusionAlgoEmpty;
    return;
  }
  if (facts->reason != arfusionReasonNone) {
    turn_down(route, facts->reason, facts->reason_value, facts->reason_limit);
    return;
  }
  if (facts->forced == arfusionAlgoNone) {
    turn_down(route, arfusionReasonDisabled, 0, 0);
    return;
  }
  if (!route_request_supported(request, route)) return;

  const int64_t bytes = request_bytes(request);
  if (bytes > facts->max_request_bytes) {
    turn_down(route, arfusionReasonWorkspace, bytes, facts->max_request_bytes);
    return;
  }
  const arfusionAlgorithm_t algorithm = choose(facts, request, bytes);
  if (facts->launch_bytes[algorithm] == 0) {
    turn_down(route, arfusionReasonAlgorithm, algorithm, 0);
    return;
  }
  const int64_t per_launch = route_rows_per_launch(facts, request, algorithm);
  if (per_launch == 0) {
    turn_down(route, arfusionReasonWorkspace, unit_bytes(request), facts->launch_bytes[algorithm]);
    return;
  }
  /* The table compares what it takes by itself, so an algorithm that was named is never slower by it. */
  if (request->algorithmHint == arfusionAlgoAuto && facts->forced == arfusionAlgoAuto &&
      bytes >= facts->table.slower_from_bytes) {
    turn_down(route, arfusionReasonSlower, bytes, facts->table.slower_from_bytes);
    return;
  }
  const int64_t rows =
      request->pattern == arfusionPatternAllReduce ? request->tokens * request->hidden : request->tokens;
  route->algorithm = algorithm;
  const int64_t launches = (rows + per_launch - 1) / per_launch;
  route->launches = launches < INT_MAX ? (int)launches : INT_MAX; /* more is asked about, but never enqueued */
}
