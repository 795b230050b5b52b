/* SPDX-License-Identifier: Apache-2.0
 *
 * library.c: finds and starts the plugin, once a process.
 */
#include "plugin/host/library.h"

#include <pthread.h>

#include "plugin/core/log.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct library the_library;
static struct plugin_library opened;

static arfusionResult_t start(void) {
  char text[2048];
  struct library fresh = {0};
  log_configure(NULL, arfusionLogWarn);
  FORWARD_IF_ERROR(settings_load_silently(&fresh.settings));
  const enum plugin_load_result loaded = plugin_load(fresh.settings.text[SETTING_PLUGIN], &opened, text, sizeof text);
  if (loaded != PLUGIN_LOAD_OK) {
    FORWARD_IF_ERROR(settings_load(&fresh.settings)); /* there is no plugin to say the lines */
    return error_set(loaded == PLUGIN_LOAD_OFF ? arfusionInvalidUsage : arfusionSystemError, "%s", text);
  }
  fresh.plugin = &opened.table;
  arfusionResult_t result = fresh.plugin->init(&fresh.ctx, NULL);
  if (result == arfusionSuccess) {
    arfusionProperties_t properties = {.size = sizeof properties};
    result = fresh.plugin->getProperties(fresh.ctx, 0, &properties);
    fresh.is_host = properties.isHost;
    if (result != arfusionSuccess) fresh.plugin->finalize(fresh.ctx);
  }
  if (result != arfusionSuccess) {
    library_forward(&fresh, result);
    plugin_unload(&opened);
    return result;
  }
  the_library = fresh;
  return arfusionSuccess;
}

arfusionResult_t library_get(const struct library** out) {
  pthread_mutex_lock(&mutex);
  const arfusionResult_t result = the_library.plugin ? arfusionSuccess : start();
  pthread_mutex_unlock(&mutex);
  if (result == arfusionSuccess) *out = &the_library;
  return result;
}

arfusionResult_t library_forward(const struct library* library, arfusionResult_t result) {
  return error_keep(result, library->plugin->getLastError());
}
