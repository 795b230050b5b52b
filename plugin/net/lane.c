/* SPDX-License-Identifier: Apache-2.0
 *
 * lane.c: see lane.h. The thread is made with the first task: most connections never carry a large message.
 */
#include "plugin/net/lane.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>

#define LANE_STEP ((size_t)128 << 10) /* bytes that are moved before the lane may change hands */
#define LANE_YIELDS 100 /* before the thread sleeps: the next of many messages comes sooner than it wakes */

void lane_create(struct lane* lane, const struct stream* stream, int sending, struct lane_failure* failure) {
  lane->stream = *stream;
  lane->sending = sending;
  lane->failure = failure;
  pthread_mutex_init(&lane->mutex, NULL);
  pthread_cond_init(&lane->ready, NULL);
}

/* With the mutex and a task: moves what can be moved at once, at most LANE_STEP. Returns whether that was anything. */
static int lane_step(struct lane* lane) {
  const struct lane_task* task = &lane->tasks[lane->first];
  size_t before = lane->done, limit = task->bytes - before > LANE_STEP ? before + LANE_STEP : task->bytes;
  enum net_status status = lane->sending ? stream_send_some(&lane->stream, task->data, limit, &lane->done, 0)
                                         : stream_receive_some(&lane->stream, task->data, limit, &lane->done);

  if (lane->done == task->bytes) {
    _Atomic int* pending = task->pending;
    lane->done = 0;
    lane->first = (lane->first + 1) % LANE_TASKS;
    atomic_fetch_sub(&lane->count, 1);
    atomic_fetch_sub(pending, 1); /* the last access to what belongs to the task */
    return 1;
  }
  if (status != NET_OK) {
    atomic_store(&lane->failure->error, errno);
    atomic_store(&lane->failure->status, (int)status);
  }
  return lane->done > before;
}

/* With the mutex: until there is a task, or the lane is to stop. */
static void lane_rest(struct lane* lane) {
  pthread_mutex_unlock(&lane->mutex);
  for (int i = 0; i < LANE_YIELDS && atomic_load(&lane->count) == 0; i++) sched_yield();
  pthread_mutex_lock(&lane->mutex);
  atomic_store(&lane->asleep, 1); /* and only then the last look */
  while (atomic_load(&lane->count) == 0 && !atomic_load(&lane->stop)) pthread_cond_wait(&lane->ready, &lane->mutex);
  atomic_store(&lane->asleep, 0);
}

/* With the mutex: until it is worth trying again. Meanwhile somebody else may move the lane. */
static void lane_wait(struct lane* lane) {
  struct stream stream = lane->stream;

  pthread_mutex_unlock(&lane->mutex);
  stream_wait(&stream, lane->sending);
  pthread_mutex_lock(&lane->mutex);
  lane->stream.idle = stream.idle;
}

static void* lane_run(void* arg) {
  struct lane* lane = arg;

  pthread_mutex_lock(&lane->mutex);
  while (!atomic_load(&lane->stop) && atomic_load(&lane->failure->status) == NET_OK) {
    if (atomic_load(&lane->count) == 0) {
      lane_rest(lane);
    } else if (!lane_step(lane)) {
      lane_wait(lane);
    }
  }
  pthread_mutex_unlock(&lane->mutex);
  return NULL;
}

void lane_help(struct lane* lane) {
  if (atomic_load(&lane->count) == 0 || pthread_mutex_trylock(&lane->mutex) != 0) return;
  if (atomic_load(&lane->count) > 0 && atomic_load(&lane->failure->status) == NET_OK) lane_step(lane);
  pthread_mutex_unlock(&lane->mutex);
}

/* The host's signals are not for this thread. */
static int lane_start(struct lane* lane) {
  sigset_t all, before;
  int error;

  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  error = pthread_create(&lane->thread, NULL, lane_run, lane);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (error != 0) return error;
  pthread_setname_np(lane->thread, lane->sending ? "arfusion-send" : "arfusion-recv");
  lane->started = 1;
  return 0;
}

int lane_push(struct lane* lane, char* data, size_t bytes, _Atomic int* pending) {
  int error = lane->started ? 0 : lane_start(lane);

  if (error != 0) return error;
  if (atomic_load(&lane->count) == LANE_TASKS) return ENOBUFS;
  lane->tasks[lane->last] = (struct lane_task){data, bytes, pending};
  lane->last = (lane->last + 1) % LANE_TASKS;
  atomic_fetch_add(&lane->count, 1);
  if (atomic_load(&lane->asleep)) { /* else the mutex may be held for the time of a step */
    pthread_mutex_lock(&lane->mutex);
    pthread_cond_signal(&lane->ready);
    pthread_mutex_unlock(&lane->mutex);
  }
  return 0;
}

void lane_destroy(struct lane* lane) {
  pthread_mutex_lock(&lane->mutex);
  atomic_store(&lane->stop, 1);
  pthread_cond_signal(&lane->ready);
  pthread_mutex_unlock(&lane->mutex);
  stream_wake(&lane->stream);
  if (lane->started) pthread_join(lane->thread, NULL);
  pthread_cond_destroy(&lane->ready);
  pthread_mutex_destroy(&lane->mutex);
}
