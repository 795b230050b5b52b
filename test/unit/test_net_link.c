/* SPDX-License-Identifier: Apache-2.0
 *
 * test_net_link.c: connections of the network for NCCL, both ends in this process: random traffic through shared memory
 * and over TCP, closing in every order, messages that do not fit, peers that are gone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "plugin/core/log.h"
#include "plugin/net/linger.h"
#include "test/unit/support.h"
#include "test/unit/support_net.h"

static const struct endpoint_options memory = {.nlanes = 3, .shared = 1, .timeout_s = 20};
static const struct endpoint_options tcp = {.nlanes = 3, .shared = 0, .timeout_s = 20};

static struct support_pair make(const struct endpoint_options* options, int six) {
  struct support_pair pair = support_pair_make(options, six);
  assert_non_null(pair.send);
  assert_non_null(pair.recv);
  assert_int_equal(support_mappings("arfusion-net") > 0, options->shared);
  return pair;
}

static void close_pair(struct support_pair pair, int sender_first) {
  if (sender_first) link_close(pair.send);
  link_close(pair.recv);
  if (!sender_first) link_close(pair.send);
}

/* ---------------------------------------------------------------- traffic */

static void traffic(const struct endpoint_options* options, int six, int groups, uint64_t seed) {
  const struct support_traffic plan = {
      .seed = seed, .groups = groups, .size_max = 3 << 20, .slow_ms = 4, .pause_ms = 4};
  struct support_pair pair = make(options, six);
  assert_int_equal(support_pair_run(pair, &plan), arfusionSuccess);
  close_pair(pair, seed % 2 == 0);
}

static void test_memory(void** state) {
  (void)state;
  traffic(&memory, 0, 200, 1);
  traffic(&(struct endpoint_options){.nlanes = 1, .shared = 1, .timeout_s = 20}, 0, 60, 2);
  traffic(&(struct endpoint_options){.nlanes = LINK_LANES_MAX, .shared = 1, .timeout_s = 20}, 0, 60, 3);
}

static void test_tcp(void** state) {
  (void)state;
  traffic(&tcp, 0, 200, 4);
  traffic(&(struct endpoint_options){.nlanes = 1, .timeout_s = 20}, 0, 60, 5);
  traffic(&(struct endpoint_options){.nlanes = LINK_LANES_MAX, .timeout_s = 20}, 0, 60, 6);
}

static void test_ipv6(void** state) {
  struct interface interface = support_loopback(1);
  struct listener* listener;
  char handle[ENDPOINT_HANDLE_BYTES];
  (void)state;
  if (listener_create(&interface, &tcp, handle, &listener) != arfusionSuccess) skip(); /* no IPv6 here */
  listener_close(listener);
  traffic(&tcp, 1, 60, 7);
}

