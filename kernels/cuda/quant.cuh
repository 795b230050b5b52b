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

/* Whether magnitudes are gathered in shared memory: always those of fp8_token, never those of nvfp4. */
DEVICE bool quant_gathers(const struct quant_args& a) { return a.lanes == 0; }

template <bool CHUNKED>
DEVICE uint32_t quant_shared(void) {
  return device_shared<2 * QUANT_MAX_GROUPS((CHUNKED ? CUDA_MAX_CHUNKS : 1) * CUDA_GROUP_PACKS)>();
}

/* Before the first barrier of the kernel. */
template <bool CHUNKED>
DEVICE void quant_begin(const struct quant_args& a, struct quant* q) {
  q->largest = quant_shared<CHUNKED>();
  if (quant_gathers(a)) {
    NO_UNROLL for (uint32_t i = device_thread(); i < 2 * a.groups; i += device_threads()) {
      device_shared_store(q->largest + i * 4, 0);
    }
  }
}

/* After device_grid_wait. Nothing is made of it yet, so that nobody waits for it here. */
DEVICE void quant_load_scale(const struct quant_args& a, struct quant* q) {
  q->scale = 0.0f;
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
  const uint32_t mask = T::size == 2 ? 0x7fff7fff : 0x7fffffff;
  uint32_t most = n.w[0] & mask;
  UNROLL for (int i = 1; i < 4; ++i) {
    most = T::size == 2 ? device_max_u16x2(most, n.w[i] & mask) : device_max(most, n.w[i] & mask);
  }
  return T::size == 2 ? device_max(most & 0xffff, most >> 16) : most;
}

/* That of all lanes that share the scale. All lanes call. Masks of 0 change nothing: one shuffle too many takes less
 * time than a loop. */
template <int KIND>
DEVICE uint32_t quant_share(const struct quant_args& a, uint32_t magnitude) {
  const uint32_t lanes = KIND == arfusionQuantNvfp4 ? 2 : a.lanes;
  UNROLL for (uint32_t mask = 1; mask < (KIND == arfusionQuantNvfp4 ? 2 : ELEMENT_LANES / 2); mask *= 2) {
    magnitude = device_max(magnitude, device_shuffle_xor_u32(magnitude, (int)(mask & (lanes - 1))));
  }
  if (KIND != arfusionQuantNvfp4 && UNLIKELY(lanes == ELEMENT_LANES)) {
    magnitude = device_max(magnitude, device_shuffle_xor_u32(magnitude, ELEMENT_LANES / 2));
  }
  return magnitude;
}

/* Which group a vector belongs to: vector / group_vectors. */
DEVICE uint32_t quant_group(const struct quant_args& a, uint32_t vector) {
  return a.group_factor ? device_mul_high(vector, a.group_factor) : vector;
}

/* `parity` alternates from token to token. */
DEVICE uint32_t quant_largest_address(const struct quant_args& a, const struct quant& q, uint32_t parity,
                                      uint32_t group) {
  return q.largest + (parity * a.groups + group) * 4;
}

/* Takes a vector into its group's magnitude in shared memory. `n` is 0 and `vector` beyond the row's end where there is
 * none. All lanes call. */
template <class T, int KIND>
DEVICE void quant_gather(const struct quant_args& a, const struct quant& q, uint32_t parity, uint32_t vectors,
                         uint32_t vector, const struct vec& n) {
  const bool whole = KIND == arfusionQuantFp8Token;
  const uint32_t group = whole ? 0 : quant_group(a, vector < vectors ? vector : vectors - 1);
  const uint32_t magnitude = quant_magnitude<T>(n);
  const uint32_t address = quant_largest_address(a, q, parity, group);
  if (!whole && device_warp_any(group != device_shuffle_u32(group, 0))) {
    device_shared_max(address, magnitude);
  } else {
    const uint32_t most = device_warp_max(magnitude);
    if (device_thread() % ELEMENT_LANES == 0) device_shared_max(address, most);
  }
}

