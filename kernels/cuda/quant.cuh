/* SPDX-License-Identifier: Apache-2.0
 *
 * quant.cuh: step 6 of the numerics contract: a thread's vector of normalised values becomes codes, and the scales of
 * the vectors that share one are found and stored.
 *
 * The vectors of a scale are either those of a few neighbouring lanes, or those of any part of the row (another group
 * size, or the whole row), whose largest magnitude is then gathered in shared memory: it needs a barrier, and a second
 * pass over the row.
 */
#ifndef ARFUSION_KERNELS_QUANT_CUH_
#define ARFUSION_KERNELS_QUANT_CUH_

#include "kernels/cuda/element.cuh"

#define QUANT_E4M3_MAX 448.0f
#define QUANT_INFINITY 0x7f800000u
#define QUANT_NAN 0x7fffffffu
/* Groups of a row, at most, that need shared memory: those of 8, 16, 32, 64 and 128 elements do not. */
#define QUANT_MAX_GROUPS(packs) ((packs) / 3)

/* What a thread keeps. */
struct quant {
  float scale;      /* the caller's; ready: fp8: what is multiplied by; nvfp4: the global scale */
  uint32_t largest; /* the address of [2][groups] magnitudes in shared memory */
};

DEVICE bool quant_gathers(const struct quant_args& a) { return a.lanes == 0; }

template <bool CHUNKED>
DEVICE uint32_t quant_shared(void) {
  return device_shared<2 * QUANT_MAX_GROUPS((CHUNKED ? CUDA_MAX_CHUNKS : 1) * CUDA_GROUP_PACKS)>();
}

/* Before the first barrier of the kernel. */
template <bool CHUNKED>
DEVICE struct quant quant_begin(const struct quant_args& a) {
  struct quant q = {0.0f, quant_shared<CHUNKED>()};
  if (quant_gathers(a)) {
    NO_UNROLL for (uint32_t i = device_thread(); i < 2 * a.groups; i += device_threads()) {
      device_shared_store(q.largest + i * 4, 0);
    }
  }
  return q;
}

/* After device_grid_wait. Nothing is made of it yet, so that nobody waits for it here. */
DEVICE void quant_load_scale(const struct quant_args& a, struct quant* q) {
  if (a.scale) q->scale = device_float(device_load_u32(a.scale));
}

DEVICE struct quant quant_ready(const struct quant_args& a, struct quant q) {
  if (a.kind == arfusionQuantFp8) q.scale = device_rcp(q.scale);
  return q;
}

/* ---------------------------------------------------------------- largest magnitudes */

/* That of a vector, as the bits of T without the sign: NaNs have the largest ones. */
template <class T>
DEVICE uint32_t quant_magnitude(const struct vec& n) {
  uint32_t most = 0;
  UNROLL for (int i = 0; i < 4; ++i) {
    if (T::size == 2) {
      most = device_max(most, n.w[i] & 0x7fff);
      most = device_max(most, n.w[i] >> 16 & 0x7fff);
    } else {
      most = device_max(most, n.w[i] & 0x7fffffff);
    }
  }
  return most;
}

/* That of all lanes that share the scale. All lanes call. */
DEVICE uint32_t quant_share(const struct quant_args& a, uint32_t magnitude) {
  NO_UNROLL for (uint32_t mask = a.lanes / 2; mask; mask /= 2) {
    magnitude = device_max(magnitude, device_shuffle_xor_u32(magnitude, (int)mask));
  }
  return magnitude;
}

/* Which group a vector belongs to: vector / group_vectors. */
DEVICE uint32_t quant_group(const struct quant_args& a, uint32_t vector) {
  return a.group_factor ? device_mul_high(vector, a.group_factor) : vector;
}

/* `parity` alternates from token to token. */
DEVICE uint32_t quant_largest_address(const struct quant_args& a, const struct quant& q, uint32_t parity, uint32_t group) {
  return q.largest + (parity * a.groups + group) * 4;
}

/* Takes a vector into its group's magnitude in shared memory. `n` is 0 and `vector` beyond the row's end where there is
 * none. All lanes call. */
