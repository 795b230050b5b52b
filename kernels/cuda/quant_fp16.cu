/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_fp16.cu: the kernels for fp16 with quantized outputs.
 */
#include "kernels/cuda/kernels.cuh"

extern const struct cuda_rows_kernels cuda_quant_fp16 = KERNELS_QUANT(element_fp16, KERNELS_SHORT);
