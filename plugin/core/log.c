/* SPDX-License-Identifier: Apache-2.0
 *
 * log.c: see log.h. A line leaves the process in one write, so that the lines of several ranks on one terminal do not
 * mix.
 */
#include "plugin/core/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "topo/one_line.h"

#define LOG_TEXT_BYTES 1280 /* an error's text, and the mark in front of it */
#define LOG_MARK "ARFUSION/"
#define ERROR_TEXT_BYTES 1024

static _Atomic(arfusionDebugLogger_t) log_logger;
static _Atomic(arfusionLogLevel_t) log_level = arfusionLogWarn;
static _Thread_local int log_device = -1;
static _Thread_local char error_text[ERROR_TEXT_BYTES];

void log_configure(arfusionDebugLogger_t logger, arfusionLogLevel_t level) {
  atomic_store(&log_logger, logger);
  atomic_store(&log_level, level);
}

static pthread_mutex_t log_hosts_mutex = PTHREAD_MUTEX_INITIALIZER;
static int log_hosts;

void log_begin(arfusionDebugLogger_t logger) {
  pthread_mutex_lock(&log_hosts_mutex);
  if (logger != NULL || log_hosts == 0) log_configure(logger, arfusionLogWarn);
  log_hosts++;
  pthread_mutex_unlock(&log_hosts_mutex);
}

void log_end(void) {
  pthread_mutex_lock(&log_hosts_mutex);
  if (--log_hosts == 0) log_configure(NULL, arfusionLogWarn);
  pthread_mutex_unlock(&log_hosts_mutex);
}

void log_set_level(arfusionLogLevel_t level) { atomic_store(&log_level, level); }

void log_set_device(int dev) { log_device = dev; }

static void log_write(const char* text, size_t bytes) {
  while (bytes > 0) {
    ssize_t written = write(STDERR_FILENO, text, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return;
    text += written;
    bytes -= (size_t)written;
  }
}

/* NCCL's two forms: only warnings say where they come from. */
static void log_print(arfusionLogLevel_t level, const char* file, int line, const char* text) {
  static const char* const names[] = {"NONE", "VERSION", "WARN", "INFO", "ABORT", "TRACE"};
  char host[256] = "";
  char out[LOG_TEXT_BYTES + 512];
  int length, start;

  if (gethostname(host, sizeof(host) - 1) != 0) strcpy(host, "?");
  host[strcspn(host, ".")] = '\0';
  if (level == arfusionLogWarn) {
    start = snprintf(out, sizeof(out), "%.128s:%d:%d [%d] %.128s:%d NCCL WARN ", host, (int)getpid(), (int)gettid(),
                     log_device, file, line);
  } else {
    start = snprintf(out, sizeof(out), "%.128s:%d:%d [%d] NCCL %s ", host, (int)getpid(), (int)gettid(), log_device,
                     names[level]);
  }
  length = start + snprintf(out + start, sizeof(out) - (size_t)start - 1, "%s", text);
  out[length] = '\n';
  log_write(out, (size_t)length + 1);
}

static int log_wanted(arfusionLogLevel_t level) {
  return level > arfusionLogNone && level <= arfusionLogTrace &&
         (atomic_load(&log_logger) != NULL || level <= atomic_load(&log_level));
}

static void log_emit(arfusionLogLevel_t level, unsigned long flags, const char* file, int line, const char* text) {
  arfusionDebugLogger_t logger = atomic_load(&log_logger);
  const char* slash = strrchr(file, '/');

  if (slash != NULL) file = slash + 1;
  if (logger != NULL) {
    logger(level, flags, file, line, "%s", text);
  } else {
    log_print(level, file, line, text);
  }
}

void log_line(arfusionLogLevel_t level, unsigned long flags, const char* file, int line, const char* fmt, ...) {
  char text[LOG_TEXT_BYTES] = LOG_MARK;
  const size_t mark = sizeof(LOG_MARK) - 1;
  int saved_errno = errno;
  va_list args;

  if (!log_wanted(level)) return;
  va_start(args, fmt);
  vsnprintf(text + mark, sizeof(text) - mark, fmt, args);
  va_end(args);
  text_one_line(text);
  log_emit(level, flags, file, line, text);
  errno = saved_errno;
}

void log_text(const char* text, size_t bytes) {
  if (atomic_load(&log_level) > arfusionLogNone) log_write(text, bytes);
}

arfusionResult_t error_set_at(const char* file, int line, arfusionResult_t result, const char* fmt, ...) {
  char text[ERROR_TEXT_BYTES]; /* the arguments may be the last error's own text */
  va_list args;

  va_start(args, fmt);
  vsnprintf(text, sizeof(text), fmt, args);
  va_end(args);
  text_one_line(text);
  memcpy(error_text, text, sizeof(text));
  log_line(arfusionLogWarn, ~0ul, file, line, "%s", text);
  return result;
}

arfusionResult_t error_keep(arfusionResult_t result, const char* text) {
  snprintf(error_text, sizeof(error_text), "%s", text);
  return result;
}

const char* error_last(void) { return error_text; }
