/* SPDX-License-Identifier: Apache-2.0
 *
 * twoshot.cuh: two-shot, with Lamport words in both halves. The vectors of an operation, counted through all its rows,
 * are cut into ranges of a warp's width; range q is owned by rank q modulo the number of ranks. Whoever does not own a
 * range sends its vectors to the owner. The owner adds in rank order, rounds to T, and sends the sum to all others.
 *
 * A sum is never the sentinel. No input is -0.0 once cleared, and in fp32 a sum is -0.0 only if both addends are.
 * Rounding to T does not make it so either: inputs in bf16 (fp16) are multiples of 2^-133 (2^-24), therefore sums are,
 * and the smallest that is not 0 is a number of T.
 *
 * Slots are those of one-shot, slot s of a receiver being written by sender s alone: its first half with contributions
 * to ranges that the receiver owns, its second half with sums of ranges that the sender owns. Of either there is one in
 * nranks, so that an operation may be nranks / 2 slots large. (A range's number has 31 bits: 1 TiB.)
 *
 * Two buffers in rotation are enough here, too, also for ranks that send each other nothing because the operation has
 * few ranges. What must not happen is that s sends operation n + 2 to d before d has read and cleared its n. But s has
 * ended its n + 1, hence has a sum, its own or an owner's; every sum contains what d sent of n + 1, and d began to send
 * that when its n had ended. This holds for operations of all algorithms in any order: none ends on a rank before all
 * others have begun it.
 *
 * Nothing can wait in a circle here. A warp's turns are: sending step i + 2, adding up step i + 1, collecting step i;
 * then the same for i + 1. It waits only for what the same warp of a peer's same block does in an earlier turn.
 */
#ifndef ARFUSION_KERNELS_TWOSHOT_CUH_
#define ARFUSION_KERNELS_TWOSHOT_CUH_

#include "kernels/cuda/lamport.cuh"

/* A vector's owner, and its place in a slot: bytes, with the rotating buffer's added. */
struct twoshot_place {
  int owner;
  uint64_t offset;
};

template <int RANKS>
DEVICE struct twoshot_place twoshot_place_of(const struct exchange_args& a, const struct exchange& x, uint64_t vector) {
  const uint32_t ranks = RANKS ? RANKS : (uint32_t)a.nranks;
  const uint32_t range = (uint32_t)(vector / ELEMENT_LANES), lane = (uint32_t)vector % ELEMENT_LANES;
  const uint32_t index = RANKS ? range / ranks : (uint32_t)((uint64_t)range * a.divide_factor >> 32) >> a.divide_shift;
  return {(int)(range - index * ranks), lamport_offset(a, x.epoch, (uint64_t)index * ELEMENT_LANES + lane)};
}

/* A contribution, cleared of -0.0, goes to the owner. */
template <class T, int RANKS>
DEVICE void twoshot_send(const struct exchange_args& a, const struct exchange& x, uint64_t vector,
                         const struct vec& v) {
  const struct twoshot_place place = twoshot_place_of<RANKS>(a, x, vector);
  if (place.owner == a.rank) return;
  const int k = place.owner - a.rank - 1;
  const int ranks = RANKS ? RANKS : a.nranks;
  device_store_relaxed_sys(a.send[k < 0 ? k + ranks : k] + place.offset, vec_clear_negative_zero<T>(v));
}

/* The owner's part, `own` being this rank's vector; BATCH peers are polled together. A sum that is not one,
 * because a wait has failed, is not sent. */
template <class T, int RANKS, int BATCH>
DEVICE struct vec twoshot_reduce(const struct exchange_args& a, struct exchange* x, uint64_t offset,
                                 const struct vec& own, int64_t token) {
  float sum[T::per_vector];
  struct vec cleared = vec_clear_negative_zero<T>(own);
  /* Else its elements take 8 registers. */
  UNROLL for (int i = 0; i < 4; ++i) device_keep(cleared.w[i]);
  lamport_receive<T, RANKS, BATCH>(a, x, cleared, offset, token, sum);
  const struct vec v = vec_pack<T>(sum);
  if (!x->failed) lamport_send<RANKS>(a, offset + a.slot / 2, v);
  return v;
}

