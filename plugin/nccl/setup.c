/* SPDX-License-Identifier: Apache-2.0
 *
 * setup.c: see setup.h.
 */
#include "plugin/nccl/setup.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "plugin/core/log.h"
#include "plugin/host/library.h"
#include "plugin/host/nccl_gather.h"
#include "plugin/nccl/gather_host.h"
#include "plugin/nccl/real.h"
#include "plugin/nccl/stats.h"

#ifdef ARFUSION_HAVE_CUDA
#include <cuda_runtime_api.h>
#endif

/* ---------------------------------------------------------------- the plugin, once a process */

struct server {
  const struct library* library; /* NULL: there is no plugin, or it is for other memory than this NCCL's */
  const struct nccl_gather_memory* memory; /* where NCCL's buffers are; NULL: this build cannot make any there */
  int64_t limit_s;
};

static pthread_once_t server_once = PTHREAD_ONCE_INIT;
static struct server server;

/* NCCL waits for ever, so that is what its applications expect; and they have no use for what NCCL does faster. */
static const struct {
  const char *name, *value;
} defaults[] = {{"ARFUSION_TIMEOUT", "0"}, {"ARFUSION_PREFER", "speed"}};

enum { limit_without_plugin = 120 }; /* ARFUSION_INIT_TIMEOUT's default */

static void server_start(void) {
  const struct library* library;
  server.memory = gather_host();
  const int host_memory = server.memory != NULL;
#ifdef ARFUSION_HAVE_CUDA
  if (!host_memory) server.memory = &nccl_gather_cuda;
#endif
  server.limit_s = limit_without_plugin;
  if (library_get(&library) != arfusionSuccess) return;
  server.limit_s = library->settings.value[SETTING_INIT_TIMEOUT];
  for (size_t i = 0; i < sizeof defaults / sizeof defaults[0]; ++i) {
    if (library->plugin->setDefault(library->ctx, defaults[i].name, defaults[i].value) != arfusionSuccess) return;
  }
  if (library->is_host == host_memory) {
    server.library = library;
  } else {
    LOG_WARN("NCCL runs on %s, the plugin's device is the %s: everything is left to NCCL",
             host_memory ? "the host" : "GPUs", library->is_host ? "host" : "GPU");
  }
}

static const struct server* server_get(void) {
  pthread_once(&server_once, server_start);
  return &server;
}

/* ---------------------------------------------------------------- one communicator */

static const uint64_t hello_magic = 0x4c43434e53554641; /* "AFUSNCCL" */

struct hello { /* what each rank sends first; its size never changes */
  uint64_t magic;
  int32_t version;
  int32_t usable; /* there is a plugin here */
  int32_t rank;
  int32_t reserved[11];
};

enum { HELLO_VERSION = 1 };

static void leave_to_nccl(struct state* state, int reason) {
  atomic_store(&state->reason, reason);
  atomic_store(&state->phase, STATE_LEFT);
}

/* NCCL's operations belong to no application's call while this runs. */
static int real_all_gather(const void* send, void* receive, size_t count, int type, void* comm, void* stream) {
  return CALL_REAL(ncclAllGather, send, receive, count, type, comm, stream);
}

static int real_async_error(void* comm, int* error) { return CALL_REAL(ncclCommGetAsyncError, comm, error); }

static arfusionResult_t hellos_check(const struct hello* all, int nranks, int* usable) {
  *usable = 1;
  for (int r = 0; r < nranks; ++r) {
    if (all[r].magic != hello_magic || all[r].version != HELLO_VERSION || all[r].rank != r) {
      return error_set(
          arfusionInvalidUsage,
          "rank %d of %d does not run this version of libarfusion-nccl.so: all ranks must load it, or none", r, nranks);
    }
    *usable &= all[r].usable;
  }
  return arfusionSuccess;
}

static arfusionResult_t hello_exchange(struct nccl_gather* gather, int rank, int mine, int* usable) {
  const struct hello hello = {.magic = hello_magic, .version = HELLO_VERSION, .usable = mine, .rank = rank};
  struct hello all[ARFUSION_MAX_RANKS];
  gather->advice = "all ranks must load libarfusion-nccl.so, or none";
  FORWARD_IF_ERROR(nccl_gather_run(gather, &hello, all, sizeof hello));
  gather->advice = NULL;
  return hellos_check(all, gather->nranks, usable);
}

