/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_fp32.cu: the kernels for fp32 with quantized outputs.
 */
#include "kernels/cuda/kernels.cuh"

extern const struct cuda_rows_kernels cuda_quant_fp32 = KERNELS_QUANT_ANY(element_fp32);
