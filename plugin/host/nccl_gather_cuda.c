/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_gather_cuda.c: messages in device memory, on a stream of their own; see nccl_gather.h.
 */
#include <cuda_runtime_api.h>

#include "plugin/core/log.h"
#include "plugin/host/nccl_gather.h"

static arfusionResult_t failed(cudaError_t code, const char* call) {
  cudaGetLastError();
  return error_set(arfusionUnhandledCudaError, "%s: %s (%d)", call, cudaGetErrorString(code), code);
}

static arfusionResult_t checked(cudaError_t code, const char* call) {
  return code == cudaSuccess ? arfusionSuccess : failed(code, call);
}

/* A global capture elsewhere in the process must not forbid set-up, nor be broken by it. */
static arfusionResult_t enter(struct nccl_gather* gather) {
  enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  FORWARD_IF_ERROR(checked(cudaGetDevice(&gather->previous_dev), "cudaGetDevice"));
  FORWARD_IF_ERROR(checked(cudaSetDevice(gather->dev), "cudaSetDevice"));
  FORWARD_IF_ERROR(checked(cudaThreadExchangeStreamCaptureMode(&mode), "cudaThreadExchangeStreamCaptureMode"));
  gather->previous_mode = mode;
  return arfusionSuccess;
}

static void leave(struct nccl_gather* gather) {
  enum cudaStreamCaptureMode mode = (enum cudaStreamCaptureMode)gather->previous_mode;
  cudaThreadExchangeStreamCaptureMode(&mode);
  cudaSetDevice(gather->previous_dev);
}

static arfusionResult_t open_stream(struct nccl_gather* gather) {
  return checked(cudaStreamCreateWithFlags((cudaStream_t*)&gather->stream, cudaStreamNonBlocking), "cudaStreamCreate");
}

static arfusionResult_t put(struct nccl_gather* gather, const void* send, size_t bytes) {
  const size_t all = bytes * ((size_t)gather->nranks + 1);
  gather->pinned = 0;
  if (cudaMalloc((void**)&gather->memory, all) != cudaSuccess) {
    cudaGetLastError();
    FORWARD_IF_ERROR(checked(cudaHostAlloc((void**)&gather->memory, all, cudaHostAllocPortable), "cudaHostAlloc"));
    gather->pinned = 1;
  }
  return checked(cudaMemcpyAsync(gather->memory, send, bytes, cudaMemcpyDefault, gather->stream), "cudaMemcpyAsync");
}

static arfusionResult_t query(struct nccl_gather* gather, int* done) {
  const cudaError_t code = cudaStreamQuery(gather->stream);
  *done = code == cudaSuccess;
  return code == cudaErrorNotReady ? arfusionSuccess : checked(code, "the all-gather");
}

static arfusionResult_t get(struct nccl_gather* gather, void* recv, size_t bytes) {
  cudaError_t code = cudaMemcpyAsync(recv, gather->memory + bytes, bytes * (size_t)gather->nranks, cudaMemcpyDefault,
                                     gather->stream);
  if (code == cudaSuccess) code = cudaStreamSynchronize(gather->stream);
  return checked(code, "cudaMemcpyAsync");
}

static void drop(struct nccl_gather* gather) {
  if (gather->pinned) {
    cudaFreeHost(gather->memory);
  } else {
    cudaFree(gather->memory);
  }
  gather->memory = NULL;
}

static void close_stream(struct nccl_gather* gather) {
  if (gather->stream) cudaStreamDestroy(gather->stream);
  gather->stream = NULL;
}

const struct nccl_gather_memory nccl_gather_cuda = {
    .open = open_stream,
    .put = put,
    .query = query,
    .get = get,
    .drop = drop,
    .close = close_stream,
    .enter = enter,
    .leave = leave,
};
