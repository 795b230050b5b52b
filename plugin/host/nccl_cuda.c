/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_cuda.c: NCCL, opened at run time. The few functions that are needed are declared here with NCCL's C ABI (result
 * codes, data types and operations have the same values as ours: plugin/core/abi_check.c), so its header is not.
 */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/core/log.h"
#include "plugin/host/library.h"
#include "plugin/host/nccl_gather.h"

typedef struct {
  char internal[128];
} nccl_unique_id;

struct nccl_functions {
  const char* (*GetErrorString)(int);
  int (*GetUniqueId)(nccl_unique_id*);
  int (*CommInitRank)(void**, int, nccl_unique_id, int);
  int (*CommAbort)(void*);
  int (*CommDestroy)(void*);
  int (*CommCount)(const void*, int*);
  int (*CommUserRank)(const void*, int*);
  int (*CommCuDevice)(const void*, int*);
  int (*AllReduce)(const void*, void*, size_t, int, int, void*, cudaStream_t);
  int (*AllGather)(const void*, void*, size_t, int, void*, void*);
  int (*CommGetAsyncError)(void*, int*);
};

struct library_nccl {
  const struct nccl_functions* functions;
  void* comm;
  int owned, dev, nranks;
  struct nccl_gather gather; /* of an adopted communicator */
};

static struct nccl_functions table;
static int table_ready;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static const struct {
  const char* symbol;
  size_t offset;
} entries[] = {
    {"ncclGetErrorString", offsetof(struct nccl_functions, GetErrorString)},
    {"ncclGetUniqueId", offsetof(struct nccl_functions, GetUniqueId)},
    {"ncclCommInitRank", offsetof(struct nccl_functions, CommInitRank)},
    {"ncclCommAbort", offsetof(struct nccl_functions, CommAbort)},
    {"ncclCommDestroy", offsetof(struct nccl_functions, CommDestroy)},
    {"ncclCommCount", offsetof(struct nccl_functions, CommCount)},
    {"ncclCommUserRank", offsetof(struct nccl_functions, CommUserRank)},
    {"ncclCommCuDevice", offsetof(struct nccl_functions, CommCuDevice)},
    {"ncclAllReduce", offsetof(struct nccl_functions, AllReduce)},
    {"ncclAllGather", offsetof(struct nccl_functions, AllGather)},
    {"ncclCommGetAsyncError", offsetof(struct nccl_functions, CommGetAsyncError)},
};

static void* open_nccl(const struct library* library) {
  const char* named = library->settings.text[SETTING_NCCL_LIB];
  if (named[0]) return dlopen(named, RTLD_NOW | RTLD_LOCAL);
  void* handle = dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD); /* the application's own comes first */
  return handle ? handle : dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
}

/* NULL, with the reason in `why`, if there is no usable libnccl. A libnccl stays open once it was used. */
static const struct nccl_functions* functions_get(const struct library* library, const char** why) {
  pthread_mutex_lock(&mutex);
  if (!table_ready) {
    void* handle = open_nccl(library);
    *why = handle ? NULL : dlerror();
    for (size_t i = 0; handle && !*why && i < sizeof entries / sizeof entries[0]; ++i) {
      void* function = dlsym(handle, entries[i].symbol);
      if (!function) *why = dlerror();
      memcpy((unsigned char*)&table + entries[i].offset, &function, sizeof function);
    }
    table_ready = !*why;
    if (handle && !table_ready) dlclose(handle);
  }
  const struct nccl_functions* functions = table_ready ? &table : NULL;
  pthread_mutex_unlock(&mutex);
  return functions;
}

static arfusionResult_t nccl_failed(const struct nccl_functions* functions, int code, const char* call) {
  return error_set((arfusionResult_t)code, "%s: %s (%d)", call, functions->GetErrorString(code), code);
}

static arfusionResult_t cuda_failed(cudaError_t code, const char* call) {
  cudaGetLastError();
  return error_set(arfusionUnhandledCudaError, "%s: %s (%d)", call, cudaGetErrorString(code), code);
}

/* ---------------------------------------------------------------- a communicator of our own */

struct offer { /* what each rank tells the others */
  int32_t usable; /* NCCL was found here */
  int32_t reserved;
  char device[16]; /* UUID of the GPU */
  nccl_unique_id id;
};

/* Whether all ranks have NCCL and a GPU of their own. */
static int offers_fit(const struct offer* offers, int nranks) {
  for (int r = 0; r < nranks; ++r) {
    if (!offers[r].usable) return 0;
    for (int s = 0; s < r; ++s) {
      if (!memcmp(offers[r].device, offers[s].device, sizeof offers[r].device)) return 0;
    }
  }
  return 1;
}

