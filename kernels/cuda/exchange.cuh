/* SPDX-License-Identifier: Apache-2.0
 *
 * exchange.cuh: what every kernel that waits for a peer does besides: epochs, time limits, failure.
 *
 * Epochs. Every thread reads the epoch when it starts. A block that has done so arrives: it adds one to the lowest bits
 * of the epoch's word. The block that finds all others there takes their number away again and advances the epoch, for
 * everybody has read it. No block waits for another, so the grid need not be resident as a whole.
 *
 * One operation at a time: two that begin together share that count, and one that begins while another waits advances
 * the epoch once too often, or brings the count above the number of the other's blocks. Whoever sees that fails the
 * communicator, since both take each other's data.
 *
 * Failure. A wait that is too long, or is ended by the host, fails the communicator: the first thread to record it
 * writes the host's record and the fail word of every rank. Threads that learn of a failure go on without waiting, so
 * that no vote is needed; what they write is undefined. Later kernels return at once.
 */
#ifndef ARFUSION_KERNELS_EXCHANGE_CUH_
#define ARFUSION_KERNELS_EXCHANGE_CUH_

#include "kernels/cuda/cuda_internal.h"
#include "kernels/cuda/device_ops.cuh"

/* Polls between two looks at the clock: one takes 0.15 µs or more, so this is some 20 µs. */
#define EXCHANGE_FAST_POLLS 128
/* Looks at the clock between two reads of the host's abort word, once the first few have been made: about 1 ms. */
#define EXCHANGE_ABORT_INTERVAL 64

/* What a thread keeps; as little as possible, since waiting needs many registers. */
struct exchange {
  uint32_t epoch;   /* the low half */
  uint32_t arrived; /* blocks that had arrived before this one; of the control thread */
  bool failed;
};

/* How long a thread has been waiting for a set of peers. */
struct exchange_wait {
  uint32_t polls;
  uint32_t start; /* set by the first look at the clock */
};

/* The warp whose first lane does the block's bookkeeping. */
DEVICE bool exchange_control_warp(void) { return device_thread() / 32 == device_threads() / 32 - 1; }
DEVICE bool exchange_control_thread(void) { return device_thread() == device_threads() - 32; }

/* The epoch of the running operation in full. The word in memory may have been advanced by one since. */
DEVICE uint64_t exchange_epoch(const struct exchange_args& a, const struct exchange& x) {
  const uint64_t now = device_load_relaxed_gpu_u64(&a.control->epoch) / CUDA_EPOCH;
  return (now - (uint32_t)((uint32_t)now - x.epoch)) % (UINT64_MAX / CUDA_EPOCH + 1);
}

/* Whether another operation has begun since this one did, which has not ended. */
DEVICE bool exchange_overlaps(const struct exchange_args& a, const struct exchange& x) {
  const uint32_t now = device_load_relaxed_sys_u32(&a.control->epoch); /* 16 bits of the epoch will do */
  return now % CUDA_EPOCH > device_blocks() || (uint16_t)(now / CUDA_EPOCH - x.epoch) > 1;
}

/* Whether this thread is the communicator's first to record a failure. */
DEVICE bool exchange_claim(const struct exchange_args& a) {
  return device_atomic_exchange(&a.control->recorded, 1) == 0;
}

/* The host's record, of the thread that has claimed it. */
DEVICE void exchange_write(const struct exchange_args& a, const struct exchange& x, uint32_t kind, int peer,
                           int64_t token) {
  struct kernel_failure* record = a.failure;
  device_store_relaxed_sys_u32(&record->algorithm, a.algorithm);
  device_store_relaxed_sys_u32(&record->rank, (uint32_t)a.rank);
  device_store_relaxed_sys_u32(&record->peer, (uint32_t)peer);
  device_store_relaxed_sys_u64(&record->epoch, exchange_epoch(a, x));
  device_store_relaxed_sys_u64(&record->token, (uint64_t)token);
  device_fence_sys();
  device_store_relaxed_sys_u32(&record->kind, kind);
}

/* Records a failure, once a communicator: a fail word that is this rank's own was written with a record. */
DEVICE void exchange_record(const struct exchange_args& a, const struct exchange& x, uint32_t kind, int peer,
                            int64_t token) {
  if (!exchange_claim(a)) return;
  exchange_write(a, x, kind, peer, token);
  if (kind == KERNEL_FAILURE_REMOTE) return; /* whoever failed has told the others */
  const uint32_t fail = (uint32_t)a.rank + 1;
  device_store_relaxed_sys_u32(&a.control->fail, fail);
  NO_UNROLL for (int k = 0; k < a.nranks - 1; ++k) device_store_relaxed_sys_u32(&a.peer_control[k]->fail, fail);
}

