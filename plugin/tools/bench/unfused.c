/* SPDX-License-Identifier: Apache-2.0
 *
 * unfused.c: allreduce, then epilogue; see unfused.h.
 */
#include "plugin/tools/bench/unfused.h"

#include <stdio.h>

int unfused_open(struct bench_rank* rank, struct unfused* unfused) {
  *unfused = (struct unfused){.rank = rank, .available = 1};
  if (rank->device->kind == BENCH_DEVICE_HOST) return 0;
#if ARFUSION_HAVE_CUDA
  if (nccl_open(rank->team, &unfused->nccl, unfused->why, sizeof(unfused->why)) != 0) return -1;
#endif
  unfused->available = unfused->nccl != NULL;
  return 0;
}

void unfused_close(struct unfused* unfused) {
#if ARFUSION_HAVE_CUDA
  if (unfused->nccl != NULL) nccl_close(unfused->nccl);
#endif
  *unfused = (struct unfused){0};
}

static int host_all_reduce(struct bench_rank* rank, const arfusionRequest_t* request) {
  arfusionRoute_t route = {.size = sizeof(route)};
  arfusionRequest_t sum = bench_request();
  sum.pattern = arfusionPatternAllReduce;
  sum.operation = request->operation;
  sum.dataType = request->dataType;
  sum.tokens = request->tokens;
  sum.hidden = request->hidden;
  sum.input = request->input;
  sum.allreduceOut = request->normOut;
  if (rank->plugin->enqueue(rank->comm, &sum, rank->device->stream, &route) != arfusionSuccess) {
    return bench_device_fail("allreduce: %s", rank->plugin->getLastError());
  }
  if (route.algorithm == arfusionAlgoNone) {
    return bench_device_fail("the plugin turned the allreduce down: %s", rank->plugin->reasonString(route.reason));
  }
  return 0;
}

int unfused_enqueue(struct unfused* unfused, const arfusionRequest_t* request) {
  struct bench_rank* rank = unfused->rank;
  if (!unfused->available) return bench_device_fail("%s", unfused->why);
  if (rank->device->kind == BENCH_DEVICE_HOST) {
    if (host_all_reduce(rank, request) != 0) return -1;
  } else {
#if ARFUSION_HAVE_CUDA
    if (nccl_all_reduce(unfused->nccl, request->input, request->normOut, (size_t)(request->tokens * request->hidden),
                        request->dataType, rank->device->stream) != 0) {
      return -1;
    }
#endif
  }
  arfusionRequest_t epilogue = *request;
  epilogue.input = request->normOut; /* where the sum is */
  if (rank->plugin->epilogue(rank->comm, &epilogue, rank->device->stream) != arfusionSuccess) {
    return bench_device_fail("epilogue: %s", rank->plugin->getLastError());
  }
  return 0;
}