/* The others' part: the sum. */
DEVICE struct vec twoshot_collect(const struct exchange_args& a, struct exchange* x, const struct twoshot_place& place,
                                  int64_t token) {
  struct vec v;
  lamport_wait<1>(a, x, place.owner < a.rank ? place.owner : place.owner - 1, 1, place.offset + a.slot / 2, token, &v);
  return v;
}

/* ---------------------------------------------------------------- rows */

DEVICE uint64_t twoshot_vector(const struct rows_args& rows, const struct lamport_step& step, uint32_t vector) {
  return (uint64_t)step.token * rows.vectors + vector;
}

template <class T, int RANKS>
DEVICE void twoshot_send_step(const struct epilogue& e, const struct lamport_rows_args& a, const struct exchange& x,
                              const struct lamport_step& step, const struct vec* v) {
  UNROLL for (int j = 0; j < T::vectors; ++j) {
    const uint32_t vector = epilogue_vector<T>(e, step.chunk, j);
    if (vector < a.rows.vectors)
      twoshot_send<T, RANKS>(a.exchange, x, twoshot_vector(a.rows, step, vector), v[j]);
  }
}

/* Has a step's input come to the L2 cache before it is sent. */
template <class T>
DEVICE void twoshot_prefetch_input(const struct epilogue& e, const struct rows_args& rows,
                                   const struct lamport_step& step) {
  UNROLL for (int j = 0; j < T::vectors; ++j) {
    const uint32_t vector = epilogue_vector<T>(e, step.chunk, j);
    if (vector < rows.vectors) device_prefetch(epilogue_address(rows.input, step.token, rows.input_stride, vector));
  }
}

/* The sums of the vectors that this rank owns. Its own vectors are loaded again, which is cheaper than keeping them. */
template <class T, int RANKS, bool ALIGNED>
DEVICE void twoshot_reduce_step(const struct epilogue& e, const struct lamport_rows_args& a, struct exchange* x,
                                const struct lamport_step& step, struct vec* sum) {
  constexpr int batch = RANKS == 4 ? 4 - T::vectors : RANKS == 8 ? 2 : 1; /* registers are few */
  UNROLL for (int j = 0; j < T::vectors; ++j) {
    const uint32_t vector = epilogue_vector<T>(e, step.chunk, j);
    const struct twoshot_place place =
        twoshot_place_of<RANKS>(a.exchange, *x, twoshot_vector(a.rows, step, vector));
    sum[j] = vec_fill(0);
    if (vector >= a.rows.vectors || place.owner != a.exchange.rank) continue;
    const struct vec own =
        vec_load<T, ALIGNED>(epilogue_address(a.rows.input, step.token, a.rows.input_stride, vector));
    sum[j] = twoshot_reduce<T, RANKS, batch>(a.exchange, x, place.offset, own, step.token);
  }
}

/* The sums of the others. */
template <class T, int RANKS>
DEVICE void twoshot_collect_step(const struct epilogue& e, const struct lamport_rows_args& a, struct exchange* x,
                                 const struct lamport_step& step, struct vec* sum) {
  UNROLL for (int j = 0; j < T::vectors; ++j) {
    const uint32_t vector = epilogue_vector<T>(e, step.chunk, j);
    const struct twoshot_place place =
        twoshot_place_of<RANKS>(a.exchange, *x, twoshot_vector(a.rows, step, vector));
    if (vector < a.rows.vectors && place.owner != a.exchange.rank)
      sum[j] = twoshot_collect(a.exchange, x, place, step.token);
  }
}

/* The slot that a vector of the same place has been read from: its sum, or, by its owner, the first sender's
 * contribution. */
