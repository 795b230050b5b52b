/* SPDX-License-Identifier: Apache-2.0
 *
 * perf.h: times of every path through the fused operation, size by size.
 */
#ifndef ARFUSION_BENCH_PERF_H_
#define ARFUSION_BENCH_PERF_H_

#include "plugin/tools/bench/measure.h"

#define PERF_MAX_SIZES 64 /* of tokens, and of hidden */

struct perf_plan {
  const struct bench_session* session;
  int nranks;
  arfusionDataType_t dtype;
  int64_t tokens[PERF_MAX_SIZES], hidden[PERF_MAX_SIZES];
  int ntokens, nhidden;
};

/* The routes that can be asked for, by their arfusionAlgorithm_t, and the unfused path. */
#define PERF_UNFUSED ARFUSION_NUM_ALGORITHMS
#define PERF_PATHS (ARFUSION_NUM_ALGORITHMS + 1)

enum perf_message_kind { PERF_SIZE, PERF_HOST_TIME };

/* What rank 0 sends. */
struct perf_message {
  enum perf_message_kind kind;
  /* PERF_SIZE: a path that is not there has median 0. */
  int64_t tokens, hidden;
  arfusionAlgorithm_t chosen; /* what auto is */
  struct measure_summary paths[PERF_PATHS];
  /* PERF_HOST_TIME: medians of the calling thread, in µs: enqueueing the first size, the same with dependent launch,
   * launching an empty kernel. */
  double enqueue_us, dependent_us, bare_launch_us;
};

/* A rank's whole life; `arg` is a struct perf_plan. For team_run. */
int perf_run_rank(struct team_rank* self, void* arg);

#endif
