/* SPDX-License-Identifier: Apache-2.0
 *
 * net_plugin.c: the tables that NCCL finds. NCCL takes another network when there are no devices; an init that fails can
 * crash NCCL 2.28.3 to 2.29.3, so init never does, and finalize accepts the NULL that a declining init has left.
 */
#include "plugin/net/nccl_net.h"
#include "plugin/net/net_state.h"

static arfusionResult_t net_init(void** ctx, uint64_t comm_id, void* config, arfusionDebugLogger_t logger,
                                 nccl_profiler_callback profiler) {
  (void)comm_id, (void)config, (void)profiler;
  *ctx = NULL;
  if (net_state_begin(logger)) net_state_end();
  return arfusionSuccess;
}

static arfusionResult_t collnet_init(void** ctx, uint64_t comm_id, arfusionDebugLogger_t logger) {
  return net_init(ctx, comm_id, NULL, logger, NULL);
}

static arfusionResult_t net_devices(int* ndev) {
  *ndev = 0;
  return arfusionSuccess;
}

static arfusionResult_t net_finalize(void* ctx) {
  if (ctx != NULL) net_state_end();
  return arfusionSuccess;
}

/* Without devices NCCL calls nothing else. */
#define NET_TABLE {.name = NET_PLUGIN_NAME, .init = net_init, .devices = net_devices, .finalize = net_finalize}
#define COLLNET_TABLE {.name = NET_PLUGIN_NAME, .init = collnet_init, .devices = net_devices, .finalize = net_finalize}

__attribute__((visibility("default"))) const struct nccl_net ncclNetPlugin_v11 = NET_TABLE;
__attribute__((visibility("default"))) const struct nccl_net ncclNetPlugin_v12 = NET_TABLE;
__attribute__((visibility("default"))) const struct nccl_collnet ncclCollNetPlugin_v11 = COLLNET_TABLE;
__attribute__((visibility("default"))) const struct nccl_collnet ncclCollNetPlugin_v12 = COLLNET_TABLE;
