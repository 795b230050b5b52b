/* SPDX-License-Identifier: Apache-2.0
 *
 * arfusion.h: the host library, for programs that would rather link (-larfusion) than talk to the plugin's table. It
 * finds and opens the plugin (ARFUSION_PLUGIN), makes communicators, and completes what the plugin turns down, so that
 * its calls always do the operation: on GPUs with ncclAllReduce and the plugin's epilogue kernel, on the host device
 * with a plain implementation. Requests, configurations, results and reasons are the plugin's: see arfusion_plugin.h,
 * also for thread-safety, which is the same here.
 */
#ifndef ARFUSION_H_
#define ARFUSION_H_

#include "arfusion_plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define ARFUSION_API __attribute__((visibility("default")))
#else
#define ARFUSION_API
#endif

typedef struct arfusionComm* arfusionComm_t;

/* ---------------------------------------------------------------- errors */

/* A sentence for a result code. Static memory. */
ARFUSION_API const char* arfusionGetErrorString(arfusionResult_t result);

/* The text of the calling thread's last error; "" if there was none. Valid until this thread's next call. */
ARFUSION_API const char* arfusionGetLastError(void);

/* A sentence for a reason. Static memory, as long as a communicator exists. */
ARFUSION_API const char* arfusionReasonString(arfusionReason_t reason);

/* ---------------------------------------------------------------- devices */

/* Number of devices (GPUs, or 1: the host), and what device `dev` is. props->size is the caller's. */
ARFUSION_API arfusionResult_t arfusionGetDeviceCount(int* ndev);
ARFUSION_API arfusionResult_t arfusionGetProperties(int dev, arfusionProperties_t* props);

/* ---------------------------------------------------------------- communicators
 *
 * Each rank makes its own, all at the same time; the calls block until every rank is there, and fail on all within
 * ARFUSION_INIT_TIMEOUT seconds. `dev` is a CUDA ordinal (0 on the host device); -1 is the calling thread's current
 * CUDA device. `config` (NULL: the default) says how large requests get. On GPUs NCCL is looked for (ARFUSION_NCCL_LIB,
 * a libnccl that is already loaded, the loader's libnccl.so.2) and gets a communicator too, for what the plugin turns
 * down. */

/* One rank makes an id; all ranks, on one host, get it by any means and use it for one communicator. */
ARFUSION_API arfusionResult_t arfusionGetUniqueId(arfusionUniqueId_t* id);
ARFUSION_API arfusionResult_t arfusionCommInitRank(arfusionComm_t* comm, int nranks, const arfusionUniqueId_t* id,
                                                   int rank, int dev, const arfusionConfig_t* config);

/* From torchrun's RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT, on device LOCAL_RANK. */
ARFUSION_API arfusionResult_t arfusionCommInitEnvironment(arfusionComm_t* comm, const arfusionConfig_t* config);

/* All ranks of a communicator in this process: comms[r] on devs[r] (NULL: r modulo the number of devices). */
#define ARFUSION_MAX_INIT_ALL 4096 /* ranks; the plugin turns down what more than ARFUSION_MAX_RANKS ask for */
ARFUSION_API arfusionResult_t arfusionCommInitAll(arfusionComm_t* comms, int nranks, const int* devs,
                                                  const arfusionConfig_t* config);

/* With the caller's own all-gather, which must work until the communicator is destroyed. */
ARFUSION_API arfusionResult_t arfusionCommInitBootstrap(arfusionComm_t* comm, const arfusionBootstrap_t* bootstrap,
                                                        int dev, const arfusionConfig_t* config);

/* From an ncclComm_t (passed as a pointer, so that NCCL's header is not needed), on its device. It stays the caller's,
 * is used for set-up and for what the plugin turns down, and must outlive the communicator. */
ARFUSION_API arfusionResult_t arfusionCommInitNccl(arfusionComm_t* comm, void* ncclComm,
                                                   const arfusionConfig_t* config);

/* Frees it once this rank's enqueued work has ended. Never waits for another rank. NULL is allowed. */
ARFUSION_API arfusionResult_t arfusionCommDestroy(arfusionComm_t comm);

