/* SPDX-License-Identifier: Apache-2.0
 *
 * net_plugin.c: the net, as NCCL finds it. A send comm or a receive comm is a link; a listen comm is a listener.
 */
#include "plugin/core/log.h"
#include "plugin/net/net_device.h"

static arfusionResult_t net_plugin_connect(void* ctx, int dev, void* handle, void** send_comm, void** device_comm) {
  const struct interface* interface = NULL;
  struct link* link;

  (void)ctx, (void)device_comm;
  NOT_NULL(handle);
  NOT_NULL(send_comm);
  *send_comm = NULL;
  FORWARD_IF_ERROR(net_device_get(dev, &interface));
  FORWARD_IF_ERROR(endpoint_connect(handle, interface, &net_state_get()->options, 0, &link));
  *send_comm = link;
  return arfusionSuccess;
}

static arfusionResult_t net_plugin_accept(void* listen_comm, void** recv_comm, void** device_comm) {
  struct link* link;

  (void)device_comm;
  NOT_NULL(listen_comm);
  NOT_NULL(recv_comm);
  *recv_comm = NULL;
  FORWARD_IF_ERROR(listener_accept(listen_comm, &link, NULL));
  *recv_comm = link;
  return arfusionSuccess;
}

static arfusionResult_t net_plugin_isend(void* send_comm, void* data, size_t size, int tag, void* mhandle,
                                         void* profiled, void** request) {
  struct link_request* made;

  (void)mhandle, (void)profiled;
  NOT_NULL(send_comm);
  NOT_NULL(request);
  *request = NULL;
  FORWARD_IF_ERROR(link_send(send_comm, data, size, tag, &made));
  *request = made;
  return arfusionSuccess;
}

static arfusionResult_t net_plugin_irecv(void* recv_comm, int n, void** data, size_t* sizes, int* tags, void** mhandles,
                                         void** profiled, void** request) {
  struct link_request* made;

  (void)mhandles, (void)profiled;
  NOT_NULL(recv_comm);
  NOT_NULL(request);
  *request = NULL;
  if (n < 1 || n > LINK_GROUP) {
    return error_set(arfusionInvalidArgument, "NET/arfusion: a receive of %d buffers; 1 to %d are allowed", n,
                     LINK_GROUP);
  }
  FORWARD_IF_ERROR(link_receive(recv_comm, n, data, sizes, tags, &made));
  *request = made;
  return arfusionSuccess;
}

/* What has been received into host memory is there. */
static arfusionResult_t net_plugin_iflush(void* recv_comm, int n, void** data, int* sizes, void** mhandles,
                                          void** request) {
  (void)n, (void)data, (void)sizes, (void)mhandles;
  NOT_NULL(recv_comm);
  NOT_NULL(request);
  *request = NULL;
  return arfusionSuccess;
}

static arfusionResult_t net_plugin_test(void* request, int* done, int* sizes) {
  NOT_NULL(request);
  NOT_NULL(done);
  return link_test(request, done, sizes);
}

static arfusionResult_t net_plugin_close(void* comm) {
  if (comm != NULL) link_close(comm);
  return arfusionSuccess;
}

/* No DMA-BUF, no device offload, no virtual devices: NCCL asks whether these are NULL. */
#define NET_TABLE(properties)                                                                                         \
  {                                                                                                                   \
    .name = NET_PLUGIN_NAME, .init = net_init, .devices = net_devices, .getProperties = properties,                   \
    .listen = net_device_listen, .connect = net_plugin_connect, .accept = net_plugin_accept, .regMr = net_register,   \
    .deregMr = net_deregister, .isend = net_plugin_isend, .irecv = net_plugin_irecv, .iflush = net_plugin_iflush,     \
    .test = net_plugin_test, .closeSend = net_plugin_close, .closeRecv = net_plugin_close,                            \
    .closeListen = net_device_close_listen, .finalize = net_finalize                                                  \
  }

#define EXPORTED __attribute__((visibility("default")))
EXPORTED const struct nccl_net ncclNetPlugin_v11 = NET_TABLE(net_properties_v11);
EXPORTED const struct nccl_net ncclNetPlugin_v12 = NET_TABLE(net_properties_v12);
