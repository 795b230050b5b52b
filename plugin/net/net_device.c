/* SPDX-License-Identifier: Apache-2.0
 *
 * net_device.c: see net_device.h. NCCL takes another network when there are no devices; an init that fails can crash
 * NCCL 2.28.3 to 2.29.3, so init never does, and finalize accepts the NULL that a declining init has left.
 */
#include "plugin/net/net_device.h"

#include <string.h>

#include "plugin/core/log.h"

#define PROPERTIES_COMMS 65536
#define PROPERTIES_COLL_BYTES ((size_t)512 << 20)

arfusionResult_t net_init(void** ctx, uint64_t comm_id, void* config, arfusionDebugLogger_t logger,
                          nccl_profiler_callback profiler) {
  (void)comm_id, (void)config, (void)profiler;
  *ctx = (void*)(uintptr_t)net_state_begin(logger);
  return arfusionSuccess;
}

arfusionResult_t net_finalize(void* ctx) {
  if (ctx != NULL) net_state_end();
  return arfusionSuccess;
}

arfusionResult_t net_devices(int* ndev) {
  NOT_NULL(ndev);
  *ndev = net_state_get()->ndev;
  return arfusionSuccess;
}

arfusionResult_t net_device_get(int dev, const struct interface** interface) {
  const struct net_state* state = net_state_get();

  if (dev < 0 || dev >= state->ndev) {
    return error_set(arfusionInvalidArgument, "NET/arfusion: dev is %d; there are %d devices", dev, state->ndev);
  }
  *interface = &state->device[dev];
  return arfusionSuccess;
}

/* The members that both versions have. */
#define PROPERTIES_FILL(props, dev, interface)                                              \
  do {                                                                                      \
    memset(props, 0, sizeof(*(props)));                                                     \
    (props)->name = (char*)(uintptr_t)(interface)->name;                                    \
    (props)->pciPath = (interface)->pci_path[0] ? (char*)(uintptr_t)(interface)->pci_path : NULL; \
    (props)->guid = (uint64_t)(dev);                                                        \
    (props)->ptrSupport = NCCL_PTR_HOST;                                                    \
    (props)->speed = (interface)->speed;                                                    \
    (props)->maxComms = PROPERTIES_COMMS;                                                   \
    (props)->maxRecvs = LINK_GROUP;                                                         \
    (props)->netDeviceType = NCCL_NET_DEVICE_HOST;                                          \
    (props)->netDeviceVersion = NCCL_NET_DEVICE_INVALID_VERSION;                            \
    (props)->vProps.ndevs = 1;                                                              \
    (props)->vProps.devs[0] = (dev);                                                        \
    (props)->maxP2pBytes = LINK_MESSAGE_MAX;                                                \
    (props)->maxCollBytes = PROPERTIES_COLL_BYTES;                                          \
    (props)->maxMultiRequestSize = 1;                                                       \
  } while (0)

arfusionResult_t net_properties_v11(int dev, void* props) {
  struct nccl_net_properties_v11* out = props;
  const struct interface* interface = NULL;

  NOT_NULL(props);
  FORWARD_IF_ERROR(net_device_get(dev, &interface));
  PROPERTIES_FILL(out, dev, interface);
  return arfusionSuccess;
}

arfusionResult_t net_properties_v12(int dev, void* props) {
  struct nccl_net_properties_v12* out = props;
  const struct interface* interface = NULL;

  NOT_NULL(props);
  FORWARD_IF_ERROR(net_device_get(dev, &interface));
  PROPERTIES_FILL(out, dev, interface);
  out->railId = NCCL_NET_ID_UNDEF;
  out->planeId = NCCL_NET_ID_UNDEF;
  return arfusionSuccess;
}

arfusionResult_t net_device_listen(void* ctx, int dev, void* handle, void** listen_comm) {
  const struct interface* interface = NULL;
  struct listener* listener;

  (void)ctx;
  NOT_NULL(handle);
  NOT_NULL(listen_comm);
  FORWARD_IF_ERROR(net_device_get(dev, &interface));
  FORWARD_IF_ERROR(listener_create(interface, &net_state_get()->options, handle, &listener));
  *listen_comm = listener;
  return arfusionSuccess;
}

arfusionResult_t net_device_close_listen(void* listen_comm) {
  if (listen_comm != NULL) listener_close(listen_comm);
  return arfusionSuccess;
}

/* Any host memory will do: nothing is done to it, and the handle is only there to be given back. */
arfusionResult_t net_register(void* comm, void* data, size_t size, int type, void** mhandle) {
  static char registered;

  (void)data, (void)size;
  NOT_NULL(comm);
  NOT_NULL(mhandle);
  if (type != NCCL_PTR_HOST) {
    return error_set(arfusionInvalidArgument,
                     "NET/arfusion: memory of type %d; only host memory (%d) can be registered", type, NCCL_PTR_HOST);
  }
  *mhandle = &registered;
  return arfusionSuccess;
}

arfusionResult_t net_deregister(void* comm, void* mhandle) {
  (void)mhandle;
  NOT_NULL(comm);
  return arfusionSuccess;
}
