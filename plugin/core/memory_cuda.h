/* SPDX-License-Identifier: Apache-2.0
 *
 * memory_cuda.h: device memory that every rank maps. By default virtual-memory allocations that travel as file
 * descriptors: each rank holds a mapping of its own, in one process too, and the last release frees. Where that is not
 * supported, or with ARFUSION_IPC=legacy, cudaMalloc and cudaIpc handles; ranks of one process then use each other's
 * pointers.
 */
#ifndef ARFUSION_CORE_MEMORY_CUDA_H_
#define ARFUSION_CORE_MEMORY_CUDA_H_

#include "plugin/core/device.h"
#include "plugin/core/driver_cuda.h"

struct shared_memory {
  int rank, nranks;
  int legacy;
  size_t bytes;                                           /* of each rank's, rounded up to what the device maps */
  void* address[ARFUSION_MAX_RANKS];                      /* as mapped here */
  CUmemGenericAllocationHandle handle[ARFUSION_MAX_RANKS]; /* 0: none */
  int opened[ARFUSION_MAX_RANKS];                         /* legacy: an IPC handle was opened */
};

/* Whether `dev` can do without cudaIpc. */
int shared_memory_supported(int dev);

/* Allocates and maps the own part. */
arfusionResult_t shared_memory_create(struct shared_memory* memory, int dev, int rank, int nranks, size_t bytes,
                                      int legacy);

/* Maps everybody's; all ranks call it together and get the same result. */
arfusionResult_t shared_memory_exchange(struct shared_memory* memory, int dev, const struct device_setup* setup);

/* Whatever was made of it. */
void shared_memory_destroy(struct shared_memory* memory);

#endif
