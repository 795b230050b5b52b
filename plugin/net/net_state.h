/* SPDX-License-Identifier: Apache-2.0
 *
 * net_state.h: what the net and the collective net of one process share. Thread-safe.
 */
#ifndef ARFUSION_NET_NET_STATE_H_
#define ARFUSION_NET_NET_STATE_H_

#include "plugin/core/settings.h"

#define NET_PLUGIN_NAME "arfusion" /* what NCCL_NET is compared with, as NCCL does: in any case */

/* A host begins: takes its logger and, the first time, reads the settings. Returns whether the host wants this network; if
 * not (NCCL_NET names another, a setting is not valid), it has been logged once, and there is nothing to end. */
int net_state_begin(arfusionDebugLogger_t logger);
void net_state_end(void);

/* Between the two. */
const struct settings* net_state_settings(void);

#endif