/* Starts reading what a kernel must know first; the fail word goes to exchange_check. */
DEVICE uint32_t exchange_read(const struct exchange_args& a, struct exchange* x) {
  x->epoch = (uint32_t)(device_load_relaxed_gpu_u64(&a.control->epoch) / CUDA_EPOCH);
  x->arrived = 0;
  x->failed = false;
  return device_load_relaxed_sys_u32(&a.control->fail);
}

/* False: the communicator has failed, and this warp must return. */
DEVICE bool exchange_check(const struct exchange_args& a, const struct exchange& x, uint32_t fail) {
  if (!UNLIKELY(device_warp_any(fail != 0))) return true;
  if (fail != 0) exchange_record(a, x, KERNEL_FAILURE_REMOTE, (int)fail - 1, 0);
  if (!exchange_control_warp()) device_split_arrive(device_threads()); /* the control warp may not have seen it */
  return false;
}

/* Waits for the epoch's load. For kernels in which a warp may use the epoch only after exchange_arrive. */
DEVICE void exchange_hold_epoch(struct exchange* x) {
  x->epoch = device_bits(device_shuffle(device_float(x->epoch), 0));
}

/* Every warp calls once, after it has used the epoch (as part of an address): a load that is still under way would not
 * be held up by a barrier. Only the control warp waits here for the other warps of the block. */
DEVICE void exchange_arrive(const struct exchange_args& a, struct exchange* x) {
  if (!exchange_control_warp()) {
    device_split_arrive(device_threads());
    return;
  }
  device_split_wait(device_threads());
  if (!exchange_control_thread()) return;
  /* Relaxed is enough: the reads that must come before have returned their values. */
  if (device_blocks() == 1)
    device_atomic_add_u64(&a.control->epoch, CUDA_EPOCH);
  else
    x->arrived = (uint32_t)device_atomic_fetch_add_u64(&a.control->epoch, 1) % CUDA_EPOCH;
}

/* The control thread's last duty, late, because the answer of exchange_arrive's atomic takes a while. */
DEVICE void exchange_advance(const struct exchange_args& a, const struct exchange& x) {
  const uint32_t blocks = device_blocks();
  if (!exchange_control_thread() || blocks == 1) return;
  if (x.arrived == blocks - 1) device_atomic_add_u64(&a.control->epoch, CUDA_EPOCH - blocks);
  if (UNLIKELY(x.arrived >= blocks)) exchange_record(a, x, KERNEL_FAILURE_OVERLAP, a.rank, 0);
}

/* After EXCHANGE_FAST_POLLS more polls in vain, a multiple of it in all: whether to give up waiting for this peer and
 * token. */
DEVICE bool exchange_give_up(const struct exchange_args& a, const struct exchange& x, struct exchange_wait* wait,
                             int peer, int64_t token) {
  uint32_t kind = KERNEL_FAILURE_NONE;
  const uint32_t fail = device_load_relaxed_sys_u32(&a.control->fail);
  if (fail != 0) {
    kind = KERNEL_FAILURE_REMOTE;
    peer = (int)fail - 1;
  } else {
    const uint32_t now = (uint32_t)(device_nanoseconds() >> CUDA_CLOCK_SHIFT);
    const uint32_t looks = wait->polls / EXCHANGE_FAST_POLLS;
    if (looks == 1) wait->start = now;
    if (a.timeout != 0 && now - wait->start >= a.timeout) kind = KERNEL_FAILURE_TIMEOUT;
    /* Seldom, since it crosses PCIe. */
    const bool look_at_host = (looks & (looks - 1)) == 0 || looks % EXCHANGE_ABORT_INTERVAL == 0;
    if (look_at_host && device_load_relaxed_sys_u32(a.abort) != 0) kind = KERNEL_FAILURE_ABORT;
    if (exchange_overlaps(a, x)) kind = KERNEL_FAILURE_OVERLAP;
  }
  if (kind == KERNEL_FAILURE_NONE) return false;
  exchange_record(a, x, kind, peer, token);
  return true;
}

#endif
