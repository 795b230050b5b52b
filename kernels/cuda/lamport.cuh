/* SPDX-License-Identifier: Apache-2.0
 *
 * lamport.cuh: one-shot Lamport. Each rank writes its data to its slot in every peer; a word that is not
 * KERNEL_SENTINEL has arrived. Senders never send that word (-0.0 is sent as +0.0). The thread that has read a vector
 * writes the sentinel back.
 *
 * Two buffers in rotation are enough: a peer sends operation n + 2 only when it has received all of our n + 1, which we
 * began to send when our n had ended, with its slots read and cleared.
 *
 * Sender s has slot s in receivers before it (s > d: slot s - 1), so that a rank has none in its own buffer.
 */
#ifndef ARFUSION_KERNELS_LAMPORT_CUH_
#define ARFUSION_KERNELS_LAMPORT_CUH_

#include "kernels/cuda/epilogue_quant.cuh"
#include "kernels/cuda/exchange.cuh"

/* What there is room for in the 64 registers of a thread in a block of 1024. RANKS 0: any number. */
template <class T, int RANKS, bool CHUNKED>
struct lamport_room {
  static constexpr bool ample = T::vectors == 1 && (RANKS == 2 || (RANKS == 4 && !CHUNKED));
  /* Peers whose vectors are polled together. */
  static constexpr int batch = RANKS == 2                           ? 1
                               : CHUNKED && T::vectors == 2         ? 1
                               : RANKS == 4                         ? 3
                               : CHUNKED && RANKS == 0              ? 1
                               : CHUNKED || T::vectors == 2 || !RANKS ? 2
                                                                    : 7;
  /* Input and residual are loaded long before they are needed; else the residual is only brought to the L2 cache. */
  static constexpr bool early = ample || RANKS == 2;
  /* Gamma of a row of one chunk is kept from token to token; else as the residual. */
  static constexpr bool gamma = ample && RANKS == 2 && !CHUNKED;
  /* Chunks of a row of several whose y is kept, unless it is quantized. */
  static constexpr int kept = ample ? 2 : 0;
  /* The epoch is advanced at the end; else at the start, where the control warp waits for the answer of its atomic. */
  static constexpr bool late_advance = (ample || RANKS == 8) && !CHUNKED;
  /* Tokens may be taken by ticket: where launch_rows asks for it. */
  static constexpr bool tickets = !CHUNKED && T::vectors == 1 && RANKS != 8;
};

DEVICE bool lamport_arrived(const struct vec& v) {
  return v.w[0] != KERNEL_SENTINEL && v.w[1] != KERNEL_SENTINEL && v.w[2] != KERNEL_SENTINEL &&
         v.w[3] != KERNEL_SENTINEL;
}

/* `offset`: bytes from the start of a slot, with the rotating buffer's added. */
template <int RANKS>
DEVICE void lamport_send(const struct exchange_args& a, uint64_t offset, const struct vec& v) {
  if (RANKS == 0) {
    NO_UNROLL for (int k = 0; k < a.nranks - 1; ++k) device_store_relaxed_sys(a.send[k] + offset, v);
  } else {
    UNROLL for (int k = 0; k < RANKS - 1; ++k) device_store_relaxed_sys(a.send[k] + offset, v);
  }
}

/* Where the vector of the sender with this slot arrives. */
DEVICE unsigned char* lamport_slot(const struct exchange_args& a, int slot, uint64_t offset) {
  return a.receive + offset + (uint64_t)slot * a.slot;
}

/* Reads what has not arrived of the vectors of BATCH slots. Returns the first slot that is still missing, or -1. */
template <int BATCH>
DEVICE int lamport_poll(const struct exchange_args& a, int first, uint64_t offset, struct vec* v) {
  UNROLL for (int k = 0; k < BATCH; ++k) {
    if (BATCH == 1 || !lamport_arrived(v[k])) v[k] = device_load_relaxed_sys(lamport_slot(a, first + k, offset));
  }
  int missing = -1;
  UNROLL for (int k = BATCH - 1; k >= 0; --k) {
    if (!lamport_arrived(v[k])) missing = first + k;
  }
  return missing;
}

