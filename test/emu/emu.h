/* SPDX-License-Identifier: Apache-2.0
 *
 * emu.h: an emulator of GPUs for the kernels of kernels/cuda, which are compiled as C++ with the stand-ins of this
 * folder for <cuda_runtime.h> and kernels/cuda/device_ops.cuh. Every thread of every rank is a fiber; one seed
 * decides who runs when, how long a store takes to be seen, how many blocks are resident, how late kernels and blocks
 * start.
 *
 * The memory model is PTX's as far as the kernels could tell, and weaker than any GPU:
 *  - A store waits in a buffer and reaches memory later, in any order with the thread's stores to other addresses; to
 *    the same address in the order of the program. Neither volatile assembly nor relaxed stores are ordered; a fence
 *    and a release are: all that the thread has stored before, and all that it has learned of by barriers of its
 *    block, goes first.
 *  - Once a store is in memory, other blocks still find the older value for a while, each for its own time, unless
 *    they have synchronised with it: acquire (of a value released), fence, barrier with a thread that has, the wait
 *    for earlier grids.
 *  - A vector access is one access for each element, in no order (PTX ISA, Memory Consistency Model, Vector
 *    Data-types): 16 bytes tear into words of 4. A scalar of 8 bytes does not.
 *  - Weak accesses (the caller's memory, the stage of one-shot sync) must be ordered by synchronisation with others'
 *    accesses to the same words, unless all are reads: else the race is reported. So is an access of gpu scope to a
 *    word that another rank has written, or by another rank.
 *  - A shuffle, vote or block's barrier that not all threads come to, accesses that are misaligned or outside of what
 *    was allocated, shared memory read or written without a barrier since another thread's access, and slots touched
 *    after the block has let dependent kernels start, are reported.
 *
 * What it cannot show: loads return at once, hence never a value from after a later instruction of their thread; what
 * is read by an atomic with an answer is always the newest value; time passes with instructions, not with cycles.
 *
 * An error ends the run; emu_error tells the first. One thread uses all this; nothing here is thread-safe.
 */
#ifndef ARFUSION_TEST_EMU_H_
#define ARFUSION_TEST_EMU_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { EMU_RANKS = 16, EMU_HOST = EMU_RANKS }; /* whose memory */

/* ---------------------------------------------------------------- for the test */

/* Memory of a rank's GPU, or (EMU_HOST) of the host; aligned to 512 bytes; NULL: full. Freed all at once. */
void* emu_memory_allocate(int owner, size_t bytes);
void emu_memory_free_all(void);

/* Begins a schedule: all that is random from here on comes from `seed`. Nothing may be running. */
void emu_begin(uint64_t seed);

/* Races of this schedule are not reported: threads that learn of a failure go on without waiting. */
void emu_allow_races(void);

/* Kernels launched from here on in this schedule find room for all their blocks at once. */
void emu_all_resident(void);

/* No thread may touch these bytes once its block has let dependent kernels start. Until emu_memory_free_all. */
void emu_memory_guard(const void* start, size_t bytes);

/* `check` is called at the moment at which the host would see the word at `p` change; returns an error's text, or
 * NULL. */
void emu_memory_watch(const void* p, const char* (*check)(void* argument), void* argument);

/* Enqueues a kernel on a rank's only stream. Copies EMU_ARGUMENT bytes, whatever the argument's size. */
enum { EMU_ARGUMENT = 1024 };
void emu_launch(int rank, const void* kernel, uint32_t blocks, uint32_t threads, int dependent, const void* argument);

/* Until all kernels have ended, or there was an error. */
void emu_run(void);

/* `microseconds` of the emulated clock. */
void emu_run_for(uint64_t microseconds);

/* The schedule's first error, or NULL. */
const char* emu_error(void);

/* What has happened since the program started. */
struct emu_counts {
  uint64_t steps, switches, stores, delayed, stale, launches, triggers;
};
extern struct emu_counts emu_counts;

/* ---------------------------------------------------------------- for the stand-in of device_ops.cuh */

/* Where the running thread is. */
struct emu_place {
  uint32_t thread, threads, block, blocks;
};
extern const struct emu_place* emu_place;

enum emu_order { EMU_WEAK, EMU_RELAXED_GPU, EMU_RELAXED_SYS, EMU_ACQUIRE_SYS, EMU_RELEASE_SYS };

void emu_load(void* value, const void* p, uint32_t bytes, enum emu_order order);
void emu_store(void* p, const void* value, uint32_t bytes, enum emu_order order);
void emu_fence_sys(void);

/* Of gpu scope, relaxed. _add: without an answer. _count: up to `last`, then 0. */
void emu_atomic_add(void* p, uint64_t v, uint32_t bytes);
uint64_t emu_atomic_fetch_add_u64(void* p, uint64_t v);
uint32_t emu_atomic_count(uint32_t* p, uint32_t last);
uint32_t emu_atomic_exchange(uint32_t* p, uint32_t v);

uint32_t emu_shared(uint32_t words); /* the same address in every call of a block with this size */
uint32_t emu_shared_load(uint32_t address);
void emu_shared_store(uint32_t address, uint32_t v);
void emu_shared_max(uint32_t address, uint32_t v); /* an atomic */

uint32_t emu_shuffle(uint32_t v, uint32_t lane); /* v of that lane */
uint32_t emu_vote(uint32_t v);                   /* a bit for each lane whose v is not 0 */
void emu_barrier(void);
void emu_split_arrive(uint32_t threads);
void emu_split_wait(uint32_t threads);

void emu_grid_wait(void);
void emu_grid_trigger(void);
uint64_t emu_nanoseconds(void);

#ifdef __cplusplus
}
#endif
#endif
