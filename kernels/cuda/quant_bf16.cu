/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_bf16.cu: the kernels for bf16 with quantized outputs.
 */
#include "kernels/cuda/kernels.cuh"

extern const struct cuda_rows_kernels cuda_quant_bf16 = KERNELS_QUANT(element_bf16, KERNELS_SHORT);