static arfusionResult_t comm_create(struct state* state, int rank) {
  struct nccl_gather* gather = &state->gather;
  const struct server* own = server_get();
  int usable;
  FORWARD_IF_ERROR(hello_exchange(gather, rank, own->library != NULL, &usable));
  if (!usable) {
    LOG_INFO(ARFUSION_LOG_INIT, "rank %d of %d: a rank has no plugin, everything is left to NCCL", rank,
             gather->nranks);
    leave_to_nccl(state, STATS_NO_PLUGIN);
    return arfusionSuccess;
  }
  const arfusionConfig_t config = {
      .size = sizeof config, .maxTokens = 1, .hidden = SETUP_MAX_BYTES / 2, .dataType = arfusionBfloat16};
  const arfusionBootstrap_t bootstrap = {.size = sizeof bootstrap,
                                         .rank = rank,
                                         .nranks = gather->nranks,
                                         .opaque = gather,
                                         .allGather = nccl_gather_run};
  state->plugin = own->library->plugin;
  if (state->plugin->commInit(own->library->ctx, gather->dev, &config, &bootstrap, &state->plugin_comm) !=
      arfusionSuccess) {
    /* The plugin has said why. It fails alike on all ranks; unless the all-gather did, NCCL goes on without it. */
    if (gather->stuck || atomic_load(&state->cancelled)) {
      return error_keep(arfusionRemoteError, state->plugin->getLastError());
    }
    LOG_INFO(ARFUSION_LOG_INIT, "rank %d of %d: everything is left to NCCL", rank, gather->nranks);
    leave_to_nccl(state, STATS_NO_PLUGIN);
    return arfusionSuccess;
  }
  atomic_store(&state->phase, STATE_SERVED);
  return arfusionSuccess;
}

static arfusionResult_t ask(const struct state* state, int* nranks, int* rank, int* dev) {
  int result = CALL_REAL(ncclCommCount, state->nccl, nranks);
  if (!result) result = CALL_REAL(ncclCommUserRank, state->nccl, rank);
  if (!result) result = CALL_REAL(ncclCommCuDevice, state->nccl, dev);
  return (arfusionResult_t)result;
}

static arfusionResult_t comm_ask_and_create(struct state* state) {
  const struct server* own = server_get();
  int nranks, rank, dev;
  FORWARD_IF_ERROR(ask(state, &nranks, &rank, &dev));
  if (nranks < 2 || nranks > ARFUSION_MAX_RANKS) {
    leave_to_nccl(state, arfusionReasonRankCount);
    return arfusionSuccess;
  }
  if (!own->memory) {
    leave_to_nccl(state, STATS_NO_PLUGIN);
    return arfusionSuccess;
  }
  state->gather = (struct nccl_gather){.where = own->memory,
                                       .all_gather = real_all_gather,
                                       .async_error = real_async_error,
                                       .error_string = REAL(ncclGetErrorString),
                                       .comm = state->nccl,
                                       .dev = dev,
                                       .nranks = nranks,
                                       .limit_s = own->limit_s,
                                       .cancelled = &state->cancelled,
                                       .calling = &state->calling};
  FORWARD_IF_ERROR(nccl_gather_open(&state->gather));
  const arfusionResult_t result = comm_create(state, rank);
  nccl_gather_close(&state->gather);
  return result;
}

int setup_run(struct state* state) {
  arfusionResult_t result = state_enter(state);
  if (result == arfusionSuccess) {
    result = comm_ask_and_create(state);
    if (result == arfusionSuccess) result = nccl_gather_check(&state->cancelled);
    state_leave(state);
  }
  if (result != arfusionSuccess) state_fail(state, result);
  return result;
}

struct setup_thread {
  pthread_t thread;
  struct state* state;
  int started, result;
  char error[1024];
};

static void* setup_thread_run(void* argument) {
  struct setup_thread* own = argument;
  own->result = setup_run(own->state);
  snprintf(own->error, sizeof own->error, "%s", error_last());
  return NULL;
}

int setup_run_all(struct state** states, int count) {
  struct setup_thread* threads = calloc((size_t)count, sizeof *threads);
  int result =
      threads ? NCCL_SUCCESS : error_set(arfusionSystemError, "out of memory to set %d communicators up", count);
  for (int i = 0; threads && i < count; ++i) {
    threads[i].state = states[i];
    threads[i].started = pthread_create(&threads[i].thread, NULL, setup_thread_run, &threads[i]) == 0;
    if (threads[i].started) continue;
    /* Without it the other ranks of its communicator wait in vain. */
    result = error_set(arfusionSystemError, "no thread to set a communicator up");
    state_fail(states[i], result);
  }
  for (int i = 0; threads && i < count; ++i) {
    if (!threads[i].started) continue;
    pthread_join(threads[i].thread, NULL);
    if (threads[i].result && !result) result = error_keep((arfusionResult_t)threads[i].result, threads[i].error);
  }
  free(threads);
  return result;
}

int setup_stream_is_capturing(void* stream) {
#ifdef ARFUSION_HAVE_CUDA
  enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (server_get()->memory != &nccl_gather_cuda) return 0;
  const cudaError_t code = cudaStreamIsCapturing(stream, &status);
  if (code == cudaSuccess) return status != cudaStreamCaptureStatusNone;
  cudaGetLastError(); /* the default stream, while another stream is being captured */
  return 1;
#else
  (void)stream;
  return 0;
#endif
}
