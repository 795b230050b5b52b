/* SPDX-License-Identifier: Apache-2.0
 *
 * test_log.c: the form of log lines, the level, the host's logger, and the last error of a thread.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "plugin/core/log.h"

/* ---------------------------------------------------------------- stderr, caught */

static int saved_stderr, caught[2];

static void catch_begin(void) {
  assert_int_equal(pipe(caught), 0);
  saved_stderr = dup(STDERR_FILENO);
  assert_true(saved_stderr >= 0);
  assert_true(dup2(caught[1], STDERR_FILENO) >= 0);
}

static void catch_end(char* text, size_t bytes) {
  ssize_t got;
  assert_true(dup2(saved_stderr, STDERR_FILENO) >= 0);
  close(saved_stderr);
  close(caught[1]);
  got = read(caught[0], text, bytes - 1);
  close(caught[0]);
  text[got > 0 ? got : 0] = '\0';
}

static void expected_prefix(char* text, size_t bytes, int dev) {
  char host[256];
  assert_int_equal(gethostname(host, sizeof(host)), 0);
  host[strcspn(host, ".")] = '\0';
  snprintf(text, bytes, "%.128s:%d:%d [%d] ", host, (int)getpid(), (int)gettid(), dev);
}

static void test_lines(void** state) {
  char text[4096], want[4096], prefix[512];
  (void)state;

  log_configure(NULL, arfusionLogInfo);
  log_set_device(3);
  expected_prefix(prefix, sizeof(prefix), 3);
  catch_begin();
  LOG_INFO(ARFUSION_LOG_INIT, "route: %d tokens", 7);
  log_line(arfusionLogWarn, ~0ul, "some/where/file.c", 12, "two\nlines");
  catch_end(text, sizeof(text));
  log_set_device(-1);
  snprintf(want, sizeof(want), "%sNCCL INFO ARFUSION/route: 7 tokens\n%sfile.c:12 NCCL WARN ARFUSION/two lines\n",
           prefix, prefix);
  assert_string_equal(text, want);
}

static void test_level(void** state) {
  char text[4096];
  (void)state;

  log_configure(NULL, arfusionLogWarn);
  catch_begin();
  LOG_INFO(ARFUSION_LOG_INIT, "not this one");
  LOG_WARN("this one");
  log_set_level(arfusionLogNone);
  LOG_WARN("nor this one");
  log_set_level(arfusionLogTrace);
  log_line(arfusionLogTrace, 1, "f.c", 1, "and this one");
  log_line(arfusionLogNone, 1, "f.c", 1, "never");
  log_line((arfusionLogLevel_t)17, 1, "f.c", 1, "never");
  catch_end(text, sizeof(text));
  assert_null(strstr(text, "not this one"));
  assert_null(strstr(text, "nor this one"));
  assert_null(strstr(text, "never"));
  assert_non_null(strstr(text, "NCCL WARN ARFUSION/this one\n"));
  assert_non_null(strstr(text, "NCCL TRACE ARFUSION/and this one\n"));
}

static void test_long_line(void** state) {
  static char filler[5000];
  char text[8192];
  (void)state;

  memset(filler, 'x', sizeof(filler) - 1);
  log_configure(NULL, arfusionLogWarn);
  catch_begin();
  LOG_WARN("%s", filler);
  catch_end(text, sizeof(text));
  assert_true(strlen(text) > 1024 && strlen(text) < 2048);
  assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
}

/* ---------------------------------------------------------------- a host's logger */

static struct {
  int lines;
  arfusionLogLevel_t level;
  unsigned long flags;
  char file[64], text[2048];
} logged;

static void logger(arfusionLogLevel_t level, unsigned long flags, const char* file, int line, const char* fmt, ...)
    __attribute__((format(printf, 5, 6)));

static void logger(arfusionLogLevel_t level, unsigned long flags, const char* file, int line, const char* fmt, ...) {
  va_list args;
  (void)line;
  logged.lines++;
  logged.level = level;
  logged.flags = flags;
  snprintf(logged.file, sizeof(logged.file), "%s", file);
  va_start(args, fmt);
  vsnprintf(logged.text, sizeof(logged.text), fmt, args);
  va_end(args);
  errno = 77;
}

static void test_logger(void** state) {
  (void)state;

  memset(&logged, 0, sizeof(logged));
  log_configure(logger, arfusionLogNone); /* a logger has a level of its own */
  errno = 5;
  LOG_INFO(ARFUSION_LOG_BOOTSTRAP, "100%% of %s", "%s");
  assert_int_equal(errno, 5);
  assert_int_equal(logged.lines, 1);
  assert_int_equal(logged.level, arfusionLogInfo);
  assert_int_equal(logged.flags, ARFUSION_LOG_BOOTSTRAP);
  assert_string_equal(logged.file, "test_log.c");
  assert_string_equal(logged.text, "ARFUSION/100% of %s");
  log_configure(NULL, arfusionLogWarn);
}

/* ---------------------------------------------------------------- errors */

static void* other_thread(void* text) {
  snprintf(text, 64, "[%s]", error_last());
  error_set(arfusionSystemError, "of the other thread");
  return NULL;
}

static void test_error(void** state) {
  pthread_t thread;
  char text[64];
  (void)state;

  memset(&logged, 0, sizeof(logged));
  log_configure(logger, arfusionLogWarn);
  assert_int_equal(error_set(arfusionInvalidArgument, "hidden is %d", 3), arfusionInvalidArgument);
  assert_string_equal(error_last(), "hidden is 3");
  assert_int_equal(logged.lines, 1);
  assert_int_equal(logged.level, arfusionLogWarn);
  assert_string_equal(logged.text, "ARFUSION/hidden is 3");
  error_set(arfusionRemoteError, "rank 1: %s", error_last());
  assert_string_equal(error_last(), "rank 1: hidden is 3");
  assert_int_equal(pthread_create(&thread, NULL, other_thread, text), 0);
  pthread_join(thread, NULL);
  assert_string_equal(text, "[]");
  assert_string_equal(error_last(), "rank 1: hidden is 3");
  log_configure(NULL, arfusionLogWarn);
}

/* What a file or a peer says cannot end a line or steer a terminal, whoever prints it. */
static void test_error_of_one_line(void** state) {
  (void)state;
  log_configure(logger, arfusionLogWarn);
  error_set(arfusionInvalidArgument, "rank 1 says '%s'", "a\nNCCL INFO b\r\x1b[2J\x7f\t\xc3\xa9\xc2\x9b" "2J\xc2\xa7");
  assert_string_equal(error_last(), "rank 1 says 'a NCCL INFO b  [2J  \xc3\xa9  2J\xc2\xa7'");
  assert_string_equal(logged.text, "ARFUSION/rank 1 says 'a NCCL INFO b  [2J  \xc3\xa9  2J\xc2\xa7'");
  log_configure(NULL, arfusionLogWarn);
}

static void test_error_long(void** state) {
  static char filler[5000];
  (void)state;

  memset(filler, 'x', sizeof(filler) - 1);
  log_configure(logger, arfusionLogWarn);
  error_set(arfusionSystemError, "%s", filler);
  assert_int_equal(strlen(error_last()), 1023);
  log_configure(NULL, arfusionLogWarn);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_lines),
      cmocka_unit_test(test_level),
      cmocka_unit_test(test_long_line),
      cmocka_unit_test(test_logger),
      cmocka_unit_test(test_error),
      cmocka_unit_test(test_error_of_one_line),
      cmocka_unit_test(test_error_long),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