/* 2^31 bytes: from a page of zeros to memory that is the same megabyte over and over. */
static void test_largest(void** state) {
  const size_t size = (size_t)1 << 31, window = 1 << 20;
  struct support_pair pair;
  struct link_request *sending = NULL, *receiving = NULL;
  int tag = 9, sent = 0, received = 0, sizes[1] = {0}, fd;
  char *from, *to;
  void* list[1];
  (void)state;
  if (getenv("SANITIZED") && *getenv("SANITIZED")) skip(); /* minutes */
  from = mmap(NULL, size, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  to = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  fd = memfd_create("window", MFD_CLOEXEC);
  assert_int_equal(ftruncate(fd, (off_t)window), 0);
  for (size_t at = 0; at < size; at += window) {
    assert_true(mmap(to + at, window, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) == to + at);
  }
  close(fd);
  memset(to, 1, window);
  pair = make(&memory, 0);
  list[0] = to;
  assert_int_equal(link_receive(pair.recv, 1, list, &size, &tag, &receiving), arfusionSuccess);
  while (sending == NULL) assert_int_equal(link_send(pair.send, from, size, tag, &sending), arfusionSuccess);
  while (!sent || !received) {
    if (!sent) assert_int_equal(link_test(sending, &sent, NULL), arfusionSuccess);
    if (!received) assert_int_equal(link_test(receiving, &received, sizes), arfusionSuccess);
    support_sleep(0.002);
  }
  assert_int_equal(sizes[0], INT32_MAX);
  for (size_t at = 0; at < window; at++) assert_int_equal(to[at], 0);
  assert_int_equal(link_receive(pair.recv, 1, list, &size, &tag, &receiving), arfusionSuccess);
  assert_int_equal(link_send(pair.send, from, size + 1, tag, &sending), arfusionInvalidArgument);
  assert_true(support_text_has(error_last(), "2147483649|2147483648"));
  close_pair(pair, 1);
  munmap(from, size);
  munmap(to, size);
}

/* ---------------------------------------------------------------- how much may be outstanding, and what is not
 * possible now */

static void test_limits(const struct endpoint_options* options) {
  struct support_pair pair = make(options, 0);
  struct link_request *request, *receives[LINK_POSTINGS], *sends[LINK_SENDS];
  char room[LINK_GROUP][8], data[8] = "message", large[LINK_EARLY_MAX + 1] = "";
  void* list[LINK_GROUP];
  size_t sizes[LINK_GROUP];
  int tags[LINK_GROUP], done, got[LINK_GROUP];
  assert_int_equal(link_send(pair.send, large, sizeof large, 5, &request), arfusionSuccess);
  assert_null(request); /* nobody waits for it */
  for (int i = 0; i < LINK_GROUP; i++) list[i] = room[i], sizes[i] = 8, tags[i] = i;
  for (int i = 0; i < LINK_POSTINGS; i++) {
    assert_int_equal(link_receive(pair.recv, LINK_GROUP, list, sizes, tags, &receives[i]), arfusionSuccess);
    assert_non_null(receives[i]);
  }
  assert_int_equal(link_receive(pair.recv, 1, list, sizes, tags, &request), arfusionSuccess);
  assert_null(request);
  assert_int_equal(link_send(pair.send, large, sizeof large, LINK_GROUP, &request), arfusionSuccess);
  assert_null(request); /* not for this tag */
  for (int i = 0; i < LINK_SENDS; i++) { /* the last tag first */
    do {
      assert_int_equal(link_send(pair.send, data, 8, LINK_GROUP - 1 - i / LINK_POSTINGS, &sends[i]), arfusionSuccess);
    } while (sends[i] == NULL && !options->shared);
    assert_non_null(sends[i]);
  }
  for (int i = 0; i < LINK_SENDS; i++) {
    for (done = 0; !done;) assert_int_equal(link_test(sends[i], &done, NULL), arfusionSuccess);
  }
  for (int i = LINK_POSTINGS - 1; i >= 0; i--) {
    for (done = 0; !done;) assert_int_equal(link_test(receives[i], &done, got), arfusionSuccess);
    for (int j = 0; j < LINK_GROUP; j++) assert_int_equal(got[j], 8);
  }
  close_pair(pair, 0);
}

static void test_limits_of_both(void** state) {
  (void)state;
  test_limits(&memory);
  test_limits(&tcp);
}

static arfusionResult_t wait_for(struct link_request* request) {
  arfusionResult_t result = arfusionSuccess;
  int done = 0;
  double limit = support_now() + 20;
  while (result == arfusionSuccess && !done && support_now() < limit) result = link_test(request, &done, NULL);
  return result == arfusionSuccess && !done ? arfusionInProgress : result;
}

static struct link_request* receive(struct link* link, void* data, size_t size, int tag) {
  struct link_request* request = NULL;
  assert_int_equal(link_receive(link, 1, &data, &size, &tag, &request), arfusionSuccess);
  assert_non_null(request);
  return request;
}

static struct link_request* send_now(struct link* link, const void* data, size_t size, int tag) {
  struct link_request* request = NULL;
  double limit = support_now() + 20;
  while (request == NULL && support_now() < limit) {
    assert_int_equal(link_send(link, data, size, tag, &request), arfusionSuccess);
  }
  assert_non_null(request);
  return request;
}

/* Small messages go before they are waited for, larger ones when the sender knows of the receive. */
static void pass(struct support_pair pair, char* data, char* room, size_t size, int tag) {
  struct link_request *sent = size <= LINK_EARLY_MAX ? send_now(pair.send, data, size, tag) : NULL;
  struct link_request* received = receive(pair.recv, room, size, tag);
  int got = 0, done = 0;
  double limit = support_now() + 20;
  while ((!got || !done) && support_now() < limit) {
    if (!got) assert_int_equal(link_test(received, &got, NULL), arfusionSuccess);
    if (!sent) assert_int_equal(link_send(pair.send, data, size, tag, &sent), arfusionSuccess);
    if (sent && !done) assert_int_equal(link_test(sent, &done, NULL), arfusionSuccess);
  }
  assert_true(got && done);
  assert_memory_equal(room, data, size);
}

/* Receives that are not done hold up no others, however many of these there are; and then they are done, too. */
static void held(const struct endpoint_options* options) {
  enum { HELD = LINK_POSTINGS - 1, ROUNDS = 200, LARGE = 70000 };
  static char data[LARGE], room[LARGE], held_room[HELD][8];
  struct support_pair pair = make(options, 0);
  struct link_request* held[HELD];
  for (int i = 0; i < HELD; i++) held[i] = receive(pair.recv, held_room[i], 8, i);
  for (int i = 0; i < ROUNDS; i++) {
    const size_t size = i % 3 == 0 ? 8 : i % 3 == 1 ? LINK_EARLY_MAX + 1 : LARGE;
    memset(data, i + 1, size);
    pass(pair, data, room, size, HELD);
  }
  for (int i = HELD - 1; i >= 0; i--) {
    memset(data, i + 1, 8);
    assert_int_equal(wait_for(send_now(pair.send, data, 8, i)), arfusionSuccess);
    assert_int_equal(wait_for(held[i]), arfusionSuccess);
    assert_memory_equal(held_room[i], data, 8);
  }
  close_pair(pair, 0);
}

static void test_held(void** state) {
  (void)state;
  held(&memory);
  held(&tcp);
}

/* ---------------------------------------------------------------- what goes wrong */

/* Small messages that are sent before anybody waits for them: so many, and each goes where its tag is waited for. */
static void early(const struct endpoint_options* options) {
  struct support_pair pair = make(options, 0);
  struct link_request* request;
  char data[LINK_EARLY_MOST][LINK_EARLY_MAX], room[LINK_EARLY_MAX], empty[1];
  for (int i = 0; i < LINK_EARLY_MOST; i++) {
    memset(data[i], i + 1, sizeof data[i]);
    assert_int_equal(wait_for(send_now(pair.send, data[i], i == 9 ? 0 : (size_t)LINK_EARLY_MAX - (size_t)i, i % 3)),
                     arfusionSuccess);
  }
  assert_int_equal(link_send(pair.send, data, 1, 0, &request), arfusionSuccess);
  assert_null(request);
  for (int tag = 2; tag >= 0; tag--) {
    for (int i = tag; i < LINK_EARLY_MOST; i += 3) {
      int size = -1;
      request = receive(pair.recv, i == 9 ? empty : room, i == 9 ? 0 : sizeof room, tag);
      for (int done = 0; !done;) assert_int_equal(link_test(request, &done, &size), arfusionSuccess);
      assert_int_equal(size, i == 9 ? 0 : LINK_EARLY_MAX - (unsigned)i);
      if (i != 9) assert_memory_equal(room, data[i], (size_t)size);
    }
  }
  request = receive(pair.recv, room, sizeof room, 0);
  assert_int_equal(wait_for(send_now(pair.send, data[7], 100, 0)), arfusionSuccess);
  assert_int_equal(wait_for(request), arfusionSuccess);
  assert_memory_equal(room, data[7], 100);
  assert_int_equal(wait_for(send_now(pair.send, data[7], 100, 1)), arfusionSuccess); /* more than there is room for */
  support_sleep(0.01);
  request = receive(pair.recv, room, 99, 1);
  assert_int_equal(wait_for(request), arfusionInvalidUsage);
  close_pair(pair, 0);
}

static void test_early(void** state) {
  (void)state;
  early(&memory);
  early(&tcp);
}

/* Messages of no bytes need no memory, at either end: one that is waited for, and one that comes early. */
static void nothing(const struct endpoint_options* options) {
  struct support_pair pair = make(options, 0);
  struct link_request* received = receive(pair.recv, NULL, 0, 1);
  for (int i = 0; i < 2; i++) {
    int size = -1, done = 0;
    struct link_request* sent = send_now(pair.send, NULL, 0, 1);
    if (i > 0) received = receive(pair.recv, NULL, 0, 1);
    while (!done) assert_int_equal(link_test(received, &done, &size), arfusionSuccess);
    assert_int_equal(size, 0);
    assert_int_equal(wait_for(sent), arfusionSuccess);
  }
  close_pair(pair, 1);
}

static void test_nothing(void** state) {
  (void)state;
  nothing(&memory);
  nothing(&tcp);
}

/* Only the connection on which it comes ends. */
static void too_long(const struct endpoint_options* options, size_t size) {
  struct support_pair pair = make(options, 0), other = make(options, 0);
  char *data = calloc(1, size), *room = calloc(1, size);
  struct link_request *request = receive(pair.recv, room, size - 1, 4), *sent;
  arfusionResult_t result = arfusionSuccess;
  char number[32];
  double limit = support_now() + 20;
  snprintf(number, sizeof number, "%zu", size);
  sent = send_now(pair.send, data, size, 4);
  assert_int_equal(wait_for(request), arfusionInvalidUsage);
  assert_true(support_text_has(error_last(), number));
  assert_true(support_text_has(error_last(), "tag 4"));
  assert_int_equal(wait_for(request), arfusionInvalidUsage);
  wait_for(sent);
  while (result == arfusionSuccess && support_now() < limit) result = link_send(pair.send, data, 1, 4, &sent);
  assert_int_equal(result, arfusionRemoteError);
  request = receive(other.recv, room, size, 4);
  sent = send_now(other.send, data, size, 4);
  assert_int_equal(wait_for(request), arfusionSuccess);
  assert_int_equal(wait_for(sent), arfusionSuccess);
  close_pair(pair, 1);
  close_pair(other, 1);
  free(data);
  free(room);
}

static void test_too_long(void** state) {
  (void)state;
  too_long(&memory, 100);
  too_long(&memory, 300000);
  too_long(&tcp, 100);
  too_long(&tcp, 300000);
}

/* What was sent before the sender closed arrives, however late it is read; what was not sent is an error. */
static void sender_closes(const struct endpoint_options* options) {
  enum { LARGE = 200000 };
  struct support_pair pair = make(options, 0);
  char *data = malloc(LARGE), *room = malloc(LARGE), small[4];
  struct link_request *first = receive(pair.recv, room, LARGE, 1), *second = receive(pair.recv, small, 4, 1);
  struct link_request* third = receive(pair.recv, small, 4, 2);
  memset(data, 77, LARGE);
  assert_int_equal(wait_for(send_now(pair.send, data, LARGE, 1)), arfusionSuccess);
  assert_int_equal(wait_for(send_now(pair.send, data, 4, 1)), arfusionSuccess);
  link_close(pair.send);
  support_sleep(0.02);
  assert_int_equal(wait_for(third), arfusionRemoteError);
  assert_int_equal(wait_for(first), arfusionSuccess);
  assert_int_equal(wait_for(second), arfusionSuccess);
  assert_memory_equal(data, room, LARGE);
  link_close(pair.recv);
  free(data);
  free(room);
}

static void* close_link(void* link) {
  link_close(link);
  linger_end();
  return NULL;
}

/* The same, while the receiver has postings to write when the sender closes: large messages that fill all buffers on
 * the way, and small ones, which went without. */
static void test_closed_before_postings(void** state) {
  enum { LARGE = 24, SMALL = 7, BYTES = 16384 };
  static char data[BYTES], room[LARGE][BYTES], small[SMALL][8];
  struct link_request *received[LARGE + SMALL], *sent[LARGE + SMALL];
  (void)state;
  for (int turn = 0; turn < 5; turn++) {
    struct support_pair pair = make(&tcp, 0);
    pthread_t closing;
    received[0] = receive(pair.recv, room[0], 8, 0);
    assert_int_equal(wait_for(send_now(pair.send, data, 8, 0)), arfusionSuccess);
    assert_int_equal(wait_for(received[0]), arfusionSuccess);
    for (int i = 0; i < LARGE + SMALL; i++) {
      received[i] = i < LARGE ? receive(pair.recv, room[i], BYTES, 0) : receive(pair.recv, small[i - LARGE], 8, 0);
    }
    for (int i = 0; i < LARGE + SMALL; i++) sent[i] = send_now(pair.send, data, i < LARGE ? BYTES : 8, 0);
    for (int i = 0; i < LARGE + SMALL; i++) assert_int_equal(wait_for(sent[i]), arfusionSuccess);
    assert_int_equal(pthread_create(&closing, NULL, close_link, pair.send), 0);
    support_sleep(0.02);
    for (int i = 0; i < LARGE + SMALL; i++) assert_int_equal(wait_for(received[i]), arfusionSuccess);
    pthread_join(closing, NULL);
    link_close(pair.recv);
  }
}

/* Closing all of them, one after the other: how long it takes until no socket is left. */
enum { PAIRS = 10 };
static double close_senders(const struct support_pair* pairs) {
  const double began = support_now();
  for (int i = 0; i < PAIRS; i++) link_close(pairs[i].send);
  linger_end();
  return support_now() - began;
}

/* Where both ends have talked for a while, the receiver's kernel acknowledges what comes 40 ms later: senders wait for
 * that once, not each. */
static void test_closes_together(void** state) {
  enum { ROUNDS = 30 };
  struct support_pair pairs[PAIRS];
  char data[8] = {0}, room[8];
  (void)state;
  for (int i = 0; i < PAIRS; i++) {
    pairs[i] = make(&tcp, 0);
    for (int j = 0; j < ROUNDS; j++) {
      struct link_request* received = receive(pairs[i].recv, room, sizeof room, 0);
      struct link_request* sent = send_now(pairs[i].send, data, sizeof data, 0);
      assert_int_equal(wait_for(received), arfusionSuccess);
      assert_int_equal(wait_for(sent), arfusionSuccess);
    }
  }
  assert_true(close_senders(pairs) < 0.2);
  for (int i = 0; i < PAIRS; i++) link_close(pairs[i].recv);
}

/* Much is on its way to receivers that read nothing, and are waited for once; or have closed, and are not. */
static void closed_unread(int closed, double limit) {
  enum { MESSAGES = LINK_POSTINGS, BYTES = 16384 };
  static char data[BYTES], room[MESSAGES][BYTES];
  struct support_pair pairs[PAIRS];
  for (int i = 0; i < PAIRS; i++) {
    pairs[i] = make(&tcp, 0);
    for (int j = 0; j < MESSAGES; j++) receive(pairs[i].recv, room[j], BYTES, 0);
    for (int j = 0; j < MESSAGES; j++) {
      assert_int_equal(wait_for(send_now(pairs[i].send, data, BYTES, 0)), arfusionSuccess);
    }
    if (closed) link_close(pairs[i].recv);
  }
  assert_true(close_senders(pairs) < limit);
  for (int i = 0; i < PAIRS && !closed; i++) link_close(pairs[i].recv);
}

static void test_closed_unread(void** state) {
  (void)state;
  closed_unread(0, 2);
  closed_unread(1, 0.5);
}

/* A sender that has gone takes no more postings, and early messages go on being given away: that needs no memory. */
static void postings_of_nobody(const struct endpoint_options* options) {
  struct support_pair pair = make(options, 0);
  char data[8] = {0}, room[LINK_GROUP][8];
  void* list[LINK_GROUP];
  size_t sizes[LINK_GROUP];
  int tags[LINK_GROUP];
  for (int i = 0; i < LINK_EARLY_MOST; i++) {
    assert_int_equal(wait_for(send_now(pair.send, data, 8, 0)), arfusionSuccess);
  }
  link_close(pair.send);
  for (int i = 0; i < LINK_EARLY_MOST; i++) {
    assert_int_equal(wait_for(receive(pair.recv, room[0], 8, 0)), arfusionSuccess);
  }
  for (int i = 0; i < LINK_GROUP; i++) list[i] = room[i], sizes[i] = 8, tags[i] = i;
  for (int i = 0; i < LINK_POSTINGS; i++) {
    struct link_request* request;
    if (link_receive(pair.recv, LINK_GROUP, list, sizes, tags, &request) != arfusionSuccess || !request) break;
  }
  link_close(pair.recv);
}

static void test_postings_of_nobody(void** state) {
  (void)state;
  postings_of_nobody(&memory);
  postings_of_nobody(&tcp);
}

static struct link* end_of(int sending, int control, int lane) {
  const struct link_parts parts = {.sending = sending, .nlanes = 1, .fds = {control, lane}, .peer = "the other"};
  struct link* link = link_create(&parts);
  assert_non_null(link);
  return link;
}

/* What a lane's own thread has met is what the error says: here a lane that is no socket. */
static void test_lane_broken(void** state) {
  enum { LARGE = 200000 };
  static char data[LARGE], room[LARGE];
  int control[2], lane[2];
  (void)state;
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, control), 0);
  assert_int_equal(pipe(lane), 0);
  struct support_pair pair = {.send = end_of(1, control[0], lane[1]), .recv = end_of(0, control[1], lane[0])};
  receive(pair.recv, room, LARGE, 0);
  struct link_request* sent = send_now(pair.send, data, LARGE, 0);
  support_sleep(0.05);
  errno = ENOENT; /* from something else */
  assert_int_equal(wait_for(sent), arfusionSystemError);
  assert_true(support_text_has(error_last(), strerror(ENOTSOCK)));
  close_pair(pair, 1);
}

