/* SPDX-License-Identifier: Apache-2.0
 *
 * request.c: see request.h.
 */
#include "plugin/core/request.h"

#include "plugin/core/log.h"
#include "plugin/core/structs.h"

#define INVALID(...) error_set(arfusionInvalidArgument, __VA_ARGS__)

static const uint32_t known_flags = ARFUSION_FLAG_DEPENDENT_LAUNCH | ARFUSION_FLAG_EARLY_TRIGGER;

arfusionResult_t request_read(arfusionRequest_t* own, const arfusionRequest_t* callers) {
  FORWARD_IF_ERROR(struct_read(own, sizeof *own, callers, ARFUSION_REQUEST_V1_SIZE, "request"));
  if ((unsigned)own->pattern > arfusionPatternResidualRmsNorm) {
    return INVALID("request.pattern is %d, the known ones are 0 to %d", own->pattern, arfusionPatternResidualRmsNorm);
  }
  if ((int)own->operation < 0) return INVALID("request.operation is %d, at least 0", own->operation);
  if ((unsigned)own->dataType > arfusionFloat8e5m2) {
    return INVALID("request.dataType is %d, the known ones are 0 to %d", own->dataType, arfusionFloat8e5m2);
  }
  if ((unsigned)own->gammaDataType > arfusionFloat8e5m2) {
    return INVALID("request.gammaDataType is %d, the known ones are 0 to %d", own->gammaDataType, arfusionFloat8e5m2);
  }
  if ((unsigned)own->quantization > arfusionQuantNvfp4) {
    return INVALID("request.quantization is %d, the known ones are 0 to %d", own->quantization, arfusionQuantNvfp4);
  }
  if ((unsigned)own->scaleLayout > arfusionScaleSwizzled128x4) {
    return INVALID("request.scaleLayout is %d, the known ones are 0 to %d", own->scaleLayout,
                   arfusionScaleSwizzled128x4);
  }
  if ((unsigned)own->algorithmHint > arfusionAlgoTwoshot || own->algorithmHint == arfusionAlgoNone ||
      own->algorithmHint == arfusionAlgoEmpty) {
    return INVALID("request.algorithmHint is %d, which is no algorithm (0 for auto, %d to %d)", own->algorithmHint,
                   arfusionAlgoOneshotLamport, arfusionAlgoTwoshot);
  }
  if (own->pattern == arfusionPatternAllReduce && own->quantization != arfusionQuantNone) {
    return INVALID("request.quantization is %d, but pattern allreduce has none", own->quantization);
  }
  if (own->tokens < 0) return INVALID("request.tokens is %lld, at least 0", (long long)own->tokens);
  if (own->hidden <= 0) return INVALID("request.hidden is %lld, at least 1", (long long)own->hidden);
  if (own->groupSize < 0) return INVALID("request.groupSize is %d, at least 0", own->groupSize);
  if (own->tokens > INT64_MAX / 64 / own->hidden) {
    return INVALID("request.tokens x request.hidden is %lld x %lld, more than can be addressed", (long long)own->tokens,
                   (long long)own->hidden);
  }
  if (own->flags & ~known_flags) {
    return INVALID("request.flags is 0x%x, the known ones are 0x%x", own->flags, known_flags);
  }
  if (own->reserved) return INVALID("request.reserved is %u, it must be 0", own->reserved);
  return arfusionSuccess;
}

/* ---------------------------------------------------------------- memory that a request names */

struct tensor {
  const char* name;
  const void* data;
  int64_t row_bytes, stride_bytes, rows;
  int written;
};

static int same_place(const struct tensor* a, const struct tensor* b) {
  return a->data == b->data && (a->stride_bytes == b->stride_bytes || a->rows == 1);
}

