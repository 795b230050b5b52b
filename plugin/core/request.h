/* SPDX-License-Identifier: Apache-2.0
 *
 * request.h: is a request well formed? In two steps: the agreed fields before the route is chosen, pointers and the
 * other local fields only when it is about to be enqueued.
 */
#ifndef ARFUSION_CORE_REQUEST_H_
#define ARFUSION_CORE_REQUEST_H_

#include "kernels/op.h"

/* Bytes of an element of any of NCCL's data types. */
int request_element_size(arfusionDataType_t dtype);

/* Bytes of the input, of a data type that is supported. */
static inline int64_t request_bytes(const arfusionRequest_t* request) {
  return request->tokens * request->hidden * kernel_element_size(request->dataType);
}

/* Reads the caller's struct and checks enums, sizes and flags. */
arfusionResult_t request_read(arfusionRequest_t* own, const arfusionRequest_t* callers);

/* Checks pointers, alignment, strides and overlaps, and fills in what a kernel is told. Pattern residual_rmsnorm only
 * if route_request_supported; pattern allreduce with any data type and operation, as others can do those. */
arfusionResult_t request_to_op(const arfusionRequest_t* request, struct kernel_op* op);

/* The part of `op` that begins at row `first` (pattern allreduce: element) and has `rows`. */
struct kernel_op request_slice(const struct kernel_op* op, int64_t first, int64_t rows);

#endif
