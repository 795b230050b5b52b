/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_bootstrap.c: a peer that says anything, under libFuzzer. The input is what is wrong with what a right peer
 * would say: it is xor-ed over that, so that all of the talk is reached, and cut short where the first bytes say so.
 * In turn the peer is rank 0, another rank, and the other rank of a communicator (over the records of commInit).
 * Whatever it says, this side ends with success or with an error that has a text, soon, and owns what it owned before.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "plugin/core/bootstrap_star.h"
#include "plugin/core/log.h"

extern const arfusionPlugin_v1_t arfusionPlugin_v1;

enum { GATHERED = 16, ROUNDS = 3, LIMIT_S = 2, TALK_BYTES = 4096, FD_RECORD_BYTES = 40 };

struct input {
  const uint8_t* data;
  size_t bytes;
};

struct peer {
  struct bootstrap_meeting meeting;
  int listener;
  unsigned char talk[TALK_BYTES];
  size_t bytes;
};

/* The next byte; 0 after the last, which is what is said rightly. */
static uint8_t take(struct input* input) {
  if (input->bytes == 0) return 0;
  --input->bytes;
  return *input->data++;
}

static void say(struct peer* peer, const void* data, size_t bytes) {
  if (bytes > TALK_BYTES - peer->bytes) abort();
  memcpy(peer->talk + peer->bytes, data, bytes);
  peer->bytes += bytes;
}

static void spoil(struct peer* peer, struct input* input) {
  const size_t cut = take(input) | (size_t)take(input) << 8;
  for (size_t i = 0; i < peer->bytes; ++i) peer->talk[i] ^= take(input);
  if (cut > 0 && cut < peer->bytes) peer->bytes = cut;
}

static void say_gathers(struct peer* peer, int to_rank_0) {
  static const char data[2 * 512];
  const size_t votes = 512, sizes[ROUNDS] = {GATHERED, votes, FD_RECORD_BYTES};
  for (int i = 0; i < ROUNDS; ++i) {
    const size_t bytes = sizes[i] * (to_rank_0 ? 1 : 2);
    struct star_frame frame = {
        .magic = STAR_FRAME_MAGIC, .kind = STAR_DATA, .bytes = bytes, .deadline = net_deadline(LIMIT_S)};
    say(peer, &frame, sizeof frame);
    say(peer, data, bytes);
  }
}

/* ---------------------------------------------------------------- what this side does */

static void check(arfusionResult_t result) {
  if (result < arfusionSuccess || result >= arfusionInProgress) abort();
  if (result != arfusionSuccess && error_last()[0] == '\0') abort();
}

static void talk(const struct peer* peer, int rank) {
  arfusionBootstrap_t bootstrap;
  char mine[GATHERED] = "", all[2 * GATHERED + 4];
  int fds[2];
  arfusionResult_t result = bootstrap_socket_create(&peer->meeting, 2, rank, LIMIT_S, &bootstrap);
  check(result);
  if (result != arfusionSuccess) return;
  memset(all, 'x', sizeof all);
  result = bootstrap_all_gather(&bootstrap, mine, all, sizeof mine);
  check(result);
  if (memcmp(all + 2 * GATHERED, "xxxx", 4) != 0) abort();
  check(bootstrap_vote(&bootstrap, arfusionSuccess));
  result = bootstrap_exchange_fds(&bootstrap, STDIN_FILENO, fds, 1);
  check(result);
  for (int r = 0; r < 2; ++r) {
    if (fds[r] >= 0) close(fds[r]);
  }
  bootstrap_destroy(&bootstrap);
}

/* ---------------------------------------------------------------- the peer */

/* Says all of it at once, whatever it hears, and goes away. */
static void speak(int fd, const struct peer* peer) {
  char heard[4096];
  size_t done = 0;
  if (fd < 0) return;
  (void)net_send(fd, peer->talk, peer->bytes, net_deadline(LIMIT_S));
  shutdown(fd, SHUT_WR);
  for (int i = 0; i < 100 && net_receive_some(fd, heard, sizeof heard, &done) == NET_OK; ++i) {
    struct pollfd poll = {.fd = fd, .events = POLLIN};
    done = 0;
    if (net_poll(&poll, 1, net_now() + 100 * NET_MILLISECOND) <= 0) break;
  }
  close(fd);
}

static void* peer_as_rank_0(void* argument) {
  const struct peer* peer = argument;
  struct pollfd poll = {.fd = peer->listener, .events = POLLIN};
  struct net_peer who;
  net_poll(&poll, 1, net_deadline(LIMIT_S));
  speak(net_accept(peer->listener, &who), peer);
  return NULL;
}

