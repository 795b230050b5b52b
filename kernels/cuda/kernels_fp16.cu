/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels_fp16.cu: the kernels for fp16.
 */
#include "kernels/cuda/kernels.cuh"

extern const struct cuda_kernels cuda_kernels_fp16 = KERNELS_TABLE(element_fp16, KERNELS_SHORT);