template <class T>
DEVICE void quant_gather(const struct quant_args& a, const struct quant& q, uint32_t parity, uint32_t vectors,
                         uint32_t vector, const struct vec& n) {
  const uint32_t group = quant_group(a, vector < vectors ? vector : vectors - 1);
  const uint32_t magnitude = quant_magnitude<T>(n);
  const uint32_t address = quant_largest_address(a, q, parity, group);
  if (device_warp_any(group != device_shuffle_u32(group, 0))) {
    device_shared_max(address, magnitude);
  } else {
    const uint32_t most = device_warp_max(magnitude);
    if (device_thread() % ELEMENT_LANES == 0) device_shared_max(address, most);
  }
}

/* Between a token's barriers: makes the other parity's magnitudes, which everybody has read, ready for the next token. */
DEVICE void quant_clear_other(const struct quant_args& a, const struct quant& q, uint32_t parity) {
  NO_UNROLL for (uint32_t i = device_thread(); i < a.groups; i += device_threads()) {
    device_shared_store(quant_largest_address(a, q, parity ^ 1, i), 0);
  }
}

/* ---------------------------------------------------------------- codes */

/* A code of a small format with `mantissa` bits whose smallest normal number is 2^least, saturating at `most` (the bits of an
 * fp32), `nan` for a NaN, the sign at bit `sign`. A normal result rounds on the bits; a subnormal one by adding a number
 * whose last bit is the format's smallest. */
DEVICE uint32_t quant_code(float v, int mantissa, int least, uint32_t most, uint32_t nan, int sign) {
  const int dropped = 23 - mantissa;
  const uint32_t smallest_normal = (uint32_t)(127 + least) << 23, adder = smallest_normal + ((uint32_t)dropped << 23);
  const uint32_t bits = device_bits(v), magnitude = device_min(bits & 0x7fffffff, most);
  const uint32_t half = (1u << (dropped - 1)) - 1 + (magnitude >> dropped & 1);
  const uint32_t normal = ((magnitude + half) >> dropped) - ((uint32_t)(126 + least) << mantissa);
  const uint32_t subnormal = device_bits(device_add(device_float(magnitude), device_float(adder))) - adder;
  const uint32_t code = (magnitude < smallest_normal ? subnormal : normal) | bits >> 31 << sign;
  return v == v ? code : nan;
}

/* Of four numbers, e4m3, the first in the lowest byte. */
DEVICE uint32_t quant_e4m3x4(float a, float b, float c, float d) {
#if DEVICE_HAS_E4M3
  return device_to_e4m3x4(a, b, c, d);
#else
  uint32_t word = 0;
  NO_UNROLL for (int i = 0; i < 4; ++i) { /* one at a time: registers */
    word = word >> 8 | quant_code(a, 3, -6, 0x43e00000u /* 448 */, 0x7f, 7) << 24;
    a = b;
    b = c;
    c = d;
  }
  return word;
#endif
}

/* Of eight numbers, e2m1, the first in the lowest bits. */
DEVICE uint32_t quant_e2m1x8(const float* v) {
#if DEVICE_HAS_E2M1
  return device_to_e2m1x8(v);
#else
  uint32_t word = 0;
  UNROLL for (int i = 0; i < 8; ++i) word |= quant_code(v[i], 1, 0, 0x40c00000u /* 6 */, 7, 3) << (4 * i);
  return word;
#endif
}

/* ---------------------------------------------------------------- scales */

/* a / b, correctly rounded, `inverse` being 1 / b correctly rounded; b is normal and 1 / b too, or b is infinite and
 * inverse 0, or b is NaN. Quotients below 2^-60 or so may be wrong in everything but the sign. */
DEVICE float quant_divide(float a, float b, float inverse) {
  const float by = inverse == 0.0f ? 0.0f : b;
  const float first = device_mul(a, inverse);
  const float second = device_fma(device_fma(-first, by, a), inverse, first);
  const float third = device_fma(device_fma(-second, by, a), inverse, second);
  return first == 0.0f ? first : third; /* a zero keeps its sign */
}

