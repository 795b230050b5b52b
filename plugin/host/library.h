/* SPDX-License-Identifier: Apache-2.0
 *
 * library.h: what the files of libarfusion share.
 */
#ifndef ARFUSION_HOST_LIBRARY_H_
#define ARFUSION_HOST_LIBRARY_H_

#include "arfusion.h"
#include "plugin/core/settings.h"
#include "plugin/host/plugin_load.h"

/* The process's plugin, opened and started when it is first needed. */
struct library {
  const arfusionPlugin_v1_t* plugin;
  void* ctx;
  int is_host;
  struct settings settings;
};

struct library_nccl; /* nccl_cuda.c */

struct arfusionComm {
  const struct library* library;
  void* plugin_comm;
  int dev, rank, nranks;
  int64_t max_tokens, hidden;     /* of the configuration */
  arfusionBootstrap_t bootstrap;  /* used on after set-up: by what completes requests on the host device */
  int owns_bootstrap;
  struct library_nccl* nccl;      /* NULL: none */
};

/* library.c. A failure is not remembered: the next call tries again. */
arfusionResult_t library_get(const struct library** out);

/* Passes a plugin's result on, with its text as this thread's last error. */
arfusionResult_t library_forward(const struct library* library, arfusionResult_t result);
#define FORWARD_PLUGIN(library, call)                                              \
  do {                                                                             \
    const arfusionResult_t plugin_result_ = (library)->plugin->call;               \
    if (plugin_result_ != arfusionSuccess) return library_forward(library, plugin_result_); \
  } while (0)

/* complete_host.c: a request that the plugin turned down, on the host device. */
arfusionResult_t complete_on_host(struct arfusionComm* comm, const arfusionRequest_t* request);

#ifdef ARFUSION_HAVE_CUDA
/* complete_cuda.c: the same on a GPU, asynchronously on `stream`. */
arfusionResult_t complete_on_cuda(struct arfusionComm* comm, const arfusionRequest_t* request, void* stream);

/* The calling thread's current CUDA device. */
arfusionResult_t cuda_current_device(int* dev);

/* nccl_cuda.c: an NCCL communicator for `comm`, made over its bootstrap by all ranks together. Where there is no
 * libnccl, or ranks share a GPU, it succeeds with comm->nccl NULL. */
arfusionResult_t nccl_create(struct arfusionComm* comm);

/* Around the caller's ncclComm_t: fills in dev, bootstrap and nccl. */
arfusionResult_t nccl_adopt(struct arfusionComm* comm, const struct library* library, void* nccl_comm);

/* An allreduce of `count` elements on `stream`. */
arfusionResult_t nccl_enqueue_all_reduce(const struct library_nccl* nccl, const void* send, void* receive, size_t count,
                                         arfusionDataType_t dtype, arfusionRedOp_t operation, void* stream);

void nccl_abort(struct library_nccl* nccl);
void nccl_destroy(struct library_nccl* nccl);
#endif

#endif
