/* SPDX-License-Identifier: Apache-2.0
 *
 * host_sync.c: the algorithms that order themselves by flags. In both, a rank copies its input into one half of its
 * `stage` once, and says so in `staged`.
 *   one-shot sync  every rank reads all inputs.
 *   two-shot       every rank reduces its share of the packs into one half of its `sums`, says so in `reduced`, and
 *                  reads the others' sums.
 * Both work piece by piece, so that one piece is copied while the peers' copies of the one before are on their way.
 *
 * Two halves, used in turn by both algorithms, are enough, with no barrier at the end. What a rank wrote for operation
 * n is overwritten in its n+2. It gets there after its n+1, in which it has waited for a `staged` of every peer (at the
 * least for the first piece, also of peers whose share is empty) that the peer set after its n had ended: release and
 * acquire order all that the peer read for n before what is now written.
 */
#include "kernels/host/host_internal.h"

#define ONESHOT_PIECE_BYTES 32768
#define TWOSHOT_SHARE_UNITS 32 /* all ranks must use the same pieces: nothing local may decide */
#define SHARE_ALIGN_PACKS 8    /* shares begin on their own cache lines */

/* The counters' values when the operation began are the same on all ranks, so that a target needs no talk. */
struct sync_pass {
  struct host_task* task;
  struct host_control* own;
  size_t stage, sums; /* this operation's halves */
  uint64_t staged, reduced;
};

static struct sync_pass sync_start(struct host_task* task) {
  const struct host_comm* comm = task->comm;
  const struct host_layout* layout = &comm->layout;
  struct host_control* own = host_comm_control(comm, comm->rank);

  size_t half = (size_t)(task->epoch & 1) * layout->sync_slot;
  return (struct sync_pass){.task = task,
                            .own = own,
                            .stage = layout->stage + half,
                            .sums = layout->sums + half,
                            .staged = atomic_load_explicit(&own->staged, memory_order_relaxed),
                            .reduced = atomic_load_explicit(&own->reduced, memory_order_relaxed)};
}

static void stage_piece(const struct sync_pass* pass, int64_t begin, int64_t end) {
  const struct host_comm* comm = pass->task->comm;
  host_task_stage(pass->task, comm->workspace[comm->rank] + pass->stage, begin, end);
  atomic_store_explicit(&pass->own->staged, pass->staged + (uint64_t)end, memory_order_release);
}

static int wait_staged(const struct sync_pass* pass, int64_t begin, int64_t end) {
  const struct host_comm* comm = pass->task->comm;
  for (int r = 0; r < comm->nranks; r++)
    if (r != comm->rank && host_wait_flag(pass->task, r, &host_comm_control(comm, r)->staged,
                                          pass->staged + (uint64_t)end, begin))
      return -1;
  return 0;
}

static int64_t piece_end(const struct host_task* task, int64_t begin, int64_t piece) {
  return task->units - begin < piece ? task->units : begin + piece;
}

static void oneshot_unit(const struct sync_pass* pass, int64_t index) {
  struct host_task* task = pass->task;
  const struct host_comm* comm = task->comm;
  struct host_unit unit = host_task_unit(task, index);
  const void* source[ARFUSION_MAX_RANKS];
  alignas(32) float acc[HOST_SEGMENT];

  for (int r = 0; r < comm->nranks; r++) source[r] = comm->workspace[r] + pass->stage + unit.packed * task->element;
  source[comm->rank] = host_task_input(task, &unit);
  task->compute->sum(acc, source, comm->nranks, unit.count, 1);
  host_task_finish(task, &unit, acc);
}

int host_oneshot_sync_run(struct host_task* task) {
  struct host_comm* comm = task->comm;
  struct sync_pass pass = sync_start(task);
  int64_t piece = comm->yield ? task->units : ONESHOT_PIECE_BYTES / (HOST_SEGMENT * task->element);

  stage_piece(&pass, 0, piece_end(task, 0, piece));
  for (int64_t begin = 0, end; begin < task->units; begin = end) {
    end = piece_end(task, begin, piece);
    if (end < task->units) stage_piece(&pass, end, piece_end(task, end, piece));
    if (wait_staged(&pass, begin, end)) return -1;
    for (int64_t unit = begin; unit < end; unit++) oneshot_unit(&pass, unit);
  }
  comm->sync_epoch++;
  return 0;
}

