/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_abi_check.c: that nccl_abi.h says what NCCL's header says, proven by the compiler where there is that header.
 */
#ifdef ARFUSION_HAVE_NCCL_H
#include <nccl.h>

/* Only the types and values; both headers declare the functions. */
#define ARFUSION_NCCL_ABI_TYPES_ONLY
#include "plugin/nccl/nccl_abi.h"

#define SAME(ours, nccls) _Static_assert((int)(ours) == (int)(nccls), #ours " is not " #nccls)
SAME(NCCL_SUCCESS, ncclSuccess);
SAME(NCCL_SYSTEM_ERROR, ncclSystemError);
SAME(NCCL_INVALID_ARGUMENT, ncclInvalidArgument);
SAME(NCCL_INVALID_USAGE, ncclInvalidUsage);
SAME(NCCL_IN_PROGRESS, ncclInProgress);
SAME(NCCL_SUM, ncclSum);
SAME(NCCL_SPLIT_NO_COLOR, NCCL_SPLIT_NOCOLOR);
SAME(NCCL_UNDEFINED, NCCL_CONFIG_UNDEF_INT);
#ifdef NCCL_SHRINK_ABORT
SAME(NCCL_SHRINK_ABORTS, NCCL_SHRINK_ABORT);
#endif
_Static_assert(sizeof(nccl_unique_id) == sizeof(ncclUniqueId), "ncclUniqueId");
_Static_assert(offsetof(struct nccl_config, size) == offsetof(ncclConfig_t, size), "ncclConfig_t.size");
_Static_assert(offsetof(struct nccl_config, blocking) == offsetof(ncclConfig_t, blocking), "ncclConfig_t.blocking");
_Static_assert(sizeof(ncclResult_t) == sizeof(int) && sizeof(ncclDataType_t) == sizeof(int) &&
                   sizeof(ncclRedOp_t) == sizeof(int) && sizeof(ncclComm_t) == sizeof(void*) &&
                   sizeof(cudaStream_t) == sizeof(void*),
               "results, types and operations are passed as ints, communicators and streams as pointers");

/* The arguments, in the order of nccl_abi.h. */
#define TAKES(call) _Static_assert(sizeof(call) == sizeof(int), #call)
#define IN ((const void*)0)
#define OUT ((void*)0)
#define COUNT ((size_t)0)
#define TYPE ((ncclDataType_t)0)
#define OPERATION ((ncclRedOp_t)0)
#define ROOT 0
#define PEER 0
#define COMM ((ncclComm_t)0)
#define COMMS ((ncclComm_t*)0)
#define STREAM ((cudaStream_t)0)
#define CONFIG ((ncclConfig_t*)0)
TAKES(ncclCommInitRank(COMMS, 1, (ncclUniqueId){{0}}, 0));
TAKES(ncclCommInitRankConfig(COMMS, 1, (ncclUniqueId){{0}}, 0, CONFIG));
TAKES(ncclCommInitAll(COMMS, 1, (const int*)0));
TAKES(ncclCommSplit(COMM, 0, 0, COMMS, CONFIG));
TAKES(ncclCommFinalize(COMM));
TAKES(ncclCommDestroy(COMM));
TAKES(ncclCommAbort(COMM));
TAKES(ncclCommGetAsyncError(COMM, (ncclResult_t*)0));
TAKES(ncclCommCount(COMM, (int*)0));
TAKES(ncclCommUserRank(COMM, (int*)0));
TAKES(ncclCommCuDevice(COMM, (int*)0));
TAKES(ncclAllReduce(IN, OUT, COUNT, TYPE, OPERATION, COMM, STREAM));
TAKES(ncclBroadcast(IN, OUT, COUNT, TYPE, ROOT, COMM, STREAM));
TAKES(ncclBcast(OUT, COUNT, TYPE, ROOT, COMM, STREAM));
TAKES(ncclReduce(IN, OUT, COUNT, TYPE, OPERATION, ROOT, COMM, STREAM));
TAKES(ncclAllGather(IN, OUT, COUNT, TYPE, COMM, STREAM));
TAKES(ncclReduceScatter(IN, OUT, COUNT, TYPE, OPERATION, COMM, STREAM));
TAKES(ncclSend(IN, COUNT, TYPE, PEER, COMM, STREAM));
TAKES(ncclRecv(OUT, COUNT, TYPE, PEER, COMM, STREAM));
TAKES(ncclGroupSimulateEnd((ncclSimInfo_t*)0));
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0)
TAKES(ncclCommInitRankScalable(COMMS, 1, 0, 1, (ncclUniqueId*)0, CONFIG));
TAKES(ncclCommShrink(COMM, (int*)0, 1, COMMS, CONFIG, 0));
TAKES(ncclAlltoAll(IN, OUT, COUNT, TYPE, COMM, STREAM));
TAKES(ncclGather(IN, OUT, COUNT, TYPE, ROOT, COMM, STREAM));
TAKES(ncclScatter(IN, OUT, COUNT, TYPE, ROOT, COMM, STREAM));
TAKES(ncclCommWindowRegister(COMM, OUT, COUNT, (ncclWindow_t*)0, 0));
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 30, 0)
TAKES(ncclCommRevoke(COMM, 0));
TAKES(ncclCommGrow(COMM, 1, (const ncclUniqueId*)0, 0, COMMS, CONFIG));
TAKES(ncclPutSignal(IN, COUNT, TYPE, PEER, (ncclWindow_t)0, COUNT, 0, 0, 0u, COMM, STREAM));
TAKES(ncclSignal(PEER, 0, 0, 0u, COMM, STREAM));
TAKES(ncclWaitSignal(1, (ncclWaitSignalDesc_t*)0, COMM, STREAM));
TAKES(ncclCommSuspend(COMM, 0));
TAKES(ncclCommResume(COMM));
#endif
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 32, 0)
#define CALL_CONFIG ((const ncclCollConfig_t*)0)
TAKES(ncclAllReduceConfig(IN, OUT, COUNT, TYPE, OPERATION, COMM, STREAM, CALL_CONFIG));
TAKES(ncclBroadcastConfig(IN, OUT, COUNT, TYPE, ROOT, COMM, STREAM, CALL_CONFIG));
TAKES(ncclReduceConfig(IN, OUT, COUNT, TYPE, OPERATION, ROOT, COMM, STREAM, CALL_CONFIG));
TAKES(ncclAllGatherConfig(IN, OUT, COUNT, TYPE, COMM, STREAM, CALL_CONFIG));
TAKES(ncclReduceScatterConfig(IN, OUT, COUNT, TYPE, OPERATION, COMM, STREAM, CALL_CONFIG));
TAKES(ncclAlltoAllConfig(IN, OUT, COUNT, TYPE, COMM, STREAM, CALL_CONFIG));
TAKES(ncclGatherConfig(IN, OUT, COUNT, TYPE, ROOT, COMM, STREAM, CALL_CONFIG));
TAKES(ncclScatterConfig(IN, OUT, COUNT, TYPE, ROOT, COMM, STREAM, CALL_CONFIG));
#endif
#endif

/* Something, where there is no header to check against. */
typedef int nccl_abi_checked;
