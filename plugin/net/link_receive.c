/* SPDX-License-Identifier: Apache-2.0
 *
 * link_receive.c: the receiving end of a link.
 */
#include <string.h>

#include "plugin/net/link_internal.h"

/* ---------------------------------------------------------------- postings */

#define POSTS_HELD 8u   /* postings that go together where nobody waits for them */
#define POSTS_LOOKS 64u /* and for so many looks without one of them: somebody may */

/* Small messages come early, without waiting for a posting, and sending one costs a socket as much as a message. */
static void prompt_choose(struct link* link, size_t size) {
  link->prompt = link->memory != NULL || size > LINK_EARLY_MAX;
}

static int posts_due(const struct link* link) {
  return link->prompt || link->posts_begun || link->posts_held >= POSTS_HELD || link->posts_looks >= POSTS_LOOKS;
}

static void posts_write(struct link* link) {
  enum net_status status;

  if (link->deaf || link->posts_done == link->posts_bytes || !posts_due(link)) return;
  status = stream_send_some(&link->control, link->posts, link->posts_bytes, &link->posts_done, 0);
  link->posts_begun |= link->posts_done > 0;
  if (link->posts_done == link->posts_bytes) {
    link->posts_begun = 0;
    link->posts_done = link->posts_bytes = 0;
    link->posts_held = link->posts_looks = 0;
  }
  if (status == NET_CLOSED) link->deaf = 1; /* but what the peer sent before may still be read */
  if (status == NET_ERROR) link_fail_status(link, status);
}

static void posts_add(struct link* link, const void* data, size_t bytes) {
  if (link->posts_done > 0) {
    link->posts_bytes -= link->posts_done;
    memmove(link->posts, link->posts + link->posts_done, link->posts_bytes);
    link->posts_done = 0;
  }
  memcpy(link->posts + link->posts_bytes, data, bytes);
  link->posts_bytes += bytes;
}

static arfusionResult_t message_long(struct link* link, const struct link_entry* entry, size_t size) {
  return link_fail(link, arfusionInvalidUsage,
                   "a message of %zu bytes came for a buffer of %zu (tag %d): sizes, or settings such as NCCL_PROTO or "
                   "NCCL_ALGO, differ between the ranks",
                   size, entry->size, entry->tag);
}

/* ---------------------------------------------------------------- early messages */

static arfusionResult_t early_give(struct link* link, const struct link_early* early, struct link_request* request,
                                   struct link_entry* entry) {
  if (early->size > entry->size) return message_long(link, entry, early->size);
  if (early->size > 0) memcpy(entry->data, early->data, early->size);
  entry->size = early->size;
  entry->matched = 1;
  request->waiting--;
  return arfusionSuccess;
}

/* A new receive gets the early messages with its tags. */
static void early_pair(struct link* link, struct link_request* request) {
  for (int i = 0; i < request->n; i++) {
    int oldest = 0;
    while (oldest < link->early_held && link->early[oldest].tag != request->entry[i].tag) oldest++;
    if (oldest == link->early_held) continue;
    if (early_give(link, &link->early[oldest], request, &request->entry[i]) != arfusionSuccess) return;
    link->early_held--;
    memmove(&link->early[oldest], &link->early[oldest + 1],
            (size_t)(link->early_held - oldest) * sizeof(link->early[0]));
  }
}

/* `incoming` is complete: it goes into the oldest buffer with its tag, or waits for one. */
static void early_place(struct link* link) {
  for (int k = 0; k < link->order.count; k++) {
    struct link_request* request = &link->requests[link->order.slot[k]];
    for (int i = 0; i < request->n; i++) {
      if (request->entry[i].matched || request->entry[i].tag != link->incoming.tag) continue;
      early_give(link, &link->incoming, request, &request->entry[i]);
      return;
    }
  }
  link->early[link->early_held++] = link->incoming;
}

static arfusionResult_t early_take(struct link* link, const struct link_message* message) {
  if (message->size > LINK_EARLY_MAX || message->follows != (message->size > 0) ||
      link->early_held == LINK_EARLY_MOST) {
    return link_fail(link, arfusionRemoteError, "an early message of %llu bytes beside %d others",
                     (unsigned long long)message->size, link->early_held);
  }
  link->incoming.tag = (int)message->seq;
  link->incoming.size = message->size;
  if (message->size == 0) {
    early_place(link);
    return arfusionSuccess;
  }
  link->incoming_entry = (struct link_entry){.data = link->incoming.data, .size = message->size};
  link->reading = NULL;
  link->reading_entry = &link->incoming_entry;
  link->reading_done = 0;
  return arfusionSuccess;
}

