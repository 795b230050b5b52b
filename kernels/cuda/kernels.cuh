/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels.cuh: the stand-alone epilogue kernel, and the table of all kernels of one data type. Each data type is a
 * source file of its own, so that they compile side by side.
 */
#ifndef ARFUSION_KERNELS_KERNELS_CUH_
#define ARFUSION_KERNELS_KERNELS_CUH_

#include "kernels/cuda/lamport_short.cuh"
#include "kernels/cuda/sync.cuh"
#include "kernels/cuda/twoshot.cuh"

/* y of a vector of the sum and the residual. A NaN that goes straight to residual_out becomes the canonical one. */
template <class T>
DEVICE struct vec epilogue_y(const struct rows_args& rows, const struct vec& input, const struct vec& residual) {
  float sum[T::per_vector];
  vec_unpack<T>(input, sum);
  UNROLL for (int i = 0; i < T::per_vector; ++i) {
    if (sum[i] != sum[i]) sum[i] = device_float(0x7fffffffu);
  }
  return epilogue_add<T>(rows, sum, residual);
}

/* There is nothing to spare, but what y is made of is still there. */
template <class T, bool ALIGNED>
struct epilogue_again {
  static constexpr bool quantizes = true;
  const struct rows_args* rows;
};
template <class T, bool ALIGNED>
DEVICE void spare_store(const struct epilogue_again<T, ALIGNED>&, int64_t, uint32_t, const struct vec&) {}
template <class T, bool ALIGNED>
DEVICE struct vec spare_load(const struct epilogue_again<T, ALIGNED>& s, int64_t token, uint32_t vector, bool) {
  const struct rows_args& rows = *s.rows;
  const struct vec input = vec_load<T, ALIGNED>(epilogue_address(rows.input, token, rows.input_stride, vector));
  struct vec residual = vec_fill(0);
  if (rows.residual_in) {
    residual = vec_load<T, ALIGNED>(epilogue_address(rows.residual_in, token, rows.residual_in_stride, vector));
  }
  return epilogue_y<T>(rows, input, residual);
}

template <class T, bool ALIGNED, bool QUANT>
DEVICE auto epilogue_spare_of(const struct rows_args& rows) {
  if constexpr (QUANT) return epilogue_again<T, ALIGNED>{&rows};
  else return epilogue_no_spare{};
}

/* rows.input is the sum. */
template <class T, bool CHUNKED, bool ALIGNED, bool QUANT>
KERNEL(CUDA_GROUP_PACKS) epilogue_rows(KERNEL_ARGUMENT(struct epilogue_args) a) {
  const struct rows_args& rows = a.rows;
  struct epilogue e = epilogue_begin<T, CHUNKED>();
  struct epilogue_gamma<T> gamma[T::vectors];
  struct quant q;
  if (QUANT) quant_begin<CHUNKED>(a.quant, &q);
  device_grid_wait();
  if (!CHUNKED && epilogue_normalises<QUANT>(rows)) epilogue_load_row_gamma<T, ALIGNED>(e, rows, gamma);
  if (QUANT && !CHUNKED) quant_load_scale(a.quant, &q);
  for (int64_t token = device_block(); token < rows.tokens; token += device_blocks()) {
    const uint32_t chunks = CHUNKED ? rows.chunks : 1;
    struct epilogue_row<T, CHUNKED, QUANT ? 0 : 2> row;
    for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
      struct vec y[T::vectors], residual[T::vectors];
      epilogue_load<T, ALIGNED>(e, rows, rows.input, rows.input_stride, token, chunk, y);
      epilogue_load<T, ALIGNED>(e, rows, rows.residual_in, rows.residual_in_stride, token, chunk, residual);
      if (QUANT && token == device_block() && chunk == 0) quant_clear_unused<T, ALIGNED>(a.quant, rows.tokens);
      UNROLL for (int j = 0; j < T::vectors; ++j) y[j] = epilogue_y<T>(rows, y[j], residual[j]);
      epilogue_first_pass<T, ALIGNED>(e, rows, token, chunk, y, &row, epilogue_spare_of<T, ALIGNED, QUANT>(rows));
    }
    if (epilogue_normalises<QUANT>(rows)) {
      device_barrier();
      epilogue_finish<T, ALIGNED>(&e, q, rows, a.quant, token, row, gamma, epilogue_spare_of<T, ALIGNED, QUANT>(rows));
    }
  }
}

