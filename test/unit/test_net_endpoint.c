/* SPDX-License-Identifier: Apache-2.0
 *
 * test_net_endpoint.c: how connections of the network for NCCL come about: interfaces, malformed handles, strangers at
 * the port and at the Unix socket, listeners that are gone or never accept, several connections at once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plugin/core/log.h"
#include "plugin/net/endpoint_internal.h"
#include "test/unit/support.h"
#include "test/unit/support_net.h"

static const struct endpoint_options memory = {.nlanes = 2, .shared = 1, .timeout_s = 20};
static const struct endpoint_options tcp = {.nlanes = 2, .shared = 0, .timeout_s = 20};
static const struct endpoint_options* const both[] = {&memory, &tcp};

/* ---------------------------------------------------------------- interfaces */

static void test_names(void** state) {
  (void)state;
  assert_true(interface_matches("eth", "eth0"));
  assert_false(interface_matches("eth", "ib0"));
  assert_true(interface_matches("ib,eth", "eth0"));
  assert_true(interface_matches("eth0:4242,ib", "eth0"));
  assert_true(interface_matches("eth0", "eth01"));
  assert_false(interface_matches("=eth0", "eth01"));
  assert_true(interface_matches("=ib0,eth0", "eth0"));
  assert_false(interface_matches("=eth", "eth0"));
  assert_false(interface_matches("^docker,lo", "lo"));
  assert_true(interface_matches("^docker,lo", "eth0"));
  assert_false(interface_matches("^=eth0", "eth0"));
  assert_true(interface_matches("^=eth0", "eth01"));
  assert_false(interface_matches("eth0", "eth"));
  assert_true(interface_matches("", "eth0"));
  assert_true(interface_matches(",,eth", "eth0"));
}

static void test_interfaces(void** state) {
  struct interface found[INTERFACE_MOST];
  char text[INTERFACE_TEXT_BYTES];
  (void)state;
  assert_int_equal(interface_find("lo", "", found), 1);
  assert_string_equal(found[0].name, "lo");
  assert_int_equal(found[0].address.any.sa_family, AF_INET);
  assert_int_equal(found[0].speed, INTERFACE_DEFAULT_SPEED);
  assert_string_equal(found[0].pci_path, "");
  interface_address_text(&found[0].address, text);
  assert_string_equal(text, "127.0.0.1:0");
  assert_int_equal(interface_find("lo", "AF_INET6", found), 0); /* NCCL skips ::1 */
  assert_int_equal(interface_find("=nosuch", "", found), 0);
  assert_true(interface_find("", "", found) >= 1);
  int all = interface_find("^=nosuch", "", found);
  for (int i = 0; i < all; i++) {
    for (int j = 0; j < i; j++) assert_string_not_equal(found[i].name, found[j].name);
  }
}

/* ---------------------------------------------------------------- connecting */

struct meeting {
  struct interface interface;
  struct listener* listener;
  char handle[ENDPOINT_HANDLE_BYTES];
};

static struct meeting meet(const struct endpoint_options* options) {
  struct meeting meeting = {.interface = support_loopback(0)};
  assert_int_equal(listener_create(&meeting.interface, options, meeting.handle, &meeting.listener), arfusionSuccess);
  return meeting;
}

/* The true other end still gets through, and is who it says it is. */
static void connects(struct meeting* meeting, const struct endpoint_options* options) {
  struct link *send = NULL, *recv = NULL;
  int rank = -1;
  double limit = support_now() + 20;
  while ((!send || !recv) && support_now() < limit) {
    if (!send)
      assert_int_equal(endpoint_connect(meeting->handle, &meeting->interface, options, 42, &send), arfusionSuccess);
    if (!recv) assert_int_equal(listener_accept(meeting->listener, &recv, &rank), arfusionSuccess);
  }
  assert_non_null(send);
  assert_non_null(recv);
  assert_int_equal(rank, 42);
  link_close(send);
  link_close(recv);
}

