/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels_bf16.cu: the kernels for bf16.
 */
#include "kernels/cuda/kernels.cuh"

extern const struct cuda_kernels cuda_kernels_bf16 = KERNELS_TABLE(element_bf16, KERNELS_SHORT);
