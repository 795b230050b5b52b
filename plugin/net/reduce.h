/* SPDX-License-Identifier: Apache-2.0
 *
 * reduce.h: sums, products, minima and maxima of the ranks' values in host memory, in rank order.
 */
#ifndef ARFUSION_NET_REDUCE_H_
#define ARFUSION_NET_REDUCE_H_

#include "arfusion_plugin.h"

/* Bytes of an element; 0: no type of NCCL's. */
size_t reduce_type_bytes(arfusionDataType_t type);

/* Whether reduce_run knows the operation for this type: sum, product, min and max of fp16, bf16, fp32, fp64 and of all
 * integers. */
int reduce_supported(arfusionDataType_t type, arfusionRedOp_t op);

/* dst[i] = src[0][i] op src[1][i] op ... src[nsrc - 1][i], for `count` elements; pointers are aligned to elements, and
 * dst may be one of src. fp16 and bf16 are combined in fp32 and rounded once. Sums have the bits of this project's
 * allreduce, fp64 aside. Integers wrap. A minimum or maximum of a number and a NaN is the number, as NCCL has it. */
void reduce_run(arfusionDataType_t type, arfusionRedOp_t op, void* dst, const void* const* src, int nsrc, size_t count);

#endif
