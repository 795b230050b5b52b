/* SPDX-License-Identifier: Apache-2.0
 *
 * device_cuda.c: CUDA devices. Calls are asynchronous on the caller's stream and leave its current device and capture
 * mode as they were.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/cuda_kernels.h"
#include "plugin/core/bootstrap.h"
#include "plugin/core/log.h"
#include "plugin/core/memory_cuda.h"
#include "plugin/core/peers.h"

enum { NEEDED_COMPUTE_MAJOR = 8, CONNECTIONS_TO_SHARE = 32 };

/* What the host and the device write for each other; pinned host memory. */
struct mailbox {
  uint32_t abort;
  uint32_t padding[31]; /* the device polls the line above */
  struct kernel_failure failure;
  uint32_t peer_failed[ARFUSION_MAX_RANKS]; /* of the write test */
  uint64_t nan_counts[KERNEL_NAN_PLACES];
};

struct device_comm {
  struct cuda_comm kernels;
  struct shared_memory memory;
  struct mailbox* mailbox;
  int dev, count_nan;
  /* One operation at a time: an event orders operations once a second stream has been met. */
  cudaEvent_t ordered;
  cudaStream_t last_stream;
  int launched, several_streams;
  cudaStream_t private_stream; /* for set-up and aborts, which must not queue behind the caller's work */
};

/* ---------------------------------------------------------------- the caller's device and capture mode */

struct device_guard {
  int previous;
  enum cudaStreamCaptureMode mode;
};

/* Makes `dev` current and allows calls that a global capture elsewhere in the process would forbid. */
static arfusionResult_t guard_enter(struct device_guard* guard, int dev) {
  guard->mode = cudaStreamCaptureModeRelaxed;
  CUDA_TRY(cudaGetDevice(&guard->previous));
  CUDA_TRY(cudaSetDevice(dev));
  CUDA_TRY(cudaThreadExchangeStreamCaptureMode(&guard->mode));
  return arfusionSuccess;
}

static void guard_leave(struct device_guard* guard) {
  cudaThreadExchangeStreamCaptureMode(&guard->mode);
  cudaSetDevice(guard->previous);
}

/* ---------------------------------------------------------------- devices */

static arfusionResult_t cuda_count(int* ndev) {
  int driver = 0;
  const cudaError_t error = cudaGetDeviceCount(ndev);
  if (error == cudaSuccess) return arfusionSuccess;
  cudaGetLastError();
  cudaDriverGetVersion(&driver);
  *ndev = 0;
  if (error == cudaErrorNoDevice || (error == cudaErrorInsufficientDriver && driver == 0)) return arfusionSuccess;
  /* A GPU is there, and its memory is what callers will hand over: the host device must not take its place. */
  return cuda_error(error, "cudaGetDeviceCount");
}

static arfusionResult_t cuda_current(int* dev) {
  CUDA_TRY(cudaGetDevice(dev));
  return arfusionSuccess;
}

static arfusionResult_t cuda_properties(int dev, arfusionProperties_t* properties) {
  struct cudaDeviceProp prop;
  CUDA_TRY(cudaGetDeviceProperties(&prop, dev));
  snprintf(properties->name, sizeof properties->name, "%.63s", prop.name);
  snprintf(properties->pciBusId, sizeof properties->pciBusId, "%04x:%02x:%02x.0", (unsigned)prop.pciDomainID & 0xffffu,
           (unsigned)prop.pciBusID & 0xffu, (unsigned)prop.pciDeviceID & 0xffu);
  properties->deviceOrdinal = dev;
  properties->computeMajor = prop.major;
  properties->computeMinor = prop.minor;
  properties->multiprocessors = prop.multiProcessorCount;
  properties->memoryBytes = prop.totalGlobalMem;
  return arfusionSuccess;
}

static arfusionResult_t unique_of_device(int dev, uint64_t* unique) {
  struct cudaDeviceProp prop;
  uint64_t half[2];
  CUDA_TRY(cudaGetDeviceProperties(&prop, dev));
  memcpy(half, &prop.uuid, sizeof half);
  *unique = half[0] ^ half[1];
  return arfusionSuccess;
}

