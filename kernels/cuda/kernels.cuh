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

/* rows.input is the sum. A NaN in it that goes straight to residual_out becomes the canonical one. */
template <class T, bool CHUNKED, bool ALIGNED>
KERNEL(CUDA_GROUP_PACKS) epilogue_rows(KERNEL_ARGUMENT(struct rows_args) rows) {
  struct epilogue e = epilogue_begin<T, CHUNKED>();
  struct epilogue_gamma<T> gamma[T::vectors];
  device_grid_wait();
  if (!CHUNKED && rows.norm_out) epilogue_load_row_gamma<T, ALIGNED>(e, rows, gamma);
  for (int64_t token = device_block(); token < rows.tokens; token += device_blocks()) {
    const uint32_t chunks = CHUNKED ? rows.chunks : 1;
    struct epilogue_row<T, CHUNKED, 2> row;
    for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
      struct vec y[T::vectors], residual[T::vectors];
      epilogue_load<T, ALIGNED>(e, rows, rows.input, rows.input_stride, token, chunk, y);
      epilogue_load<T, ALIGNED>(e, rows, rows.residual_in, rows.residual_in_stride, token, chunk, residual);
      UNROLL for (int j = 0; j < T::vectors; ++j) {
        float sum[T::per_vector];
        vec_unpack<T>(y[j], sum);
        UNROLL for (int i = 0; i < T::per_vector; ++i) {
          if (sum[i] != sum[i]) sum[i] = device_float(0x7fffffffu);
        }
        y[j] = epilogue_add<T>(rows, sum, residual[j]);
      }
      epilogue_first_pass<T, ALIGNED>(e, rows, token, chunk, y, &row);
    }
    if (rows.norm_out) {
      device_barrier();
      epilogue_second_pass<T, ALIGNED>(&e, rows, token, row, gamma);
    }
  }
}

/* What is not aligned to 16 bytes takes the kernels for any number of ranks. So does two-shot with 2 ranks, where it
 * moves as many bytes as one-shot and is never the faster, and with rows of several chunks, where registers are few. */
#define KERNELS_ROWS(T, ranks, aligned) \
  {(const void*)lamport_rows<T, ranks, false, aligned>, (const void*)lamport_rows<T, ranks, true, aligned>}
#define KERNELS_TWOSHOT_ROWS(T, ranks, aligned) \
  {(const void*)twoshot_rows<T, ranks, false, aligned>, (const void*)twoshot_rows<T, 0, true, aligned>}
#define KERNELS_SYNC_ROWS(T, aligned) \
  {(const void*)sync_rows<T, false, aligned>, (const void*)sync_rows<T, true, aligned>}
#define KERNELS_SHORT(T)                                                                                      \
  {                                                                                                           \
    {(const void*)lamport_short<T, 2, false>, (const void*)lamport_short<T, 2, true>},                        \
        {(const void*)lamport_short<T, 4, false>, NULL}, /* two tokens of four ranks are more than registers */ \
  }
#define KERNELS_NO_SHORT(T) \
  {}
#define KERNELS_EPILOGUE(T, aligned) \
  {(const void*)epilogue_rows<T, false, aligned>, (const void*)epilogue_rows<T, true, aligned>}
#define KERNELS_TABLE(T, SHORT)                                                                                       \
  {                                                                                                                   \
    {KERNELS_ROWS(T, 2, true), KERNELS_ROWS(T, 4, true), KERNELS_ROWS(T, 8, true), KERNELS_ROWS(T, 0, true),          \
     KERNELS_ROWS(T, 0, false)},                                                                                      \
        SHORT(T),                                                                                                     \
        {(const void*)lamport_flat<T, 2, true>, (const void*)lamport_flat<T, 4, true>,                                \
         (const void*)lamport_flat<T, 8, true>, (const void*)lamport_flat<T, 0, true>,                                \
         (const void*)lamport_flat<T, 0, false>},                                                                     \
        {KERNELS_TWOSHOT_ROWS(T, 0, true), KERNELS_TWOSHOT_ROWS(T, 4, true), KERNELS_TWOSHOT_ROWS(T, 8, true),        \
         KERNELS_TWOSHOT_ROWS(T, 0, true), KERNELS_TWOSHOT_ROWS(T, 0, false)},                                        \
        {(const void*)twoshot_flat<T, 0, true>, (const void*)twoshot_flat<T, 4, true>,                                \
         (const void*)twoshot_flat<T, 8, true>, (const void*)twoshot_flat<T, 0, true>,                                \
         (const void*)twoshot_flat<T, 0, false>},                                                                     \
        {KERNELS_SYNC_ROWS(T, false), KERNELS_SYNC_ROWS(T, true)},                                                    \
        {(const void*)sync_flat<T, false>, (const void*)sync_flat<T, true>},                                          \
        {KERNELS_EPILOGUE(T, false), KERNELS_EPILOGUE(T, true)},                                                      \
  }

#endif
