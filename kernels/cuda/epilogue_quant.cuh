/* SPDX-License-Identifier: Apache-2.0
 *
 * epilogue_quant.cuh: the second pass over a row of a quantized request, in place of epilogue_second_pass.
 */
#ifndef ARFUSION_KERNELS_EPILOGUE_QUANT_CUH_
#define ARFUSION_KERNELS_EPILOGUE_QUANT_CUH_

#include "kernels/cuda/epilogue.cuh"
#include "kernels/cuda/quant.cuh"

/* The normalised values of a vector, from its y; to norm_out too. */
template <class T, bool ALIGNED>
DEVICE struct vec quant_norm(const struct rows_args& rows, int64_t token, uint32_t vector, const struct vec& y,
                             float scale, const struct epilogue_gamma<T>& gamma) {
  float weights[T::per_vector];
  epilogue_weights<T>(rows, gamma, weights);
  const struct vec n = epilogue_norm<T>(y, scale, weights);
  if (rows.norm_out) vec_store<T, ALIGNED>(epilogue_address(rows.norm_out, token, rows.norm_out_stride, vector), n);
  return n;
}

/* Between gathering the magnitudes of a token and making its codes. REUSED: there are more than two tokens. */
template <bool REUSED>
DEVICE void quant_exchange(const struct quant_args& a, const struct quant& q, uint32_t parity) {
  if (REUSED) quant_clear_other(a, q, parity);
  device_barrier();
}

/* Where a thread's vectors of a row of one chunk go. */
template <class T>
DEVICE void quant_places(const struct epilogue& e, const struct rows_args& rows, const struct quant_args& a,
                         int64_t token, struct quant_place* place) {
  UNROLL for (int j = 0; j < T::vectors; ++j) {
    place[j] = quant_place_any<T>(a, rows.vectors, token, epilogue_vector<T>(e, 0, j));
  }
}

template <class T, bool ALIGNED, bool REUSED, int KIND>
DEVICE void quant_row_of(const struct epilogue& e, const struct quant& q, const struct rows_args& rows,
                         const struct quant_args& a, int64_t token, const struct quant_place* known,
                         const struct vec* n) {
  uint32_t magnitude[T::vectors] = {};
  if (KIND == arfusionQuantFp8Token || (KIND == arfusionQuantFp8Group && UNLIKELY(quant_gathers(a)))) {
    UNROLL for (int j = 0; j < T::vectors; ++j) {
      quant_gather<T, KIND>(a, q, e.parity, rows.vectors, epilogue_vector<T>(e, 0, j), n[j]);
    }
    quant_exchange<REUSED>(a, q, e.parity);
    UNROLL for (int j = 0; j < T::vectors; ++j) {
      magnitude[j] = quant_gathered<KIND>(a, q, e.parity, rows.vectors, epilogue_vector<T>(e, 0, j));
    }
  } else if (KIND != arfusionQuantFp8) {
    UNROLL for (int j = 0; j < T::vectors; ++j) magnitude[j] = quant_share<KIND>(a, quant_magnitude<T>(n[j]));
  }
  UNROLL for (int j = 0; j < T::vectors; ++j) {
    const uint32_t vector = epilogue_vector<T>(e, 0, j);
    if (vector >= rows.vectors) continue;
    quant_vector<T, ALIGNED, KIND>(q, a, rows.vectors, token, vector, known ? known + j : NULL, n[j], magnitude[j]);
  }
}

/* A row of one chunk; `n` is 0 beyond its end. `known`: what quant_places says, or NULL. The kind is looked at once,
 * since nothing hides what branches cost at the end of a kernel. */
template <class T, bool ALIGNED, bool REUSED>
DEVICE void quant_row(const struct epilogue& e, const struct quant& q, const struct rows_args& rows,
                      const struct quant_args& a, int64_t token, const struct quant_place* known,
                      const struct vec* n) {
  if (a.kind == arfusionQuantFp8) {
    quant_row_of<T, ALIGNED, REUSED, arfusionQuantFp8>(e, q, rows, a, token, known, n);
  } else if (a.kind == arfusionQuantFp8Group) {
    quant_row_of<T, ALIGNED, REUSED, arfusionQuantFp8Group>(e, q, rows, a, token, known, n);
  } else if (a.kind == arfusionQuantFp8Token) {
    quant_row_of<T, ALIGNED, REUSED, arfusionQuantFp8Token>(e, q, rows, a, token, known, n);
  } else if constexpr (T::size == 2) {
    quant_row_of<T, ALIGNED, REUSED, arfusionQuantNvfp4>(e, q, rows, a, token, known, n);
  }
}

/* A vector of a row of several chunks. It is in memory: y until norm_out has been written over it. */
template <class T, bool ALIGNED, class Spare>
DEVICE struct vec quant_chunk_norm(const struct rows_args& rows, int64_t token, uint32_t vector, float scale,
                                   bool first, bool last, const Spare& spare) {
  if (!first && rows.norm_out) {
    return vec_load<T, ALIGNED>(epilogue_address(rows.norm_out, token, rows.norm_out_stride, vector));
  }
  const struct vec y = epilogue_spares<Spare>(rows)
                           ? spare_load(spare, token, vector, last)
                           : vec_load<T, ALIGNED>(epilogue_y_address(rows, token, vector));
  struct epilogue_gamma<T> gamma;
  epilogue_load_gamma<T, ALIGNED>(rows, vector, &gamma);
  return quant_norm<T, ALIGNED>(rows, token, vector, y, scale, gamma);
}