static arfusionResult_t cuda_facts(int dev, struct device_facts* facts) {
  CUDA_TRY(cudaDeviceGetAttribute(&facts->multiprocessors, cudaDevAttrMultiProcessorCount, dev));
  CUDA_TRY(cudaDeviceGetAttribute(&facts->compute_major, cudaDevAttrComputeCapabilityMajor, dev));
  CUDA_TRY(cudaDeviceGetAttribute(&facts->compute_minor, cudaDevAttrComputeCapabilityMinor, dev));
  FORWARD_IF_ERROR(unique_of_device(dev, &facts->unique));
  CUDA_TRY(cudaDeviceGetPCIBusId(facts->bus_id, sizeof facts->bus_id, dev));
  facts->shareable_memory = shared_memory_supported(dev);
  if (facts->compute_major < NEEDED_COMPUTE_MAJOR) {
    facts->driver = facts->compute_major * 10 + facts->compute_minor;
    facts->driver_needed = NEEDED_COMPUTE_MAJOR * 10;
  }
  return arfusionSuccess;
}

/* ---------------------------------------------------------------- communicators */

/* The most ranks on one GPU. */
static int ranks_per_gpu(const struct device_setup* setup) {
  int most = 1;
  for (int r = 0; r < setup->nranks; ++r) {
    int same = 0;
    for (int s = 0; s < setup->nranks; ++s) same += setup->facts[s].unique == setup->facts[r].unique;
    if (same > most) most = same;
  }
  return most;
}

static int fewest_multiprocessors(const struct device_setup* setup) {
  int fewest = setup->facts[0].multiprocessors;
  for (int r = 1; r < setup->nranks; ++r) {
    if (setup->facts[r].multiprocessors < fewest) fewest = setup->facts[r].multiprocessors;
  }
  return fewest;
}

/* A kernel that waits for peers must leave room for others: an eighth of the multiprocessors stays free, and an
 * operation that gives each block a few tokens, which is over in microseconds, leaves a thirty-second. (One free
 * multiprocessor is enough for a second communicator to make progress, since block b waits for the peers' block b
 * alone.) Ranks that share a GPU must be resident together. */
static void choose_grids(const struct device_setup* setup, struct cuda_comm* kernels) {
  const int fewest = fewest_multiprocessors(setup), sharing = ranks_per_gpu(setup);
  const int blocks = (fewest - (fewest + 7) / 8) / sharing;
  kernels->max_blocks = blocks > 0 ? blocks : 1;
  kernels->max_blocks_of_few_tokens = sharing > 1 ? kernels->max_blocks : fewest - fewest / 32;
}

static int must_be_legacy(const struct device_setup* setup) {
  int legacy = setup->settings->value[SETTING_IPC] == IPC_LEGACY;
  for (int r = 0; r < setup->nranks; ++r) legacy |= !setup->facts[r].shareable_memory;
  return legacy;
}

static arfusionResult_t check_connections(const struct device_setup* setup) {
  const char* text = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
  if (ranks_per_gpu(setup) == 1 || (text && atoi(text) >= CONNECTIONS_TO_SHARE)) return arfusionSuccess;
  return error_set(
      arfusionInvalidUsage,
      "several ranks share a GPU, which needs CUDA_DEVICE_MAX_CONNECTIONS=%d before CUDA starts (it is %s)",
      CONNECTIONS_TO_SHARE, text ? text : "not set");
}

static arfusionResult_t reset_workspace(const struct device_comm* comm) {
  cudaError_t error = (cudaError_t)cuda_workspace_reset(&comm->kernels, comm->private_stream);
  if (error == cudaSuccess) error = cudaStreamSynchronize(comm->private_stream);
  return error == cudaSuccess ? arfusionSuccess : cuda_error(error, "the workspace's reset");
}