/* absmax / 448. */
template <class T>
DEVICE float quant_absmax_448(uint32_t magnitude) {
  float absmax[2];
  T::unpack(magnitude, absmax);
  const float quotient = quant_divide(absmax[0], QUANT_E4M3_MAX, 1.0f / QUANT_E4M3_MAX);
  return absmax[0] < device_float(QUANT_INFINITY) ? quotient : absmax[0];
}

DEVICE float quant_max_or_nan(float a, float b) { return a <= b ? b : a; }

/* What codes are made with. */
struct quant_scale {
  float multiply;
  float divide;   /* fp8_token: multiply is 1 / divide */
  uint32_t store; /* for scale_out */
};

/* From the largest magnitude of the elements that share it. */
template <class T>
DEVICE struct quant_scale quant_scale_of(const struct quant_args& a, const struct quant& q, uint32_t magnitude) {
  struct quant_scale s = {q.scale, 0.0f, 0};
  if (a.kind == arfusionQuantFp8Token) {
    s.divide = quant_max_or_nan(quant_absmax_448<T>(magnitude), 1.0f / (512.0f * QUANT_E4M3_MAX));
    s.multiply = device_rcp(s.divide);
    s.store = s.divide == s.divide ? device_bits(s.divide) : QUANT_NAN;
  } else if (a.kind == arfusionQuantFp8Group) {
    const float least = quant_max_or_nan(quant_absmax_448<T>(magnitude), 1e-10f);
    uint32_t bits = device_bits(least);
    if (bits & 0x7fffff) bits = (bits + 0x800000) & QUANT_INFINITY;
    /* 2^-33 and up, and its inverse is normal, or 0. */
    s.multiply = bits < QUANT_INFINITY ? device_float((254u << 23) - bits) : 0.0f;
    if (least != least) s.multiply = device_float(QUANT_NAN);
    s.store = least != least ? 0xff : bits >> 23;
  } else if (a.kind == arfusionQuantNvfp4) {
    float absmax[2];
    T::unpack(magnitude, absmax);
    s.store = quant_e4m3x4(device_mul(q.scale, device_mul(absmax[0], 1.0f / 6.0f)), 0.0f, 0.0f, 0.0f) & 0xff;
    /* The code's value: a subnormal one's is a multiple of 2^-9. */
    float value = s.store < 8 ? device_mul((float)s.store, 1.0f / 512.0f) : device_float((s.store + (120u << 3)) << 20);
    if (s.store == 0x7f) value = device_float(QUANT_NAN);
    s.multiply = s.store == 0 ? 0.0f : device_div(q.scale, value);
  }
  return s;
}

/* ---------------------------------------------------------------- stores */

template <bool ALIGNED>
DEVICE void quant_store_word(unsigned char* p, uint32_t word) {
  if (ALIGNED) {
    device_store_u32(p, word);
  } else {
    UNROLL for (int i = 0; i < 4; ++i) device_store_u8(p + i, word >> (8 * i));
  }
}

/* Where the scale of a token (of all of the request) and a block of 16 elements is, in tiles. */
DEVICE int64_t quant_tile_offset(const struct quant_args& a, int64_t token, uint32_t block) {
  const int64_t tiles = (a.groups + 3) / 4;
  const uint32_t row = (uint32_t)(token % 128);
  return (token / 128 * tiles + block / 4) * 512 + row % 32 * 16 + row / 32 * 4 + block % 4;
}

