/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_kernels.h: launchers of the CUDA kernels. C; needs no CUDA header. Functions that call CUDA return a cudaError_t
 * as int (0: success). The device of `comm` is current when they are called. No policy, no allocation, no environment.
 */
#ifndef ARFUSION_KERNELS_CUDA_H_
#define ARFUSION_KERNELS_CUDA_H_

#include <stddef.h>

#include "kernels/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where things are in a rank's workspace (device memory that every rank maps), in bytes from its start; equal on all
 * ranks. */
struct cuda_layout {
  size_t control; /* struct cuda_control: 0 */
  size_t lamport; /* [2 rotating buffers][nranks - 1 senders][lamport_slot]; one-shot Lamport and two-shot */
  size_t lamport_slot;
  size_t stage; /* [2 halves][sync_slot]; one-shot sync */
  size_t sync_slot;
  size_t total;
  int nranks;
};

struct cuda_comm {
  int rank, nranks;
  struct cuda_layout layout;
  void* workspace[ARFUSION_MAX_RANKS]; /* device pointers as mapped for this rank; [rank] is the own one */
  uint64_t timeout_ns;                 /* of one wait; 0: for ever */
  const uint32_t* abort;               /* host word, device-readable: not 0 ends every wait */
  struct kernel_failure* failure;      /* host memory, device-writable: written once, `kind` last */
  /* Agreed by all ranks: the largest grid that may wait for a peer, in blocks of 1,024 threads, and the largest whose
   * blocks have but a few tokens each, which may leave less of the GPU free, since none of its blocks lasts long. */
  int max_blocks, max_blocks_of_few_tokens;
  int compute_major;                   /* of this rank's GPU */
  int shared_gpu;                      /* several ranks on a GPU, the same on all: no dependent launch */
};

/* The layout for requests of up to max_request_bytes within limit_bytes a rank (see host_layout_compute). */
void cuda_layout_compute(struct cuda_layout* layout, int nranks, int64_t max_request_bytes, int64_t limit_bytes);

/* Largest slot bytes (kernel_slot_bytes) that one launch takes with this algorithm; 0: not available. */
size_t cuda_layout_launch_bytes(const struct cuda_layout* layout, arfusionAlgorithm_t algorithm);

/* Zeroes the control words and writes the sentinel to all the rest of the own workspace, on `stream` (a
 * cudaStream_t). Before any other rank touches it. */
int cuda_workspace_reset(const struct cuda_comm* comm, void* stream);

/* Enqueues the test of kernels/peer_test.h, after all ranks have reset and mapped and before the first cuda_launch. All
 * ranks call it together. failed[r] (host memory, device-writable, [ARFUSION_MAX_RANKS]) becomes 1 for each rank whose
 * writes did not arrive within the limit; this communicator must then not be used. `lost`: bit r stands for a rank that
 * is not written to, as if all that goes there were lost; for tests. */
int cuda_peer_test(const struct cuda_comm* comm, uint32_t lost, uint64_t limit_ns, uint32_t* failed, void* stream);

/* Loads every kernel that may be launched for `nranks` ranks on the current device, since lazy loading can wait for a
 * kernel that is spinning. */
int cuda_kernels_load(int nranks);

/* Enqueues `op`. Every rank enqueues the same algorithm and shape in the same order. */
int cuda_launch(const struct cuda_comm* comm, arfusionAlgorithm_t algorithm, const struct kernel_op* op, void* stream);

/* Enqueues, before the (first) cuda_launch of a request to `algorithm`: whether all ranks, which do the same, were
 * asked for the same. If not, each of them fails with KERNEL_FAILURE_DISAGREE, and the operation writes nothing. */
int cuda_launch_check(const struct cuda_comm* comm, arfusionAlgorithm_t algorithm, const struct kernel_call* call,
                      void* stream);

/* Enqueues the count of NaNs in what `op` reads (input and residual_in), or (written) has written. */
int cuda_launch_nan_count(const struct cuda_comm* comm, const struct kernel_op* op, int written, void* stream);

/* What it has counted since the reset: [KERNEL_NAN_PLACES], device memory. */
const uint64_t* cuda_nan_counts(const struct cuda_comm* comm);

/* Enqueues: the communicator has failed by this rank's doing. Unless a failure has been recorded, writes `failure` with
 * KERNEL_FAILURE_ABORT and the fail word of every rank, so that peers need not wait for a rank that is idle. */
int cuda_comm_tell_peers(const struct cuda_comm* comm, void* stream);

/* What follows the sum: op->input holds it. */
int cuda_launch_epilogue(const struct kernel_op* op, int compute_major, void* stream);

#ifdef __cplusplus
}
#endif
#endif
