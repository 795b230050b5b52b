/* SPDX-License-Identifier: Apache-2.0
 *
 * collective.c: see collective.h. The thread that does the operations is made with the first one.
 */
#include "plugin/net/collective.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/core/log.h"
#include "plugin/net/collective_internal.h"
#include "plugin/net/reduce.h"

#define CONNECT_PAUSE (NET_MILLISECOND / 5)

/* ---------------------------------------------------------------- making and ending */

static void collective_disconnect(struct collective* collective) {
  for (int r = 0; r < collective->nranks; r++) {
    if (collective->to[r] != NULL) link_close(collective->to[r]);
    if (collective->from[r] != NULL) link_close(collective->from[r]);
    collective->to[r] = collective->from[r] = NULL;
  }
}

static void collective_free(struct collective* collective) {
  free(collective->to);
  free(collective->from);
  free(collective->sending);
  free(collective->receiving);
  free(collective->out);
  free(collective->in);
  free(collective->inputs);
  free(collective->scratch);
  free(collective);
}

static struct collective* collective_allocate(int nranks, int rank) {
  struct collective* made = calloc(1, sizeof(*made));
  const size_t n = (size_t)nranks;

  if (made == NULL) return NULL;
  made->nranks = nranks;
  made->rank = rank;
  made->to = calloc(n, sizeof(*made->to));
  made->from = calloc(n, sizeof(*made->from));
  made->sending = calloc(n, sizeof(*made->sending));
  made->receiving = calloc(n, sizeof(*made->receiving));
  made->out = calloc(n, sizeof(*made->out));
  made->in = calloc(n, sizeof(*made->in));
  made->inputs = calloc(n, sizeof(*made->inputs));
  if (made->to && made->from && made->sending && made->receiving && made->out && made->in && made->inputs) return made;
  collective_free(made);
  return NULL;
}

static arfusionResult_t accept_one(struct collective* collective, struct listener* listener, int* missing) {
  struct link* link;
  int rank = -1;

  FORWARD_IF_ERROR(listener_accept(listener, &link, &rank));
  if (link == NULL) return arfusionSuccess;
  if (rank < 0 || rank >= collective->nranks || rank == collective->rank || collective->from[rank] != NULL) {
    link_close(link);
    return error_set(arfusionRemoteError, "NET/arfusion: rank %d of %d connected, which is not waited for", rank,
                     collective->nranks);
  }
  collective->from[rank] = link;
  (*missing)--;
  return arfusionSuccess;
}

/* Every rank connects to every other one, all at the same time. handles: copies, in which the state is noted. */
static arfusionResult_t connect_all(struct collective* collective, char (*handles)[ENDPOINT_HANDLE_BYTES],
                                    struct listener* listener, const struct endpoint_options* options) {
  int64_t deadline = net_deadline(options->timeout_s);
  int missing = 2 * (collective->nranks - 1);

  while (missing > 0) {
    int before = missing;
    for (int r = 0; r < collective->nranks; r++) {
      if (r == collective->rank || collective->to[r] != NULL) continue;
      FORWARD_IF_ERROR(endpoint_connect(handles[r], listener_interface(listener), options, collective->rank,
                                        &collective->to[r]));
      missing -= collective->to[r] != NULL;
    }
    FORWARD_IF_ERROR(accept_one(collective, listener, &missing));
    if (missing > 0 && net_now() > deadline) {
      return error_set(arfusionRemoteError,
                       "NET/arfusion: %d of %d connections are missing after %lld s (ARFUSION_INIT_TIMEOUT)", missing,
                       2 * (collective->nranks - 1), (long long)options->timeout_s);
    }
    if (missing == before) net_sleep(CONNECT_PAUSE);
  }
  return arfusionSuccess;
}

arfusionResult_t collective_create(void* const* handles, int nranks, int rank, struct listener* listener,
                                   const struct endpoint_options* options, struct collective** made) {
  struct collective* collective;
  char(*copies)[ENDPOINT_HANDLE_BYTES];
  arfusionResult_t result;

  if (nranks < 1 || nranks > COLLECTIVE_RANKS_MAX || rank < 0 || rank >= nranks) {
    return error_set(arfusionInvalidArgument, "NET/arfusion: rank %d of %d ranks; 1 to %d ranks are allowed", rank,
                     nranks, COLLECTIVE_RANKS_MAX);
  }
  collective = collective_allocate(nranks, rank);
  copies = malloc((size_t)nranks * sizeof(*copies));
  if (collective == NULL || copies == NULL) {
    if (collective != NULL) collective_free(collective);
    free(copies);
    return error_set(arfusionSystemError, "NET/arfusion: out of memory for %d ranks", nranks);
  }
  for (int r = 0; r < nranks; r++) memcpy(copies[r], handles[r], sizeof(copies[r]));
  result = connect_all(collective, copies, listener, options);
  free(copies);
  if (result != arfusionSuccess) {
    collective_disconnect(collective);
    collective_free(collective);
    return result;
  }
  for (int i = 0; i < NCCL_NET_REQUESTS; i++) collective->requests[i].collective = collective;
  pthread_mutex_init(&collective->mutex, NULL);
  pthread_cond_init(&collective->ready, NULL);
  *made = collective;
  return arfusionSuccess;
}