/* Stores the scale of a group; by one of its threads. The row's last group has the unused bytes behind it written, too. */
DEVICE void quant_store_scale(const struct quant_args& a, int64_t token, uint32_t group, uint32_t store) {
  const uint32_t padded = (a.groups + 3) / 4 * 4;
  const uint32_t end = group + 1 == a.groups ? padded : group + 1;
  token += a.first_token;
  if (a.kind == arfusionQuantFp8Token) {
    device_store_u32(a.scales + token * 4, store);
  } else if (a.kind == arfusionQuantFp8Group) {
    const int64_t rows = (a.all_tokens + 3) / 4 * 4;
    unsigned char* word = a.scales + (group / 4 * rows + token) * 4;
    device_store_u8(word + group % 4, store);
    NO_UNROLL for (uint32_t g = group + 1; g < end; ++g) device_store_u8(word + g % 4, 0);
    if (token + 1 == a.all_tokens && group / 4 + 1 < padded / 4) {
      NO_UNROLL for (int64_t t = token + 1; t < rows; ++t) device_store_u8(word + (t - token) * 4 + group % 4, 0);
    }
  } else if (!a.tiles) {
    device_store_u8(a.scales + token * a.groups + group, store);
  } else {
    device_store_u8(a.scales + quant_tile_offset(a, token, group), store);
    NO_UNROLL for (uint32_t g = group + 1; g < end; ++g) device_store_u8(a.scales + quant_tile_offset(a, token, g), 0);
  }
}

/* The rows that fill up the last tiles: by the block that has the request's last token. */
template <bool ALIGNED>
DEVICE void quant_fill_tiles(const struct quant_args& a, int64_t token) {
  const int64_t last = a.first_token + token;
  if (a.kind != arfusionQuantNvfp4 || !a.tiles || last + 1 != a.all_tokens) return;
  unsigned char* first = a.scales + last / 128 * ((a.groups + 3) / 4) * 512;
  const uint32_t words = (a.groups + 3) / 4 * 128, used = (uint32_t)(last % 128) + 1;
  NO_UNROLL for (uint32_t w = device_thread(); w < words; w += device_threads()) {
    const uint32_t row = w % 128 / 4 + w % 4 * 32;
    if (row >= used) quant_store_word<ALIGNED>(first + (int64_t)w * 4, 0);
  }
}

/* Stores the codes of a vector. */
template <class T, bool ALIGNED>
DEVICE void quant_store_codes(const struct quant_args& a, int64_t vector, const struct vec& n,
                              const struct quant_scale& s) {
  float v[T::per_vector];
  vec_unpack<T>(n, v);
  if (a.kind == arfusionQuantFp8Token) {
    UNROLL for (int i = 0; i < T::per_vector; ++i) v[i] = quant_divide(v[i], s.divide, s.multiply);
  } else {
    UNROLL for (int i = 0; i < T::per_vector; ++i) v[i] = device_mul(v[i], s.multiply);
  }
  if (T::size == 2 && a.kind == arfusionQuantNvfp4) {
    quant_store_word<ALIGNED>(a.codes + vector * (T::per_vector / 2), quant_e2m1x8(v));
    return;
  }
  unsigned char* p = a.codes + vector * T::per_vector;
  uint32_t word[T::per_vector / 4];
  UNROLL for (int i = 0; i < T::per_vector; i += 4) word[i / 4] = quant_e4m3x4(v[i], v[i + 1], v[i + 2], v[i + 3]);
  if (ALIGNED && T::per_vector == 8) {
    device_store_u32x2(p, word[0], word[T::per_vector / 8]);
  } else {
    UNROLL for (int i = 0; i < T::per_vector / 4; ++i) quant_store_word<ALIGNED>(p + 4 * i, word[i]);
  }
}

/* Quantizes a vector, with the magnitudes gathered if that is needed. All lanes call, with `n` 0 beyond the row's end. */
template <class T, bool ALIGNED>
DEVICE void quant_vector(const struct quant_args& a, const struct quant& q, uint32_t parity, uint32_t vectors,
                         int64_t token, uint32_t vector, const struct vec& n) {
  const uint32_t group = quant_group(a, vector);
  uint32_t magnitude = 0;
  if (a.kind != arfusionQuantFp8) {
    if (!quant_gathers(a)) magnitude = quant_share(a, quant_magnitude<T>(n));
    else if (vector < vectors) magnitude = device_shared_load(quant_largest_address(a, q, parity, group));
  }
  if (vector >= vectors) return;
  const struct quant_scale s = quant_scale_of<T>(a, q, magnitude);
  quant_store_codes<T, ALIGNED>(a, token * vectors + vector, n, s);
  if (a.kind != arfusionQuantFp8 && vector == group * a.group_vectors) quant_store_scale(a, token, group, s.store);
}

#endif
