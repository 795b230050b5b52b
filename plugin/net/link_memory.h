/* SPDX-License-Identifier: Apache-2.0
 *
 * link_memory.h: the shared memory of a link, and the rings in it: two for the control stream, one for each lane.
 */
#ifndef ARFUSION_NET_LINK_MEMORY_H_
#define ARFUSION_NET_LINK_MEMORY_H_

#include "plugin/net/link.h"

/* Adds the rings to a stream whose socket is set. */
void link_memory_control(const struct link_memory* memory, int sending, struct stream* stream);
void link_memory_lane(const struct link_memory* memory, int lane, int sending, struct stream* stream);

#endif
