/* SPDX-License-Identifier: Apache-2.0
 *
 * lane.h: one of the streams that carry large messages. Lanes either send or receive, in the order in which messages
 * are handed over. A thread moves them, and so does the connection's own thread while it waits: a message then does not
 * have to wait for a thread to wake up, and where processors are few, nobody polls in vain.
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

/* Of the lanes of a connection, once one of them has met it. */
struct lane_failure {
  _Atomic int status; /* enum net_status */
  _Atomic int error;  /* the errno, there before the status is */
};

struct lane {
  int sending;
  struct lane_failure* failure;
  _Atomic int stop;
  int started;
  pthread_t thread;
  _Atomic int asleep;
  _Atomic unsigned count; /* of the tasks */
  struct lane_task tasks[LANE_TASKS];
  unsigned last;          /* where the next task goes: only for who hands them over */
  pthread_mutex_t mutex;  /* held while bytes move, for what follows */
  pthread_cond_t ready;
  struct stream stream;
  unsigned first; /* of the tasks */
  size_t done;    /* of the first one */
};

void lane_create(struct lane* lane, const struct stream* stream, int sending, struct lane_failure* failure);

/* 0, or an errno: the thread cannot be made, or there are LANE_TASKS already. */
int lane_push(struct lane* lane, char* data, size_t bytes, _Atomic int* pending);

/* Moves some bytes, unless the lane's thread is just doing that, or there is nothing to do. */
void lane_help(struct lane* lane);

/* Ends the thread, whatever it is doing; sockets have to be shut down before. */
void lane_destroy(struct lane* lane);

#endif