/* Goes on where EXCHANGE_FAST_POLLS were in vain. Returns false if the communicator has failed. */
template <int BATCH>
DEVICE bool lamport_wait_long(const struct exchange_args& a, struct exchange* x, int first, uint64_t offset,
                              int64_t token, struct vec* v) {
  struct exchange_wait wait = {EXCHANGE_FAST_POLLS, 0};
  NO_UNROLL for (;;) {
    const int missing = lamport_poll<BATCH>(a, first, offset, v);
    if (missing < 0) return true;
    if (!x->failed && wait.polls % EXCHANGE_FAST_POLLS == 0) {
      x->failed = exchange_give_up(a, *x, &wait, missing < a.rank ? missing : missing + 1, token);
    }
    if (x->failed) return false;
    ++wait.polls;
  }
}

/* Waits for the vectors of `count` slots from `first` on, at most BATCH, and clears them. */
template <int BATCH>
DEVICE void lamport_wait(const struct exchange_args& a, struct exchange* x, int first, int count, uint64_t offset,
                         int64_t token, struct vec* v) {
  const uint32_t limit = x->failed ? 1 : EXCHANGE_FAST_POLLS;
  uint32_t polls = 0;
  UNROLL for (int k = 0; k < BATCH; ++k) v[k] = vec_fill(k < count ? KERNEL_SENTINEL : 0);
  do {
    if (lamport_poll<BATCH>(a, first, offset, v) < 0) break;
  } while (++polls != limit);
  if (UNLIKELY(polls == limit) && !lamport_wait_long<BATCH>(a, x, first, offset, token, v)) return;
  UNROLL for (int k = 0; k < BATCH; ++k) {
    if (k < count) device_store_relaxed_sys(lamport_slot(a, first + k, offset), vec_fill(KERNEL_SENTINEL));
  }
}

template <class T>
DEVICE void lamport_add(const struct vec& v, float* sum) {
  float f[T::per_vector];
  vec_unpack<T>(v, f);
  UNROLL for (int i = 0; i < T::per_vector; ++i) sum[i] = device_add(sum[i], f[i]);
}

/* The sum of all ranks' vectors in rank order, `own` being this rank's. BATCH of them are polled together. */
template <class T, int RANKS, int BATCH>
DEVICE void lamport_receive(const struct exchange_args& a, struct exchange* x, const struct vec& own, uint64_t offset,
                            int64_t token, float* sum) {
  if (RANKS == 2) { /* x + y is y + x */
    struct vec theirs;
    lamport_wait<1>(a, x, 0, 1, offset, token, &theirs);
    vec_unpack<T>(own, sum);
    lamport_add<T>(theirs, sum);
    return;
  }
  const int slots = RANKS == 0 ? a.nranks - 1 : RANKS - 1;
  /* From 0: nothing that is sent is -0.0, so 0 + x_0 is x_0. */
  UNROLL for (int i = 0; i < T::per_vector; ++i) sum[i] = 0.0f;
  NO_UNROLL for (int first = 0; first < slots; first += BATCH) {
    struct vec v[BATCH];
    lamport_wait<BATCH>(a, x, first, (RANKS - 1) % BATCH == 0 && RANKS ? BATCH : slots - first, offset, token, v);
    UNROLL for (int k = 0; k < BATCH; ++k) {
      if (first + k == a.rank) lamport_add<T>(own, sum);
      lamport_add<T>(v[k], sum); /* +0.0 where there is no peer: changes nothing */
    }
  }
  if (a.rank == slots && slots % BATCH == 0) lamport_add<T>(own, sum);
}

/* The same, rounded to T. */
template <class T, int RANKS, bool CHUNKED>
DEVICE struct vec lamport_receive_rounded(const struct exchange_args& a, struct exchange* x, const struct vec& own,
                                          uint64_t offset, int64_t token) {
  if (RANKS == 2) { /* x + y is y + x */
    struct vec theirs;
    lamport_wait<1>(a, x, 0, 1, offset, token, &theirs);
    return vec_add<T>(own, theirs);
  }
  float sum[T::per_vector];
  lamport_receive<T, RANKS, lamport_room<T, RANKS, CHUNKED>::batch>(a, x, own, offset, token, sum);
  return vec_pack<T>(sum);
}

/* ---------------------------------------------------------------- rows */

/* `parity` chooses the rotating buffer. */
DEVICE uint64_t lamport_offset(const struct exchange_args& a, uint32_t parity, uint64_t vector) {
  return (parity & 1 ? a.buffer : 0) + vector * CUDA_VECTOR;
}

/* Blocks take tokens b, b + blocks, ..., and of a token one chunk after the other. */
struct lamport_step {
  uint32_t token, chunk;
};