/* Between a token's barriers: makes the other parity's magnitudes, which everybody has read, ready for the next
 * token. */
DEVICE void quant_clear_other(const struct quant_args& a, const struct quant& q, uint32_t parity) {
  NO_UNROLL for (uint32_t i = device_thread(); i < a.groups; i += device_threads()) {
    device_shared_store(quant_largest_address(a, q, parity ^ 1, i), 0);
  }
}

/* ---------------------------------------------------------------- codes */

/* A code of a small format with `mantissa` bits whose smallest normal number is 2^least, saturating at `most` (the bits
 * of an fp32), `nan` for a NaN, the sign at bit `sign`. A normal result rounds on the bits; a subnormal one by adding a
 * number whose last bit is the format's smallest. */
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
DEVICE float quant_absmax_448(float absmax) {
  const float quotient = quant_divide(absmax, QUANT_E4M3_MAX, 1.0f / QUANT_E4M3_MAX);
  return absmax < device_float(QUANT_INFINITY) ? quotient : absmax;
}

DEVICE float quant_max_or_nan(float a, float b) { return a <= b ? b : a; }

/* What codes are made with. */
struct quant_scale {
  float multiply;
  float divide;   /* fp8_token: multiply is 1 / divide, rounded down for 16-bit types */
  float error;    /* fp8_token, 16-bit types: 1 - divide * multiply, never negative */
  uint32_t store; /* for scale_out */
};

/* For 16-bit types. */
DEVICE void quant_invert(struct quant_scale* s) {
  s->multiply = device_rcp(s->divide);
  s->error = device_fma(-s->divide, s->multiply, 1.0f);
  if (s->error < 0.0f) {
    s->multiply = device_float(device_bits(s->multiply) - 1);
    s->error = device_fma(-s->divide, s->multiply, 1.0f);
  }
  if (s->multiply == 0.0f) s->error = 0.0f; /* divide is infinite */
}

/* n / s.divide, near enough that its e4m3 code is that of the correctly rounded quotient: tested for all n of 16-bit
 * types with all scales that a token can have. Zeros keep their sign, since no term has the other one. */
DEVICE float quant_quotient(float n, const struct quant_scale& s) {
  return device_fma(n, s.multiply, device_mul(device_mul(n, s.multiply), s.error));
}

/* The power of two, from 2^-33 up, that is not below absmax / 448 = absmax / 1.75 / 2^8: rounding that quotient moves
 * it past no power of two. */
DEVICE struct quant_scale quant_group_scale(float absmax) {
  const uint32_t power = (device_bits(absmax) + 0x1fffff) & QUANT_INFINITY; /* of absmax / 1.75 */
  const uint32_t bits = device_max(power, (127 - 33 + 8) << 23) - (8u << 23);
  struct quant_scale s = {device_float((254u << 23) - bits), 0.0f, 0.0f, bits >> 23};
  if (!(absmax < device_float(QUANT_INFINITY))) {
    s.multiply = absmax == absmax ? 0.0f : device_float(QUANT_NAN);
    s.store = 0xff;
  }
  return s;
}

template <class T>
DEVICE struct quant_scale quant_token_scale(float absmax) {
  struct quant_scale s = {};
  s.divide = quant_max_or_nan(quant_absmax_448(absmax), 1.0f / (512.0f * QUANT_E4M3_MAX));
  s.store = s.divide == s.divide ? device_bits(s.divide) : QUANT_NAN;
  if (T::size == 2) quant_invert(&s);
  else s.multiply = device_rcp(s.divide);
  return s;
}

