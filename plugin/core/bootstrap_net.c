/* SPDX-License-Identifier: Apache-2.0
 *
 * bootstrap_net.c: see bootstrap_net.h.
 */
#include "plugin/core/bootstrap_net.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "plugin/core/log.h"

#define FDS_ROOM 8 /* descriptors in one message that there is room for; one is right */
#define STRANGERS_AT_A_TIME 256
#define STRANGERS_LOGGED 16
#define TIMEOUT_MAX_S ((int64_t)1000000000) /* in nanoseconds still far from the end of 64 bits */

int64_t net_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * NET_SECOND + now.tv_nsec;
}

int64_t net_deadline(int64_t timeout_s) {
  if (timeout_s < 0) timeout_s = 0;
  if (timeout_s > TIMEOUT_MAX_S) timeout_s = TIMEOUT_MAX_S;
  return net_now() + timeout_s * NET_SECOND;
}

int net_poll(struct pollfd* fds, size_t count, int64_t deadline) {
  for (;;) {
    int64_t now = net_now();
    int64_t left = deadline > now ? deadline - now : 0; /* a peer's may be any number */
    int64_t milliseconds = left / NET_MILLISECOND + (left % NET_MILLISECOND > 0);
    int ready = poll(fds, count, milliseconds > INT_MAX ? INT_MAX : (int)milliseconds);
    if (ready > 0 || (ready < 0 && errno != EINTR)) return ready;
    if (ready == 0 && net_now() >= deadline) return 0;
  }
}

void net_sleep(int64_t nanoseconds) { net_poll(NULL, 0, net_now() + nanoseconds); }

static socklen_t net_address(const char* name, struct sockaddr_un* address) {
  size_t length = strnlen(name, NET_NAME_BYTES + NET_BESIDE_BYTES - 1);

  memset(address, 0, sizeof(*address));
  address->sun_family = AF_UNIX;
  memcpy(address->sun_path + 1, name, length); /* the leading 0 makes it abstract */
  return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

static int net_socket(void) {
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  return fd < 0 ? -errno : fd;
}

static int net_close_with(int fd, int error) {
  close(fd);
  return -error;
}

int net_listen(const char* name) {
  struct sockaddr_un address;
  socklen_t length = net_address(name, &address);
  int fd = net_socket();

  if (fd < 0) return fd;
  if (bind(fd, (struct sockaddr*)&address, length) != 0) return net_close_with(fd, errno);
  if (listen(fd, SOMAXCONN) != 0) return net_close_with(fd, errno);
  return fd;
}

static int net_credentials(int fd, struct net_peer* peer) {
  struct ucred credentials;
  socklen_t length = sizeof(credentials);

  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) return -1;
  peer->uid = credentials.uid;
  peer->pid = credentials.pid;
  return 0;
}

int net_accept(int listener, struct net_peer* peer) {
  static _Atomic int logged; /* or others could fill this user's log */

  for (int strangers = 0; strangers < STRANGERS_AT_A_TIME; strangers++) {
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      return -errno;
    }
    if (net_credentials(fd, peer) == 0) {
      if (peer->uid == geteuid()) return fd;
      if (logged < STRANGERS_LOGGED) {
        logged++;
        LOG_INFO(ARFUSION_LOG_BOOTSTRAP, "bootstrap: pid %d of uid %u connected, this is uid %u: dropped",
                 (int)peer->pid, (unsigned)peer->uid, (unsigned)geteuid());
      }
    }
    close(fd);
  }
  return -EAGAIN;
}

int net_connect(const char* name, struct net_peer* peer) {
  struct sockaddr_un address;
  socklen_t length = net_address(name, &address);
  int fd = net_socket();

  if (fd < 0) return fd;
  while (connect(fd, (struct sockaddr*)&address, length) != 0) {
    if (errno != EINTR) return net_close_with(fd, errno);
  }
  if (net_credentials(fd, peer) != 0) return net_close_with(fd, errno);
  return fd;
}

int net_listen_beside(const char* name) {
  char beside[NET_NAME_BYTES + NET_BESIDE_BYTES];
  uint32_t number;
  int fd = net_random(&number, sizeof(number));

  if (fd < 0) return fd;
  snprintf(beside, sizeof(beside), "%s-%08x", name, (unsigned)number);
  return net_listen(beside);
}

/* A line of /proc/net/unix has a listener's flag 00010000, and ends with the name, whose leading 0 is an @. Copies it
 * if it is one beside `name`. */
static int net_line_beside(const char* line, const char* name, char beside[NET_NAME_BYTES + NET_BESIDE_BYTES]) {
  const char* at = strstr(line, " @");
  size_t length = strlen(name);

  if (at == NULL || strstr(line, " 00010000 ") == NULL) return 0;
  if (strncmp(at + 2, name, length) != 0 || at[2 + length] != '-') return 0;
  if (strcspn(at + 2, "\n") != length + NET_BESIDE_BYTES) return 0;
  snprintf(beside, NET_NAME_BYTES + NET_BESIDE_BYTES, "%.*s", (int)length + NET_BESIDE_BYTES, at + 2);
  return 1;
}

