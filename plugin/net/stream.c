/* SPDX-License-Identifier: Apache-2.0
 *
 * stream.c: see stream.h.
 */
#include "plugin/net/stream.h"

#include <errno.h>
#include <sched.h>
#include <sys/socket.h>

#define STREAM_WAIT (50 * NET_MILLISECOND)
#define STREAM_LOOKS 64  /* without success, and it is time to look whether the peer is there */
#define STREAM_SPINS 50  /* of a wait, with the processor given to others in between */

static int stream_is_rings(const struct stream* stream) {
  return stream->in.memory != NULL || stream->out.memory != NULL;
}

/* Nothing is ever sent on the socket beside rings. */
static int stream_peer_gone(struct stream* stream) {
  char byte;
  ssize_t got = recv(stream->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return !(got < 0 && (errno == EAGAIN || errno == EINTR));
}

static enum net_status rings_step(struct stream* stream, const void* send, void* receive, size_t bytes, size_t* done) {
  int looked = 0;

  for (;;) {
    int64_t step = send != NULL ? ring_write(&stream->out, (const char*)send + *done, bytes - *done)
                                : ring_read(&stream->in, (char*)receive + *done, bytes - *done);
    if (step == RING_SPOILED) {
      errno = EBADMSG;
      return NET_ERROR;
    }
    *done += (size_t)step;
    if (step > 0) stream->idle = 0;
    if (*done == bytes) return NET_OK;
    if (looked) return NET_CLOSED; /* and this look was after the peer's end */
    if (++stream->idle % STREAM_LOOKS != 0 || !stream_peer_gone(stream)) return NET_OK;
    looked = 1;
  }
}

enum net_status stream_send_some(struct stream* stream, const void* data, size_t bytes, size_t* done, int more) {
  if (stream->out.memory != NULL) return rings_step(stream, data, NULL, bytes, done);
  return net_send_part(stream->fd, data, bytes, done, more);
}

enum net_status stream_receive_some(struct stream* stream, void* data, size_t bytes, size_t* done) {
  if (stream->in.memory != NULL) return rings_step(stream, NULL, data, bytes, done);
  return net_receive_some(stream->fd, data, bytes, done);
}

void stream_wait(struct stream* stream, int to_send) {
  struct pollfd entry = {.fd = stream->fd, .events = to_send ? POLLOUT : POLLIN};

  if (!stream_is_rings(stream)) {
    net_poll(&entry, 1, net_now() + STREAM_WAIT);
    return;
  }
  /* The other end is at work on the same ring as a rule: sleeping and waking would cost more than the wait. */
  if (stream->idle % STREAM_SPINS != 0) {
    sched_yield();
    return;
  }
  if (to_send) {
    ring_wait_write(&stream->out, STREAM_WAIT);
  } else {
    ring_wait_read(&stream->in, STREAM_WAIT);
  }
  stream->idle = STREAM_LOOKS - 1; /* the next look that finds nothing asks whether the peer is there */
}

void stream_wake(struct stream* stream) {
  if (stream->in.memory != NULL) ring_wake(&stream->in);
  if (stream->out.memory != NULL) ring_wake(&stream->out);
}
