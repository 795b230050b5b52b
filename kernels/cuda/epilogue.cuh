/* SPDX-License-Identifier: Apache-2.0
 *
 * epilogue.cuh: what follows the sum (steps 2 to 5 of the numerics contract), for every kernel that works on rows. One
 * block does a token at a time; a row is cut into chunks of CUDA_GROUP_PACKS packs, one pack a thread and chunk.
 */
#ifndef ARFUSION_KERNELS_EPILOGUE_CUH_
#define ARFUSION_KERNELS_EPILOGUE_CUH_

#include "kernels/cuda/element.cuh"

/* A thread's place, and the sums that pass between warps. */
struct epilogue {
  uint32_t column; /* the thread's first vector in a chunk */
  uint32_t warp, lane;
  uint32_t own_segment, lane_segment; /* addresses in [2][chunks][32] sums: of this warp's and of this lane's number */
  uint32_t parity; /* alternates from token to token, so that one barrier a token is enough */
};

template <class T, bool CHUNKED>
DEVICE struct epilogue epilogue_begin(void) {
  struct epilogue e;
  e.warp = device_thread() / ELEMENT_LANES;
  e.lane = device_thread() % ELEMENT_LANES;
  e.column = e.warp * ELEMENT_LANES * T::vectors + e.lane;
  const uint32_t segments = device_shared<2 * (CHUNKED ? CUDA_MAX_CHUNKS : 1) * 32>();
  e.own_segment = segments + e.warp * 4;
  e.lane_segment = segments + e.lane * 4;
  e.parity = 0;
  return e;
}

/* The thread's j-th vector of a chunk: its number in the row. */
template <class T>
DEVICE uint32_t epilogue_vector(const struct epilogue& e, uint32_t chunk, int j) {
  return chunk * CUDA_GROUP_PACKS * T::vectors + e.column + (uint32_t)(j * ELEMENT_LANES);
}

/* The address of a vector of a row. */
template <class Byte>
DEVICE Byte* epilogue_address(Byte* base, int64_t token, int64_t stride, uint32_t vector) {
  return base + token * stride + (int64_t)vector * CUDA_VECTOR;
}

/* This thread's vectors of one chunk of a tensor; 0 beyond the row's end, and where there is no tensor. */
template <class T, bool ALIGNED>
DEVICE void epilogue_load(const struct epilogue& e, const struct rows_args& rows, const unsigned char* base,
                          int64_t stride, int64_t token, uint32_t chunk, struct vec* v) {
  UNROLL for (int j = 0; j < T::vectors; ++j) {
    const uint32_t vector = epilogue_vector<T>(e, chunk, j);
    v[j] = vec_fill(0);
    if (base && vector < rows.vectors) v[j] = vec_load<T, ALIGNED>(epilogue_address(base, token, stride, vector));
  }
}

/* y from the sum rounded to T. */
template <class T>
DEVICE struct vec epilogue_add_residual(const struct rows_args& rows, const struct vec& sum,
                                        const struct vec& residual) {
  return rows.residual_in ? vec_add<T>(sum, residual) : sum;
}

/* y from the sum. */
template <class T>
DEVICE struct vec epilogue_add(const struct rows_args& rows, const float* sum, const struct vec& residual) {
  return epilogue_add_residual<T>(rows, vec_pack<T>(sum), residual);
}

/* Where y of a chunk that is not kept in registers waits for the second pass: norm_out if there is no residual_out. */
DEVICE unsigned char* epilogue_y_address(const struct rows_args& rows, int64_t token, uint32_t vector) {
  return rows.residual_out ? epilogue_address(rows.residual_out, token, rows.residual_out_stride, vector)
                           : epilogue_address(rows.norm_out, token, rows.norm_out_stride, vector);
}

/* A quantized request may have neither; y of such a chunk then waits where the algorithm has memory to spare. Each has
 * a struct with `quantizes` true, and functions that take it:
 *   spare_store(spare, token, vector, y)
 *   spare_load(spare, token, vector, last)   last: it will not be loaded again */
