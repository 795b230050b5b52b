/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_abi.h: what libarfusion-nccl.so knows of NCCL's C ABI: the functions of functions.txt that are defined here, and
 * those of the real library that it calls. Written with plain types, so that NCCL's header is not needed
 * (nccl_abi_check.c holds it against that header where there is one): results are NCCL's (arfusionResult_t has the same
 * values), data types and operations are ints, communicators and streams are pointers.
 */
#ifndef ARFUSION_NCCL_ABI_H_
#define ARFUSION_NCCL_ABI_H_

#include <limits.h>
#include <stddef.h>

enum nccl_result {
  NCCL_SUCCESS = 0,
  NCCL_SYSTEM_ERROR = 2,
  NCCL_INVALID_ARGUMENT = 4,
  NCCL_INVALID_USAGE = 5,
  NCCL_IN_PROGRESS = 7,
};

enum { NCCL_SUM = 0, NCCL_SPLIT_NO_COLOR = -1, NCCL_SHRINK_ABORTS = 1 };

typedef struct {
  char internal[128];
} nccl_unique_id;

/* The beginning of ncclConfig_t, which grows at its end. */
struct nccl_config {
  size_t size;
  unsigned magic, version;
  int blocking; /* NCCL_UNDEFINED: the default, or the parent's */
};
#define NCCL_UNDEFINED INT_MIN

#ifndef ARFUSION_NCCL_ABI_TYPES_ONLY
#define NCCL_EXPORT __attribute__((visibility("default")))

NCCL_EXPORT int ncclCommInitRank(void** comm, int nranks, nccl_unique_id id, int rank);
NCCL_EXPORT int ncclCommInitRankConfig(void** comm, int nranks, nccl_unique_id id, int rank,
                                       struct nccl_config* config);
NCCL_EXPORT int ncclCommInitRankScalable(void** comm, int nranks, int rank, int nids, nccl_unique_id* ids,
                                         struct nccl_config* config);
NCCL_EXPORT int ncclCommInitAll(void** comms, int ndev, const int* devs);
NCCL_EXPORT int ncclCommSplit(void* comm, int color, int key, void** child, struct nccl_config* config);
NCCL_EXPORT int ncclCommShrink(void* comm, int* excluded, int nexcluded, void** child, struct nccl_config* config,
                               int flags);
NCCL_EXPORT int ncclCommGrow(void* comm, int nranks, const nccl_unique_id* id, int rank, void** child,
                             struct nccl_config* config);
NCCL_EXPORT int ncclCommFinalize(void* comm);
NCCL_EXPORT int ncclCommDestroy(void* comm);
NCCL_EXPORT int ncclCommAbort(void* comm);
NCCL_EXPORT int ncclCommRevoke(void* comm, int flags);
NCCL_EXPORT int ncclCommGetAsyncError(void* comm, int* error);
NCCL_EXPORT const char* ncclGetErrorString(int result);
NCCL_EXPORT const char* ncclGetLastError(void* comm);

NCCL_EXPORT int ncclAllReduce(const void* send, void* receive, size_t count, int type, int operation, void* comm,
                              void* stream);
NCCL_EXPORT int ncclBroadcast(const void* send, void* receive, size_t count, int type, int root, void* comm,
                              void* stream);
NCCL_EXPORT int ncclBcast(void* buffer, size_t count, int type, int root, void* comm, void* stream);
NCCL_EXPORT int ncclReduce(const void* send, void* receive, size_t count, int type, int operation, int root, void* comm,
                           void* stream);
NCCL_EXPORT int ncclAllGather(const void* send, void* receive, size_t count, int type, void* comm, void* stream);
NCCL_EXPORT int ncclReduceScatter(const void* send, void* receive, size_t count, int type, int operation, void* comm,
                                  void* stream);
NCCL_EXPORT int ncclAlltoAll(const void* send, void* receive, size_t count, int type, void* comm, void* stream);
NCCL_EXPORT int ncclGather(const void* send, void* receive, size_t count, int type, int root, void* comm, void* stream);
NCCL_EXPORT int ncclScatter(const void* send, void* receive, size_t count, int type, int root, void* comm,
                            void* stream);
NCCL_EXPORT int ncclAllReduceConfig(const void* send, void* receive, size_t count, int type, int operation, void* comm,
                                    void* stream, const void* config);
NCCL_EXPORT int ncclBroadcastConfig(const void* send, void* receive, size_t count, int type, int root, void* comm,
                                    void* stream, const void* config);
NCCL_EXPORT int ncclReduceConfig(const void* send, void* receive, size_t count, int type, int operation, int root,
                                 void* comm, void* stream, const void* config);
NCCL_EXPORT int ncclAllGatherConfig(const void* send, void* receive, size_t count, int type, void* comm, void* stream,
                                    const void* config);
NCCL_EXPORT int ncclReduceScatterConfig(const void* send, void* receive, size_t count, int type, int operation,
                                        void* comm, void* stream, const void* config);
NCCL_EXPORT int ncclAlltoAllConfig(const void* send, void* receive, size_t count, int type, void* comm, void* stream,
                                   const void* config);
NCCL_EXPORT int ncclGatherConfig(const void* send, void* receive, size_t count, int type, int root, void* comm,
                                 void* stream, const void* config);
NCCL_EXPORT int ncclScatterConfig(const void* send, void* receive, size_t count, int type, int root, void* comm,
                                  void* stream, const void* config);

NCCL_EXPORT int ncclSend(const void* send, size_t count, int type, int peer, void* comm, void* stream);
NCCL_EXPORT int ncclRecv(void* receive, size_t count, int type, int peer, void* comm, void* stream);
NCCL_EXPORT int ncclPutSignal(const void* local, size_t count, int type, int peer, void* window, size_t offset,
                              int signal, int context, unsigned flags, void* comm, void* stream);
NCCL_EXPORT int ncclSignal(int peer, int signal, int context, unsigned flags, void* comm, void* stream);
NCCL_EXPORT int ncclWaitSignal(int count, void* signals, void* comm, void* stream);
NCCL_EXPORT int ncclCommWindowRegister(void* comm, void* buffer, size_t bytes, void** window, int flags);
NCCL_EXPORT int ncclCommSuspend(void* comm, int flags);
NCCL_EXPORT int ncclCommResume(void* comm);
NCCL_EXPORT int ncclDevCommCreate(void* comm, const void* requirements, void* dev_comm);

NCCL_EXPORT int ncclGroupStart(void);
NCCL_EXPORT int ncclGroupEnd(void);
NCCL_EXPORT int ncclGroupSimulateEnd(void* info);

/* Of the real library only; these are passed on by forward.S, so they must not be called by these names. */
int ncclGetVersion(int* version);
int ncclCommCount(void* comm, int* nranks);
int ncclCommUserRank(void* comm, int* rank);
int ncclCommCuDevice(void* comm, int* dev);
#endif

#endif