/* A piece's place in a slot and the elements of it that each rank reduces; the last ranks may have less or none. */
struct share {
  int64_t begin, end; /* elements */
  int64_t each;
};

static struct share share_of(const struct host_task* task, int64_t begin, int64_t end) {
  struct share share = {.begin = host_task_packed(task, begin), .end = host_task_packed(task, end)};
  int64_t align = SHARE_ALIGN_PACKS * KERNEL_PACK;
  int64_t each = (share.end - share.begin + task->comm->nranks - 1) / task->comm->nranks;
  share.each = (each + align - 1) / align * align;
  return share;
}

static int64_t share_clip(const struct share* share, int rank) {
  int64_t at = share->begin + rank * share->each;
  return at < share->end ? at : share->end;
}

static void twoshot_reduce(const struct sync_pass* pass, int64_t begin, int64_t end) {
  const struct host_task* task = pass->task;
  const struct host_comm* comm = task->comm;
  struct share share = share_of(task, begin, end);
  int64_t stop = share_clip(&share, comm->rank + 1);
  const void* source[ARFUSION_MAX_RANKS];
  alignas(32) float acc[HOST_SEGMENT];

  for (int64_t at = share_clip(&share, comm->rank); at < stop; at += HOST_SEGMENT) {
    int n = stop - at < HOST_SEGMENT ? (int)(stop - at) : HOST_SEGMENT;
    for (int r = 0; r < comm->nranks; r++) source[r] = comm->workspace[r] + pass->stage + at * task->element;
    task->compute->sum(acc, source, comm->nranks, n, 1);
    task->compute->store(comm->workspace[comm->rank] + pass->sums + at * task->element, acc, n);
  }
  atomic_store_explicit(&pass->own->reduced, pass->reduced + (uint64_t)end, memory_order_release);
}

static int wait_reduced(const struct sync_pass* pass, int64_t begin, int64_t end) {
  const struct host_comm* comm = pass->task->comm;
  for (int r = 0; r < comm->nranks; r++)
    if (r != comm->rank && host_wait_flag(pass->task, r, &host_comm_control(comm, r)->reduced,
                                          pass->reduced + (uint64_t)end, begin))
      return -1;
  return 0;
}

/* A unit may lie in the shares of several ranks. */
static void twoshot_unit(const struct sync_pass* pass, const struct share* share, int64_t index) {
  struct host_task* task = pass->task;
  struct host_unit unit = host_task_unit(task, index);
  alignas(32) float acc[HOST_SEGMENT];

  for (int done = 0; done < unit.count;) {
    int64_t at = unit.packed + done;
    int owner = (int)((at - share->begin) / share->each);
    int64_t left = share_clip(share, owner + 1) - at;
    int n = left < unit.count - done ? (int)left : unit.count - done;
    task->compute->load(acc + done, task->comm->workspace[owner] + pass->sums + at * task->element, n);
    done += n;
  }
  host_task_finish(task, &unit, acc);
}

static int twoshot_collect(const struct sync_pass* pass, int64_t begin, int64_t end) {
  struct share share = share_of(pass->task, begin, end);
  if (wait_reduced(pass, begin, end)) return -1;
  for (int64_t unit = begin; unit < end; unit++) twoshot_unit(pass, &share, unit);
  return 0;
}

/* Three stages over the pieces, each one piece behind the stage before it. */
int host_twoshot_run(struct host_task* task) {
  struct host_comm* comm = task->comm;
  struct sync_pass pass = sync_start(task);
  int64_t piece = (int64_t)comm->nranks * TWOSHOT_SHARE_UNITS;

  for (int64_t begin = 0; begin < task->units + 2 * piece; begin += piece) {
    int64_t reduce = begin - piece, collect = begin - 2 * piece;
    if (begin < task->units) stage_piece(&pass, begin, piece_end(task, begin, piece));
    if (reduce >= 0 && reduce < task->units) {
      int64_t end = piece_end(task, reduce, piece);
      if (wait_staged(&pass, reduce, end)) return -1;
      twoshot_reduce(&pass, reduce, end);
    }
    if (collect >= 0 && collect < task->units && twoshot_collect(&pass, collect, piece_end(task, collect, piece)))
      return -1;
  }
  comm->sync_epoch++;
  return 0;
}
