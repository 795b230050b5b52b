/* SPDX-License-Identifier: Apache-2.0
 *
 * plugin.c: the table that hosts find, and the checks that each of its functions begins with.
 */
#include <stdlib.h>

#include "plugin/core/bootstrap.h"
#include "plugin/core/comm.h"
#include "plugin/core/log.h"
#include "plugin/core/names.h"
#include "plugin/core/ranges.h"
#include "plugin/core/structs.h"

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define BUILD_KIND " (sanitized build)"
#else
#define BUILD_KIND ""
#endif

#define NOT_NULL(pointer) \
  if (!(pointer)) return error_set(arfusionInvalidArgument, #pointer " is NULL")

/* ---------------------------------------------------------------- contexts */

static arfusionResult_t choose_device(struct context* ctx) {
#ifdef ARFUSION_HAVE_CUDA
  int ndev = 0;
  if (ctx->settings.value[SETTING_DEVICE] != DEVICE_HOST) FORWARD_IF_ERROR(device_cuda.count(&ndev));
  if (ndev > 0) {
    ctx->device = &device_cuda;
    return arfusionSuccess;
  }
  const char* why = "there is no CUDA device";
#else
  const char* why = "this plugin was built without CUDA";
#endif
  if (ctx->settings.value[SETTING_DEVICE] == DEVICE_CUDA) {
    return error_set(arfusionInvalidUsage, "ARFUSION_DEVICE is cuda, but %s", why);
  }
  ctx->device = &device_host;
  return arfusionSuccess;
}

static arfusionResult_t plugin_init(void** ctx, arfusionDebugLogger_t logger) {
  NOT_NULL(ctx);
  struct context* context = calloc(1, sizeof *context);
  if (!context) return error_set(arfusionSystemError, "out of memory for a context");
  log_begin(logger);
  arfusionResult_t result = settings_load(&context->settings);
  if (result == arfusionSuccess) result = choose_device(context);
  if (result != arfusionSuccess) {
    free(context);
    log_end();
    return result;
  }
  ranges_init();
  LOG_INFO(ARFUSION_LOG_INIT, "plugin " ARFUSION_VERSION BUILD_KIND ", device: %s",
           context->device->is_host ? "host" : "cuda");
  *ctx = context;
  return arfusionSuccess;
}

static arfusionResult_t plugin_set_default(void* ctx, const char* name, const char* value) {
  NOT_NULL(ctx);
  NOT_NULL(name);
  NOT_NULL(value);
  return settings_default(&((struct context*)ctx)->settings, name, value);
}

static arfusionResult_t plugin_finalize(void* ctx) {
  NOT_NULL(ctx);
  free(ctx);
  log_end();
  return arfusionSuccess;
}

static arfusionResult_t plugin_devices(void* ctx, int* ndev) {
  NOT_NULL(ctx);
  NOT_NULL(ndev);
  return ((struct context*)ctx)->device->count(ndev);
}

static arfusionResult_t plugin_get_properties(void* ctx, int dev, arfusionProperties_t* props) {
  NOT_NULL(ctx);
  FORWARD_IF_ERROR(struct_check_output(props, ARFUSION_PROPERTIES_V1_SIZE, "props"));
  const struct device_ops* device = ((struct context*)ctx)->device;
  int ndev;
  FORWARD_IF_ERROR(device->count(&ndev));
  if (dev < 0 || dev >= ndev) return error_set(arfusionInvalidArgument, "dev is %d, 0 to %d", dev, ndev - 1);
  arfusionProperties_t own = {.size = sizeof own};
  FORWARD_IF_ERROR(device->properties(dev, &own));
  struct_write(props, &own, sizeof own);
  return arfusionSuccess;
}

/* ---------------------------------------------------------------- bootstraps */

static arfusionResult_t plugin_get_unique_id(void* ctx, arfusionUniqueId_t* id) {
  NOT_NULL(ctx);
  NOT_NULL(id);
  return bootstrap_unique_id(id);
}

static arfusionResult_t plugin_bootstrap_unique_id(void* ctx, const arfusionUniqueId_t* id, int nranks, int rank,
                                                   arfusionBootstrap_t* bootstrap) {
  NOT_NULL(ctx);
  NOT_NULL(id);
  FORWARD_IF_ERROR(struct_check_output(bootstrap, ARFUSION_BOOTSTRAP_V1_SIZE, "bootstrap"));
  arfusionBootstrap_t own = {.size = sizeof own};
  FORWARD_IF_ERROR(bootstrap_from_unique_id(
      id, nranks, rank, ((struct context*)ctx)->settings.value[SETTING_INIT_TIMEOUT], &own));
  struct_write(bootstrap, &own, sizeof own);
  return arfusionSuccess;
}

static arfusionResult_t plugin_bootstrap_environment(void* ctx, arfusionBootstrap_t* bootstrap, int* localRank) {
  NOT_NULL(ctx);
  FORWARD_IF_ERROR(struct_check_output(bootstrap, ARFUSION_BOOTSTRAP_V1_SIZE, "bootstrap"));
  arfusionBootstrap_t own = {.size = sizeof own};
  int local;
  FORWARD_IF_ERROR(
      bootstrap_from_environment(((struct context*)ctx)->settings.value[SETTING_INIT_TIMEOUT], &own, &local));
  struct_write(bootstrap, &own, sizeof own);
  if (localRank) *localRank = local;
  return arfusionSuccess;
}

static arfusionResult_t plugin_bootstrap_destroy(void* ctx, arfusionBootstrap_t* bootstrap) {
  NOT_NULL(ctx);
  arfusionBootstrap_t own;
  FORWARD_IF_ERROR(struct_read(&own, sizeof own, bootstrap, ARFUSION_BOOTSTRAP_V1_SIZE, "bootstrap"));
  bootstrap_destroy(&own);
  bootstrap->opaque = NULL;
  bootstrap->allGather = NULL;
  return arfusionSuccess;
}

static arfusionResult_t plugin_bootstrap_abort(void* ctx, const arfusionBootstrap_t* bootstrap) {
  NOT_NULL(ctx);
  arfusionBootstrap_t own;
  FORWARD_IF_ERROR(struct_read(&own, sizeof own, bootstrap, ARFUSION_BOOTSTRAP_V1_SIZE, "bootstrap"));
  bootstrap_abort(&own);
  return arfusionSuccess;
}

/* ---------------------------------------------------------------- communicators */

static arfusionResult_t plugin_comm_init(void* ctx, int dev, const arfusionConfig_t* config,
                                         const arfusionBootstrap_t* bootstrap, void** comm) {
  NOT_NULL(ctx);
  NOT_NULL(comm);
  struct comm* own;
  FORWARD_IF_ERROR(comm_init(ctx, dev, config, bootstrap, &own));
  *comm = own;
  return arfusionSuccess;
}

static arfusionResult_t plugin_comm_init_all(void* ctx, int nranks, const int* devs, const arfusionConfig_t* config,
                                             void** comms) {
  NOT_NULL(ctx);
  NOT_NULL(comms);
  return comm_init_all(ctx, nranks, devs, config, (struct comm**)comms);
}

static arfusionResult_t plugin_route(void* comm, const arfusionRequest_t* request, arfusionRoute_t* route) {
  NOT_NULL(comm);
  return comm_route(comm, request, route);
}

static arfusionResult_t plugin_enqueue(void* comm, const arfusionRequest_t* request, void* stream,
                                       arfusionRoute_t* route) {
  NOT_NULL(comm);
  return comm_enqueue(comm, request, stream, route);
}

static arfusionResult_t plugin_epilogue(void* comm, const arfusionRequest_t* request, void* stream) {
  NOT_NULL(comm);
  return comm_epilogue(comm, request, stream);
}

static arfusionResult_t plugin_comm_finalize(void* comm) {
  NOT_NULL(comm);
  return comm_finalize(comm);
}

static arfusionResult_t plugin_comm_abort(void* comm) {
  NOT_NULL(comm);
  return comm_abort(comm);
}

static arfusionResult_t plugin_comm_get_async_error(void* comm, arfusionResult_t* result, char* text, size_t bytes) {
  NOT_NULL(comm);
  NOT_NULL(result);
  char own[256];
  *result = comm_async_error(comm, text ? text : own, text ? bytes : sizeof own);
  return arfusionSuccess;
}

static arfusionResult_t plugin_comm_get_capacity(void* comm, arfusionCapacity_t* capacity) {
  NOT_NULL(comm);
  FORWARD_IF_ERROR(struct_check_output(capacity, ARFUSION_CAPACITY_V1_SIZE, "capacity"));
  struct_write(capacity, &((struct comm*)comm)->capacity, sizeof(arfusionCapacity_t));
  return arfusionSuccess;
}

static arfusionResult_t plugin_comm_get_stats(void* comm, arfusionStats_t* stats) {
  NOT_NULL(comm);
  FORWARD_IF_ERROR(struct_check_output(stats, ARFUSION_STATS_V1_SIZE, "stats"));
  arfusionStats_t own;
  comm_stats(comm, &own);
  struct_write(stats, &own, sizeof own);
  return arfusionSuccess;
}

static arfusionResult_t plugin_comm_get_workspace(void* comm, arfusionWorkspace_t* workspace) {
  NOT_NULL(comm);
  FORWARD_IF_ERROR(struct_check_output(workspace, ARFUSION_WORKSPACE_V1_SIZE, "workspace"));
  const struct comm* own = comm;
  arfusionWorkspace_t view = {.size = sizeof view};
  if (own->device_comm) {
    view.nranks = own->nranks;
    view.bytes = own->capacity.workspaceBytes;
    own->device->workspace(own->device_comm, &view);
  }
  struct_write(workspace, &view, sizeof view);
  return arfusionSuccess;
}

extern const arfusionPlugin_v1_t arfusionPlugin_v1;
__attribute__((visibility("default"))) const arfusionPlugin_v1_t arfusionPlugin_v1 = {
    .size = sizeof(arfusionPlugin_v1_t),
    .name = "arfusion",
    .init = plugin_init,
    .devices = plugin_devices,
    .getProperties = plugin_get_properties,
    .getUniqueId = plugin_get_unique_id,
    .bootstrapUniqueId = plugin_bootstrap_unique_id,
    .bootstrapEnvironment = plugin_bootstrap_environment,
    .bootstrapDestroy = plugin_bootstrap_destroy,
    .commInit = plugin_comm_init,
    .commInitAll = plugin_comm_init_all,
    .route = plugin_route,
    .enqueue = plugin_enqueue,
    .epilogue = plugin_epilogue,
    .commFinalize = plugin_comm_finalize,
    .commAbort = plugin_comm_abort,
    .commGetAsyncError = plugin_comm_get_async_error,
    .commGetCapacity = plugin_comm_get_capacity,
    .commGetStats = plugin_comm_get_stats,
    .finalize = plugin_finalize,
    .reasonString = name_of_reason,
    .getLastError = error_last,
    .commGetWorkspace = plugin_comm_get_workspace,
    .bootstrapAbort = plugin_bootstrap_abort,
    .setDefault = plugin_set_default,
};
