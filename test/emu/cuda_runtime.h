/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_runtime.h: stands in for CUDA's header: the part of the runtime that kernels/cuda/launch.cu and
 * test/gpu/world.h use, on emulated GPUs, one for each rank. A device has one stream. Whatever waits for a device
 * runs all of them until they are idle.
 */
#ifndef ARFUSION_TEST_EMU_CUDA_RUNTIME_H_
#define ARFUSION_TEST_EMU_CUDA_RUNTIME_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* cudaErrorUnknown: the emulator has found an error, see emu_error. */
typedef enum {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorLaunchOutOfResources = 701,
  cudaErrorUnknown = 999
} cudaError_t;
typedef struct emu_stream* cudaStream_t;
typedef struct { unsigned x, y, z; } dim3;

struct cudaFuncAttributes {
  int maxThreadsPerBlock;
};
enum cudaLaunchAttributeID { cudaLaunchAttributeProgrammaticStreamSerialization = 6 };
typedef struct {
  enum cudaLaunchAttributeID id;
  union {
    int programmaticStreamSerializationAllowed;
  } val;
} cudaLaunchAttribute;
typedef struct {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
} cudaLaunchConfig_t;

enum cudaDeviceAttr { cudaDevAttrMultiProcessorCount = 16, cudaDevAttrComputeCapabilityMajor = 75 };
enum cudaMemcpyKind { cudaMemcpyDefault = 4 };
enum { cudaStreamNonBlocking = 1, cudaHostAllocPortable = 1, cudaHostAllocMapped = 2 };

const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceGetAttribute(int* value, enum cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceEnablePeerAccess(int device, unsigned flags);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaMalloc(void** p, size_t bytes);
cudaError_t cudaFree(void* p);
cudaError_t cudaHostAlloc(void** p, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void* p);
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, enum cudaMemcpyKind kind);
cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes* attributes, const void* kernel);
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void** arguments);

#ifdef __cplusplus
}
#endif
#endif
