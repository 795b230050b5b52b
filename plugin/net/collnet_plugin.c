/* SPDX-License-Identifier: Apache-2.0
 *
 * collnet_plugin.c: NCCL looks for a collective network in the library of its network. It has no devices here.
 */
#include "plugin/core/log.h"
#include "plugin/net/net_device.h"

static arfusionResult_t collnet_init(void** ctx, uint64_t comm_id, arfusionDebugLogger_t logger) {
  (void)comm_id, (void)logger;
  *ctx = NULL;
  return arfusionSuccess;
}

static arfusionResult_t collnet_devices(int* ndev) {
  NOT_NULL(ndev);
  *ndev = 0;
  return arfusionSuccess;
}

/* Without devices NCCL calls nothing else. */
#define COLLNET_TABLE \
  {.name = NET_PLUGIN_NAME, .init = collnet_init, .devices = collnet_devices, .finalize = net_finalize}

#define EXPORTED __attribute__((visibility("default")))
EXPORTED const struct nccl_collnet ncclCollNetPlugin_v11 = COLLNET_TABLE;
EXPORTED const struct nccl_collnet ncclCollNetPlugin_v12 = COLLNET_TABLE;
