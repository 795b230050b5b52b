/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_runtime.c: the stand-in for the CUDA runtime, on the emulator.
 */
#include "test/emu/cuda_runtime.h"

#include <string.h>

#include "test/emu/emu.h"

static int current;

/* A stream is its device's number, from 1 on. */
static int stream_rank(cudaStream_t stream) { return (int)(uintptr_t)stream - 1; }

static cudaError_t idle(void) {
  if (!emu_error()) emu_run();
  return emu_error() ? cudaErrorUnknown : cudaSuccess;
}

const char* cudaGetErrorString(cudaError_t error) {
  if (error == cudaErrorUnknown && emu_error()) return emu_error();
  return error == cudaErrorMemoryAllocation ? "the emulated memory is full" : "invalid value";
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = EMU_RANKS;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= EMU_RANKS) return cudaErrorInvalidValue;
  current = device;
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, enum cudaDeviceAttr attribute, int device) {
  if (device < 0 || device >= EMU_RANKS) return cudaErrorInvalidValue;
  *value = attribute == cudaDevAttrMultiProcessorCount ? 8 : 9;
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int device, unsigned flags) {
  (void)flags;
  return device == current ? cudaErrorInvalidValue : cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void) { return idle(); }

cudaError_t cudaMalloc(void** p, size_t bytes) {
  *p = emu_memory_allocate(current, bytes);
  return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaHostAlloc(void** p, size_t bytes, unsigned flags) {
  (void)flags;
  *p = emu_memory_allocate(EMU_HOST, bytes);
  return *p ? cudaSuccess : cudaErrorMemoryAllocation;
}

/* Memory is freed all at once, by emu_memory_free_all. */
cudaError_t cudaFree(void* p) {
  (void)p;
  return idle();
}
cudaError_t cudaFreeHost(void* p) {
  (void)p;
  return idle();
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, enum cudaMemcpyKind kind) {
  (void)kind;
  const cudaError_t error = idle();
  if (!error) memcpy(to, from, bytes);
  return error;
}

cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes, cudaStream_t stream) {
  (void)stream;
  const cudaError_t error = idle();
  if (!error) memset(p, value, bytes);
  return error;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  (void)flags;
  *stream = (cudaStream_t)(uintptr_t)(current + 1);
  return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  (void)stream;
  return idle();
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  (void)stream;
  return idle();
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes* attributes, const void* kernel) {
  if (kernel == NULL) return cudaErrorInvalidValue;
  attributes->maxThreadsPerBlock = 1024;
  return cudaSuccess;
}

/* CUDA knows from the kernel's image how large its argument is. Here as much is copied as an argument may take; what
 * follows it is on the caller's stack, too. */
__attribute__((no_sanitize_address)) static void argument_copy(unsigned char* to, const unsigned char* from) {
  for (int i = 0; i < EMU_ARGUMENT; ++i) to[i] = ((const volatile unsigned char*)from)[i];
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* kernel, void** arguments) {
  unsigned char argument[EMU_ARGUMENT];
  int dependent = 0;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    if (config->attrs[i].id != cudaLaunchAttributeProgrammaticStreamSerialization) return cudaErrorInvalidValue;
    dependent = config->attrs[i].val.programmaticStreamSerializationAllowed;
  }
  if (kernel == NULL || config->gridDim.x == 0 || config->blockDim.x == 0 || config->blockDim.x > 1024)
    return cudaErrorInvalidValue;
  argument_copy(argument, arguments[0]);
  emu_launch(stream_rank(config->stream), kernel, config->gridDim.x, config->blockDim.x, dependent, argument);
  return cudaSuccess;
}
