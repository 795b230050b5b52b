/* SPDX-License-Identifier: Apache-2.0
 *
 * group.c: see group.h. All of it belongs to one thread.
 */
#include "plugin/nccl/group.h"

#include <stdlib.h>

#include "plugin/nccl/children.h"
#include "plugin/nccl/last_error.h"
#include "plugin/nccl/real.h"
#include "plugin/nccl/setup.h"
#include "plugin/nccl/stats.h"

struct kept {
  struct allreduce call;
  struct state* state; /* with a reference */
  int reason;          /* arfusionReasonNone: it is taken */
};

struct counted {
  void* nccl;
  int collectives;
};

struct list {
  void* items;
  int count, room;
};

static _Thread_local struct {
  int depth, failed;
  struct list kept, counted, creations, ended; /* of struct kept, counted, made, state* */
} group;

/* Room for one more; NULL: out of memory, and then the whole group is left to NCCL. */
static void* list_add(struct list* list, size_t item_bytes) {
  if (list->count == list->room) {
    const int room = list->room ? 2 * list->room : 8;
    void* items = realloc(list->items, (size_t)room * item_bytes);
    if (!items) {
      group.failed = 1;
      return NULL;
    }
    list->items = items;
    list->room = room;
  }
  return (unsigned char*)list->items + (size_t)list->count++ * item_bytes;
}

static void list_clear(struct list* list) {
  free(list->items);
  *list = (struct list){0};
}

int group_is_open(void) { return group.depth > 0; }

void group_enter(void) { ++group.depth; }

int group_passed_on(int result) {
  if (group.depth && result && result != NCCL_IN_PROGRESS) group.failed = 1;
  return last_error_is_nccls(result);
}

static struct counted* counted_find(void* nccl) {
  struct counted* counted = group.counted.items;
  for (int i = 0; i < group.counted.count; ++i) {
    if (counted[i].nccl == nccl) return &counted[i];
  }
  return NULL;
}

void group_note_collective(void* nccl) {
  struct counted* counted = counted_find(nccl);
  if (!counted && (counted = list_add(&group.counted, sizeof *counted)) != NULL) *counted = (struct counted){nccl, 0};
  if (counted) ++counted->collectives;
}

void group_note_creation(const struct made* made) {
  struct made* creation = list_add(&group.creations, sizeof *creation);
  if (creation) *creation = *made;
}

void group_put_later(struct state* state) {
  struct state** place = state ? list_add(&group.ended, sizeof(struct state*)) : NULL;
  if (place) *place = state; /* without memory it stays, since NCCL's communicator is there until the end */
}

int group_allreduce(const struct allreduce* call, struct state* state) {
  int reason;
  const int checked = allreduce_check_state(state);
  if (checked) {
    group.failed = 1;
    return checked;
  }
  if (call->count) group_note_collective(call->nccl);
  if (allreduce_may_be_taken(call, state, &reason)) {
    struct kept* kept = list_add(&group.kept, sizeof *kept);
    if (kept) {
      *kept = (struct kept){*call, state_hold(state), arfusionReasonNone};
      return NCCL_SUCCESS;
    }
    reason = STATS_INVALID;
  }
  return group_passed_on(allreduce_leave(call, reason));
}

/* ---------------------------------------------------------------- the end */

/* Nonblocking communicators whose first allreduce this is. Set up here and now, since NCCL's group belongs to this
 * thread. */
static int kept_set_up(struct kept* kept, int count) {
  struct state** states = calloc((size_t)count, sizeof(struct state*));
  int waiting = 0;
  if (!states) return last_error_keep(NCCL_SYSTEM_ERROR, "out of memory to set communicators up");
  for (int i = 0; i < count; ++i) {
    if (kept[i].reason != arfusionReasonNone || atomic_load(&kept[i].state->phase) != STATE_LATER) continue;
    if (allreduce_can_start(&kept[i].call)) {
      states[waiting++] = kept[i].state;
    } else {
      kept[i].reason = arfusionReasonNotReady;
    }
  }
  const int result = waiting ? setup_run_all(states, waiting) : NCCL_SUCCESS;
  free(states);
  return result ? last_error_keep(result, NULL) : result;
}

static void keep_first(int* first_error, int result) {
  if (!*first_error && result != NCCL_IN_PROGRESS) *first_error = result;
}

/* Ours first: they wait for nothing of NCCL's. An error of one communicator keeps no other one's ranks waiting. */
static int kept_launch(void) {
  struct kept* kept = group.kept.items;
  const int count = group.kept.count;
  int first_error = NCCL_SUCCESS;
  for (int i = 0; i < count; ++i) {
    if (group.failed) {
      kept[i].reason = STATS_INVALID;
    } else if (counted_find(kept[i].call.nccl)->collectives > 1) {
      kept[i].reason = STATS_IN_COMPANY;
    }
  }
  if (count > 0) first_error = kept_set_up(kept, count);
  for (int i = 0; i < count; ++i) {
    if (kept[i].reason != arfusionReasonNone) continue;
    const int checked = allreduce_check_state(kept[i].state);
    if (checked) {
      keep_first(&first_error, checked);
    } else if (allreduce_may_be_taken(&kept[i].call, kept[i].state, &kept[i].reason)) {
      /* Asked again: what was only now set up was not asked about its size. */
      keep_first(&first_error, allreduce_take(&kept[i].call, kept[i].state));
    }
  }
  for (int i = 0; i < count; ++i) {
    if (kept[i].reason != arfusionReasonNone) keep_first(&first_error, allreduce_leave(&kept[i].call, kept[i].reason));
    state_put(kept[i].state);
  }
  list_clear(&group.kept);
  return first_error;
}

static int creations_finish(void) {
  struct made* made = group.creations.items;
  for (int i = 0; i < group.creations.count; ++i) {
    if (!made[i].nccl) made[i].nccl = *made[i].place;
  }
  return made ? made_set_up(made, group.creations.count) : NCCL_SUCCESS;
}

int group_leave(int (*end)(void* argument), void* argument, int simulated) {
  if (group.depth > 1 || group.depth == 0) {
    if (group.depth) --group.depth;
    return last_error_is_nccls(end(argument));
  }
  if (simulated) group.failed = 1; /* nothing may be launched */
  const int launched = kept_launch();
  group.depth = 0;
  const int ended_with = last_error_is_nccls(end(argument));
  int result = ended_with;
  const int ended = result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS;
  if (launched) {
    result = launched;
  } else if (ended && !simulated) {
    const int set_up = creations_finish();
    if (set_up) result = set_up;
  }
  struct state** put = group.ended.items;
  children_publish();
  for (int i = 0; i < group.ended.count; ++i) {
    state_ended(put[i], ended_with);
    state_put(put[i]);
  }
  list_clear(&group.counted);
  list_clear(&group.creations);
  list_clear(&group.ended);
  group.failed = 0;
  return result;
}
