/* SPDX-License-Identifier: Apache-2.0
 *
 * made.c: see made.h.
 */
#include "plugin/nccl/made.h"

#include <stdlib.h>

#include "plugin/nccl/last_error.h"
#include "plugin/nccl/nccl_abi.h"
#include "plugin/nccl/setup.h"

int made_set_up(struct made* made, int count) {
  struct state** states = calloc((size_t)count, sizeof(struct state*));
  int waiting = 0, result = NCCL_SUCCESS;
  if (!states) return last_error_keep(NCCL_SYSTEM_ERROR, "out of memory to set communicators up");
  for (int i = 0; i < count; ++i) {
    if (!made[i].nccl) continue;
    struct state* state = state_add(made[i].nccl, made[i].blocking, made[i].later ? STATE_LATER : STATE_STARTING);
    if (!state) {
      result = last_error_keep(NCCL_SYSTEM_ERROR, "out of memory to set a communicator up");
    } else if (made[i].later) {
      state_put(state);
    } else {
      states[waiting++] = state;
    }
  }
  if (waiting) {
    const int set_up = waiting == 1 ? setup_run(states[0]) : setup_run_all(states, waiting);
    if (set_up) result = last_error_keep(set_up, NULL);
  }
  for (int i = 0, put = 0; put < waiting; ++i) {
    if (made[i].nccl != states[put]->nccl) continue;
    if (atomic_load(&states[put]->cancelled)) made[i].nccl = NULL;
    state_put(states[put++]);
  }
  free(states);
  return result;
}
