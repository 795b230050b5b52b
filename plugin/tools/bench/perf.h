/* SPDX-License-Identifier: Apache-2.0
 *
 * perf.h: times of every path through the fused operation, size by size.
 */
#ifndef ARFUSION_BENCH_PERF_H_
#define ARFUSION_BENCH_PERF_H_

#include "plugin/tools/bench/paths.h"

#define PERF_MAX_SIZES 64 /* of tokens, and of hidden */

struct perf_plan {
  const char* device; /* "host", "cuda" or NULL, for bench_session_open */
  const struct bench_session* session;
  int nranks;
  arfusionDataType_t dtype;
  arfusionQuant_t quantization;
  int64_t tokens[PERF_MAX_SIZES], hidden[PERF_MAX_SIZES];
  int ntokens, nhidden;
  struct path_form forms[PATH_MAX_FORMS];
  int nforms;
};

/* Options 'd', 't', 'H', 'T' and 'n' (device, tokens, hidden, dtype, ranks), for an argp parser: 0, or ARGP_ERR_UNKNOWN
 * for another key. A value that is wrong ends the program as argp_error does. */
struct argp_state;
int perf_plan_parse(struct perf_plan* plan, int key, const char* text, struct argp_state* state);

/* Whether rows of this size can be done. */
int perf_plan_takes(const struct perf_plan* plan, int64_t hidden);

/* Whether it can be run: 0, or -1 after one line about why not. */
int perf_plan_check(const struct perf_plan* plan);

enum perf_message_kind { PERF_START, PERF_SIZE, PERF_HOST_TIME };

/* What rank 0 sends. */
struct perf_message {
  enum perf_message_kind kind;
  /* PERF_START: NCCL's version, or 0; why there is no path nccl or nccl_symmetric, or "". */
  int nccl_version;
  char no_nccl[256], no_windows[256];
  /* PERF_SIZE: the plan's forms. */
  int64_t tokens, hidden;
  struct path_result results[PATH_MAX_FORMS];
  /* PERF_HOST_TIME: medians of the calling thread, in µs: enqueueing the first size, the same with dependent launch,
   * launching an empty kernel. */
  double enqueue_us, dependent_us, bare_launch_us;
};

/* A rank's whole life; `arg` is a struct perf_plan. For team_run. */
int perf_run_rank(struct team_rank* self, void* arg);

#endif
