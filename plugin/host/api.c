/* SPDX-License-Identifier: Apache-2.0
 *
 * api.c: the functions of arfusion.h.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/core/log.h"
#include "plugin/core/structs.h"
#include "plugin/host/library.h"

#define NOT_NULL(pointer) \
  if (!(pointer)) return error_set(arfusionInvalidArgument, #pointer " is NULL")

/* ---------------------------------------------------------------- errors, devices */

const char* arfusionGetErrorString(arfusionResult_t result) {
  switch (result) {
    case arfusionSuccess: return "success";
    case arfusionUnhandledCudaError: return "a CUDA call failed";
    case arfusionSystemError: return "the operating system refused something: memory, sockets, files";
    case arfusionInternalError: return "internal error";
    case arfusionInvalidArgument: return "invalid argument";
    case arfusionInvalidUsage: return "invalid usage";
    case arfusionRemoteError: return "another rank failed, left, or did not answer in time";
    case arfusionInProgress: return "in progress";
  }
  return "unknown result code";
}

const char* arfusionGetLastError(void) { return error_last(); }

const char* arfusionReasonString(arfusionReason_t reason) {
  const struct library* library;
  return library_get(&library) == arfusionSuccess ? library->plugin->reasonString(reason) : "unknown reason";
}

arfusionResult_t arfusionGetDeviceCount(int* ndev) {
  const struct library* library;
  NOT_NULL(ndev);
  FORWARD_IF_ERROR(library_get(&library));
  FORWARD_PLUGIN(library, devices(library->ctx, ndev));
  return arfusionSuccess;
}

arfusionResult_t arfusionGetProperties(int dev, arfusionProperties_t* props) {
  const struct library* library;
  FORWARD_IF_ERROR(library_get(&library));
  FORWARD_PLUGIN(library, getProperties(library->ctx, dev, props));
  return arfusionSuccess;
}

/* ---------------------------------------------------------------- making communicators */

/* arfusionConfig_t's default. */
static const int64_t default_tokens = 16384, default_hidden = 8192;

static struct arfusionComm* comm_new(const struct library* library, const arfusionConfig_t* config) {
  struct arfusionComm* comm = calloc(1, sizeof *comm);
  if (!comm) {
    error_set(arfusionSystemError, "out of memory for a communicator");
    return NULL;
  }
  comm->library = library;
  comm->bootstrap.size = sizeof comm->bootstrap;
  /* The plugin checks the configuration; only its metadata is kept here. */
  comm->max_tokens = default_tokens;
  comm->hidden = default_hidden;
  if (config && config->size >= ARFUSION_CONFIG_V1_SIZE && (config->maxTokens || config->hidden)) {
    comm->max_tokens = config->maxTokens;
    comm->hidden = config->hidden;
  }
  return comm;
}

static void comm_free(struct arfusionComm* comm) {
  const struct library* library = comm->library;
#ifdef ARFUSION_HAVE_CUDA
  if (comm->nccl) nccl_destroy(comm->nccl);
#endif
  if (comm->plugin_comm) library->plugin->commFinalize(comm->plugin_comm);
  if (comm->owns_bootstrap) library->plugin->bootstrapDestroy(library->ctx, &comm->bootstrap);
  free(comm);
}

static arfusionResult_t default_device(const struct library* library, int* dev) {
  if (*dev != -1) return arfusionSuccess;
  *dev = 0;
#ifdef ARFUSION_HAVE_CUDA
  if (!library->is_host) return cuda_current_device(dev);
#else
  (void)library;
#endif
  return arfusionSuccess;
}

