/* SPDX-License-Identifier: Apache-2.0
 *
 * support.h: kernels that the programs of this folder run beside those under test. Each is enqueued on a stream of the
 * current device; functions return a cudaError_t as int (0: success). `dependent`: launched with programmatic stream
 * serialization, so that it may start while its predecessor still runs; every kernel waits for that one's end.
 */
#ifndef ARFUSION_TEST_GPU_SUPPORT_H_
#define ARFUSION_TEST_GPU_SUPPORT_H_

#include <stdint.h>

#ifdef __CUDACC__
#define SUPPORT_BOTH static __host__ __device__ inline
extern "C" {
#else
#define SUPPORT_BOTH static inline
#endif

#define SUPPORT_RANGES 16

/* `bytes` at `to`, set to or compared with what is at `from`. Multiples of 16. */
struct support_range {
  void* to;
  const void* from;
  uint64_t bytes;
  uint64_t period; /* of `from`, in bytes: it is read again from its start on after so many; 0: never */
  uint64_t variant_bytes; /* from one variant of `from` to the next */
};

struct support_ranges {
  int count;
  struct support_range range[SUPPORT_RANGES];
  const uint32_t* variant; /* device memory: which variant of `from`; NULL: the first */
};

/* What a comparison has found; zero it before. */
struct support_found {
  uint32_t vectors;     /* of 16 bytes, that differ */
  uint32_t first;       /* ~ the number of the first of them in its range */
};

/* Another kernel of the application: to[i] = from[(i + shift) % count] with some bits flipped, of 16-bit words. Its
 * blocks read what other blocks have written, and wait first. */
struct support_mix {
  uint16_t* to;
  const uint16_t* from;
  uint64_t count, shift;
  uint32_t key;
  const uint32_t* variant; /* as above */
  uint64_t variant_words;
  uint32_t trigger;  /* not 0: its own successor may start at once */
  uint32_t delay_ns; /* of each block */
};

/* What is flipped of word i: the sign, and low bits of the fraction, of bf16, fp16, and of either half of fp32. */
SUPPORT_BOTH uint16_t support_mix_bits(uint64_t i, uint32_t key) {
  uint32_t h = (uint32_t)i * 2654435761u ^ key;
  h ^= h >> 15;
  h *= 2246822519u;
  h ^= h >> 13;
  return (uint16_t)(h & 0x8003u);
}

/* Loads all of these on the current device, since lazy loading can wait for a kernel that is spinning. */
int support_load(void);

/* Spins for so long. */
int support_delay(uint64_t ns, void* stream);

int support_copy(const struct support_ranges* ranges, void* stream);

/* found[k] is about ranges->range[k]. */
int support_compare(const struct support_ranges* ranges, struct support_found* found, int dependent, void* stream);

int support_mix(const struct support_mix* mix, int dependent, void* stream);

/* Adds one to *variant; `variants` becomes 0. */
int support_advance(uint32_t* variant, uint32_t variants, void* stream);

/* Reads what lies behind `word`, an allocation of 4 bytes, and has two warps race for a word of shared memory: for a
 * sanitizer to find. */
int support_mistake(const uint32_t* word, void* stream);

#ifdef __CUDACC__
}
#endif
#endif
