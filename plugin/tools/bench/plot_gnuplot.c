/* SPDX-License-Identifier: Apache-2.0
 *
 * plot_gnuplot.c: gnuplot as a child process, its three streams being files in memory; see plot.h.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "plugin/tools/bench/bench.h"
#include "plugin/tools/bench/plot.h"

#define TIME_LIMIT_S 60
#define NOT_FOUND 127 /* what the child exits with when there is no gnuplot, as a shell does */

enum { IN, OUT, ERR, STREAMS };

static int write_all(int fd, const char* data, size_t bytes) {
  while (bytes > 0) {
    ssize_t written = write(fd, data, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return -1;
    data += written;
    bytes -= (size_t)written;
  }
  return 0;
}

/* The whole file with a 0 behind it; NULL with errno set. The caller frees it. */
static char* read_all(int fd, size_t* bytes) {
  off_t end = lseek(fd, 0, SEEK_END);
  char* data = end < 0 ? NULL : malloc((size_t)end + 1);
  if (data == NULL) return NULL;
  ssize_t got = pread(fd, data, (size_t)end, 0); /* memory: all or nothing */
  if (got != (ssize_t)end) {
    free(data);
    return NULL;
  }
  data[end] = '\0';
  *bytes = (size_t)end;
  return data;
}

/* Does not return. */
static void child_main(const int streams[STREAMS]) {
  alarm(TIME_LIMIT_S); /* outlives exec */
  for (int i = 0; i < STREAMS; i++) {
    if (dup2(streams[i], i) < 0) _exit(BENCH_FAILED);
  }
  execlp("gnuplot", "gnuplot", "--default-settings", "-", (char*)NULL);
  _exit(errno == ENOENT ? NOT_FOUND : BENCH_FAILED);
}

/* 0 if gnuplot did its work. */
static int check_end(int status, int complaints) {
  size_t bytes = 0;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return 0;
  if (WIFEXITED(status) && WEXITSTATUS(status) == NOT_FOUND) {
    bench_fail("gnuplot is not there; on Debian it is in the package gnuplot-nox");
  } else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM) {
    bench_fail("gnuplot took longer than %d s", TIME_LIMIT_S);
  } else {
    char* text = read_all(complaints, &bytes);
    const char* line = text == NULL ? "" : text + strspn(text, "\n");
    bench_fail("gnuplot failed: %.*s", (int)strcspn(line, "\n"), line);
    free(text);
  }
  return -1;
}

int plot_run_gnuplot(const char* script, size_t script_bytes, char** svg, size_t* svg_bytes) {
  static const char* const names[STREAMS] = {"script", "svg", "errors"};
  int streams[STREAMS] = {-1, -1, -1}, status = 0, result = -1;
  for (int i = 0; i < STREAMS; i++) {
    streams[i] = memfd_create(names[i], 0);
    if (streams[i] < 0) goto err_errno;
  }
  if (write_all(streams[IN], script, script_bytes) != 0 || lseek(streams[IN], 0, SEEK_SET) != 0) goto err_errno;
  pid_t child = fork();
  if (child == 0) child_main(streams);
  if (child < 0) goto err_errno;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) goto err_errno;
  }
  if (check_end(status, streams[ERR]) == 0) {
    *svg = read_all(streams[OUT], svg_bytes);
    if (*svg == NULL) goto err_errno;
    result = 0;
  }
  goto err_close;

err_errno:
  bench_fail("cannot run gnuplot: %s", strerror(errno));
err_close:
  for (int i = 0; i < STREAMS; i++) {
    if (streams[i] >= 0) close(streams[i]);
  }
  return result;
}