/* A receiver that closes when it has the message, wherever the sender's buffer is full: the message was sent. */
static void test_closed_before_padding(void** state) {
  static char data[4096], room[4096];
  (void)state;
  for (size_t size = 1; size < 2500; size++) {
    int control[2], lane[2], bytes = 2304, done = 0, sent_done = 0;
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, control), 0);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, lane), 0);
    assert_int_equal(setsockopt(control[0], SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes), 0);
    struct support_pair pair = {.send = end_of(1, control[0], lane[0]), .recv = end_of(0, control[1], lane[1])};
    struct link_request *received = receive(pair.recv, room, size, 0);
    struct link_request* sent = send_now(pair.send, data, size, 0);
    while (!done) {
      assert_int_equal(link_test(received, &done, NULL), arfusionSuccess);
      if (!done && !sent_done) assert_int_equal(link_test(sent, &sent_done, NULL), arfusionSuccess);
    }
    link_close(pair.recv);
    if (!sent_done) assert_int_equal(wait_for(sent), arfusionSuccess);
    link_close(pair.send);
  }
}

/* A receiver that closes in the middle of a message. */
static void receiver_closes(const struct endpoint_options* options) {
  enum { LARGE = 64 << 20 }; /* more than any buffer on the way takes */
  struct support_pair pair = make(options, 0);
  char *data = calloc(1, LARGE), *room = calloc(1, LARGE);
  struct link_request *sent, *late = NULL;
  int done = 0;
  receive(pair.recv, room, LARGE, 1);
  sent = send_now(pair.send, data, LARGE, 1);
  assert_int_equal(link_test(sent, &done, NULL), arfusionSuccess);
  link_close(pair.recv);
  assert_int_equal(wait_for(sent), arfusionRemoteError);
  assert_int_equal(link_send(pair.send, data, 1, 1, &late), arfusionRemoteError);
  link_close(pair.send);
  free(data);
  free(room);
}

