/* SPDX-License-Identifier: Apache-2.0
 *
 * link.h: a connection, on which one end sends messages and the other receives them.
 *
 * The receiver says what it is ready to take: up to LINK_GROUP buffers at once (a posting), each with a tag and a size.
 * A message goes into the oldest buffer with its tag, so messages of one tag stay in order, and those of different tags
 * do not hold up each other. Before there is a buffer, only LINK_EARLY_MOST messages of up to LINK_EARLY_MAX bytes may
 * travel. Small messages follow their header on the control stream; large ones are cut up among the lanes.
 *
 * One thread at a time per link. Errors are recorded with error_set once per link; afterwards the link only repeats the
 * code, and the other end learns of it by the end of its streams.
 */
#ifndef ARFUSION_NET_LINK_H_
#define ARFUSION_NET_LINK_H_

#include "arfusion_plugin.h"
#include "plugin/net/stream.h"

#define LINK_GROUP 8                          /* buffers of one receive */
#define LINK_POSTINGS 32                      /* that may be outstanding */
#define LINK_SENDS (LINK_POSTINGS * LINK_GROUP)
#define LINK_EARLY_MOST 32                    /* messages that may be sent before the receiver is ready for them */
#define LINK_EARLY_MAX 1024u                  /* bytes of these */
#define LINK_LANES_MAX 8
#define LINK_MESSAGE_MAX ((size_t)1 << 31)    /* bytes */
#define LINK_NAME_BYTES 80

struct link;
struct link_request;

/* What a link is made of. All of it belongs to the link from then on, also if it cannot be made. */
struct link_parts {
  int sending;
  int nlanes;
  int fds[1 + LINK_LANES_MAX];         /* the control socket and, unless there is shared memory, those of the lanes */
  struct link_memory* memory;          /* link_memory_map; NULL: sockets only */
  char peer[LINK_NAME_BYTES];          /* for messages: "10.0.0.2:4242" */
};

/* Shared memory for the rings of a link, made by one end (*fd is a new sealed memfd) and mapped by both. NULL: errno
 * says why not; EBADMSG: the descriptor is not such memory. */
struct link_memory;
struct link_memory* link_memory_create(int nlanes, int* fd);
struct link_memory* link_memory_map(int fd, int nlanes);
void link_memory_unmap(struct link_memory* memory);

/* NULL: out of memory. */
struct link* link_create(const struct link_parts* parts);

/* Of a sender whose messages are all sent, the control socket may linger (linger.h). */
void link_close(struct link* link);

/* *request is NULL if it cannot be done now. Memory must stay until link_test says that the request is done, and
 * link_test is to be called until then: the peer may learn of a receive only by that. link_send: the peer is not ready
 * for this tag and the message may not go early, or LINK_SENDS are outstanding. size <= LINK_MESSAGE_MAX. link_receive:
 * LINK_POSTINGS are outstanding, or the peer does not take the postings. 1 <= n <= LINK_GROUP. */
arfusionResult_t link_send(struct link* link, const void* data, size_t size, int tag, struct link_request** request);
arfusionResult_t link_receive(struct link* link, int n, void* const* data, const size_t* sizes, const int* tags,
                              struct link_request** request);

/* Moves the link on. When *done is 1, the request is no more; sizes (may be NULL) then has the bytes of each message,
 * at most INT_MAX. */
arfusionResult_t link_test(struct link_request* request, int* done, int* sizes);

#endif