static void test_malformed_handles(void** state) {
  struct meeting meeting = meet(&tcp);
  struct link* link;
  uint64_t random = 5;
  (void)state;
  for (size_t byte = 0; byte < sizeof(struct endpoint_handle); byte++) { /* whichever bit is wrong */
    char handle[ENDPOINT_HANDLE_BYTES];
    memcpy(handle, meeting.handle, sizeof handle);
    handle[byte] ^= (char)(1 << support_random(&random, 8));
    assert_int_equal(endpoint_connect(handle, &meeting.interface, &tcp, 0, &link), arfusionInvalidArgument);
    assert_true(support_text_has(error_last(), "handle"));
  }
  for (int i = 0; i < 1000; i++) {
    char handle[ENDPOINT_HANDLE_BYTES];
    for (size_t byte = 0; byte < sizeof handle; byte++) handle[byte] = (char)support_random(&random, 256);
    assert_int_equal(endpoint_connect(handle, &meeting.interface, &tcp, 0, &link), arfusionInvalidArgument);
  }
  /* One that is right in itself, but comes from another version. */
  struct endpoint_handle other;
  memcpy(&other, meeting.handle, sizeof other);
  other.version = 9;
  other.check = endpoint_handle_check(&other);
  memcpy(meeting.handle, &other, sizeof other);
  assert_int_equal(endpoint_connect(meeting.handle, &meeting.interface, &tcp, 0, &link), arfusionInvalidArgument);
  assert_true(support_text_has(error_last(), "version 9"));
  listener_close(meeting.listener);
}

static void test_gone_and_silent(void** state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    struct endpoint_options options = *both[i];
    struct meeting meeting;
    struct link* link = NULL;
    arfusionResult_t result = arfusionSuccess;
    double limit = support_now() + 20, began;

    meeting = meet(&options);
    listener_close(meeting.listener);
    while (result == arfusionSuccess && support_now() < limit)
      result = endpoint_connect(meeting.handle, &meeting.interface, &options, 0, &link);
    assert_int_equal(result, arfusionRemoteError);

    options.timeout_s = 1; /* nobody accepts */
    meeting = meet(&options);
    result = arfusionSuccess;
    began = support_now();
    while (result == arfusionSuccess && support_now() < limit) {
      result = endpoint_connect(meeting.handle, &meeting.interface, &options, 0, &link);
      support_sleep(0.01);
    }
    assert_int_equal(result, arfusionRemoteError);
    assert_true(support_text_has(error_last(), "within 1 s|ARFUSION_INIT_TIMEOUT"));
    assert_true(support_now() - began < 10);
    listener_close(meeting.listener);

    meeting = meet(&options); /* and one that closes while somebody waits */
    assert_int_equal(endpoint_connect(meeting.handle, &meeting.interface, &options, 0, &link), arfusionSuccess);
    support_sleep(0.01);
    listener_close(meeting.listener);
    result = arfusionSuccess;
    while (result == arfusionSuccess && support_now() < limit)
      result = endpoint_connect(meeting.handle, &meeting.interface, &options, 0, &link);
    assert_int_equal(result, arfusionRemoteError);
  }
}

/* Without the Unix socket (another network namespace) or with a listener that cannot map the memory, TCP does it. */
static void test_falls_back(void** state) {
  (void)state;
  struct meeting meeting = meet(&memory);
  struct endpoint_handle other;
  memcpy(&other, meeting.handle, sizeof other);
  other.name[0]++;
  other.check = endpoint_handle_check(&other);
  memcpy(meeting.handle, &other, sizeof other);
  connects(&meeting, &memory);
  listener_close(meeting.listener);
}

/* ---------------------------------------------------------------- strangers */

static int connect_tcp(const struct meeting* meeting) {
  struct endpoint_handle handle;
  struct sockaddr_in address = {.sin_family = AF_INET};
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  memcpy(&handle, meeting->handle, sizeof handle);
  address.sin_port = handle.port;
  memcpy(&address.sin_addr, handle.address, 4);
  assert_int_equal(connect(fd, (struct sockaddr*)&address, sizeof address), 0);
  return fd;
}

static int connect_local(const struct meeting* meeting) {
  struct endpoint_handle handle;
  struct net_peer peer;
  char name[NET_NAME_BYTES];
  memcpy(&handle, meeting->handle, sizeof handle);
  endpoint_socket_name(&handle, name);
  return net_connect(name, &peer);
}

/* A connection over which this is said must be closed by the listener. */
static void dropped(struct meeting* meeting, int fd, const void* said, size_t bytes) {
  struct link* link;
  char byte;
  ssize_t got = -1;
  double limit = support_now() + 15;
  assert_int_equal(send(fd, said, bytes, MSG_NOSIGNAL), bytes);
  while (support_now() < limit && got < 0) {
    assert_int_equal(listener_accept(meeting->listener, &link, NULL), arfusionSuccess);
    assert_null(link);
    got = recv(fd, &byte, 1, MSG_DONTWAIT);
    if (got < 0 && errno == ECONNRESET) got = 0; /* it had not read all */
  }
  assert_int_equal(got, 0);
  close(fd);
}

