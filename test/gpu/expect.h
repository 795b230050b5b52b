/* SPDX-License-Identifier: Apache-2.0
 *
 * expect.h: what the tests straight on the launchers count.
 */
#ifndef ARFUSION_TEST_GPU_EXPECT_H_
#define ARFUSION_TEST_GPU_EXPECT_H_

#include <stdint.h>
#include <stdio.h>

#include "kernels/op.h"

static int passed, failed;
static arfusionAlgorithm_t algorithm; /* that operations are planned for; arfusionAlgoAuto: drawn */

static void expect(int ok, const char* what) {
  if (ok) ++passed;
  else ++failed;
  if (!ok) printf("FAILED: %s, algorithm %d\n", what, (int)algorithm);
  fflush(stdout);
}

#endif