/* comm->bootstrap and comm->dev are there: everything else. Frees `comm` if it fails. */
static arfusionResult_t comm_complete(struct arfusionComm* comm, const arfusionConfig_t* config, arfusionComm_t* out) {
  const struct library* library = comm->library;
  comm->rank = comm->bootstrap.rank;
  comm->nranks = comm->bootstrap.nranks;
  arfusionResult_t result = default_device(library, &comm->dev);
  if (result == arfusionSuccess) {
    result = library->plugin->commInit(library->ctx, comm->dev, config, &comm->bootstrap, &comm->plugin_comm);
    if (result != arfusionSuccess) library_forward(library, result);
  }
#ifdef ARFUSION_HAVE_CUDA
  if (result == arfusionSuccess && !library->is_host && !comm->nccl) result = nccl_create(comm);
#endif
  if (result != arfusionSuccess) {
    comm_free(comm);
    return result;
  }
  *out = comm;
  return arfusionSuccess;
}

arfusionResult_t arfusionGetUniqueId(arfusionUniqueId_t* id) {
  const struct library* library;
  NOT_NULL(id);
  FORWARD_IF_ERROR(library_get(&library));
  FORWARD_PLUGIN(library, getUniqueId(library->ctx, id));
  return arfusionSuccess;
}

arfusionResult_t arfusionCommInitRank(arfusionComm_t* comm, int nranks, const arfusionUniqueId_t* id, int rank, int dev,
                                      const arfusionConfig_t* config) {
  const struct library* library;
  NOT_NULL(comm);
  NOT_NULL(id);
  FORWARD_IF_ERROR(library_get(&library));
  struct arfusionComm* own = comm_new(library, config);
  if (!own) return arfusionSystemError;
  const arfusionResult_t result = library->plugin->bootstrapUniqueId(library->ctx, id, nranks, rank, &own->bootstrap);
  if (result != arfusionSuccess) {
    free(own);
    return library_forward(library, result);
  }
  own->owns_bootstrap = 1;
  own->dev = dev;
  return comm_complete(own, config, comm);
}

arfusionResult_t arfusionCommInitEnvironment(arfusionComm_t* comm, const arfusionConfig_t* config) {
  const struct library* library;
  int local_rank;
  NOT_NULL(comm);
  FORWARD_IF_ERROR(library_get(&library));
  struct arfusionComm* own = comm_new(library, config);
  if (!own) return arfusionSystemError;
  const arfusionResult_t result = library->plugin->bootstrapEnvironment(library->ctx, &own->bootstrap, &local_rank);
  if (result != arfusionSuccess) {
    free(own);
    return library_forward(library, result);
  }
  own->owns_bootstrap = 1;
  own->dev = library->is_host ? 0 : local_rank;
  return comm_complete(own, config, comm);
}

arfusionResult_t arfusionCommInitBootstrap(arfusionComm_t* comm, const arfusionBootstrap_t* bootstrap, int dev,
                                           const arfusionConfig_t* config) {
  const struct library* library;
  NOT_NULL(comm);
  FORWARD_IF_ERROR(library_get(&library));
  struct arfusionComm* own = comm_new(library, config);
  if (!own) return arfusionSystemError;
  const arfusionResult_t result =
      struct_read(&own->bootstrap, sizeof own->bootstrap, bootstrap, ARFUSION_BOOTSTRAP_V1_SIZE, "bootstrap");
  if (result != arfusionSuccess) {
    free(own);
    return result;
  }
  own->dev = dev;
  return comm_complete(own, config, comm);
}

arfusionResult_t arfusionCommInitNccl(arfusionComm_t* comm, void* ncclComm, const arfusionConfig_t* config) {
  NOT_NULL(comm);
  NOT_NULL(ncclComm);
#ifdef ARFUSION_HAVE_CUDA
  const struct library* library;
  FORWARD_IF_ERROR(library_get(&library));
  struct arfusionComm* own = comm_new(library, config);
  if (!own) return arfusionSystemError;
  const arfusionResult_t result = nccl_adopt(own, library, ncclComm);
  if (result != arfusionSuccess) {
    free(own);
    return result;
  }
  return comm_complete(own, config, comm);
#else
  (void)config;
  return error_set(arfusionInvalidUsage, "this libarfusion was built without CUDA: no communicator from an ncclComm_t");
#endif
}

