/* SPDX-License-Identifier: Apache-2.0
 *
 * odd.h: which GPU is not like the others, for the doctor to name and the picture to colour.
 */
#ifndef ARFUSION_TOPO_ODD_H_
#define ARFUSION_TOPO_ODD_H_

#include <stddef.h>

#include "topo/topo.h"

enum {
  ODD_LINK_COUNT = 1,   /* links that are not active, or another number of active ones than most have */
  ODD_LINK_TARGETS = 2, /* a set of switches that no other GPU has, while others agree on theirs */
  ODD_LINK_LOST = 4     /* links that end at a GPU or device that is not there */
};

/* For each GPU the sum of what is odd about it; to be freed. NULL: out of memory. *usual (may be NULL): the number of
 * active NVLinks that most GPUs have, or 0 if none is known. */
unsigned char* odd_find(const struct topo* topo, int* usual);

/* Appends "4 to 0000:c3:00.0, 14 to GPU3". */
void odd_targets_text(const struct topo* topo, int gpu, char* text, size_t bytes);

#endif
