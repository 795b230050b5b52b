/* SPDX-License-Identifier: Apache-2.0
 *
 * probe_kernels.cu: what the probe measures with; see probe_kernels.h.
 */
#include "kernels/cuda/device_ops.cuh"
#include "plugin/tools/topo/probe_kernels.h"

static const uint32_t threads = 512;
static const int in_flight = 8; /* accesses of a thread under way at once: a link is filled by many, not by wide ones */
static const uint32_t warm_up_rounds = 200;

DEVICE struct vec pattern(uint64_t position, uint32_t seed) {
  uint32_t low = (uint32_t)position * 2654435761u + seed * 0x9e3779b9u, high = (uint32_t)(position >> 32) ^ seed;
  struct vec v = {{low, low ^ 0x5bd1e995u, high + low, ~low}};
  return v;
}

DEVICE bool differs(const struct vec& a, const struct vec& b) {
  return ((a.w[0] ^ b.w[0]) | (a.w[1] ^ b.w[1]) | (a.w[2] ^ b.w[2]) | (a.w[3] ^ b.w[3])) != 0;
}

/* Where this thread's `k`-th of `in_flight` accesses of a step lies: neighbours in neighbouring threads. */
DEVICE uint64_t position_of(uint64_t step, int k) {
  return (step * device_blocks() + device_block()) * (threads * in_flight) + (uint64_t)k * threads + device_thread();
}

static KERNEL(512) fill_kernel(struct vec* data, uint64_t count, uint32_t seed) {
  for (uint64_t step = 0; position_of(step, 0) < count; step++) {
    UNROLL
    for (int k = 0; k < in_flight; k++) {
      uint64_t i = position_of(step, k);
      if (i < count) device_store(data + i, pattern(i, seed));
    }
  }
}

static KERNEL(512) check_kernel(const struct vec* data, uint64_t count, uint32_t seed, uint64_t* wrong) {
  uint64_t found = 0;
  for (uint64_t step = 0; position_of(step, 0) < count; step++) {
    struct vec v[in_flight];
    UNROLL
    for (int k = 0; k < in_flight; k++) {
      uint64_t i = position_of(step, k);
      if (i < count) v[k] = device_load(data + i);
    }
    UNROLL
    for (int k = 0; k < in_flight; k++) {
      uint64_t i = position_of(step, k);
      if (i < count && differs(v[k], pattern(i, seed))) found++;
    }
  }
  if (found != 0) device_atomic_add_u64(wrong, found);
}

/* Until the word is `value`; false past the deadline, which is looked at now and then: reading the clock takes longer
 * than reading the word. */
DEVICE bool wait_for(const uint32_t* word, uint32_t value, uint64_t deadline) {
  for (uint32_t spins = 1;; spins++) {
    if (device_load_relaxed_sys_u32(word) == value) return true;
    if (UNLIKELY(spins % 1024 == 0) && device_nanoseconds() > deadline) return false;
  }
}

static KERNEL(1)
    ping_kernel(uint32_t* mine, uint32_t* theirs, int first, uint32_t rounds, uint64_t limit_ns, uint64_t* elapsed_ns) {
  uint64_t start = device_nanoseconds(), deadline = start + limit_ns;
  for (uint32_t round = 1; round <= warm_up_rounds + rounds; round++) {
    if (round == warm_up_rounds + 1) start = device_nanoseconds();
    if (first) device_store_relaxed_sys_u32(theirs, round);
    if (!wait_for(mine, round, deadline)) {
      *elapsed_ns = UINT64_MAX;
      return;
    }
    if (!first) device_store_relaxed_sys_u32(theirs, round);
  }
  *elapsed_ns = device_nanoseconds() - start;
}

extern "C" cudaError_t probe_fill(void* data, size_t bytes, uint32_t seed, int blocks, cudaStream_t stream) {
  fill_kernel<<<blocks, threads, 0, stream>>>((struct vec*)data, bytes / sizeof(struct vec), seed);
  return cudaGetLastError();
}

extern "C" cudaError_t probe_check(const void* data, size_t bytes, uint32_t seed, uint64_t* wrong, int blocks,
                                   cudaStream_t stream) {
  check_kernel<<<blocks, threads, 0, stream>>>((const struct vec*)data, bytes / sizeof(struct vec), seed, wrong);
  return cudaGetLastError();
}

extern "C" cudaError_t probe_ping(uint32_t* mine, uint32_t* theirs, int first, uint32_t rounds, uint64_t limit_ns,
                                  uint64_t* elapsed_ns, cudaStream_t stream) {
  ping_kernel<<<1, 1, 0, stream>>>(mine, theirs, first, rounds, limit_ns, elapsed_ns);
  return cudaGetLastError();
}