static arfusionResult_t create_own(struct device_comm* comm, const struct device_setup* setup) {
  struct cuda_comm* kernels = &comm->kernels;
  FORWARD_IF_ERROR(check_connections(setup));
  FORWARD_IF_ERROR(device_check_limit(setup, (int64_t)kernels->layout.total));
  CUDA_TRY(cudaHostAlloc((void**)&comm->mailbox, sizeof *comm->mailbox, cudaHostAllocMapped | cudaHostAllocPortable));
  memset(comm->mailbox, 0, sizeof *comm->mailbox);
  struct mailbox* as_seen_by_device;
  CUDA_TRY(cudaHostGetDevicePointer((void**)&as_seen_by_device, comm->mailbox, 0));
  kernels->abort = &as_seen_by_device->abort;
  kernels->failure = &as_seen_by_device->failure;
  CUDA_TRY(cudaEventCreateWithFlags(&comm->ordered, cudaEventDisableTiming));
  CUDA_TRY(cudaStreamCreateWithFlags(&comm->private_stream, cudaStreamNonBlocking));
  FORWARD_IF_ERROR(shared_memory_create(&comm->memory, comm->dev, setup->rank, setup->nranks, kernels->layout.total,
                                        must_be_legacy(setup)));
  kernels->workspace[setup->rank] = comm->memory.address[setup->rank];
  FORWARD_IF_ERROR(reset_workspace(comm));
  CUDA_TRY((cudaError_t)cuda_kernels_load(setup->nranks));
  return arfusionSuccess;
}

static void cuda_destroy(struct device_comm* comm) {
  struct device_guard guard;
  if (guard_enter(&guard, comm->dev) == arfusionSuccess) {
    if (comm->launched) cudaDeviceSynchronize();
    if (comm->private_stream) {
      cudaStreamSynchronize(comm->private_stream);
      cudaStreamDestroy(comm->private_stream);
    }
    shared_memory_destroy(&comm->memory);
    if (comm->ordered) cudaEventDestroy(comm->ordered);
    if (comm->mailbox) cudaFreeHost(comm->mailbox);
    guard_leave(&guard);
  }
  free(comm);
}

static arfusionResult_t create_guarded(struct device_comm* comm, const struct device_setup* setup) {
  arfusionResult_t result = bootstrap_vote(setup->bootstrap, create_own(comm, setup));
  if (result != arfusionSuccess) return result;
  FORWARD_IF_ERROR(shared_memory_exchange(&comm->memory, comm->dev, setup));
  memcpy(comm->kernels.workspace, comm->memory.address, sizeof comm->kernels.workspace);
  return arfusionSuccess;
}

static void launch_bytes_fill(const struct cuda_layout* layout, struct route_facts* route) {
  for (int a = arfusionAlgoOneshotLamport; a < ARFUSION_NUM_ALGORITHMS; ++a) {
    route->launch_bytes[a] = (int64_t)cuda_layout_launch_bytes(layout, (arfusionAlgorithm_t)a);
  }
}

static void layout_choose(const struct device_setup* setup, struct cuda_layout* layout) {
  cuda_layout_compute(layout, setup->nranks, setup->max_request_bytes, setup->settings->value[SETTING_WORKSPACE_LIMIT]);
}

static arfusionResult_t cuda_plan(const struct device_setup* setup, struct route_facts* route) {
  struct cuda_layout layout;
  layout_choose(setup, &layout);
  FORWARD_IF_ERROR(device_check_limit(setup, (int64_t)layout.total));
  launch_bytes_fill(&layout, route);
  return arfusionSuccess;
}

static arfusionResult_t cuda_create(const struct device_setup* setup, struct device_comm** out,
                                    struct route_facts* route, int64_t* workspace_bytes) {
  struct device_guard guard;
  struct device_comm* comm = calloc(1, sizeof *comm);
  arfusionResult_t result = comm ? guard_enter(&guard, setup->dev)
                                 : error_set(arfusionSystemError, "out of memory for a communicator");
  const int entered = result == arfusionSuccess;
  result = bootstrap_vote(setup->bootstrap, result);
  if (result == arfusionSuccess) {
    struct cuda_comm* kernels = &comm->kernels;
    comm->dev = setup->dev;
    comm->count_nan = setup->settings->value[SETTING_COUNT_NAN] != 0;
    kernels->rank = setup->rank;
    kernels->nranks = setup->nranks;
    kernels->timeout_ns = (uint64_t)setup->settings->value[SETTING_TIMEOUT] * 1000000000u;
    choose_grids(setup, kernels);
    kernels->compute_major = setup->facts[setup->rank].compute_major;
    kernels->shared_gpu = ranks_per_gpu(setup) > 1;
    layout_choose(setup, &kernels->layout);
    result = create_guarded(comm, setup);
  }
  if (entered) guard_leave(&guard);
  if (result != arfusionSuccess) {
    if (entered) {
      cuda_destroy(comm);
    } else {
      free(comm);
    }
    return result;
  }
  launch_bytes_fill(&comm->kernels.layout, route);
  *workspace_bytes = (int64_t)comm->memory.bytes;
  *out = comm;
  return arfusionSuccess;
}

