/* SPDX-License-Identifier: Apache-2.0
 *
 * emu_schedule.c: kernels, blocks, warps and threads, and whose turn it is.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/emu/emu_internal.h"

enum { STEP_NS = 1000, STEPS_LIMIT = 48u << 20, IN_FLIGHT = 3 };
enum { FIRST_SLEEP = 32, LONGEST_SLEEP = 1 << 16, ADVANCE_TURNS = 4, WEIGHT_TURNS = 512 };

struct emu emu;
struct emu_counts emu_counts;
const struct emu_place* emu_place;

uint32_t emu_delay(uint32_t scale) {
  const uint32_t kind = emu_draw(64);
  return 1 + emu_draw(kind == 0 ? 50 * scale : kind < 32 ? scale : 4 * scale);
}

void emu_fail(const char* format, ...) {
  struct emu_thread* t = emu.thread;
  if (!emu.error[0]) {
    va_list list;
    int used = 0;
    if (t) {
      const struct emu_kernel* kernel = t->warp->block->kernel;
      used = snprintf(emu.error, sizeof emu.error, "rank %d, launch %u, block %u of %u, thread %u of %u: ",
                      kernel->rank->number, kernel->number, t->place.block, t->place.blocks, t->place.thread,
                      t->place.threads);
    }
    va_start(list, format);
    vsnprintf(emu.error + used, sizeof emu.error - (size_t)used, format, list);
    va_end(list);
  }
  if (t) fiber_end(&t->fiber);
}

const char* emu_error(void) { return emu.error[0] ? emu.error : NULL; }

uint64_t emu_nanoseconds(void) {
  emu_time_pass(1);
  return (uint64_t)(emu.now - emu.begin) * STEP_NS;
}

void emu_allow_races(void) { emu.races_allowed = true; }
void emu_all_resident(void) { emu.all_resident = true; }

/* ---------------------------------------------------------------- warps that are ready */

static void* allocate(size_t count, size_t size) {
  void* p = calloc(count, size);
  if (p == NULL) {
    perror("emulator");
    exit(1);
  }
  return p;
}

static struct emu_rank* warp_rank(const struct emu_warp* warp) { return warp->block->kernel->rank; }

static void warp_add(struct emu_warp* warp) {
  struct emu_rank* rank = warp_rank(warp);
  if (warp->place != UINT32_MAX) return;
  if (rank->ready_count == rank->ready_room) {
    rank->ready_room = rank->ready_room ? 2 * rank->ready_room : 64;
    rank->ready = realloc(rank->ready, rank->ready_room * sizeof *rank->ready);
    if (rank->ready == NULL) {
      perror("emulator");
      exit(1);
    }
  }
  warp->place = rank->ready_count;
  rank->ready[rank->ready_count++] = warp;
}

static void warp_remove(struct emu_warp* warp) {
  struct emu_rank* rank = warp_rank(warp);
  struct emu_warp* last = rank->ready[--rank->ready_count];
  rank->ready[warp->place] = last;
  last->place = warp->place;
  warp->place = UINT32_MAX;
}

void emu_wake(struct emu_thread* thread) {
  thread->state = EMU_READY;
  ++thread->warp->ready;
  thread->warp->sleep = 0;
  warp_add(thread->warp);
}

void emu_yield(void) { fiber_leave(&emu.thread->fiber); }

void emu_block_thread(void) {
  struct emu_thread* t = emu.thread;
  t->state = EMU_BLOCKED;
  --t->warp->ready;
  fiber_leave(&t->fiber);
}

/* ---------------------------------------------------------------- kernels and blocks */

static void thread_run(void* argument) {
  struct emu_thread* t = argument;
  const struct emu_kernel* kernel = t->warp->block->kernel;
  kernel->entry(kernel->argument);
  t->state = EMU_ENDED;
  fiber_end(&t->fiber);
}

