/* SPDX-License-Identifier: Apache-2.0
 *
 * host_peer_test.c: whether what peers write arrives, see kernels/peer_test.h.
 */
#include <sched.h>
#include <time.h>

#include "kernels/host/host_internal.h"
#include "kernels/peer_test.h"

#define POLLS_BEFORE_YIELD 100

struct peer_test {
  const struct host_comm* comm;
  uint64_t deadline_ns;
  uint32_t polls;
};

static uint64_t clock_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* After each look that found nothing; whether to look again. */
static int look_again(struct peer_test* test) {
  if (++test->polls % POLLS_BEFORE_YIELD) return 1;
  sched_yield();
  return clock_ns() < test->deadline_ns;
}

static uint32_t* slot_at(const struct host_comm* comm, int reader, int sender) {
  const size_t slot = (size_t)(sender < reader ? sender : sender - 1);
  return (uint32_t*)(void*)(comm->workspace[reader] + comm->layout.lamport + slot * comm->layout.lamport_slot);
}

static uint32_t* stage_at(const struct host_comm* comm, int writer, int reader) {
  return (uint32_t*)(void*)(comm->workspace[writer] + comm->layout.stage) + (size_t)reader * PEER_TEST_WORDS;
}

static void write_to(const struct host_comm* comm, int peer) {
  const int rank = comm->rank;
  uint32_t* slot = slot_at(comm, peer, rank);
  for (int i = 0; i < PEER_TEST_WORDS; ++i) {
    __atomic_store_n(&slot[i], PEER_TEST_WORD(rank, peer, PEER_TEST_LAMPORT, i), __ATOMIC_RELAXED);
  }
  for (int round = 0; round < PEER_TEST_ROUNDS; ++round) {
    uint32_t* data = slot + PEER_TEST_DATA(round);
    for (int i = 0; i < PEER_TEST_WORDS; ++i) data[i] = PEER_TEST_WORD(rank, peer, round, i);
    __atomic_store_n((uint64_t*)(void*)(slot + PEER_TEST_FLAG(round)), PEER_TEST_ARRIVED, __ATOMIC_RELEASE);
  }
}

static int words_right(const uint32_t* words, int from, int to, int kind) {
  for (int i = 0; i < PEER_TEST_WORDS; ++i) {
    if (words[i] != PEER_TEST_WORD(from, to, kind, i)) return 0;
  }
  return 1;
}

static int arrived_from(struct peer_test* test, int peer) {
  const int rank = test->comm->rank;
  const uint32_t* slot = slot_at(test->comm, rank, peer);
  for (int i = 0; i < PEER_TEST_WORDS; ++i) {
    uint32_t word;
    while ((word = __atomic_load_n(&slot[i], __ATOMIC_RELAXED)) == KERNEL_SENTINEL) {
      if (!look_again(test)) return 0;
    }
    if (word != PEER_TEST_WORD(peer, rank, PEER_TEST_LAMPORT, i)) return 0;
  }
  for (int round = 0; round < PEER_TEST_ROUNDS; ++round) {
    const uint64_t* flag = (const uint64_t*)(const void*)(slot + PEER_TEST_FLAG(round));
    while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) != PEER_TEST_ARRIVED) {
      if (!look_again(test)) return 0;
    }
    if (!words_right(slot + PEER_TEST_DATA(round), peer, rank, round)) return 0;
  }
  return words_right(stage_at(test->comm, peer, rank), peer, rank, PEER_TEST_STAGE);
}

int host_peer_test(const struct host_comm* comm, uint32_t lost, uint64_t limit_ns) {
  struct peer_test test = {.comm = comm, .deadline_ns = clock_ns() + limit_ns};
  int failed = -1;
  for (int r = 0; r < comm->nranks; ++r) {
    uint32_t* stage = stage_at(comm, comm->rank, r);
    for (int i = 0; i < PEER_TEST_WORDS; ++i) stage[i] = PEER_TEST_WORD(comm->rank, r, PEER_TEST_STAGE, i);
  }
  for (int r = 0; r < comm->nranks; ++r) {
    if (r != comm->rank && !(lost >> r & 1)) write_to(comm, r);
  }
  for (int r = comm->nranks - 1; r >= 0; --r) {
    if (r == comm->rank) continue;
    if (!arrived_from(&test, r)) failed = r;
    uint32_t* slot = slot_at(comm, comm->rank, r);
    for (int i = 0; i < PEER_TEST_SLOT_WORDS; ++i) __atomic_store_n(&slot[i], KERNEL_SENTINEL, __ATOMIC_RELAXED);
  }
  return failed;
}
