/* SPDX-License-Identifier: Apache-2.0
 *
 * perf_rank.c: one rank's part of `perf`; see perf.h. On a GPU a sample is a graph of 20 launches, on the host as many
 * calls as take some milliseconds.
 */
#include <string.h>

#include "plugin/tools/bench/bench.h"
#include "plugin/tools/bench/generator.h"
#include "plugin/tools/bench/perf.h"
#include "plugin/tools/bench/unfused.h"

#define EPS 1e-5f
#define ROUNDS 20
#define HOST_MIN_ROUNDS 5
#define HOST_BUDGET_US 5e6 /* of a size */
#define GRAPH_LAUNCHES 20
#define HOST_BATCH_US 3e3
#define HOST_MAX_CALLS 1000
#define EAGER_CALLS 200
#define EAGER_DEPTH 10 /* launches that may be outstanding: fewer than fill the launch queue */

struct prober {
  struct bench_rank rank;
  struct unfused unfused;
  struct bench_buffer input, residual, gamma, norm;
  arfusionRequest_t request;
};

/* One path of one size: the argument of enqueue_path. */
struct path {
  struct prober* prober;
  int number; /* an arfusionAlgorithm_t or PERF_UNFUSED */
  arfusionRequest_t request;
};

static int enqueue_path(void* arg) {
  struct path* path = arg;
  struct bench_rank* rank = &path->prober->rank;
  arfusionRoute_t route = {.size = sizeof(route)};
  if (path->number == PERF_UNFUSED) return unfused_enqueue(&path->prober->unfused, &path->request);
  if (rank->plugin->enqueue(rank->comm, &path->request, rank->device->stream, &route) != arfusionSuccess) {
    return bench_device_fail("enqueue: %s", rank->plugin->getLastError());
  }
  if (route.algorithm == arfusionAlgoNone) {
    return bench_device_fail("enqueue turned down what route took: %s", rank->plugin->reasonString(route.reason));
  }
  return 0;
}

/* Whether there is such a path for the size; *chosen: the algorithm that it takes. */
static int path_exists(struct path* path, arfusionAlgorithm_t* chosen) {
  struct bench_rank* rank = &path->prober->rank;
  arfusionRoute_t route = {.size = sizeof(route)};
  *chosen = arfusionAlgoNone;
  if (path->number == PERF_UNFUSED) return path->prober->unfused.available;
  if (path->number == arfusionAlgoNone || path->number == arfusionAlgoEmpty) return 0;
  path->request.algorithmHint = (arfusionAlgorithm_t)path->number;
  if (rank->plugin->route(rank->comm, &path->request, &route) != arfusionSuccess) return 0;
  *chosen = route.algorithm;
  return route.algorithm != arfusionAlgoNone;
}

/* A batch as long as this device needs it for a steady sample. */
static int path_record(struct path* path, struct measure_item* item) {
  struct bench_rank* rank = &path->prober->rank;
  double elapsed;
  int count = GRAPH_LAUNCHES;
  if (rank->device->kind == BENCH_DEVICE_HOST) {
    if (measure_record(rank, enqueue_path, path, 1, item, &elapsed) != 0) return -1;
    rank->device->discard(rank->device, item->batch);
    count = measure_fitting(elapsed, HOST_BATCH_US, 1, HOST_MAX_CALLS);
  }
  return measure_record(rank, enqueue_path, path, count, item, &elapsed);
}

static void set_size(struct prober* prober, int64_t tokens, int64_t hidden) {
  prober->request.tokens = tokens;
  prober->request.hidden = hidden;
}

static int run_size(struct prober* prober, int64_t tokens, int64_t hidden) {
  struct bench_rank* rank = &prober->rank;
  struct perf_message message = {.kind = PERF_SIZE, .tokens = tokens, .hidden = hidden};
  struct path paths[PERF_PATHS];
  struct measure_item items[PERF_PATHS];
  int numbers[PERF_PATHS], count = 0, failed = 0;
  set_size(prober, tokens, hidden);
  for (int i = 0; i < PERF_PATHS && !failed; i++) {
    arfusionAlgorithm_t chosen;
    paths[i] = (struct path){.prober = prober, .number = i, .request = prober->request};
    int exists = path_exists(&paths[i], &chosen);
    if (i == arfusionAlgoAuto) message.chosen = chosen;
    if (!exists) continue;
    failed = path_record(&paths[i], &items[count]);
    if (!failed) numbers[count++] = i;
  }
  int rounds = 0;
  if (!failed && rank->device->kind == BENCH_DEVICE_HOST) {
    rounds = measure_run(rank, items, count, ROUNDS, HOST_MIN_ROUNDS, HOST_BUDGET_US);
  } else if (!failed) {
    rounds = measure_run(rank, items, count, ROUNDS, ROUNDS, 0);
  }
  for (int i = 0; i < count; i++) {
    rank->device->discard(rank->device, items[i].batch);
    if (rounds > 0) message.paths[numbers[i]] = measure_summarize(items[i].samples, rounds);
  }
  if (failed || rounds < 0) return -1;
  if (rank->team->rank == 0) team_send(rank->team, &message, sizeof(message));
  return 0;
}

