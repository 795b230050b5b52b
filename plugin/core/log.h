/* SPDX-License-Identifier: Apache-2.0
 *
 * log.h: log lines in NCCL's format through the logger handed to init, and the calling thread's last error.
 *
 * The first function that knows of an error records it with error_set, which also logs it; callers only pass the code
 * on.
 */
#ifndef ARFUSION_CORE_LOG_H_
#define ARFUSION_CORE_LOG_H_

#include <stdarg.h>

#include "arfusion_plugin.h"

/* A host begins and ends with the library. The process has one logger: that of the last host that brought one (`logger`
 * is not NULL), until the last host has ended. */
void log_begin(arfusionDebugLogger_t logger);
void log_end(void);

/* The logger of the process; NULL: lines `host:pid:tid [dev] NCCL INFO ARFUSION/...` on stderr, up to `level`. */
void log_configure(arfusionDebugLogger_t logger, arfusionLogLevel_t level);

/* The level alone. At first it is arfusionLogWarn; settings_load sets it from ARFUSION_DEBUG. */
void log_set_level(arfusionLogLevel_t level);

/* The device number that the built-in logger prints for this thread; -1 at first. */
void log_set_device(int dev);

void log_line(arfusionLogLevel_t level, unsigned long flags, const char* file, int line, const char* fmt, ...)
    __attribute__((format(printf, 5, 6)));

#define LOG_WARN(...) log_line(arfusionLogWarn, ~0ul, __FILE__, __LINE__, __VA_ARGS__)
#define LOG_INFO(flags, ...) log_line(arfusionLogInfo, flags, __FILE__, __LINE__, __VA_ARGS__)

/* Text that is no log line, as it is, on stderr in one write; nothing if ARFUSION_DEBUG is none. */
void log_text(const char* text, size_t bytes);

/* Records the text as this thread's last error, logs it as a warning, returns `result`. */
arfusionResult_t error_set_at(const char* file, int line, arfusionResult_t result, const char* fmt, ...)
    __attribute__((format(printf, 4, 5)));
#define error_set(result, ...) error_set_at(__FILE__, __LINE__, result, __VA_ARGS__)

/* Records a text that another library has logged already. */
arfusionResult_t error_keep(arfusionResult_t result, const char* text);

const char* error_last(void);

/* Evaluates to a result; returns it from the calling function if it is not success. */
#define FORWARD_IF_ERROR(call)                        \
  do {                                                \
    arfusionResult_t forward_result_ = (call);        \
    if (forward_result_ != arfusionSuccess) return forward_result_; \
  } while (0)

#endif
