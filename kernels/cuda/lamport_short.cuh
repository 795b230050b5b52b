/* SPDX-License-Identifier: Apache-2.0
 *
 * lamport_short.cuh: one-shot Lamport for few tokens, of 16-bit types in aligned rows of one chunk: a block has one
 * token, or two at most, so there is no loop.
 *
 * With a warp for each 32 packs what counts is how many instructions a warp executes, above all from the arrival of the
 * last data on: every one of them costs a cycle for each of up to 8 warps that share a scheduler. So addresses are
 * computed while nothing is waited for, nothing but the input and the epoch is loaded before the send, and all that is
 * not the work itself is left to lamport_rows.
 */
#ifndef ARFUSION_KERNELS_LAMPORT_SHORT_CUH_
#define ARFUSION_KERNELS_LAMPORT_SHORT_CUH_

#include "kernels/cuda/lamport.cuh"

/* A thread's vector of one token. */
struct lamport_place {
  const unsigned char *input, *residual_in;
  unsigned char *residual_out, *norm_out;
  uint32_t slot_vector; /* its number in a slot */
};

DEVICE struct lamport_place lamport_place_of(const struct rows_args& rows, uint32_t token, uint32_t vector) {
  struct lamport_place place;
  place.input = epilogue_address(rows.input, token, rows.input_stride, vector);
  place.residual_in = epilogue_address(rows.residual_in, token, rows.residual_in_stride, vector);
  place.residual_out = epilogue_address(rows.residual_out, token, rows.residual_out_stride, vector);
  place.norm_out = epilogue_address(rows.norm_out, token, rows.norm_out_stride, vector);
  place.slot_vector = token * rows.slot_vectors + vector;
  device_keep(place.input);
  device_keep(place.residual_in);
  device_keep(place.residual_out);
  device_keep(place.norm_out);
  return place;
}

/* What a thread has of its block's tokens. The exchange stays apart: as a part of it, the compiler no longer saw that
 * nothing has failed before the first wait, and did not unroll the polling, which costs 0.1 µs or more. */
template <class T, bool TWO>
struct lamport_short_state {
  static constexpr int tokens = TWO ? 2 : 1;
  struct epilogue e;
  bool active; /* the thread has a vector */
  bool second; /* the block has two tokens */
  struct lamport_place place[tokens];
  struct vec own[tokens], residual[tokens], y[tokens];
  struct epilogue_gamma<T> gamma;
  struct quant q;
  struct quant_place quant_place;
};

template <class T, bool TWO>
DEVICE bool lamport_short_has(const struct lamport_short_state<T, TWO>& s, int i) {
  return s.active && (i == 0 || s.second);
}

DEVICE uint32_t lamport_short_token(int i) { return device_block() + i * device_blocks(); }

template <class T, bool TWO>
DEVICE void lamport_short_begin(const struct rows_args& rows, struct lamport_short_state<T, TWO>* s) {
  s->e = epilogue_begin<T, false>();
  s->active = s->e.column < rows.vectors;
  s->second = TWO && device_block() + device_blocks() < (uint32_t)rows.tokens;
  UNROLL for (int i = 0; i < s->tokens; ++i) s->place[i] = lamport_place_of(rows, lamport_short_token(i), s->e.column);
}

/* Sends, then loads what is needed only later. Returns false if the communicator has failed: then nothing was sent. */
template <class T, int RANKS, bool TWO, bool QUANT>
DEVICE bool lamport_short_send(const struct lamport_rows_args& a, struct exchange* x,
                               struct lamport_short_state<T, TWO>* s) {
  const struct rows_args& rows = a.rows;
  const uint32_t fail = exchange_read(a.exchange, x);
  UNROLL for (int i = 0; i < s->tokens; ++i) {
    s->own[i] = vec_fill(0);
    if (lamport_short_has(*s, i)) s->own[i] = device_load(s->place[i].input);
  }
  UNROLL for (int i = 0; i < s->tokens; ++i) {
    s->own[i] = vec_clear_negative_zero<T>(s->own[i]);
    s->place[i].slot_vector += x->epoch & 1 ? (uint32_t)(a.exchange.buffer / CUDA_VECTOR) : 0;
    if (lamport_short_has(*s, i) && fail == 0) {
      lamport_send<RANKS>(a.exchange, (uint64_t)s->place[i].slot_vector * CUDA_VECTOR, s->own[i]);
    }
  }
  UNROLL for (int i = 0; i < s->tokens; ++i) {
    s->residual[i] = vec_fill(0);
    if (lamport_short_has(*s, i) && rows.residual_in) s->residual[i] = device_load(s->place[i].residual_in);
  }
  s->gamma.v[0] = s->gamma.v[1] = vec_fill(0);
  if (s->active && epilogue_normalises<QUANT>(rows)) epilogue_load_gamma<T, true>(rows, s->e.column, &s->gamma);
  if (QUANT) quant_load_scale(a.quant, &s->q);
  return exchange_check(a.exchange, *x, fail);
}

