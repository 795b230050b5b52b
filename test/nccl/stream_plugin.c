/* SPDX-License-Identifier: Apache-2.0
 *
 * stream_plugin.c: the plugin on the host device, with the mock's streams in the place of CUDA's: enqueue returns at
 * once, and the operation runs on its stream, as it would on a GPU.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arfusion_plugin.h"
#include "test/nccl/mock/mock.h"

static const arfusionPlugin_v1_t* host;

/* What tests ask: communicators that have not been finalized, and the host's defaults as NAME=VALUE and a space each.
 * */
int streamPluginCommunicators(void);
const char* streamPluginDefaults(void);
static atomic_int communicators;
static char defaults[256];

struct comm {
  void* own;
  void* stream; /* what NULL stands for */
  pthread_mutex_t mutex;
  pthread_cond_t ended;
  uint64_t enqueued, done; /* operations; they run in this order, on whatever streams */
};

struct operation {
  struct comm* comm;
  arfusionRequest_t request;
  uint64_t number;
};

static arfusionResult_t stream_comm_init(void* ctx, int dev, const arfusionConfig_t* config,
                                         const arfusionBootstrap_t* bootstrap, void** out) {
  struct comm* comm = calloc(1, sizeof *comm);
  if (!comm) return arfusionSystemError;
  const arfusionResult_t result = host->commInit(ctx, dev, config, bootstrap, &comm->own);
  if (result != arfusionSuccess) {
    free(comm);
    return result;
  }
  pthread_mutex_init(&comm->mutex, NULL);
  pthread_cond_init(&comm->ended, NULL);
  comm->stream = mockStreamCreate();
  atomic_fetch_add(&communicators, 1);
  *out = comm;
  return arfusionSuccess;
}

static arfusionResult_t stream_route(void* comm, const arfusionRequest_t* request, arfusionRoute_t* route) {
  return host->route(((struct comm*)comm)->own, request, route);
}

/* An operation that fails has failed its communicator: that is what asynchronous errors are for. */
static void operation_run(void* argument) {
  struct operation* operation = argument;
  struct comm* comm = operation->comm;
  arfusionRoute_t route = {.size = sizeof route};
  pthread_mutex_lock(&comm->mutex);
  while (comm->done != operation->number) pthread_cond_wait(&comm->ended, &comm->mutex);
  pthread_mutex_unlock(&comm->mutex);
  host->enqueue(comm->own, &operation->request, NULL, &route);
  free(operation);
  pthread_mutex_lock(&comm->mutex);
  ++comm->done;
  pthread_cond_broadcast(&comm->ended);
  pthread_mutex_unlock(&comm->mutex);
}

static arfusionResult_t stream_enqueue(void* opaque, const arfusionRequest_t* request, void* stream,
                                       arfusionRoute_t* route) {
  struct comm* comm = opaque;
  arfusionResult_t result = host->route(comm->own, request, route);
  if (result != arfusionSuccess || route->algorithm == arfusionAlgoNone) return result;
  host->commGetAsyncError(comm->own, &result, NULL, 0);
  if (result != arfusionSuccess) return result;
  struct operation* operation = malloc(sizeof *operation);
  if (!operation) return arfusionSystemError;
  pthread_mutex_lock(&comm->mutex);
  *operation = (struct operation){comm, *request, comm->enqueued++};
  pthread_mutex_unlock(&comm->mutex);
  mockStreamRun(stream ? stream : comm->stream, operation_run, operation);
  return arfusionSuccess;
}

static arfusionResult_t stream_comm_finalize(void* opaque) {
  struct comm* comm = opaque;
  pthread_mutex_lock(&comm->mutex);
  while (comm->done != comm->enqueued) pthread_cond_wait(&comm->ended, &comm->mutex);
  pthread_mutex_unlock(&comm->mutex);
  mockStreamDestroy(comm->stream);
  atomic_fetch_sub(&communicators, 1);
  const arfusionResult_t result = host->commFinalize(comm->own);
  pthread_cond_destroy(&comm->ended);
  pthread_mutex_destroy(&comm->mutex);
  free(comm);
  return result;
}

static arfusionResult_t stream_comm_abort(void* comm) { return host->commAbort(((struct comm*)comm)->own); }

static arfusionResult_t stream_async_error(void* comm, arfusionResult_t* result, char* text, size_t bytes) {
  return host->commGetAsyncError(((struct comm*)comm)->own, result, text, bytes);
}

/* The library sets them once, before its first communicator. */
static arfusionResult_t stream_set_default(void* ctx, const char* name, const char* value) {
  const size_t used = strlen(defaults);
  snprintf(defaults + used, sizeof defaults - used, "%s=%s ", name, value);
  return host->setDefault(ctx, name, value);
}

__attribute__((visibility("default"))) int streamPluginCommunicators(void) { return atomic_load(&communicators); }
__attribute__((visibility("default"))) const char* streamPluginDefaults(void) { return defaults; }

extern arfusionPlugin_v1_t arfusionPlugin_v1;
__attribute__((visibility("default"))) arfusionPlugin_v1_t arfusionPlugin_v1;

/* The table is the host's, but for what stands above. */
__attribute__((constructor)) static void table_fill(void) {
  char path[4096];
  Dl_info own;
  if (!dladdr(&host, &own)) return;
  snprintf(path, sizeof path, "%.*s../../libarfusion-plugin.so", (int)(strrchr(own.dli_fname, '/') + 1 - own.dli_fname),
           own.dli_fname);
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  host = handle ? dlsym(handle, ARFUSION_PLUGIN_SYMBOL) : NULL;
  if (!host) {
    fprintf(stderr, "stream_plugin: %s\n", dlerror());
    return;
  }
  arfusionPlugin_v1 = *host;
  arfusionPlugin_v1.commInit = stream_comm_init;
  arfusionPlugin_v1.route = stream_route;
  arfusionPlugin_v1.enqueue = stream_enqueue;
  arfusionPlugin_v1.commFinalize = stream_comm_finalize;
  arfusionPlugin_v1.commAbort = stream_comm_abort;
  arfusionPlugin_v1.commGetAsyncError = stream_async_error;
  arfusionPlugin_v1.setDefault = stream_set_default;
}
