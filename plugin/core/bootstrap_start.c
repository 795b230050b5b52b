/* SPDX-License-Identifier: Apache-2.0
 *
 * bootstrap_start.c: how the star comes together. Rank 0 listens and takes whoever says hello with the right secret,
 * as the hellos come; strangers neither stop nor delay it. When something is wrong it stays for a moment, so that
 * ranks which come a little later hear what it was. Names can be guessed, hence taken: then rank 0 listens at a random
 * one beside it, and the others look for a listener of this user there.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "plugin/core/bootstrap_star.h"
#include "plugin/core/log.h"

#define STRANGERS 64 /* connections without a hello that are kept besides the ranks' own */
#define RETRY_FIRST NET_MILLISECOND
#define RETRY_LAST (20 * NET_MILLISECOND)
#define LOOK_FIRST (NET_SECOND / 10) /* beside the meeting point: all sockets of the host are gone through */
#define LOOK_LAST (2 * NET_SECOND)
#define LINGER NET_SECOND /* how long rank 0 stays after a failure, and what it grants the owner of its place */

/* A connection that has not said hello yet. */
struct guest {
  int fd;
  pid_t pid;
  size_t done;
  struct hello hello;
};

struct reception {
  struct star* star;
  const struct bootstrap_meeting* meeting;
  int listener;
  int64_t deadline;
  int joined;   /* ranks that are in */
  int hellos;   /* that had the right secret */
  int expected; /* ranks, by the largest number that anybody said */
  int guests, capacity;
  struct guest* guest;
  struct pollfd* polls; /* listener, guests, members */
};

static int64_t earlier(int64_t a, int64_t b) { return a < b ? a : b; }

static struct hello hello_make(const struct star* star, const struct bootstrap_meeting* meeting, int64_t deadline) {
  return (struct hello){.magic = HELLO_MAGIC,
                        .version = HELLO_VERSION,
                        .rank = star->rank,
                        .secret = meeting->secret[0],
                        .deadline = deadline,
                        .nranks = star->nranks};
}

/* ---------------------------------------------------------------- rank 0 */

/* A process of this user listens where rank 0 should. If it is a rank 0 too, it says so itself. */
static arfusionResult_t root_displaced(struct star* star, const struct bootstrap_meeting* meeting,
                                       struct net_peer peer) {
  struct hello hello = hello_make(star, meeting, net_now() + LINGER);
  struct star_frame frame;

  if (net_send(star->members[0].fd, &hello, sizeof(hello), net_now() + LINGER) == NET_OK) {
    enum net_status status = net_receive(star->members[0].fd, &frame, sizeof(frame), net_now() + LINGER);
    char text[BOOTSTRAP_TEXT_BYTES] = "";
    if (status == NET_OK && frame.magic == STAR_FRAME_MAGIC && frame.kind == STAR_FAILURE &&
        frame.bytes < sizeof(text) &&
        net_receive(star->members[0].fd, text, (size_t)frame.bytes, net_now() + LINGER) == NET_OK && text[0] != '\0') {
      star_member_close(star, &star->members[0]);
      return star_fail(star, arfusionInvalidUsage, "%s", text);
    }
  }
  star_member_close(star, &star->members[0]);
  return star_fail(star, arfusionSystemError, "bootstrap: the meeting point @%s is taken by pid %d of uid %u",
                   meeting->name, (int)peer.pid, (unsigned)peer.uid);
}

/* The name is held by another user, or by who does not answer. */
static arfusionResult_t root_listen_beside(struct star* star, const struct bootstrap_meeting* meeting, int* listener) {
  struct net_peer peer;

  star->members[0].fd = net_connect_beside(meeting->name, &peer);
  if (star->members[0].fd >= 0) return root_displaced(star, meeting, peer);
  LOG_INFO(ARFUSION_LOG_BOOTSTRAP, "bootstrap: the meeting point @%s is taken, rank 0 listens beside it",
           meeting->name);
  *listener = net_listen_beside(meeting->name);
  if (*listener >= 0) return arfusionSuccess;
  return star_fail(star, arfusionSystemError, "bootstrap: cannot listen beside @%s: %s", meeting->name,
                   strerror(-*listener));
}

