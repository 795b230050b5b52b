/* SPDX-License-Identifier: Apache-2.0
 *
 * complete_cuda.c: what the plugin turned down, on a GPU: ncclAllReduce (of one rank: a copy), then the plugin's
 * epilogue. Everything is enqueued on the caller's stream and can be captured.
 */
#include <cuda_runtime_api.h>

#include "plugin/core/log.h"
#include "plugin/core/request.h"
#include "plugin/host/library.h"

static arfusionResult_t failed(cudaError_t code, const char* call) {
  cudaGetLastError();
  return error_set(code == cudaErrorMemoryAllocation ? arfusionSystemError : arfusionUnhandledCudaError, "%s: %s (%d)",
                   call, cudaGetErrorString(code), code);
}

arfusionResult_t cuda_current_device(int* dev) {
  const cudaError_t code = cudaGetDevice(dev);
  return code == cudaSuccess ? arfusionSuccess : failed(code, "cudaGetDevice");
}

/* Where the sum may stand, dense: normOut, else a residualOut that is not residualIn, else nowhere (NULL). */
static void* place_of_sum(const arfusionRequest_t* request) {
  const int norm_dense = !request->normOutStride || request->normOutStride == request->hidden || request->tokens == 1;
  const int residual_dense =
      !request->residualOutStride || request->residualOutStride == request->hidden || request->tokens == 1;
  if (request->normOut && norm_dense) return request->normOut;
  if (request->residualOut && residual_dense && request->residualOut != request->residualIn)
    return request->residualOut;
  return NULL;
}

static arfusionResult_t sum_enqueue(struct arfusionComm* comm, const arfusionRequest_t* request, const void* from,
                                    void* to, cudaStream_t stream) {
  const size_t count = (size_t)request->tokens * (size_t)request->hidden;
  if (comm->nccl) {
    return nccl_enqueue_all_reduce(comm->nccl, from, to, count, request->dataType, request->operation, stream);
  }
  if ((unsigned)request->operation > arfusionAvg) {
    return error_set(arfusionInvalidArgument, "request.operation is %d, without NCCL there are 0 to %d",
                     request->operation, arfusionAvg);
  }
  if (from == to) return arfusionSuccess;
  const size_t bytes = count * (size_t)request_element_size(request->dataType);
  const cudaError_t code = cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
  return code == cudaSuccess ? arfusionSuccess : failed(code, "copying the only rank's input");
}

static arfusionResult_t sum_and_finish(struct arfusionComm* comm, const arfusionRequest_t* request, void* sum,
                                       cudaStream_t stream) {
  const struct library* library = comm->library;
  const size_t size = (size_t)request_element_size(request->dataType);
  const size_t row = (size_t)request->hidden * size, rows = (size_t)request->tokens;
  const size_t stride = request->inputStride ? (size_t)request->inputStride * size : row;
  const void* dense = request->input;
  if (stride != row && rows > 1) {
    const cudaError_t code =
        cudaMemcpy2DAsync(sum, row, request->input, stride, row, rows, cudaMemcpyDeviceToDevice, stream);
    if (code != cudaSuccess) return failed(code, "packing the rows");
    dense = sum;
  }
  FORWARD_IF_ERROR(sum_enqueue(comm, request, dense, sum, stream));
  arfusionRequest_t after = *request;
  after.input = sum;
  after.inputStride = 0;
  FORWARD_PLUGIN(library, epilogue(comm->plugin_comm, &after, stream));
  return arfusionSuccess;
}

static arfusionResult_t complete_rows(struct arfusionComm* comm, const arfusionRequest_t* request,
                                      cudaStream_t stream) {
  const size_t bytes =
      (size_t)request->tokens * (size_t)request->hidden * (size_t)request_element_size(request->dataType);
  void* sum = place_of_sum(request);
  if (sum) return sum_and_finish(comm, request, sum, stream);
  cudaError_t code = cudaMallocAsync(&sum, bytes, stream);
  if (code != cudaSuccess) return failed(code, "stream-ordered memory for the sum");
  const arfusionResult_t result = sum_and_finish(comm, request, sum, stream);
  code = cudaFreeAsync(sum, stream);
  return result == arfusionSuccess && code != cudaSuccess ? failed(code, "cudaFreeAsync") : result;
}

arfusionResult_t complete_on_cuda(struct arfusionComm* comm, const arfusionRequest_t* request, void* stream) {
  int previous;
  if (!comm->nccl && comm->nranks > 1) {
    return error_set(arfusionInvalidUsage,
                     "the plugin turned the request down, and there is no NCCL communicator to do it "
                     "(no libnccl was found, or several ranks share a GPU)");
  }
  if (!request->input) return error_set(arfusionInvalidArgument, "request.input is NULL");
  if (request->pattern == arfusionPatternAllReduce && !request->allreduceOut) {
    return error_set(arfusionInvalidArgument, "request.allreduceOut is NULL");
  }
  FORWARD_IF_ERROR(cuda_current_device(&previous));
  cudaError_t code = cudaSetDevice(comm->dev);
  if (code != cudaSuccess) return failed(code, "cudaSetDevice");
  const arfusionResult_t result =
      request->pattern == arfusionPatternAllReduce
          ? sum_enqueue(comm, request, request->input, request->allreduceOut, stream)
          : complete_rows(comm, request, stream);
  cudaSetDevice(previous);
  return result;
}
