/* SPDX-License-Identifier: Apache-2.0
 *
 * children.c: see children.h.
 */
#include "plugin/nccl/children.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "plugin/nccl/state.h"

struct child {
  void* written; /* by NCCL. The first member: its address is the child's. */
  void* parent;
  void** place; /* the application's */
  int blocking;
  struct child* next;
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* of what follows */
static struct child* expected;
static int watched;

static struct child* child_of(void** written) { return (struct child*)written; }

/* Known before it is seen. 0: NCCL has not written it. */
static int give(const struct child* child) {
  void* comm = __atomic_load_n(&child->written, __ATOMIC_ACQUIRE);
  if (!comm) return 0;
  state_put(state_add(comm, child->blocking, STATE_LATER));
  __atomic_store_n(child->place, comm, __ATOMIC_RELEASE);
  return 1;
}

/* Holding the lock. */
static void give_all(void) {
  for (struct child** at = &expected; *at;) {
    struct child* child = *at;
    if (give(child)) {
      *at = child->next;
      free(child);
    } else {
      at = &child->next;
    }
  }
}

void children_publish(void) {
  pthread_mutex_lock(&mutex);
  give_all();
  pthread_mutex_unlock(&mutex);
}

static void* watch(void* argument) {
  (void)argument;
  for (;;) {
    pthread_mutex_lock(&mutex);
    give_all();
    if (!expected) break;
    pthread_mutex_unlock(&mutex);
    nanosleep(&(struct timespec){0, 1000000}, NULL);
  }
  watched = 0;
  pthread_mutex_unlock(&mutex);
  return NULL;
}

void** children_new(void* parent, void** place, int blocking) {
  struct child* child = malloc(sizeof *child);
  if (!child) return NULL;
  *place = NULL; /* as NCCL does */
  *child = (struct child){NULL, parent, place, blocking, NULL};
  return &child->written;
}

void children_expect(void** written) {
  struct child* child = child_of(written);
  pthread_t thread;
  pthread_mutex_lock(&mutex);
  child->next = expected;
  expected = child;
  give_all();
  /* Without a thread it is seen at the next call that asks for a communicator's state. */
  if (expected && !watched && pthread_create(&thread, NULL, watch, NULL) == 0) {
    watched = 1;
    pthread_detach(thread);
  }
  pthread_mutex_unlock(&mutex);
}

void children_give_up(void** written) { free(child_of(written)); }

struct child* children_take(void* parent) {
  struct child* taken = NULL;
  pthread_mutex_lock(&mutex);
  for (struct child** at = &expected; *at;) {
    struct child* child = *at;
    if (child->parent != parent) {
      at = &child->next;
      continue;
    }
    *at = child->next;
    child->next = taken;
    taken = child;
  }
  pthread_mutex_unlock(&mutex);
  return taken;
}

void children_end(struct child* taken, int lasts) {
  for (struct child *child = taken, *next; child; child = next) {
    next = child->next;
    if (lasts) {
      children_expect(&child->written);
    } else {
      give(child);
      free(child);
    }
  }
}