/* A rank 0 that was here before may be about to end: its socket goes with it. */
static arfusionResult_t root_listen(struct star* star, const struct bootstrap_meeting* meeting, int64_t deadline,
                                    int* listener) {
  int64_t until = earlier(deadline, net_now() + LINGER);
  struct net_peer peer;

  while ((*listener = net_listen(meeting->name)) == -EADDRINUSE) {
    star->members[0].fd = net_connect(meeting->name, &peer);
    if (star->members[0].fd >= 0 && peer.uid == geteuid()) return root_displaced(star, meeting, peer);
    if (star->members[0].fd >= 0 || net_now() >= until) {
      star_member_close(star, &star->members[0]);
      return root_listen_beside(star, meeting, listener);
    }
    net_sleep(RETRY_LAST);
  }
  if (*listener >= 0) return arfusionSuccess;
  return star_fail(star, arfusionSystemError, "bootstrap: cannot listen at @%s: %s", meeting->name,
                   strerror(-*listener));
}

/* Whom a crowd can spare: the oldest connection of the process that has most. Ranks say hello at once, and have one
 * each. */
static int reception_surplus(const struct reception* reception) {
  int surplus = 0, most = 0;

  for (int g = 0; g < reception->guests; g++) {
    int connections = 0;
    for (int h = g; h < reception->guests; h++) connections += reception->guest[h].pid == reception->guest[g].pid;
    if (connections <= most) continue;
    most = connections;
    surplus = g;
  }
  return surplus;
}

static void guest_remove(struct reception* reception, int g) {
  reception->guests--;
  memmove(&reception->guest[g], &reception->guest[g + 1],
          (size_t)(reception->guests - g) * sizeof(reception->guest[0]));
}

static void reception_drop(struct reception* reception) {
  int g = reception_surplus(reception);

  close(reception->guest[g].fd);
  guest_remove(reception, g);
}

/* From now on whoever comes is told, for a moment. */
static void reception_failed(struct reception* reception) {
  reception->deadline = earlier(reception->deadline, net_now() + LINGER);
}

/* A complete hello: the guest becomes a member, or is turned away. Its descriptor goes with it. */
static void reception_hello(struct reception* reception, const struct guest* guest) {
  struct star* star = reception->star;
  const struct hello* hello = &guest->hello;

  if (hello->magic != HELLO_MAGIC) {
    LOG_INFO(ARFUSION_LOG_BOOTSTRAP, "bootstrap: pid %d sent something that is not a hello: dropped", (int)guest->pid);
    close(guest->fd);
    return;
  }
  if (hello->secret != reception->meeting->secret[0]) {
    LOG_INFO(ARFUSION_LOG_BOOTSTRAP, "bootstrap: pid %d has another secret: dropped", (int)guest->pid);
    star_tell(guest->fd, arfusionInvalidArgument,
              "bootstrap: rank 0 has another secret: the unique id is not the one that rank 0 has");
    close(guest->fd);
    return;
  }
  reception->hellos++;
  if (hello->version == HELLO_VERSION && hello->nranks > reception->expected && hello->nranks <= BOOTSTRAP_MAX_RANKS) {
    reception->expected = hello->nranks;
  }
  if (star->failed == arfusionSuccess) {
    if (hello->version != HELLO_VERSION) {
      star_fail(star, arfusionInvalidUsage,
                "bootstrap: rank %d (pid %d) speaks version %u of this talk, rank 0 version %u", hello->rank,
                (int)guest->pid, hello->version, HELLO_VERSION);
    } else if (hello->nranks != star->nranks) {
      star_fail(star, arfusionInvalidUsage, "bootstrap: rank %d (pid %d) says that there are %d ranks, rank 0 says %d",
                hello->rank, (int)guest->pid, hello->nranks, star->nranks);
    } else if (hello->rank < 0 || hello->rank >= star->nranks) {
      star_fail(star, arfusionInvalidUsage, "bootstrap: pid %d says that it is rank %d, there are %d", (int)guest->pid,
                hello->rank, star->nranks);
    } else if (star->present[hello->rank]) {
      star_fail(star, arfusionInvalidUsage, "bootstrap: there are two ranks %d: pid %d and pid %d", hello->rank,
                (int)star->members[hello->rank].pid, (int)guest->pid);
    } else {
      star->members[hello->rank].fd = guest->fd;
      star->members[hello->rank].pid = guest->pid;
      star->present[hello->rank] = 1;
      reception->joined++;
      reception->deadline = earlier(reception->deadline, hello->deadline);
      return;
    }
    reception_failed(reception);
  }
  star_tell(guest->fd, star->failed, star->text);
  close(guest->fd);
}

