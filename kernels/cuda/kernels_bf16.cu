/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels_bf16.cu: the kernels for bf16.
 */
#include "kernels/cuda/kernels.cuh"

extern const struct cuda_rows_kernels cuda_rows_bf16 = KERNELS_PLAIN(element_bf16, KERNELS_SHORT);
extern const struct cuda_flat_kernels cuda_flat_bf16 = KERNELS_FLAT(element_bf16);
