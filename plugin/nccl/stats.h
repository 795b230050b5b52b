/* SPDX-License-Identifier: Apache-2.0
 *
 * stats.h: what became of the process's ncclAllReduce calls. With ARFUSION_STATS=1 the sums go to stderr when it ends:
 *
 *   ARFUSION_STATS host:pid: 1640 ncclAllReduce, 1600 taken, 40 left to NCCL
 *   ARFUSION_STATS host:pid: taken, up to 8192 bytes: 1600
 *   ARFUSION_STATS host:pid: left to NCCL, the data type is not supported: 40
 */
#ifndef ARFUSION_NCCL_STATS_H_
#define ARFUSION_NCCL_STATS_H_

#include <stddef.h>

#include "arfusion_plugin.h"

/* Why a call was left to NCCL: an arfusionReason_t, or one of these. */
enum stats_reason {
  STATS_IN_COMPANY = ARFUSION_NUM_REASONS, /* another collective of its communicator in its group */
  STATS_NO_PLUGIN,                         /* its communicator was set up without the plugin */
  STATS_NOT_SERVED,                        /* a communicator that was not set up here, or has ended */
  STATS_NOTHING_TO_DO,                     /* count 0 */
  /* NCCL's to refuse: a buffer or the communicator is NULL, or too large a count */
  STATS_INVALID,
  STATS_REASONS
};

/* From any thread. */
void stats_taken(size_t bytes);
void stats_left(int reason);

/* From now on sums are printed when the process ends. */
void stats_enable(void);

#endif
