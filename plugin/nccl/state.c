/* SPDX-License-Identifier: Apache-2.0
 *
 * state.c: see state.h.
 */
#include "plugin/nccl/state.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include "plugin/nccl/children.h"
#include "plugin/nccl/nccl_abi.h"
#include "plugin/nccl/stats.h"

enum { BUCKETS = 256 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct state* buckets[BUCKETS];
static struct state* lasting; /* with memory that NCCL may still write */

static struct state** bucket_of(const void* nccl) {
  const uintptr_t key = (uintptr_t)nccl >> 4;
  return &buckets[(key ^ key >> 8 ^ key >> 16) % BUCKETS];
}

/* Where the pointer to the state of `nccl` stands; to NULL if there is none. */
static struct state** find(const void* nccl) {
  struct state** at = bucket_of(nccl);
  while (*at && (*at)->nccl != nccl) at = &(*at)->next;
  return at;
}

static struct state* unlink_state(const void* nccl) {
  struct state** at = find(nccl);
  struct state* state = *at;
  if (state) *at = state->next;
  return state;
}

struct state* state_add(void* nccl, int blocking, enum state_phase phase) {
  struct state* state = calloc(1, sizeof *state);
  if (!state) return NULL;
  state->nccl = nccl;
  state->blocking = blocking;
  state->references = 2;
  atomic_init(&state->phase, phase);
  atomic_init(&state->reason, STATS_NOT_SERVED);
  pthread_mutex_lock(&mutex);
  struct state* old = unlink_state(nccl);
  struct state** first = bucket_of(nccl);
  state->next = *first;
  *first = state;
  pthread_mutex_unlock(&mutex);
  state_put(old);
  return state;
}

struct state* state_get(void* nccl) {
  pthread_mutex_lock(&mutex);
  struct state* state = *find(nccl);
  if (state) ++state->references;
  pthread_mutex_unlock(&mutex);
  return state;
}

struct state* state_hold(struct state* state) {
  pthread_mutex_lock(&mutex);
  ++state->references;
  pthread_mutex_unlock(&mutex);
  return state;
}

struct state* state_remove(void* nccl) {
  pthread_mutex_lock(&mutex);
  struct state* state = unlink_state(nccl);
  pthread_mutex_unlock(&mutex);
  return state;
}

void state_put(struct state* state) {
  if (!state) return;
  pthread_mutex_lock(&mutex);
  const int last = --state->references == 0;
  pthread_mutex_unlock(&mutex);
  if (!last) return;
  if (state->plugin_comm) state->plugin->commFinalize(state->plugin_comm);
  if (state->lasts && state->gather.stuck) {
    pthread_mutex_lock(&mutex);
    state->next = lasting;
    lasting = state;
    pthread_mutex_unlock(&mutex);
    return;
  }
  nccl_gather_drop_stuck(&state->gather);
  free(state);
}

static void* put_run(void* state) {
  state_put(state);
  return NULL;
}

void state_put_aside(struct state* state) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, put_run, state) == 0) {
    pthread_detach(thread);
  } else {
    state_put(state);
  }
}

void state_ended(struct state* state, int result) {
  state->lasts = result == NCCL_IN_PROGRESS;
  children_end(state->children, state->lasts);
}

void state_fail(struct state* state, int error) {
  int phase = atomic_load(&state->phase);
  if (phase == STATE_LEFT) return;
  atomic_store(&state->error, error);
  atomic_compare_exchange_strong(&state->phase, &phase, STATE_FAILED);
}

int state_error(const struct state* state) {
  arfusionResult_t result = (arfusionResult_t)atomic_load(&state->error);
  if (result == arfusionSuccess && atomic_load(&state->phase) == STATE_SERVED) {
    state->plugin->commGetAsyncError(state->plugin_comm, &result, NULL, 0);
  }
  return result;
}

/* Whoever aborts sets `cancelled` and then reads the count: one of the two sees the other. */
arfusionResult_t state_enter(struct state* state) {
  atomic_fetch_add(&state->setting_up, 1);
  const arfusionResult_t result = nccl_gather_check(&state->cancelled);
  if (result != arfusionSuccess) state_leave(state);
  return result;
}

void state_leave(struct state* state) { atomic_fetch_sub(&state->setting_up, 1); }

/* What waits within NCCL only NCCL's own abort ends, as it ends the application's calls. */
void state_join(struct state* state) {
  const struct timespec pause = {0, 1000000};
  for (int paused = 0; atomic_load(&state->setting_up); ++paused) {
    if (paused >= 1000 && atomic_load(&state->cancelled) && atomic_load(&state->calling)) return;
    nanosleep(&pause, NULL);
  }
}

static void plugin_abort(struct state* state) {
  if (atomic_load(&state->phase) == STATE_SERVED) state->plugin->commAbort(state->plugin_comm);
}

void state_abort(struct state* state) {
  atomic_store(&state->cancelled, 1);
  plugin_abort(state);
  state_join(state);
  plugin_abort(state); /* what has been set up meanwhile */
}
