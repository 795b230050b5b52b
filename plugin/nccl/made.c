/* SPDX-License-Identifier: Apache-2.0
 *
 * made.c: see made.h.
 */
#include "plugin/nccl/made.h"

#include <stdlib.h>

#include "plugin/nccl/last_error.h"
#include "plugin/core/log.h"
#include "plugin/nccl/nccl_abi.h"
#include "plugin/nccl/setup.h"

/* Nonblocking children whose pointers have not been met yet. */
static atomic_int unmet;

int made_set_up(const struct made* made, int count) {
  struct state** states = calloc((size_t)count, sizeof(struct state*));
  int waiting = 0, result = NCCL_SUCCESS;
  if (!states) return last_error_keep(NCCL_SYSTEM_ERROR, "out of memory to set communicators up");
  for (int i = 0; i < count; ++i) {
    if (!made[i].nccl) {
      if (!made[i].blocking) atomic_fetch_add(&unmet, 1);
      continue;
    }
    struct state* state = state_add(made[i].nccl, made[i].blocking, made[i].blocking ? STATE_STARTING : STATE_LATER);
    if (!state) {
      result = last_error_keep(NCCL_SYSTEM_ERROR, "out of memory to set a communicator up");
    } else if (made[i].blocking) {
      states[waiting++] = state;
    } else {
      state_put(state);
    }
  }
  if (waiting) {
    const int set_up = setup_run_all(states, waiting);
    if (set_up) result = last_error_keep(set_up, error_last());
  }
  for (int i = 0; i < waiting; ++i) state_put(states[i]);
  free(states);
  return result;
}

struct state* made_state(void* nccl) {
  if (!nccl) return NULL;
  struct state* state = state_get(nccl);
  int left = atomic_load(&unmet);
  if (state || left == 0) return state;
  while (left > 0 && !atomic_compare_exchange_weak(&unmet, &left, left - 1)) continue;
  return left > 0 ? state_add(nccl, 0, STATE_LATER) : NULL;
}
