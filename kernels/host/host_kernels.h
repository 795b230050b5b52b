/* SPDX-License-Identifier: Apache-2.0
 *
 * host_kernels.h: the fused operation in C for memory that ranks (processes or threads) share.
 *
 * A rank's workspace is one shared mapping; every rank maps everybody's. plugin/core makes and maps them, sets up a
 * host_comm, calls host_comm_reset on its own workspace *before* any peer may use it, and then host_run, one thread at
 * a time per communicator. host_run is synchronous.
 */
#ifndef ARFUSION_KERNELS_HOST_H_
#define ARFUSION_KERNELS_HOST_H_

#include <stdatomic.h>
#include <stddef.h>

#include "kernels/op.h"

/* Where things are in a workspace, in bytes from its start; equal on all ranks. */
struct host_layout {
  size_t lamport;      /* [2 rotating buffers][nranks - 1 senders][lamport_slot] */
  size_t lamport_slot;
  size_t stage;        /* [2 halves][sync_slot]: a rank's own input (one-shot sync, two-shot) */
  size_t sums;         /* [2 halves][sync_slot]: the share that this rank has reduced (two-shot) */
  size_t sync_slot;
  size_t total;
};

/* At the start of each workspace: what other ranks write or read besides data. host_kernels' own. */
struct host_control;

struct host_comm {
  int rank, nranks;
  int yield;                                       /* ranks outnumber processors: give it away while waiting */
  uint64_t timeout_ns;                             /* of one wait; 0: for ever */
  struct host_layout layout;
  unsigned char* workspace[ARFUSION_MAX_RANKS];    /* as mapped in this process; [rank] is the own one */
  _Atomic uint32_t abort;                          /* set by host_comm_abort */
  struct kernel_failure failure;                   /* kind (stored last, with release) is not 0 once it has failed */
  uint64_t lamport_epoch, sync_epoch;              /* operations done so far, by the own count */
  uint64_t checked;                                /* calls of host_check */
};

/* The layout for requests of up to max_request_bytes within limit_bytes a rank. Slots are as large as the request if
 * the limit allows, else smaller (requests then take several launches); at least 64 KiB. */
void host_layout_compute(struct host_layout* layout, int nranks, int64_t max_request_bytes, int64_t limit_bytes);

/* Largest slot bytes (kernel_slot_bytes) that one host_run takes with this algorithm. */
size_t host_layout_launch_bytes(const struct host_layout* layout, arfusionAlgorithm_t algorithm);

/* Prepares the own workspace (control words zero, Lamport slots holding the sentinel) and the counters of `comm`.
 * Before any other rank touches it. */
void host_comm_reset(struct host_comm* comm);

/* Whether what the peers write arrives as the kernels need it (kernels/peer_test.h), after all have reset and mapped
 * and before the first host_run. All ranks call it together. The lowest rank whose writes did not arrive within the
 * limit, then this communicator must not be used; -1: all did. `lost`: bit r stands for a rank that is not written to,
 * as if all that goes there were lost; for tests. */
int host_peer_test(const struct host_comm* comm, uint32_t lost, uint64_t limit_ns);

/* commAbort: ends a running host_run and every later one, and those of the peers that wait for this rank, which see
 * KERNEL_FAILURE_REMOTE. From any thread, also between operations. */
void host_comm_abort(struct host_comm* comm);

/* Before the (first) host_run of a request: whether all ranks, which call it too, were asked for the same. As host_run;
 * a disagreement is KERNEL_FAILURE_DISAGREE on every rank that comes here. */
int host_check(struct host_comm* comm, arfusionAlgorithm_t algorithm, const struct kernel_call* call);

/* NaNs in what `op` reads (input and residual_in), or (written) in what it has written: counts[kernel_nan_place]. */
void host_nan_count(const struct kernel_op* op, int written, uint64_t counts[KERNEL_NAN_PLACES]);

/* Does `op` with the other ranks, which call it with the same algorithm and shape. 0, or -1 with comm->failure set:
 * outputs are then undefined and every later call returns -1 at once. */
int host_run(struct host_comm* comm, arfusionAlgorithm_t algorithm, const struct kernel_op* op);

/* What follows the sum: op->input holds it. No other rank is involved. Pattern residual_rmsnorm. */
void host_epilogue(const struct kernel_op* op);

#endif
