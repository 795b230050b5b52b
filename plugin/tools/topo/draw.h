/* SPDX-License-Identifier: Apache-2.0
 *
 * draw.h: the machine as a picture: CPUs and what hangs below them over PCIe at the top, NVSwitches at the bottom,
 * GPUs between; lines as thick as they have links; what is odd in red.
 */
#ifndef ARFUSION_TOPO_DRAW_H_
#define ARFUSION_TOPO_DRAW_H_

#include <stdio.h>

#include "plugin/tools/topo/decide.h"

/* Writes it in graphviz's language. 0, or -1 when memory runs out. */
int draw_dot(const struct topo* topo, const struct decision* decision, FILE* out);

#endif
