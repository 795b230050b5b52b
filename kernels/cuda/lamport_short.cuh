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

template <class T, int RANKS, bool TWO, bool QUANT>
KERNEL(CUDA_GROUP_PACKS) lamport_short(KERNEL_ARGUMENT(struct lamport_rows_args) a) {
  constexpr int tokens = TWO ? 2 : 1;
  const struct rows_args& rows = a.rows;
  struct epilogue e = epilogue_begin<T, false>();
  const bool active = e.column < rows.vectors;
  const bool second = TWO && device_block() + device_blocks() < (uint32_t)rows.tokens;
  struct lamport_place place[tokens];
  UNROLL for (int i = 0; i < tokens; ++i) {
    place[i] = lamport_place_of(rows, device_block() + i * device_blocks(), e.column);
  }
  struct exchange x;
  struct vec own[tokens], residual[tokens], y[tokens];
  struct epilogue_gamma<T> gamma;
  float weights[T::per_vector];
  struct quant q;
  struct quant_place quant_place;

  device_grid_wait();
  const uint32_t fail = exchange_read(a.exchange, &x);
  UNROLL for (int i = 0; i < tokens; ++i) {
    own[i] = vec_fill(0);
    if (active && (i == 0 || second)) own[i] = device_load(place[i].input);
  }
  UNROLL for (int i = 0; i < tokens; ++i) {
    own[i] = vec_clear_negative_zero<T>(own[i]);
    place[i].slot_vector += x.epoch & 1 ? (uint32_t)(a.exchange.buffer / CUDA_VECTOR) : 0;
    if (active && (i == 0 || second) && fail == 0) {
      lamport_send<RANKS>(a.exchange, (uint64_t)place[i].slot_vector * CUDA_VECTOR, own[i]);
    }
  }
  UNROLL for (int i = 0; i < tokens; ++i) {
    residual[i] = vec_fill(0);
    if (active && (i == 0 || second) && rows.residual_in) residual[i] = device_load(place[i].residual_in);
  }
  gamma.v[0] = gamma.v[1] = vec_fill(0);
  if (active && epilogue_normalises<QUANT>(rows)) epilogue_load_gamma<T, true>(rows, e.column, &gamma);
  if (QUANT) quant_load_scale(a.quant, &q);
  if (!exchange_check(a.exchange, x, fail)) return;
  exchange_arrive(a.exchange, &x);
  device_pin(e.own_segment);
  device_pin(e.lane_segment);
  device_pin(e.lane);
  if (QUANT) {
    quant_begin<false>(a.quant, &q);
    quant_clear_unused<T, true>(a.quant, rows.tokens);
    if (!TWO) { /* registers */
      quant_places<T>(e, rows, a.quant, device_block(), &quant_place);
      device_keep(quant_place.codes);
      device_keep(quant_place.scale);
    }
    q = quant_ready(a.quant, q);
  }

  UNROLL for (int i = 0; i < tokens; ++i) {
    y[i] = vec_fill(0);
    if (i != 0 && !second) break;
    if (active) {
      const struct vec sum = lamport_receive_rounded<T, RANKS, false>(
          a.exchange, &x, own[i], (uint64_t)place[i].slot_vector * CUDA_VECTOR, device_block() + i * device_blocks());
      y[i] = epilogue_add_residual<T>(rows, sum, residual[i]);
      if (rows.residual_out) device_store(place[i].residual_out, y[i]);
    }
    e.parity = (uint32_t)i;
    if (epilogue_normalises<QUANT>(rows)) epilogue_add_squares<T, false>(e, 0, &y[i]);
  }
  if (epilogue_normalises<QUANT>(rows)) {
    epilogue_weights<T>(rows, gamma, weights);
    device_barrier();
    if (a.early_trigger && exchange_control_thread()) {
      /* The barrier says that this block has read and cleared its slots. */
      exchange_advance(a.exchange, x);
      device_grid_trigger();
    }
    UNROLL for (int i = 0; i < tokens; ++i) {
      if (i != 0 && !second) break;
      e.parity = (uint32_t)i;
      const float scale = epilogue_scale<T, false>(&e, rows);
      if (QUANT) {
        struct vec n = vec_fill(0);
        if (active) n = epilogue_norm<T>(y[i], scale, weights);
        if (active && rows.norm_out) device_store(place[i].norm_out, n);
        quant_row<T, true, false>(e, q, rows, a.quant, device_block() + i * device_blocks(), TWO ? NULL : &quant_place,
                                   &n);
      } else if (active) {
        device_store(place[i].norm_out, epilogue_norm<T>(y[i], scale, weights));
      }
    }
  }
  if (!(a.early_trigger && epilogue_normalises<QUANT>(rows))) exchange_advance(a.exchange, x);
}

#endif
