/* SPDX-License-Identifier: Apache-2.0
 *
 * host_lamport.c: one-shot Lamport. Each rank writes its input into its slot in every peer's workspace; a word that is
 * not the sentinel has arrived.
 *
 * Two buffers, used in turn, are enough. A slot of operation n is used again in n+2. Its sender goes on to n+2 after it
 * has received all of the reader's n+1, which the reader sent after it had read and cleared all of its n. The fences
 * make this order hold where processors reorder: what the reader cleared before its release fence is seen as cleared by
 * who has read a word sent after it and has passed an acquire fence.
 */
#include "kernels/host/host_internal.h"

/* Bytes sent ahead of what is being received: the peers' rows travel while the own ones are computed. */
#define CHUNK_BYTES 65536

#pragma GCC diagnostic push
#if defined(__SANITIZE_THREAD__)
#pragma GCC diagnostic ignored "-Wtsan" /* fences are not modelled; slot words are only touched atomically anyway */
#endif
static void fence_release(void) { atomic_thread_fence(memory_order_release); }
static void fence_acquire(void) { atomic_thread_fence(memory_order_acquire); }
#pragma GCC diagnostic pop

static unsigned char* slot_at(const struct host_task* task, int reader, int sender) {
  const struct host_comm* comm = task->comm;
  size_t buffer = (size_t)(task->epoch & 1) * ((size_t)comm->nranks - 1);
  size_t slot = buffer + (size_t)(sender < reader ? sender : sender - 1);
  return comm->workspace[reader] + comm->layout.lamport + slot * comm->layout.lamport_slot;
}

static void send_units(const struct host_task* task, int64_t begin, int64_t end) {
  const struct host_comm* comm = task->comm;
  for (int i = 1; i < comm->nranks; i++) {
    int peer = (comm->rank + i) % comm->nranks;
    host_task_copy_input(task, slot_at(task, peer, comm->rank), begin, end, task->compute->send);
  }
}

static int receive_unit(const struct host_task* task, int peer, int64_t index, const struct host_unit* unit, float* acc,
                        int first) {
  unsigned char* slot = slot_at(task, task->comm->rank, peer) + unit->packed * task->element;
  int done = task->compute->receive(acc, slot, 0, unit->count, first);
  if (done >= unit->count) return 0;
  struct host_wait wait = {.task = task, .peer = peer, .unit = index};
  while (done < unit->count) {
    if (host_wait_again(&wait)) return -1;
    done = task->compute->receive(acc, slot, done, unit->count, first);
  }
  return 0;
}

static int reduce_unit(struct host_task* task, int64_t index) {
  const struct host_comm* comm = task->comm;
  struct host_unit unit = host_task_unit(task, index);
  alignas(32) float acc[HOST_SEGMENT];

  for (int r = 0; r < comm->nranks; r++) {
    if (r == comm->rank) {
      const void* own = host_task_input(task, &unit);
      task->compute->sum(acc, &own, 1, unit.count, r == 0);
    } else if (receive_unit(task, r, index, &unit, acc, r == 0)) {
      return -1;
    }
  }
  host_task_finish(task, &unit, acc);
  return 0;
}

int host_lamport_run(struct host_task* task) {
  struct host_comm* comm = task->comm;
  int64_t chunk = comm->yield ? task->units : CHUNK_BYTES / (HOST_SEGMENT * task->element);
  int64_t sent = 0;

  fence_release();
  for (int64_t unit = 0; unit < task->units; unit++) {
    if (unit % chunk == 0) {
      int64_t end = unit + 2 * chunk < task->units ? unit + 2 * chunk : task->units;
      send_units(task, sent, end);
      sent = end;
    }
    if (reduce_unit(task, unit)) return -1;
  }
  fence_acquire();
  comm->lamport_epoch++;
  return 0;
}
