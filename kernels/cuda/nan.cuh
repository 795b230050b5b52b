/* SPDX-License-Identifier: Apache-2.0
 *
 * nan.cuh: counts the NaNs that an operation reads or has written (ARFUSION_COUNT_NAN), as a kernel of its own before
 * and after it. Blocks take rows in turn, threads columns.
 */
#ifndef ARFUSION_KERNELS_NAN_CUH_
#define ARFUSION_KERNELS_NAN_CUH_

#include "kernels/cuda/cuda_internal.h"
#include "kernels/cuda/device_ops.cuh"

#define NAN_THREADS 256

DEVICE uint32_t nan_bits(const struct nan_tensor& t, const unsigned char* row, uint32_t column) {
  const unsigned char* at = row + (uint64_t)column * t.size;
  return t.size == 4 ? device_load_u32(at) : t.size == 2 ? device_load_u16(at) : device_load_u8(at);
}

static KERNEL(NAN_THREADS) nan_count(KERNEL_ARGUMENT(struct nan_args) a) {
  device_grid_wait();
  /* What a failed operation has left is not counted. */
  if (device_warp_any(device_load_relaxed_sys_u32(&a.control->fail) != 0)) return;
  NO_UNROLL for (int i = 0; i < a.count; ++i) {
    const struct nan_tensor& t = a.tensors[i];
    uint32_t found = 0;
    for (int64_t row = device_block(); row < t.rows; row += device_blocks()) {
      const uint32_t columns = row + 1 < t.rows ? t.columns : t.last;
      for (uint32_t column = device_thread(); column < columns; column += NAN_THREADS) {
        found += (nan_bits(t, t.base + row * t.stride, column) & t.mask) > t.limit;
      }
    }
    for (int mask = 16; mask; mask /= 2) found += device_shuffle_xor_u32(found, mask);
    if (found != 0 && device_thread() % 32 == 0) device_atomic_add_u64(&a.control->nans[t.place], found);
  }
}

#endif
