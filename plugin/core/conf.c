/* SPDX-License-Identifier: Apache-2.0
 *
 * conf.c: where NCCL's configuration files are and how their lines are cut up; see conf.h.
 */
#include "plugin/core/conf.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef CONF_SYSTEM_FILE
#define CONF_SYSTEM_FILE "/etc/nccl.conf"
#endif
#define CONF_BYTES ((size_t)64 << 10) /* the largest file */

static char* trim(char* text) {
  size_t length;

  while (isspace((unsigned char)*text)) text++;
  length = strlen(text);
  while (length > 0 && isspace((unsigned char)text[length - 1])) length--;
  text[length] = '\0';
  return text;
}

/* Ends the line where a comment begins: a # that is first or follows a space (a path may have one inside). */
static void comment_cut(char* line) {
  for (char* at = line; *at != '\0'; at++) {
    if (*at == '#' && (at == line || isspace((unsigned char)at[-1]))) {
      *at = '\0';
      return;
    }
  }
}

static arfusionResult_t line_read(char* line, const char* where, conf_line_fn take, void* arg) {
  char *name, *value;

  comment_cut(line);
  name = trim(line);
  if (name[0] == '\0') return arfusionSuccess;
  value = strchr(name, '=');
  if (value != NULL) {
    *value++ = '\0';
    value = trim(value);
  }
  return take(arg, trim(name), value, where);
}

/* The file's text, which is to be freed; NULL with *error, an errno, if it cannot be read or is larger than CONF_BYTES.
 * A pipe that nobody writes to is not waited for. */
static char* text_read(const char* path, int* error) {
  char* text = malloc(CONF_BYTES + 1);
  int fd = text != NULL ? open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK) : -1;
  FILE* file = fd >= 0 ? fdopen(fd, "r") : NULL;

  *error = errno;
  if (file == NULL && fd >= 0) close(fd);
  if (file != NULL) {
    size_t bytes = fread(text, 1, CONF_BYTES + 1, file);
    *error = ferror(file) ? errno : bytes > CONF_BYTES ? EFBIG : 0;
    if (*error == 0) text[bytes] = '\0';
    fclose(file);
    if (*error == 0) return text;
  }
  free(text);
  return NULL;
}

static arfusionResult_t file_read(const char* path, conf_line_fn take, void* arg, int* error) {
  arfusionResult_t result = arfusionSuccess;
  char *text = text_read(path, error), *rest = text, *line, where[400];

  for (int number = 1; result == arfusionSuccess && (line = strsep(&rest, "\n")) != NULL; number++) {
    snprintf(where, sizeof(where), "file %.300s, line %d", path, number);
    result = line_read(line, where, take, arg);
  }
  free(text);
  return result;
}

static arfusionResult_t user_file_read(conf_line_fn take, void* arg, int* unread) {
  const char* named = getenv("NCCL_CONF_FILE");
  const char* home = getenv("HOME");
  struct passwd entry, *found = NULL;
  char buffer[4096], path[4200];
  int not_there;

  if (named != NULL && named[0] != '\0') return file_read(named, take, arg, unread);
  if (home == NULL || home[0] == '\0') {
    if (getpwuid_r(getuid(), &entry, buffer, sizeof(buffer), &found) != 0 || found == NULL) return arfusionSuccess;
    home = entry.pw_dir;
  }
  if (snprintf(path, sizeof(path), "%s/.nccl.conf", home) >= (int)sizeof(path)) return arfusionSuccess;
  return file_read(path, take, arg, &not_there);
}

arfusionResult_t conf_read(conf_line_fn take, void* arg, int* unread) {
  int error = 0, not_there;
  arfusionResult_t result = user_file_read(take, arg, &error);
  if (unread != NULL) *unread = error;
  return result == arfusionSuccess ? file_read(CONF_SYSTEM_FILE, take, arg, &not_there) : result;
}