/* Reads what a guest has sent. 1: it is no guest any more. */
static int reception_read(struct reception* reception, int g) {
  struct guest guest;
  enum net_status status = net_receive_some(reception->guest[g].fd, &reception->guest[g].hello,
                                            sizeof(reception->guest[g].hello), &reception->guest[g].done);

  if (status == NET_OK && reception->guest[g].done < sizeof(reception->guest[g].hello)) return 0;
  guest = reception->guest[g];
  guest_remove(reception, g);
  if (status == NET_OK) {
    reception_hello(reception, &guest);
  } else {
    close(guest.fd);
  }
  return 1;
}

static void reception_accept(struct reception* reception) {
  struct net_peer peer;
  int fd = -EAGAIN;

  /* No more at a time, so that who comes without end does not keep rank 0 from everything else. */
  for (int i = 0; i < reception->capacity && (fd = net_accept(reception->listener, &peer)) >= 0; i++) {
    if (reception->guests == reception->capacity) reception_drop(reception);
    reception->guest[reception->guests++] = (struct guest){.fd = fd, .pid = peer.pid};
    reception_read(reception, reception->guests - 1);
  }
  if (fd >= 0 || fd == -EAGAIN) return;
  if ((fd == -EMFILE || fd == -ENFILE) && reception->guests > 0) {
    reception_drop(reception);
  } else if (reception->star->failed == arfusionSuccess) {
    star_fail(reception->star, arfusionSystemError, "bootstrap: rank 0 cannot accept a connection: %s", strerror(-fd));
    reception->deadline = net_now();
  }
}

/* Waits for the next thing to happen and deals with it. */
static void reception_step(struct reception* reception) {
  struct star* star = reception->star;
  struct pollfd* polls = reception->polls;
  int guests = reception->guests, ready;
  struct pollfd* members = polls + 1 + guests;
  char text[256];

  polls[0] = (struct pollfd){.fd = reception->listener, .events = POLLIN};
  for (int g = 0; g < guests; g++) polls[1 + g] = (struct pollfd){.fd = reception->guest[g].fd, .events = POLLIN};
  for (int r = 0; r < star->nranks; r++) members[r] = (struct pollfd){.fd = star->members[r].fd, .events = POLLRDHUP};
  ready = net_poll(polls, (size_t)(1 + guests + star->nranks), reception->deadline);
  if (ready > 0 && net_now() >= reception->deadline) ready = 0; /* strangers may come without end */
  if (star->failed == arfusionSuccess && ready <= 0) {
    bootstrap_missing_text(star->present, star->nranks, text, sizeof(text));
    star_fail(star, ready == 0 ? arfusionRemoteError : arfusionSystemError,
              "bootstrap: %s of %d did not come within %lld s%s", text, star->nranks, (long long)star->timeout_s,
              ready == 0 ? "" : " (poll failed)");
  }
  if (ready <= 0) {
    reception->deadline = net_now();
    return;
  }
  for (int r = 1; r < star->nranks && star->failed == arfusionSuccess; r++) {
    if (members[r].revents == 0) continue;
    star_fail(star, arfusionRemoteError, "bootstrap: rank %d of %d (pid %d) has left", r, star->nranks,
              (int)star->members[r].pid);
    reception_failed(reception);
  }
  for (int g = guests - 1; g >= 0; g--) { /* downwards, as guests that are done are taken out */
    if (polls[1 + g].revents != 0) reception_read(reception, g);
  }
  if (polls[0].revents != 0) reception_accept(reception);
}

static int reception_over(const struct reception* reception) {
  if (reception->star->failed == arfusionSuccess) return reception->joined == reception->star->nranks - 1;
  return reception->hellos >= reception->expected - 1 || net_now() >= reception->deadline;
}

/* Nobody is left without an answer who has come so far. */
static void reception_close(struct reception* reception) {
  struct star* star = reception->star;
  struct net_peer peer;
  int fd;

  for (int g = 0; g < reception->guests; g++) {
    if (star->failed != arfusionSuccess) star_tell(reception->guest[g].fd, star->failed, star->text);
    close(reception->guest[g].fd);
  }
  while (star->failed != arfusionSuccess && (fd = net_accept(reception->listener, &peer)) >= 0) {
    star_tell(fd, star->failed, star->text);
    close(fd);
  }
  close(reception->listener);
}