/* Ends running operations, also those that are completed on the host device (unless they wait in an all-gather of the
 * caller's own); any thread. arfusionCommDestroy is still due. */
ARFUSION_API arfusionResult_t arfusionCommAbort(arfusionComm_t comm);

/* *result: arfusionSuccess, or why it has failed; `text` (may be NULL) gets up to `bytes` characters. Any thread. */
ARFUSION_API arfusionResult_t arfusionCommGetAsyncError(arfusionComm_t comm, arfusionResult_t* result, char* text,
                                                        size_t bytes);

ARFUSION_API arfusionResult_t arfusionCommCount(arfusionComm_t comm, int* nranks);
ARFUSION_API arfusionResult_t arfusionCommUserRank(arfusionComm_t comm, int* rank);
ARFUSION_API arfusionResult_t arfusionCommDevice(arfusionComm_t comm, int* dev);
ARFUSION_API arfusionResult_t arfusionCommGetCapacity(arfusionComm_t comm, arfusionCapacity_t* capacity);
ARFUSION_API arfusionResult_t arfusionCommGetStats(arfusionComm_t comm, arfusionStats_t* stats);

/* The counters as one line of JSON in `text`. With 4096 bytes there is always room; too few are an error.
 *   {"requests": 3, "errors": 0, "launches": 2, "bytes": 65536, "by_algorithm": {"oneshot_lamport": 2, "none": 1},
 *    "by_reason": {"operation": 1}, "nan_inputs": 0, "nan_residuals": 0, "nan_outputs": 0}
 * Algorithms and reasons with nothing to count are left away; reasons are the enumerators' names. */
ARFUSION_API arfusionResult_t arfusionCommGetStatsJson(arfusionComm_t comm, char* text, size_t bytes);

ARFUSION_API arfusionResult_t arfusionCommGetWorkspace(arfusionComm_t comm, arfusionWorkspace_t* workspace);

/* What FlashInfer's trtllm_create_ipc_workspace_for_all_reduce_fusion says of a workspace of this communicator's
 * configuration, in bytes, with its formulas:
 *   buffer_size         = tp_size * max_token_num * hidden_dim * 2
 *   flag_size           = tp_size * 256 * 4
 *   lamport_comm_size   = tp_size * max_token_num * hidden_dim * (use_fp32_lamport ? 4 : 2), at most 2^31 - 2^21
 *   lamport_buffer_size = lamport_comm_size * 3 */
typedef struct {
  size_t size;
  int64_t tp_rank, tp_size, max_token_num, hidden_dim, use_fp32_lamport;
  int64_t buffer_size, flag_size, lamport_comm_size, lamport_buffer_size;
} arfusionWorkspaceMetadata_t;
#define ARFUSION_WORKSPACE_METADATA_V1_SIZE 80
ARFUSION_API arfusionResult_t arfusionCommGetWorkspaceMetadata(arfusionComm_t comm, int use_fp32_lamport,
                                                               arfusionWorkspaceMetadata_t* metadata);

/* ---------------------------------------------------------------- the operation */

/* Does `request` on `stream` (a cudaStream_t; ignored on the host device): by the plugin, or, when it is turned down,
 * by NCCL and the plugin's epilogue. `route` (may be NULL) says which: algorithm arfusionAlgoNone and a reason for the
 * latter. What neither can do (a hidden that no epilogue takes, no NCCL on the machine) is an error, with nothing
 * enqueued. For the completed requests results follow NCCL's order of sums, and memory for the sum, if no output can
 * hold it, is taken from the device's stream-ordered pool. */
ARFUSION_API arfusionResult_t arfusionAllReduce(arfusionComm_t comm, const arfusionRequest_t* request, void* stream,
                                                arfusionRoute_t* route);

/* Only what follows the sum, of a request of pattern residual_rmsnorm whose `input` already holds it: the plugin's
 * epilogue on `stream`. Waits for no other rank. What it cannot do (a data type, a hidden, a quantization) is an
 * error. */
ARFUSION_API arfusionResult_t arfusionEpilogue(arfusionComm_t comm, const arfusionRequest_t* request, void* stream);

#ifdef __cplusplus
}
#endif
#endif
