/* SPDX-License-Identifier: Apache-2.0
 *
 * kernels_fp32.cu: the kernels for fp32.
 */
#include "kernels/cuda/kernels.cuh"

extern const struct cuda_kernels cuda_kernels_fp32 = KERNELS_TABLE(element_fp32, KERNELS_NO_SHORT);
