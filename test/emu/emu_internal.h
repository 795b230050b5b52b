/* SPDX-License-Identifier: Apache-2.0
 *
 * emu_internal.h: what the files of the emulator share: threads, blocks, kernels, ranks, and the one schedule's state.
 */
#ifndef ARFUSION_TEST_EMU_INTERNAL_H_
#define ARFUSION_TEST_EMU_INTERNAL_H_

#include <stdbool.h>

#include "test/emu/emu.h"
#include "test/emu/emu_fiber.h"

enum { EMU_LANES = 32, EMU_SHARED_SIZES = 4 };

enum emu_state { EMU_READY, EMU_BLOCKED, EMU_ENDED };

/* Times are counts of instructions of all threads. */
struct emu_thread {
  struct fiber_context fiber;
  struct emu_place place;
  struct emu_warp* warp;
  uint32_t id; /* from 1 on, consecutive in a block */
  enum emu_state state;
  bool spinning;       /* it left because it reads in vain */
  uint32_t loads;      /* strong ones since it last did anything else */
  uint32_t floor;      /* what was in memory at this time it must see */
  uint32_t synced;     /* of its block's stores it must see those up to this number */
  uint32_t fenced;     /* time of its last fence; 0: none */
  uint32_t first, last; /* stores on their way; 0: none */
  uint32_t given, lane, answer; /* of a shuffle or vote */
  const struct emu_barrier* waits; /* at this barrier */
};

enum emu_meeting { EMU_SHUFFLE, EMU_VOTE };

struct emu_warp {
  struct emu_block* block;
  struct emu_thread* threads;
  uint32_t size, ready, live, arrived;
  enum emu_meeting meeting;
  uint32_t place;                  /* among the rank's warps that are ready; UINT32_MAX: not there */
  uint32_t sleeps, sleep, version; /* asleep until then, unless the rank's memory changes; how long it slept */
};

struct emu_shared_word {
  uint32_t value, writer, write_barriers, reader, read_barriers;
  bool by_max; /* the writer's was an atomic */
};

struct emu_barrier {
  uint32_t arrived, floor; /* floor: the latest of those who have come */
};

struct emu_block {
  struct emu_kernel* kernel;
  struct emu_block* next; /* of the same kernel */
  struct emu_thread* threads;
  struct emu_warp* warps;
  uint32_t number, size, live;
  uint32_t sequence; /* stores made */
  uint32_t barriers; /* passed */
  struct emu_barrier barrier, split;
  bool triggered;
  struct emu_shared_word* shared;
  uint32_t shared_words, shared_sizes[EMU_SHARED_SIZES];
};

struct emu_kernel {
  void (*entry)(const void* argument);
  unsigned char argument[EMU_ARGUMENT];
  struct emu_rank* rank;
  struct emu_kernel* next; /* in the stream */
  struct emu_block* blocks;
  uint32_t grid, size, number, limit; /* limit: of resident blocks */
  uint32_t started, ended, triggered; /* blocks */
  uint32_t start_time;                /* of the next block, at the earliest */
  uint32_t end_time;                  /* all blocks have ended: when the kernel has */
  uint32_t known;                     /* what was in memory at this time the host knew of when it launched it */
  bool dependent;
};

struct emu_rank {
  int number;
  struct emu_kernel *first, *last; /* the stream */
  uint32_t launches, resident;
  uint32_t complete; /* when its last kernel ended */
  uint32_t version;  /* counts what changes in its memory */
  uint32_t weight;   /* how often it gets its turn, of 16 */
  struct emu_warp** ready;
  uint32_t ready_count, ready_room;
};

/* How a schedule behaves. Chances are of 256, times in steps. */
struct emu_nature {
  uint32_t preempt;          /* leaving at an access to memory */
  uint32_t immediate, delay; /* stores seen at once; else how long they take */
  uint32_t stale, stale_delay;
  uint32_t resident;         /* blocks of a rank */
  uint32_t late;             /* how late a kernel starts, about */
};

struct emu {
  struct emu_rank ranks[EMU_RANKS];
  struct emu_thread* thread; /* that runs; NULL: the scheduler */
  struct emu_nature nature;
  uint64_t random;
  uint32_t now, begin; /* begin: of the schedule */
  uint32_t idle;       /* when the host last saw that everything had ended */
  uint32_t threads;    /* ids given */
  bool races_allowed, all_resident;
  char error[512];
};
extern struct emu emu;

static inline uint32_t emu_random(void) {
  emu.random ^= emu.random << 13;
  emu.random ^= emu.random >> 7;
  emu.random ^= emu.random << 17;
  return (uint32_t)(emu.random >> 21);
}
static inline uint32_t emu_draw(uint32_t below) { return emu_random() % below; }
static inline bool emu_chance(uint32_t of_256) { return (emu_random() & 255) < of_256; }
/* 1 or more, half of the time below `scale`, now and then 50 times as long. */
uint32_t emu_delay(uint32_t scale);

/* Keeps the first error; from a thread it does not return. */
void emu_fail(const char* format, ...) __attribute__((format(printf, 1, 2)));

/* ---------------------------------------------------------------- the scheduler, for the other files */

void emu_yield(void);
void emu_block_thread(void); /* until it is woken */
void emu_wake(struct emu_thread* thread);
void emu_barrier_complete(struct emu_block* block); /* all have come to the block's barrier */

/* ---------------------------------------------------------------- memory, for the scheduler */

/* `steps` of time pass: stores that are due get to memory. */
void emu_time_pass(uint32_t steps);
bool emu_memory_due(uint32_t* when); /* the next of them, if there is any */
/* All stores of a block that are on their way get to memory. */
void emu_block_publish(struct emu_block* block);
/* No more stores are on their way; how the last schedule ended does not matter. */
void emu_memory_begin(void);

#endif
