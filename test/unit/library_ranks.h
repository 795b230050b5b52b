/* SPDX-License-Identifier: Apache-2.0
 *
 * library_ranks.h: ranks for the tests of libarfusion: processes, as the library is opened once in each.
 */
#ifndef ARFUSION_TEST_LIBRARY_RANKS_H_
#define ARFUSION_TEST_LIBRARY_RANKS_H_

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "test/unit/support.h"

/* Runs `function` on each rank; all must succeed. */
static inline void library_ranks_run(int nranks, support_function function, void* argument,
                                     struct support_outcome* outcomes) {
  support_processes(nranks, function, argument, outcomes);
  for (int r = 0; r < nranks; ++r) {
    if (!outcomes[r].ended || outcomes[r].result != arfusionSuccess) {
      fail_msg("rank %d: %s, %d, %s", r, outcomes[r].ended ? "ended" : "died", outcomes[r].result, outcomes[r].text);
    }
  }
}

/* An id that they all get; made without opening the library here. */
static inline arfusionUniqueId_t library_unique_id(void) {
  arfusionUniqueId_t id;
  void* ctx = support_context();
  assert_int_equal(arfusionPlugin_v1.getUniqueId(ctx, &id), arfusionSuccess);
  arfusionPlugin_v1.finalize(ctx);
  return id;
}

#endif
