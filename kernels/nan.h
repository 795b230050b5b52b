/* SPDX-License-Identifier: Apache-2.0
 *
 * nan.h: where an operation's NaNs are counted (ARFUSION_COUNT_NAN), for the host and the CUDA kernels alike.
 */
#ifndef ARFUSION_KERNELS_NAN_H_
#define ARFUSION_KERNELS_NAN_H_

#include "kernels/op.h"

#define NAN_TENSORS 3         /* the most of one operation that are read, or written */
#define NAN_FLAT_COLUMNS 4096 /* flat tensors are cut into rows of so many elements */

/* Rows of elements of `size` bytes (1, 2 or 4), of which one is a NaN if (bits & mask) > limit. */
struct nan_tensor {
  const unsigned char* base;
  int64_t stride; /* bytes from row to row */
  int64_t rows;
  uint32_t columns, last; /* elements of a row, and of the last one */
  uint32_t size, mask, limit;
  uint32_t place; /* enum kernel_nan_place */
};

static inline int nan_add(struct nan_tensor* tensors, int count, enum kernel_nan_place place, const void* base,
                          int64_t stride, int64_t rows, int64_t columns, arfusionDataType_t dtype) {
  struct nan_tensor* t = &tensors[count];
  if (!base) return count;
  t->base = (const unsigned char*)base;
  t->size = dtype == arfusionFloat32 ? 4 : dtype == arfusionFloat8e4m3 ? 1 : 2;
  t->mask = dtype == arfusionFloat32 ? 0x7fffffffu : dtype == arfusionFloat8e4m3 ? 0x7fu : 0x7fffu;
  t->limit = dtype == arfusionFloat32      ? 0x7f800000u
             : dtype == arfusionFloat8e4m3 ? 0x7eu
             : dtype == arfusionBfloat16   ? 0x7f80u
                                           : 0x7c00u;
  t->stride = stride * (int64_t)t->size;
  t->rows = rows;
  t->columns = t->last = (uint32_t)columns;
  t->place = place;
  return count + 1;
}

static inline int nan_add_flat(struct nan_tensor* tensors, int count, enum kernel_nan_place place, const void* base,
                               int64_t elements, arfusionDataType_t dtype) {
  const int64_t rows = (elements + NAN_FLAT_COLUMNS - 1) / NAN_FLAT_COLUMNS;
  const int added = nan_add(tensors, count, place, base, NAN_FLAT_COLUMNS, rows, NAN_FLAT_COLUMNS, dtype);
  if (added > count) tensors[count].last = (uint32_t)(elements - (rows - 1) * NAN_FLAT_COLUMNS);
  return added;
}

/* The input and the residual of `op`, or (written) its outputs: also the codes of a quantization that has a NaN.
 * Returns how many. */
static inline int nan_tensors(const struct kernel_op* op, int written, struct nan_tensor tensors[NAN_TENSORS]) {
  const int codes = op->quantization != arfusionQuantNone && op->quantization != arfusionQuantNvfp4;
  int n = 0;
  if (op->pattern == arfusionPatternAllReduce) {
    return written ? nan_add_flat(tensors, n, KERNEL_NAN_OUTPUT, op->allreduce_out, op->hidden, op->dtype)
                   : nan_add_flat(tensors, n, KERNEL_NAN_INPUT, op->input, op->hidden, op->dtype);
  }
  if (!written) {
    n = nan_add(tensors, n, KERNEL_NAN_INPUT, op->input, op->input_stride, op->tokens, op->hidden, op->dtype);
    return nan_add(tensors, n, KERNEL_NAN_RESIDUAL, op->residual_in, op->residual_in_stride, op->tokens, op->hidden,
                   op->dtype);
  }
  n = nan_add(tensors, n, KERNEL_NAN_OUTPUT, op->residual_out, op->residual_out_stride, op->tokens, op->hidden,
              op->dtype);
  n = nan_add(tensors, n, KERNEL_NAN_OUTPUT, op->norm_out, op->norm_out_stride, op->tokens, op->hidden, op->dtype);
  return codes ? nan_add(tensors, n, KERNEL_NAN_OUTPUT, op->quant_out, op->hidden, op->tokens, op->hidden,
                         arfusionFloat8e4m3)
               : n;
}

#endif