template <int RANKS>
struct twoshot_spare {
  static constexpr bool quantizes = true;
  const struct lamport_rows_args* a;
  const struct exchange* x;
};

template <int RANKS>
DEVICE unsigned char* twoshot_spare_address(const struct twoshot_spare<RANKS>& s, int64_t token, uint32_t vector) {
  const struct exchange_args& exchange = s.a->exchange;
  const struct twoshot_place place =
      twoshot_place_of<RANKS>(exchange, *s.x, (uint64_t)token * s.a->rows.vectors + vector);
  if (place.owner == exchange.rank) return lamport_slot(exchange, 0, place.offset);
  return lamport_slot(exchange, place.owner < exchange.rank ? place.owner : place.owner - 1,
                      place.offset + exchange.slot / 2);
}
template <int RANKS>
DEVICE void spare_store(const struct twoshot_spare<RANKS>& s, int64_t token, uint32_t vector, const struct vec& y) {
  device_store_relaxed_sys(twoshot_spare_address(s, token, vector), y);
}
template <int RANKS>
DEVICE struct vec spare_load(const struct twoshot_spare<RANKS>& s, int64_t token, uint32_t vector, bool last) {
  unsigned char* p = twoshot_spare_address(s, token, vector);
  const struct vec y = device_load_relaxed_sys(p);
  if (last) device_store_relaxed_sys(p, vec_fill(KERNEL_SENTINEL));
  return y;
}

template <int RANKS, bool QUANT>
DEVICE auto twoshot_spare_of(const struct lamport_rows_args& a, const struct exchange& x) {
  if constexpr (QUANT) return twoshot_spare<RANKS>{&a, &x};
  else return epilogue_no_spare{};
}

/* What a thread keeps from step to step, beside the exchange. */
template <class T, int RANKS, bool CHUNKED, bool QUANT>
struct twoshot_rows_state {
  /* Where registers are short, the residual is loaded late, and no input is prefetched. */
  static constexpr bool scarce = CHUNKED || (T::vectors == 2 && RANKS == 4);
  /* And each step is added up only when it is collected. */
  static constexpr bool late_reduce = QUANT && (T::vectors == 2 || (CHUNKED && T::unpacks_by_conversion));
  struct epilogue e;
  struct vec input[T::vectors], sum[T::vectors], next_sum[T::vectors];
  struct lamport_step step;
  struct quant q;
};

/* Sends the input of a step, if there is such a step, and has that of the one after it come closer. */
template <bool ALIGNED, class T, int RANKS, bool CHUNKED, bool QUANT>
DEVICE void twoshot_rows_send(const struct lamport_rows_args& a, const struct exchange& x,
                              twoshot_rows_state<T, RANKS, CHUNKED, QUANT>* s, const struct lamport_step& step) {
  if (!lamport_valid(a.rows, step)) return;
  lamport_load_input<T, ALIGNED>(s->e, a.rows, step, s->input);
  twoshot_send_step<T, RANKS>(s->e, a, x, step, s->input);
  const struct lamport_step after = lamport_next<CHUNKED>(a.rows, step);
  if (!s->scarce && lamport_valid(a.rows, after)) twoshot_prefetch_input<T>(s->e, a.rows, after);
}

/* Sends the first step. Returns false if the communicator has failed: then nothing was sent. */
template <bool ALIGNED, class T, int RANKS, bool CHUNKED, bool QUANT>
DEVICE bool twoshot_rows_send_first(const struct lamport_rows_args& a, struct exchange* x,
                                    twoshot_rows_state<T, RANKS, CHUNKED, QUANT>* s) {
  const struct rows_args& rows = a.rows;
  const uint32_t fail = exchange_read(a.exchange, x);
  lamport_load_input<T, ALIGNED>(s->e, rows, s->step, s->input);
  if (!exchange_check(a.exchange, *x, fail)) return false;
  exchange_hold_epoch(x);
  twoshot_send_step<T, RANKS>(s->e, a, *x, s->step, s->input);
  lamport_prefetch_residual<T>(s->e, rows, s->step);
  if (!CHUNKED && epilogue_normalises<QUANT>(rows)) epilogue_prefetch_row_gamma<T>(s->e, rows);
  if (QUANT && !CHUNKED) quant_load_scale(a.quant, &s->q);
  if (QUANT) quant_clear_unused<T, ALIGNED>(a.quant, rows.tokens);
  return true;
}

