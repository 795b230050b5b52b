/* SPDX-License-Identifier: Apache-2.0
 *
 * emu_block.c: what the threads of a block do together: shuffles, votes, barriers, shared memory, dependent launch.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/emu/emu_internal.h"

enum { SHARED_BYTES = 48 << 10 };

#define UNWRITTEN 0xffffffffu /* what shared memory holds at first: as a float, a NaN */

static struct emu_block* running_block(void) { return emu.thread->warp->block; }

/* Something else than reading in vain. */
static struct emu_thread* step(void) {
  emu_time_pass(1);
  emu.thread->loads = 0;
  return emu.thread;
}

/* ---------------------------------------------------------------- warps */

/* All lanes come; the last one finds the answers. */
static uint32_t warp_meet(enum emu_meeting meeting, uint32_t given, uint32_t lane) {
  struct emu_thread* t = step();
  struct emu_warp* warp = t->warp;
  t->given = given;
  t->lane = lane % EMU_LANES;
  if (warp->live != EMU_LANES) emu_fail("a shuffle or vote of %u lanes", warp->live);
  if (warp->arrived && warp->meeting != meeting) emu_fail("of one warp some lanes are at a shuffle and some at a vote");
  warp->meeting = meeting;
  if (++warp->arrived != EMU_LANES) {
    emu_block_thread();
    return t->answer;
  }
  uint32_t votes = 0;
  warp->arrived = 0;
  for (uint32_t i = 0; i < EMU_LANES; ++i) votes |= (uint32_t)(warp->threads[i].given != 0) << i;
  for (uint32_t i = 0; i < EMU_LANES; ++i) {
    struct emu_thread* other = &warp->threads[i];
    other->answer = meeting == EMU_VOTE ? votes : warp->threads[other->lane].given;
    if (other != t) emu_wake(other);
  }
  return t->answer;
}

uint32_t emu_shuffle(uint32_t v, uint32_t lane) { return warp_meet(EMU_SHUFFLE, v, lane); }
uint32_t emu_vote(uint32_t v) { return warp_meet(EMU_VOTE, v, 0); }

/* ---------------------------------------------------------------- barriers */

static void barrier_arrive(struct emu_thread* t, struct emu_barrier* barrier) {
  if (barrier->arrived++ == 0) barrier->floor = 0;
  if (t->floor > barrier->floor) barrier->floor = t->floor;
}

/* What threads of the block have stored or had to see before they came must be seen by whoever has waited. */
static void barrier_learn(struct emu_thread* t, const struct emu_barrier* barrier) {
  if (barrier->floor > t->floor) t->floor = barrier->floor;
  t->synced = t->warp->block->sequence;
}

static void barrier_open(struct emu_block* block, struct emu_barrier* barrier) {
  barrier->arrived = 0;
  for (uint32_t i = 0; i < block->size; ++i) {
    struct emu_thread* t = &block->threads[i];
    if (t->waits != barrier) continue;
    t->waits = NULL;
    barrier_learn(t, barrier);
    emu_wake(t);
  }
}

void emu_barrier_complete(struct emu_block* block) {
  ++block->barriers;
  barrier_open(block, &block->barrier);
}

static void barrier_wait(struct emu_thread* t, struct emu_barrier* barrier) {
  t->waits = barrier;
  emu_block_thread();
}

void emu_barrier(void) {
  struct emu_thread* t = step();
  struct emu_block* block = running_block();
  barrier_arrive(t, &block->barrier);
  if (block->barrier.arrived != block->live) {
    barrier_wait(t, &block->barrier);
    return;
  }
  barrier_learn(t, &block->barrier);
  emu_barrier_complete(block);
}

void emu_split_arrive(uint32_t threads) {
  struct emu_thread* t = step();
  struct emu_block* block = running_block();
  barrier_arrive(t, &block->split);
  if (block->split.arrived == threads) barrier_open(block, &block->split);
}

