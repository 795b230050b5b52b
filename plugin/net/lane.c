/* SPDX-License-Identifier: Apache-2.0
 *
 * lane.c: see lane.h. The thread is made with the first task: most connections never carry a large message.
 */
#include "plugin/net/lane.h"

#include <errno.h>
#include <signal.h>

void lane_create(struct lane* lane, const struct stream* stream, int sending, _Atomic int* failed) {
  lane->stream = *stream;
  lane->sending = sending;
  lane->failed = failed;
  pthread_mutex_init(&lane->mutex, NULL);
  pthread_cond_init(&lane->ready, NULL);
}

static enum net_status lane_move(struct lane* lane, const struct lane_task* task) {
  enum net_status status = NET_OK;
  size_t done = 0;

  for (;;) {
    status = lane->sending ? stream_send_some(&lane->stream, task->data, task->bytes, &done, 0)
                           : stream_receive_some(&lane->stream, task->data, task->bytes, &done);
    if (status != NET_OK || done == task->bytes) return status;
    if (atomic_load(&lane->stop)) return NET_CLOSED;
    stream_wait(&lane->stream, lane->sending);
  }
}

static void* lane_run(void* arg) {
  struct lane* lane = arg;

  pthread_mutex_lock(&lane->mutex);
  while (!atomic_load(&lane->stop)) {
    struct lane_task task = lane->tasks[lane->first];
    enum net_status status;
    if (lane->count == 0) {
      pthread_cond_wait(&lane->ready, &lane->mutex);
      continue;
    }
    pthread_mutex_unlock(&lane->mutex);
    status = lane_move(lane, &task);
    if (status != NET_OK) {
      atomic_store(lane->failed, (int)status);
      return NULL;
    }
    pthread_mutex_lock(&lane->mutex);
    lane->first = (lane->first + 1) % LANE_TASKS;
    lane->count--;
    atomic_fetch_sub(task.pending, 1); /* the last access to the task's memory */
  }
  pthread_mutex_unlock(&lane->mutex);
  return NULL;
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
  pthread_mutex_lock(&lane->mutex);
  if (lane->count == LANE_TASKS) {
    error = ENOBUFS;
  } else {
    lane->tasks[(lane->first + lane->count) % LANE_TASKS] = (struct lane_task){data, bytes, pending};
    if (lane->count++ == 0) pthread_cond_signal(&lane->ready);
  }
  pthread_mutex_unlock(&lane->mutex);
  return error;
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
