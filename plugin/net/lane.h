/* SPDX-License-Identifier: Apache-2.0
 *
 * lane.h: one of the streams that carry large messages, with a thread that moves them, in the order in which they are
 * handed over. Lanes either send or receive.
 */
#ifndef ARFUSION_NET_LANE_H_
#define ARFUSION_NET_LANE_H_

#include <pthread.h>

#include "plugin/net/stream.h"

#define LANE_TASKS 256

struct lane_task {
  char* data;
  size_t bytes;
  _Atomic int* pending; /* one less when it is done */
};

struct lane {
  struct stream stream;
  int sending;
  _Atomic int* failed; /* of the connection: an enum net_status that is not NET_OK, once a lane has met one */
  _Atomic int stop;
  int started;
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t ready;
  unsigned first, count; /* of the tasks */
  struct lane_task tasks[LANE_TASKS];
};

void lane_create(struct lane* lane, const struct stream* stream, int sending, _Atomic int* failed);

/* 0, or an errno: the thread cannot be made, or there are LANE_TASKS already. */
int lane_push(struct lane* lane, char* data, size_t bytes, _Atomic int* pending);

/* Ends the thread, whatever it is doing; sockets have to be shut down before. */
void lane_destroy(struct lane* lane);

#endif
