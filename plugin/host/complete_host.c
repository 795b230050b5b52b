/* SPDX-License-Identifier: Apache-2.0
 *
 * complete_host.c: the plain implementation on the host device, for what the plugin turns down: inputs are gathered
 * over the bootstrap piece by piece and reduced in rank order, in fp32 for the 16-bit types; then the plugin's
 * epilogue.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/core/log.h"
#include "plugin/core/request.h"
#include "plugin/host/library.h"

enum { PIECE_BYTES = 64 << 10 };

/* ---------------------------------------------------------------- 16-bit floats */

static float bits_to_float(uint32_t bits) {
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static uint32_t float_to_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

static float from_bfloat16(uint16_t half) { return bits_to_float((uint32_t)half << 16); }

static uint16_t to_bfloat16(float value) {
  const uint32_t bits = float_to_bits(value);
  if (value != value) return 0x7fff;
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float from_float16(uint16_t half) {
  const uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31, mantissa = half & 0x3ff;
  if (exponent == 31) return bits_to_float(sign | 0x7f800000 | mantissa << 13);
  if (exponent) return bits_to_float(sign | (exponent + 112) << 23 | mantissa << 13);
  const float magnitude = (float)mantissa * 0x1p-24f;
  return sign ? -magnitude : magnitude;
}

static uint16_t to_float16(float value) {
  const uint32_t bits = float_to_bits(value), magnitude = bits & 0x7fffffff;
  const uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
  if (value != value) return 0x7fff;
  if (magnitude >= 0x477ff000) return sign | 0x7c00; /* from halfway between the largest float16 and 65536 */
  /* below the smallest normal float16: let the adder round to 2^-24 */
  if (magnitude < 0x38800000) {
    return (uint16_t)(sign | (float_to_bits(bits_to_float(magnitude) + 0.5f) - 0x3f000000));
  }
  return (uint16_t)(sign | (magnitude - 0x38000000 + 0xfff + (magnitude >> 13 & 1)) >> 13);
}

/* ---------------------------------------------------------------- reduction of one piece */

#define COMBINE(operation, a, b)            \
  ((operation) == arfusionProd  ? (a) * (b) \
   : (operation) == arfusionMax ? ((a) > (b) ? (a) : (b)) \
   : (operation) == arfusionMin ? ((a) < (b) ? (a) : (b)) \
                                : (a) + (b))

/* `type` is an element in memory, `wide` what is computed in; `narrow` wraps an integer after each step, so that `wide`
 * never overflows. */
#define DEFINE_REDUCE(name, type, wide, load, narrow, store)                                                      \
  static void reduce_##name(const unsigned char* pieces, size_t stride, int nranks, size_t count,                 \
                            arfusionRedOp_t operation, unsigned char* out) {                                      \
    for (size_t i = 0; i < count; ++i) {                                                                          \
      wide total = 0;                                                                                             \
      for (int r = 0; r < nranks; ++r) {                                                                          \
        type element;                                                                                             \
        memcpy(&element, pieces + (size_t)r * stride + i * sizeof element, sizeof element);                       \
        const wide value = (wide)load(element);                                                                   \
        total = r ? (wide)narrow(COMBINE(operation, total, value)) : value;                                       \
      }                                                                                                           \
      if (operation == arfusionAvg) total = (wide)(total / (wide)nranks);                                         \
      const type result = (type)store(total);                                                                     \
      memcpy(out + i * sizeof result, &result, sizeof result);                                                    \
    }                                                                                                             \
  }
#define AS_IS(x) (x)
/* Every element equal to -0.0 counts as +0.0 in a sum, as everywhere in this project. */
#define FLOAT(x) ((x) + 0.0f)
#define FLOAT64(x) ((x) + 0.0)
#define BFLOAT16(x) (from_bfloat16(x) + 0.0f)
#define FLOAT16(x) (from_float16(x) + 0.0f)
DEFINE_REDUCE(int8, int8_t, int32_t, AS_IS, (int8_t), AS_IS)
DEFINE_REDUCE(uint8, uint8_t, uint32_t, AS_IS, (uint8_t), AS_IS)
DEFINE_REDUCE(int32, int32_t, int64_t, AS_IS, (int32_t), AS_IS)
DEFINE_REDUCE(uint32, uint32_t, uint64_t, AS_IS, (uint32_t), AS_IS)
DEFINE_REDUCE(int64, int64_t, __int128, AS_IS, (int64_t), AS_IS)
DEFINE_REDUCE(uint64, uint64_t, uint64_t, AS_IS, (uint64_t), AS_IS)
DEFINE_REDUCE(float32, float, float, FLOAT, AS_IS, AS_IS)
DEFINE_REDUCE(float64, double, double, FLOAT64, AS_IS, AS_IS)
DEFINE_REDUCE(float16, uint16_t, float, FLOAT16, AS_IS, to_float16)
DEFINE_REDUCE(bfloat16, uint16_t, float, BFLOAT16, AS_IS, to_bfloat16)

typedef void (*reduce_function)(const unsigned char*, size_t, int, size_t, arfusionRedOp_t, unsigned char*);

static reduce_function reduce_of(arfusionDataType_t dtype) {
  switch (dtype) {
    case arfusionInt8: return reduce_int8;
    case arfusionUint8: return reduce_uint8;
    case arfusionInt32: return reduce_int32;
    case arfusionUint32: return reduce_uint32;
    case arfusionInt64: return reduce_int64;
    case arfusionUint64: return reduce_uint64;
    case arfusionFloat16: return reduce_float16;
    case arfusionFloat32: return reduce_float32;
    case arfusionFloat64: return reduce_float64;
    case arfusionBfloat16: return reduce_bfloat16;
    case arfusionFloat8e4m3:
    case arfusionFloat8e5m2: break;
  }
  return NULL;
}

/* ---------------------------------------------------------------- the operation */

/* out (dense) = sum over the ranks of `rows` rows of row_bytes, `stride` bytes apart. */
static arfusionResult_t sum_rows(struct arfusionComm* comm, const arfusionRequest_t* request, const unsigned char* in,
                                 size_t row_bytes, size_t stride, int64_t rows, unsigned char* out) {
  const size_t size = (size_t)request_element_size(request->dataType);
  const reduce_function reduce = reduce_of(request->dataType);
  unsigned char* pieces = malloc(PIECE_BYTES * (size_t)comm->nranks);
  arfusionResult_t result = arfusionSuccess;
  if (!pieces) return error_set(arfusionSystemError, "out of memory for the pieces of %d ranks", comm->nranks);
  for (int64_t row = 0; row < rows && result == arfusionSuccess; ++row) {
    for (size_t at = 0; at < row_bytes && result == arfusionSuccess; at += PIECE_BYTES) {
      const size_t bytes = row_bytes - at < PIECE_BYTES ? row_bytes - at : PIECE_BYTES;
      result = comm->nranks == 1 ? arfusionSuccess
                                 : comm->bootstrap.allGather(comm->bootstrap.opaque,
                                                             in + (size_t)row * stride + at, pieces, bytes);
      if (result != arfusionSuccess) {
        error_set(result, "the ranks' all-gather failed while a request that was turned down was completed");
      } else {
        const unsigned char* source = comm->nranks == 1 ? in + (size_t)row * stride + at : pieces;
        reduce(source, bytes, comm->nranks, bytes / size, request->operation, out + (size_t)row * row_bytes + at);
      }
    }
  }
  free(pieces);
  return result;
}

arfusionResult_t complete_on_host(struct arfusionComm* comm, const arfusionRequest_t* request) {
  const size_t size = (size_t)request_element_size(request->dataType);
  const size_t row_bytes = (size_t)request->hidden * size;
  const size_t stride = request->inputStride ? (size_t)request->inputStride * size : row_bytes;
  if (!reduce_of(request->dataType)) {
    return error_set(arfusionInvalidArgument, "request.dataType is %d, which the host device cannot sum",
                     request->dataType);
  }
  if ((unsigned)request->operation > arfusionAvg) {
    return error_set(arfusionInvalidArgument, "request.operation is %d, the host device knows 0 to %d",
                     request->operation, arfusionAvg);
  }
  if (comm->nranks > 1 && !comm->bootstrap.allGather) {
    return error_set(arfusionInvalidUsage,
                     "ranks on several hosts need an allGather of the caller's on the host device");
  }
  if (!request->input) return error_set(arfusionInvalidArgument, "request.input is NULL");
  if (request->pattern == arfusionPatternAllReduce) {
    if (!request->allreduceOut) return error_set(arfusionInvalidArgument, "request.allreduceOut is NULL");
    return sum_rows(comm, request, request->input, row_bytes * (size_t)request->tokens, 0, 1, request->allreduceOut);
  }
  unsigned char* sum = malloc(row_bytes * (size_t)request->tokens);
  if (!sum)
    return error_set(arfusionSystemError, "out of memory for the sum (%zu bytes)", row_bytes * (size_t)request->tokens);
  arfusionResult_t result = sum_rows(comm, request, request->input, row_bytes, stride, request->tokens, sum);
  if (result == arfusionSuccess) {
    arfusionRequest_t after = *request;
    after.input = sum;
    after.inputStride = 0;
    result = comm->library->plugin->epilogue(comm->plugin_comm, &after, NULL);
    if (result != arfusionSuccess) library_forward(comm->library, result);
  }
  free(sum);
  return result;
}
