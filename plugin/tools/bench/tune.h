/* SPDX-License-Identifier: Apache-2.0
 *
 * tune.h: from measured times to a routing table, and the table as the file that the plugin reads
 * (plugin/core/tuning.h).
 */
#ifndef ARFUSION_BENCH_TUNE_H_
#define ARFUSION_BENCH_TUNE_H_

#include <stdio.h>

#include "plugin/core/tuning.h"

/* The times of requests of one size. */
struct tune_point {
  int64_t bytes;
  double us[ARFUSION_NUM_ALGORITHMS]; /* by arfusionAlgorithm_t; 0: not measured */
  double alternative_us;              /* NCCL and the epilogue; 0: not measured */
};

/* Chooses from `count` points of rising size. Noise does not make a table: an algorithm is left for another one only if
 * that holds for two sizes and more and saves, summed over them, a tenth of a size's time. The alternative counts as
 * faster from the size from which on it takes a twentieth less than what is chosen, at two sizes or more up to the
 * largest. An algorithm must have been measured at every size. 0, or -1 if there is none. */
int tune_choose(const struct tune_point* points, int count, struct route_table* table);

/* Writes the file's lines. `gpu` is NULL on the host device. */
void tune_write(FILE* file, const char* arch, const char* gpu, int nranks, const struct route_table* table);

#endif
