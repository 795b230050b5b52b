/* SPDX-License-Identifier: Apache-2.0
 *
 * number.c: conversions between fp32 and the data types; see number.h.
 */
#include "plugin/tools/bench/number.h"

#include <string.h>

static uint32_t float_to_word(float value) {
  uint32_t word;
  memcpy(&word, &value, sizeof(word));
  return word;
}

static float word_to_float(uint32_t word) {
  float value;
  memcpy(&value, &word, sizeof(value));
  return value;
}

static int word_is_nan(uint32_t word) { return (word & 0x7fffffffu) > 0x7f800000u; }

static uint16_t float_to_bf16(float value) {
  uint32_t word = float_to_word(value);
  if (word_is_nan(word)) return 0x7fff;
  return (uint16_t)((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
}

/* fp16 has 10 bits of mantissa, exponents from -14 (subnormals are multiples of 2^-24) to 15. */
static uint16_t float_to_fp16(float value) {
  uint32_t word = float_to_word(value);
  uint32_t sign = (word >> 16) & 0x8000u;
  uint32_t magnitude = word & 0x7fffffffu;
  if (word_is_nan(word)) return 0x7fff;
  if (magnitude >= 0x477ff000u) return (uint16_t)(sign | 0x7c00u); /* 65520 and up round to infinity */
  if (magnitude < 0x33000000u) return (uint16_t)sign;              /* below 2^-25, half of the least subnormal */
  uint32_t exponent = magnitude >> 23;
  uint32_t mantissa = (magnitude & 0x7fffffu) | 0x800000u;
  uint32_t dropped = exponent >= 113 ? 13 : 126 - exponent; /* 2^-14 has biased exponent 113 */
  uint32_t kept = mantissa >> dropped;
  uint32_t rest = mantissa & ((1u << dropped) - 1), half = 1u << (dropped - 1);
  if (rest > half || (rest == half && (kept & 1u))) kept++;
  /* A normal number's leading mantissa bit adds 1 to the exponent field; a carry out of the mantissa does the same. */
  uint32_t field = exponent >= 113 ? (exponent - 113) << 10 : 0;
  return (uint16_t)(sign | (field + kept));
}

static float fp16_to_float(uint16_t bits) {
  uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
  uint32_t exponent = (bits >> 10) & 0x1fu, mantissa = bits & 0x3ffu;
  if (exponent == 0x1f) return word_to_float(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) {
    float value = (float)mantissa * 0x1p-24f;
    return sign ? -value : value;
  }
  return word_to_float(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

void number_store(arfusionDataType_t dtype, const float* values, int64_t count, void* out) {
  uint16_t* out16 = out;
  uint32_t* out32 = out;
  if (dtype == arfusionBfloat16) {
    for (int64_t i = 0; i < count; i++) out16[i] = float_to_bf16(values[i]);
  } else if (dtype == arfusionFloat16) {
    for (int64_t i = 0; i < count; i++) out16[i] = float_to_fp16(values[i]);
  } else {
    for (int64_t i = 0; i < count; i++) {
      uint32_t word = float_to_word(values[i]);
      out32[i] = word_is_nan(word) ? 0x7fffffffu : word;
    }
  }
}

void number_load(arfusionDataType_t dtype, const void* in, int64_t count, float* values) {
  const uint16_t* in16 = in;
  if (dtype == arfusionBfloat16) {
    for (int64_t i = 0; i < count; i++) values[i] = word_to_float((uint32_t)in16[i] << 16);
  } else if (dtype == arfusionFloat16) {
    for (int64_t i = 0; i < count; i++) values[i] = fp16_to_float(in16[i]);
  } else {
    memcpy(values, in, (size_t)count * sizeof(float));
  }
}

uint32_t number_bits(arfusionDataType_t dtype, const void* array, int64_t index) {
  return dtype == arfusionFloat32 ? ((const uint32_t*)array)[index] : ((const uint16_t*)array)[index];
}