template <bool CHUNKED>
DEVICE struct lamport_step lamport_next(const struct rows_args& rows, const struct lamport_step& step) {
  struct lamport_step next = {step.token, CHUNKED ? step.chunk + 1 : 0};
  if (!CHUNKED || next.chunk == rows.chunks) {
    next.token += device_blocks();
    next.chunk = 0;
  }
  return next;
}

/* Tokens by ticket, for many tokens: the multiprocessors' shares of the link differ by half, and who is faster takes
 * more. A block's first two tokens are those of its number; the others are taken in rising order. Whoever takes one
 * sends it before it waits for another, so that none is held back by a block that waits for a peer's block which is not
 * resident yet. */
struct lamport_tickets {
  uint32_t words;  /* the address of two words that alternate: they hand the token on from thread 0 over a barrier */
  uint32_t newest; /* thread 0: the last token taken */
  uint32_t parity;
};

/* Before a barrier. Every block ends with one ticket for a token that does not exist, then the count starts afresh. */
DEVICE void lamport_ticket_take(const struct lamport_rows_args& a, struct lamport_tickets* t) {
  const uint32_t tokens = (uint32_t)a.rows.tokens, blocks = device_blocks();
  if (device_thread() != 0) return;
  if (t->newest < tokens) {
    t->newest = 2 * blocks + device_atomic_count(&a.exchange.control->tickets, tokens - blocks - 1);
  }
  device_shared_store(t->words + t->parity * 4, t->newest);
}

/* After the barrier: that token. */
DEVICE uint32_t lamport_ticket_token(struct lamport_tickets* t) {
  t->parity ^= 1;
  return device_shared_load(t->words + (t->parity ^ 1) * 4);
}

DEVICE bool lamport_valid(const struct rows_args& rows, const struct lamport_step& step) {
  return step.token < (uint32_t)rows.tokens;
}

DEVICE uint64_t lamport_row_offset(const struct lamport_rows_args& a, uint32_t parity, uint32_t token,
                                   uint32_t vector) {
  return lamport_offset(a.exchange, parity, (uint64_t)token * a.rows.slot_vectors + vector);
}

template <class T, bool ALIGNED>
DEVICE void lamport_load_input(const struct epilogue& e, const struct rows_args& rows, const struct lamport_step& step,
                               struct vec* v) {
  epilogue_load<T, ALIGNED>(e, rows, rows.input, rows.input_stride, step.token, step.chunk, v);
}

template <class T, bool ALIGNED>
DEVICE void lamport_load_residual(const struct epilogue& e, const struct rows_args& rows,
                                  const struct lamport_step& step, struct vec* v) {
  epilogue_load<T, ALIGNED>(e, rows, rows.residual_in, rows.residual_in_stride, step.token, step.chunk, v);
}

template <class T>
DEVICE void lamport_prefetch_residual(const struct epilogue& e, const struct rows_args& rows,
                                      const struct lamport_step& step) {
  UNROLL for (int j = 0; j < T::vectors; ++j) {
    const uint32_t vector = epilogue_vector<T>(e, step.chunk, j);
    if (rows.residual_in && vector < rows.vectors) {
      device_prefetch(epilogue_address(rows.residual_in, step.token, rows.residual_in_stride, vector));
    }
  }
}

/* Sends a step's input, and leaves in `v` what was sent. */
template <class T, int RANKS>
DEVICE void lamport_send_step(const struct epilogue& e, const struct lamport_rows_args& a, uint32_t parity,
                              const struct lamport_step& step, struct vec* v) {
  UNROLL for (int j = 0; j < T::vectors; ++j) {
    const uint32_t vector = epilogue_vector<T>(e, step.chunk, j);
    v[j] = vec_clear_negative_zero<T>(v[j]);
    if (vector < a.rows.vectors)
      lamport_send<RANKS>(a.exchange, lamport_row_offset(a, parity, step.token, vector), v[j]);
  }
}

/* The slot of the first sender, whose vectors the thread that spares them has read. */
template <bool QUANT>
DEVICE auto lamport_spare(const struct lamport_rows_args& a, const struct exchange& x) {
  if constexpr (QUANT) {
    return epilogue_spare{a.exchange.receive + lamport_offset(a.exchange, x.epoch, 0),
                          (int64_t)a.rows.slot_vectors * CUDA_VECTOR, true};
  } else {
    return epilogue_no_spare{};
  }
}