static void block_start(struct emu_kernel* kernel) {
  struct emu_block* block = allocate(1, sizeof *block);
  const uint32_t warps = (kernel->size + EMU_LANES - 1) / EMU_LANES;
  block->kernel = kernel;
  block->next = kernel->blocks;
  kernel->blocks = block;
  block->number = kernel->started++;
  block->size = block->live = kernel->size;
  block->threads = allocate(kernel->size, sizeof *block->threads);
  block->warps = allocate(warps, sizeof *block->warps);
  for (uint32_t i = 0; i < kernel->size; ++i) {
    struct emu_thread* t = &block->threads[i];
    t->place = (struct emu_place){i, kernel->size, block->number, kernel->grid};
    t->warp = &block->warps[i / EMU_LANES];
    t->id = ++emu.threads;
    t->floor = kernel->rank->complete > kernel->known ? kernel->rank->complete : kernel->known;
    fiber_start(&t->fiber, thread_run, t);
  }
  for (uint32_t w = 0; w < warps; ++w) {
    struct emu_warp* warp = &block->warps[w];
    warp->block = block;
    warp->threads = block->threads + w * EMU_LANES;
    warp->size = kernel->size - w * EMU_LANES < EMU_LANES ? kernel->size - w * EMU_LANES : EMU_LANES;
    warp->ready = warp->live = warp->size;
    warp->place = UINT32_MAX;
    warp_add(warp);
  }
  ++kernel->rank->resident;
}

static void block_free(struct emu_block* block) {
  for (uint32_t i = 0; i < block->size; ++i) fiber_release(&block->threads[i].fiber);
  free(block->threads);
  free(block->warps);
  free(block->shared);
  free(block);
}

static void block_trigger(struct emu_block* block) {
  if (!block->triggered) ++block->kernel->triggered;
  block->triggered = true;
}

/* The stream's first kernel has ended, or (`complete` false) is given up. */
static void kernel_pop(struct emu_rank* rank, bool complete) {
  struct emu_kernel* kernel = rank->first;
  while (kernel->blocks) {
    struct emu_block* block = kernel->blocks;
    kernel->blocks = block->next;
    if (complete) emu_block_publish(block);
    block_free(block);
  }
  rank->first = kernel->next;
  if (rank->first == NULL) rank->last = NULL;
  if (complete) rank->complete = emu.now;
  ++rank->version; /* whoever waits for it may go on */
  free(kernel);
}

/* Starts what may start, in the order of the stream. */
static void rank_advance(struct emu_rank* rank) {
  for (struct emu_kernel* first = rank->first; first && first->ended == first->grid; first = rank->first) {
    /* Until the last of its stores is in memory, a kernel has not ended, though all its blocks have. */
    if (first->end_time == 0) first->end_time = emu.now + (emu_draw(2) ? 0 : emu_delay(emu.nature.delay));
    if ((int32_t)(emu.now - first->end_time) < 0) break;
    kernel_pop(rank, true);
  }
  const struct emu_kernel* before = NULL;
  struct emu_kernel* kernel = rank->first;
  for (int i = 0; kernel && i < IN_FLIGHT; ++i, before = kernel, kernel = kernel->next) {
    if (before && (!kernel->dependent || before->started != before->grid || before->triggered != before->grid)) return;
    if (kernel->start_time == 0) kernel->start_time = emu.now + (emu_draw(4) ? 1 : emu_delay(emu.nature.late));
    if ((int32_t)(emu.now - kernel->start_time) < 0) return;
    while (kernel->started < kernel->grid && rank->resident < kernel->limit) {
      block_start(kernel);
      if (emu_chance(16)) { /* the next one is late */
        kernel->start_time = emu.now + emu_delay(emu.nature.late);
        break;
      }
    }
  }
}

void emu_launch(int rank, const void* kernel, uint32_t blocks, uint32_t threads, int dependent, const void* argument) {
  struct emu_rank* r = &emu.ranks[rank];
  struct emu_kernel* k = allocate(1, sizeof *k);
  memcpy(&k->entry, &kernel, sizeof kernel);
  memcpy(k->argument, argument, EMU_ARGUMENT);
  k->rank = r;
  k->grid = blocks;
  k->size = threads;
  k->number = r->launches++;
  k->limit = emu.all_resident ? UINT32_MAX : 1 + emu_draw(emu.nature.resident);
  k->dependent = dependent != 0;
  k->known = emu.idle;
  *(r->last ? &r->last->next : &r->first) = k;
  r->last = k;
  ++emu_counts.launches;
}

