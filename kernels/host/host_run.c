/* SPDX-License-Identifier: Apache-2.0
 *
 * host_run.c: the entry points. The numerics need round-to-nearest and subnormals, whatever mode the caller computes
 * in.
 */
#include <assert.h>

#include "kernels/host/host_internal.h"

#if defined(__x86_64__) || defined(__i386__)
#include <xmmintrin.h>

#define MXCSR_DEFAULT 0x1f80u /* round to nearest, no exceptions, neither flush-to-zero nor denormals-are-zero */

typedef unsigned int fp_mode;
static void fp_mode_enter(fp_mode* saved) {
  *saved = _mm_getcsr();
  _mm_setcsr(MXCSR_DEFAULT);
}
static void fp_mode_leave(const fp_mode* saved) { _mm_setcsr(*saved); }
#else
#include <fenv.h>

typedef fenv_t fp_mode;
static void fp_mode_enter(fp_mode* saved) {
  fegetenv(saved);
  fesetenv(FE_DFL_ENV);
}
static void fp_mode_leave(const fp_mode* saved) { fesetenv(saved); }
#endif

/* The compiler does not know that arithmetic depends on the mode: it must not move any across the switch. */
static __attribute__((noinline)) int task_run(struct host_task* task) {
  switch (task->algorithm) {
    case arfusionAlgoOneshotLamport: return host_lamport_run(task);
    case arfusionAlgoOneshotSync: return host_oneshot_sync_run(task);
    default: return host_twoshot_run(task);
  }
}

static __attribute__((noinline)) int task_epilogue(struct host_task* task) {
  alignas(32) float acc[HOST_SEGMENT];
  for (int64_t index = 0; index < task->units; index++) {
    struct host_unit unit = host_task_unit(task, index);
    task->compute->load(acc, host_task_input(task, &unit), unit.count);
    host_task_finish(task, &unit, acc);
  }
  return 0;
}

/* With room for a row on the stack, where the task needs it. */
static int task_run_with_row(struct host_task* task, int (*run)(struct host_task* task)) {
  alignas(32) unsigned char row[task->row_packed * task->element]; /* 256 KiB at most */
  task->row = row;
  return run(task);
}

static int task_do(struct host_task* task, int (*run)(struct host_task* task)) {
  const struct kernel_op* op = task->op;
  fp_mode saved;
  fp_mode_enter(&saved);
  int result = op->quant_out && !op->norm_out ? task_run_with_row(task, run) : run(task);
  fp_mode_leave(&saved);
  return result;
}

int host_run(struct host_comm* comm, arfusionAlgorithm_t algorithm, const struct kernel_op* op) {
  struct host_task task;

  assert(algorithm == arfusionAlgoOneshotLamport || algorithm == arfusionAlgoOneshotSync ||
         algorithm == arfusionAlgoTwoshot);
  assert((size_t)kernel_slot_bytes(op->tokens, op->hidden, op->dtype) <=
         host_layout_launch_bytes(&comm->layout, algorithm));
  if (comm->failure.kind != KERNEL_FAILURE_NONE) return -1;
  host_task_start(&task, comm, algorithm, op);
  if (host_wait_check(&task)) return -1;
  return task_do(&task, task_run);
}

void host_epilogue(const struct kernel_op* op) {
  struct host_task task;

  host_task_start(&task, NULL, arfusionAlgoNone, op);
  task_do(&task, task_epilogue);
}
