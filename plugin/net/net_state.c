/* SPDX-License-Identifier: Apache-2.0
 *
 * net_state.c: see net_state.h.
 */
#include "plugin/net/net_state.h"

#include <pthread.h>
#include <strings.h>

#include "plugin/core/log.h"
#include "plugin/net/nccl_net.h"

static pthread_mutex_t state_mutex = PTHREAD_MUTEX_INITIALIZER;
static int state_read, state_wanted;
static struct settings state_settings;

/* NCCL sets the variables of its configuration files before it opens plugins; settings_load reads these files as well. */
static int state_decide(void) {
  if (settings_load(&state_settings) != arfusionSuccess) {
    LOG_WARN("NET/arfusion: declined, because a setting is not valid (above)");
    return 0;
  }
  if (strcasecmp(state_settings.text[SETTING_NET], NET_PLUGIN_NAME) != 0) {
    LOG_INFO(ARFUSION_LOG_INIT | NCCL_LOG_NET, "NET/arfusion: declined, as NCCL_NET is not " NET_PLUGIN_NAME);
    return 0;
  }
  return 1;
}

int net_state_begin(arfusionDebugLogger_t logger) {
  int wanted;

  log_begin(logger);
  pthread_mutex_lock(&state_mutex);
  if (!state_read) state_wanted = state_decide();
  state_read = 1;
  wanted = state_wanted;
  pthread_mutex_unlock(&state_mutex);
  if (!wanted) log_end();
  return wanted;
}

void net_state_end(void) { log_end(); }

const struct settings* net_state_settings(void) { return &state_settings; }
