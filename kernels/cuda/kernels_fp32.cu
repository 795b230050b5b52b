/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels_fp32.cu: the kernels for fp32.
 */
#include "kernels/cuda/kernels.cuh"

extern const struct cuda_rows_kernels cuda_rows_fp32 = KERNELS_PLAIN(element_fp32, KERNELS_NO_SHORT);
extern const struct cuda_flat_kernels cuda_flat_fp32 = KERNELS_FLAT(element_fp32);
