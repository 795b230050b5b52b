/* SPDX-License-Identifier: Apache-2.0
 *
 * bootstrap_threads.c: ranks that are threads of one process. Each all-gather is a round: the last one to arrive ends
 * it. Two buffers alternate: nobody can arrive in the round after the next before everybody has left this one.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "plugin/core/bootstrap_internal.h"
#include "plugin/core/log.h"

struct thread_group;

struct thread_member {
  struct thread_group* group;
  int rank;
};

struct thread_group {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  int nranks, members; /* members: that are not yet destroyed */
  int64_t timeout_s;
  uint64_t round;
  int arrived; /* in this round */
  int first;   /* the rank that arrived first, whose number of bytes counts */
  int gone;    /* a rank that was destroyed, or -1 */
  size_t bytes;
  unsigned char* present; /* [nranks] who arrived */
  char* buffer[2];
  size_t capacity[2];
  arfusionResult_t failed; /* for good, with `text` */
  char text[BOOTSTRAP_TEXT_BYTES];
  struct thread_member member[];
};

static void group_free(struct thread_group* group) {
  free(group->buffer[0]);
  free(group->buffer[1]);
  free(group->present);
  free(group);
}

static void group_fail(struct thread_group* group, arfusionResult_t result, const char* fmt, ...)
    __attribute__((format(printf, 3, 4)));

static void group_fail(struct thread_group* group, arfusionResult_t result, const char* fmt, ...) {
  va_list args;

  if (group->failed != arfusionSuccess) return;
  group->failed = result;
  va_start(args, fmt);
  vsnprintf(group->text, sizeof(group->text), fmt, args);
  va_end(args);
  pthread_cond_broadcast(&group->changed);
}

static void group_arrive(struct thread_group* group, int rank, const void* send, size_t bytes) {
  int side = (int)(group->round & 1);
  size_t need;

  if (__builtin_mul_overflow(bytes, (size_t)group->nranks, &need)) need = SIZE_MAX; /* more than malloc has */
  if (group->failed != arfusionSuccess) return;
  if (group->gone >= 0) {
    group_fail(group, arfusionRemoteError, "bootstrap: rank %d of %d has left", group->gone, group->nranks);
    return;
  }
  if (group->arrived == 0) {
    group->first = rank;
    group->bytes = bytes;
    if (need > group->capacity[side]) {
      free(group->buffer[side]);
      group->buffer[side] = malloc(need);
      group->capacity[side] = group->buffer[side] != NULL ? need : 0;
    }
  }
  if (bytes != group->bytes) {
    group_fail(group, arfusionInvalidUsage, "bootstrap: rank %d gathers %zu bytes, rank %d gathers %zu", group->first,
               group->bytes, rank, bytes);
  } else if (need > group->capacity[side]) {
    group_fail(group, arfusionSystemError, "bootstrap: no memory for %zu bytes", need);
  } else if (group->present[rank]) {
    group_fail(group, arfusionInvalidUsage, "bootstrap: rank %d is used by two threads", rank);
  } else {
    if (bytes > 0) memcpy(group->buffer[side] + bytes * (size_t)rank, send, bytes);
    group->present[rank] = 1;
    group->arrived++;
  }
}

/* Until the round is over, the group has failed or the deadline has passed. */
static void group_wait(struct thread_group* group, uint64_t round, int64_t deadline) {
  struct timespec until = {.tv_sec = (time_t)(deadline / NET_SECOND), .tv_nsec = (long)(deadline % NET_SECOND)};
  char missing[256];

  while (group->round == round && group->failed == arfusionSuccess) {
    if (pthread_cond_timedwait(&group->changed, &group->lock, &until) != ETIMEDOUT) continue;
    if (group->round != round || group->failed != arfusionSuccess) return;
    bootstrap_missing_text(group->present, group->nranks, missing, sizeof(missing));
    group_fail(group, arfusionRemoteError, "bootstrap: %s of %d did not come within %lld s", missing, group->nranks,
               (long long)group->timeout_s);
  }
}

arfusionResult_t bootstrap_threads_all_gather(void* opaque, const void* send, void* recv, size_t bytes) {
  struct thread_member* member = opaque;
  struct thread_group* group = member->group;
  int64_t deadline = net_deadline(group->timeout_s);
  char text[BOOTSTRAP_TEXT_BYTES];
  arfusionResult_t failed;
  uint64_t round;

  pthread_mutex_lock(&group->lock);
  round = group->round;
  group_arrive(group, member->rank, send, bytes);
  if (group->failed == arfusionSuccess && group->arrived == group->nranks) {
    group->round++;
    group->arrived = 0;
    memset(group->present, 0, (size_t)group->nranks);
    pthread_cond_broadcast(&group->changed);
  }
  group_wait(group, round, deadline);
  if (group->round != round) { /* complete, whatever came later */
    if (bytes > 0) memcpy(recv, group->buffer[round & 1], bytes * (size_t)group->nranks);
    pthread_mutex_unlock(&group->lock);
    return arfusionSuccess;
  }
  failed = group->failed;
  memcpy(text, group->text, sizeof(text));
  pthread_mutex_unlock(&group->lock);
  return error_set(failed, "%s", text);
}

void bootstrap_threads_destroy(void* opaque) {
  struct thread_member* member = opaque;
  struct thread_group* group = member->group;
  int last;

  pthread_mutex_lock(&group->lock);
  last = --group->members == 0;
  if (group->gone < 0) group->gone = member->rank;
  if (group->arrived > 0 && !group->present[member->rank]) {
    group_fail(group, arfusionRemoteError, "bootstrap: rank %d of %d has left", member->rank, group->nranks);
  }
  pthread_mutex_unlock(&group->lock);
  if (!last) return;
  pthread_cond_destroy(&group->changed);
  pthread_mutex_destroy(&group->lock);
  group_free(group);
}

arfusionResult_t bootstrap_from_threads(int nranks, int64_t timeout_s, arfusionBootstrap_t* bootstraps) {
  struct thread_group* group;
  pthread_condattr_t attributes;

  if (bootstraps == NULL) return error_set(arfusionInvalidArgument, "bootstrap: bootstraps is NULL");
  FORWARD_IF_ERROR(bootstrap_check_ranks(nranks, 0));
  group = calloc(1, sizeof(*group) + (size_t)nranks * sizeof(group->member[0]));
  if (group != NULL) group->present = calloc((size_t)nranks, 1);
  if (group == NULL || group->present == NULL) {
    free(group);
    return error_set(arfusionSystemError, "bootstrap: no memory for %d ranks", nranks);
  }
  /* On Linux none of these can fail with these arguments. */
  pthread_mutex_init(&group->lock, NULL);
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&group->changed, &attributes);
  pthread_condattr_destroy(&attributes);
  group->nranks = group->members = nranks;
  group->timeout_s = timeout_s;
  group->gone = -1;
  for (int r = 0; r < nranks; r++) {
    group->member[r] = (struct thread_member){.group = group, .rank = r};
    bootstraps[r] = (arfusionBootstrap_t){.size = sizeof(bootstraps[r]),
                                          .rank = r,
                                          .nranks = nranks,
                                          .opaque = &group->member[r],
                                          .allGather = bootstrap_threads_all_gather};
  }
  return arfusionSuccess;
}
