/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels_fp16.cu: the kernels for fp16.
 */
#include "kernels/cuda/kernels.cuh"

extern const struct cuda_rows_kernels cuda_rows_fp16 = KERNELS_PLAIN(element_fp16, KERNELS_SHORT);
extern const struct cuda_flat_kernels cuda_flat_fp16 = KERNELS_FLAT(element_fp16);