/* Adds up the step that is next, and collects the sum of this one in `y`, the residual added. */
template <bool ALIGNED, class T, int RANKS, bool CHUNKED, bool QUANT>
DEVICE void twoshot_rows_receive(const struct lamport_rows_args& a, struct exchange* x,
                                 twoshot_rows_state<T, RANKS, CHUNKED, QUANT>* s, const struct lamport_step& next,
                                 struct vec* y) {
  const struct rows_args& rows = a.rows;
  if (lamport_valid(rows, next)) {
    if (!s->late_reduce) twoshot_reduce_step<T, RANKS, ALIGNED>(s->e, a, x, next, s->next_sum);
    lamport_prefetch_residual<T>(s->e, rows, next);
  }
  if (s->late_reduce) twoshot_reduce_step<T, RANKS, ALIGNED>(s->e, a, x, s->step, s->sum);
  if (!s->scarce) lamport_load_residual<T, ALIGNED>(s->e, rows, s->step, y);
  twoshot_collect_step<T, RANKS>(s->e, a, x, s->step, s->sum);
  if (s->scarce) lamport_load_residual<T, ALIGNED>(s->e, rows, s->step, y);
  UNROLL for (int j = 0; j < T::vectors; ++j) {
    y[j] = epilogue_add_residual<T>(rows, s->sum[j], y[j]);
    if (!s->late_reduce) s->sum[j] = s->next_sum[j];
  }
}

/* While the sum of a step is collected, that of the next one has been sent, and of the one after it the input. */
template <class T, int RANKS, bool CHUNKED, bool ALIGNED, bool QUANT>
KERNEL(CUDA_GROUP_PACKS) twoshot_rows(KERNEL_ARGUMENT(struct lamport_rows_args) a) {
  constexpr bool late_advance = !CHUNKED && T::vectors == 1 && RANKS != 8;
  const struct rows_args& rows = a.rows;
  const bool normalises = epilogue_normalises<QUANT>(rows);
  twoshot_rows_state<T, RANKS, CHUNKED, QUANT> s;
  struct exchange x;
  s.e = epilogue_begin<T, CHUNKED>();
  s.step = {device_block(), 0};
  if (QUANT) quant_begin<CHUNKED>(a.quant, &s.q);
  device_grid_wait();
  if (!twoshot_rows_send_first<ALIGNED>(a, &x, &s)) return;
  exchange_arrive(a.exchange, &x);
  if (!late_advance) exchange_advance(a.exchange, x);
  twoshot_rows_send<ALIGNED>(a, x, &s, lamport_next<CHUNKED>(rows, s.step));
  if (!s.late_reduce) twoshot_reduce_step<T, RANKS, ALIGNED>(s.e, a, &x, s.step, s.sum);

  while (lamport_valid(rows, s.step)) {
    const uint32_t token = s.step.token;
    const bool last_token = (uint32_t)rows.tokens - token <= device_blocks();
    struct epilogue_row<T, CHUNKED, 0> row;
    do {
      const struct lamport_step next = lamport_next<CHUNKED>(rows, s.step);
      struct vec y[T::vectors];
      twoshot_rows_send<ALIGNED>(a, x, &s, lamport_next<CHUNKED>(rows, next));
      twoshot_rows_receive<ALIGNED>(a, &x, &s, next, y);
      epilogue_first_pass<T, ALIGNED>(s.e, rows, token, s.step.chunk, y, &row, twoshot_spare_of<RANKS, QUANT>(a, x));
      s.step = next;
    } while (CHUNKED && s.step.chunk != 0);
    if (!normalises) continue;
    struct epilogue_gamma<T> gamma[T::vectors];
    if (!CHUNKED) epilogue_load_row_gamma<T, ALIGNED>(s.e, rows, gamma);
    device_barrier();
    if (a.early_trigger && last_token && exchange_control_thread()) {
      /* The barrier says that this block has read and cleared its last slots. */
      if (late_advance) exchange_advance(a.exchange, x);
      device_grid_trigger();
    }
    epilogue_finish<T, ALIGNED>(&s.e, s.q, rows, a.quant, token, row, gamma, twoshot_spare_of<RANKS, QUANT>(a, x));
  }
  if (late_advance && !(a.early_trigger && normalises)) exchange_advance(a.exchange, x);
}