static arfusionResult_t create_on_device(struct arfusionComm* comm, const struct nccl_functions* functions,
                                         struct offer* offers) {
  struct offer* mine = &offers[comm->nranks];
  struct cudaDeviceProp prop;
  const cudaError_t code = cudaGetDeviceProperties(&prop, comm->dev);
  mine->usable = functions && code == cudaSuccess;
  if (code == cudaSuccess) memcpy(mine->device, &prop.uuid, sizeof mine->device);
  if (mine->usable && comm->rank == 0) mine->usable = functions->GetUniqueId(&mine->id) == 0;
  const arfusionResult_t gathered = comm->bootstrap.allGather(comm->bootstrap.opaque, mine, offers, sizeof *mine);
  if (gathered != arfusionSuccess) return error_set(gathered, "the ranks' all-gather failed while NCCL was set up");
  if (!offers_fit(offers, comm->nranks)) {
    LOG_INFO(ARFUSION_LOG_INIT, "no NCCL communicator: a rank has no libnccl, or ranks share a GPU");
    return arfusionSuccess;
  }
  struct library_nccl* nccl = calloc(1, sizeof *nccl);
  if (!nccl) return error_set(arfusionSystemError, "out of memory for an NCCL communicator");
  *nccl = (struct library_nccl){.functions = functions, .owned = 1, .dev = comm->dev, .nranks = comm->nranks};
  const int result = functions->CommInitRank(&nccl->comm, comm->nranks, offers[0].id, comm->rank);
  if (result) {
    free(nccl);
    return nccl_failed(functions, result, "ncclCommInitRank");
  }
  comm->nccl = nccl;
  return arfusionSuccess;
}

arfusionResult_t nccl_create(struct arfusionComm* comm) {
  const char* why = NULL;
  int previous;
  if (comm->nranks == 1 || !comm->bootstrap.allGather) return arfusionSuccess;
  const struct nccl_functions* functions = functions_get(comm->library, &why);
  if (!functions) LOG_INFO(ARFUSION_LOG_INIT, "no NCCL: %s", why);
  FORWARD_IF_ERROR(cuda_current_device(&previous));
  struct offer* offers = calloc((size_t)comm->nranks + 1, sizeof *offers);
  if (!offers) return error_set(arfusionSystemError, "out of memory for NCCL's set-up");
  const cudaError_t code = cudaSetDevice(comm->dev);
  const arfusionResult_t result =
      code == cudaSuccess ? create_on_device(comm, functions, offers) : cuda_failed(code, "cudaSetDevice");
  cudaSetDevice(previous);
  free(offers);
  return result;
}

/* ---------------------------------------------------------------- the caller's communicator */

arfusionResult_t nccl_adopt(struct arfusionComm* comm, const struct library* library, void* nccl_comm) {
  const char* why = NULL;
  int result;
  if (library->is_host) return error_set(arfusionInvalidUsage, "an ncclComm_t needs GPUs, but the device is the host");
  const struct nccl_functions* functions = functions_get(library, &why);
  if (!functions) return error_set(arfusionSystemError, "no NCCL for the ncclComm_t: %s", why);
  struct library_nccl* nccl = calloc(1, sizeof *nccl);
  if (!nccl) return error_set(arfusionSystemError, "out of memory for an NCCL communicator");
  *nccl = (struct library_nccl){.functions = functions, .comm = nccl_comm};
  if ((result = functions->CommCount(nccl_comm, &nccl->nranks)) ||
      (result = functions->CommUserRank(nccl_comm, &comm->bootstrap.rank)) ||
      (result = functions->CommCuDevice(nccl_comm, &nccl->dev))) {
    free(nccl);
    return nccl_failed(functions, result, "asking the ncclComm_t for its ranks and device");
  }
  nccl->gather = (struct nccl_gather){.where = &nccl_gather_cuda,
                                      .all_gather = functions->AllGather,
                                      .async_error = functions->CommGetAsyncError,
                                      .error_string = functions->GetErrorString,
                                      .comm = nccl_comm,
                                      .dev = nccl->dev,
                                      .nranks = nccl->nranks,
                                      .limit_s = library->settings.value[SETTING_INIT_TIMEOUT]};
  const arfusionResult_t opened = nccl_gather_open(&nccl->gather);
  if (opened != arfusionSuccess) {
    free(nccl);
    return opened;
  }
  comm->dev = nccl->dev;
  comm->bootstrap.nranks = nccl->nranks;
  comm->bootstrap.opaque = &nccl->gather;
  comm->bootstrap.allGather = nccl_gather_run;
  comm->nccl = nccl;
  return arfusionSuccess;
}

/* ---------------------------------------------------------------- either */

arfusionResult_t nccl_enqueue_all_reduce(const struct library_nccl* nccl, const void* send, void* receive, size_t count,
                                         arfusionDataType_t dtype, arfusionRedOp_t operation, void* stream) {
  const int result = nccl->functions->AllReduce(send, receive, count, dtype, operation, nccl->comm, stream);
  return result ? nccl_failed(nccl->functions, result, "ncclAllReduce") : arfusionSuccess;
}

void nccl_abort(struct library_nccl* nccl) {
  if (!nccl->owned || !nccl->comm) return;
  nccl->functions->CommAbort(nccl->comm);
  nccl->comm = NULL;
}

void nccl_destroy(struct library_nccl* nccl) {
  if (nccl->owned && nccl->comm) nccl->functions->CommDestroy(nccl->comm);
  if (!nccl->owned) nccl_gather_close(&nccl->gather);
  free(nccl);
}
