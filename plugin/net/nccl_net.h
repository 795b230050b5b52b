/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_net.h: NCCL's network and collective network interfaces, versions 11 and 12, declared here so that no NCCL
 * header is needed. Sources: NCCL's src/include/plugin/net/net_v11.h and net_v12.h, src/include/plugin/nccl_net.h,
 * nccl_common.h.
 *
 * The two versions differ in the properties alone, so they share one table each; getProperties then takes the struct of
 * the version that the table is exported for. NCCL's results, data types, operations and log levels have the values of
 * arfusionResult_t, arfusionDataType_t, arfusionRedOp_t and arfusionLogLevel_t.
 */
#ifndef ARFUSION_NET_NCCL_NET_H_
#define ARFUSION_NET_NCCL_NET_H_

#include <stddef.h>
#include <stdint.h>

#include "arfusion_plugin.h"

#define NCCL_NET_HANDLE_BYTES 128
#define NCCL_NET_REQUESTS 32                      /* that NCCL keeps outstanding on one connection */
#define NCCL_NET_BYTES_MAX ((size_t)1 << 40)      /* the most that maxP2pBytes and maxCollBytes may say */
#define NCCL_PTR_HOST 0x1                         /* of ptrSupport and regMr's type */
#define NCCL_NET_DEVICE_HOST 0                    /* netDeviceType: no offload */
#define NCCL_NET_DEVICE_INVALID_VERSION 0
#define NCCL_NET_ID_UNDEF (-1)
#define NCCL_LOG_NET 0x10ul

struct nccl_net_properties_v11 {
  char* name;
  char* pciPath; /* in /sys; may be NULL */
  uint64_t guid;
  int ptrSupport;
  int regIsGlobal;
  int forceFlush;
  int speed; /* Mbit/s */
  int port;
  float latency; /* µs; 0: not known */
  int maxComms;
  int maxRecvs;
  int netDeviceType;
  int netDeviceVersion;
  struct {
    int ndevs;
    int devs[4];
  } vProps;
  size_t maxP2pBytes;
  size_t maxCollBytes;
  int maxMultiRequestSize;
};

struct nccl_net_properties_v12 {
  char* name;
  char* pciPath;
  uint64_t guid;
  int ptrSupport;
  int regIsGlobal;
  int forceFlush;
  int speed;
  int port;
  float latency;
  int maxComms;
  int maxRecvs;
  int netDeviceType;
  int netDeviceVersion;
  struct {
    int ndevs;
    int devs[8];
  } vProps;
  size_t maxP2pBytes;
  size_t maxCollBytes;
  int maxMultiRequestSize;
  int16_t railId;
  int16_t planeId;
};

typedef arfusionResult_t (*nccl_profiler_callback)(void** event, int type, void* parent, int64_t plugin, void* data);

/* Members in NCCL's names. A request that is NULL on success means: not now, try again. */
struct nccl_net {
  const char* name;
  arfusionResult_t (*init)(void** ctx, uint64_t comm_id, void* config, arfusionDebugLogger_t logger,
                           nccl_profiler_callback profiler);
  arfusionResult_t (*devices)(int* ndev);
  arfusionResult_t (*getProperties)(int dev, void* props);
  arfusionResult_t (*listen)(void* ctx, int dev, void* handle, void** listen_comm);
  arfusionResult_t (*connect)(void* ctx, int dev, void* handle, void** send_comm, void** device_comm);
  arfusionResult_t (*accept)(void* listen_comm, void** recv_comm, void** device_comm);
  arfusionResult_t (*regMr)(void* comm, void* data, size_t size, int type, void** mhandle);
  arfusionResult_t (*regMrDmaBuf)(void* comm, void* data, size_t size, int type, uint64_t offset, int fd,
                                  void** mhandle);
  arfusionResult_t (*deregMr)(void* comm, void* mhandle);
  arfusionResult_t (*isend)(void* send_comm, void* data, size_t size, int tag, void* mhandle, void* profiled,
                            void** request);
  arfusionResult_t (*irecv)(void* recv_comm, int n, void** data, size_t* sizes, int* tags, void** mhandles,
                            void** profiled, void** request);
  arfusionResult_t (*iflush)(void* recv_comm, int n, void** data, int* sizes, void** mhandles, void** request);
  arfusionResult_t (*test)(void* request, int* done, int* sizes);
  arfusionResult_t (*closeSend)(void* send_comm);
  arfusionResult_t (*closeRecv)(void* recv_comm);
  arfusionResult_t (*closeListen)(void* listen_comm);
  arfusionResult_t (*getDeviceMr)(void* comm, void* mhandle, void** device_mhandle);
  arfusionResult_t (*irecvConsumed)(void* recv_comm, int n, void* request);
  arfusionResult_t (*makeVDevice)(int* dev, void* props);
  arfusionResult_t (*finalize)(void* ctx);
  arfusionResult_t (*setNetAttr)(void* ctx, void* attributes);
};

/* A piece of memory of an all-gather's result or a reduce-scatter's input. */
struct nccl_net_part {
  void* mhandle;
  void* address;
  size_t size;
};

struct nccl_collnet {
  const char* name;
  arfusionResult_t (*init)(void** ctx, uint64_t comm_id, arfusionDebugLogger_t logger);
  arfusionResult_t (*devices)(int* ndev);
  arfusionResult_t (*getProperties)(int dev, void* props);
  arfusionResult_t (*listen)(void* ctx, int dev, void* handle, void** listen_comm);
  arfusionResult_t (*connect)(void* handles[], int nranks, int rank, void* listen_comm, void** coll_comm);
  arfusionResult_t (*reduceSupport)(arfusionDataType_t type, arfusionRedOp_t op, int* supported);
  arfusionResult_t (*regMr)(void* coll_comm, void* data, size_t size, int type, void** mhandle);
  arfusionResult_t (*regMrDmaBuf)(void* coll_comm, void* data, size_t size, int type, uint64_t offset, int fd,
                                  void** mhandle);
  arfusionResult_t (*deregMr)(void* coll_comm, void* mhandle);
  arfusionResult_t (*iallreduce)(void* coll_comm, void* send, void* recv, size_t count, arfusionDataType_t type,
                                 arfusionRedOp_t op, void* send_mhandle, void* recv_mhandle, void** request);
  /* The window is a range of the ranks' shares, laid one after the other; `send` and `recv` begin where this rank's
   * share and the window meet, and the parts are the window. */
  arfusionResult_t (*iallgather)(void* coll_comm, void* send, int nparts, struct nccl_net_part* parts,
                                 size_t bytes_per_rank, size_t window_offset, size_t window_bytes, void* send_mhandle,
                                 void** request);
  arfusionResult_t (*ireducescatter)(void* coll_comm, int nparts, struct nccl_net_part* parts, void* recv,
                                     size_t bytes_per_rank, size_t window_offset, size_t window_bytes,
                                     arfusionDataType_t type, arfusionRedOp_t op, void* recv_mhandle, void** request);
  arfusionResult_t (*iflush)(void* coll_comm, void* data, int size, void* mhandle, void** request);
  arfusionResult_t (*test)(void* request, int* done, int* size);
  arfusionResult_t (*closeColl)(void* coll_comm);
  arfusionResult_t (*closeListen)(void* listen_comm);
  arfusionResult_t (*makeVDevice)(int* dev, void* props);
  arfusionResult_t (*finalize)(void* ctx);
};

extern const struct nccl_net ncclNetPlugin_v11, ncclNetPlugin_v12;
extern const struct nccl_collnet ncclCollNetPlugin_v11, ncclCollNetPlugin_v12;

#endif