/* What a thread keeps from step to step, beside the exchange: one struct of both costs registers. */
template <class T, int RANKS, bool CHUNKED, bool QUANT>
struct lamport_rows_state {
  typedef lamport_room<T, RANKS, CHUNKED> room;
  /* Where registers are short, what has been sent is loaded again when it is needed, and gamma for each row. */
  static constexpr bool reload = QUANT && CHUNKED && T::vectors == 2;
  static constexpr bool keeps_gamma = room::gamma && !(QUANT && T::unpacks_by_conversion);
  bool by_ticket;
  struct epilogue e;
  struct vec own[T::vectors], next_own[T::vectors], residual[T::vectors];
  struct epilogue_gamma<T> kept_gamma[T::vectors];
  struct lamport_step step, next;
  struct lamport_tickets tickets;
  struct quant q;
};

template <class T, int RANKS, bool CHUNKED, bool QUANT>
DEVICE void lamport_rows_begin(const struct lamport_rows_args& a, lamport_rows_state<T, RANKS, CHUNKED, QUANT>* s) {
  typedef lamport_room<T, RANKS, CHUNKED> room;
  s->by_ticket = room::tickets && a.by_ticket;
  s->e = epilogue_begin<T, CHUNKED>();
  s->step = {device_block(), 0};
  s->next = lamport_next<CHUNKED>(a.rows, s->step);
  s->tickets = {0, 0, 0};
  if (room::tickets) s->tickets.words = device_shared<2>();
  if (QUANT) quant_begin<CHUNKED>(a.quant, &s->q);
}

/* Sends the first step, by ticket also the second. Returns false if the communicator has failed: then nothing was
 * sent. */
template <bool ALIGNED, class T, int RANKS, bool CHUNKED, bool QUANT>
DEVICE bool lamport_rows_send_first(const struct lamport_rows_args& a, struct exchange* x,
                                    lamport_rows_state<T, RANKS, CHUNKED, QUANT>* s) {
  typedef lamport_room<T, RANKS, CHUNKED> room;
  const struct rows_args& rows = a.rows;
  const uint32_t fail = exchange_read(a.exchange, x);
  lamport_load_input<T, ALIGNED>(s->e, rows, s->step, s->own);
  if (room::early) lamport_load_residual<T, ALIGNED>(s->e, rows, s->step, s->residual);
  if (s->keeps_gamma && epilogue_normalises<QUANT>(rows)) {
    epilogue_load_row_gamma<T, ALIGNED>(s->e, rows, s->kept_gamma);
  }
  if (!exchange_check(a.exchange, *x, fail)) return false;
  lamport_send_step<T, RANKS>(s->e, a, x->epoch, s->step, s->own);
  if (QUANT && !CHUNKED) quant_load_scale(a.quant, &s->q);
  if (!room::early) lamport_prefetch_residual<T>(s->e, rows, s->step);
  if (!s->keeps_gamma && !CHUNKED && epilogue_normalises<QUANT>(rows)) epilogue_prefetch_row_gamma<T>(s->e, rows);
  if ((room::early || s->by_ticket) && lamport_valid(rows, s->next)) {
    lamport_load_input<T, ALIGNED>(s->e, rows, s->next, s->next_own);
  }
  if (s->by_ticket) lamport_send_step<T, RANKS>(s->e, a, x->epoch, s->next, s->next_own);
  if (QUANT) quant_clear_unused<T, ALIGNED>(a.quant, rows.tokens);
  return true;
}

/* Sends the step after the one that is awaited; by ticket it has been sent. */
template <bool ALIGNED, class T, int RANKS, bool CHUNKED, bool QUANT>
DEVICE void lamport_rows_send_next(const struct lamport_rows_args& a, const struct exchange& x,
                                   lamport_rows_state<T, RANKS, CHUNKED, QUANT>* s) {
  typedef lamport_room<T, RANKS, CHUNKED> room;
  if (!room::early && !s->by_ticket) {
    UNROLL for (int j = 0; j < T::vectors; ++j) s->next_own[j] = vec_fill(0);
  }
  if (!s->by_ticket && lamport_valid(a.rows, s->next)) {
    if (!room::early) lamport_load_input<T, ALIGNED>(s->e, a.rows, s->next, s->next_own);
    lamport_send_step<T, RANKS>(s->e, a, x.epoch, s->next, s->next_own);
  }
}