struct rank_thread {
  pthread_t thread;
  arfusionComm_t comm;
  const arfusionUniqueId_t* id;
  const arfusionConfig_t* config;
  int nranks, rank, dev;
  arfusionResult_t result;
  char error[512];
};

static void* rank_thread_run(void* argument) {
  struct rank_thread* self = argument;
  self->result = arfusionCommInitRank(&self->comm, self->nranks, self->id, self->rank, self->dev, self->config);
  if (self->result != arfusionSuccess) strncpy(self->error, error_last(), sizeof self->error - 1);
  return NULL;
}

arfusionResult_t arfusionCommInitAll(arfusionComm_t* comms, int nranks, const int* devs,
                                     const arfusionConfig_t* config) {
  arfusionUniqueId_t id;
  int ndev, started = 0;
  NOT_NULL(comms);
  if (nranks < 1 || nranks > ARFUSION_MAX_INIT_ALL) {
    return error_set(arfusionInvalidArgument, "nranks is %d, 1 to %d", nranks, ARFUSION_MAX_INIT_ALL);
  }
  FORWARD_IF_ERROR(arfusionGetDeviceCount(&ndev));
  FORWARD_IF_ERROR(arfusionGetUniqueId(&id));
  struct rank_thread* threads = calloc((size_t)nranks, sizeof *threads);
  if (!threads) return error_set(arfusionSystemError, "out of memory for %d ranks", nranks);
  for (; started < nranks; ++started) {
    threads[started] = (struct rank_thread){.id = &id, .config = config, .nranks = nranks, .rank = started,
                                            .dev = devs ? devs[started] : started % ndev};
    if (pthread_create(&threads[started].thread, NULL, rank_thread_run, &threads[started])) break;
  }
  for (int r = 0; r < started; ++r) pthread_join(threads[r].thread, NULL);
  arfusionResult_t result = started == nranks ? arfusionSuccess
                                              : error_set(arfusionSystemError, "no thread for rank %d", started);
  for (int r = 0; r < started && result == arfusionSuccess; ++r) {
    if (threads[r].result != arfusionSuccess) result = error_keep(threads[r].result, threads[r].error);
  }
  for (int r = 0; r < started; ++r) {
    if (result == arfusionSuccess) {
      comms[r] = threads[r].comm;
    } else if (threads[r].comm) {
      comm_free(threads[r].comm);
    }
  }
  free(threads);
  return result;
}

/* ---------------------------------------------------------------- using them */

arfusionResult_t arfusionCommDestroy(arfusionComm_t comm) {
  if (comm) comm_free(comm);
  return arfusionSuccess;
}

arfusionResult_t arfusionCommAbort(arfusionComm_t comm) {
  NOT_NULL(comm);
  FORWARD_PLUGIN(comm->library, commAbort(comm->plugin_comm));
  if (comm->owns_bootstrap) FORWARD_PLUGIN(comm->library, bootstrapAbort(comm->library->ctx, &comm->bootstrap));
#ifdef ARFUSION_HAVE_CUDA
  if (comm->nccl) nccl_abort(comm->nccl);
#endif
  return arfusionSuccess;
}

arfusionResult_t arfusionCommGetAsyncError(arfusionComm_t comm, arfusionResult_t* result, char* text, size_t bytes) {
  NOT_NULL(comm);
  FORWARD_PLUGIN(comm->library, commGetAsyncError(comm->plugin_comm, result, text, bytes));
  return arfusionSuccess;
}

arfusionResult_t arfusionCommCount(arfusionComm_t comm, int* nranks) {
  NOT_NULL(comm);
  NOT_NULL(nranks);
  *nranks = comm->nranks;
  return arfusionSuccess;
}

arfusionResult_t arfusionCommUserRank(arfusionComm_t comm, int* rank) {
  NOT_NULL(comm);
  NOT_NULL(rank);
  *rank = comm->rank;
  return arfusionSuccess;
}

