/* SPDX-License-Identifier: Apache-2.0
 *
 * link.c: what both ends of a link have in common: streams, lanes, requests, failure.
 */
#include "plugin/net/link.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "plugin/core/log.h"
#include "plugin/net/linger.h"
#include "plugin/net/link_internal.h"
#include "plugin/net/link_memory.h"

#define LINK_PART_ALIGN 4096u
#define LINK_GONE "the other end has closed the connection or ended"

struct link* link_create(const struct link_parts* parts) {
  struct link* link = calloc(1, sizeof(*link));
  int nfds = parts->memory != NULL ? 1 : 1 + parts->nlanes;

  if (link == NULL) {
    for (int i = 0; i < nfds; i++) close(parts->fds[i]);
    if (parts->memory != NULL) link_memory_unmap(parts->memory);
    return NULL;
  }
  link->sending = parts->sending;
  link->nlanes = parts->nlanes;
  link->nfds = nfds;
  memcpy(link->fds, parts->fds, sizeof(link->fds));
  link->memory = parts->memory;
  memcpy(link->peer, parts->peer, sizeof(link->peer));
  link->prompt = 1;
  link->inline_max = parts->memory != NULL ? LINK_INLINE_RING : LINK_INLINE_SOCKET;
  link->control.fd = link->fds[0];
  if (link->memory != NULL) link_memory_control(link->memory, link->sending, &link->control);
  for (int i = 0; i < link->nlanes; i++) {
    struct stream stream = {.fd = link->memory != NULL ? link->fds[0] : link->fds[1 + i]};
    if (link->memory != NULL) link_memory_lane(link->memory, i, link->sending, &stream);
    lane_create(&link->lanes[i], &stream, link->sending, &link->lane_failure);
  }
  for (int i = 0; i < LINK_SENDS; i++) link->requests[i].link = link;
  return link;
}

static void link_shut(struct link* link) {
  for (int i = 0; i < link->nfds; i++) shutdown(link->fds[i], SHUT_RDWR);
}

void link_close(struct link* link) {
  int unfinished = link->failed != arfusionSuccess;

  for (int i = 0; i < LINK_SENDS; i++) unfinished |= link->requests[i].used;
  /* What has been sent for good must still arrive, so only unfinished requests are worth ending the hard way. */
  if (unfinished) link_shut(link);
  for (int i = 0; i < link->nlanes; i++) lane_destroy(&link->lanes[i]);
  for (int i = 1; i < link->nfds; i++) close(link->fds[i]); /* a receiver sends nothing there, so these need no time */
  if (link->sending) {
    linger_begin(link->fds[0]);
  } else {
    close(link->fds[0]);
  }
  if (link->memory != NULL) link_memory_unmap(link->memory);
  free(link);
}

arfusionResult_t link_fail(struct link* link, arfusionResult_t result, const char* fmt, ...) {
  char text[512];
  va_list args;

  va_start(args, fmt);
  vsnprintf(text, sizeof(text), fmt, args);
  va_end(args);
  if (link->failed != arfusionSuccess) return link->failed;
  link->failed = error_set(result, "NET/arfusion: %s %s: %s", link->sending ? "to" : "from", link->peer, text);
  link_shut(link);
  return result;
}

arfusionResult_t link_fail_status(struct link* link, enum net_status status) {
  if (status == NET_CLOSED) return link_fail(link, arfusionRemoteError, LINK_GONE);
  return link_fail(link, arfusionSystemError, "the connection broke: %s", strerror(errno));
}

arfusionResult_t link_gone(struct link* link) {
  if (!link->gone_told) {
    error_set(arfusionRemoteError, "NET/arfusion: %s %s: " LINK_GONE, link->sending ? "to" : "from", link->peer);
    link->gone_told = 1;
  }
  return arfusionRemoteError;
}

