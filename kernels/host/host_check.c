/* SPDX-License-Identifier: Apache-2.0
 *
 * host_check.c: what a communicator may be asked to look for besides doing its work: ranks that were asked for
 * different things, and NaNs.
 *
 * Each rank shows its call in its own workspace, and reads the others'. One place a rank is enough: it shows the next
 * call when its operation has ended, which all others had begun by then, having ended their check.
 */
#include <string.h>

#include "kernels/host/host_internal.h"
#include "kernels/nan.h"

static void call_show(struct host_comm* comm, const struct kernel_call* call) {
  struct host_control* control = host_comm_control(comm, comm->rank);
  uint64_t words[HOST_CALL_WORDS];
  memcpy(words, call, sizeof words);
  for (size_t i = 0; i < HOST_CALL_WORDS; i++) atomic_store_explicit(&control->call[i], words[i], memory_order_relaxed);
  atomic_store_explicit(&control->checked, ++comm->checked, memory_order_release);
}

/* Whether `rank` has shown its call. */
static int call_read(const struct host_comm* comm, int rank, struct kernel_call* call) {
  struct host_control* control = host_comm_control(comm, rank);
  uint64_t words[HOST_CALL_WORDS];
  if (atomic_load_explicit(&control->checked, memory_order_acquire) < comm->checked) return 0;
  for (size_t i = 0; i < HOST_CALL_WORDS; i++) words[i] = atomic_load_explicit(&control->call[i], memory_order_relaxed);
  memcpy(call, words, sizeof words);
  return 1;
}

/* Those that have come are compared before any wait: whoever disagrees with one of them need not wait for the rest. */
int host_check(struct host_comm* comm, arfusionAlgorithm_t algorithm, const struct kernel_call* call) {
  struct host_task task = {.comm = comm, .algorithm = algorithm, .epoch = host_task_epoch(comm, algorithm)};
  struct host_wait wait = {.task = &task};
  int agreed[ARFUSION_MAX_RANKS] = {0};

  if (comm->failure.kind != KERNEL_FAILURE_NONE) return -1;
  call_show(comm, call);
  agreed[comm->rank] = 1;
  for (;;) {
    wait.peer = -1;
    for (int r = comm->nranks - 1; r >= 0; r--) {
      struct kernel_call theirs;
      if (agreed[r]) continue;
      if (!call_read(comm, r, &theirs))
        wait.peer = r;
      else if (memcmp(&theirs, call, sizeof theirs) != 0)
        return host_wait_disagree(&task, r, call, &theirs);
      else
        agreed[r] = 1;
    }
    if (wait.peer < 0) return 0;
    if (host_wait_again(&wait)) return -1;
  }
}

static uint32_t element_bits(const struct nan_tensor* t, int64_t row, uint32_t column) {
  const unsigned char* at = t->base + row * t->stride + (size_t)column * t->size;
  uint32_t wide;
  uint16_t narrow;
  if (t->size == 1) return *at;
  if (t->size == 2) return memcpy(&narrow, at, sizeof narrow), narrow;
  return memcpy(&wide, at, sizeof wide), wide;
}

void host_nan_count(const struct kernel_op* op, int written, uint64_t counts[KERNEL_NAN_PLACES]) {
  struct nan_tensor tensors[NAN_TENSORS];
  const int n = nan_tensors(op, written, tensors);
  for (int i = 0; i < n; i++) {
    const struct nan_tensor* t = &tensors[i];
    for (int64_t row = 0; row < t->rows; row++) {
      const uint32_t columns = row + 1 < t->rows ? t->columns : t->last;
      for (uint32_t c = 0; c < columns; c++) counts[t->place] += (element_bits(t, row, c) & t->mask) > t->limit;
    }
  }
}
