/* SPDX-License-Identifier: Apache-2.0
 *
 * mock_stream.c: streams: a thread each, which runs what is enqueued in order.
 */
#include <pthread.h>
#include <stdlib.h>

#include "test/nccl/mock/mock.h"

struct task {
  void (*function)(void*);
  void* argument;
  struct task* next;
};

struct stream {
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  struct task *first, **last;
  int pending, ending;
};

static void* stream_run(void* argument) {
  struct stream* stream = argument;
  pthread_mutex_lock(&stream->mutex);
  for (;;) {
    while (!stream->first && !stream->ending) pthread_cond_wait(&stream->changed, &stream->mutex);
    struct task* task = stream->first;
    if (!task) break;
    stream->first = task->next;
    if (!stream->first) stream->last = &stream->first;
    pthread_mutex_unlock(&stream->mutex);
    task->function(task->argument);
    free(task);
    pthread_mutex_lock(&stream->mutex);
    --stream->pending;
    pthread_cond_broadcast(&stream->changed);
  }
  pthread_mutex_unlock(&stream->mutex);
  return NULL;
}

void* mockStreamCreate(void) {
  struct stream* stream = calloc(1, sizeof *stream);
  if (!stream) abort();
  stream->last = &stream->first;
  pthread_mutex_init(&stream->mutex, NULL);
  pthread_cond_init(&stream->changed, NULL);
  if (pthread_create(&stream->thread, NULL, stream_run, stream)) abort();
  return stream;
}

void mockStreamRun(void* opaque, void (*function)(void*), void* argument) {
  struct stream* stream = opaque;
  struct task* task = malloc(sizeof *task);
  if (!task) abort();
  *task = (struct task){function, argument, NULL};
  pthread_mutex_lock(&stream->mutex);
  *stream->last = task;
  stream->last = &task->next;
  ++stream->pending;
  pthread_cond_broadcast(&stream->changed);
  pthread_mutex_unlock(&stream->mutex);
}

void mockStreamWait(void* opaque) {
  struct stream* stream = opaque;
  pthread_mutex_lock(&stream->mutex);
  while (stream->pending) pthread_cond_wait(&stream->changed, &stream->mutex);
  pthread_mutex_unlock(&stream->mutex);
}

int mockStreamIsIdle(void* opaque) {
  struct stream* stream = opaque;
  pthread_mutex_lock(&stream->mutex);
  const int idle = stream->pending == 0;
  pthread_mutex_unlock(&stream->mutex);
  return idle;
}

void mockStreamDestroy(void* opaque) {
  struct stream* stream = opaque;
  pthread_mutex_lock(&stream->mutex);
  stream->ending = 1;
  pthread_cond_broadcast(&stream->changed);
  pthread_mutex_unlock(&stream->mutex);
  pthread_join(stream->thread, NULL);
  pthread_cond_destroy(&stream->changed);
  pthread_mutex_destroy(&stream->mutex);
  free(stream);
}
