/* SPDX-License-Identifier: Apache-2.0
 *
 * unfused.c: allreduce, then epilogue; see unfused.h.
 */
#include "plugin/tools/bench/unfused.h"

#define WINDOW_ALIGNMENT 4096 /* of the output behind the input */

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

int unfused_open_windows(struct unfused* unfused, const struct bench_buffer* input) {
  if (unfused->nccl == NULL) return 0; /* nothing to register with */
#if ARFUSION_HAVE_CUDA
  struct bench_rank* rank = unfused->rank;
  size_t bytes = (input->bytes + WINDOW_ALIGNMENT - 1) / WINDOW_ALIGNMENT * WINDOW_ALIGNMENT;
  void* memory = nccl_open_window(unfused->nccl, rank->team, 2 * bytes, unfused->no_window_why,
                                  sizeof(unfused->no_window_why));
  if (memory == NULL) return 0;
  struct bench_buffer window = {.data = memory, .image = input->image, .bytes = input->bytes};
  if (rank->device->upload(rank->device, &window, window.bytes) != 0) {
    return team_fail(rank->team, "%s", bench_device_error());
  }
  unfused->window_input = memory;
  unfused->window_output = unfused->window_input + bytes;
#else
  (void)input;
#endif
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
  return unfused_enqueue_epilogue(unfused, request);
}

int unfused_enqueue_windows(struct unfused* unfused, const arfusionRequest_t* request) {
  arfusionRequest_t in_windows = *request;
  in_windows.input = unfused->window_input;
  in_windows.normOut = unfused->window_output;
  return unfused_enqueue(unfused, &in_windows);
}

int unfused_enqueue_epilogue(struct unfused* unfused, const arfusionRequest_t* request) {
  struct bench_rank* rank = unfused->rank;
  arfusionRequest_t epilogue = *request;
  epilogue.input = request->normOut; /* where the sum is */
  if (rank->plugin->epilogue(rank->comm, &epilogue, rank->device->stream) != arfusionSuccess) {
    return bench_device_fail("epilogue: %s", rank->plugin->getLastError());
  }
  return 0;
}