/* While the data is on its way. */
template <class T, bool TWO, bool QUANT>
DEVICE void lamport_short_prepare(const struct lamport_rows_args& a, struct lamport_short_state<T, TWO>* s) {
  device_pin(s->e.own_segment);
  device_pin(s->e.lane_segment);
  device_pin(s->e.lane);
  if (!QUANT) return;
  quant_begin<false>(a.quant, &s->q);
  quant_clear_unused<T, true>(a.quant, a.rows.tokens);
  if (!TWO) { /* registers */
    quant_places<T>(s->e, a.rows, a.quant, device_block(), &s->quant_place);
    device_keep(s->quant_place.codes);
    device_keep(s->quant_place.scale);
  }
  s->q = quant_ready(a.quant, s->q);
}

/* The sum, the residual added, and the squares of the token's thread for the barrier that follows. */
template <class T, int RANKS, bool TWO, bool QUANT>
DEVICE void lamport_short_receive(const struct lamport_rows_args& a, struct exchange* x,
                                  struct lamport_short_state<T, TWO>* s) {
  const struct rows_args& rows = a.rows;
  UNROLL for (int i = 0; i < s->tokens; ++i) {
    s->y[i] = vec_fill(0);
    if (i != 0 && !s->second) break;
    if (s->active) {
      const struct vec sum = lamport_receive_rounded<T, RANKS, false>(
          a.exchange, x, s->own[i], (uint64_t)s->place[i].slot_vector * CUDA_VECTOR, lamport_short_token(i));
      s->y[i] = epilogue_add_residual<T>(rows, sum, s->residual[i]);
      if (rows.residual_out) device_store(s->place[i].residual_out, s->y[i]);
    }
    s->e.parity = (uint32_t)i;
    if (epilogue_normalises<QUANT>(rows)) epilogue_add_squares<T, false>(s->e, 0, &s->y[i]);
  }
}

/* After the barrier. */
template <class T, bool TWO, bool QUANT>
DEVICE void lamport_short_finish(const struct lamport_rows_args& a, struct lamport_short_state<T, TWO>* s,
                                 const float* weights) {
  const struct rows_args& rows = a.rows;
  UNROLL for (int i = 0; i < s->tokens; ++i) {
    if (i != 0 && !s->second) break;
    s->e.parity = (uint32_t)i;
    const float scale = epilogue_scale<T, false>(&s->e, rows);
    if (QUANT) {
      struct vec n = vec_fill(0);
      if (s->active) n = epilogue_norm<T>(s->y[i], scale, weights);
      if (s->active && rows.norm_out) device_store(s->place[i].norm_out, n);
      quant_row<T, true, false>(s->e, s->q, rows, a.quant, lamport_short_token(i), TWO ? NULL : &s->quant_place, &n);
    } else if (s->active) {
      device_store(s->place[i].norm_out, epilogue_norm<T>(s->y[i], scale, weights));
    }
  }
}

template <class T, int RANKS, bool TWO, bool QUANT>
KERNEL(CUDA_GROUP_PACKS) lamport_short(KERNEL_ARGUMENT(struct lamport_rows_args) a) {
  struct lamport_short_state<T, TWO> s;
  struct exchange x;
  lamport_short_begin<T, TWO>(a.rows, &s);
  device_grid_wait();
  if (!lamport_short_send<T, RANKS, TWO, QUANT>(a, &x, &s)) return;
  exchange_arrive(a.exchange, &x);
  lamport_short_prepare<T, TWO, QUANT>(a, &s);
  lamport_short_receive<T, RANKS, TWO, QUANT>(a, &x, &s);
  if (epilogue_normalises<QUANT>(a.rows)) {
    float weights[T::per_vector];
    epilogue_weights<T>(a.rows, s.gamma, weights);
    device_barrier();
    if (a.early_trigger && exchange_control_thread()) {
      /* The barrier says that this block has read and cleared its slots. */
      exchange_advance(a.exchange, x);
      device_grid_trigger();
    }
    lamport_short_finish<T, TWO, QUANT>(a, &s, weights);
  }
  if (!(a.early_trigger && epilogue_normalises<QUANT>(a.rows))) exchange_advance(a.exchange, x);
}

#endif
