/* SPDX-License-Identifier: Apache-2.0
 *
 * net_state.c: see net_state.h.
 */
#include "plugin/net/net_state.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "plugin/core/log.h"
#include "plugin/core/settings.h"
#include "plugin/net/linger.h"
#include "plugin/net/nccl_net.h"

#define LANES_LEAST 2
#define LANES_MOST 4
#define PROCESSORS_PER_LANE 4 /* several ranks of a host have several connections each */

static pthread_mutex_t state_mutex = PTHREAD_MUTEX_INITIALIZER;
static int state_read, state_hosts;
static struct net_state state;

static int lanes_choose(void) {
  cpu_set_t processors;
  int lanes = LANES_LEAST;

  if (sched_getaffinity(0, sizeof(processors), &processors) == 0) lanes = CPU_COUNT(&processors) / PROCESSORS_PER_LANE;
  return lanes < LANES_LEAST ? LANES_LEAST : lanes > LANES_MOST ? LANES_MOST : lanes;
}

static void devices_log(void) {
  char line[INTERFACE_MOST * (IF_NAMESIZE + INTERFACE_TEXT_BYTES + 8)] = "", text[INTERFACE_TEXT_BYTES];
  size_t length = 0;

  for (int i = 0; i < state.ndev; i++) {
    interface_address_text(&state.device[i].address, text);
    *strrchr(text, ':') = '\0'; /* no port yet */
    length += (size_t)snprintf(line + length, sizeof(line) - length, " [%d]%s:%s", i, state.device[i].name, text);
  }
  LOG_INFO(ARFUSION_LOG_INIT | NCCL_LOG_NET, "NET/arfusion: using%s, %d lanes a connection", line,
           state.options.nlanes);
}

/* NCCL sets the variables of its configuration files before it opens plugins; settings_load reads these files as
 * well. */
static void state_decide(void) {
  struct settings settings;
  const char* names = settings.text[SETTING_SOCKET_IFNAME];
  int found;

  if (settings_load(&settings) != arfusionSuccess) {
    LOG_WARN("NET/arfusion: declined, because a setting is not valid (above)");
    return;
  }
  if (strcasecmp(settings.text[SETTING_NET], NET_PLUGIN_NAME) != 0) {
    LOG_INFO(ARFUSION_LOG_INIT | NCCL_LOG_NET, "NET/arfusion: declined, as NCCL_NET is not " NET_PLUGIN_NAME);
    return;
  }
  found = interface_find(names, settings.text[SETTING_SOCKET_FAMILY], state.device);
  if (found <= 0) {
    LOG_WARN("NET/arfusion: declined: %s (NCCL_SOCKET_IFNAME=%s NCCL_SOCKET_FAMILY=%s)",
             found < 0 ? strerror(-found) : "no running network interface", names,
             settings.text[SETTING_SOCKET_FAMILY]);
    return;
  }
  state.options.nlanes = lanes_choose();
  state.options.shared = settings.value[SETTING_NET_TRANSPORT] != NET_TRANSPORT_TCP;
  state.options.timeout_s = settings.value[SETTING_INIT_TIMEOUT];
  state.ndev = found;
  devices_log();
}

const struct net_state* net_state_begin(arfusionDebugLogger_t logger) {
  log_begin(logger);
  pthread_mutex_lock(&state_mutex);
  if (!state_read) state_decide();
  state_read = 1;
  if (state.ndev > 0) state_hosts++;
  pthread_mutex_unlock(&state_mutex);
  if (state.ndev > 0) return &state;
  log_end();
  return NULL;
}

void net_state_end(void) {
  linger_end(); /* the process may end next, and the plugin may be unloaded */
  pthread_mutex_lock(&state_mutex);
  if (--state_hosts == 0) endpoint_connects_end();
  pthread_mutex_unlock(&state_mutex);
  log_end();
}

const struct net_state* net_state_get(void) { return &state; }