/* And its codes. All lanes call, with `n` 0 beyond the row's end. */
template <class T, bool ALIGNED, int KIND>
DEVICE void quant_chunk_vector_of(const struct quant_args& a, const struct quant& q, uint32_t parity, uint32_t vectors,
                                  int64_t token, uint32_t vector, const struct vec& n) {
  uint32_t magnitude = 0;
  if (quant_gathers(a)) magnitude = quant_gathered<KIND>(a, q, parity, vectors, vector);
  else if (KIND != arfusionQuantFp8) magnitude = quant_share<KIND>(a, quant_magnitude<T>(n));
  if (vector >= vectors) return;
  quant_vector<T, ALIGNED, KIND>(q, a, vectors, token, vector, NULL, n, magnitude);
}

template <class T, bool ALIGNED>
DEVICE void quant_chunk_vector(const struct quant_args& a, const struct quant& q, uint32_t parity, uint32_t vectors,
                               int64_t token, uint32_t vector, const struct vec& n) {
  if (a.kind == arfusionQuantFp8) {
    quant_chunk_vector_of<T, ALIGNED, arfusionQuantFp8>(a, q, parity, vectors, token, vector, n);
  } else if (a.kind == arfusionQuantFp8Group) {
    quant_chunk_vector_of<T, ALIGNED, arfusionQuantFp8Group>(a, q, parity, vectors, token, vector, n);
  } else if (a.kind == arfusionQuantFp8Token) {
    quant_chunk_vector_of<T, ALIGNED, arfusionQuantFp8Token>(a, q, parity, vectors, token, vector, n);
  } else if constexpr (T::size == 2) {
    quant_chunk_vector_of<T, ALIGNED, arfusionQuantNvfp4>(a, q, parity, vectors, token, vector, n);
  }
}

/* Such a row. */
template <class T, bool ALIGNED, class Spare>
DEVICE void quant_chunks(const struct epilogue& e, const struct rows_args& rows, const struct quant_args& a,
                         int64_t token, float scale, const Spare& spare) {
  struct quant q = {0.0f, quant_shared<true>()};
  quant_load_scale(a, &q);
  q = quant_ready(a, q);
  const bool gathers = quant_gathers(a);
  bool gathering = gathers;
  NO_UNROLL for (;;) {
    NO_UNROLL for (uint32_t chunk = 0; chunk < rows.chunks; ++chunk) {
      NO_UNROLL for (int j = 0; j < T::vectors; ++j) {
        const uint32_t vector = epilogue_vector<T>(e, chunk, j);
        struct vec n = vec_fill(0);
        if (vector < rows.vectors) {
          n = quant_chunk_norm<T, ALIGNED>(rows, token, vector, scale, gathering == gathers, !gathering, spare);
        }
        if (gathering) quant_gather<T, arfusionQuantFp8Group>(a, q, e.parity, rows.vectors, vector, n); /* token, too */
        else quant_chunk_vector<T, ALIGNED>(a, q, e.parity, rows.vectors, token, vector, n);
      }
    }
    if (!gathering) break;
    quant_exchange<true>(a, q, e.parity);
    gathering = false;
  }
}

/* Everything after the barrier that follows the last chunk's first pass, quantized or not. Of quantized rows of several
 * chunks nothing is kept in registers, `q` neither. */
template <class T, bool ALIGNED, bool CHUNKED, int KEPT, class Spare>
DEVICE void epilogue_finish(struct epilogue* e, const struct quant& q, const struct rows_args& rows,
                            const struct quant_args& a, int64_t token, const struct epilogue_row<T, CHUNKED, KEPT>& row,
                            const struct epilogue_gamma<T>* gamma, const Spare& spare) {
  if constexpr (!Spare::quantizes) {
    epilogue_second_pass<T, ALIGNED>(e, rows, token, row, gamma);
  } else {
    const float scale = epilogue_scale<T, CHUNKED>(e, rows);
    if constexpr (CHUNKED) {
      static_assert(KEPT == 0, "y is in memory");
      quant_chunks<T, ALIGNED>(*e, rows, a, token, scale, spare);
    } else {
      struct vec n[T::vectors];
      UNROLL for (int j = 0; j < T::vectors; ++j) {
        const uint32_t vector = epilogue_vector<T>(*e, 0, j);
        n[j] = vec_fill(0);
        if (vector < rows.vectors) n[j] = quant_norm<T, ALIGNED>(rows, token, vector, row.y[0][j], scale, gamma[j]);
      }
      quant_row<T, ALIGNED, true>(*e, quant_ready(a, q), rows, a, token, NULL, n);
    }
  }
}

#endif
