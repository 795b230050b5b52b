/* SPDX-License-Identifier: Apache-2.0
 *
 * output.c: see output.h.
 */
#include "plugin/tools/bench/output.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "plugin/tools/bench/bench.h"

int output_open(struct output* output, const char* path) {
  *output = (struct output){.path = path, .fd = -1};
  if (path == NULL) return 0;
  output->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  output->created = output->fd >= 0;
  if (output->fd < 0 && errno == EEXIST) output->fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
  if (output->fd >= 0) return 0;
  bench_fail("%s: %s", path, strerror(errno));
  return -1;
}

/* 0, or -1 with errno set. */
static int write_all(int fd, const char* text, size_t bytes) {
  if (ftruncate(fd, 0) != 0 && errno != EINVAL) return -1; /* EINVAL: a pipe or a device */
  while (bytes > 0) {
    ssize_t written = write(fd, text, bytes);
    if (written < 0 && errno != EINTR) return -1;
    if (written <= 0) continue;
    text += written;
    bytes -= (size_t)written;
  }
  return 0;
}

int output_close(struct output* output, int result, const char* text, size_t bytes) {
  if (output->path == NULL) return result;
  int failed = result == BENCH_EQUAL && write_all(output->fd, text, bytes) != 0;
  int why = errno;
  if (close(output->fd) != 0 && !failed) {
    failed = 1;
    why = errno;
  }
  if (failed && result == BENCH_EQUAL) result = bench_fail("%s: %s", output->path, strerror(why));
  if (result != BENCH_EQUAL && output->created) unlink(output->path);
  return result;
}
