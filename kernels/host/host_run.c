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

static __attribute__((noinline)) void task_epilogue(struct host_task* task) {
  alignas(32) float acc[HOST_SEGMENT];
  for (int64_t index = 0; index < task->units; index++) {
    struct host_unit unit = host_task_unit(task, index);
    task->compute->load(acc, host_task_input(task, &unit), unit.count);
    host_task_finish(task, &unit, acc);
  }
}

int host_run(struct host_comm* comm, arfusionAlgorithm_t algorithm, const struct kernel_op* op) {
  struct host_task task;
  fp_mode saved;

  assert(algorithm == arfusionAlgoOneshotLamport || algorithm == arfusionAlgoOneshotSync ||
         algorithm == arfusionAlgoTwoshot);
  assert((size_t)kernel_slot_bytes(op->tokens, op->hidden, op->dtype) <=
         host_layout_launch_bytes(&comm->layout, algorithm));
  if (comm->failure.kind != KERNEL_FAILURE_NONE) return -1;
  host_task_start(&task, comm, algorithm, op);
  if (host_wait_check(&task)) return -1;
  fp_mode_enter(&saved);
  int result = task_run(&task);
  fp_mode_leave(&saved);
  return result;
}

void host_epilogue(const struct kernel_op* op) {
  struct host_task task;
  fp_mode saved;

  host_task_start(&task, NULL, arfusionAlgoNone, op);
  fp_mode_enter(&saved);
  task_epilogue(&task);
  fp_mode_leave(&saved);
}