struct epilogue_no_spare {
  static constexpr bool quantizes = false;
};
DEVICE void spare_store(const struct epilogue_no_spare&, int64_t, uint32_t, const struct vec&) {}

/* Rows from `base` on, in a workspace. `clear`: they are Lamport slots. */
struct epilogue_spare {
  static constexpr bool quantizes = true;
  unsigned char* base;
  int64_t stride;
  bool clear;
};
DEVICE void spare_store(const struct epilogue_spare& s, int64_t token, uint32_t vector, const struct vec& y) {
  device_store_relaxed_sys(epilogue_address(s.base, token, s.stride, vector), y);
}
DEVICE struct vec spare_load(const struct epilogue_spare& s, int64_t token, uint32_t vector, bool last) {
  unsigned char* p = epilogue_address(s.base, token, s.stride, vector);
  const struct vec y = device_load_relaxed_sys(p);
  if (s.clear && last) device_store_relaxed_sys(p, vec_fill(KERNEL_SENTINEL));
  return y;
}

template <class Spare>
DEVICE bool epilogue_spares(const struct rows_args& rows) {
  return Spare::quantizes && !rows.residual_out && !rows.norm_out;
}

/* Whether rows are normalised. */
template <bool QUANT>
DEVICE bool epilogue_normalises(const struct rows_args& rows) {
  return QUANT || rows.norm_out;
}

/* Gamma of one vector as it stands in memory: with 16-bit data, fp32 gamma takes two. */
template <class T>
struct epilogue_gamma {
  struct vec v[T::vectors == 1 ? 2 : 1];
};

template <class T>
DEVICE bool epilogue_gamma_wide(const struct rows_args& rows) {
  return T::size == 2 && rows.gamma_fp32;
}

template <class T, bool ALIGNED>
DEVICE void epilogue_load_gamma(const struct rows_args& rows, uint32_t vector, struct epilogue_gamma<T>* gamma) {
  constexpr int second = T::vectors == 1 ? 1 : 0;
  const bool wide = epilogue_gamma_wide<T>(rows);
  const unsigned char* p = rows.gamma + (int64_t)vector * (wide ? 2 * CUDA_VECTOR : CUDA_VECTOR);
  if (!ALIGNED && !wide) {
    gamma->v[0] = vec_load<T, false>(p);
    return;
  }
  gamma->v[0] = vec_load<element_fp32, ALIGNED>(p);
  if (wide) gamma->v[second] = vec_load<element_fp32, ALIGNED>(p + CUDA_VECTOR);
}

/* That of a row of one chunk. */
template <class T, bool ALIGNED>
DEVICE void epilogue_load_row_gamma(const struct epilogue& e, const struct rows_args& rows,
                                    struct epilogue_gamma<T>* gamma) {
  UNROLL for (int j = 0; j < T::vectors; ++j) {
    const uint32_t vector = epilogue_vector<T>(e, 0, j);
    UNROLL for (int k = 0; k < (T::vectors == 1 ? 2 : 1); ++k) gamma[j].v[k] = vec_fill(0);
    if (vector < rows.vectors) epilogue_load_gamma<T, ALIGNED>(rows, vector, &gamma[j]);
  }
}

/* Has it come to the L2 cache meanwhile. */
template <class T>
DEVICE void epilogue_prefetch_row_gamma(const struct epilogue& e, const struct rows_args& rows) {
  UNROLL for (int j = 0; j < T::vectors; ++j) {
    const uint32_t vector = epilogue_vector<T>(e, 0, j);
    const int64_t bytes = epilogue_gamma_wide<T>(rows) ? 2 * CUDA_VECTOR : CUDA_VECTOR;
    if (vector < rows.vectors) device_prefetch(rows.gamma + vector * bytes);
  }
}