/* From the largest magnitude of the elements that share it. */
template <class T, int KIND>
DEVICE struct quant_scale quant_scale_of(const struct quant& q, uint32_t magnitude) {
  struct quant_scale s = {q.scale, 0.0f, 0.0f, 0};
  float absmax[2];
  T::unpack(magnitude, absmax);
  if (KIND == arfusionQuantFp8Token) {
    s = quant_token_scale<T>(absmax[0]);
  } else if (KIND == arfusionQuantFp8Group) {
    s = quant_group_scale(absmax[0]);
  } else if (KIND == arfusionQuantNvfp4) {
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

/* Where the scale of a group of a token (of all of the request) is. */
template <int KIND>
DEVICE unsigned char* quant_scale_address(const struct quant_args& a, int64_t token, uint32_t group) {
  if (KIND == arfusionQuantFp8Token) return a.scales + token * 4;
  if (KIND == arfusionQuantFp8Group)
    return a.scales + (group / 4 * ((a.all_tokens + 3) / 4 * 4) + token) * 4 + group % 4;
  return a.scales + (a.tiles ? quant_tile_offset(a, token, group) : token * a.groups + group);
}

/* What is behind the last token's scales. */
template <bool ALIGNED, int KIND>
DEVICE void quant_clear_last(const struct quant_args& a) {
  const uint32_t columns = (a.groups + 3) / 4;
  if (KIND == arfusionQuantFp8Group) { /* all columns but the last one */
    const uint32_t unused = (uint32_t)(-a.all_tokens & 3);
    NO_UNROLL for (uint32_t w = device_thread(); w < (columns - 1) * unused; w += device_threads()) {
      const int64_t token = a.all_tokens + w % unused;
      quant_store_word<ALIGNED>(quant_scale_address<KIND>(a, token, w / unused * 4), 0);
    }
  } else { /* the rows that fill up the last tiles */
    const int64_t last = a.all_tokens - 1;
    unsigned char* first = a.scales + last / 128 * columns * 512;
    NO_UNROLL for (uint32_t w = device_thread(); w < columns * 128; w += device_threads()) {
      if (w % 128 / 4 + w % 4 * 32 > (uint32_t)(last % 128)) quant_store_word<ALIGNED>(first + (int64_t)w * 4, 0);
    }
  }
}

template <bool ALIGNED, int KIND>
DEVICE void quant_clear_unused_of(const struct quant_args& a, int64_t tokens) {
  const uint32_t unused = -a.groups & 3;
  if (device_thread() < unused) { /* behind a row's last group */
    NO_UNROLL for (int64_t token = device_block(); token < tokens; token += device_blocks()) {
      device_store_u8(quant_scale_address<KIND>(a, a.first_token + token, a.groups + device_thread()), 0);
    }
  }
  if (a.first_token + tokens == a.all_tokens && device_block() + 1 == device_blocks())
    quant_clear_last<ALIGNED, KIND>(a);
}

/* Writes the bytes of scale_out that its layout leaves unused; by all blocks, once, while nothing is there to be
 * done. */
template <class T, bool ALIGNED>
DEVICE void quant_clear_unused(const struct quant_args& a, int64_t tokens) {
  if (a.kind == arfusionQuantFp8Group) quant_clear_unused_of<ALIGNED, arfusionQuantFp8Group>(a, tokens);
  if (T::size == 2 && a.kind == arfusionQuantNvfp4 && a.tiles)
    quant_clear_unused_of<ALIGNED, arfusionQuantNvfp4>(a, tokens);
}

/* Stores the codes of a vector. */
template <class T, bool ALIGNED, int KIND>
DEVICE void quant_store_codes(unsigned char* p, const struct vec& n, const struct quant_scale& s) {
  float v[T::per_vector];
  vec_unpack<T>(n, v);
  if (KIND == arfusionQuantFp8Token) {
    UNROLL for (int i = 0; i < T::per_vector; ++i) {
      v[i] = T::size == 2 ? quant_quotient(v[i], s) : quant_divide(v[i], s.divide, s.multiply);
    }
  } else {
    UNROLL for (int i = 0; i < T::per_vector; ++i) v[i] = device_mul(v[i], s.multiply);
  }
  if constexpr (KIND == arfusionQuantNvfp4) {
    quant_store_word<ALIGNED>(p, quant_e2m1x8(v));
  } else {
    uint32_t word[T::per_vector / 4];
    UNROLL for (int i = 0; i < T::per_vector; i += 4) word[i / 4] = quant_e4m3x4(v[i], v[i + 1], v[i + 2], v[i + 3]);
    if (ALIGNED && T::per_vector == 8) {
      device_store_u32x2(p, word[0], word[T::per_vector / 8]);
    } else {
      UNROLL for (int i = 0; i < T::per_vector / 4; ++i) quant_store_word<ALIGNED>(p + 4 * i, word[i]);
    }
  }
}

/* Where a thread's vector goes: its codes, and the scale, NULL if another thread stores that. */
struct quant_place {
  unsigned char *codes, *scale;
};

template <class T, int KIND>
DEVICE unsigned char* quant_codes_of(const struct quant_args& a, uint32_t vectors, int64_t token, uint32_t vector) {
  const uint32_t bytes = KIND == arfusionQuantNvfp4 ? T::per_vector / 2 : T::per_vector;
  return a.codes + (token * vectors + vector) * bytes;
}

template <int KIND>
DEVICE unsigned char* quant_scale_place(const struct quant_args& a, uint32_t vectors, int64_t token, uint32_t vector) {
  const uint32_t group = KIND == arfusionQuantFp8Token ? 0 : quant_group(a, vector);
  if (KIND == arfusionQuantFp8 || vector >= vectors || vector != group * a.group_vectors) return NULL;
  return quant_scale_address<KIND>(a, a.first_token + token, group);
}

template <class T, int KIND>
DEVICE struct quant_place quant_place_of(const struct quant_args& a, uint32_t vectors, int64_t token, uint32_t vector) {
  return {quant_codes_of<T, KIND>(a, vectors, token, vector), quant_scale_place<KIND>(a, vectors, token, vector)};
}

template <class T>
DEVICE struct quant_place quant_place_any(const struct quant_args& a, uint32_t vectors, int64_t token,
                                          uint32_t vector) {
  if (a.kind == arfusionQuantFp8) return quant_place_of<T, arfusionQuantFp8>(a, vectors, token, vector);
  if (a.kind == arfusionQuantFp8Group) return quant_place_of<T, arfusionQuantFp8Group>(a, vectors, token, vector);
  if (a.kind == arfusionQuantNvfp4) return quant_place_of<T, arfusionQuantNvfp4>(a, vectors, token, vector);
  return quant_place_of<T, arfusionQuantFp8Token>(a, vectors, token, vector);
}

/* The magnitude that has been gathered for a vector. */
template <int KIND>
DEVICE uint32_t quant_gathered(const struct quant_args& a, const struct quant& q, uint32_t parity, uint32_t vectors,
                               uint32_t vector) {
  if (KIND == arfusionQuantFp8Token) return device_shared_load(quant_largest_address(a, q, parity, 0));
  return vector < vectors ? device_shared_load(quant_largest_address(a, q, parity, quant_group(a, vector))) : 0;
}

/* `p`: NULL if another thread stores the scale. */
template <int KIND>
DEVICE void quant_store_scale(unsigned char* p, const struct quant_scale& s) {
  if (KIND == arfusionQuantFp8 || !p) return;
  if (KIND == arfusionQuantFp8Token) device_store_u32(p, s.store);
  else device_store_u8(p, s.store);
}

/* Quantizes a vector of the row, given the largest magnitude among those that share its scale. `known`: where it goes,
 * if that is known; else the scale's address is computed last, since registers are few before. */
template <class T, bool ALIGNED, int KIND>
DEVICE void quant_vector(const struct quant& q, const struct quant_args& a, uint32_t vectors, int64_t token,
                         uint32_t vector, const struct quant_place* known, const struct vec& n, uint32_t magnitude) {
  const struct quant_scale s = quant_scale_of<T, KIND>(q, magnitude);
  quant_store_codes<T, ALIGNED, KIND>(known ? known->codes : quant_codes_of<T, KIND>(a, vectors, token, vector), n, s);
  quant_store_scale<KIND>(known ? known->scale : quant_scale_place<KIND>(a, vectors, token, vector), s);
}

#endif
