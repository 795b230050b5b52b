/* SPDX-License-Identifier: Apache-2.0
 *
 * emu_memory.c: global memory: stores on their way, values that others still see, races (emu.h has the model).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "test/emu/emu_internal.h"

enum { REGION = 1 << 24, REGION_WORDS = REGION / 4, REGIONS = EMU_RANKS + 1, ALLOCATIONS = 20, ALIGNMENT = 512 };
enum { GUARDS = EMU_RANKS, SPIN_LOADS = 20 };

enum { WORD_WEAK = 1, WORD_WATCHED = 2 };

/* What is known of a word of memory: its last store, and the value before it. */
struct word {
  uint32_t time, writer, sequence; /* writer: the thread's id; sequence: among its block's stores */
  uint32_t release;                /* what was in memory at this time goes with the value; 0: nothing */
  uint32_t before;
  uint32_t pending_writer; /* of the youngest store to this word on its way */
  uint16_t pending;        /* how many there are */
  uint8_t flags, rank;
};

/* A store on its way. */
struct store {
  struct emu_thread* thread;
  uint32_t before, next; /* the thread's others */
  uint32_t serial;       /* of this use of the struct */
  uint32_t word, words, missing; /* missing: a bit for each word that is not in memory yet */
  uint32_t sequence, release;
  uint32_t value[4];
  bool weak, adds; /* adds: `value` is a summand */
};

struct due {
  uint32_t time, store, serial;
};

static unsigned char* memory; /* REGIONS regions */
static struct word* words;
static struct region {
  size_t used;
  int count;
  struct {
    size_t start, end;
  } allocated[ALLOCATIONS];
} regions[REGIONS];

static struct {
  size_t start, end;
} guards[GUARDS];
static int guard_count;

static struct {
  uint32_t word;
  const char* (*check)(void* argument);
  void* argument;
} watches[EMU_RANKS];
static int watch_count;

static struct store* stores; /* [0] is none */
static uint32_t store_room, store_count, free_store;
static struct due* heap; /* the earliest first */
static uint32_t heap_count, heap_room;

static void* grow(void* array, uint32_t* room, size_t size) {
  *room = *room ? *room * 2 : 1024;
  array = realloc(array, *room * size);
  if (array == NULL) {
    perror("emulator");
    exit(1);
  }
  return array;
}

/* ---------------------------------------------------------------- allocation */

static void* reserve(size_t bytes) {
  void* p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) {
    perror("emulator: memory");
    exit(1);
  }
  return p;
}

