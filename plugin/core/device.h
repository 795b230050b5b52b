/* SPDX-License-Identifier: Apache-2.0
 *
 * device.h: what a kind of device (CUDA GPUs, the host) does for a communicator. Everything above this table is the
 * same for both.
 */
#ifndef ARFUSION_CORE_DEVICE_H_
#define ARFUSION_CORE_DEVICE_H_

#include "kernels/op.h"
#include "plugin/core/route.h"
#include "plugin/core/settings.h"
#include "topo/topo.h"

/* What a rank tells the others of its device; plain data, exchanged at commInit. */
struct device_facts {
  /* equal on two ranks only if they use the same physical device; 0: sharing is normal (host) */
  uint64_t unique;
  int32_t multiprocessors;
  int32_t compute_major, compute_minor;
  int32_t shareable_memory; /* memory can be shared by descriptor (CUDA's virtual memory management) */
  char bus_id[TOPO_BUS_ID_BYTES];   /* of the GPU; "": none */
  int32_t driver, driver_needed; /* not equal to 0: the driver is older than needed */
};

struct device_comm; /* what the device keeps for a communicator */

struct device_setup {
  int dev, rank, nranks;
  const struct settings* settings;
  const struct device_facts* facts; /* of all ranks */
  const arfusionBootstrap_t* bootstrap;
  int64_t max_request_bytes;
};

/* An error if a workspace of `bytes`, the smallest for so many ranks, is over ARFUSION_WORKSPACE_LIMIT. */
arfusionResult_t device_check_limit(const struct device_setup* setup, int64_t bytes);

struct device_ops {
  int is_host;
  arfusionResult_t (*count)(int* ndev);
  arfusionResult_t (*current)(int* dev); /* the calling thread's */
  arfusionResult_t (*properties)(int dev, arfusionProperties_t* properties);
  arfusionResult_t (*facts)(int dev, struct device_facts* facts);
  /* The lowest rank whose memory this device cannot reach, PEERS_ALL or PEERS_DISABLED; see peers.h. */
  int (*unreachable)(const struct device_setup* setup);
  /* What create would fill in of `route`, and its error if ARFUSION_WORKSPACE_LIMIT is too low; makes nothing. */
  arfusionResult_t (*plan)(const struct device_setup* setup, struct route_facts* route);
  /* Makes, shares and maps the workspaces; all ranks call it together and get the same result. Fills in launch_bytes of
   * `route`. */
  arfusionResult_t (*create)(const struct device_setup* setup, struct device_comm** out, struct route_facts* route,
                             int64_t* workspace_bytes);
  /* Whether what the peers write arrives, before first use: *peer is the lowest rank whose writes did not, within the
   * limit, or PEERS_ALL. Nothing is written to the ranks in `lost` (bit r), as if it were lost. All ranks call it
   * together. */
  arfusionResult_t (*test_peers)(struct device_comm* comm, uint32_t lost, uint64_t limit_ns, int* peer);
  /* Frees it once enqueued work has ended; waits for no other rank. */
  void (*destroy)(struct device_comm* comm);
  /* Before a request's first `run`, with ARFUSION_CHECK: fails unless the other ranks, which do the same, were asked
   * for the same. As `run`. */
  arfusionResult_t (*check)(struct device_comm* comm, arfusionAlgorithm_t algorithm, const struct kernel_call* call,
                            void* stream);
  arfusionResult_t (*run)(struct device_comm* comm, arfusionAlgorithm_t algorithm, const struct kernel_op* op,
                          void* stream);
  arfusionResult_t (*epilogue)(int dev, const struct kernel_op* op, void* stream);
  /* From any thread: makes running and later operations end. */
  void (*abort)(struct device_comm* comm);
  /* From any thread: why operations failed; kind KERNEL_FAILURE_NONE if they did not. */
  void (*failure)(struct device_comm* comm, struct kernel_failure* failure);
  /* Fills in the offsets and addresses of `view`. */
  void (*workspace)(const struct device_comm* comm, arfusionWorkspace_t* view);
  /* NaNs counted so far (ARFUSION_COUNT_NAN), of what has ended. `all`: first waits for what has been enqueued. */
  void (*nan_counts)(struct device_comm* comm, int all, uint64_t counts[KERNEL_NAN_PLACES]);
};

extern const struct device_ops device_host;
#ifdef ARFUSION_HAVE_CUDA
extern const struct device_ops device_cuda;
#endif

#endif
