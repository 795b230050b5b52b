/* SPDX-License-Identifier: Apache-2.0
 *
 * test_enqueue_cost.c: an operation on the host device makes no system call, but for giving the processor away while it
 * waits, and allocates nothing. The kernel ends a rank that does anything else.
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "arfusion_plugin.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1 /* the sanitizers' own run time makes calls */
#else
#define SANITIZED 0
#endif

enum { HIDDEN = 2048, LARGEST = 96, ROUNDS = 200 };

extern const arfusionPlugin_v1_t arfusionPlugin_v1;
static const arfusionPlugin_v1_t* const plugin = &arfusionPlugin_v1;

static int allow_only_yield(void) {
#define ALLOW(call) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (call), 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
  struct sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      ALLOW(SYS_sched_yield),
      ALLOW(SYS_exit_group),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
  };
  const struct sock_fprog filter = {.len = sizeof program / sizeof program[0], .filter = program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter);
}

static int operations(void* comm, float* memory, int rounds) {
  float *input = memory, *residual = input + LARGEST * HIDDEN, *norm = residual + LARGEST * HIDDEN,
        *gamma = norm + LARGEST * HIDDEN;
  for (int k = 0; k < rounds; ++k) {
    static const arfusionAlgorithm_t hints[] = {arfusionAlgoOneshotLamport, arfusionAlgoOneshotSync,
                                                arfusionAlgoTwoshot, arfusionAlgoAuto};
    arfusionRequest_t request = {.size = sizeof request,
                                 .pattern = arfusionPatternResidualRmsNorm,
                                 .dataType = arfusionFloat32,
                                 .gammaDataType = arfusionFloat32,
                                 .tokens = 1 + k % LARGEST,
                                 .hidden = HIDDEN,
                                 .algorithmHint = hints[k % 4],
                                 .eps = 1e-5f,
                                 .input = input,
                                 .residualIn = residual,
                                 .gamma = gamma,
                                 .residualOut = residual,
                                 .normOut = norm};
    arfusionRoute_t route = {.size = sizeof route};
    if (plugin->enqueue(comm, &request, NULL, &route) || route.algorithm == arfusionAlgoNone) return 1;
    request.operation = arfusionMax; /* so is turning a request down, once it has been logged */
    if (plugin->enqueue(comm, &request, NULL, &route) || route.reason != arfusionReasonOperation) return 2;
  }
  return 0;
}

static int rank_run(const arfusionUniqueId_t* id, int rank) {
  void *ctx, *comm;
  arfusionBootstrap_t bootstrap = {.size = sizeof bootstrap};
  float* memory = calloc((3 * LARGEST + 1) * HIDDEN, sizeof(float));
  if (!memory || plugin->init(&ctx, NULL) || plugin->bootstrapUniqueId(ctx, id, 2, rank, &bootstrap)) return 10;
  if (plugin->commInit(ctx, 0, NULL, &bootstrap, &comm) || operations(comm, memory, 8)) return 11;
  if (SANITIZED) return operations(comm, memory, ROUNDS);
  const struct mallinfo2 before = mallinfo2();
  if (allow_only_yield()) return 12;
  const int failed = operations(comm, memory, ROUNDS);
  const struct mallinfo2 after = mallinfo2();
  return failed ? failed : after.uordblks != before.uordblks || after.hblkhd != before.hblkhd;
}

static void operations_make_no_system_call_and_allocate_nothing(void** state) {
  arfusionUniqueId_t id;
  pid_t children[2];
  void* ctx;
  (void)state;
  setenv("ARFUSION_DEVICE", "host", 1);
  assert_int_equal(plugin->init(&ctx, NULL), arfusionSuccess);
  assert_int_equal(plugin->getUniqueId(ctx, &id), arfusionSuccess);
  for (int r = 0; r < 2; ++r) {
    children[r] = fork();
    assert_true(children[r] >= 0);
    if (children[r] == 0) syscall(SYS_exit_group, rank_run(&id, r));
  }
  for (int r = 0; r < 2; ++r) {
    int status;
    assert_int_equal(waitpid(children[r], &status, 0), children[r]);
    if (!WIFEXITED(status)) fail_msg("rank %d was ended by signal %d", r, WTERMSIG(status));
    assert_int_equal(WEXITSTATUS(status), 0);
  }
  plugin->finalize(ctx);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(operations_make_no_system_call_and_allocate_nothing)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