static arfusionResult_t run_peer_test(struct device_comm* comm, uint32_t lost, uint64_t limit_ns) {
  struct mailbox* as_seen_by_device;
  CUDA_TRY(cudaHostGetDevicePointer((void**)&as_seen_by_device, comm->mailbox, 0));
  CUDA_TRY((cudaError_t)cuda_peer_test(&comm->kernels, lost, limit_ns, as_seen_by_device->peer_failed,
                                       comm->private_stream));
  CUDA_TRY(cudaStreamSynchronize(comm->private_stream));
  return arfusionSuccess;
}

static arfusionResult_t cuda_test_peers(struct device_comm* comm, uint32_t lost, uint64_t limit_ns, int* peer) {
  struct device_guard guard;
  FORWARD_IF_ERROR(guard_enter(&guard, comm->dev));
  const arfusionResult_t result = run_peer_test(comm, lost, limit_ns);
  guard_leave(&guard);
  *peer = PEERS_ALL;
  for (int r = comm->kernels.nranks - 1; r >= 0; --r) {
    if (comm->mailbox->peer_failed[r]) *peer = r;
  }
  return result;
}

/* ---------------------------------------------------------------- operations */

/* What a stream is capturing; id 0: nothing. The dependencies are those of whatever the stream does next. */
struct capture {
  unsigned long long id;
  const cudaGraphNode_t* dependencies;
  const cudaGraphEdgeData* edges;
  size_t count;
};

static struct capture capture_of(cudaStream_t stream) {
  struct capture capture = {0};
  enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaError_t error = cudaStreamGetCaptureInfo(stream, &status, &capture.id, NULL, &capture.dependencies,
                                                     &capture.edges, &capture.count);
  if (error != cudaSuccess || status != cudaStreamCaptureStatusActive) {
    cudaGetLastError();
    return (struct capture){0};
  }
  return capture;
}

/* The stream is not the one of the operation before: order them. A captured operation against one outside its graph is
 * the caller's to order. */
static cudaError_t order_after_last(struct device_comm* comm, cudaStream_t stream) {
  if (!comm->launched) return cudaSuccess;
  const struct capture here = capture_of(stream), last = capture_of(comm->last_stream);
  if (here.id) {
    if (here.id != last.id) return cudaSuccess;
    return cudaStreamUpdateCaptureDependencies(stream, (cudaGraphNode_t*)last.dependencies, last.edges, last.count,
                                               cudaStreamAddCaptureDependencies);
  }
  if (!comm->several_streams && !last.id) {
    const cudaError_t error = cudaEventRecord(comm->ordered, comm->last_stream);
    if (error != cudaSuccess) return error;
    comm->several_streams = 1;
  }
  return comm->several_streams ? cudaStreamWaitEvent(stream, comm->ordered, 0) : cudaSuccess;
}

/* An operation (call NULL), or the check before it. */
static cudaError_t launch(struct device_comm* comm, arfusionAlgorithm_t algorithm, const struct kernel_op* op,
                          const struct kernel_call* call, void* stream) {
  if (call) return (cudaError_t)cuda_launch_check(&comm->kernels, algorithm, call, stream);
  if (!comm->count_nan) return (cudaError_t)cuda_launch(&comm->kernels, algorithm, op, stream);
  int error = cuda_launch_nan_count(&comm->kernels, op, 0, stream);
  if (!error) error = cuda_launch(&comm->kernels, algorithm, op, stream);
  if (!error) error = cuda_launch_nan_count(&comm->kernels, op, 1, stream);
  return (cudaError_t)error;
}

static arfusionResult_t launch_in_order(struct device_comm* comm, arfusionAlgorithm_t algorithm,
                                        const struct kernel_op* op, const struct kernel_call* call, void* stream) {
  int previous;
  CUDA_TRY(cudaGetDevice(&previous));
  if (previous != comm->dev) CUDA_TRY(cudaSetDevice(comm->dev));
  cudaError_t error = stream == comm->last_stream ? cudaSuccess : order_after_last(comm, stream);
  if (error == cudaSuccess) error = launch(comm, algorithm, op, call, stream);
  if (error == cudaSuccess) {
    comm->launched = 1;
    comm->last_stream = stream;
    if (comm->several_streams && !capture_of(stream).id) error = cudaEventRecord(comm->ordered, stream);
  }
  if (previous != comm->dev) cudaSetDevice(previous);
  return error == cudaSuccess ? arfusionSuccess : cuda_error(error, "the operation's launch");
}