void emu_split_wait(uint32_t threads) {
  struct emu_thread* t = step();
  struct emu_block* block = running_block();
  barrier_arrive(t, &block->split);
  if (block->split.arrived != threads) {
    barrier_wait(t, &block->split);
    return;
  }
  barrier_learn(t, &block->split);
  barrier_open(block, &block->split);
}

/* ---------------------------------------------------------------- shared memory */

uint32_t emu_shared(uint32_t words) {
  struct emu_block* block = running_block();
  uint32_t start = 0;
  for (int i = 0; i < EMU_SHARED_SIZES; ++i) {
    if (block->shared_sizes[i] == words) return start * 4;
    if (block->shared_sizes[i] == 0) {
      const uint32_t total = start + words;
      if (total > SHARED_BYTES / 4) emu_fail("%u words of shared memory", total);
      block->shared = realloc(block->shared, total * sizeof *block->shared);
      if (block->shared == NULL) {
        perror("emulator");
        exit(1);
      }
      for (uint32_t k = start; k < total; ++k) block->shared[k] = (struct emu_shared_word){.value = UNWRITTEN};
      block->shared_sizes[i] = words;
      block->shared_words = total;
      return start * 4;
    }
    start += block->shared_sizes[i];
  }
  emu_fail("shared memory of too many sizes");
  return 0;
}

static struct emu_shared_word* shared_at(uint32_t address) {
  const struct emu_block* block = running_block();
  if (address % 4 || address / 4 >= block->shared_words) emu_fail("shared memory has no address %u", address);
  return &block->shared[address / 4];
}

/* Another thread, since this block's last barrier. */
static bool races(uint32_t thread, uint32_t barriers) {
  return !emu.races_allowed && thread != 0 && thread != emu.thread->id && barriers == running_block()->barriers;
}

uint32_t emu_shared_load(uint32_t address) {
  const struct emu_thread* t = step();
  struct emu_shared_word* w = shared_at(address);
  if (races(w->writer, w->write_barriers)) emu_fail("a race: reading word %u of shared memory", address / 4);
  /* Of several readers one is kept, another than the writer if there is any. */
  if (w->read_barriers != running_block()->barriers || w->reader == 0 || t->id != w->writer) w->reader = t->id;
  w->read_barriers = running_block()->barriers;
  return w->value;
}

void emu_shared_store(uint32_t address, uint32_t v) {
  const struct emu_thread* t = step();
  struct emu_shared_word* w = shared_at(address);
  if (races(w->writer, w->write_barriers) || races(w->reader, w->read_barriers))
    emu_fail("a race: storing to word %u of shared memory", address / 4);
  w->value = v;
  w->by_max = false;
  w->writer = t->id;
  w->write_barriers = running_block()->barriers;
}

/* Among themselves these do not race. */
void emu_shared_max(uint32_t address, uint32_t v) {
  const struct emu_thread* t = step();
  struct emu_shared_word* w = shared_at(address);
  if ((races(w->writer, w->write_barriers) && !w->by_max) || races(w->reader, w->read_barriers))
    emu_fail("a race: an atomic on word %u of shared memory", address / 4);
  if (v > w->value) w->value = v;
  w->by_max = true;
  w->writer = t->id;
  w->write_barriers = running_block()->barriers;
}

/* ---------------------------------------------------------------- dependent launch */

void emu_grid_wait(void) {
  struct emu_thread* t = step();
  const struct emu_kernel* kernel = running_block()->kernel;
  while (kernel->rank->first != kernel) {
    t->spinning = true;
    emu_yield();
  }
  if (kernel->rank->complete > t->floor) t->floor = kernel->rank->complete;
}

void emu_grid_trigger(void) {
  step();
  struct emu_block* block = running_block();
  ++emu_counts.triggers;
  if (!block->triggered) ++block->kernel->triggered;
  block->triggered = true;
}
