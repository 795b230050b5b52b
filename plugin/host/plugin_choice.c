/* SPDX-License-Identifier: Apache-2.0
 *
 * plugin_choice.c: see plugin_choice.h.
 */
#include "plugin/host/plugin_choice.h"

#include <stdio.h>

#include "plugin/core/log.h"
#include "plugin/core/settings.h"

/* The caller says what is wrong. */
static void log_drop(arfusionLogLevel_t level, unsigned long flags, const char* file, int line, const char* fmt, ...) {
  (void)level, (void)flags, (void)file, (void)line, (void)fmt;
}

int plugin_choice_read(struct plugin_choice* choice, char* error, size_t error_bytes) {
  struct settings settings;
  log_configure(log_drop, arfusionLogNone);
  if (settings_load_silently(&settings) != arfusionSuccess) {
    snprintf(error, error_bytes, "%s", error_last());
    return -1;
  }
  snprintf(choice->name, sizeof(choice->name), "%s", settings.text[SETTING_PLUGIN]);
  choice->debug_is_set = !setting_is_default(&settings, SETTING_DEBUG);
  return 0;
}
