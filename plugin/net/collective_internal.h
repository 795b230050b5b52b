/* SPDX-License-Identifier: Apache-2.0
 *
 * collective_internal.h: what the handling of operations (collective.c) and what they do (collective_run.c) share.
 */
#ifndef ARFUSION_NET_COLLECTIVE_INTERNAL_H_
#define ARFUSION_NET_COLLECTIVE_INTERNAL_H_

#include <pthread.h>

#include "plugin/net/collective.h"

#define COLLECTIVE_BLOCK ((size_t)512 << 10) /* bytes of a rank's share that are under way at a time */
#define COLLECTIVE_SMALL ((size_t)8 << 10)   /* bytes of an allreduce that each rank reduces for itself */
#define COLLECTIVE_TEXT_BYTES 512

enum collective_state { COLLECTIVE_FREE, COLLECTIVE_WAITS, COLLECTIVE_DONE, COLLECTIVE_FAILED };

struct collective_request {
  struct collective* collective;
  _Atomic int state; /* enum collective_state */
  struct collective_op op;
};

/* Memory that goes to a peer, or comes from one. */
struct collective_piece {
  char* data;
  size_t bytes;
};

struct collective {
  int rank, nranks;
  struct link **to, **from;        /* [nranks]; NULL for this rank */
  struct link_request **sending, **receiving; /* [nranks] */
  struct collective_piece *out, *in; /* [nranks] */
  const void** inputs;             /* [nranks], for reduce_run */
  char* scratch;                   /* nranks blocks, made when needed */
  int started;
  _Atomic int stop;
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t ready;
  arfusionResult_t failed;         /* with `text`, under the mutex */
  char text[COLLECTIVE_TEXT_BYTES];
  unsigned first, count;           /* of the requests that wait */
  struct collective_request* queue[NCCL_NET_REQUESTS];
  struct collective_request requests[NCCL_NET_REQUESTS];
};

/* Does an operation. */
arfusionResult_t collective_run(struct collective* collective, const struct collective_op* op);

#endif