void* emu_memory_allocate(int owner, size_t bytes) {
  if (memory == NULL) {
    memory = reserve((size_t)REGION * REGIONS);
    words = reserve(sizeof *words * REGION_WORDS * REGIONS);
  }
  struct region* r = &regions[owner];
  const size_t start = (r->used + 2 * ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; /* with a gap */
  if (r->count == ALLOCATIONS || bytes > REGION - start) return NULL;
  r->used = start + bytes;
  r->allocated[r->count].start = (size_t)owner * REGION + start;
  r->allocated[r->count++].end = (size_t)owner * REGION + r->used;
  return memory + (size_t)owner * REGION + start;
}

static void words_forget(void) {
  madvise(words, sizeof *words * REGION_WORDS * REGIONS, MADV_DONTNEED);
  for (int i = 0; i < watch_count; ++i) words[watches[i].word].flags = WORD_WATCHED;
}

void emu_memory_free_all(void) {
  if (memory == NULL) return;
  memset(regions, 0, sizeof regions);
  guard_count = watch_count = 0;
  madvise(memory, (size_t)REGION * REGIONS, MADV_DONTNEED);
  words_forget();
}

void emu_memory_guard(const void* start, size_t bytes) {
  guards[guard_count].start = (size_t)((const unsigned char*)start - memory);
  guards[guard_count].end = guards[guard_count].start + bytes;
  ++guard_count;
}

void emu_memory_watch(const void* p, const char* (*check)(void* argument), void* argument) {
  watches[watch_count].word = (uint32_t)(((const unsigned char*)p - memory) / 4);
  watches[watch_count].check = check;
  watches[watch_count].argument = argument;
  words[watches[watch_count++].word].flags = WORD_WATCHED;
}

void emu_memory_begin(void) {
  store_count = 1;
  free_store = 0;
  heap_count = 0;
  if (emu.now < UINT32_MAX / 2) return;
  words_forget(); /* times start afresh */
  emu.now = 1;
}

/* ---------------------------------------------------------------- from the buffer to memory */

static uint32_t* word_at(uint32_t index) { return (uint32_t*)memory + index; }

static void word_write(uint32_t index, uint32_t value, struct emu_thread* thread, uint32_t sequence, uint32_t release,
                       bool weak) {
  struct word* w = &words[index];
  w->before = *word_at(index);
  *word_at(index) = value;
  w->time = emu.now;
  w->writer = thread->id;
  w->rank = (uint8_t)thread->warp->block->kernel->rank->number;
  w->sequence = sequence;
  w->release = release;
  w->flags = (uint8_t)((w->flags & WORD_WATCHED) | (weak ? WORD_WEAK : 0));
  const uint32_t owner = index / REGION_WORDS;
  if (owner < EMU_RANKS) ++emu.ranks[owner].version;
  if (!(w->flags & WORD_WATCHED)) return;
  for (int i = 0; i < watch_count; ++i) {
    const char* error = watches[i].word == index ? watches[i].check(watches[i].argument) : NULL;
    if (error) emu_fail("%s", error);
  }
}

static void store_unlink(uint32_t number) {
  struct store* s = &stores[number];
  *(s->before ? &stores[s->before].next : &s->thread->first) = s->next;
  *(s->next ? &stores[s->next].before : &s->thread->last) = s->before;
  ++s->serial;
  s->next = free_store;
  free_store = number;
}

static void store_write_word(uint32_t number, uint32_t k);

/* Older stores of the same block to this word must be in memory before. */
static void store_write_older(const struct store* s, uint32_t index) {
  const struct emu_block* block = s->thread->warp->block;
  for (;;) {
    uint32_t oldest = 0;
    for (uint32_t t = 0; t < block->size; ++t) {
      for (uint32_t n = block->threads[t].first; n; n = stores[n].next) {
        const uint32_t k = index - stores[n].word;
        if (k < stores[n].words && stores[n].missing >> k & 1 && stores[n].sequence < s->sequence &&
            (!oldest || stores[n].sequence < stores[oldest].sequence))
          oldest = n;
      }
    }
    if (!oldest) return;
    store_write_word(oldest, index - stores[oldest].word);
  }
}

/* One word; both of a store of 8 bytes. */
static void store_write_word(uint32_t number, uint32_t k) {
  struct store* s = &stores[number];
  const uint32_t first = s->words == 2 ? 0 : k, last = s->words == 2 ? 1 : k;
  for (uint32_t i = first; i <= last; ++i) {
    if (words[s->word + i].pending > 1) store_write_older(s, s->word + i);
  }
  uint64_t sum = 0;
  if (s->adds) {
    memcpy(&sum, word_at(s->word), s->words * 4);
    uint64_t summand = 0;
    memcpy(&summand, s->value, s->words * 4);
    sum += summand;
    memcpy(s->value, &sum, s->words * 4);
  }
  for (uint32_t i = first; i <= last; ++i) {
    s->missing &= ~(1u << i);
    --words[s->word + i].pending;
    word_write(s->word + i, s->value[i], s->thread, s->sequence, s->release, s->weak);
  }
  if (!s->missing) store_unlink(number);
}

static void store_write(uint32_t number) {
  const uint32_t serial = stores[number].serial;
  while (stores[number].serial == serial && stores[number].missing) {
    store_write_word(number, (uint32_t)__builtin_ctz(stores[number].missing));
  }
}

static void heap_push(struct due due) {
  if (heap_count == heap_room) heap = grow(heap, &heap_room, sizeof *heap);
  uint32_t i = heap_count++;
  for (; i && heap[(i - 1) / 2].time > due.time; i = (i - 1) / 2) heap[i] = heap[(i - 1) / 2];
  heap[i] = due;
}

static struct due heap_pop(void) {
  const struct due top = heap[0], last = heap[--heap_count];
  uint32_t i = 0;
  for (;;) {
    uint32_t child = 2 * i + 1;
    if (child >= heap_count) break;
    if (child + 1 < heap_count && heap[child + 1].time < heap[child].time) ++child;
    if (heap[child].time >= last.time) break;
    heap[i] = heap[child];
    i = child;
  }
  heap[i] = last;
  return top;
}

static void store_due(const struct due* due) {
  struct store* s = &stores[due->store];
  if (s->serial != due->serial) return; /* has been written */
  if (s->words != 4 || !emu_chance(64)) {
    store_write(due->store);
    return;
  }
  const uint32_t some = s->missing & emu_random();
  for (uint32_t k = 0; k < 4; ++k) {
    if (some >> k & 1) store_write_word(due->store, k);
  }
  if (s->serial == due->serial)
    heap_push((struct due){emu.now + emu_delay(emu.nature.delay), due->store, due->serial});
}

void emu_time_pass(uint32_t steps) {
  emu.now += steps;
  emu_counts.steps += steps;
  while (heap_count && heap[0].time <= emu.now) {
    const struct due due = heap_pop();
    store_due(&due);
  }
}

bool emu_memory_due(uint32_t* when) {
  if (heap_count) *when = heap[0].time;
  return heap_count != 0;
}

static void thread_publish(struct emu_thread* t, uint32_t up_to) {
  for (uint32_t n = t->first; n;) {
    const uint32_t next = stores[n].next;
    if (stores[n].sequence > up_to) break;
    store_write(n); /* and older ones with it, never `next` */
    n = next;
  }
}

void emu_block_publish(struct emu_block* block) {
  for (uint32_t t = 0; t < block->size; ++t) thread_publish(&block->threads[t], UINT32_MAX);
}

/* What the thread has stored and what it knows of its block's stores. */
static void known_publish(struct emu_thread* t) {
  const struct emu_block* block = t->warp->block;
  thread_publish(t, UINT32_MAX);
  for (uint32_t i = 0; t->synced && i < block->size; ++i) thread_publish(&block->threads[i], t->synced);
}

/* ---------------------------------------------------------------- checks */

static uint32_t address_check(const struct emu_thread* t, const void* p, uint32_t bytes) {
  const size_t at = (size_t)((const unsigned char*)p - memory);
  const size_t owner = at / REGION;
  bool inside = false;
  if ((const unsigned char*)p < memory || owner >= REGIONS) emu_fail("an address that no allocation has: %p", p);
  const struct region* r = &regions[owner];
  for (int i = 0; i < r->count; ++i) inside |= at >= r->allocated[i].start && at + bytes <= r->allocated[i].end;
  if (!inside) emu_fail("an address outside of all allocations: byte %zu of the memory of %zu", at % REGION, owner);
  if (at % bytes) emu_fail("an access of %u bytes at %zu is not aligned", bytes, at % REGION);
  if (t->warp->block->triggered) {
    for (int i = 0; i < guard_count; ++i) {
      if (at >= guards[i].start && at < guards[i].end) emu_fail("a slot is touched after the early trigger");
    }
  }
  return (uint32_t)(at / 4);
}

static bool is_mate(const struct emu_thread* t, uint32_t id) {
  const struct emu_block* block = t->warp->block;
  return id - block->threads[0].id < block->size;
}

/* Whether the last store to the word must be seen. */
static bool is_ordered(const struct emu_thread* t, const struct word* w) {
  return w->time <= t->floor || w->writer == t->id || (is_mate(t, w->writer) && w->sequence <= t->synced);
}

static void race_check(const struct emu_thread* t, uint32_t index, bool weak, const char* what) {
  const struct word* w = &words[index];
  const uint32_t owner = index / REGION_WORDS, word = index % REGION_WORDS;
  if (emu.races_allowed) return;
  if ((weak || w->flags & WORD_WEAK) && !is_ordered(t, w))
    emu_fail("a race: %s word %u of the memory of %u, which rank %u has stored to", what, word, owner, w->rank);
  if (weak && w->pending && !is_mate(t, w->pending_writer))
    emu_fail("a race: %s word %u of the memory of %u, which another thread is storing to", what, word, owner);
}

static void scope_check(const struct emu_thread* t, uint32_t index) {
  const uint32_t rank = (uint32_t)t->warp->block->kernel->rank->number;
  if (index / REGION_WORDS != rank) emu_fail("an access of gpu scope to the memory of %u", index / REGION_WORDS);
  if (words[index].time > emu.begin && words[index].rank != rank)
    emu_fail("an access of gpu scope to a word that rank %u has written", words[index].rank);
}

/* ---------------------------------------------------------------- accesses */

static struct emu_thread* step(void) {
  struct emu_thread* t = emu.thread;
  emu_time_pass(1);
  return t;
}

static void leave_sometimes(struct emu_thread* t) {
  t->loads = 0;
  if (emu_chance(emu.nature.preempt)) emu_yield();
}

/* A store of the thread, or of its block that it knows of, which is on its way to this word: its number; 0: none. */
static uint32_t store_find(const struct emu_thread* t, uint32_t index) {
  const struct word* w = &words[index];
  uint32_t found = 0;
  if (!w->pending) return 0;
  for (uint32_t n = t->first; n; n = stores[n].next) {
    const uint32_t k = index - stores[n].word;
    if (k < stores[n].words && stores[n].missing >> k & 1) found = n;
  }
  if (found || w->pending_writer == t->id || !is_mate(t, w->pending_writer)) return found;
  const struct emu_block* block = t->warp->block;
  const struct emu_thread* mate = &block->threads[w->pending_writer - block->threads[0].id];
  for (uint32_t n = mate->first; n; n = stores[n].next) {
    const uint32_t k = index - stores[n].word;
    if (k < stores[n].words && stores[n].missing >> k & 1 && stores[n].sequence <= t->synced) found = n;
  }
  return found;
}

/* Whether this block does not see the last store to the word yet. Stays so until it does. Words with the same `key` are
 * seen at once. */
static bool is_hidden(const struct emu_thread* t, const struct word* w, uint32_t key) {
  if (w->time == emu.now || is_ordered(t, w)) return false;
  uint64_t h = (uint64_t)(t->warp->block->threads[0].id * 2654435761u ^ key) * 0x9e3779b97f4a7c15u;
  h ^= (uint64_t)(w->time - emu.begin) * 0xff51afd7ed558ccdu;
  h ^= h >> 29;
  h *= 0xc4ceb9fe1a85ec53u;
  if ((h >> 56) >= emu.nature.stale) return false;
  return emu.now - w->time < (uint32_t)(h >> 32 & 0xffff) % emu.nature.stale_delay;
}

void emu_load(void* value, const void* p, uint32_t bytes, enum emu_order order) {
  struct emu_thread* t = step();
  const uint32_t index = address_check(t, p, bytes);
  const bool weak = order == EMU_WEAK;
  if (bytes < 4) {
    memcpy(value, p, bytes);
    return;
  }
  for (uint32_t k = 0; k < bytes / 4; ++k) {
    struct word* w = &words[index + k];
    uint32_t v = *word_at(index + k), mine;
    while ((mine = store_find(t, index + k)) && stores[mine].adds) {
      store_write(mine);
      v = *word_at(index + k);
    }
    if (mine) v = stores[mine].value[index + k - stores[mine].word];
    race_check(t, index + k, weak, "reading");
    if (order == EMU_RELAXED_GPU) scope_check(t, index + k);
    /* All that went with the value, and the value itself. */
    if (order == EMU_ACQUIRE_SYS && w->release && w->time > t->floor) t->floor = w->time;
    if (!mine && !weak && order != EMU_ACQUIRE_SYS && is_hidden(t, w, bytes == 16 ? index + k : index)) {
      v = w->before;
      ++emu_counts.stale;
    }
    memcpy((unsigned char*)value + 4 * k, &v, 4);
  }
  if (weak) {
    leave_sometimes(t);
  } else if (++t->loads > SPIN_LOADS) {
    if (t->loads & 1) return;
    t->spinning = true;
    emu_yield();
  } else if (emu_chance(emu.nature.preempt)) {
    emu_yield();
  }
}

static void store_begin(struct emu_thread* t, uint32_t index, const void* value, uint32_t bytes, uint32_t release,
                        bool weak, bool adds) {
  const uint32_t sequence = ++t->warp->block->sequence, count = bytes / 4;
  bool alone = true;
  ++emu_counts.stores;
  for (uint32_t k = 0; k < count; ++k) alone &= !words[index + k].pending;
  if (!adds && alone && emu_chance(emu.nature.immediate)) {
    for (uint32_t k = 0; k < count; ++k) {
      uint32_t v;
      memcpy(&v, (const unsigned char*)value + 4 * k, 4);
      word_write(index + k, v, t, sequence, release, weak);
    }
    return;
  }
  ++emu_counts.delayed;
  uint32_t number = free_store;
  if (number) {
    free_store = stores[number].next;
  } else {
    if (store_count >= store_room) {
      const uint32_t had = store_room;
      stores = grow(stores, &store_room, sizeof *stores);
      memset(stores + had, 0, (store_room - had) * sizeof *stores);
    }
    number = store_count++;
  }
  struct store* s = &stores[number];
  const uint32_t serial = s->serial + 1;
  *s = (struct store){.thread = t, .before = t->last, .serial = serial, .word = index, .words = count,
                      .missing = (1u << count) - 1, .sequence = sequence, .release = release, .weak = weak,
                      .adds = adds};
  memcpy(s->value, value, bytes);
  *(t->last ? &stores[t->last].next : &t->first) = number;
  t->last = number;
  for (uint32_t k = 0; k < count; ++k) {
    ++words[index + k].pending;
    words[index + k].pending_writer = t->id;
  }
  heap_push((struct due){emu.now + emu_delay(emu.nature.delay), number, serial});
}

void emu_store(void* p, const void* value, uint32_t bytes, enum emu_order order) {
  struct emu_thread* t = step();
  const uint32_t index = address_check(t, p, bytes);
  const bool weak = order == EMU_WEAK;
  if (bytes < 4) { /* of the caller's memory; seen at once */
    for (uint32_t mine; (mine = store_find(t, index));) store_write(mine);
    memcpy(p, value, bytes);
    leave_sometimes(t);
    return;
  }
  for (uint32_t k = 0; k < bytes / 4; ++k) race_check(t, index + k, weak, "storing to");
  if (order == EMU_RELEASE_SYS) known_publish(t);
  store_begin(t, index, value, bytes, order == EMU_RELEASE_SYS ? emu.now : weak ? 0 : t->fenced, weak, false);
  leave_sometimes(t);
}

void emu_fence_sys(void) {
  struct emu_thread* t = step();
  known_publish(t);
  t->floor = t->fenced = emu.now;
  leave_sometimes(t);
}

void emu_atomic_add(void* p, uint64_t v, uint32_t bytes) {
  struct emu_thread* t = step();
  const uint32_t index = address_check(t, p, bytes);
  scope_check(t, index);
  race_check(t, index, false, "adding to");
  store_begin(t, index, &v, bytes, t->fenced, false, true);
  leave_sometimes(t);
}

/* The newest value of a word, for an atomic that answers; what the block has on its way there goes first. */
static uint32_t atomic_begin(struct emu_thread* t, void* p, uint32_t bytes) {
  const uint32_t index = address_check(t, p, bytes);
  scope_check(t, index);
  race_check(t, index, false, "an atomic on");
  for (uint32_t mine; (mine = store_find(t, index));) store_write(mine);
  return index;
}

uint32_t emu_atomic_count(uint32_t* p, uint32_t last) {
  struct emu_thread* t = step();
  const uint32_t index = atomic_begin(t, p, 4), old = *word_at(index);
  word_write(index, old >= last ? 0 : old + 1, t, ++t->warp->block->sequence, t->fenced, false);
  leave_sometimes(t);
  return old;
}

uint64_t emu_atomic_fetch_add_u64(void* p, uint64_t v) {
  struct emu_thread* t = step();
  const uint32_t index = atomic_begin(t, p, 8), sequence = ++t->warp->block->sequence;
  uint64_t old;
  memcpy(&old, p, 8);
  word_write(index, (uint32_t)(old + v), t, sequence, t->fenced, false);
  word_write(index + 1, (uint32_t)((old + v) >> 32), t, sequence, t->fenced, false);
  leave_sometimes(t);
  return old;
}

uint32_t emu_atomic_exchange(uint32_t* p, uint32_t v) {
  struct emu_thread* t = step();
  const uint32_t index = atomic_begin(t, p, 4), old = *word_at(index);
  word_write(index, v, t, ++t->warp->block->sequence, t->fenced, false);
  leave_sometimes(t);
  return old;
}
