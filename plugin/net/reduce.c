/* SPDX-License-Identifier: Apache-2.0
 *
 * reduce.c: see reduce.h. What has fewer than 64 bits and a fraction goes through the host kernels' vector functions.
 */
#include "plugin/net/reduce.h"

#include <math.h>
#include <stdalign.h>

#include "kernels/host/host_internal.h"
#include "plugin/core/request.h"

size_t reduce_type_bytes(arfusionDataType_t type) {
  return (unsigned)type <= arfusionFloat8e5m2 ? (size_t)request_element_size(type) : 0;
}

int reduce_supported(arfusionDataType_t type, arfusionRedOp_t op) {
  if (op != arfusionSum && op != arfusionProd && op != arfusionMax && op != arfusionMin) return 0;
  return reduce_type_bytes(type) > 0 && type != arfusionFloat8e4m3 && type != arfusionFloat8e5m2;
}

#define LESS(a, b) ((b) < (a) ? (b) : (a))
#define MORE(a, b) ((b) > (a) ? (b) : (a))

#define COMBINE(type, a, b, expression)                                   \
  for (size_t i = 0; i < count; i++) {                                    \
    type a = ((const type*)src[0])[i];                                    \
    for (int s = 1; s < nsrc; s++) {                                      \
      type b = ((const type*)src[s])[i];                                  \
      a = (type)(expression);                                             \
    }                                                                     \
    ((type*)dst)[i] = a;                                                  \
  }                                                                       \
  break

/* `wide` is unsigned: what does not fit wraps, also for signed types. */
#define REDUCE_FUNCTION(name, type, wide, min, max)                                                       \
  static void name(arfusionRedOp_t op, void* dst, const void* const* src, int nsrc, size_t count) {       \
    switch ((int)op) {                                                                                    \
      case arfusionSum: COMBINE(type, a, b, (wide)a + (wide)b);                                           \
      case arfusionProd: COMBINE(type, a, b, (wide)a * (wide)b);                                          \
      case arfusionMin: COMBINE(type, a, b, min(a, b));                                                   \
      case arfusionMax: COMBINE(type, a, b, max(a, b));                                                   \
    }                                                                                                     \
  }

REDUCE_FUNCTION(reduce_int8, int8_t, uint32_t, LESS, MORE)
REDUCE_FUNCTION(reduce_uint8, uint8_t, uint32_t, LESS, MORE)
REDUCE_FUNCTION(reduce_int32, int32_t, uint32_t, LESS, MORE)
REDUCE_FUNCTION(reduce_uint32, uint32_t, uint32_t, LESS, MORE)
REDUCE_FUNCTION(reduce_int64, int64_t, uint64_t, LESS, MORE)
REDUCE_FUNCTION(reduce_uint64, uint64_t, uint64_t, LESS, MORE)
REDUCE_FUNCTION(reduce_float64, double, double, fmin, fmax)
REDUCE_FUNCTION(reduce_float32, float, float, fminf, fmaxf)

/* Segment by segment in fp32. */
static void reduce_small_floats(arfusionDataType_t type, arfusionRedOp_t op, char* dst, const void* const* src,
                                int nsrc, size_t count) {
  const struct host_compute* compute = host_compute_select(type);
  size_t bytes = reduce_type_bytes(type);

  for (size_t at = 0; at < count; at += HOST_SEGMENT) {
    alignas(HOST_LINE) float acc[HOST_SEGMENT], next[HOST_SEGMENT];
    const void* pair[2] = {acc, next};
    int n = count - at < HOST_SEGMENT ? (int)(count - at) : HOST_SEGMENT;
    for (int s = 0; s < nsrc; s++) {
      const void* from = (const char*)src[s] + at * bytes;
      if (op == arfusionSum) {
        compute->sum(acc, &from, 1, n, s == 0);
      } else {
        compute->load(s == 0 ? acc : next, from, n);
        if (s > 0) reduce_float32(op, acc, pair, 2, (size_t)n);
      }
    }
    compute->store(dst + at * bytes, acc, n);
  }
}

void reduce_run(arfusionDataType_t type, arfusionRedOp_t op, void* dst, const void* const* src, int nsrc,
                size_t count) {
  switch (type) {
    case arfusionInt8: reduce_int8(op, dst, src, nsrc, count); break;
    case arfusionUint8: reduce_uint8(op, dst, src, nsrc, count); break;
    case arfusionInt32: reduce_int32(op, dst, src, nsrc, count); break;
    case arfusionUint32: reduce_uint32(op, dst, src, nsrc, count); break;
    case arfusionInt64: reduce_int64(op, dst, src, nsrc, count); break;
    case arfusionUint64: reduce_uint64(op, dst, src, nsrc, count); break;
    case arfusionFloat64: reduce_float64(op, dst, src, nsrc, count); break;
    case arfusionFloat16:
    case arfusionBfloat16:
    case arfusionFloat32: reduce_small_floats(type, op, dst, src, nsrc, count); break;
    case arfusionFloat8e4m3:
    case arfusionFloat8e5m2: break; /* reduce_supported says no */
  }
}
