/* SPDX-License-Identifier: Apache-2.0
 *
 * bootstrap_net.h: Unix sockets in the abstract namespace, as the bootstraps need them. Every socket is non-blocking
 * and close-on-exec, waits end at a deadline, and a peer that is gone is a return value, not a signal.
 */
#ifndef ARFUSION_CORE_BOOTSTRAP_NET_H_
#define ARFUSION_CORE_BOOTSTRAP_NET_H_

#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define NET_NAME_BYTES 64 /* of an abstract name with its terminator */
#define NET_BESIDE_BYTES 9 /* of the ending of a name beside one */
#define NET_MILLISECOND ((int64_t)1000000)
#define NET_SECOND ((int64_t)1000000000)

struct net_peer {
  uid_t uid;
  pid_t pid;
};

enum net_status {
  NET_OK,
  NET_CLOSED,  /* the other side closed, or its process ended */
  NET_TIMEOUT, /* the deadline has passed */
  NET_ERROR    /* errno says what */
};

/* Nanoseconds of CLOCK_MONOTONIC, which is the same in all processes of a host. */
int64_t net_now(void);
int64_t net_deadline(int64_t timeout_s);

/* poll until the deadline; as poll returns, but never fails with EINTR. */
int net_poll(struct pollfd* fds, size_t count, int64_t deadline);
void net_sleep(int64_t nanoseconds);

/* These return a descriptor, or -errno. net_accept skips connections that ended or are another user's, and returns
 * -EAGAIN when there is no further one (or there were very many of these). net_connect returns -ECONNREFUSED when
 * nobody listens and -EAGAIN when the queue is full. net_connect_beside connects to a listener of this user at any
 * NAME-XXXXXXXX. */
int net_listen(const char* name);
int net_accept(int listener, struct net_peer* peer);
int net_connect(const char* name, struct net_peer* peer);
int net_connect_beside(const char* name, struct net_peer* peer);

/* Listens at a random NAME-XXXXXXXX, which nobody can have taken before. */
int net_listen_beside(const char* name);

/* All `bytes` of it, or why not. */
enum net_status net_send(int fd, const void* data, size_t bytes, int64_t deadline);
enum net_status net_receive(int fd, void* data, size_t bytes, int64_t deadline);

/* One step of the above that does not wait: adds what was done to *done. NET_OK with *done < bytes: poll, then again.
 */
enum net_status net_send_some(int fd, const void* data, size_t bytes, size_t* done);
enum net_status net_receive_some(int fd, void* data, size_t bytes, size_t* done);

/* As net_send_some; `more`: what is sent next follows at once, and may share a packet with this. */
enum net_status net_send_part(int fd, const void* data, size_t bytes, size_t* done, int more);

/* Whether this errno of a socket means that the other end has left. */
int net_is_gone(int error);

/* A descriptor with some bytes, over a Unix socket. net_send_fd: 0, or -errno; what is small goes whole into the empty
 * queue of a new connection. net_receive_fd: the bytes that came, or -errno; *count descriptors came with them, of
 * which *fd is the first, close-on-exec, and the others are closed again; *lost: there was one that this process had no
 * room for. */
int net_send_fd(int connection, const void* data, size_t bytes, int fd);
ssize_t net_receive_fd(int connection, void* data, size_t bytes, int* fd, int* count, int* lost);

/* Fills in random bytes from the kernel; 0, or -errno. */
int net_random(void* data, size_t bytes);

#endif
