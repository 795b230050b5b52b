/* SPDX-License-Identifier: Apache-2.0
 *
 * limit.h: a limit on a whole program, for waits that have none of their own.
 */
#ifndef ARFUSION_TEST_GPU_LIMIT_H_
#define ARFUSION_TEST_GPU_LIMIT_H_

#include <signal.h>
#include <unistd.h>

static inline void limit_reached(int signal_number) {
  static const char text[] = "FAILED: the time limit has been reached\n0 passed, 1 failed\n";
  (void)signal_number;
  _exit(write(STDOUT_FILENO, text, sizeof text - 1) < 0 ? 2 : 1);
}

/* This process ends as failed after so long. */
static inline void limit_start(unsigned seconds) {
  signal(SIGALRM, limit_reached);
  alarm(seconds);
}

#endif