static void test_strangers(void** state) {
  uint64_t random = 11;
  (void)state;
  for (int i = 0; i < 2; i++) {
    struct meeting meeting = meet(both[i]);
    struct endpoint_handle handle;
    struct endpoint_hello hello = {.magic = ENDPOINT_MAGIC, .version = ENDPOINT_VERSION, .nlanes = 2, .id = 77};
    char noise[500];
    memcpy(&handle, meeting.handle, sizeof handle);
    for (size_t at = 0; at < sizeof noise; at++) noise[at] = (char)support_random(&random, 256);
    dropped(&meeting, connect_tcp(&meeting), noise, sizeof noise);
    dropped(&meeting, connect_tcp(&meeting), "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 36);
    hello.secret = handle.secret[0] + 1;
    dropped(&meeting, connect_tcp(&meeting), &hello, sizeof hello);
    hello.secret = handle.secret[0];
    hello.stream = 3;
    dropped(&meeting, connect_tcp(&meeting), &hello, sizeof hello);
    hello.stream = 0;
    hello.nlanes = 200;
    dropped(&meeting, connect_tcp(&meeting), &hello, sizeof hello);
    hello.nlanes = 2;
    hello.version = 7;
    dropped(&meeting, connect_tcp(&meeting), &hello, sizeof hello);
    hello.version = ENDPOINT_VERSION;
    if (both[i]->shared) {
      dropped(&meeting, connect_local(&meeting), noise, sizeof noise); /* without a descriptor */
      dropped(&meeting, connect_local(&meeting), &hello, sizeof hello);
    }
    connects(&meeting, both[i]);
    listener_close(meeting.listener);
  }
}

/* Of the right size, on a file system that knows no seals: who has it can make it smaller. */
static int plain_file(void) {
  char path[] = "/var/tmp/arfusion-XXXXXX";
  struct stat status;
  int right = -1, fd = mkstemp(path);
  assert_true(fd >= 0);
  unlink(path);
  link_memory_unmap(link_memory_create(2, &right));
  assert_int_equal(fstat(right, &status), 0);
  assert_int_equal(ftruncate(fd, status.st_size), 0);
  close(right);
  return fd;
}

/* A descriptor that is not what it should be: the answer says to come over TCP, nothing is mapped. */
static void test_wrong_memory(void** state) {
  struct meeting meeting = meet(&memory);
  struct endpoint_handle handle;
  struct endpoint_hello hello = {.magic = ENDPOINT_MAGIC, .version = ENDPOINT_VERSION, .nlanes = 2, .id = 78};
  (void)state;
  memcpy(&handle, meeting.handle, sizeof handle);
  hello.secret = handle.secret[0];
  for (int kind = 0; kind < 4; kind++) {
    struct endpoint_answer answer = {0};
    struct link* link;
    size_t got = 0;
    double limit = support_now() + 15;
    int fd = connect_local(&meeting);
    int wrong = kind == 0 ? memfd_create("unsealed", MFD_ALLOW_SEALING) : kind == 1 ? open("/dev/null", O_RDWR) : -1;
    if (kind == 0) assert_int_equal(ftruncate(wrong, 64 << 20), 0);
    if (kind == 2) link_memory_unmap(link_memory_create(3, &wrong)); /* of more lanes than were agreed */
    if (kind == 3) wrong = plain_file();
    assert_int_equal(net_send_fd(fd, &hello, sizeof hello, wrong), 0);
    while (got < sizeof answer && support_now() < limit) {
      assert_int_equal(listener_accept(meeting.listener, &link, NULL), arfusionSuccess);
      assert_null(link);
      net_receive_some(fd, &answer, sizeof answer, &got);
    }
    assert_int_equal(answer.verdict, ENDPOINT_NO_MEMORY);
    close(wrong);
    close(fd);
  }
  connects(&meeting, &memory);
  listener_close(meeting.listener);
}

/* Who says that a connection over TCP belongs to a link through shared memory, or the other way round: the first way
 * stands, and nothing is kept of the second. */
static void test_both_ways(void** state) {
  (void)state;
  for (int local_first = 0; local_first < 2; local_first++) {
    struct meeting meeting = meet(&memory);
    struct endpoint_handle handle;
    struct endpoint_hello hello = {.magic = ENDPOINT_MAGIC, .version = ENDPOINT_VERSION, .nlanes = 2, .id = 79};
    struct link* link;
    int tcp_fd = connect_tcp(&meeting), local_fd = connect_local(&meeting), memory_fd = -1;
    memcpy(&handle, meeting.handle, sizeof handle);
    hello.secret = handle.secret[0];
    link_memory_unmap(link_memory_create(2, &memory_fd));
    for (int i = 0; i < 2; i++) {
      const int local = (i == 0) == local_first;
      hello.stream = (uint8_t)!local;
      if (local) assert_int_equal(net_send_fd(local_fd, &hello, sizeof hello, memory_fd), 0);
      if (!local) assert_int_equal(send(tcp_fd, &hello, sizeof hello, MSG_NOSIGNAL), sizeof hello);
      if (i == 0 && local_first) continue; /* both at once: the next look accepts the link */
      assert_int_equal(listener_accept(meeting.listener, &link, NULL), arfusionSuccess);
      assert_int_equal(link != NULL, local_first);
    }
    if (local_first) link_close(link);
    close(tcp_fd);
    close(local_fd);
    close(memory_fd);
    listener_close(meeting.listener);
  }
}

static void test_silent_strangers(void** state) {
  enum { MANY = 200 };
  int fds[MANY];
  (void)state;
  for (int i = 0; i < 2; i++) {
    struct meeting meeting = meet(both[i]);
    struct link* link;
    for (int j = 0; j < MANY; j++) {
      fds[j] = connect_tcp(&meeting);
      assert_int_equal(listener_accept(meeting.listener, &link, NULL), arfusionSuccess);
    }
    connects(&meeting, both[i]);
    for (int j = 0; j < MANY; j++) close(fds[j]);
    listener_close(meeting.listener);
  }
}

/* ---------------------------------------------------------------- several at once */

static void test_several(void** state) {
  enum { MANY = 12 };
  (void)state;
  for (int i = 0; i < 2; i++) {
    struct meeting meeting = meet(both[i]);
    char handles[MANY][ENDPOINT_HANDLE_BYTES];
    struct link *send[MANY] = {0}, *recv[MANY] = {0}, *link;
    int missing = 2 * MANY, rank = -1;
    double limit = support_now() + 20;
    for (int j = 0; j < MANY; j++) memcpy(handles[j], meeting.handle, sizeof handles[j]);
    while (missing > 0 && support_now() < limit) {
      for (int j = 0; j < MANY; j++) {
        if (send[j]) continue;
        assert_int_equal(endpoint_connect(handles[j], &meeting.interface, both[i], j, &send[j]), arfusionSuccess);
        missing -= send[j] != NULL;
      }
      assert_int_equal(listener_accept(meeting.listener, &link, &rank), arfusionSuccess);
      if (link == NULL) continue;
      assert_true(rank >= 0 && rank < MANY && recv[rank] == NULL);
      recv[rank] = link;
      missing--;
    }
    assert_int_equal(missing, 0);
    listener_close(meeting.listener);
    for (int j = 0; j < MANY; j++) { /* each of them is the one that it is taken for */
      const struct support_traffic plan = {.seed = (uint64_t)(100 + j), .groups = 4, .size_max = 100000};
      assert_int_equal(support_pair_run((struct support_pair){send[j], recv[j]}, &plan), arfusionSuccess);
      link_close(send[j]);
      link_close(recv[j]);
    }
  }
}

/* More than any table of the listener's has rows, all of whom have said who they are before it looks: none is lost. */
static void test_crowd(void** state) {
  enum { MANY = 200 };
  const struct endpoint_options options[2] = {{.nlanes = 1, .shared = 1, .timeout_s = 20},
                                              {.nlanes = 1, .timeout_s = 20}};
  (void)state;
  for (int kinds = 0; kinds < 3; kinds++) { /* through shared memory, over TCP, and in turn */
    struct meeting meeting = meet(&options[0]);
    char handles[MANY][ENDPOINT_HANDLE_BYTES];
    int connected[MANY] = {0}, seen[MANY] = {0}, missing = 2 * MANY, rank = -1;
    struct link* link;
    double limit = support_now() + 20;
    for (int j = 0; j < MANY; j++) memcpy(handles[j], meeting.handle, sizeof handles[j]);
    for (int turn = 0; missing > 0 && support_now() < limit; turn++) {
      for (int j = 0; j < MANY; j++) {
        const struct endpoint_options* own = &options[kinds < 2 ? kinds : j % 2];
        if (connected[j]) continue;
        assert_int_equal(endpoint_connect(handles[j], &meeting.interface, own, j, &link), arfusionSuccess);
        if (link == NULL) continue;
        connected[j] = 1;
        missing--;
        link_close(link);
      }
      for (int tries = turn < 3 ? 0 : MANY; tries > 0; tries--) {
        assert_int_equal(listener_accept(meeting.listener, &link, &rank), arfusionSuccess);
        if (link == NULL) break;
        assert_true(rank >= 0 && rank < MANY && !seen[rank]);
        seen[rank] = 1;
        missing--;
        link_close(link);
      }
    }
    assert_int_equal(missing, 0);
    listener_close(meeting.listener);
  }
}

/* Many that say who they are a little later, while the listener rests for longer than it waits for them. */
static void test_slow_crowd(void** state) {
  enum { MANY = 100 };
  struct meeting meeting = meet(&(struct endpoint_options){.nlanes = 1, .timeout_s = 20});
  struct endpoint_handle handle;
  struct endpoint_hello hello = {.magic = ENDPOINT_MAGIC, .version = ENDPOINT_VERSION, .nlanes = 1};
  struct link* link = NULL;
  int fds[2 * MANY], missing = MANY;
  double limit = support_now() + 15;
  (void)state;
  memcpy(&handle, meeting.handle, sizeof handle);
  hello.secret = handle.secret[0];
  for (int i = 0; i < 2 * MANY; i++) fds[i] = connect_tcp(&meeting);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(listener_accept(meeting.listener, &link, NULL), arfusionSuccess);
    assert_null(link);
  }
  for (int i = 0; i < 2 * MANY; i++) {
    hello.id = 1000 + (uint64_t)i / 2;
    hello.stream = (uint8_t)(i % 2);
    assert_int_equal(send(fds[i], &hello, sizeof hello, MSG_NOSIGNAL), sizeof hello);
  }
  support_sleep(1.2);
  while (missing > 0 && support_now() < limit) {
    assert_int_equal(listener_accept(meeting.listener, &link, NULL), arfusionSuccess);
    if (link == NULL) continue;
    link_close(link);
    missing--;
  }
  assert_int_equal(missing, 0);
  for (int i = 0; i < 2 * MANY; i++) close(fds[i]);
  listener_close(meeting.listener);
}

