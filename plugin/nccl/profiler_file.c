/* SPDX-License-Identifier: Apache-2.0
 *
 * profiler_file.c: see profiler_file.h.
 */
#include "plugin/nccl/profiler_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What stands for the letter after a %; NULL: both characters are kept. */
static const char* value_of(char letter, const struct profiler_facts* facts, char text[32]) {
  switch (letter) {
    case 'h': return facts->host;
    case 'p': snprintf(text, 32, "%d", (int)facts->pid); return text;
    case 'c': snprintf(text, 32, "%" PRIx64, facts->id); return text;
    case 'r': snprintf(text, 32, "%d", facts->rank); return text;
    case '%': return "%";
    default: return NULL;
  }
}

int profiler_file_path(const char* name, const struct profiler_facts* facts, char path[PATH_MAX]) {
  size_t length = 0;
  path[0] = '\0';
  if (name[0] != '/') {
    if (!getcwd(path, PATH_MAX - 1)) return errno;
    length = strlen(path);
    path[length++] = '/';
    path[length] = '\0';
  }
  while (*name) {
    char text[32];
    const char* value = *name == '%' ? value_of(name[1], facts, text) : NULL;
    const size_t take = value ? 2 : 1;
    if (!value) value = memcpy(text, (const char[]){*name, '\0'}, 2);
    const size_t bytes = strlen(value);
    if (length + bytes >= PATH_MAX) return ENAMETOOLONG;
    memcpy(path + length, value, bytes + 1);
    length += bytes;
    name += take;
  }
  return 0;
}

static int file_is_ours(int fd) {
  struct stat status;
  if (fstat(fd, &status)) return errno;
  if (!S_ISREG(status.st_mode)) return EINVAL;
  if (status.st_uid != geteuid() || status.st_nlink != 1) return EPERM;
  return 0;
}

static int write_all(int fd, const char* text, size_t bytes) {
  while (bytes > 0) {
    const ssize_t written = write(fd, text, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return errno;
    text += written;
    bytes -= (size_t)written;
  }
  return 0;
}

int profiler_file_append(const char* path, const char* text, size_t bytes) {
  const int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
  if (fd < 0) return errno;
  int error = file_is_ours(fd);
  if (!error) error = write_all(fd, text, bytes);
  if (close(fd) && !error) error = errno;
  return error;
}
