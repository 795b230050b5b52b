/* SPDX-License-Identifier: Apache-2.0
 *
 * check.cuh: before an operation, whether all ranks were asked for the same (ARFUSION_CHECK), as a kernel of its own.
 * Each lane has one peer: it writes the own call to that peer's workspace, followed by a flag with release, and
 * compares what comes from there.
 *
 * The flag is the number of operations begun, 1 up, so that nothing is counted besides. A rank's place in a peer is
 * used again when an operation has ended, which the peer had begun by then, having ended its check.
 *
 * Of a disagreement the peers are not told: each of them has been sent all calls and finds out by itself, and then
 * knows more.
 */
#ifndef ARFUSION_KERNELS_CHECK_CUH_
#define ARFUSION_KERNELS_CHECK_CUH_

#include "kernels/cuda/exchange.cuh"

#define CHECK_THREADS 32
#define CHECK_VECTORS (CUDA_CALL_WORDS / 4)
static_assert(sizeof(struct kernel_call) == CUDA_CALL_WORDS * 4 && CUDA_CALL_WORDS % 4 == 0, "whole vectors");

DEVICE void check_record(const struct exchange_args& a, const struct exchange& x, int peer, const struct vec* own,
                         const struct vec* theirs) {
  if (!exchange_claim(a)) return;
  UNROLL for (int i = 0; i < CHECK_VECTORS; ++i) {
    device_store_relaxed_sys((struct vec*)&a.failure->own + i, own[i]);
    device_store_relaxed_sys((struct vec*)&a.failure->theirs + i, theirs[i]);
  }
  exchange_write(a, x, KERNEL_FAILURE_DISAGREE, peer, KERNEL_TOKEN_CHECK);
  device_store_relaxed_sys_u32(&a.control->fail, (uint32_t)a.rank + 1);
}

static KERNEL(CHECK_THREADS) check_calls(KERNEL_ARGUMENT(struct check_args) args) {
  const struct exchange_args& a = args.exchange;
  const int k = (int)device_thread();
  struct exchange x;
  device_grid_wait();
  const uint32_t fail = exchange_read(a, &x);
  if (!exchange_check(a, x, fail) || k >= a.nranks - 1) return;
  const int peer = a.rank + 1 + k < a.nranks ? a.rank + 1 + k : a.rank + 1 + k - a.nranks;
  const uint64_t number = exchange_epoch(a, x) + 1;
  const struct cuda_call* here = &a.control->calls[peer];
  struct cuda_call* there = &a.peer_control[k]->calls[a.rank];
  struct vec own[CHECK_VECTORS], theirs[CHECK_VECTORS];
  UNROLL for (int i = 0; i < CHECK_VECTORS; ++i) {
    UNROLL for (int j = 0; j < 4; ++j) own[i].w[j] = args.words[i * 4 + j];
    device_store_relaxed_sys(there->words + i * 4, own[i]);
  }
  device_store_release_sys_u64(&there->number, number);
  struct exchange_wait wait = {0, 0};
  while (device_load_acquire_sys_u64(&here->number) != number) {
    if (++wait.polls % EXCHANGE_FAST_POLLS == 0 && exchange_give_up(a, x, &wait, peer, KERNEL_TOKEN_CHECK)) return;
  }
  bool same = true;
  UNROLL for (int i = 0; i < CHECK_VECTORS; ++i) {
    theirs[i] = device_load_relaxed_sys(here->words + i * 4);
    UNROLL for (int j = 0; j < 4; ++j) same = same && theirs[i].w[j] == own[i].w[j];
  }
  if (!same) check_record(a, x, peer, own, theirs);
}

#endif