/* ---------------------------------------------------------------- flat */

/* Adds up a vector if this rank owns it, and stores the sum. */
template <class T, int RANKS, bool ALIGNED>
DEVICE void twoshot_flat_reduce(const struct lamport_flat_args& a, struct exchange* x, int64_t vector) {
  const struct twoshot_place place = twoshot_place_of<RANKS>(a.exchange, *x, (uint64_t)vector);
  if (place.owner != a.exchange.rank) return;
  const struct vec own = lamport_flat_load<T, ALIGNED>(a, vector);
  const int64_t pack = vector / T::vectors;
  lamport_flat_store<T, ALIGNED>(a, vector, twoshot_reduce<T, RANKS, 2>(a.exchange, x, place.offset, own, pack));
}

/* As the rows, with the vectors t, t + threads of the grid, ... */
template <class T, int RANKS, bool ALIGNED>
KERNEL(CUDA_GROUP_PACKS) twoshot_flat(KERNEL_ARGUMENT(struct lamport_flat_args) a) {
  const int64_t vectors = (a.count + T::per_vector - 1) / T::per_vector;
  const int64_t step = (int64_t)device_blocks() * device_threads();
  int64_t vector = (int64_t)device_block() * device_threads() + device_thread();
  struct exchange x;
  struct vec input = vec_fill(0);

  device_grid_wait();
  const uint32_t fail = exchange_read(a.exchange, &x);
  if (vector < vectors) input = lamport_flat_load<T, ALIGNED>(a, vector);
  if (!exchange_check(a.exchange, x, fail)) return;
  exchange_hold_epoch(&x);
  if (vector < vectors) twoshot_send<T, RANKS>(a.exchange, x, (uint64_t)vector, input);
  exchange_arrive(a.exchange, &x);
  if (vector + step < vectors) input = lamport_flat_load<T, ALIGNED>(a, vector + step);
  if (vector + step < vectors) twoshot_send<T, RANKS>(a.exchange, x, (uint64_t)(vector + step), input);
  if (vector < vectors) twoshot_flat_reduce<T, RANKS, ALIGNED>(a, &x, vector);

  while (vector < vectors) {
    const int64_t next = vector + step, after = next + step;
    if (after < vectors) input = lamport_flat_load<T, ALIGNED>(a, after);
    if (after < vectors) twoshot_send<T, RANKS>(a.exchange, x, (uint64_t)after, input);
    if (next < vectors) twoshot_flat_reduce<T, RANKS, ALIGNED>(a, &x, next);
    const struct twoshot_place place = twoshot_place_of<RANKS>(a.exchange, x, (uint64_t)vector);
    if (place.owner != a.exchange.rank) {
      lamport_flat_store<T, ALIGNED>(a, vector, twoshot_collect(a.exchange, &x, place, vector / T::vectors));
    }
    vector = next;
  }
  exchange_advance(a.exchange, x);
}

#endif
