/* SPDX-License-Identifier: Apache-2.0
 *
 * bootstrap_socket.c: the all-gather over the star, and its errors. Rank 0 collects everybody's data and sends all of
 * it to all. Whatever goes wrong, rank 0 knows of it first (a connection that ends, a deadline) and tells the others.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "plugin/core/bootstrap_star.h"
#include "plugin/core/log.h"

void star_member_close(struct star* star, struct star_member* member) {
  pthread_mutex_lock(&star->lock);
  if (member->fd >= 0) close(member->fd);
  member->fd = -1;
  pthread_mutex_unlock(&star->lock);
}

void star_tell(int fd, arfusionResult_t result, const char* text) {
  size_t bytes = strnlen(text, BOOTSTRAP_TEXT_BYTES - 1), done = 0;
  struct star_frame frame = {.magic = STAR_FRAME_MAGIC, .kind = STAR_FAILURE, .result = result, .bytes = bytes};
  char message[sizeof(frame) + BOOTSTRAP_TEXT_BYTES];

  memcpy(message, &frame, sizeof(frame));
  memcpy(message + sizeof(frame), text, bytes);
  (void)net_send_some(fd, message, sizeof(frame) + bytes, &done); /* one that has left need not be told */
}

arfusionResult_t star_fail(struct star* star, arfusionResult_t result, const char* fmt, ...) {
  va_list args;

  va_start(args, fmt);
  vsnprintf(star->text, sizeof(star->text), fmt, args);
  va_end(args);
  if (atomic_load(&star->aborted)) { /* whatever it looks like to this thread */
    result = arfusionInvalidUsage;
    snprintf(star->text, sizeof(star->text), "bootstrap: rank %d of %d aborted", star->rank, star->nranks);
  }
  star->failed = result;
  for (int m = 0; m < star->nmembers; m++) {
    if (star->rank == 0 && star->members[m].fd >= 0) star_tell(star->members[m].fd, result, star->text);
    star_member_close(star, &star->members[m]);
  }
  return error_set(result, "%s", star->text);
}

static arfusionResult_t star_fail_with(struct star* star, enum net_status status, const char* who) {
  switch (status) {
    case NET_CLOSED: return star_fail(star, arfusionRemoteError, "bootstrap: %s has left", who);
    case NET_TIMEOUT:
      return star_fail(star, arfusionRemoteError, "bootstrap: %s did not answer within %lld s", who,
                       (long long)star->timeout_s);
    default: return star_fail(star, arfusionSystemError, "bootstrap: the connection to %s: %s", who, strerror(errno));
  }
}

arfusionResult_t star_receive(struct star* star, enum star_frame_kind kind, struct star_frame* frame, int64_t deadline,
                              const char* who) {
  int fd = star->members[0].fd;
  enum net_status status = net_receive(fd, frame, sizeof(*frame), deadline);
  char text[BOOTSTRAP_TEXT_BYTES] = "";

  if (status != NET_OK) return star_fail_with(star, status, who);
  if (frame->magic == STAR_FRAME_MAGIC && frame->kind == (uint32_t)kind) return arfusionSuccess;
  if (frame->magic != STAR_FRAME_MAGIC || frame->kind != STAR_FAILURE || frame->bytes >= sizeof(text) ||
      frame->result <= arfusionSuccess || frame->result >= arfusionInProgress) {
    return star_fail(star, arfusionRemoteError, "bootstrap: %s sent something that is not a bootstrap's answer", who);
  }
  status = net_receive(fd, text, (size_t)frame->bytes, deadline);
  if (status != NET_OK) return star_fail_with(star, status, who);
  if (text[0] == '\0') snprintf(text, sizeof(text), "bootstrap: %s has failed and does not say why", who);
  return star_fail(star, (arfusionResult_t)frame->result, "%s", text);
}

/* ---------------------------------------------------------------- rank 0 */

/* Takes what has come from rank r. *deadline is brought forward to that rank's own. */
static arfusionResult_t root_receive(struct star* star, int r, char* recv, size_t bytes, int64_t* deadline) {
  struct star_member* member = &star->members[r];
  enum net_status status;
  char who[32];
  size_t done;

  snprintf(who, sizeof(who), "rank %d of %d", r, star->nranks);
  if (member->done < sizeof(member->frame)) {
    status = net_receive_some(member->fd, &member->frame, sizeof(member->frame), &member->done);
    if (status != NET_OK) return star_fail_with(star, status, who);
    if (member->done < sizeof(member->frame)) return arfusionSuccess;
    if (member->frame.magic != STAR_FRAME_MAGIC || member->frame.kind != STAR_DATA) {
      return star_fail(star, arfusionRemoteError, "bootstrap: %s sent something that is not for an all-gather", who);
    }
    if (member->frame.bytes != bytes) {
      return star_fail(star, arfusionInvalidUsage, "bootstrap: %s gathers %llu bytes, rank 0 gathers %zu", who,
                       (unsigned long long)member->frame.bytes, bytes);
    }
    if (member->frame.deadline < *deadline) *deadline = member->frame.deadline;
  }
  done = member->done - sizeof(member->frame);
  status = net_receive_some(member->fd, recv + (size_t)r * bytes, bytes, &done);
  if (status != NET_OK) return star_fail_with(star, status, who);
  member->done = sizeof(member->frame) + done;
  star->present[r] = done == bytes;
  return arfusionSuccess;
}

