/* SPDX-License-Identifier: Apache-2.0
 *
 * random.h: random numbers for the programs of this folder.
 */
#ifndef ARFUSION_TEST_GPU_RANDOM_H_
#define ARFUSION_TEST_GPU_RANDOM_H_

#include <stdint.h>

/* A generator's state for a seed and what it is for: never 0, and different streams for neighbouring seeds. */
static inline uint32_t random_seed(uint64_t seed, uint32_t purpose) {
  uint64_t h = (seed + 0x9e3779b97f4a7c15u * (purpose + 1u));
  h = (h ^ h >> 30) * 0xbf58476d1ce4e5b9u;
  h = (h ^ h >> 27) * 0x94d049bb133111ebu;
  return (uint32_t)(h >> 32) | 1;
}

/* xorshift, multiplied: its own bits are linear in the state. 0 to below - 1. */
static inline uint32_t random_draw(uint32_t* state, uint32_t below) {
  *state ^= *state << 13;
  *state ^= *state >> 17;
  *state ^= *state << 5;
  return (uint32_t)(*state * 0x9e3779b97f4a7c15u >> 32) % below;
}

#endif
