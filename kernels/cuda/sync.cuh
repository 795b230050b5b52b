/* SPDX-License-Identifier: Apache-2.0
 *
 * sync.cuh: one-shot sync. A rank stages its input once, in one of two halves of its own workspace; every rank then
 * reads all stages. Needs little memory, whatever the number of ranks.
 *
 * Block b stages what it will read of the others: it waits for the peers' blocks b alone. Its flag in a peer is the
 * number of operations begun, in CUDA_EPOCH, and is never reset. A peer may be one operation ahead, and no more,
 * because no operation, of whatever algorithm, ends on a rank before all others have begun it.
 *
 * For the same reason no barrier is needed after the reads: a rank stages operation n + 2 over n only when it has ended
 * n + 1, which all others had begun by then, having ended n with all its reads. So the halves alternate with the epoch
 * that all algorithms share; n + 1 may be one that stages nothing.
 */
#ifndef ARFUSION_KERNELS_SYNC_CUH_
#define ARFUSION_KERNELS_SYNC_CUH_

#include "kernels/cuda/lamport.cuh"

/* Loads under way at a time. */
#define SYNC_BATCH 4

/* `vector`: counted through the whole operation. */
DEVICE uint64_t sync_offset(const struct sync_stage& stage, const struct exchange& x, uint64_t vector) {
  return (x.epoch & 1 ? stage.half : 0) + vector * CUDA_VECTOR;
}

/* Tells the peers that this block has staged its input, and waits for theirs. `token` is the block's first. */
DEVICE void sync_wait(const struct exchange_args& a, struct exchange* x, int64_t token) {
  device_barrier();
  const int k = (int)device_thread();
  if (k < a.nranks - 1) {
    const int peer = a.rank + 1 + k < a.nranks ? a.rank + 1 + k : a.rank + 1 + k - a.nranks;
    const uint64_t target = (exchange_epoch(a, *x) + 1) * CUDA_EPOCH;
    struct exchange_wait wait = {0, 0};
    device_store_release_sys_u64(&a.peer_control[k]->staged[device_block()][a.rank], target);
    while (device_load_acquire_sys_u64(&a.control->staged[device_block()][peer]) - target > CUDA_EPOCH && !x->failed) {
      if (UNLIKELY(++wait.polls % EXCHANGE_FAST_POLLS == 0)) x->failed = exchange_give_up(a, *x, &wait, peer, token);
    }
  }
  device_barrier();
}

/* The sum of all ranks' vectors in rank order. */
template <class T>
DEVICE void sync_sum(const struct sync_stage& stage, int nranks, uint64_t offset, float* sum) {
  UNROLL for (int i = 0; i < T::per_vector; ++i) sum[i] = 0.0f; /* nothing staged is -0.0: 0 + x_0 is x_0 */
  NO_UNROLL for (int first = 0; first < nranks; first += SYNC_BATCH) {
    struct vec v[SYNC_BATCH];
    UNROLL for (int k = 0; k < SYNC_BATCH; ++k) {
      v[k] = vec_fill(0);
      if (first + k < nranks) v[k] = device_load_relaxed_sys(stage.of[first + k] + offset);
    }
    UNROLL for (int k = 0; k < SYNC_BATCH; ++k) lamport_add<T>(v[k], sum);
  }
}

/* ---------------------------------------------------------------- rows */

DEVICE uint64_t sync_row_offset(const struct sync_rows_args& a, const struct exchange& x,
                                const struct lamport_step& step, uint32_t vector) {
  return sync_offset(a.stage, x, (uint64_t)step.token * a.request.rows.vectors + vector);
}

/* Stages the input of all the block's tokens. */
template <class T, bool CHUNKED, bool ALIGNED>
DEVICE void sync_stage_rows(const struct epilogue& e, const struct sync_rows_args& a, const struct exchange& x) {
  constexpr int batch = SYNC_BATCH / T::vectors;
  const struct rows_args& rows = a.request.rows;
  unsigned char* stage = a.stage.of[a.request.exchange.rank];
  struct lamport_step step = {device_block(), 0};
  while (lamport_valid(rows, step)) {
    struct vec v[batch][T::vectors];
    struct lamport_step steps[batch];
    UNROLL for (int k = 0; k < batch; ++k) {
      steps[k] = step;
      if (!lamport_valid(rows, step)) continue;
      lamport_load_input<T, ALIGNED>(e, rows, step, v[k]);
      step = lamport_next<CHUNKED>(rows, step);
    }
    UNROLL for (int k = 0; k < batch; ++k) {
      UNROLL for (int j = 0; j < T::vectors; ++j) {
        const uint32_t vector = epilogue_vector<T>(e, steps[k].chunk, j);
        if (lamport_valid(rows, steps[k]) && vector < rows.vectors)
          device_store(stage + sync_row_offset(a, x, steps[k], vector), vec_clear_negative_zero<T>(v[k][j]));
      }
    }
  }
}

/* The own stage's other half: whoever takes part in this operation has ended the one before, and with it all reads. */
template <bool QUANT>
DEVICE auto sync_spare(const struct sync_rows_args& a, const struct exchange& x) {
  if constexpr (QUANT) {
    return epilogue_spare{a.stage.of[a.request.exchange.rank] + (x.epoch & 1 ? 0 : a.stage.half),
                          (int64_t)a.request.rows.vectors * CUDA_VECTOR, false};
  } else {
    return epilogue_no_spare{};
  }
}