static arfusionResult_t root_collect(struct star* star, char* recv, size_t bytes, int64_t* deadline) {
  int left = star->nranks - 1;
  char text[256];

  for (int r = 0; r < star->nranks; r++) {
    star->polls[r] = (struct pollfd){.fd = star->members[r].fd, .events = POLLIN};
    star->members[r].done = 0;
    star->present[r] = r == 0;
  }
  while (left > 0) {
    int ready = net_poll(star->polls, (size_t)star->nranks, *deadline);
    if (ready < 0) return star_fail(star, arfusionSystemError, "bootstrap: poll: %s", strerror(errno));
    if (ready == 0) {
      bootstrap_missing_text(star->present, star->nranks, text, sizeof(text));
      return star_fail(star, arfusionRemoteError, "bootstrap: %s of %d did not come within %lld s", text, star->nranks,
                       (long long)star->timeout_s);
    }
    for (int r = 1; r < star->nranks; r++) {
      if (star->polls[r].revents == 0) continue;
      if (star->present[r]) { /* it waits for an answer: all it can do is to leave */
        return star_fail(star, arfusionRemoteError, "bootstrap: rank %d of %d has left", r, star->nranks);
      }
      FORWARD_IF_ERROR(root_receive(star, r, recv, bytes, deadline));
      if (!star->present[r]) continue;
      star->polls[r].events = POLLRDHUP;
      left--;
    }
  }
  return arfusionSuccess;
}

/* Sends what the socket takes; 1 when all of it is out. */
static enum net_status root_send(struct star_member* member, const struct star_frame* frame, const char* data,
                                 int* complete) {
  enum net_status status = NET_OK;
  size_t done = 0;

  if (member->done < sizeof(*frame)) status = net_send_some(member->fd, frame, sizeof(*frame), &member->done);
  if (status != NET_OK || member->done < sizeof(*frame)) return status;
  done = member->done - sizeof(*frame);
  status = net_send_some(member->fd, data, (size_t)frame->bytes, &done);
  member->done = sizeof(*frame) + done;
  *complete = done == frame->bytes;
  return status;
}

/* A rank that leaves now does not keep the others from their data: they hear of it in their next call. */
static arfusionResult_t root_distribute(struct star* star, const char* data, size_t bytes, int64_t deadline) {
  struct star_frame frame = {.magic = STAR_FRAME_MAGIC, .kind = STAR_DATA, .bytes = bytes};
  int left = star->nranks - 1, gone = 0, ready = 1;

  for (int r = 0; r < star->nranks; r++) {
    star->polls[r] = (struct pollfd){.fd = star->members[r].fd, .events = POLLOUT, .revents = POLLOUT};
    star->members[r].done = 0;
    star->present[r] = r == 0;
  }
  while (left > 0 && ready > 0) {
    for (int r = 1; r < star->nranks; r++) {
      int complete = 0;
      if (star->present[r] || star->polls[r].revents == 0) continue;
      if (root_send(&star->members[r], &frame, data, &complete) != NET_OK) {
        star_member_close(star, &star->members[r]);
        if (gone == 0) gone = r;
        complete = 1;
      }
      if (!complete) continue;
      star->present[r] = 1;
      star->polls[r].fd = -1;
      left--;
    }
    if (left > 0) ready = net_poll(star->polls, (size_t)star->nranks, deadline);
  }
  for (int r = 1; r < star->nranks; r++) {
    if (star->present[r]) continue;
    star_member_close(star, &star->members[r]); /* stuck within its data: nothing else can be said to it */
    if (gone == 0) gone = r;
  }
  if (gone == 0) return arfusionSuccess;
  return star_fail(star, arfusionRemoteError, "bootstrap: rank %d of %d has left, or did not read within %lld s", gone,
                   star->nranks, (long long)star->timeout_s);
}

/* ---------------------------------------------------------------- the other ranks */

