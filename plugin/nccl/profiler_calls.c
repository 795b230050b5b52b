/* SPDX-License-Identifier: Apache-2.0
 *
 * profiler_calls.c: a hash table with open addressing whose keys are never removed. See profiler_calls.h.
 */
#include "plugin/nccl/profiler_calls.h"

enum { TYPE_BITS = 8 };
static const uint64_t largest_count = ((uint64_t)1 << 56) - 1;

/* Where `key` is or, if it is new, now is; NULL if the table is full. */
static struct profiler_slot* slot_find(struct profiler_calls* calls, uint64_t key) {
  uint32_t at = (uint32_t)((key * 0x9e3779b97f4a7c15u) >> 32);
  for (;; ++at) {
    struct profiler_slot* slot = &calls->slots[at % PROFILER_SLOTS];
    uint64_t there = atomic_load_explicit(&slot->key, memory_order_relaxed);
    if (there == key) return slot;
    if (there) continue;
    /* A quarter of the slots stays free, so that this loop ends. */
    if (atomic_fetch_add_explicit(&calls->sizes, 1, memory_order_relaxed) >= PROFILER_SIZES) {
      atomic_fetch_sub_explicit(&calls->sizes, 1, memory_order_relaxed);
      return NULL;
    }
    if (atomic_compare_exchange_strong_explicit(&slot->key, &there, key, memory_order_relaxed, memory_order_relaxed)) {
      return slot;
    }
    atomic_fetch_sub_explicit(&calls->sizes, 1, memory_order_relaxed);
    if (there == key) return slot;
  }
}

void profiler_calls_count(struct profiler_calls* calls, arfusionDataType_t type, uint64_t count, int captured) {
  struct profiler_slot* slot =
      count <= largest_count ? slot_find(calls, count << TYPE_BITS | ((uint64_t)type + 1)) : NULL;
  _Atomic uint64_t* counter = !slot ? &calls->overflow : captured ? &slot->captured : &slot->eager;
  atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

int profiler_calls_read(struct profiler_calls* calls, struct profiler_size* sizes) {
  int n = 0;
  for (int i = 0; i < PROFILER_SLOTS && n < PROFILER_SIZES; ++i) {
    struct profiler_slot* slot = &calls->slots[i];
    const uint64_t key = atomic_load_explicit(&slot->key, memory_order_relaxed);
    if (!key) continue;
    sizes[n++] = (struct profiler_size){
        .type = (arfusionDataType_t)((key & ((1 << TYPE_BITS) - 1)) - 1),
        .count = key >> TYPE_BITS,
        .eager = atomic_load_explicit(&slot->eager, memory_order_relaxed),
        .captured = atomic_load_explicit(&slot->captured, memory_order_relaxed),
    };
  }
  return n;
}
