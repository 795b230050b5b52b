/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_logger.h: a logger that says nothing, so that what is logged about bad input costs no time.
 */
#ifndef ARFUSION_TEST_FUZZ_LOGGER_H_
#define ARFUSION_TEST_FUZZ_LOGGER_H_

#include "arfusion_plugin.h"

static inline void no_logger(arfusionLogLevel_t level, unsigned long flags, const char* file, int line,
                             const char* fmt, ...) {
  (void)level;
  (void)flags;
  (void)file;
  (void)line;
  (void)fmt;
}

#endif