/* (weight_bias + gamma) for the elements of a vector. */
template <class T>
DEVICE void epilogue_weights(const struct rows_args& rows, const struct epilogue_gamma<T>& gamma, float* weights) {
  if (epilogue_gamma_wide<T>(rows)) {
    UNROLL for (int i = 0; i < T::per_vector; i += 4) vec_unpack<element_fp32>(gamma.v[i / 4], weights + i);
  } else {
    vec_unpack<T>(gamma.v[0], weights);
  }
  UNROLL for (int i = 0; i < T::per_vector; ++i) weights[i] = device_add(rows.weight_bias, weights[i]);
}

DEVICE float epilogue_sum_lanes(float a) {
  UNROLL for (int mask = ELEMENT_LANES / 2; mask; mask /= 2) a = device_add(a, device_shuffle_xor(a, mask));
  return a;
}

/* The sum of squares of the pack with this lane's number among the warp's 32. All lanes call. */
template <class T>
DEVICE float epilogue_pack_squares(const struct epilogue& e, const struct vec* y) {
  float pack[T::vectors];
  UNROLL for (int j = 0; j < T::vectors; ++j) {
    float square[T::per_vector];
    vec_unpack<T>(y[j], square);
    UNROLL for (int i = 0; i < T::per_vector; ++i) square[i] = device_mul(square[i], square[i]);
    float sum = square[0]; /* 0 + square[0] */
    UNROLL for (int i = 1; i < T::per_vector; ++i) sum = device_add(sum, square[i]);
    if (T::vectors == 2) { /* an odd lane goes on where its neighbour, which has the pack's first half, has stopped */
      sum = device_shuffle_xor(sum, 1);
      UNROLL for (int i = 0; i < T::per_vector; ++i) sum = device_add(sum, square[i]);
    }
    pack[j] = sum;
  }
  if (T::vectors == 1) return pack[0];
  const uint32_t from = e.lane % 16 * 2 + 1;
  const float low = device_shuffle(pack[0], from), high = device_shuffle(pack[T::vectors - 1], from);
  return e.lane < 16 ? low : high;
}

/* Takes the y of a chunk into the token's sum of squares. */
template <class T, bool CHUNKED>
DEVICE void epilogue_add_squares(const struct epilogue& e, uint32_t chunk, const struct vec* y) {
  const float segment = epilogue_sum_lanes(epilogue_pack_squares<T>(e, y));
  const uint32_t row = e.parity * (CHUNKED ? CUDA_MAX_CHUNKS : 1) + (CHUNKED ? chunk : 0);
  if (e.lane == 0) device_shared_store(e.own_segment + row * 128, device_bits(segment));
}

/* After a barrier that follows epilogue_add_squares: 1 / sqrt(mean of squares + eps) of the token. */
template <class T, bool CHUNKED>
DEVICE float epilogue_scale(struct epilogue* e, const struct rows_args& rows) {
  const uint32_t row = e->lane_segment + e->parity * (CHUNKED ? CUDA_MAX_CHUNKS : 1) * 128;
  float total;
  if (CHUNKED) {
    total = 0.0f;
    NO_UNROLL for (uint32_t chunk = 0; chunk < rows.chunks; ++chunk) {
      total = device_add(total, epilogue_sum_lanes(device_float(device_shared_load(row + chunk * 128))));
    }
  } else {
    total = 0.0f;
    if (e->lane < device_threads() / ELEMENT_LANES) total = device_float(device_shared_load(row));
    total = epilogue_sum_lanes(total); /* 0 + the one group */
  }
  e->parity ^= 1;
  return device_rsqrt(device_add(device_mul(total, rows.inv_hidden), rows.eps));
}

template <class T>
DEVICE struct vec epilogue_norm(const struct vec& y, float scale, const float* weights) {
  float n[T::per_vector];
  vec_unpack<T>(y, n);
  UNROLL for (int i = 0; i < T::per_vector; ++i) n[i] = device_mul(device_mul(n[i], scale), weights[i]);
  return vec_pack<T>(n);
}