template <class T, bool CHUNKED, bool ALIGNED, bool QUANT>
KERNEL(CUDA_GROUP_PACKS) sync_rows(KERNEL_ARGUMENT(struct sync_rows_args) a) {
  const struct exchange_args& exchange = a.request.exchange;
  const struct rows_args& rows = a.request.rows;
  struct epilogue e = epilogue_begin<T, CHUNKED>();
  struct exchange x;
  struct lamport_step step = {device_block(), 0};
  struct quant q;
  if (QUANT) quant_begin<CHUNKED>(a.request.quant, &q);

  device_grid_wait();
  const uint32_t fail = exchange_read(exchange, &x);
  if (!exchange_check(exchange, x, fail)) return;
  exchange_hold_epoch(&x);
  exchange_arrive(exchange, &x);
  sync_stage_rows<T, CHUNKED, ALIGNED>(e, a, x);
  lamport_prefetch_residual<T>(e, rows, step);
  if (!CHUNKED && epilogue_normalises<QUANT>(rows)) epilogue_prefetch_row_gamma<T>(e, rows);
  if (QUANT && !CHUNKED) quant_load_scale(a.request.quant, &q);
  if (QUANT) quant_clear_unused<T, ALIGNED>(a.request.quant, rows.tokens);
  exchange_advance(exchange, x);
  sync_wait(exchange, &x, step.token);

  while (lamport_valid(rows, step)) {
    const uint32_t token = step.token;
    const bool last_token = (uint32_t)rows.tokens - token <= device_blocks();
    struct epilogue_row<T, CHUNKED, 0> row;
    do {
      const uint32_t chunk = step.chunk;
      const struct lamport_step next = lamport_next<CHUNKED>(rows, step);
      struct vec y[T::vectors];
      lamport_load_residual<T, ALIGNED>(e, rows, step, y);
      UNROLL for (int j = 0; j < T::vectors; ++j) {
        const uint32_t vector = epilogue_vector<T>(e, chunk, j);
        if (vector >= rows.vectors) continue;
        float sum[T::per_vector];
        sync_sum<T>(a.stage, exchange.nranks, sync_row_offset(a, x, step, vector), sum);
        y[j] = epilogue_add<T>(rows, sum, y[j]);
      }
      if (lamport_valid(rows, next)) lamport_prefetch_residual<T>(e, rows, next);
      epilogue_first_pass<T, ALIGNED>(e, rows, token, chunk, y, &row, sync_spare<QUANT>(a, x));
      step = next;
    } while (CHUNKED && step.chunk != 0);
    if (epilogue_normalises<QUANT>(rows)) {
      struct epilogue_gamma<T> gamma[T::vectors];
      if (!CHUNKED) epilogue_load_row_gamma<T, ALIGNED>(e, rows, gamma);
      device_barrier();
      /* The barrier says that this block has read its last of the stages. */
      if (a.request.early_trigger && last_token && exchange_control_thread()) device_grid_trigger();
      epilogue_finish<T, ALIGNED>(&e, q, rows, a.request.quant, token, row, gamma, sync_spare<QUANT>(a, x));
    }
  }
}

/* ---------------------------------------------------------------- flat */

/* Threads take vectors t, t + threads of the grid, ... */
template <class T, bool ALIGNED>
KERNEL(CUDA_GROUP_PACKS) sync_flat(KERNEL_ARGUMENT(struct sync_flat_args) a) {
  constexpr int batch = ALIGNED ? SYNC_BATCH : 1;
  const struct exchange_args& exchange = a.request.exchange;
  const int64_t vectors = (a.request.count + T::per_vector - 1) / T::per_vector;
  const int64_t step = (int64_t)device_blocks() * device_threads();
  const int64_t start = (int64_t)device_block() * device_threads() + device_thread();
  struct exchange x;

  device_grid_wait();
  const uint32_t fail = exchange_read(exchange, &x);
  if (!exchange_check(exchange, x, fail)) return;
  exchange_hold_epoch(&x);
  exchange_arrive(exchange, &x);
  for (int64_t first = start; first < vectors; first += batch * step) {
    struct vec v[batch];
    UNROLL for (int k = 0; k < batch; ++k) {
      if (first + k * step < vectors) v[k] = lamport_flat_load<T, ALIGNED>(a.request, first + k * step);
    }
    UNROLL for (int k = 0; k < batch; ++k) {
      if (first + k * step < vectors)
        device_store(a.stage.of[exchange.rank] + sync_offset(a.stage, x, (uint64_t)(first + k * step)),
                     vec_clear_negative_zero<T>(v[k]));
    }
  }
  exchange_advance(exchange, x);
  sync_wait(exchange, &x, (int64_t)device_block() * device_threads() / T::vectors);
  for (int64_t vector = start; vector < vectors; vector += step) {
    float sum[T::per_vector];
    sync_sum<T>(a.stage, exchange.nranks, sync_offset(a.stage, x, (uint64_t)vector), sum);
    lamport_flat_store<T, ALIGNED>(a.request, vector, vec_pack<T>(sum));
  }
}

#endif