static int connect_soon(const struct peer* peer) {
  struct net_peer who;
  int fd = -1;
  for (int i = 0; i < 500 && fd < 0; ++i) {
    fd = net_connect(peer->meeting.name, &who);
    if (fd < 0) net_sleep(NET_MILLISECOND / 5);
  }
  return fd;
}

/* If nobody took it for a rank, rank 1 comes, so that rank 0 need not wait for its limit. */
static void* peer_as_rank_1(void* argument) {
  const struct peer* peer = argument;
  struct net_peer who;
  struct hello hello = {.magic = HELLO_MAGIC,
                        .version = 1,
                        .rank = 1,
                        .secret = peer->meeting.secret[0],
                        .deadline = net_deadline(LIMIT_S),
                        .nranks = 2};
  const int first = connect_soon(peer);
  (void)net_send(first, peer->talk, peer->bytes, net_deadline(LIMIT_S));
  const int second = net_connect(peer->meeting.name, &who);
  if (second >= 0) {
    (void)net_send(second, &hello, sizeof hello, net_deadline(LIMIT_S));
    shutdown(second, SHUT_WR);
  }
  speak(first, peer);
  if (second >= 0) close(second);
  return NULL;
}

static void meeting_make(struct peer* peer) {
  static unsigned number;
  peer->meeting = (struct bootstrap_meeting){.secret = {0x1111111122222222, 0x3333333344444444}};
  snprintf(peer->meeting.name, sizeof peer->meeting.name, "arfusion-fuzz-%d-%u", (int)getpid(), number++);
}

static void fuzz_talk(struct input* input, int own_rank) {
  static struct peer peer;
  pthread_t thread;
  peer.bytes = 0;
  meeting_make(&peer);
  if (own_rank == 1) {
    const struct star_frame welcome = {
        .magic = STAR_FRAME_MAGIC, .kind = STAR_WELCOME, .secret = peer.meeting.secret[1]};
    say(&peer, &welcome, sizeof welcome);
    peer.listener = net_listen(peer.meeting.name);
  } else {
    const struct hello hello = {.magic = HELLO_MAGIC,
                                .version = 1,
                                .rank = 1,
                                .secret = peer.meeting.secret[0],
                                .deadline = net_deadline(LIMIT_S),
                                .nranks = 2};
    say(&peer, &hello, sizeof hello);
  }
  say_gathers(&peer, own_rank == 0);
  spoil(&peer, input);
  if (pthread_create(&thread, NULL, own_rank == 1 ? peer_as_rank_0 : peer_as_rank_1, &peer)) abort();
  talk(&peer, own_rank);
  pthread_join(thread, NULL);
  if (own_rank == 1) close(peer.listener);
}

/* ---------------------------------------------------------------- commInit */

/* The other rank answers what this one says, with its own number, and spoilt. */
static arfusionResult_t echo(void* opaque, const void* send, void* recv, size_t bytes) {
  static const size_t rank_at = 12; /* in a record of commInit */
  struct input* input = opaque;
  unsigned char* theirs = (unsigned char*)recv + bytes;
  memmove(recv, send, bytes);
  if (bytes == FD_RECORD_BYTES) return arfusionRemoteError; /* there is nobody who would connect */
  memcpy(theirs, send, bytes);
  if (bytes > rank_at + 4 && theirs[rank_at] == 0) theirs[rank_at] = 1;
  for (size_t i = 0; i < bytes; ++i) theirs[i] ^= take(input);
  return arfusionSuccess;
}

static void fuzz_records(struct input* input) {
  const arfusionConfig_t config = {.size = sizeof config, .maxTokens = 1, .hidden = 64, .dataType = arfusionFloat32};
  const arfusionBootstrap_t bootstrap = {
      .size = sizeof bootstrap, .nranks = 2, .opaque = input, .allGather = echo};
  const arfusionPlugin_v1_t* plugin = &arfusionPlugin_v1;
  static void* ctx;
  void* comm = NULL;
  if (!ctx && plugin->init(&ctx, NULL) != arfusionSuccess) abort();
  const arfusionResult_t result = plugin->commInit(ctx, 0, &config, &bootstrap, &comm);
  check(result);
  if (result == arfusionSuccess) plugin->commFinalize(comm);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  struct input input = {data, bytes};
  log_configure(NULL, arfusionLogNone);
  switch (take(&input) % 3) {
    case 0: fuzz_talk(&input, 0); break;
    case 1: fuzz_talk(&input, 1); break;
    default: fuzz_records(&input);
  }
  return 0;
}
