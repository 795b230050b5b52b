/* SPDX-License-Identifier: Apache-2.0
 *
 * driver_cuda.h: the CUDA driver's functions that the runtime does not have. They are looked up when first needed, so
 * nothing links libcuda and everything starts on a machine without it.
 */
#ifndef ARFUSION_CORE_DRIVER_CUDA_H_
#define ARFUSION_CORE_DRIVER_CUDA_H_

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "arfusion_plugin.h"

struct driver {
  CUresult (*getErrorString)(CUresult, const char**);
  CUresult (*memGetAllocationGranularity)(size_t*, const CUmemAllocationProp*, CUmemAllocationGranularity_flags);
  CUresult (*memCreate)(CUmemGenericAllocationHandle*, size_t, const CUmemAllocationProp*, unsigned long long);
  CUresult (*memRelease)(CUmemGenericAllocationHandle);
  CUresult (*memAddressReserve)(CUdeviceptr*, size_t, size_t, CUdeviceptr, unsigned long long);
  CUresult (*memAddressFree)(CUdeviceptr, size_t);
  CUresult (*memMap)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
  CUresult (*memUnmap)(CUdeviceptr, size_t);
  CUresult (*memSetAccess)(CUdeviceptr, size_t, const CUmemAccessDesc*, size_t);
  CUresult (*memExportToShareableHandle)(void*, CUmemGenericAllocationHandle, CUmemAllocationHandleType,
                                         unsigned long long);
  CUresult (*memImportFromShareableHandle)(CUmemGenericAllocationHandle*, void*, CUmemAllocationHandleType);
  CUresult (*deviceGetAttribute)(int*, CUdevice_attribute, CUdevice);
};

/* The table; an error if the driver lacks a function. Thread-safe. */
arfusionResult_t driver_get(const struct driver** out);

/* Records a failed CUDA call as this thread's error. */
arfusionResult_t driver_error(const struct driver* driver, CUresult code, const char* call);
arfusionResult_t cuda_error(cudaError_t code, const char* call);

/* Evaluates a runtime call; returns from the calling function with an error if it fails. */
#define CUDA_TRY(call)                                                  \
  do {                                                                  \
    const cudaError_t cuda_try_code_ = (call);                          \
    if (cuda_try_code_ != cudaSuccess) return cuda_error(cuda_try_code_, #call); \
  } while (0)

#define DRIVER_TRY(driver, call)                                                          \
  do {                                                                                    \
    const CUresult driver_try_code_ = (driver)->call;                                     \
    if (driver_try_code_ != CUDA_SUCCESS) return driver_error(driver, driver_try_code_, #call); \
  } while (0)

#endif
