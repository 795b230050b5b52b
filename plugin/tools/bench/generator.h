/* SPDX-License-Identifier: Apache-2.0
 *
 * generator.h: the inputs of a case, from its seed. Element i of a tensor draws h = mix(i ^ key), where key =
 * mix(seed << 12 ^ tensor << 8 ^ rank), and becomes by kind
 *
 *   uniform   (h & 0xffff) / 32768 - 1, so [-1, 1)
 *   large     uniform * 4096
 *   tiny      uniform * 2^-130: subnormals
 *   zeros     0, with -0.0 where bit 20 of h is set
 *   mixed     uniform, with 1 element in 16 each -0.0, +0.0 and scaled by 2^-130
 *   special   uniform, with 1 element in 1024 each NaN, +infinity and -infinity
 *
 * rounded to the tensor's data type.
 */
#ifndef ARFUSION_BENCH_GENERATOR_H_
#define ARFUSION_BENCH_GENERATOR_H_

#include "arfusion_plugin.h"

enum generator_tensor { GENERATOR_INPUT = 0, GENERATOR_RESIDUAL = 1, GENERATOR_GAMMA = 2 };

enum generator_kind {
  GENERATOR_UNIFORM,
  GENERATOR_LARGE,
  GENERATOR_TINY,
  GENERATOR_ZEROS,
  GENERATOR_MIXED,
  GENERATOR_SPECIAL,
  GENERATOR_KINDS
};

/* 0, or -1 for an unknown text. */
int generator_parse_kind(const char* text, enum generator_kind* kind);

/* `count` (up to 2^32) elements of `dtype`. `rank` is that of an input, 0 for the other tensors. */
void generator_fill(void* out, arfusionDataType_t dtype, int64_t count, uint32_t seed, enum generator_tensor tensor,
                    int rank, enum generator_kind kind);

#endif
