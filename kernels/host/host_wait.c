/* SPDX-License-Identifier: Apache-2.0
 *
 * host_wait.c: waiting for other ranks, and giving up. Every spin of the host kernels goes through here: it watches the
 * communicator's abort word, the fail word that peers set, and the time.
 */
#include <sched.h>
#include <string.h>
#include <time.h>

#include "kernels/host/host_internal.h"

#define POLLS_BETWEEN_CHECKS 256
#define POLLS_BETWEEN_CHECKS_YIELD 8 /* each one may take as long as the other ranks' time slices */
#define POLLS_BEFORE_YIELD_CROWDED 4 /* ranks outnumber processors */
#define POLLS_BEFORE_YIELD 1000      /* some 20 µs: another process may have the processor that the peer needs */

static uint64_t clock_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline void cpu_relax(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

static void comm_tell_peers(const struct host_comm* comm) {
  for (int r = 0; r < comm->nranks; r++) {
    uint32_t none = 0;
    atomic_compare_exchange_strong(&host_comm_control(comm, r)->fail, &none, (uint32_t)comm->rank + 1);
  }
}

void host_comm_abort(struct host_comm* comm) {
  atomic_store(&comm->abort, 1);
  comm_tell_peers(comm);
}

static int64_t task_token(const struct host_task* task, int64_t unit) {
  if (!task->op) return KERNEL_TOKEN_CHECK;
  struct host_unit where = host_task_unit(task, unit);
  return task->op->pattern == arfusionPatternAllReduce ? where.column / KERNEL_PACK : where.row;
}

/* The kind is written last: who sees one (commGetAsyncError, from any thread) sees the rest. */
static int task_fail(const struct host_task* task, enum kernel_failure_kind kind, int peer, int64_t unit) {
  struct host_comm* comm = task->comm;
  struct kernel_failure* failure = &comm->failure;

  failure->algorithm = task->algorithm;
  failure->rank = (uint32_t)comm->rank;
  failure->peer = (uint32_t)peer;
  failure->epoch = task->epoch;
  failure->token = task_token(task, unit);
  __atomic_store_n(&failure->kind, (uint32_t)kind, __ATOMIC_RELEASE);
  /* Of a disagreement each rank finds out by itself, and then knows more. */
  if (kind != KERNEL_FAILURE_REMOTE && kind != KERNEL_FAILURE_DISAGREE) comm_tell_peers(comm);
  return -1;
}

int host_wait_disagree(const struct host_task* task, int peer, const struct kernel_call* own,
                       const struct kernel_call* theirs) {
  task->comm->failure.own = *own;
  task->comm->failure.theirs = *theirs;
  return task_fail(task, KERNEL_FAILURE_DISAGREE, peer, 0);
}

/* The own abort goes first: it sets the fail word too. */
static int task_check(const struct host_task* task, int peer, int64_t unit) {
  struct host_comm* comm = task->comm;
  if (atomic_load_explicit(&comm->abort, memory_order_relaxed))
    return task_fail(task, KERNEL_FAILURE_ABORT, peer, unit);
  uint32_t fail = atomic_load_explicit(&host_comm_control(comm, comm->rank)->fail, memory_order_relaxed);
  return fail ? task_fail(task, KERNEL_FAILURE_REMOTE, (int)fail - 1, unit) : 0;
}

int host_wait_check(const struct host_task* task) { return task_check(task, task->comm->rank, 0); }

int host_wait_again(struct host_wait* wait) {
  struct host_comm* comm = wait->task->comm;
  uint32_t polls = ++wait->polls;

  const int yielding = polls > (comm->yield ? POLLS_BEFORE_YIELD_CROWDED : POLLS_BEFORE_YIELD);
  if (yielding)
    sched_yield();
  else
    cpu_relax();
  if (polls % (yielding ? POLLS_BETWEEN_CHECKS_YIELD : POLLS_BETWEEN_CHECKS)) return 0;
  if (task_check(wait->task, wait->peer, wait->unit)) return -1;
  if (comm->timeout_ns) {
    uint64_t now = clock_ns();
    if (!wait->start_ns)
      wait->start_ns = now;
    else if (now - wait->start_ns >= comm->timeout_ns)
      return task_fail(wait->task, KERNEL_FAILURE_TIMEOUT, wait->peer, wait->unit);
  }
  return 0;
}

int host_wait_flag(const struct host_task* task, int peer, const _Atomic uint64_t* flag, uint64_t target,
                   int64_t unit) {
  if (atomic_load_explicit(flag, memory_order_acquire) >= target) return 0;
  struct host_wait wait = {.task = task, .peer = peer, .unit = unit};
  while (atomic_load_explicit(flag, memory_order_acquire) < target)
    if (host_wait_again(&wait)) return -1;
  return 0;
}