static arfusionResult_t root_start(struct star* star, const struct bootstrap_meeting* meeting, int64_t deadline) {
  struct star_frame welcome = {.magic = STAR_FRAME_MAGIC, .kind = STAR_WELCOME, .secret = meeting->secret[1]};
  struct reception reception = {.star = star, .meeting = meeting, .deadline = deadline, .expected = star->nranks};
  arfusionResult_t result;

  star->present[0] = 1;
  star->members[0].pid = getpid();
  FORWARD_IF_ERROR(root_listen(star, meeting, deadline, &reception.listener));
  reception.capacity = star->nranks + STRANGERS;
  reception.guest = calloc((size_t)reception.capacity, sizeof(reception.guest[0]));
  reception.polls = calloc((size_t)(1 + reception.capacity + star->nranks), sizeof(reception.polls[0]));
  if (reception.guest == NULL || reception.polls == NULL) {
    star_fail(star, arfusionSystemError, "bootstrap: rank 0 has no memory for %d ranks", star->nranks);
  } else {
    while (!reception_over(&reception)) reception_step(&reception);
  }
  result = star->failed;
  /* Closed before the welcome: a rank that goes on to another meeting of this name must not find this one. */
  reception_close(&reception);
  free(reception.guest);
  free(reception.polls);
  for (int r = 1; r < star->nranks && result == arfusionSuccess; r++) {
    if (net_send(star->members[r].fd, &welcome, sizeof(welcome), deadline) == NET_OK) continue;
    result = star_fail(star, arfusionRemoteError, "bootstrap: rank %d of %d (pid %d) has left", r, star->nranks,
                       (int)star->members[r].pid);
  }
  return result;
}

/* ---------------------------------------------------------------- the other ranks */

static arfusionResult_t leaf_connect(struct star* star, const struct bootstrap_meeting* meeting, int64_t deadline,
                                     struct net_peer* peer) {
  int64_t pause = RETRY_FIRST, look_pause = LOOK_FIRST, look = net_now() + look_pause;
  struct net_peer other = {.pid = 0};
  int fd, taken = 0;

  for (;;) {
    fd = net_connect(meeting->name, peer);
    if (fd >= 0 && peer->uid == geteuid()) break;
    if (fd >= 0) {
      if (!taken) look = net_now();
      taken = 1;
      other = *peer;
      close(fd);
      fd = -ECONNREFUSED;
    }
    if (net_now() >= look) {
      int beside = net_connect_beside(meeting->name, peer);
      if (beside >= 0) fd = beside;
      if (fd >= 0) break;
      look = net_now() + look_pause;
      look_pause = earlier(2 * look_pause, LOOK_LAST);
    }
    if (fd != -ECONNREFUSED && fd != -EAGAIN) {
      return star_fail(star, arfusionSystemError, "bootstrap: cannot connect to @%s: %s", meeting->name, strerror(-fd));
    }
    if (net_now() >= deadline && taken) {
      return star_fail(star, arfusionRemoteError,
                       "bootstrap: rank 0 of %d did not come within %lld s; the meeting point @%s is taken by pid %d "
                       "of uid %u, this is uid %u",
                       star->nranks, (long long)star->timeout_s, meeting->name, (int)other.pid, (unsigned)other.uid,
                       (unsigned)geteuid());
    }
    if (net_now() >= deadline) {
      return star_fail(star, arfusionRemoteError, "bootstrap: rank 0 of %d %s within %lld s (at @%s)", star->nranks,
                       fd == -EAGAIN ? "did not accept a connection" : "did not come", (long long)star->timeout_s,
                       meeting->name);
    }
    net_sleep(earlier(pause, deadline - net_now()));
    pause = earlier(2 * pause, RETRY_LAST);
  }
  star->members[0].fd = fd;
  return arfusionSuccess;
}

static arfusionResult_t leaf_start(struct star* star, const struct bootstrap_meeting* meeting, int64_t deadline) {
  struct hello hello = hello_make(star, meeting, deadline);
  struct star_frame frame;
  struct net_peer peer;
  char who[64];

  FORWARD_IF_ERROR(leaf_connect(star, meeting, deadline, &peer));
  snprintf(who, sizeof(who), "rank 0 of %d (pid %d)", star->nranks, (int)peer.pid);
  /* If this fails, star_receive finds out why. */
  (void)net_send(star->members[0].fd, &hello, sizeof(hello), deadline);
  FORWARD_IF_ERROR(star_receive(star, STAR_WELCOME, &frame, deadline + STAR_GRACE, who));
  if (frame.secret == meeting->secret[1]) return arfusionSuccess;
  return star_fail(star, arfusionSystemError, "bootstrap: pid %d at the meeting point @%s does not know the secret",
                   (int)peer.pid, meeting->name);
}

arfusionResult_t star_start(struct star* star, const struct bootstrap_meeting* meeting) {
  int64_t deadline = net_deadline(star->timeout_s);
  return star->rank == 0 ? root_start(star, meeting, deadline) : leaf_start(star, meeting, deadline);
}
