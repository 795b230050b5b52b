/* SPDX-License-Identifier: Apache-2.0
 *
 * team.h: the ranks of a run, as processes or as threads of one process, and the parent that listens to them.
 *
 * The parent forks before anybody touches CUDA: one child a rank, or one child that starts a thread a rank. Each rank
 * has a pipe to the parent, so the parent notices a rank that dies or falls silent, and can kill them all.
 */
#ifndef ARFUSION_BENCH_TEAM_H_
#define ARFUSION_BENCH_TEAM_H_

#include <stddef.h>

#define TEAM_GATHER_BYTES 4096 /* largest contribution to one team_all_gather */

struct team_shared;

/* One rank's view; handed to its function. */
struct team_rank {
  int rank, nranks;
  int pipe; /* to the parent */
  struct team_shared* shared;
};

struct team {
  int nranks;
  int as_threads;
  int silence_s; /* the run fails when no rank has sent anything for so long */
  /* A rank's whole life. 0, or -1 after team_fail. */
  int (*run_rank)(struct team_rank* self, void* arg);
  /* In the parent, for each message, which is aligned for any type. 0, or -1 to end the run (the callback has printed
   * why). May be NULL. */
  int (*on_message)(void* arg, int rank, const void* message);
  size_t message_bytes; /* of each: a message of another size ends the run */
  void* rank_arg;    /* of run_rank */
  void* message_arg; /* of on_message */
};

/* Runs the ranks to their end. 0, or -1: something failed, all ranks were killed, one line about it was printed. */
int team_run(const struct team* team);

/* For ranks: */

/* A message to the parent. */
void team_send(struct team_rank* self, const void* data, size_t bytes);

/* Tells the parent that this rank cannot go on, and why. Returns -1. */
int team_fail(struct team_rank* self, const char* fmt, ...) __attribute__((format(printf, 2, 3)));

/* Waits until every rank is here. */
void team_barrier(struct team_rank* self);

/* recv gets every rank's `bytes` bytes in rank order. */
void team_all_gather(struct team_rank* self, const void* send, void* recv, size_t bytes);

#endif