/* What is not aligned to 16 bytes takes the kernels for any number of ranks. So does two-shot with 2 ranks, where it
 * moves as many bytes as one-shot and is never the faster, and with rows of several chunks, where registers are few.
 * The same holds for all quantized rows of several chunks, and for those of fp32, which are seldom wanted. */
#define KERNELS_LAMPORT(T, ranks, chunked_ranks, aligned, quant) \
  {(const void*)lamport_rows<T, ranks, false, aligned, quant>,    \
   (const void*)lamport_rows<T, chunked_ranks, true, aligned, quant>}
#define KERNELS_TWOSHOT(T, ranks, aligned, chunked_aligned, quant)    \
  {                                                                   \
    (const void*)twoshot_rows<T, ranks, false, aligned, quant>,       \
        (const void*)twoshot_rows<T, 0, true, chunked_aligned, quant> \
  }
#define KERNELS_PAIR_ANY(kernel, T, aligned, quant) \
  {(const void*)kernel<T, false, aligned, quant>, (const void*)kernel<T, true, aligned, quant>}
#define KERNELS_SHORT(T, quant)                                                                                  \
  {                                                                                                              \
    {(const void*)lamport_short<T, 2, false, quant>, (const void*)lamport_short<T, 2, true, quant>},             \
        {(const void*)lamport_short<T, 4, false, quant>, NULL}, /* two tokens of four ranks are more than registers */ \
  }
#define KERNELS_NO_SHORT(T, quant) \
  {}
/* For 2, 4 and 8 ranks, rows of one chunk (a, b, c) and of several (d, e, f); two-shot for 4 and 8 ranks (g, h), and
 * whether its rows of several chunks have a kernel for what is aligned (i). */
#define KERNELS_ROWS(T, SHORT, quant, a, b, c, d, e, f, g, h, i)                                                    \
  {                                                                                                                 \
    {KERNELS_LAMPORT(T, a, d, true, quant), KERNELS_LAMPORT(T, b, e, true, quant),                                  \
     KERNELS_LAMPORT(T, c, f, true, quant), KERNELS_LAMPORT(T, 0, 0, true, quant),                                  \
     KERNELS_LAMPORT(T, 0, 0, false, quant)},                                                                       \
        SHORT(T, quant),                                                                                            \
        {KERNELS_TWOSHOT(T, 0, true, i, quant), KERNELS_TWOSHOT(T, g, true, i, quant),                              \
         KERNELS_TWOSHOT(T, h, true, i, quant), KERNELS_TWOSHOT(T, 0, true, i, quant),                              \
         KERNELS_TWOSHOT(T, 0, false, false, quant)},                                                               \
        {KERNELS_PAIR_ANY(sync_rows, T, false, quant), KERNELS_PAIR_ANY(sync_rows, T, true, quant)},                \
        {KERNELS_PAIR_ANY(epilogue_rows, T, false, quant), KERNELS_PAIR_ANY(epilogue_rows, T, true, quant)},        \
  }
#define KERNELS_PLAIN(T, SHORT) KERNELS_ROWS(T, SHORT, false, 2, 4, 8, 2, 4, 8, 4, 8, true)
#define KERNELS_QUANT(T, SHORT) KERNELS_ROWS(T, SHORT, true, 2, 4, 8, 0, 0, 0, 0, 0, true)
#define KERNELS_QUANT_ANY(T) KERNELS_ROWS(T, KERNELS_NO_SHORT, true, 0, 0, 0, 0, 0, 0, 0, 0, false)
#define KERNELS_FLAT(T)                                                                                               \
  {                                                                                                                   \
    {(const void*)lamport_flat<T, 2, true>, (const void*)lamport_flat<T, 4, true>,                                    \
     (const void*)lamport_flat<T, 8, true>, (const void*)lamport_flat<T, 0, true>,                                    \
     (const void*)lamport_flat<T, 0, false>},                                                                         \
        {(const void*)twoshot_flat<T, 0, true>, (const void*)twoshot_flat<T, 4, true>,                                \
         (const void*)twoshot_flat<T, 8, true>, (const void*)twoshot_flat<T, 0, true>,                                \
         (const void*)twoshot_flat<T, 0, false>},                                                                     \
        {(const void*)sync_flat<T, false>, (const void*)sync_flat<T, true>},                                          \
  }

#endif
