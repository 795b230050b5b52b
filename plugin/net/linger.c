/* SPDX-License-Identifier: Apache-2.0
 *
 * linger.c: see linger.h.
 */
#include "plugin/net/linger.h"

#include <errno.h>
#include <linux/sockios.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "plugin/core/bootstrap_net.h"

#define LINGER_LIMIT NET_SECOND
#define LINGER_PAUSE (NET_MILLISECOND / 10)

struct lingering {
  int fd;
  int64_t deadline;
  struct lingering* next;
};

static pthread_mutex_t lingering_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct lingering* lingering;

/* Unread bytes would reset the connection when the socket is closed. 1: nothing more will come, the peer has ended. */
static int socket_drain(int fd) {
  char scrap[4096];
  ssize_t got;

  do {
    got = recv(fd, scrap, sizeof(scrap), MSG_DONTWAIT);
  } while (got > 0 || (got < 0 && errno == EINTR));
  return got == 0 || errno != EAGAIN;
}

/* Closes the socket if it is time to. */
static int socket_closed(int fd, int64_t deadline) {
  int queued = 0;

  if (!socket_drain(fd) && ioctl(fd, SIOCOUTQ, &queued) == 0 && queued > 1 /* the end itself counts */ &&
      net_now() < deadline) {
    return 0;
  }
  close(fd);
  return 1;
}

static int all_closed(void) {
  int none;

  pthread_mutex_lock(&lingering_mutex);
  for (struct lingering** at = &lingering; *at != NULL;) {
    struct lingering* one = *at;
    if (!socket_closed(one->fd, one->deadline)) {
      at = &one->next;
      continue;
    }
    *at = one->next;
    free(one);
  }
  none = lingering == NULL;
  pthread_mutex_unlock(&lingering_mutex);
  return none;
}

void linger_begin(int fd) {
  const int64_t deadline = net_now() + LINGER_LIMIT;
  struct lingering* one;

  all_closed();
  shutdown(fd, SHUT_WR);
  if (socket_closed(fd, deadline)) return;
  one = malloc(sizeof(*one));
  if (one == NULL) { /* then this one is waited for */
    while (!socket_closed(fd, deadline)) net_sleep(LINGER_PAUSE);
    return;
  }
  pthread_mutex_lock(&lingering_mutex);
  *one = (struct lingering){fd, deadline, lingering};
  lingering = one;
  pthread_mutex_unlock(&lingering_mutex);
}

/* Also where nobody says that it is over: interfaces before version 11 have no finalize, and a program may just end. */
__attribute__((destructor)) void linger_end(void) {
  const int64_t deadline = net_now() + LINGER_LIMIT;
  while (!all_closed() && net_now() < deadline) net_sleep(LINGER_PAUSE);
}