/* norm_out of one vector. */
template <class T, bool ALIGNED>
DEVICE void epilogue_store_norm(const struct rows_args& rows, int64_t token, uint32_t vector, const struct vec& y,
                                float scale, const struct epilogue_gamma<T>& gamma) {
  float weights[T::per_vector];
  epilogue_weights<T>(rows, gamma, weights);
  vec_store<T, ALIGNED>(epilogue_address(rows.norm_out, token, rows.norm_out_stride, vector),
                        epilogue_norm<T>(y, scale, weights));
}

/* y of one thread between the two passes over a row. Of a row of several chunks (CHUNKED) the first KEPT stay in
 * registers; those beyond are read back from memory. */
template <class T, bool CHUNKED, int KEPT>
struct epilogue_row {
  static constexpr int kept = CHUNKED ? KEPT : 1;
  struct vec y[kept ? kept : 1][T::vectors];
};

/* The first pass over a chunk: stores y where it belongs and keeps it for the second pass. All threads call, with y 0
 * beyond the row's end. */
template <class T, bool ALIGNED, bool CHUNKED, int KEPT, class Spare>
DEVICE void epilogue_first_pass(const struct epilogue& e, const struct rows_args& rows, int64_t token, uint32_t chunk,
                                const struct vec* y, struct epilogue_row<T, CHUNKED, KEPT>* row, const Spare& spare) {
  constexpr int kept = epilogue_row<T, CHUNKED, KEPT>::kept;
  UNROLL for (int k = 0; k < kept; ++k) {
    UNROLL for (int j = 0; j < T::vectors; ++j) {
      if (!CHUNKED || (int)chunk == k) row->y[k][j] = y[j];
    }
  }
  if (rows.residual_out || (CHUNKED && (int)chunk >= kept)) {
    UNROLL for (int j = 0; j < T::vectors; ++j) {
      const uint32_t vector = epilogue_vector<T>(e, chunk, j);
      if (vector >= rows.vectors) continue;
      if (CHUNKED && epilogue_spares<Spare>(rows)) spare_store(spare, token, vector, y[j]);
      else vec_store<T, ALIGNED>(epilogue_y_address(rows, token, vector), y[j]);
    }
  }
  if (epilogue_normalises<Spare::quantizes>(rows)) epilogue_add_squares<T, CHUNKED>(e, chunk, y);
}

/* Everything after the barrier that follows the last chunk's first pass. `gamma` is that of a row of one chunk, loaded
 * beforehand. Not called without norm_out. */
template <class T, bool ALIGNED, bool CHUNKED, int KEPT>
DEVICE void epilogue_second_pass(struct epilogue* e, const struct rows_args& rows, int64_t token,
                                 const struct epilogue_row<T, CHUNKED, KEPT>& row,
                                 const struct epilogue_gamma<T>* gamma) {
  constexpr int kept = epilogue_row<T, CHUNKED, KEPT>::kept;
  const float scale = epilogue_scale<T, CHUNKED>(e, rows);
  const uint32_t chunks = CHUNKED ? rows.chunks : 1;
  NO_UNROLL for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
    UNROLL for (int j = 0; j < T::vectors; ++j) {
      const uint32_t vector = epilogue_vector<T>(*e, chunk, j);
      if (vector >= rows.vectors) continue;
      if (!CHUNKED) {
        epilogue_store_norm<T, ALIGNED>(rows, token, vector, row.y[0][j], scale, gamma[j]);
        continue;
      }
      struct vec y;
      if ((int)chunk >= kept) y = vec_load<T, ALIGNED>(epilogue_y_address(rows, token, vector));
      UNROLL for (int k = 0; k < kept; ++k) {
        if ((int)chunk == k) y = row.y[k][j];
      }
      struct epilogue_gamma<T> chunk_gamma;
      epilogue_load_gamma<T, ALIGNED>(rows, vector, &chunk_gamma);
      epilogue_store_norm<T, ALIGNED>(rows, token, vector, y, scale, chunk_gamma);
    }
  }
}

#endif