/* ---------------------------------------------------------------- one turn */

/* The fiber has left: what became of it. */
static void thread_left(struct emu_thread* t) {
  struct emu_warp* warp = t->warp;
  struct emu_block* block = warp->block;
  if (t->state != EMU_ENDED) return;
  fiber_release(&t->fiber);
  --warp->ready;
  --warp->live;
  --block->live;
  if (warp->arrived) emu_fail("rank %d: a lane has ended that a shuffle or vote waits for", warp_rank(warp)->number);
  if (block->live == 0) {
    block_trigger(block);
    ++block->kernel->ended;
    --block->kernel->rank->resident;
  } else if (block->barrier.arrived == block->live) { /* who has ended counts as come */
    emu_barrier_complete(block);
  }
}

static void warp_run(struct emu_warp* warp) {
  const uint32_t start = emu_draw(EMU_LANES);
  bool all_spin = true;
  for (uint32_t i = 0; i < EMU_LANES && !emu.error[0]; ++i) {
    const uint32_t lane = (start + i) % EMU_LANES;
    struct emu_thread* t = &warp->threads[lane];
    if (lane >= warp->size || t->state != EMU_READY) continue;
    t->spinning = false;
    emu.thread = t;
    emu_place = &t->place;
    ++emu_counts.switches;
    fiber_enter(&t->fiber);
    emu.thread = NULL;
    all_spin &= t->spinning || t->state == EMU_BLOCKED;
    thread_left(t);
  }
  if (warp->ready == 0) {
    if (warp->place != UINT32_MAX) warp_remove(warp);
    return;
  }
  /* Reads in vain until memory changes, or (clocks, aborts) for a time that grows. */
  if (!all_spin) warp->sleep = 0;
  else if (warp->version != warp_rank(warp)->version || warp->sleep == 0) warp->sleep = FIRST_SLEEP;
  else if (warp->sleep < LONGEST_SLEEP) warp->sleep *= 2;
  warp->version = warp_rank(warp)->version;
  warp->sleeps = emu.now + emu_draw(warp->sleep + 1);
}

static bool warp_asleep(const struct emu_warp* warp) {
  return warp->sleep && warp->version == warp_rank(warp)->version && (int32_t)(emu.now - warp->sleeps) < 0;
}

/* A warp whose turn it may be; NULL: none. */
static struct emu_warp* warp_choose(void) {
  for (int tries = 0; tries < 4 * EMU_RANKS; ++tries) {
    const struct emu_rank* rank = &emu.ranks[emu_draw(EMU_RANKS)];
    if (rank->ready_count == 0 || emu_draw(16) >= rank->weight) continue;
    struct emu_warp* warp = rank->ready[emu_draw(rank->ready_count)];
    if (!warp_asleep(warp)) return warp;
  }
  const uint32_t first = emu_draw(EMU_RANKS);
  for (uint32_t i = 0; i < EMU_RANKS; ++i) {
    const struct emu_rank* rank = &emu.ranks[(first + i) % EMU_RANKS];
    for (uint32_t k = 0; k < rank->ready_count; ++k) {
      if (!warp_asleep(rank->ready[k])) return rank->ready[k];
    }
  }
  return NULL;
}

/* Nobody has anything to do now: on to when somebody has. False: nobody ever will. */
static bool time_skip(void) {
  uint32_t until = 0;
  bool any = emu_memory_due(&until);
  for (int r = 0; r < EMU_RANKS; ++r) {
    const struct emu_rank* rank = &emu.ranks[r];
    for (uint32_t k = 0; k < rank->ready_count; ++k) {
      if (!any || (int32_t)(rank->ready[k]->sleeps - until) < 0) until = rank->ready[k]->sleeps;
      any = true;
    }
    for (const struct emu_kernel* kernel = rank->first; kernel; kernel = kernel->next) {
      const uint32_t next = kernel->started == kernel->grid ? kernel->end_time : kernel->start_time;
      if (next == 0 || (int32_t)(next - emu.now) <= 0) continue;
      if (!any || (int32_t)(next - until) < 0) until = next;
      any = true;
    }
  }
  if (any) emu_time_pass((int32_t)(until - emu.now) > 0 ? until - emu.now : 1);
  return any;
}