void collective_close(struct collective* collective) {
  pthread_mutex_lock(&collective->mutex);
  atomic_store(&collective->stop, 1);
  pthread_cond_signal(&collective->ready);
  pthread_mutex_unlock(&collective->mutex);
  if (collective->started) pthread_join(collective->thread, NULL);
  collective_disconnect(collective);
  pthread_cond_destroy(&collective->ready);
  pthread_mutex_destroy(&collective->mutex);
  collective_free(collective);
}

/* ---------------------------------------------------------------- the thread */

/* An operation that fails on one rank must not keep the others waiting: with its links they fail as well. */
static void collective_fail(struct collective* collective, arfusionResult_t result) {
  collective_disconnect(collective);
  pthread_mutex_lock(&collective->mutex);
  collective->failed = result;
  snprintf(collective->text, sizeof(collective->text), "%s", error_last());
  for (; collective->count > 0; collective->count--) {
    atomic_store(&collective->queue[collective->first]->state, COLLECTIVE_FAILED);
    collective->first = (collective->first + 1) % NCCL_NET_REQUESTS;
  }
  pthread_mutex_unlock(&collective->mutex);
}

static void* collective_thread(void* arg) {
  struct collective* collective = arg;

  pthread_mutex_lock(&collective->mutex);
  while (!atomic_load(&collective->stop)) {
    struct collective_request* request = collective->queue[collective->first];
    arfusionResult_t result;
    if (collective->count == 0) {
      pthread_cond_wait(&collective->ready, &collective->mutex);
      continue;
    }
    pthread_mutex_unlock(&collective->mutex);
    result = collective_run(collective, &request->op);
    if (result != arfusionSuccess) {
      collective_fail(collective, result);
      return NULL;
    }
    pthread_mutex_lock(&collective->mutex);
    collective->first = (collective->first + 1) % NCCL_NET_REQUESTS;
    collective->count--;
    atomic_store(&request->state, COLLECTIVE_DONE);
  }
  pthread_mutex_unlock(&collective->mutex);
  return NULL;
}

static arfusionResult_t thread_start(struct collective* collective) {
  sigset_t all, before;
  int error;

  if (collective->started) return arfusionSuccess;
  sigfillset(&all); /* the host's signals are not for this thread */
  pthread_sigmask(SIG_SETMASK, &all, &before);
  error = pthread_create(&collective->thread, NULL, collective_thread, collective);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (error != 0) return error_set(arfusionSystemError, "NET/arfusion: no helper thread: %s", strerror(error));
  pthread_setname_np(collective->thread, "arfusion-coll");
  collective->started = 1;
  return arfusionSuccess;
}

/* ---------------------------------------------------------------- requests */

arfusionResult_t collective_start(struct collective* collective, const struct collective_op* op,
                                  struct collective_request** request) {
  struct collective_request* slot = NULL;
  arfusionResult_t failed;

  *request = NULL;
  if (op->kind != COLLECTIVE_ALLREDUCE &&
      op->window_offset + op->window_bytes > (size_t)collective->nranks * op->bytes_per_rank) {
    return error_set(arfusionInvalidArgument, "NET/arfusion: the window ends at byte %zu of %d shares of %zu bytes",
                     op->window_offset + op->window_bytes, collective->nranks, op->bytes_per_rank);
  }
  FORWARD_IF_ERROR(thread_start(collective));
  for (int i = 0; i < NCCL_NET_REQUESTS && slot == NULL; i++) {
    if (atomic_load(&collective->requests[i].state) == COLLECTIVE_FREE) slot = &collective->requests[i];
  }
  if (slot == NULL) return arfusionSuccess;
  pthread_mutex_lock(&collective->mutex);
  failed = collective->failed;
  if (failed == arfusionSuccess) {
    slot->op = *op;
    atomic_store(&slot->state, COLLECTIVE_WAITS);
    collective->queue[(collective->first + collective->count) % NCCL_NET_REQUESTS] = slot;
    if (collective->count++ == 0) pthread_cond_signal(&collective->ready);
    *request = slot;
  }
  pthread_mutex_unlock(&collective->mutex);
  return failed == arfusionSuccess ? arfusionSuccess : error_keep(failed, collective->text);
}

static size_t result_bytes(const struct collective_request* request) {
  const struct collective_op* op = &request->op;
  return op->kind == COLLECTIVE_ALLREDUCE ? op->count * reduce_type_bytes(op->type) : op->window_bytes;
}

arfusionResult_t collective_test(struct collective_request* request, int* done, int* size) {
  int state = atomic_load(&request->state);

  *done = 0;
  if (state == COLLECTIVE_FAILED) return error_keep(request->collective->failed, request->collective->text);
  if (state != COLLECTIVE_DONE) return arfusionSuccess;
  if (size != NULL) *size = result_bytes(request) > INT_MAX ? INT_MAX : (int)result_bytes(request);
  atomic_store(&request->state, COLLECTIVE_FREE);
  *done = 1;
  return arfusionSuccess;
}