static int overlap(const struct tensor* a, const struct tensor* b) {
  const uintptr_t a_begin = (uintptr_t)a->data, b_begin = (uintptr_t)b->data;
  const uintptr_t a_end = a_begin + (uintptr_t)((a->rows - 1) * a->stride_bytes + a->row_bytes);
  const uintptr_t b_end = b_begin + (uintptr_t)((b->rows - 1) * b->stride_bytes + b->row_bytes);
  if (a_end <= b_begin || b_end <= a_begin) return 0;
  /* Rows of the same stride may lie side by side, as the halves of one wider matrix do. */
  if (a->stride_bytes == b->stride_bytes && a->rows > 1 && b->rows > 1) {
    const uintptr_t stride = (uintptr_t)a->stride_bytes;
    const uintptr_t ahead = b_begin >= a_begin ? (b_begin - a_begin) % stride
                                               : (stride - (a_begin - b_begin) % stride) % stride;
    return !(ahead >= (uintptr_t)a->row_bytes && stride - ahead >= (uintptr_t)b->row_bytes);
  }
  return 1;
}

/* No output overlaps anything, except that tensors[i] may be exactly tensors[j] where bit j of
 * in_place[i] is set. */
static arfusionResult_t check_overlaps(const struct tensor* tensors, int count, const unsigned* in_place) {
  for (int i = 0; i < count; ++i) {
    if (!tensors[i].written || !tensors[i].data) continue;
    for (int j = 0; j < count; ++j) {
      if (j == i || !tensors[j].data || (tensors[j].written && j < i)) continue;
      if ((in_place[i] >> j & 1) && same_place(&tensors[i], &tensors[j])) continue;
      if (overlap(&tensors[i], &tensors[j])) {
        return INVALID("request.%s overlaps request.%s", tensors[i].name, tensors[j].name);
      }
    }
  }
  return arfusionSuccess;
}

int request_element_size(arfusionDataType_t dtype) {
  switch (dtype) {
    case arfusionInt8:
    case arfusionUint8:
    case arfusionFloat8e4m3:
    case arfusionFloat8e5m2: return 1;
    case arfusionFloat16:
    case arfusionBfloat16: return 2;
    case arfusionInt32:
    case arfusionUint32:
    case arfusionFloat32: return 4;
    case arfusionInt64:
    case arfusionUint64:
    case arfusionFloat64: break;
  }
  return 8;
}

static arfusionResult_t check_pointer(const char* name, const void* pointer, int alignment) {
  if ((uintptr_t)pointer % (uintptr_t)alignment) {
    return INVALID("request.%s is %p, not aligned to its element (%d bytes)", name, pointer, alignment);
  }
  return arfusionSuccess;
}

static arfusionResult_t check_stride(const char* name, int64_t* stride, int64_t hidden, int64_t tokens) {
  if (*stride == 0) *stride = hidden;
  if (*stride < hidden) {
    return INVALID("request.%s is %lld, at least hidden (%lld), or 0", name, (long long)*stride, (long long)hidden);
  }
  if (*stride > INT64_MAX / 64 / tokens) {
    return INVALID("request.%s is %lld, more than can be addressed", name, (long long)*stride);
  }
  return arfusionSuccess;
}

static arfusionResult_t allreduce_to_op(const arfusionRequest_t* request, struct kernel_op* op) {
  const int size = request_element_size(request->dataType);
  if (!request->allreduceOut) return INVALID("request.allreduceOut is NULL, pattern allreduce needs it");
  if (request->residualOut || request->normOut || request->quantOut || request->scaleOut) {
    return INVALID("request.%s is not NULL, but belongs to pattern residual_rmsnorm",
                   request->residualOut ? "residualOut" : request->normOut ? "normOut" : request->quantOut ? "quantOut"
                                                                                                         : "scaleOut");
  }
  if (request->inputStride || request->residualInStride || request->residualOutStride || request->normOutStride) {
    return INVALID("request.inputStride and the other strides must be 0 for pattern allreduce, which is flat");
  }
  FORWARD_IF_ERROR(check_pointer("allreduceOut", request->allreduceOut, size));
  op->tokens = 1;
  op->hidden = request->tokens * request->hidden;
  op->input_stride = op->hidden;
  op->allreduce_out = request->allreduceOut;
  const int64_t bytes = op->hidden * size;
  const struct tensor tensors[] = {
      {"allreduceOut", request->allreduceOut, bytes, bytes, 1, 1},
      {"input", request->input, bytes, bytes, 1, 0},
  };
  const unsigned in_place[] = {1u << 1, 0};
  return check_overlaps(tensors, 2, in_place);
}