arfusionResult_t arfusionCommDevice(arfusionComm_t comm, int* dev) {
  NOT_NULL(comm);
  NOT_NULL(dev);
  *dev = comm->dev;
  return arfusionSuccess;
}

arfusionResult_t arfusionCommGetCapacity(arfusionComm_t comm, arfusionCapacity_t* capacity) {
  NOT_NULL(comm);
  FORWARD_PLUGIN(comm->library, commGetCapacity(comm->plugin_comm, capacity));
  return arfusionSuccess;
}

arfusionResult_t arfusionCommGetStats(arfusionComm_t comm, arfusionStats_t* stats) {
  NOT_NULL(comm);
  FORWARD_PLUGIN(comm->library, commGetStats(comm->plugin_comm, stats));
  return arfusionSuccess;
}

arfusionResult_t arfusionCommGetWorkspace(arfusionComm_t comm, arfusionWorkspace_t* workspace) {
  NOT_NULL(comm);
  FORWARD_PLUGIN(comm->library, commGetWorkspace(comm->plugin_comm, workspace));
  return arfusionSuccess;
}

arfusionResult_t arfusionCommGetWorkspaceMetadata(arfusionComm_t comm, int use_fp32_lamport,
                                                  arfusionWorkspaceMetadata_t* metadata) {
  static const int64_t largest_lamport = (1LL << 31) - (1LL << 21);
  NOT_NULL(comm);
  FORWARD_IF_ERROR(struct_check_output(metadata, ARFUSION_WORKSPACE_METADATA_V1_SIZE, "metadata"));
  const int64_t elements = comm->nranks * comm->max_tokens * comm->hidden;
  arfusionWorkspaceMetadata_t own = {
      .size = sizeof own,
      .tp_rank = comm->rank,
      .tp_size = comm->nranks,
      .max_token_num = comm->max_tokens,
      .hidden_dim = comm->hidden,
      .use_fp32_lamport = use_fp32_lamport != 0,
      .buffer_size = elements * 2,
      .flag_size = (int64_t)comm->nranks * 256 * 4,
      .lamport_comm_size = elements * (use_fp32_lamport ? 4 : 2),
  };
  if (own.lamport_comm_size > largest_lamport) own.lamport_comm_size = largest_lamport;
  own.lamport_buffer_size = own.lamport_comm_size * 3;
  struct_write(metadata, &own, sizeof own);
  return arfusionSuccess;
}

arfusionResult_t arfusionAllReduce(arfusionComm_t comm, const arfusionRequest_t* request, void* stream,
                                   arfusionRoute_t* route) {
  arfusionRoute_t own = {.size = sizeof own};
  NOT_NULL(comm);
  if (route) FORWARD_IF_ERROR(struct_check_output(route, ARFUSION_ROUTE_V1_SIZE, "route"));
  FORWARD_PLUGIN(comm->library, enqueue(comm->plugin_comm, request, stream, &own));
  if (route) struct_write(route, &own, sizeof own);
  if (own.algorithm != arfusionAlgoNone) return arfusionSuccess;
  arfusionRequest_t dense; /* the caller's may be of another version */
  FORWARD_IF_ERROR(struct_read(&dense, sizeof dense, request, ARFUSION_REQUEST_V1_SIZE, "request"));
  if (dense.pattern == arfusionPatternResidualRmsNorm) {
    arfusionRequest_t question = dense;
    question.tokens = 0;
    FORWARD_PLUGIN(comm->library, epilogue(comm->plugin_comm, &question, stream));
  }
#ifdef ARFUSION_HAVE_CUDA
  if (!comm->library->is_host) return complete_on_cuda(comm, &dense, stream);
#endif
  return complete_on_host(comm, &dense);
}

arfusionResult_t arfusionEpilogue(arfusionComm_t comm, const arfusionRequest_t* request, void* stream) {
  NOT_NULL(comm);
  FORWARD_PLUGIN(comm->library, epilogue(comm->plugin_comm, request, stream));
  return arfusionSuccess;
}
