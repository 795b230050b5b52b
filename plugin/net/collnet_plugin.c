/* SPDX-License-Identifier: Apache-2.0
 *
 * collnet_plugin.c: the collective network, as NCCL finds it. Its devices are the net's. A collective comm is a
 * collective; a listen comm is a listener.
 */
#include "plugin/core/log.h"
#include "plugin/net/collective.h"
#include "plugin/net/net_device.h"
#include "plugin/net/reduce.h"

static arfusionResult_t collnet_init(void** ctx, uint64_t comm_id, arfusionDebugLogger_t logger) {
  return net_init(ctx, comm_id, NULL, logger, NULL);
}

static arfusionResult_t collnet_connect(void* handles[], int nranks, int rank, void* listen_comm, void** coll_comm) {
  struct collective* collective;

  NOT_NULL(handles);
  NOT_NULL(listen_comm);
  NOT_NULL(coll_comm);
  *coll_comm = NULL;
  FORWARD_IF_ERROR(collective_create(handles, nranks, rank, listen_comm, &net_state_get()->options, &collective));
  *coll_comm = collective;
  return arfusionSuccess;
}

static arfusionResult_t collnet_reduce_support(arfusionDataType_t type, arfusionRedOp_t op, int* supported) {
  NOT_NULL(supported);
  *supported = reduce_supported(type, op);
  return arfusionSuccess;
}

static arfusionResult_t op_start(void* coll_comm, const struct collective_op* op, void** request) {
  struct collective_request* made;

  NOT_NULL(coll_comm);
  NOT_NULL(request);
  *request = NULL;
  if (op->kind != COLLECTIVE_ALLGATHER && !reduce_supported(op->type, op->op)) {
    return error_set(arfusionInvalidArgument, "NET/arfusion: operation %d on data type %d, which reduceSupport denies",
                     (int)op->op, (int)op->type);
  }
  FORWARD_IF_ERROR(collective_start(coll_comm, op, &made));
  *request = made;
  return arfusionSuccess;
}

static arfusionResult_t collnet_iallreduce(void* coll_comm, void* send, void* recv, size_t count,
                                           arfusionDataType_t type, arfusionRedOp_t op, void* send_mhandle,
                                           void* recv_mhandle, void** request) {
  struct collective_op made = {
      .kind = COLLECTIVE_ALLREDUCE, .type = type, .op = op, .count = count, .send = send, .recv = recv};

  (void)send_mhandle, (void)recv_mhandle;
  return op_start(coll_comm, &made, request);
}

static arfusionResult_t window_take(struct collective_op* op, int nparts, const struct nccl_net_part* parts) {
  size_t bytes = 0;

  if (nparts < 0 || nparts > COLLECTIVE_PARTS_MAX) {
    return error_set(arfusionInvalidArgument, "NET/arfusion: a window of %d parts; at most %d are allowed", nparts,
                     COLLECTIVE_PARTS_MAX);
  }
  for (int i = 0; i < nparts; i++) {
    bytes += parts[i].size;
    op->parts[i] = parts[i];
  }
  if (bytes != op->window_bytes) {
    return error_set(arfusionInvalidArgument, "NET/arfusion: the parts have %zu bytes, the window %zu", bytes,
                     op->window_bytes);
  }
  op->nparts = nparts;
  return arfusionSuccess;
}

static arfusionResult_t collnet_iallgather(void* coll_comm, void* send, int nparts, struct nccl_net_part* parts,
                                           size_t bytes_per_rank, size_t window_offset, size_t window_bytes,
                                           void* send_mhandle, void** request) {
  struct collective_op made = {.kind = COLLECTIVE_ALLGATHER,
                               .send = send,
                               .bytes_per_rank = bytes_per_rank,
                               .window_offset = window_offset,
                               .window_bytes = window_bytes};

  (void)send_mhandle;
  FORWARD_IF_ERROR(window_take(&made, nparts, parts));
  return op_start(coll_comm, &made, request);
}

static arfusionResult_t collnet_ireducescatter(void* coll_comm, int nparts, struct nccl_net_part* parts, void* recv,
                                               size_t bytes_per_rank, size_t window_offset, size_t window_bytes,
                                               arfusionDataType_t type, arfusionRedOp_t op, void* recv_mhandle,
                                               void** request) {
  struct collective_op made = {.kind = COLLECTIVE_REDUCESCATTER,
                               .type = type,
                               .op = op,
                               .recv = recv,
                               .bytes_per_rank = bytes_per_rank,
                               .window_offset = window_offset,
                               .window_bytes = window_bytes};
  size_t element = reduce_type_bytes(type);

  (void)recv_mhandle;
  FORWARD_IF_ERROR(window_take(&made, nparts, parts));
  if (element > 0 && (bytes_per_rank % element != 0 || window_offset % element != 0 || window_bytes % element != 0)) {
    return error_set(arfusionInvalidArgument,
                     "NET/arfusion: a share or a window that ends within an element of %zu bytes", element);
  }
  return op_start(coll_comm, &made, request);
}

/* What has been received into host memory is there. */
static arfusionResult_t collnet_iflush(void* coll_comm, void* data, int size, void* mhandle, void** request) {
  (void)data, (void)size, (void)mhandle;
  NOT_NULL(coll_comm);
  NOT_NULL(request);
  *request = NULL;
  return arfusionSuccess;
}

static arfusionResult_t collnet_test(void* request, int* done, int* size) {
  NOT_NULL(request);
  NOT_NULL(done);
  return collective_test(request, done, size);
}

static arfusionResult_t collnet_close(void* coll_comm) {
  if (coll_comm != NULL) collective_close(coll_comm);
  return arfusionSuccess;
}

#define COLLNET_TABLE(properties)                                                                                     \
  {                                                                                                                   \
    .name = NET_PLUGIN_NAME, .init = collnet_init, .devices = net_devices, .getProperties = properties,               \
    .listen = net_device_listen, .connect = collnet_connect, .reduceSupport = collnet_reduce_support,                 \
    .regMr = net_register, .deregMr = net_deregister, .iallreduce = collnet_iallreduce,                               \
    .iallgather = collnet_iallgather, .ireducescatter = collnet_ireducescatter, .iflush = collnet_iflush,             \
    .test = collnet_test, .closeColl = collnet_close, .closeListen = net_device_close_listen, .finalize = net_finalize \
  }

#define EXPORTED __attribute__((visibility("default")))
EXPORTED const struct nccl_collnet ncclCollNetPlugin_v11 = COLLNET_TABLE(net_properties_v11);
EXPORTED const struct nccl_collnet ncclCollNetPlugin_v12 = COLLNET_TABLE(net_properties_v12);