static void stuck(void) {
  for (int r = 0; r < EMU_RANKS; ++r) {
    const struct emu_kernel* kernel = emu.ranks[r].first;
    if (kernel == NULL) continue;
    for (const struct emu_block* block = kernel->blocks; block; block = block->next) {
      if (block->live == 0) continue;
      emu_fail("nobody can go on: rank %d, launch %u, block %u: of %u threads %u run, %u are at the barrier, %u have "
               "come to the split one", r, kernel->number, block->number, block->size, block->live,
               block->barrier.arrived, block->split.arrived);
      return;
    }
  }
  emu_fail("nobody can go on");
}

static bool all_idle(void) {
  for (int r = 0; r < EMU_RANKS; ++r) {
    if (emu.ranks[r].first) return false;
  }
  return true;
}

static void give_up(void) {
  for (int r = 0; r < EMU_RANKS; ++r) {
    while (emu.ranks[r].first) kernel_pop(&emu.ranks[r], false);
    emu.ranks[r].ready_count = emu.ranks[r].resident = 0;
  }
}

static void weights_draw(void) {
  static const uint32_t weights[] = {1, 4, 16, 16};
  for (int r = 0; r < EMU_RANKS; ++r) emu.ranks[r].weight = weights[emu_draw(4)];
}

static void run_until(bool limited, uint32_t end) {
  const uint32_t begin = emu.now;
  for (uint32_t turn = 0; !emu.error[0] && !(limited && (int32_t)(emu.now - end) >= 0); ++turn) {
    if (turn % WEIGHT_TURNS == 0) weights_draw();
    struct emu_warp* warp = turn % ADVANCE_TURNS ? warp_choose() : NULL;
    if (!warp) {
      for (int r = 0; r < EMU_RANKS; ++r) rank_advance(&emu.ranks[r]);
      warp = warp_choose();
    }
    if (warp) warp_run(warp);
    else if (all_idle()) break;
    else if (!time_skip()) stuck();
    if (emu.now - begin > STEPS_LIMIT) emu_fail("no end after %u steps", emu.now - begin);
  }
  if (emu.error[0]) give_up();
  else if (all_idle()) emu.idle = emu.now;
}

void emu_run(void) { run_until(false, 0); }

void emu_run_for(uint64_t microseconds) { run_until(true, emu.now + (uint32_t)(microseconds * 1000 / STEP_NS)); }

void emu_begin(uint64_t seed) {
  static const uint32_t preempts[] = {2, 16, 64, 160}, immediates[] = {0, 64, 192, 250}, delays[] = {4, 60, 400, 3000};
  static const uint32_t stales[] = {0, 40, 128, 256}, stale_delays[] = {20, 400, 4000}, residents[] = {1, 2, 4, 16};
  static const uint32_t lates[] = {10, 200, 3000};
  emu.random = (seed + 1) * 0x9e3779b97f4a7c15u;
  for (int i = 0; i < 8; ++i) emu_random();
  emu.error[0] = '\0';
  emu.threads = 0;
  emu.races_allowed = emu.all_resident = false;
  emu_memory_begin();
  emu.begin = emu.idle = ++emu.now;
  emu.nature.preempt = preempts[emu_draw(4)];
  emu.nature.immediate = immediates[emu_draw(4)];
  emu.nature.delay = delays[emu_draw(4)];
  emu.nature.stale = stales[emu_draw(4)];
  emu.nature.stale_delay = stale_delays[emu_draw(3)];
  emu.nature.resident = residents[emu_draw(4)];
  emu.nature.late = lates[emu_draw(3)];
  for (int r = 0; r < EMU_RANKS; ++r) {
    struct emu_rank* rank = &emu.ranks[r];
    rank->number = r;
    rank->launches = rank->version = 0;
    rank->complete = emu.now;
  }
}
