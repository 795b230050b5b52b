/* SPDX-License-Identifier: Apache-2.0
 *
 * driver_cuda.c: see driver_cuda.h.
 */
#include "plugin/core/driver_cuda.h"

#include <pthread.h>
#include <stddef.h>
#include <string.h>

#include "plugin/core/log.h"

enum { NEEDED_VERSION = 12000 }; /* of the entry points: the ABI that the types above have */

static struct driver table;
static const char* missing; /* the first function that the driver does not have */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static const struct {
  const char* symbol;
  size_t offset;
} entries[] = {
    {"cuGetErrorString", offsetof(struct driver, getErrorString)},
    {"cuMemGetAllocationGranularity", offsetof(struct driver, memGetAllocationGranularity)},
    {"cuMemCreate", offsetof(struct driver, memCreate)},
    {"cuMemRelease", offsetof(struct driver, memRelease)},
    {"cuMemAddressReserve", offsetof(struct driver, memAddressReserve)},
    {"cuMemAddressFree", offsetof(struct driver, memAddressFree)},
    {"cuMemMap", offsetof(struct driver, memMap)},
    {"cuMemUnmap", offsetof(struct driver, memUnmap)},
    {"cuMemSetAccess", offsetof(struct driver, memSetAccess)},
    {"cuMemExportToShareableHandle", offsetof(struct driver, memExportToShareableHandle)},
    {"cuMemImportFromShareableHandle", offsetof(struct driver, memImportFromShareableHandle)},
    {"cuDeviceGetAttribute", offsetof(struct driver, deviceGetAttribute)},
};

static void look_up(void) {
  for (size_t i = 0; i < sizeof entries / sizeof entries[0]; ++i) {
    void* function = NULL;
    enum cudaDriverEntryPointQueryResult found;
    const cudaError_t error =
        cudaGetDriverEntryPointByVersion(entries[i].symbol, &function, NEEDED_VERSION, cudaEnableDefault, &found);
    if (error != cudaSuccess || found != cudaDriverEntryPointSuccess || !function) {
      cudaGetLastError();
      missing = entries[i].symbol;
      return;
    }
    memcpy((unsigned char*)&table + entries[i].offset, &function, sizeof function);
  }
}

arfusionResult_t driver_get(const struct driver** out) {
  pthread_once(&once, look_up);
  if (missing) return error_set(arfusionUnhandledCudaError, "the CUDA driver has no %s", missing);
  *out = &table;
  return arfusionSuccess;
}

arfusionResult_t driver_error(const struct driver* driver, CUresult code, const char* call) {
  const char* text = NULL;
  driver->getErrorString(code, &text);
  return error_set(code == CUDA_ERROR_OUT_OF_MEMORY ? arfusionSystemError : arfusionUnhandledCudaError, "%s: %s (%d)",
                   call, text ? text : "unknown error", code);
}

arfusionResult_t cuda_error(cudaError_t code, const char* call) {
  cudaGetLastError(); /* the application must not find our error as its own */
  return error_set(code == cudaErrorMemoryAllocation ? arfusionSystemError : arfusionUnhandledCudaError, "%s: %s (%d)",
                   call, cudaGetErrorString(code), code);
}