/* What the calling thread spends on one eager enqueue, beside a bare launch in the same loop. */
static int run_host_time(struct prober* prober, int64_t tokens, int64_t hidden) {
  struct bench_rank* rank = &prober->rank;
  struct perf_message message = {.kind = PERF_HOST_TIME};
  struct path path = {.prober = prober, .number = arfusionAlgoAuto};
  struct path dependent;
  double enqueue_us[EAGER_CALLS], dependent_us[EAGER_CALLS], bare_us[EAGER_CALLS];
  arfusionAlgorithm_t chosen;
  set_size(prober, tokens, hidden);
  path.request = prober->request;
  dependent = path;
  path.request.flags = 0;
  if (rank->device->bare_launch == NULL || !path_exists(&path, &chosen)) return 0;
  for (int i = 0; i < EAGER_CALLS; i++) {
    double start = bench_now_us();
    int failed = enqueue_path(&path);
    enqueue_us[i] = bench_now_us() - start;
    start = bench_now_us();
    failed = failed || enqueue_path(&dependent);
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

/* ---------------------------------------------------------------- a rank's life */

static int prober_prepare(struct prober* prober, const struct perf_plan* plan, int64_t max_tokens, int64_t max_hidden) {
  struct bench_device* device = prober->rank.device;
  size_t element = bench_dtype_bytes(plan->dtype);
  int64_t count = max_tokens * max_hidden;
  int failed = device->alloc(device, &prober->input, (size_t)count * element) ||
               device->alloc(device, &prober->residual, (size_t)count * element) ||
               device->alloc(device, &prober->norm, (size_t)count * element) ||
               device->alloc(device, &prober->gamma, (size_t)max_hidden * element);
  if (failed) return team_fail(prober->rank.team, "%s", bench_device_error());
  generator_fill(prober->input.image, plan->dtype, count, 1, GENERATOR_INPUT, prober->rank.team->rank,
                 GENERATOR_UNIFORM);
  generator_fill(prober->residual.image, plan->dtype, count, 1, GENERATOR_RESIDUAL, 0, GENERATOR_UNIFORM);
  generator_fill(prober->gamma.image, plan->dtype, max_hidden, 1, GENERATOR_GAMMA, 0, GENERATOR_UNIFORM);
  memset(prober->norm.image, 0, prober->norm.bytes);
  failed = device->upload(device, &prober->input, prober->input.bytes) ||
           device->upload(device, &prober->residual, prober->residual.bytes) ||
           device->upload(device, &prober->norm, prober->norm.bytes) ||
           device->upload(device, &prober->gamma, prober->gamma.bytes);
  if (failed) return team_fail(prober->rank.team, "%s", bench_device_error());
  prober->request = bench_request();
  prober->request.pattern = arfusionPatternResidualRmsNorm;
  prober->request.operation = arfusionSum;
  prober->request.dataType = plan->dtype;
  prober->request.gammaDataType = plan->dtype;
  prober->request.flags = ARFUSION_FLAG_DEPENDENT_LAUNCH;
  prober->request.eps = EPS;
  prober->request.input = prober->input.data;
  prober->request.residualIn = prober->residual.data;
  prober->request.gamma = prober->gamma.data;
  prober->request.residualOut = prober->residual.data;
  prober->request.normOut = prober->norm.data;
  return 0;
}

static void prober_free(struct prober* prober) {
  struct bench_device* device = prober->rank.device;
  struct bench_buffer* buffers[] = {&prober->input, &prober->residual, &prober->norm, &prober->gamma};
  for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++) {
    if (buffers[i]->data != NULL) device->release(device, buffers[i]);
  }
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
  struct prober prober = {0};
  arfusionConfig_t config = {.size = sizeof(config),
                             .maxTokens = largest(plan->tokens, plan->ntokens),
                             .hidden = largest(plan->hidden, plan->nhidden),
                             .dataType = plan->dtype};
  int failed = bench_rank_open(self, plan->session, &config, &prober.rank);
  if (!failed) failed = unfused_open(&prober.rank, &prober.unfused);
  if (!failed) failed = prober_prepare(&prober, plan, config.maxTokens, config.hidden);
  if (!failed) team_barrier(self);
  for (int h = 0; h < plan->nhidden && !failed; h++) {
    for (int t = 0; t < plan->ntokens && !failed; t++) failed = run_size(&prober, plan->tokens[t], plan->hidden[h]);
  }
  if (!failed) failed = run_host_time(&prober, plan->tokens[0], plan->hidden[0]);
  if (!failed) team_barrier(self);
  if (prober.rank.device != NULL) prober_free(&prober);
  unfused_close(&prober.unfused);
  return bench_rank_close(&prober.rank) != 0 || failed ? -1 : 0;
}
