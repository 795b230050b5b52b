/* SPDX-License-Identifier: Apache-2.0
 *
 * net_device.h: what the tables of the net and of the collective net have in common.
 */
#ifndef ARFUSION_NET_NET_DEVICE_H_
#define ARFUSION_NET_NET_DEVICE_H_

#include "plugin/net/nccl_net.h"
#include "plugin/net/net_state.h"

#define NOT_NULL(pointer) \
  if ((pointer) == NULL) return error_set(arfusionInvalidArgument, "NET/arfusion: " #pointer " is NULL")

arfusionResult_t net_init(void** ctx, uint64_t comm_id, void* config, arfusionDebugLogger_t logger,
                          nccl_profiler_callback profiler);
arfusionResult_t net_finalize(void* ctx);
arfusionResult_t net_devices(int* ndev);
arfusionResult_t net_properties_v11(int dev, void* props);
arfusionResult_t net_properties_v12(int dev, void* props);
arfusionResult_t net_device_listen(void* ctx, int dev, void* handle, void** listen_comm);
arfusionResult_t net_device_close_listen(void* listen_comm);
arfusionResult_t net_register(void* comm, void* data, size_t size, int type, void** mhandle);
arfusionResult_t net_deregister(void* comm, void* mhandle);

/* The interface of a device; an error for one that is not there. */
arfusionResult_t net_device_get(int dev, const struct interface** interface);

#endif
