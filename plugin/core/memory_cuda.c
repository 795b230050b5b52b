/* SPDX-License-Identifier: Apache-2.0
 *
 * memory_cuda.c: see memory_cuda.h.
 */
#include "plugin/core/memory_cuda.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plugin/core/bootstrap.h"
#include "plugin/core/log.h"

/* ---------------------------------------------------------------- virtual-memory allocations */

int shared_memory_supported(int dev) {
  const struct driver* driver;
  int mapping = 0, descriptors = 0;
  if (driver_get(&driver) != arfusionSuccess) return 0;
  driver->deviceGetAttribute(&mapping, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, dev);
  driver->deviceGetAttribute(&descriptors, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, dev);
  return mapping && descriptors;
}

/* Maps memory->handle[r] for use by `dev`. */
static arfusionResult_t map_handle(struct shared_memory* memory, int dev, int r) {
  const struct driver* driver;
  CUdeviceptr address = 0;
  FORWARD_IF_ERROR(driver_get(&driver));
  DRIVER_TRY(driver, memAddressReserve(&address, memory->bytes, 0, 0, 0));
  const CUresult mapped = driver->memMap(address, memory->bytes, 0, memory->handle[r], 0);
  if (mapped != CUDA_SUCCESS) {
    driver->memAddressFree(address, memory->bytes);
    return driver_error(driver, mapped, "memMap");
  }
  memory->address[r] = (void*)address;
  const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev},
                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  DRIVER_TRY(driver, memSetAccess(address, memory->bytes, &access, 1));
  return arfusionSuccess;
}

static arfusionResult_t create_handle(struct shared_memory* memory, int dev) {
  const struct driver* driver;
  const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                    .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = dev}};
  size_t granularity = 0;
  FORWARD_IF_ERROR(driver_get(&driver));
  DRIVER_TRY(driver, memGetAllocationGranularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED));
  memory->bytes = (memory->bytes + granularity - 1) / granularity * granularity;
  DRIVER_TRY(driver, memCreate(&memory->handle[memory->rank], memory->bytes, &prop, 0));
  return map_handle(memory, dev, memory->rank);
}

static arfusionResult_t import_handles(struct shared_memory* memory, int dev, int* fds) {
  const struct driver* driver;
  arfusionResult_t result = driver_get(&driver);
  for (int r = 0; r < memory->nranks; ++r) {
    if (fds[r] < 0) continue;
    if (result == arfusionSuccess) {
      const CUresult code = driver->memImportFromShareableHandle(&memory->handle[r], (void*)(intptr_t)fds[r],
                                                                 CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
      result = code == CUDA_SUCCESS ? map_handle(memory, dev, r)
                                    : driver_error(driver, code, "memImportFromShareableHandle");
    }
    close(fds[r]);
  }
  return result;
}

static arfusionResult_t exchange_handles(struct shared_memory* memory, int dev, const struct device_setup* setup) {
  const struct driver* driver;
  int fd = -1, fds[ARFUSION_MAX_RANKS];
  arfusionResult_t result = driver_get(&driver);
  if (result == arfusionSuccess) {
    const CUresult code = driver->memExportToShareableHandle(&fd, memory->handle[memory->rank],
                                                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
    if (code != CUDA_SUCCESS) result = driver_error(driver, code, "memExportToShareableHandle");
  }
  result = bootstrap_vote(setup->bootstrap, result);
  if (result == arfusionSuccess) {
    result = bootstrap_exchange_fds(setup->bootstrap, fd, fds, setup->settings->value[SETTING_INIT_TIMEOUT]);
    if (result == arfusionSuccess) result = import_handles(memory, dev, fds);
    result = bootstrap_vote(setup->bootstrap, result);
  }
  if (fd >= 0) close(fd);
  return result;
}

/* ---------------------------------------------------------------- legacy IPC */

/* A process of this host: a pid alone may be that of two, in containers with pid namespaces of their own. */
struct process {
  int64_t pid;
  uint64_t namespace; /* 0: not known, the same for all then */
};

struct legacy_handle {
  struct process process;
  int32_t dev, reserved;
  void* address;
  cudaIpcMemHandle_t ipc;
};

static struct process process_self(void) {
  struct stat status;
  return (struct process){.pid = getpid(), .namespace = stat("/proc/self/ns/pid", &status) ? 0 : status.st_ino};
}

static arfusionResult_t open_legacy(struct shared_memory* memory, int dev, int r, const struct legacy_handle* theirs) {
  const struct process self = process_self();
  if (theirs->process.pid != self.pid || theirs->process.namespace != self.namespace) {
    CUDA_TRY(cudaIpcOpenMemHandle(&memory->address[r], theirs->ipc, cudaIpcMemLazyEnablePeerAccess));
    memory->opened[r] = 1;
    return arfusionSuccess;
  }
  if (theirs->dev != dev) {
    const cudaError_t error = cudaDeviceEnablePeerAccess(theirs->dev, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled) {
      cudaGetLastError();
    } else if (error != cudaSuccess) {
      return cuda_error(error, "cudaDeviceEnablePeerAccess");
    }
  }
  memory->address[r] = theirs->address;
  return arfusionSuccess;
}

static arfusionResult_t exchange_legacy(struct shared_memory* memory, int dev, const struct device_setup* setup) {
  struct legacy_handle mine = {.process = process_self(), .dev = dev, .address = memory->address[memory->rank]};
  struct legacy_handle all[ARFUSION_MAX_RANKS];
  const cudaError_t error = cudaIpcGetMemHandle(&mine.ipc, mine.address);
  arfusionResult_t result = error == cudaSuccess ? arfusionSuccess : cuda_error(error, "cudaIpcGetMemHandle");
  result = bootstrap_vote(setup->bootstrap, result);
  if (result != arfusionSuccess) return result;
  FORWARD_IF_ERROR(bootstrap_all_gather(setup->bootstrap, &mine, all, sizeof mine));
  for (int r = 0; r < memory->nranks && result == arfusionSuccess; ++r) {
    if (r != memory->rank) result = open_legacy(memory, dev, r, &all[r]);
  }
  return bootstrap_vote(setup->bootstrap, result);
}

/* ---------------------------------------------------------------- either */

arfusionResult_t shared_memory_create(struct shared_memory* memory, int dev, int rank, int nranks, size_t bytes,
                                      int legacy) {
  *memory = (struct shared_memory){.rank = rank, .nranks = nranks, .legacy = legacy, .bytes = bytes};
  if (!legacy) return create_handle(memory, dev);
  CUDA_TRY(cudaMalloc(&memory->address[rank], bytes));
  return arfusionSuccess;
}

arfusionResult_t shared_memory_exchange(struct shared_memory* memory, int dev, const struct device_setup* setup) {
  return memory->legacy ? exchange_legacy(memory, dev, setup) : exchange_handles(memory, dev, setup);
}

void shared_memory_destroy(struct shared_memory* memory) {
  const struct driver* driver;
  if (memory->legacy) {
    for (int r = 0; r < memory->nranks; ++r) {
      if (memory->opened[r]) cudaIpcCloseMemHandle(memory->address[r]);
    }
    cudaFree(memory->address[memory->rank]);
    return;
  }
  if (driver_get(&driver) != arfusionSuccess) return;
  for (int r = 0; r < memory->nranks; ++r) {
    const CUdeviceptr address = (CUdeviceptr)memory->address[r];
    if (address) {
      driver->memUnmap(address, memory->bytes);
      driver->memAddressFree(address, memory->bytes);
    }
    if (memory->handle[r]) driver->memRelease(memory->handle[r]);
  }
}
