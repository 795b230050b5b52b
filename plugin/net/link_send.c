/* SPDX-License-Identifier: Apache-2.0
 *
 * link_send.c: the sending end of a link.
 */
#include <string.h>

#include "plugin/net/link_internal.h"

/* ---------------------------------------------------------------- what the receiver is ready for */

static void posting_use(struct link* link, struct link_posting* posting, int entry) {
  posting->sent[entry] = 1;
  posting->open--;
  if (posting->open == 0) link_order_remove(&link->order, (size_t)(posting - link->postings));
}

/* Its buffers go to the early messages that have waited for them. */
static void posting_pair(struct link* link, struct link_posting* posting) {
  for (int i = 0; i < posting->n; i++) {
    int oldest = 0;
    while (oldest < link->early_count && link->early_tags[oldest] != posting->tags[i]) oldest++;
    if (oldest == link->early_count) continue;
    link->early_count--;
    memmove(&link->early_tags[oldest], &link->early_tags[oldest + 1],
            (size_t)(link->early_count - oldest) * sizeof(link->early_tags[0]));
    posting_use(link, posting, i);
  }
}

static arfusionResult_t posting_take(struct link* link, const struct link_post* post,
                                     const struct link_post_entry* entries) {
  struct link_posting* posting = &link->postings[post->slot % LINK_POSTINGS];

  if (post->seq != link->post_next || post->slot >= LINK_POSTINGS || posting->open != 0) {
    return link_fail(link, arfusionRemoteError, "posting %u came for slot %u, where %u for a free slot may follow",
                     post->seq, post->slot, link->post_next);
  }
  memset(posting, 0, sizeof(*posting));
  posting->seq = post->seq;
  posting->n = posting->open = post->n;
  for (int i = 0; i < post->n; i++) posting->tags[i] = entries[i].tag;
  link->post_next++;
  link_order_add(&link->order, post->slot);
  posting_pair(link, posting);
  return arfusionSuccess;
}

static arfusionResult_t postings_read(struct link* link) {
  void* at;

  while (link_peek(link, LINK_ALIGN, &at) == 1) {
    struct link_post post;
    struct link_post_entry entries[LINK_GROUP];
    size_t bytes;
    memcpy(&post, at, sizeof(post));
    if (post.kind != LINK_POST || post.n < 1 || post.n > LINK_GROUP) {
      return link_fail(link, arfusionRemoteError, "what came is no posting (kind %u, %u buffers)", post.kind, post.n);
    }
    bytes = post.n * sizeof(entries[0]);
    if (link_peek(link, link_padded(sizeof(post) + bytes), &at) != 1) break;
    memcpy(entries, (char*)at + sizeof(post), bytes);
    link->ahead_at += link_padded(sizeof(post) + bytes);
    if (posting_take(link, &post, entries) != arfusionSuccess) break;
  }
  return link->failed;
}

/* The oldest buffer with this tag: its posting, and its place there in *entry. NULL: there is none. */
static struct link_posting* posting_match(struct link* link, int tag, int* entry) {
  for (int k = 0; k < link->order.count; k++) {
    struct link_posting* posting = &link->postings[link->order.slot[k]];
    for (int i = 0; i < posting->n; i++) {
      if (posting->sent[i] || posting->tags[i] != tag) continue;
      *entry = i;
      return posting;
    }
  }
  return NULL;
}

/* ---------------------------------------------------------------- messages */

/* Writes what the control stream takes of a send's head, data and padding. 1: the message is sent. */
static int send_write(struct link* link, struct link_request* request) {
  static const unsigned char padding[LINK_ALIGN];
  enum net_status status = NET_OK;

  if (request->send.head_done < request->send.head_bytes) {
    status = stream_send_some(&link->control, request->send.head, request->send.head_bytes, &request->send.head_done,
                              request->send.follows > 0);
  }
  if (status == NET_OK && request->send.head_done == request->send.head_bytes) {
    status = stream_send_some(&link->control, request->send.data, request->send.follows, &request->send.done,
                              request->send.pad > 0);
  }
  if (status == NET_OK && request->send.done == request->send.follows) {
    status = stream_send_some(&link->control, padding, request->send.pad, &request->send.pad_done, 0);
  }
  if (status == NET_CLOSED) link->gone = 1;
  if (status == NET_ERROR) link_fail_status(link, status);
  if (request->send.head_done < request->send.head_needed || request->send.done < request->send.follows) return 0;
  /* A peer that has closed has the message, and needed no padding. */
  return status == NET_CLOSED ||
         (request->send.head_done == request->send.head_bytes && request->send.pad_done == request->send.pad);
}

