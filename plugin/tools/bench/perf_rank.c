/* SPDX-License-Identifier: Apache-2.0
 *
 * perf_rank.c: one rank's part of `perf`; see perf.h.
 */
#include <stdio.h>

#include "plugin/tools/bench/bench.h"
#include "plugin/tools/bench/perf.h"

#define ROUNDS 20
#define EAGER_CALLS 200
#define EAGER_DEPTH 10 /* launches that may be outstanding: fewer than fill the launch queue */

/* Which of NCCL's paths there are. */
static void send_start(const struct paths* paths) {
  struct team_rank* team = paths->rank.team;
  const struct unfused* unfused = &paths->unfused;
  struct perf_message message = {.kind = PERF_START};
#if ARFUSION_HAVE_CUDA
  if (unfused->nccl != NULL) message.nccl_version = nccl_version(unfused->nccl);
#endif
  snprintf(message.no_nccl, sizeof(message.no_nccl), "%s", unfused->why);
  snprintf(message.no_windows, sizeof(message.no_windows), "%s", unfused->no_window_why);
  if (team->rank == 0) team_send(team, &message, sizeof(message));
}

static int run_size(struct paths* paths, const struct perf_plan* plan, int64_t tokens, int64_t hidden) {
  struct team_rank* team = paths->rank.team;
  struct perf_message message = {.kind = PERF_SIZE, .tokens = tokens, .hidden = hidden};
  if (paths_measure(paths, tokens, hidden, plan->forms, plan->nforms, ROUNDS, message.results) != 0) return -1;
  if (team->rank == 0) team_send(team, &message, sizeof(message));
  return 0;
}

/* What the calling thread spends on one eager enqueue, beside a bare launch in the same loop. */
static int run_host_time(struct paths* paths, int64_t tokens, int64_t hidden) {
  struct bench_rank* rank = &paths->rank;
  struct perf_message message = {.kind = PERF_HOST_TIME};
  struct path_form form = {.path = arfusionAlgoAuto, .launch = BENCH_LAUNCH_EAGER}, dependent_form = form;
  struct path path, dependent;
  double enqueue_us[EAGER_CALLS], dependent_us[EAGER_CALLS], bare_us[EAGER_CALLS];
  dependent_form.pdl = 1;
  if (rank->device->bare_launch == NULL || !path_prepare(paths, &form, tokens, hidden, &path) ||
      !path_prepare(paths, &dependent_form, tokens, hidden, &dependent)) {
    return 0;
  }
  for (int i = 0; i < EAGER_CALLS; i++) {
    double start = bench_now_us();
    int failed = path_enqueue(&path);
    enqueue_us[i] = bench_now_us() - start;
    start = bench_now_us();
    failed = failed || path_enqueue(&dependent);
    dependent_us[i] = bench_now_us() - start;
    failed = failed || rank->device->bare_launch(rank->device, &bare_us[i]) != 0;
    if (!failed && i % EAGER_DEPTH == EAGER_DEPTH - 1) failed = rank->device->synchronize(rank->device);
    if (failed) return team_fail(rank->team, "%s", bench_device_error());
  }
  message.enqueue_us = measure_summarize(enqueue_us, EAGER_CALLS).median;
  message.dependent_us = measure_summarize(dependent_us, EAGER_CALLS).median;
  message.bare_launch_us = measure_summarize(bare_us, EAGER_CALLS).median;
  if (rank->team->rank == 0) team_send(rank->team, &message, sizeof(message));
  return 0;
}

static int64_t largest(const int64_t* values, int count) {
  int64_t max = values[0];
  for (int i = 1; i < count; i++) {
    if (values[i] > max) max = values[i];
  }
  return max;
}

int perf_run_rank(struct team_rank* self, void* arg) {
  const struct perf_plan* plan = arg;
  struct paths paths;
  int failed = paths_open(self, plan->session, plan->dtype, plan->quantization, largest(plan->tokens, plan->ntokens),
                          largest(plan->hidden, plan->nhidden), &paths);
  if (!failed) send_start(&paths);
  for (int h = 0; h < plan->nhidden && !failed; h++) {
    for (int t = 0; t < plan->ntokens && !failed; t++) {
      failed = run_size(&paths, plan, plan->tokens[t], plan->hidden[h]);
    }
  }
  if (!failed) failed = run_host_time(&paths, plan->tokens[0], plan->hidden[0]);
  if (!failed) team_barrier(self);
  return paths_close(&paths) != 0 || failed ? -1 : 0;
}