/* Waits for a step, adds it up, and the residual. */
template <bool ALIGNED, class T, int RANKS, bool CHUNKED, bool QUANT>
DEVICE void lamport_rows_receive(const struct lamport_rows_args& a, struct exchange* x,
                                 lamport_rows_state<T, RANKS, CHUNKED, QUANT>* s, struct vec* y) {
  typedef lamport_room<T, RANKS, CHUNKED> room;
  const struct rows_args& rows = a.rows;
  const uint32_t token = s->step.token;
  if (s->reload) {
    lamport_load_input<T, ALIGNED>(s->e, rows, s->step, s->own);
    UNROLL for (int j = 0; j < T::vectors; ++j) s->own[j] = vec_clear_negative_zero<T>(s->own[j]);
  }
  UNROLL for (int j = 0; j < T::vectors; ++j) {
    const uint32_t vector = epilogue_vector<T>(s->e, s->step.chunk, j);
    y[j] = vec_fill(0);
    if (vector < rows.vectors) {
      const struct vec sum = lamport_receive_rounded<T, RANKS, CHUNKED>(
          a.exchange, x, s->own[j], lamport_row_offset(a, x->epoch, token, vector), token);
      struct vec late_residual = vec_fill(0);
      if (!room::early && rows.residual_in) {
        late_residual =
            vec_load<T, ALIGNED>(epilogue_address(rows.residual_in, token, rows.residual_in_stride, vector));
      }
      y[j] = epilogue_add_residual<T>(rows, sum, room::early ? s->residual[j] : late_residual);
    }
    if (!s->reload) s->own[j] = s->next_own[j];
  }
}

/* Has the next step's residual come, and without tickets the input of the one after. */
template <bool ALIGNED, class T, int RANKS, bool CHUNKED, bool QUANT>
DEVICE void lamport_rows_load_ahead(const struct lamport_rows_args& a,
                                    lamport_rows_state<T, RANKS, CHUNKED, QUANT>* s) {
  const struct rows_args& rows = a.rows;
  if (!lamport_valid(rows, s->next)) return;
  if (lamport_room<T, RANKS, CHUNKED>::early) {
    const struct lamport_step after = lamport_next<CHUNKED>(rows, s->next);
    lamport_load_residual<T, ALIGNED>(s->e, rows, s->next, s->residual);
    if (!s->by_ticket && lamport_valid(rows, after)) {
      lamport_load_input<T, ALIGNED>(s->e, rows, after, s->next_own);
    }
  } else {
    lamport_prefetch_residual<T>(s->e, rows, s->next);
  }
}

/* While a step is awaited, the one after it has been sent. While its epilogue runs, the input of the one after that is
 * being loaded; with tickets, from the barrier on. */
template <class T, int RANKS, bool CHUNKED, bool ALIGNED, bool QUANT>
KERNEL(CUDA_GROUP_PACKS) lamport_rows(KERNEL_ARGUMENT(struct lamport_rows_args) a) {
  typedef lamport_room<T, RANKS, CHUNKED> room;
  const struct rows_args& rows = a.rows;
  const bool normalises = epilogue_normalises<QUANT>(rows);
  lamport_rows_state<T, RANKS, CHUNKED, QUANT> s;
  struct exchange x;
  lamport_rows_begin(a, &s);
  device_grid_wait();
  if (!lamport_rows_send_first<ALIGNED>(a, &x, &s)) return;
  exchange_arrive(a.exchange, &x);
  if (!room::late_advance) exchange_advance(a.exchange, x);

  while (lamport_valid(rows, s.step)) {
    const uint32_t token = s.step.token;
    struct epilogue_row<T, CHUNKED, QUANT ? 0 : room::kept> row;
    do {
      const uint32_t chunk = s.step.chunk;
      struct vec y[T::vectors];
      if (!room::tickets) s.next = lamport_next<CHUNKED>(rows, s.step);
      lamport_rows_send_next<ALIGNED>(a, x, &s);
      lamport_rows_receive<ALIGNED>(a, &x, &s, y);
      if (s.by_ticket) lamport_ticket_take(a, &s.tickets);
      lamport_rows_load_ahead<ALIGNED>(a, &s);
      epilogue_first_pass<T, ALIGNED>(s.e, rows, token, chunk, y, &row, lamport_spare<QUANT>(a, x));
      s.step = s.next;
      if (room::tickets) s.next = lamport_next<CHUNKED>(rows, s.step);
    } while (CHUNKED && s.step.chunk != 0);

    if (!normalises && !s.by_ticket) continue;
    struct epilogue_gamma<T> late_gamma[T::vectors];
    if (!s.keeps_gamma && !CHUNKED && normalises) epilogue_load_row_gamma<T, ALIGNED>(s.e, rows, late_gamma);
    device_barrier();
    if (s.by_ticket) {
      s.next.token = lamport_ticket_token(&s.tickets);
      if (room::early && lamport_valid(rows, s.next)) lamport_load_input<T, ALIGNED>(s.e, rows, s.next, s.next_own);
    }
    if (normalises) {
      if (a.early_trigger && !lamport_valid(rows, s.step) && exchange_control_thread()) {
        /* The barrier says that this block has read and cleared its last slots. */
        if (room::late_advance) exchange_advance(a.exchange, x);
        device_grid_trigger();
      }
      epilogue_finish<T, ALIGNED>(&s.e, s.q, rows, a.quant, token, row, s.keeps_gamma ? s.kept_gamma : late_gamma,
                                  lamport_spare<QUANT>(a, x));
    }
    if (s.by_ticket && lamport_valid(rows, s.next)) {
      if (!room::early) lamport_load_input<T, ALIGNED>(s.e, rows, s.next, s.next_own);
      lamport_send_step<T, RANKS>(s.e, a, x.epoch, s.next, s.next_own);
    }
  }
  if (room::late_advance && !(a.early_trigger && normalises)) exchange_advance(a.exchange, x);
}