/* The outputs of each quantization, what it reads besides, and whether the scales' elements are words. */
static arfusionResult_t quantization_to_op(const arfusionRequest_t* request, struct kernel_op* op) {
  const int kind = request->quantization, has_scales = kind > arfusionQuantFp8;
  if (kind == arfusionQuantNone) {
    if (!request->quantOut && !request->scaleOut) return arfusionSuccess;
    return INVALID("request.%s is not NULL, but request.quantization is %d (none)",
                   request->quantOut ? "quantOut" : "scaleOut", kind);
  }
  if (!request->quantOut) return INVALID("request.quantOut is NULL, request.quantization %d needs it", kind);
  if (has_scales && !request->scaleOut) {
    return INVALID("request.scaleOut is NULL, request.quantization %d needs it", kind);
  }
  if (!has_scales && request->scaleOut) {
    return INVALID("request.scaleOut is not NULL, but request.quantization %d (fp8) writes no scales", kind);
  }
  if (kind == arfusionQuantFp8) {
    if (!request->fp8Scale) return INVALID("request.fp8Scale is NULL, request.quantization %d (fp8) needs it", kind);
    FORWARD_IF_ERROR(check_pointer("fp8Scale", request->fp8Scale, sizeof(float)));
    op->quant_scale = request->fp8Scale;
  }
  if (kind == arfusionQuantNvfp4) {
    if (!request->nvfp4GlobalScale) {
      return INVALID("request.nvfp4GlobalScale is NULL, request.quantization %d (nvfp4) needs it", kind);
    }
    FORWARD_IF_ERROR(check_pointer("nvfp4GlobalScale", request->nvfp4GlobalScale, sizeof(float)));
    op->quant_scale = request->nvfp4GlobalScale;
  } else {
    FORWARD_IF_ERROR(check_pointer("scaleOut", request->scaleOut, sizeof(float)));
  }
  op->quantization = request->quantization;
  op->scale_layout = request->scaleLayout;
  op->group_size = request->groupSize;
  op->quant_out = request->quantOut;
  op->scale_out = request->scaleOut;
  op->first_token = 0;
  op->all_tokens = request->tokens;
  return arfusionSuccess;
}

