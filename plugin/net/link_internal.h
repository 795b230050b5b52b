/* SPDX-License-Identifier: Apache-2.0
 *
 * link_internal.h: what the two ends of a link (link_send.c, link_receive.c) and what they have in common (link.c)
 * share.
 */
#ifndef ARFUSION_NET_LINK_INTERNAL_H_
#define ARFUSION_NET_LINK_INTERNAL_H_

#include "plugin/net/lane.h"
#include "plugin/net/link.h"

#define LINK_INLINE_SOCKET 16384u /* the largest message on the control stream */
#define LINK_INLINE_RING 32768u
#define LINK_HEAD_DATA LINK_EARLY_MAX /* of a message that is sent in one piece with its header */
#define LINK_PART_MIN 65536u      /* of a message on a lane, unless that is all of it */
#define LINK_READ_AHEAD 4096u

#define LINK_ALIGN 64u

/* Headers and messages are padded to this on the control stream: a copy between addresses that are not alike within a
 * cache line takes twice as long, and each byte of a message that follows its header is copied twice. */
static inline size_t link_padded(size_t bytes) { return (bytes + LINK_ALIGN - 1) / LINK_ALIGN * LINK_ALIGN; }

enum link_frame_kind { LINK_POST = 1, LINK_MESSAGE = 2, LINK_EARLY = 3 };

/* From the receiver: a posting. `n` entries follow. */
struct link_post {
  uint8_t kind;
  uint8_t n;
  uint8_t slot; /* below LINK_POSTINGS: free since the receive that was there before is done */
  uint8_t reserved;
  uint32_t seq; /* counts postings */
};

struct link_post_entry {
  uint64_t size;
  int32_t tag;
  uint32_t reserved;
};

#define LINK_POST_MOST (sizeof(struct link_post) + LINK_GROUP * sizeof(struct link_post_entry))

/* From the sender: a message, which goes into an entry of posting `seq`. An early one goes into the oldest buffer
 * with its tag, which stands in `seq`. Both ends pair buffers and messages of a tag in the order in which these are
 * posted and sent, so the sender knows which buffers of a posting its early messages have taken. */
struct link_message {
  uint8_t kind;
  uint8_t buffer;  /* the posting's slot * LINK_GROUP + the entry */
  uint8_t lane;   /* of the first part; lanes are then taken in turn */
  uint8_t follows; /* 1: the message follows here, up to LINK_HEAD_DATA bytes in the same padded frame, more behind it;
                    * 0: it comes on the lanes, or is empty */
  uint32_t seq;
  uint64_t size;
};

_Static_assert(LINK_POSTINGS * LINK_GROUP <= 256, "a byte says which buffer");

struct link_entry {
  char* data;
  size_t size; /* room; then what came */
  int tag;
  int matched;
};

struct link_request {
  struct link* link;
  int used;
  int n; /* entries that were posted; 1 of a send */
  uint32_t seq;
  _Atomic int pending; /* parts on lanes that are not done */
  int waiting;         /* entries without a message that is here or on the lanes; of a send: not written yet */
  union {
    struct link_entry entry[LINK_GROUP];
    struct {
      size_t size, follows, done; /* `follows` bytes of data go onto the control stream behind the head */
      const char* data;
      size_t head_needed, head_bytes, head_done; /* without padding, and with it */
      size_t pad, pad_done;                      /* behind the data */
      unsigned char head[sizeof(struct link_message) + LINK_HEAD_DATA + LINK_ALIGN]; /* padded */
    } send;
  };
};

/* An early message at the receiver. */
struct link_early {
  int tag;
  size_t size;
  char data[LINK_EARLY_MAX];
};

/* The sender's copy of a posting. */
struct link_posting {
  uint32_t seq;
  uint8_t n, open; /* entries, and how many have no message yet */
  uint8_t sent[LINK_GROUP];
  int tags[LINK_GROUP];
};

/* Slots of postings, in the order in which these were posted. */
struct link_order {
  int count;
  uint8_t slot[LINK_POSTINGS];
};

struct link {
  int sending, nlanes;
  int fds[1 + LINK_LANES_MAX], nfds;
  struct link_memory* memory;
  char peer[LINK_NAME_BYTES];
  struct stream control;
  size_t inline_max;
  arfusionResult_t failed;
  int gone; /* the peer closed the control stream: nothing more will come */
  int gone_told;
  struct lane_failure lane_failure;
  struct lane lanes[LINK_LANES_MAX];
  struct link_order order; /* of the postings that are open, at the receiver of the receives that are not done */

  /* read ahead of the control stream */
  unsigned char ahead[LINK_READ_AHEAD];
  size_t ahead_at, ahead_have;

  /* the sender */
  struct link_posting postings[LINK_POSTINGS];
  uint32_t post_next; /* seq of the next to come */
  int early_tags[LINK_EARLY_MOST]; /* of the early messages whose buffers are not known yet, oldest first */
  int early_count;
  unsigned lane_next;
  unsigned queue[LINK_SENDS], queue_first, queue_count; /* sends that are not written yet */

  /* the receiver */
  uint32_t seq_next;
  unsigned char posts[LINK_POSTINGS * (LINK_POST_MOST + LINK_ALIGN)]; /* padded */
  size_t posts_done, posts_bytes; /* written, and in all */
  int posts_begun;                /* written in part: the rest goes at once */
  int prompt;                     /* postings go at once, because messages need them; else several go together */
  unsigned posts_held, posts_looks; /* postings in `posts`, and looks for messages since the first of them came */
  int deaf;                       /* the peer takes no more postings; what it has sent may still come */
  struct link_early early[LINK_EARLY_MOST]; /* without a buffer yet, oldest first */
  int early_held;
  struct link_early incoming;       /* an early message that is not complete */
  struct link_entry incoming_entry; /* its memory */
  struct link_entry* reading_entry; /* where the message that follows on the control stream goes; NULL: none follows */
  struct link_request* reading;     /* whose that is; NULL: an early message */
  size_t reading_done;
  size_t skip, skip_after; /* padding: to be passed over now, and behind the message that follows */

  struct link_request requests[LINK_SENDS]; /* of a receiver: the first LINK_POSTINGS */
};

/* Records the error and ends the streams; returns `result`. */
arfusionResult_t link_fail(struct link* link, arfusionResult_t result, const char* fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* The same for what a stream has met; of NET_ERROR, errno says more. */
arfusionResult_t link_fail_status(struct link* link, enum net_status status);

/* The peer is gone and a request cannot be done any more: records that once. What has been announced may still be on
 * the lanes, so the link does not fail. */
arfusionResult_t link_gone(struct link* link);

/* NULL: there are as many as there may be. */
struct link_request* link_request_free(struct link* link);

void link_order_add(struct link_order* order, size_t slot);
void link_order_remove(struct link_order* order, size_t slot);

/* Hands the parts of a message to the lanes, beginning with lane `first`. */
arfusionResult_t link_cut(struct link* link, char* data, size_t size, unsigned first, _Atomic int* pending);
unsigned link_cut_count(const struct link* link, size_t size);

/* 1: `bytes` bytes are at *frame, which holds until the next call. 0: not all of them are here yet. -1: the link
 * failed, or its peer is gone. At most LINK_READ_AHEAD / 2 bytes. */
int link_peek(struct link* link, size_t bytes, void** frame);

arfusionResult_t link_send_progress(struct link* link);
arfusionResult_t link_receive_progress(struct link* link);

#endif
