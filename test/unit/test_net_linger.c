/* SPDX-License-Identifier: Apache-2.0
 *
 * test_net_linger.c: sending sockets at the end of a process. Those of links that close are in test_net_link.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "plugin/net/linger.h"
#include "test/unit/support.h"

/* A process that ends with a socket that lingers: what it has sent still comes, whatever is sent to it meanwhile. */
static void test_process_ends(void** state) {
  enum { BYTES = 400000, POSTING = 64 };
  static char data[BYTES];
  const int small = 8192;
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t length = sizeof address;
  int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), ended, status, fd;
  size_t got = 0;
  ssize_t part;
  (void)state;
  assert_int_equal(setsockopt(listening, SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
  assert_int_equal(bind(listening, (struct sockaddr*)&address, sizeof address), 0);
  assert_int_equal(getsockname(listening, (struct sockaddr*)&address, &length), 0);
  assert_int_equal(listen(listening, 1), 0);
  fflush(NULL);
  const pid_t child = fork();
  if (child == 0) {
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int large = 2 * BYTES;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &large, sizeof large);
    if (connect(fd, (struct sockaddr*)&address, sizeof address) != 0) _exit(1);
    if (send(fd, data, BYTES, MSG_NOSIGNAL | MSG_DONTWAIT) != BYTES) _exit(2);
    linger_begin(fd);
    exit(0);
  }
  fd = accept(listening, NULL, NULL);
  assert_true(fd >= 0);
  support_sleep(0.05); /* longer than a process takes to end that waits for nothing */
  assert_int_equal(send(fd, data, POSTING, MSG_NOSIGNAL), POSTING);
  while ((part = recv(fd, data, sizeof data, 0)) > 0) got += (size_t)part;
  assert_int_equal(part, 0);
  assert_int_equal(got, BYTES);
  assert_int_equal(waitpid(child, &ended, 0), child);
  status = WIFEXITED(ended) ? WEXITSTATUS(ended) : -1;
  assert_int_equal(status, 0);
  close(fd);
  close(listening);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_process_ends)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
