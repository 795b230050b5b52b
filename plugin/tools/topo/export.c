/* SPDX-License-Identifier: Apache-2.0
 *
 * export.c: the sub-command `export`; see export.h.
 */
#include "plugin/tools/topo/export.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "plugin/tools/topo/draw.h"
#include "plugin/tools/topo/json.h"

#define DOT_LIMIT_S 60

static const char* const formats[] = {NULL, "hwloc-xml", "nccl-xml", "dot", "svg"};
#define FORMATS (sizeof(formats) / sizeof(formats[0]))

enum tool_format export_format_parse(const char* name) {
  for (size_t i = 1; i < FORMATS; i++) {
    if (strcmp(name, formats[i]) == 0) return (enum tool_format)i;
  }
  return TOOL_FORMAT_NONE;
}

/* ---------------------------------------------------------------- pictures */

static int dot_make(const struct topo* topo, const struct decision* decision, char** text, size_t* bytes) {
  FILE* out = open_memstream(text, bytes);
  int failed = out == NULL || draw_dot(topo, decision, out) != 0;
  if (out != NULL && fclose(out) != 0) failed = 1;
  if (!failed) return 0;
  tool_fail("out of memory");
  return -1;
}

/* Until the child has ended, or is killed after DOT_LIMIT_S. 0 if it ended well. */
static int dot_wait(pid_t child) {
  const struct timespec pause = {.tv_nsec = 5000000};
  int status = 0;
  for (int i = 0; i < DOT_LIMIT_S * 200; i++) {
    pid_t ended = waitpid(child, &status, WNOHANG);
    if (ended == child) {
      if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return 0;
      tool_fail("graphviz's dot failed (%s %d)", WIFSIGNALED(status) ? "signal" : "exit code",
                WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
      return -1;
    }
    if (ended < 0 && errno != EINTR) break;
    nanosleep(&pause, NULL);
  }
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  tool_fail("graphviz's dot has not drawn this within %d s; --format dot gives what it was to draw", DOT_LIMIT_S);
  return -1;
}

/* Runs `dot -Tsvg`, from one file into another. */
static int dot_run(FILE* in, FILE* out) {
  static const char* const arguments[] = {"dot", "-Tsvg", NULL};
  posix_spawn_file_actions_t actions;
  pid_t child;
  if (posix_spawn_file_actions_init(&actions) != 0) {
    tool_fail("out of memory");
    return -1;
  }
  int error = posix_spawn_file_actions_adddup2(&actions, fileno(in), STDIN_FILENO);
  if (error == 0) error = posix_spawn_file_actions_adddup2(&actions, fileno(out), STDOUT_FILENO);
  if (error == 0) error = posix_spawnp(&child, "dot", &actions, NULL, (char* const*)arguments, environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error == 0) return dot_wait(child);
  if (error == ENOENT) {
    tool_fail("SVG needs graphviz's dot, which is not installed: apt-get install graphviz (or use --format dot)");
  } else {
    tool_fail("cannot run graphviz's dot: %s", strerror(error));
  }
  return -1;
}

/* The whole of a file that was written by somebody else. */
static int file_take(FILE* file, char** text, size_t* bytes) {
  off_t size = lseek(fileno(file), 0, SEEK_END);
  if (size < 0 || (*text = malloc((size_t)size + 1)) == NULL) return -1;
  rewind(file);
  *bytes = fread(*text, 1, (size_t)size, file);
  (*text)[*bytes] = '\0';
  return *bytes == (size_t)size ? 0 : -1;
}

/* A file that lies on no disk. */
static FILE* memory_file(void) {
  int fd = memfd_create("arfusion-topo", MFD_CLOEXEC);
  FILE* file = fd >= 0 ? fdopen(fd, "w+") : NULL;
  if (file == NULL && fd >= 0) close(fd);
  return file;
}

static int svg_make(const struct topo* topo, const struct decision* decision, char** text, size_t* bytes) {
  FILE *in = memory_file(), *out = memory_file();
  int result = -1;
  if (in == NULL || out == NULL || draw_dot(topo, decision, in) != 0 || fflush(in) != 0) {
    tool_fail("cannot keep a file in memory: %s", strerror(errno));
  } else {
    rewind(in);
    result = dot_run(in, out);
    if (result == 0 && (result = file_take(out, text, bytes)) != 0) tool_fail("cannot read what dot has drawn");
  }
  if (in != NULL) fclose(in);
  if (out != NULL) fclose(out);
  return result;
}

/* ---------------------------------------------------------------- writing */

static int text_write(const char* file, const char* text, size_t bytes) {
  int fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  int error = fd < 0 ? errno : 0;
  while (error == 0 && bytes > 0) {
    ssize_t written = write(fd, text, bytes);
    if (written < 0 && errno != EINTR) error = errno;
    if (written > 0) {
      text += written;
      bytes -= (size_t)written;
    }
  }
  if (fd >= 0 && close(fd) != 0 && error == 0) error = errno;
  return error == 0 ? TOOL_GOOD : tool_fail("%s: %s", file, strerror(error));
}

static int report_write(const struct topo* topo, const struct tool_options* options, const char* text, size_t bytes) {
  struct json_document document;
  json_begin(&document, "export");
  json_machine(&document, topo);
  json_member(&document, "format", json_string(formats[options->format]));
  json_member(&document, "output", json_text(options->output));
  json_member(&document, "bytes", json_integer((json_int_t)bytes));
  json_member(&document, "content", options->output != NULL ? json_null() : json_text(text));
  return json_end(&document, TOOL_GOOD);
}

static int content_make(const struct topo* topo, const struct decision* decision, enum tool_format format, char** text,
                        size_t* bytes) {
  struct topo_error error = {0};
  int failed;
  switch (format) {
    case TOOL_FORMAT_DOT: return dot_make(topo, decision, text, bytes);
    case TOOL_FORMAT_SVG: return svg_make(topo, decision, text, bytes);
    case TOOL_FORMAT_HWLOC_XML: failed = topo_write_hwloc_xml(topo, text, bytes, &error); break;
    default: failed = topo_write_nccl_xml(topo, text, bytes, &error); break;
  }
  if (failed) tool_fail("%s", error.text);
  return failed;
}

int export_run(const struct topo* topo, const struct decision* decision, const struct tool_options* options) {
  char* text = NULL;
  size_t bytes = 0;
  int result = TOOL_CANNOT_TELL;
  if (content_make(topo, decision, options->format, &text, &bytes) == 0) {
    result = options->output != NULL ? text_write(options->output, text, bytes) : TOOL_GOOD;
    if (result == TOOL_GOOD && options->json) {
      result = report_write(topo, options, text, bytes);
    } else if (options->output == NULL) {
      fwrite(text, 1, bytes, stdout);
    }
  }
  free(text);
  return result;
}
