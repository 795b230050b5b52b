/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_settings.c: configuration files (nccl.conf) under libFuzzer, read as init reads them: an error that says what
 * is wrong, or settings each of which has a value that it may have.
 */
#include <string.h>

#include "plugin/core/log.h"
#include "plugin/core/settings.h"
#include "test/fuzz/fuzz_file.h"
#include "test/fuzz/fuzz_logger.h"

static void check_setting(const struct settings* settings, enum setting_id id) {
  const struct setting_info* info = setting_info(id);
  char allowed[512];
  if (!settings->source[id]) abort();
  const int is_string = info->kind == SETTING_KIND_STRING;
  if (!is_string && setting_check(info->name, settings->text[id], allowed, sizeof allowed)) abort();
  if (info->kind != SETTING_KIND_INTEGER && info->kind != SETTING_KIND_BYTES) return;
  if (settings->value[id] < info->min || settings->value[id] > info->max) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  struct settings settings;
  log_configure(no_logger, arfusionLogNone);
  setenv("NCCL_CONF_FILE", fuzz_file(data, bytes), 1);
  if (settings_load(&settings) != arfusionSuccess) {
    if (!error_last()[0] || strchr(error_last(), '\n')) abort();
    return 0;
  }
  for (int id = 0; id < SETTING_COUNT; ++id) check_setting(&settings, id);
  return 0;
}
