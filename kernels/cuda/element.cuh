/* SPDX-License-Identifier: Apache-2.0
 *
 * element.cuh: the data types, as vectors of 16 bytes and as floats.
 *
 * Where a thread's vectors are: in a chunk of packs (a canonical group, or a row that is shorter) warp w owns the
 * vectors of packs 32 w to 32 w + 31, and lane l of it those numbered l, l + 32, ... of these. Each access of a warp is
 * contiguous so. A 16-bit pack is one vector. An fp32 pack is two, which are in neighbouring lanes; pack_squares brings
 * a pack's sum to the lane of the pack's own number.
 */
#ifndef ARFUSION_KERNELS_ELEMENT_CUH_
#define ARFUSION_KERNELS_ELEMENT_CUH_

#include "kernels/cuda/cuda_internal.h"
#include "kernels/cuda/device_ops.cuh"

#define ELEMENT_LANES 32

/* What the 16-bit types have in common. */
struct element_16bit {
  static constexpr int size = 2;
  static constexpr int vectors = 1; /* in a pack */
  static constexpr int per_vector = 8;

  DEVICE uint32_t load(const void* p) { return device_load_u16(p); }
  DEVICE void store(void* p, uint32_t bits) { device_store_u16(p, bits); }
};

struct element_bf16 : element_16bit {
  static constexpr bool unpacks_by_conversion = false;

  DEVICE void unpack(uint32_t word, float* v) {
    v[0] = device_float(word << 16);
    v[1] = device_float(word & 0xffff0000u);
  }
  DEVICE uint32_t pack(const float* v) { return device_to_bf16x2(v[0], v[1]); }
  DEVICE uint32_t add(uint32_t a, uint32_t b) { return device_add_bf16x2(a, b); }
};

struct element_fp16 : element_16bit {
  static constexpr bool unpacks_by_conversion = true;

  DEVICE void unpack(uint32_t word, float* v) { device_from_fp16x2(word, &v[0], &v[1]); }
  DEVICE uint32_t pack(const float* v) { return device_to_fp16x2(v[0], v[1]); }
  DEVICE uint32_t add(uint32_t a, uint32_t b) { return device_add_fp16x2(a, b); }
};

struct element_fp32 {
  static constexpr bool unpacks_by_conversion = false;
  static constexpr int size = 4;
  static constexpr int vectors = 2;
  static constexpr int per_vector = 4;

  DEVICE uint32_t load(const void* p) { return device_load_u32(p); }
  DEVICE void store(void* p, uint32_t bits) { device_store_u32(p, bits); }
  DEVICE void unpack(uint32_t word, float* v) { v[0] = device_float(word); }
  DEVICE uint32_t pack(const float* v) { return device_bits(v[0]); }
  DEVICE uint32_t add(uint32_t a, uint32_t b) { return device_bits(device_add(device_float(a), device_float(b))); }
};

/* ---------------------------------------------------------------- vectors */

DEVICE struct vec vec_fill(uint32_t word) {
  struct vec v;
  UNROLL for (int i = 0; i < 4; ++i) v.w[i] = word;
  return v;
}

template <class T>
DEVICE void vec_unpack(const struct vec& v, float* f) {
  UNROLL for (int i = 0; i < 4; ++i) T::unpack(v.w[i], f + i * (T::per_vector / 4));
}

template <class T>
DEVICE struct vec vec_pack(const float* f) {
  struct vec v;
  UNROLL for (int i = 0; i < 4; ++i) v.w[i] = T::pack(f + i * (T::per_vector / 4));
  return v;
}

/* T(fp32(a) + fp32(b)): the exact sum rounded to fp32 first has the same bits, since its 24 bits are 2 * 11 + 2. */
template <class T>
DEVICE struct vec vec_add(struct vec a, const struct vec& b) {
  UNROLL for (int i = 0; i < 4; ++i) a.w[i] = T::add(a.w[i], b.w[i]);
  return a;
}

/* -0.0 + 0.0 is +0.0. */
template <class T>
DEVICE struct vec vec_clear_negative_zero(const struct vec& v) {
  return vec_add<T>(v, vec_fill(0));
}

/* The first `count` elements at p, which is aligned to its element only; the rest is 0. */
template <class T>
DEVICE struct vec vec_load_elements(const unsigned char* p, int count) {
  struct vec v = vec_fill(0);
  UNROLL for (int i = 0; i < T::per_vector; ++i) {
    if (i < count) v.w[i * T::size / 4] |= T::load(p + i * T::size) << (i * T::size % 4 * 8);
  }
  return v;
}

template <class T>
DEVICE void vec_store_elements(unsigned char* p, const struct vec& v, int count) {
  UNROLL for (int i = 0; i < T::per_vector; ++i) {
    if (i < count) T::store(p + i * T::size, v.w[i * T::size / 4] >> (i * T::size % 4 * 8));
  }
}

/* A whole vector at p, which is aligned to a vector or (ALIGNED false) to its element only. */
template <class T, bool ALIGNED>
DEVICE struct vec vec_load(const unsigned char* p) {
  return ALIGNED ? device_load(p) : vec_load_elements<T>(p, T::per_vector);
}

template <class T, bool ALIGNED>
DEVICE void vec_store(unsigned char* p, const struct vec& v) {
  if (ALIGNED)
    device_store(p, v);
  else
    vec_store_elements<T>(p, v, T::per_vector);
}

#endif