static arfusionResult_t leaf_gather(struct star* star, const void* send, void* recv, size_t bytes, int64_t deadline) {
  struct star_frame frame = {.magic = STAR_FRAME_MAGIC, .kind = STAR_DATA, .bytes = bytes, .deadline = deadline};
  size_t total = bytes * (size_t)star->nranks;
  int fd = star->members[0].fd;
  enum net_status status;
  char who[32];

  snprintf(who, sizeof(who), "rank 0 of %d", star->nranks);
  status = net_send(fd, &frame, sizeof(frame), deadline);
  if (status == NET_OK) status = net_send(fd, send, bytes, deadline);
  if (status != NET_OK && status != NET_CLOSED) return star_fail_with(star, status, who);
  /* If rank 0 has closed the connection, why is what is left to read. */
  FORWARD_IF_ERROR(star_receive(star, STAR_DATA, &frame, deadline + STAR_GRACE, who));
  if (frame.bytes != total) {
    return star_fail(star, arfusionRemoteError, "bootstrap: %s sent %llu bytes instead of %zu", who,
                     (unsigned long long)frame.bytes, total);
  }
  status = net_receive(fd, recv, total, deadline + STAR_GRACE);
  return status == NET_OK ? arfusionSuccess : star_fail_with(star, status, who);
}

arfusionResult_t bootstrap_socket_all_gather(void* opaque, const void* send, void* recv, size_t bytes) {
  struct star* star = opaque;
  int64_t deadline = net_deadline(star->timeout_s);

  if (star->failed != arfusionSuccess) return error_set(star->failed, "%s", star->text);
  if (atomic_load(&star->aborted)) return star_fail(star, arfusionInvalidUsage, "aborted");
  if (star->rank != 0) return leaf_gather(star, send, recv, bytes, deadline);
  if (bytes > 0) memmove(recv, send, bytes); /* `send` may be this rank's part of `recv` */
  FORWARD_IF_ERROR(root_collect(star, recv, bytes, &deadline));
  return root_distribute(star, recv, bytes * (size_t)star->nranks, deadline);
}

/* ---------------------------------------------------------------- life */

/* Connections that are shut down end every wait on them, at both ends. */
void bootstrap_socket_abort(void* opaque) {
  struct star* star = opaque;

  pthread_mutex_lock(&star->lock);
  atomic_store(&star->aborted, 1);
  for (int m = 0; m < star->nmembers; m++) {
    if (star->members[m].fd >= 0) shutdown(star->members[m].fd, SHUT_RDWR);
  }
  pthread_mutex_unlock(&star->lock);
}

void bootstrap_socket_destroy(void* opaque) {
  struct star* star = opaque;

  for (int m = 0; m < star->nmembers; m++) star_member_close(star, &star->members[m]);
  free(star->members);
  free(star->polls);
  free(star->present);
  pthread_mutex_destroy(&star->lock);
  free(star);
}

static struct star* star_allocate(int nranks, int rank, int64_t timeout_s) {
  struct star* star = calloc(1, sizeof(*star));
  int nmembers = rank == 0 ? nranks : 1;

  if (star == NULL) return NULL;
  pthread_mutex_init(&star->lock, NULL);
  star->members = calloc((size_t)nmembers, sizeof(*star->members));
  star->polls = calloc((size_t)nmembers, sizeof(*star->polls));
  star->present = calloc((size_t)nranks, 1);
  if (star->members == NULL || star->polls == NULL || star->present == NULL) {
    bootstrap_socket_destroy(star);
    return NULL;
  }
  star->rank = rank;
  star->nranks = nranks;
  star->timeout_s = timeout_s;
  star->nmembers = nmembers;
  for (int m = 0; m < nmembers; m++) star->members[m].fd = -1;
  return star;
}

arfusionResult_t bootstrap_socket_create(const struct bootstrap_meeting* meeting, int nranks, int rank,
                                         int64_t timeout_s, arfusionBootstrap_t* bootstrap) {
  struct star* star = star_allocate(nranks, rank, timeout_s);
  arfusionResult_t result = arfusionSuccess;

  if (star == NULL) return error_set(arfusionSystemError, "bootstrap: no memory for %d ranks", nranks);
  if (nranks > 1) result = star_start(star, meeting); /* one rank is complete by itself */
  if (result != arfusionSuccess) {
    bootstrap_socket_destroy(star);
    return result;
  }
  *bootstrap = (arfusionBootstrap_t){.size = sizeof(*bootstrap),
                                     .rank = rank,
                                     .nranks = nranks,
                                     .opaque = star,
                                     .allGather = bootstrap_socket_all_gather};
  return arfusionSuccess;
}
