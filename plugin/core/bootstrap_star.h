/* SPDX-License-Identifier: Apache-2.0
 *
 * bootstrap_star.h: the star of connections with rank 0 in its middle, and what is said on them. bootstrap_start.c
 * makes it, bootstrap_socket.c uses it.
 */
#ifndef ARFUSION_CORE_BOOTSTRAP_STAR_H_
#define ARFUSION_CORE_BOOTSTRAP_STAR_H_

#include <pthread.h>
#include <stdatomic.h>

#include "plugin/core/bootstrap_internal.h"

/* Rank 0 gives up when the first of all ranks would, and tells the others why; they wait for that a little longer. */
#define STAR_GRACE (NET_SECOND / 4)

#define HELLO_MAGIC 0x6f6c6c6548724641ull
#define HELLO_VERSION 1u

/* What a rank says first. The first four fields stay where they are in all versions. */
struct hello {
  uint64_t magic;
  uint32_t version;
  int32_t rank;
  uint64_t secret;
  int64_t deadline; /* when this rank gives up */
  int32_t nranks;
  uint32_t reserved;
};

enum star_frame_kind { STAR_WELCOME = 1, STAR_DATA = 2, STAR_FAILURE = 3 };

#define STAR_FRAME_MAGIC 0x41724672u

struct star_frame {
  uint32_t magic;
  uint32_t kind;  /* enum star_frame_kind */
  int32_t result; /* of a failure */
  uint32_t reserved;
  uint64_t bytes;   /* that follow: the data, or a failure's text */
  int64_t deadline; /* of data sent to rank 0: when its sender gives up */
  uint64_t secret;  /* of a welcome */
};

struct star_member {
  int fd; /* -1: none */
  pid_t pid;
  size_t done; /* of a frame and its data */
  struct star_frame frame;
};

struct star {
  int rank, nranks;
  int64_t timeout_s;
  arfusionResult_t failed; /* for good, with `text` */
  char text[BOOTSTRAP_TEXT_BYTES];
  int nmembers; /* rank 0: nranks; others: 1, the connection to rank 0 */
  struct star_member* members;
  struct pollfd* polls;   /* [nmembers] */
  pthread_mutex_t lock;   /* of the members' descriptors, which an abort from another thread shuts down */
  atomic_int aborted;
  unsigned char* present; /* [nranks] */
};

void star_member_close(struct star* star, struct star_member* member);

/* The star fails for good: the connected ranks are told (by rank 0) and all connections closed. Returns `result`. */
arfusionResult_t star_fail(struct star* star, arfusionResult_t result, const char* fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Tells the other end why; what does not go out at once is not sent. */
void star_tell(int fd, arfusionResult_t result, const char* text);

/* Receives a frame that is not data, or a failure's text; fails the star with that failure, or with what went wrong.
 * `who` is waited for. */
arfusionResult_t star_receive(struct star* star, enum star_frame_kind kind, struct star_frame* frame, int64_t deadline,
                              const char* who);

/* Connects the star: rank 0 listens at the meeting's name, the others connect. */
arfusionResult_t star_start(struct star* star, const struct bootstrap_meeting* meeting);

#endif