static arfusionResult_t rows_to_op(const arfusionRequest_t* request, struct kernel_op* op) {
  const int size = kernel_element_size(request->dataType);
  const int gamma_size = kernel_element_size(request->gammaDataType);
  const int64_t tokens = request->tokens, hidden = request->hidden;
  if (request->allreduceOut) return INVALID("request.allreduceOut is not NULL, but belongs to pattern allreduce");
  FORWARD_IF_ERROR(quantization_to_op(request, op));
  if (!request->residualOut && !request->normOut && !request->quantOut) {
    return INVALID("request.residualOut and request.normOut are both NULL: nothing would be written");
  }
  if (!request->gamma && (request->normOut || request->quantOut)) {
    return INVALID("request.gamma is NULL, request.%s needs it", request->normOut ? "normOut" : "quantOut");
  }
  FORWARD_IF_ERROR(check_pointer("residualIn", request->residualIn, size));
  FORWARD_IF_ERROR(check_pointer("gamma", request->gamma, gamma_size));
  FORWARD_IF_ERROR(check_pointer("residualOut", request->residualOut, size));
  FORWARD_IF_ERROR(check_pointer("normOut", request->normOut, size));
  op->tokens = tokens;
  op->hidden = hidden;
  op->input_stride = request->inputStride;
  op->residual_in_stride = request->residualInStride;
  op->residual_out_stride = request->residualOutStride;
  op->norm_out_stride = request->normOutStride;
  FORWARD_IF_ERROR(check_stride("inputStride", &op->input_stride, hidden, tokens));
  FORWARD_IF_ERROR(check_stride("residualInStride", &op->residual_in_stride, hidden, tokens));
  FORWARD_IF_ERROR(check_stride("residualOutStride", &op->residual_out_stride, hidden, tokens));
  FORWARD_IF_ERROR(check_stride("normOutStride", &op->norm_out_stride, hidden, tokens));
  op->residual_in = request->residualIn;
  op->gamma = request->gamma;
  op->residual_out = request->residualOut;
  op->norm_out = request->normOut;
  op->eps = request->eps;
  op->weight_bias = request->weightBias;
  const int64_t row = hidden * size, codes = arfusionQuantOutBytes(request), scales = arfusionScaleOutBytes(request);
  const int needs_gamma = op->norm_out || op->quant_out;
  const struct tensor tensors[] = {
      {"residualOut", op->residual_out, row, op->residual_out_stride * size, tokens, 1},
      {"normOut", op->norm_out, row, op->norm_out_stride * size, tokens, 1},
      {"input", request->input, row, op->input_stride * size, tokens, 0},
      {"residualIn", op->residual_in, row, op->residual_in_stride * size, tokens, 0},
      {"gamma", needs_gamma ? op->gamma : NULL, hidden * gamma_size, hidden * gamma_size, 1, 0},
      {"quantOut", op->quant_out, codes, codes, 1, 1},
      {"scaleOut", op->scale_out, scales, scales, 1, 1},
      {op->quantization == arfusionQuantFp8 ? "fp8Scale" : "nvfp4GlobalScale", op->quant_scale, 4, 4, 1, 0},
  };
  enum { INPUT = 2, RESIDUAL_IN = 3, TENSORS = sizeof tensors / sizeof tensors[0] };
  const unsigned in_place[TENSORS] = {1u << RESIDUAL_IN | 1u << INPUT, 1u << INPUT};
  return check_overlaps(tensors, TENSORS, in_place);
}

arfusionResult_t request_to_op(const arfusionRequest_t* request, struct kernel_op* op) {
  if (!request->input) return INVALID("request.input is NULL");
  FORWARD_IF_ERROR(check_pointer("input", request->input, request_element_size(request->dataType)));
  *op = (struct kernel_op){.pattern = request->pattern,
                           .dtype = request->dataType,
                           .gamma_dtype = request->gammaDataType,
                           .flags = request->flags,
                           .input = request->input};
  return request->pattern == arfusionPatternAllReduce ? allreduce_to_op(request, op)
                                                      : rows_to_op(request, op);
}

static const void* advance(const void* pointer, int64_t elements, int size) {
  return pointer ? (const unsigned char*)pointer + elements * size : NULL;
}

struct kernel_op request_slice(const struct kernel_op* op, int64_t first, int64_t rows) {
  const int size = kernel_element_size(op->dtype);
  struct kernel_op slice = *op;
  if (op->pattern == arfusionPatternAllReduce) {
    slice.hidden = slice.input_stride = rows;
    slice.input = advance(op->input, first, size);
    slice.allreduce_out = (void*)advance(op->allreduce_out, first, size);
    return slice;
  }
  slice.tokens = rows;
  slice.input = advance(op->input, first * op->input_stride, size);
  slice.residual_in = advance(op->residual_in, first * op->residual_in_stride, size);
  slice.residual_out = (void*)advance(op->residual_out, first * op->residual_out_stride, size);
  slice.norm_out = (void*)advance(op->norm_out, first * op->norm_out_stride, size);
  const int64_t codes = op->quantization == arfusionQuantNvfp4 ? op->hidden / 2 : op->hidden;
  slice.quant_out = (void*)advance(op->quant_out, first * codes, 1);
  slice.first_token = op->first_token + first;
  return slice;
}