static void sends_write(struct link* link) {
  while (link->queue_count > 0) {
    struct link_request* request = &link->requests[link->queue[link->queue_first]];
    if (!send_write(link, request)) break;
    request->waiting = 0;
    link->queue_first = (link->queue_first + 1) % LINK_SENDS;
    link->queue_count--;
  }
}

arfusionResult_t link_send_progress(struct link* link) {
  sends_write(link);
  return link->failed != arfusionSuccess ? link->failed : postings_read(link);
}

static void send_start(struct link* link, struct link_request* request, struct link_message* message, const char* data,
                       size_t size) {
  size_t first = 0;

  message->follows = size > 0 && size <= link->inline_max;
  if (message->follows) first = size <= LINK_HEAD_DATA ? size : 0;
  memcpy(request->send.head, message, sizeof(*message));
  memcpy(request->send.head + sizeof(*message), data, first);
  request->send.head_needed = sizeof(*message) + first;
  request->send.head_bytes = link_padded(request->send.head_needed);
  memset(request->send.head + request->send.head_needed, 0, request->send.head_bytes - request->send.head_needed);
  request->send.head_done = 0;
  request->send.data = data;
  request->send.follows = message->follows ? size - first : 0;
  request->send.done = 0;
  request->send.pad = link_padded(request->send.follows) - request->send.follows;
  request->send.pad_done = 0;
  request->send.size = size;
  request->waiting = 1;
  request->n = 1;
  request->used = 1;
  atomic_store(&request->pending, 0);
  link->queue[(link->queue_first + link->queue_count++) % LINK_SENDS] = (unsigned)(request - link->requests);
}

arfusionResult_t link_send(struct link* link, const void* data, size_t size, int tag, struct link_request** request) {
  struct link_message message = {.kind = LINK_MESSAGE, .size = size};
  struct link_posting* posting;
  struct link_request* slot;
  int entry = 0;

  *request = NULL;
  if (link->failed != arfusionSuccess) return link->failed;
  if (size > LINK_MESSAGE_MAX) {
    return link_fail(link, arfusionInvalidArgument, "a message of %zu bytes; at most %zu are allowed", size,
                     LINK_MESSAGE_MAX);
  }
  if (size == 0) data = ""; /* no bytes need no memory, but NULL is no address to copy from */
  sends_write(link);
  /* What may go early need not look for postings each time. */
  if (size > LINK_EARLY_MAX || link->early_count > LINK_EARLY_MOST / 2) postings_read(link);
  if (link->failed != arfusionSuccess) return link->failed;
  if (link->gone) return link_gone(link);
  posting = posting_match(link, tag, &entry);
  if (posting == NULL && (size > LINK_EARLY_MAX || link->early_count == LINK_EARLY_MOST)) return arfusionSuccess;
  slot = link_request_free(link);
  if (slot == NULL) return arfusionSuccess;
  if (posting != NULL) {
    posting_use(link, posting, entry);
    message.buffer = (uint8_t)((posting - link->postings) * LINK_GROUP + entry);
    message.seq = posting->seq;
  } else {
    link->early_tags[link->early_count++] = tag;
    message.kind = LINK_EARLY;
    message.seq = (uint32_t)tag;
  }
  message.lane = (uint8_t)link->lane_next;
  send_start(link, slot, &message, data, size);
  if (size > link->inline_max) {
    link->lane_next = (link->lane_next + link_cut_count(link, size)) % (unsigned)link->nlanes;
    if (link_cut(link, (char*)(uintptr_t)data, size, message.lane, &slot->pending) != arfusionSuccess) {
      return link->failed;
    }
  }
  *request = slot;
  sends_write(link);
  return link->failed;
}