static arfusionResult_t cuda_run(struct device_comm* comm, arfusionAlgorithm_t algorithm, const struct kernel_op* op,
                                 void* stream) {
  return launch_in_order(comm, algorithm, op, NULL, stream);
}

static arfusionResult_t cuda_check(struct device_comm* comm, arfusionAlgorithm_t algorithm,
                                   const struct kernel_call* call, void* stream) {
  return launch_in_order(comm, algorithm, NULL, call, stream);
}

static arfusionResult_t cuda_epilogue(int dev, const struct kernel_op* op, void* stream) {
  int previous, major;
  CUDA_TRY(cudaGetDevice(&previous));
  CUDA_TRY(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, dev));
  if (previous != dev) CUDA_TRY(cudaSetDevice(dev));
  const cudaError_t error = (cudaError_t)cuda_launch_epilogue(op, major, stream);
  if (previous != dev) cudaSetDevice(previous);
  return error == cudaSuccess ? arfusionSuccess : cuda_error(error, "the epilogue's launch");
}

/* The own kernels see the word when they wait; peers that wait for a rank that runs nothing are told by a kernel. */
static void cuda_abort(struct device_comm* comm) {
  struct device_guard guard;
  __atomic_store_n(&comm->mailbox->abort, 1, __ATOMIC_RELEASE);
  if (guard_enter(&guard, comm->dev) != arfusionSuccess) return;
  const cudaError_t error = (cudaError_t)cuda_comm_tell_peers(&comm->kernels, comm->private_stream);
  if (error != cudaSuccess) cuda_error(error, "telling the peers of an abort");
  guard_leave(&guard);
}

static void cuda_failure(struct device_comm* comm, struct kernel_failure* failure) {
  if (__atomic_load_n(&comm->mailbox->failure.kind, __ATOMIC_ACQUIRE) == KERNEL_FAILURE_NONE) return;
  *failure = comm->mailbox->failure;
}

static void cuda_workspace(const struct device_comm* comm, arfusionWorkspace_t* view) {
  view->flagsOffset = (int64_t)comm->kernels.layout.control;
  view->lamportOffset = (int64_t)comm->kernels.layout.lamport;
  view->stageOffset = (int64_t)comm->kernels.layout.stage;
  for (int r = 0; r < comm->kernels.nranks; ++r) view->address[r] = comm->kernels.workspace[r];
}

static cudaError_t nan_counts_read(struct device_comm* comm, int all) {
  const size_t bytes = sizeof comm->mailbox->nan_counts;
  cudaError_t error = all && comm->launched ? cudaDeviceSynchronize() : cudaSuccess;
  if (error == cudaSuccess) {
    error = cudaMemcpyAsync(comm->mailbox->nan_counts, cuda_nan_counts(&comm->kernels), bytes, cudaMemcpyDeviceToHost,
                            comm->private_stream);
  }
  return error == cudaSuccess ? cudaStreamSynchronize(comm->private_stream) : error;
}

static void cuda_nan_counts_get(struct device_comm* comm, int all, uint64_t counts[KERNEL_NAN_PLACES]) {
  struct device_guard guard;
  if (guard_enter(&guard, comm->dev) == arfusionSuccess) {
    const cudaError_t error = nan_counts_read(comm, all);
    if (error != cudaSuccess) cuda_error(error, "reading the numbers of NaNs");
    guard_leave(&guard);
  }
  memcpy(counts, comm->mailbox->nan_counts, sizeof comm->mailbox->nan_counts);
}

const struct device_ops device_cuda = {
    .is_host = 0,
    .count = cuda_count,
    .current = cuda_current,
    .properties = cuda_properties,
    .facts = cuda_facts,
    .unreachable = peers_unreachable,
    .plan = cuda_plan,
    .create = cuda_create,
    .test_peers = cuda_test_peers,
    .destroy = cuda_destroy,
    .check = cuda_check,
    .run = cuda_run,
    .epilogue = cuda_epilogue,
    .abort = cuda_abort,
    .failure = cuda_failure,
    .workspace = cuda_workspace,
    .nan_counts = cuda_nan_counts_get,
};