static void test_closed_by_the_other(void** state) {
  (void)state;
  sender_closes(&memory);
  sender_closes(&tcp);
  receiver_closes(&memory);
  receiver_closes(&tcp);
}

/* Everything in the air, then both ends close. */
static void unfinished(const struct endpoint_options* options, int sender_first) {
  enum { LARGE = 8 << 20 };
  struct support_pair pair = make(options, 0);
  char *data = calloc(1, LARGE), *room = calloc(1, LARGE);
  for (int i = 0; i < 5; i++) receive(pair.recv, room, LARGE, 1);
  for (int i = 0; i < 3; i++) send_now(pair.send, data, i == 1 ? 100 : LARGE, 1);
  close_pair(pair, sender_first);
  free(data);
  free(room);
}

static void test_closed_unfinished(void** state) {
  (void)state;
  unfinished(&memory, 0);
  unfinished(&memory, 1);
  unfinished(&tcp, 0);
  unfinished(&tcp, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      SUPPORT_CHECKED(test_memory),
      SUPPORT_CHECKED(test_tcp),
      SUPPORT_CHECKED(test_ipv6),
      SUPPORT_CHECKED(test_largest),
      SUPPORT_CHECKED(test_limits_of_both),
      SUPPORT_CHECKED(test_held),
      SUPPORT_CHECKED(test_early),
      SUPPORT_CHECKED(test_nothing),
      SUPPORT_CHECKED(test_too_long),
      SUPPORT_CHECKED(test_closed_by_the_other),
      SUPPORT_CHECKED(test_closed_before_postings),
      SUPPORT_CHECKED(test_closes_together),
      SUPPORT_CHECKED(test_closed_unread),
      SUPPORT_CHECKED(test_lane_broken),
      SUPPORT_CHECKED(test_closed_before_padding),
      SUPPORT_CHECKED(test_postings_of_nobody),
      SUPPORT_CHECKED(test_closed_unfinished),
  };
  log_configure(support_logger, arfusionLogTrace);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
