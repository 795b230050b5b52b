/* SPDX-License-Identifier: Apache-2.0
 *
 * net_state.h: what the net and the collective net of one process share. Thread-safe.
 */
#ifndef ARFUSION_NET_NET_STATE_H_
#define ARFUSION_NET_NET_STATE_H_

#include "plugin/net/endpoint.h"
#include "plugin/net/interface.h"

#define NET_PLUGIN_NAME "arfusion" /* what NCCL_NET is compared with, as NCCL does: in any case */

struct net_state {
  int ndev; /* 0: declined */
  struct interface device[INTERFACE_MOST];
  struct endpoint_options options;
};

/* A host begins: takes its logger and, the first time, reads the settings and looks for interfaces. NULL: declined,
 * because NCCL_NET names another network, a setting is not valid, or there is no interface; why has been logged once,
 * and there is nothing to end. What it returns stays as it is until the process ends. */
const struct net_state* net_state_begin(arfusionDebugLogger_t logger);
void net_state_end(void);

/* Without beginning: ndev is 0 before. */
const struct net_state* net_state_get(void);

#endif
