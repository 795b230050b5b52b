/* SPDX-License-Identifier: Apache-2.0
 *
 * stream.h: a stream of bytes to and from a peer: a socket, or rings in shared memory beside a socket that then only
 * shows whether the peer is still there. One thread at a time per stream, stream_wake excepted.
 */
#ifndef ARFUSION_NET_STREAM_H_
#define ARFUSION_NET_STREAM_H_

#include "plugin/core/bootstrap_net.h"
#include "plugin/net/ring.h"

struct stream {
  int fd;              /* not owned */
  struct ring in, out; /* if the memory of either is not NULL, `fd` only shows whether the peer is there */
  unsigned idle;       /* looks that found nothing */
};

/* As net_send_some and net_receive_some: NET_OK with *done < bytes means that the rest has to wait. `more`: what is
 * sent is the beginning of something, the rest of which follows at once. Bytes that were sent before the peer ended are
 * received before NET_CLOSED. */
enum net_status stream_send_some(struct stream* stream, const void* data, size_t bytes, size_t* done, int more);
enum net_status stream_receive_some(struct stream* stream, void* data, size_t bytes, size_t* done);

/* Waits until it is worth trying again, or woken, or a while (at most 50 ms) has passed. */
void stream_wait(struct stream* stream, int to_send);

/* Ends a wait of another thread; for sockets, the stream has to be shut down first. */
void stream_wake(struct stream* stream);

#endif