int link_peek(struct link* link, size_t bytes, void** frame) {
  size_t have = link->ahead_have - link->ahead_at;

  if (have < bytes) {
    enum net_status status;
    memmove(link->ahead, link->ahead + link->ahead_at, have);
    link->ahead_at = 0;
    status = stream_receive_some(&link->control, link->ahead, sizeof(link->ahead), &have);
    link->ahead_have = have;
    if (status == NET_CLOSED) link->gone = 1;
    if (status == NET_ERROR) link_fail_status(link, status);
    if (have < bytes) return status == NET_OK ? 0 : -1;
  }
  *frame = link->ahead + link->ahead_at;
  return 1;
}

/* ---------------------------------------------------------------- parts on the lanes */

static size_t link_part(const struct link* link, size_t size) {
  size_t part = size / (size_t)link->nlanes + 1;
  part = (part + LINK_PART_ALIGN - 1) / LINK_PART_ALIGN * LINK_PART_ALIGN;
  return part < LINK_PART_MIN ? LINK_PART_MIN : part;
}

unsigned link_cut_count(const struct link* link, size_t size) {
  size_t part = link_part(link, size);
  return (unsigned)((size + part - 1) / part);
}

arfusionResult_t link_cut(struct link* link, char* data, size_t size, unsigned first, _Atomic int* pending) {
  size_t part = link_part(link, size);
  unsigned count = link_cut_count(link, size);

  atomic_fetch_add(pending, (int)count);
  for (unsigned i = 0; i < count; i++) {
    size_t at = i * part, bytes = size - at < part ? size - at : part;
    int error = lane_push(&link->lanes[(first + i) % (unsigned)link->nlanes], data + at, bytes, pending);
    if (error != 0) return link_fail(link, arfusionSystemError, "no helper thread: %s", strerror(error));
  }
  return arfusionSuccess;
}

/* ---------------------------------------------------------------- requests */

struct link_request* link_request_free(struct link* link) {
  const int most = link->sending ? LINK_SENDS : LINK_POSTINGS;

  for (int i = 0; i < most; i++) {
    if (!link->requests[i].used) return &link->requests[i];
  }
  return NULL;
}

void link_order_add(struct link_order* order, size_t slot) { order->slot[order->count++] = (uint8_t)slot; }

void link_order_remove(struct link_order* order, size_t slot) {
  int at = 0;

  while (order->slot[at] != slot) at++;
  order->count--;
  memmove(&order->slot[at], &order->slot[at + 1], (size_t)(order->count - at) * sizeof(order->slot[0]));
}

static int request_done(struct link_request* request) {
  return request->waiting == 0 && atomic_load(&request->pending) == 0;
}

static int bytes_reported(size_t bytes) { return bytes > INT_MAX ? INT_MAX : (int)bytes; }

arfusionResult_t link_test(struct link_request* request, int* done, int* sizes) {
  struct link* link = request->link;
  arfusionResult_t result = link->failed;

  *done = 0;
  if (!request_done(request) && result == arfusionSuccess) {
    result = link->sending ? link_send_progress(link) : link_receive_progress(link);
    for (int i = 0; i < link->nlanes && atomic_load(&request->pending) > 0; i++) lane_help(&link->lanes[i]);
  }
  if (request_done(request)) {
    for (int i = 0; sizes != NULL && i < request->n; i++) {
      sizes[i] = bytes_reported(link->sending ? request->send.size : request->entry[i].size);
    }
    request->used = 0;
    if (!link->sending) link_order_remove(&link->order, (size_t)(request - link->requests));
    *done = 1;
    return arfusionSuccess;
  }
  if (result != arfusionSuccess) return result;
  if (atomic_load(&link->lane_failure.status) != NET_OK) {
    errno = atomic_load(&link->lane_failure.error);
    return link_fail_status(link, (enum net_status)atomic_load(&link->lane_failure.status));
  }
  return link->gone && request->waiting > 0 ? link_gone(link) : arfusionSuccess;
}