int net_connect_beside(const char* name, struct net_peer* peer) {
  FILE* file = fopen("/proc/net/unix", "re");
  char beside[NET_NAME_BYTES + NET_BESIDE_BYTES], *line = NULL;
  size_t bytes = 0;
  int found = -ECONNREFUSED;

  while (file != NULL && found < 0 && getline(&line, &bytes, file) > 0) {
    int fd = net_line_beside(line, name, beside) ? net_connect(beside, peer) : -1;
    if (fd < 0) continue;
    if (peer->uid == geteuid()) {
      found = fd;
    } else {
      close(fd);
    }
  }
  free(line);
  if (file != NULL) fclose(file);
  return found;
}

int net_is_gone(int error) { return error == EPIPE || error == ECONNRESET || error == ENOTCONN; }

enum net_status net_send_some(int fd, const void* data, size_t bytes, size_t* done) {
  return net_send_part(fd, data, bytes, done, 0);
}

enum net_status net_send_part(int fd, const void* data, size_t bytes, size_t* done, int more) {
  const int flags = MSG_NOSIGNAL | MSG_DONTWAIT | (more ? MSG_MORE : 0);
  while (*done < bytes) {
    ssize_t sent = send(fd, (const char*)data + *done, bytes - *done, flags);
    if (sent >= 0) {
      *done += (size_t)sent;
    } else if (errno == EAGAIN) {
      return NET_OK;
    } else if (errno != EINTR) {
      return net_is_gone(errno) ? NET_CLOSED : NET_ERROR;
    }
  }
  return NET_OK;
}

enum net_status net_receive_some(int fd, void* data, size_t bytes, size_t* done) {
  while (*done < bytes) {
    size_t wanted = bytes - *done;
    ssize_t received = recv(fd, (char*)data + *done, wanted, MSG_DONTWAIT);
    if (received > 0) {
      *done += (size_t)received;
      if ((size_t)received < wanted) return NET_OK; /* that was all, most likely: the next call will see */
    } else if (received == 0) {
      return NET_CLOSED;
    } else if (errno == EAGAIN) {
      return NET_OK;
    } else if (errno != EINTR) {
      return net_is_gone(errno) ? NET_CLOSED : NET_ERROR;
    }
  }
  return NET_OK;
}

static enum net_status net_wait(int fd, short events, int64_t deadline) {
  struct pollfd entry = {.fd = fd, .events = events};
  int ready = net_poll(&entry, 1, deadline);
  if (ready < 0) return NET_ERROR;
  return ready == 0 ? NET_TIMEOUT : NET_OK;
}

enum net_status net_send(int fd, const void* data, size_t bytes, int64_t deadline) {
  size_t done = 0;
  enum net_status status = net_send_some(fd, data, bytes, &done);

  while (status == NET_OK && done < bytes) {
    status = net_wait(fd, POLLOUT, deadline);
    if (status == NET_OK) status = net_send_some(fd, data, bytes, &done);
  }
  return status;
}

enum net_status net_receive(int fd, void* data, size_t bytes, int64_t deadline) {
  size_t done = 0;
  enum net_status status = net_receive_some(fd, data, bytes, &done);

  while (status == NET_OK && done < bytes) {
    status = net_wait(fd, POLLIN, deadline);
    if (status == NET_OK) status = net_receive_some(fd, data, bytes, &done);
  }
  return status;
}

int net_send_fd(int connection, const void* data, size_t bytes, int fd) {
  union {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr align;
  } control = {.bytes = {0}};
  struct iovec part = {.iov_base = (void*)(uintptr_t)data, .iov_len = bytes};
  struct msghdr message = {
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)};
  struct cmsghdr* header = CMSG_FIRSTHDR(&message);
  ssize_t sent;

  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  do {
    sent = sendmsg(connection, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  return sent < 0 ? -errno : 0;
}

/* Takes the descriptors out of a message. Returns how many there were; *first is the first, the others are closed. */
static int message_descriptors(struct msghdr* message, int* first) {
  int count = 0;

  for (struct cmsghdr* part = CMSG_FIRSTHDR(message); part != NULL; part = CMSG_NXTHDR(message, part)) {
    size_t bytes = part->cmsg_len - CMSG_LEN(0);
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    for (size_t i = 0; i < bytes / sizeof(int); i++) {
      int fd;
      memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(fd));
      if (count++ == 0) {
        *first = fd;
      } else {
        close(fd);
      }
    }
  }
  return count;
}

ssize_t net_receive_fd(int connection, void* data, size_t bytes, int* fd, int* count, int* lost) {
  union {
    char bytes[CMSG_SPACE(FDS_ROOM * sizeof(int))];
    struct cmsghdr align;
  } control;
  struct iovec part = {.iov_base = data, .iov_len = bytes};
  struct msghdr message = {
      .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof(control.bytes)};
  ssize_t received;

  do {
    received = recvmsg(connection, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (received < 0 && errno == EINTR);
  if (received < 0) return -errno;
  *count = message_descriptors(&message, fd);
  *lost = (message.msg_flags & MSG_CTRUNC) != 0;
  return received;
}

int net_random(void* data, size_t bytes) {
  size_t done = 0;

  while (done < bytes) {
    ssize_t got = getrandom((char*)data + done, bytes - done, 0);
    if (got < 0 && errno != EINTR) return -errno;
    if (got > 0) done += (size_t)got;
  }
  return 0;
}
