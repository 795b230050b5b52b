/* SPDX-License-Identifier: Apache-2.0
 *
 * peer_test.cuh: whether what peers write arrives, see kernels/peer_test.h. Each block has one peer.
 */
#ifndef ARFUSION_KERNELS_PEER_TEST_CUH_
#define ARFUSION_KERNELS_PEER_TEST_CUH_

#include "kernels/cuda/cuda_internal.h"
#include "kernels/cuda/device_ops.cuh"
#include "kernels/peer_test.h"

#define PEER_TEST_THREADS 256 /* a vector each in PEER_TEST_WORDS */

/* One peer. Pointers are to words. */
struct peer_test_pair {
  uint32_t *send, *receive;     /* own slot there, its slot here */
  uint32_t *stage_own, *stage_peer; /* what is staged for it here, and for this rank there */
  uint32_t peer, is_lost;
};

struct peer_test_args {
  struct peer_test_pair pairs[ARFUSION_MAX_RANKS - 1];
  uint64_t limit_ns;
  uint32_t* failed;
  uint32_t rank;
};

static_assert(PEER_TEST_THREADS * CUDA_VECTOR == PEER_TEST_WORDS * 4, "a thread has one vector of each part");

DEVICE struct vec peer_test_vector(uint32_t from, uint32_t to, uint32_t kind) {
  const uint32_t first = device_thread() * 4;
  struct vec v;
  UNROLL for (uint32_t i = 0; i < 4; ++i) v.w[i] = PEER_TEST_WORD(from, to, kind, first + i);
  return v;
}

DEVICE bool peer_test_equal(const struct vec& a, const struct vec& b) {
  return a.w[0] == b.w[0] && a.w[1] == b.w[1] && a.w[2] == b.w[2] && a.w[3] == b.w[3];
}

DEVICE bool peer_test_sentinel(const struct vec& v) {
  return v.w[0] == KERNEL_SENTINEL || v.w[1] == KERNEL_SENTINEL || v.w[2] == KERNEL_SENTINEL ||
         v.w[3] == KERNEL_SENTINEL;
}

DEVICE void peer_test_write(const struct peer_test_pair& pair, uint32_t rank) {
  const uint32_t first = device_thread() * 4;
  device_store(pair.stage_own + first, peer_test_vector(rank, pair.peer, PEER_TEST_STAGE));
  if (pair.is_lost) return;
  device_store_relaxed_sys(pair.send + first, peer_test_vector(rank, pair.peer, PEER_TEST_LAMPORT));
  NO_UNROLL for (uint32_t round = 0; round < PEER_TEST_ROUNDS; ++round) {
    device_store(pair.send + PEER_TEST_DATA(round) + first, peer_test_vector(rank, pair.peer, round));
    device_barrier();
    if (device_thread() == 0) device_store_release_sys_u64(pair.send + PEER_TEST_FLAG(round), PEER_TEST_ARRIVED);
  }
}

/* Whether this thread's part arrived. A thread that gives up reads on, for the barriers' sake. */
DEVICE bool peer_test_read(const struct peer_test_pair& pair, uint32_t rank, uint64_t deadline) {
  const uint32_t first = device_thread() * 4;
  struct vec v = device_load_relaxed_sys(pair.receive + first);
  while (peer_test_sentinel(v) && device_nanoseconds() < deadline) v = device_load_relaxed_sys(pair.receive + first);
  bool right = peer_test_equal(v, peer_test_vector(pair.peer, rank, PEER_TEST_LAMPORT));
  NO_UNROLL for (uint32_t round = 0; round < PEER_TEST_ROUNDS; ++round) {
    if (device_thread() == 0) {
      const uint32_t* flag = pair.receive + PEER_TEST_FLAG(round);
      while (device_load_acquire_sys_u64(flag) != PEER_TEST_ARRIVED && device_nanoseconds() < deadline) {
      }
    }
    device_barrier();
    v = device_load_relaxed_sys(pair.receive + PEER_TEST_DATA(round) + first);
    right = right && peer_test_equal(v, peer_test_vector(pair.peer, rank, round));
  }
  v = device_load_relaxed_sys(pair.stage_peer + first);
  return right && peer_test_equal(v, peer_test_vector(pair.peer, rank, PEER_TEST_STAGE));
}

static KERNEL(PEER_TEST_THREADS) peer_test(KERNEL_ARGUMENT(struct peer_test_args) a) {
  const struct peer_test_pair pair = a.pairs[device_block()];
  const struct vec sentinel = {{KERNEL_SENTINEL, KERNEL_SENTINEL, KERNEL_SENTINEL, KERNEL_SENTINEL}};
  const uint64_t deadline = device_nanoseconds() + a.limit_ns;
  peer_test_write(pair, a.rank);
  if (!peer_test_read(pair, a.rank, deadline)) device_store_relaxed_sys_u32(a.failed + pair.peer, 1);
  device_barrier(); /* nobody reads the slot any more */
  NO_UNROLL for (uint32_t i = device_thread() * 4; i < PEER_TEST_SLOT_WORDS; i += PEER_TEST_THREADS * 4) {
    device_store(pair.receive + i, sentinel);
  }
}

#endif
