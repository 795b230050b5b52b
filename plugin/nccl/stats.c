/* SPDX-License-Identifier: Apache-2.0
 *
 * stats.c: see stats.h.
 */
#include "plugin/nccl/stats.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "plugin/core/names.h"

enum { SIZES = 64 };

static atomic_int enabled, forked;
static _Atomic uint64_t taken[SIZES]; /* [i]: up to 2^i bytes */
static _Atomic uint64_t left[STATS_REASONS];

void stats_taken(size_t bytes) {
  const int size = bytes <= 1 ? 0 : SIZES - __builtin_clzll((unsigned long long)bytes - 1);
  atomic_fetch_add_explicit(&taken[size], 1, memory_order_relaxed);
}

void stats_left(int reason) { atomic_fetch_add_explicit(&left[reason], 1, memory_order_relaxed); }

static void forget(void) {
  for (int i = 0; i < SIZES; ++i) atomic_store(&taken[i], 0);
  for (int i = 0; i < STATS_REASONS; ++i) atomic_store(&left[i], 0);
  atomic_store(&forked, 1);
}

/* A forked process has not made its parent's calls. */
void stats_enable(void) {
  if (pthread_atfork(NULL, NULL, forget) == 0) atomic_store(&enabled, 1);
}

static const char* reason_text(int reason) {
  switch (reason) {
    case STATS_IN_COMPANY: return "not the only collective of its communicator in its group";
    case STATS_NO_PLUGIN: return "its communicator could not be set up with the plugin";
    case STATS_NOT_SERVED: return "its communicator is not one of those that are served";
    case STATS_NOTHING_TO_DO: return "count 0";
    case STATS_INVALID: return "a buffer or the communicator is NULL, or the count too large";
    default: return name_of_reason((arfusionReason_t)reason);
  }
}

static uint64_t sum(const _Atomic uint64_t* counters, int count) {
  uint64_t all = 0;
  for (int i = 0; i < count; ++i) all += atomic_load(&counters[i]);
  return all;
}

__attribute__((destructor)) static void stats_print(void) {
  char host[64] = "";
  const uint64_t ours = sum(taken, SIZES), nccls = sum(left, STATS_REASONS);
  if (!atomic_load(&enabled) || (atomic_load(&forked) && ours + nccls == 0)) return;
  gethostname(host, sizeof host - 1);
  host[strcspn(host, ".")] = '\0';
  const int pid = (int)getpid();
  fprintf(stderr, "ARFUSION_STATS %s:%d: %llu ncclAllReduce, %llu taken, %llu left to NCCL\n", host, pid,
          (unsigned long long)(ours + nccls), (unsigned long long)ours, (unsigned long long)nccls);
  for (int i = 0; i < SIZES; ++i) {
    const unsigned long long calls = atomic_load(&taken[i]);
    if (calls) fprintf(stderr, "ARFUSION_STATS %s:%d: taken, up to %llu bytes: %llu\n", host, pid, 1ull << i, calls);
  }
  for (int i = 0; i < STATS_REASONS; ++i) {
    const unsigned long long calls = atomic_load(&left[i]);
    if (calls) fprintf(stderr, "ARFUSION_STATS %s:%d: left to NCCL, %s: %llu\n", host, pid, reason_text(i), calls);
  }
}
