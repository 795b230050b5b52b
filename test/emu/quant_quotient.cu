/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_quotient.cu: see quant_quotient.h.
 */
#include "test/emu/quant_quotient.h"

#include "kernels/cuda/quant.cuh"

static float token_scale(float absmax) {
  const float least = 1.0f / (512.0f * 448.0f), scale = absmax / 448.0f;
  return scale <= least ? least : scale;
}

static uint32_t code_of(float v) { return quant_e4m3x4(v, 0.0f, 0.0f, 0.0f) & 0xff; }

/* Codes are looked at only where the quotients differ, which is seldom. */
template <class T>
static uint64_t wrong_of(uint32_t absmax_bits) {
  float number[2];
  T::unpack(absmax_bits, number);
  const float scale = token_scale(number[0]);
  const struct quant_scale s = quant_token_scale<T>(number[0]);
  uint64_t wrong = device_bits(s.divide) != device_bits(scale) && scale == scale;
  for (uint32_t i = 0; i <= absmax_bits; ++i) {
    for (uint32_t sign = 0; sign <= 0x8000; sign += 0x8000) {
      T::unpack(i | sign, number);
      const float exact = number[0] / scale, got = quant_quotient(number[0], s);
      if (device_bits(got) == device_bits(exact) || (got != got && exact != exact)) continue;
      wrong += code_of(got) != code_of(exact);
    }
  }
  return wrong;
}

template <class T>
static uint64_t wrong_among(const uint32_t* exponents, int count, int mantissa) {
  uint64_t wrong = 0;
  for (int k = 0; k < count; ++k) {
    for (uint32_t i = 0; i < 1u << mantissa; ++i) wrong += wrong_of<T>(exponents[k] << mantissa | i);
  }
  return wrong;
}

/* The scale stops getting smaller at absmax 2^-9. */
uint64_t quant_quotient_wrong_bf16(void) {
  static const uint32_t exponents[] = {0, 1, 117, 118, 127, 200, 253, 254, 255};
  return wrong_among<element_bf16>(exponents, sizeof exponents / sizeof exponents[0], 7);
}

uint64_t quant_quotient_wrong_fp16(void) {
  static const uint32_t exponents[] = {0, 5, 6, 15, 30, 31};
  return wrong_among<element_fp16>(exponents, sizeof exponents / sizeof exponents[0], 10);
}

uint64_t quant_group_scale_wrong(void) {
  uint64_t wrong = 0;
  for (uint32_t bits = 0; bits < 0x7f800000u; bits += 0x1fff) { /* and around where the power changes */
    for (uint32_t i = 0; i < 4; ++i) {
      const float absmax = device_float(i < 2 ? bits + i : (bits & 0x7f800000u) + 0x600000 + (i - 2));
      const float quotient = absmax / 448.0f, least = quotient <= 1e-10f ? 1e-10f : quotient;
      const uint32_t up = (device_bits(least) + 0x7fffff) >> 23;
      const struct quant_scale s = quant_group_scale(absmax);
      wrong += absmax < device_float(QUANT_INFINITY) && (s.store != up || s.multiply != 1.0f / device_float(up << 23));
    }
  }
  return wrong;
}