arfusionResult_t link_receive(struct link* link, int n, void* const* data, const size_t* sizes, const int* tags,
                              struct link_request** request) {
  struct link_request* slot = link_request_free(link);
  struct link_post post = {.kind = LINK_POST, .n = (uint8_t)n, .seq = link->seq_next};
  const size_t bytes = sizeof(post) + (size_t)n * sizeof(struct link_post_entry);
  static const unsigned char padding[LINK_ALIGN];

  *request = NULL;
  if (link->failed != arfusionSuccess) return link->failed;
  if (slot == NULL) return arfusionSuccess;
  posts_write(link);
  if (link->failed != arfusionSuccess) return link->failed;
  if (link->deaf) link->posts_done = link->posts_bytes = 0; /* nobody takes them */
  /* A peer that sends early messages and reads no postings has them pile up here. */
  if (link->posts_bytes - link->posts_done + link_padded(bytes) > sizeof(link->posts)) return arfusionSuccess;
  slot->used = 1;
  slot->n = slot->waiting = n;
  slot->seq = link->seq_next++;
  post.slot = (uint8_t)(slot - link->requests);
  link_order_add(&link->order, post.slot);
  atomic_store(&slot->pending, 0);
  link->posts_held++;
  posts_add(link, &post, sizeof(post));
  for (int i = 0; i < n; i++) {
    struct link_post_entry entry = {.size = sizes[i], .tag = tags[i]};
    posts_add(link, &entry, sizeof(entry));
    slot->entry[i] = (struct link_entry){.data = data[i], .size = sizes[i], .tag = tags[i]};
  }
  posts_add(link, padding, link_padded(bytes) - bytes);
  early_pair(link, slot);
  *request = slot;
  posts_write(link);
  return link->failed;
}

/* ---------------------------------------------------------------- messages */

static arfusionResult_t message_take(struct link* link, const struct link_message* message) {
  const int at = message->buffer % LINK_GROUP;
  struct link_request* request = &link->requests[message->buffer / LINK_GROUP];
  struct link_entry* entry = &request->entry[at];

  prompt_choose(link, message->size);
  if (message->kind == LINK_EARLY) return early_take(link, message);
  if (message->kind != LINK_MESSAGE || message->follows > 1 || message->lane >= link->nlanes) {
    return link_fail(link, arfusionRemoteError, "what came is no message (kind %u)", message->kind);
  }
  if (!request->used || request->seq != message->seq || at >= request->n || entry->matched) {
    return link_fail(link, arfusionRemoteError, "a message for buffer %d of receive %u, which waits for none", at,
                     message->seq);
  }
  if (message->size > entry->size) return message_long(link, entry, message->size);
  if (message->follows != (message->size > 0 && message->size <= link->inline_max)) {
    return link_fail(link, arfusionRemoteError, "a message of %llu bytes came the wrong way",
                     (unsigned long long)message->size);
  }
  entry->matched = 1;
  entry->size = message->size;
  if (message->follows) {
    link->reading = request;
    link->reading_entry = entry;
    link->reading_done = 0;
    return arfusionSuccess;
  }
  request->waiting--;
  if (entry->size == 0) return arfusionSuccess;
  return link_cut(link, entry->data, entry->size, message->lane, &request->pending);
}

/* Where the padding of a header and its message is. */
static void skip_choose(struct link* link, const struct link_message* message) {
  const size_t first = message->follows && message->size <= LINK_HEAD_DATA ? (size_t)message->size : 0;
  const size_t head = link_padded(sizeof(*message) + first) - sizeof(*message) - first;
  link->skip = first > 0 ? 0 : head;
  link->skip_after = first > 0 ? head : link_padded(message->size) - message->size;
}

/* 1: the message that follows is complete. */
static int message_read(struct link* link) {
  struct link_entry* entry = link->reading_entry;
  size_t ahead = link->ahead_have - link->ahead_at, left = entry->size - link->reading_done;
  enum net_status status;

  if (ahead > left) ahead = left;
  memcpy(entry->data + link->reading_done, link->ahead + link->ahead_at, ahead);
  link->ahead_at += ahead;
  link->reading_done += ahead;
  if (link->reading_done < entry->size) {
    status = stream_receive_some(&link->control, entry->data, entry->size, &link->reading_done);
    if (status == NET_CLOSED) link->gone = 1;
    if (status == NET_ERROR) link_fail_status(link, status);
    if (link->reading_done < entry->size) return 0;
  }
  link->reading_entry = NULL;
  link->skip = link->skip_after;
  if (link->reading != NULL) {
    link->reading->waiting--;
  } else {
    early_place(link);
  }
  return 1;
}

arfusionResult_t link_receive_progress(struct link* link) {
  void* at;

  link->posts_looks += link->posts_held > 0;
  posts_write(link);
  while (link->failed == arfusionSuccess) {
    struct link_message message;
    if (link->skip > 0) {
      if (link_peek(link, link->skip, &at) != 1) break;
      link->ahead_at += link->skip;
      link->skip = 0;
    }
    if (link->reading_entry != NULL) {
      if (!message_read(link)) break;
      /* Looking for more costs as much as the next look. */
      if (link->ahead_have - link->ahead_at <= link->skip) break;
      continue;
    }
    if (link_peek(link, sizeof(message), &at) != 1) break;
    memcpy(&message, at, sizeof(message));
    link->ahead_at += sizeof(message);
    skip_choose(link, &message);
    message_take(link, &message);
  }
  return link->failed;
}