/* ---------------------------------------------------------------- flat */

/* One vector of the flat input; the last one may be short. */
template <class T, bool ALIGNED>
DEVICE struct vec lamport_flat_load(const struct lamport_flat_args& a, int64_t vector) {
  const unsigned char* p = a.input + vector * CUDA_VECTOR;
  const int64_t left = a.count - vector * T::per_vector;
  if (ALIGNED && left >= T::per_vector) return device_load(p);
  return vec_load_elements<T>(p, left < T::per_vector ? (int)left : T::per_vector);
}

template <class T, bool ALIGNED>
DEVICE void lamport_flat_store(const struct lamport_flat_args& a, int64_t vector, const struct vec& v) {
  unsigned char* p = a.output + vector * CUDA_VECTOR;
  const int64_t left = a.count - vector * T::per_vector;
  if (ALIGNED && left >= T::per_vector)
    device_store(p, v);
  else
    vec_store_elements<T>(p, v, left < T::per_vector ? (int)left : T::per_vector);
}

/* Threads take vectors t, t + threads of the grid, ...; each is sent before the one before it is awaited. */
template <class T, int RANKS, bool ALIGNED>
KERNEL(CUDA_GROUP_PACKS) lamport_flat(KERNEL_ARGUMENT(struct lamport_flat_args) a) {
  constexpr bool late_advance = lamport_room<T, RANKS, false>::ample;
  const int64_t vectors = (a.count + T::per_vector - 1) / T::per_vector;
  const int64_t step = (int64_t)device_blocks() * device_threads();
  int64_t vector = (int64_t)device_block() * device_threads() + device_thread();
  struct exchange x;
  struct vec own = vec_fill(0), next_own = vec_fill(0);

  device_grid_wait();
  const uint32_t fail = exchange_read(a.exchange, &x);
  if (vector < vectors) own = vec_clear_negative_zero<T>(lamport_flat_load<T, ALIGNED>(a, vector));
  if (!exchange_check(a.exchange, x, fail)) return;
  if (vector < vectors) lamport_send<RANKS>(a.exchange, lamport_offset(a.exchange, x.epoch, (uint64_t)vector), own);
  exchange_arrive(a.exchange, &x);
  if (!late_advance) exchange_advance(a.exchange, x);

  while (vector < vectors) {
    const int64_t next = vector + step;
    if (next < vectors) {
      next_own = vec_clear_negative_zero<T>(lamport_flat_load<T, ALIGNED>(a, next));
      lamport_send<RANKS>(a.exchange, lamport_offset(a.exchange, x.epoch, (uint64_t)next), next_own);
    }
    const struct vec sum = lamport_receive_rounded<T, RANKS, false>(
        a.exchange, &x, own, lamport_offset(a.exchange, x.epoch, (uint64_t)vector), vector / T::vectors);
    lamport_flat_store<T, ALIGNED>(a, vector, sum);
    own = next_own;
    vector = next;
  }
  if (late_advance) exchange_advance(a.exchange, x);
}

#endif
