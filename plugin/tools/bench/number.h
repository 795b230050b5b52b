/* SPDX-License-Identifier: Apache-2.0
 *
 * number.h: fp32 to and from the data types, for the generator of inputs and the reference. Written from the numerics
 * contract and sharing no code with kernels/, since it is what they are checked against.
 */
#ifndef ARFUSION_BENCH_NUMBER_H_
#define ARFUSION_BENCH_NUMBER_H_

#include "arfusion_plugin.h"

/* Rounds to nearest even; a NaN becomes the canonical one (0x7fff, 0x7fffffff). bf16, fp16 and fp32. */
void number_store(arfusionDataType_t dtype, const float* values, int64_t count, void* out);
void number_load(arfusionDataType_t dtype, const void* in, int64_t count, float* values);

/* One element as its bits. */
uint32_t number_bits(arfusionDataType_t dtype, const void* array, int64_t index);

#endif