/* A listener that closes has taken a connection that nobody has accepted: it keeps nothing of it. */
static void test_closed_before_accepted(void** state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    struct meeting meeting = meet(both[i]);
    char handles[2][ENDPOINT_HANDLE_BYTES];
    struct link *send[2] = {0}, *recv = NULL;
    double limit = support_now() + 20;
    for (int j = 0; j < 2; j++) memcpy(handles[j], meeting.handle, sizeof handles[j]);
    while ((!send[0] || !send[1]) && support_now() < limit) {
      for (int j = 0; j < 2; j++) {
        if (send[j]) continue;
        assert_int_equal(endpoint_connect(handles[j], &meeting.interface, both[i], j, &send[j]), arfusionSuccess);
      }
      if (!recv) assert_int_equal(listener_accept(meeting.listener, &recv, NULL), arfusionSuccess);
    }
    assert_true(send[0] && send[1] && recv);
    listener_close(meeting.listener);
    link_close(send[0]);
    link_close(send[1]);
    link_close(recv);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_names),
      cmocka_unit_test(test_interfaces),
      SUPPORT_CHECKED(test_malformed_handles),
      SUPPORT_CHECKED(test_gone_and_silent),
      SUPPORT_CHECKED(test_falls_back),
      SUPPORT_CHECKED(test_strangers),
      SUPPORT_CHECKED(test_wrong_memory),
      SUPPORT_CHECKED(test_both_ways),
      SUPPORT_CHECKED(test_silent_strangers),
      SUPPORT_CHECKED(test_several),
      SUPPORT_CHECKED(test_crowd),
      SUPPORT_CHECKED(test_slow_crowd),
      SUPPORT_CHECKED(test_closed_before_accepted),
  };
  log_configure(support_logger, arfusionLogTrace);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
