/* SPDX-License-Identifier: Apache-2.0
 *
 * demo_rank.c: one rank's part of the demo. A step of a model is two fused allreduces a layer, one after the other, the
 * residual updated in place from the first to the last. Bits are compared with the reference's after the last one: the
 * residual, into which every operation has gone, and the norms of the last layer.
 */
#include <stdlib.h>
#include <string.h>

#include "plugin/tools/bench/bench.h"
#include "plugin/tools/bench/demo.h"
#include "plugin/tools/bench/generator.h"
#include "plugin/tools/bench/measure.h"
#include "plugin/tools/bench/reference.h"
#include "plugin/tools/bench/unfused.h"

#define DTYPE arfusionBfloat16
#define EPS 1e-5f
#define GRAPH_REPLAYS 20
/* On the host, which is slower by orders: how long the step whose bits are compared may take, how long a sample, and
 * how long all samples of a row. They do as many layers as fit, at least one. */
#define HOST_CHECK_US 300e3
#define HOST_BATCH_US 20e3
#define HOST_BUDGET_US 500e3
#define HOST_MIN_ROUNDS 3

/* One row's tensors and requests: [0] after attention, [1] after the MLP. */
struct step {
  struct bench_rank* rank;
  struct unfused* unfused;
  const struct demo_row* row;
  int number; /* of the row: the seed of its inputs */
  int layers; /* that one call of an enqueue function does */
  int turned_down;
  arfusionRequest_t requests[DEMO_PER_LAYER];
  struct bench_buffer inputs[DEMO_PER_LAYER], gammas[DEMO_PER_LAYER], norms[DEMO_PER_LAYER], residual;
};

static size_t row_bytes(const struct demo_row* row) {
  return (size_t)(row->tokens * row->hidden) * bench_dtype_bytes(DTYPE);
}

static void fill(const struct step* step, enum generator_tensor which, int k, int rank, void* out) {
  const struct demo_row* row = step->row;
  int64_t count = which == GENERATOR_GAMMA ? row->hidden : row->tokens * row->hidden;
  generator_fill(out, DTYPE, count, (uint32_t)(step->number * DEMO_PER_LAYER + k), which, rank, GENERATOR_UNIFORM);
}

/* ---------------------------------------------------------------- enqueueing */

static int enqueue_unfused(void* arg) {
  struct step* step = arg;
  for (int i = 0; i < step->layers * DEMO_PER_LAYER; i++) {
    if (unfused_enqueue(step->unfused, &step->requests[i % DEMO_PER_LAYER]) != 0) return -1;
  }
  return 0;
}

static int enqueue_fused(void* arg) {
  struct step* step = arg;
  struct bench_rank* rank = step->rank;
  if (step->turned_down) return enqueue_unfused(arg);
  for (int i = 0; i < step->layers * DEMO_PER_LAYER; i++) {
    arfusionRoute_t route = {.size = sizeof(route)};
    const arfusionRequest_t* request = &step->requests[i % DEMO_PER_LAYER];
    if (rank->plugin->enqueue(rank->comm, request, rank->device->stream, &route) != arfusionSuccess) {
      return bench_device_fail("enqueue: %s", rank->plugin->getLastError());
    }
    if (route.algorithm == arfusionAlgoNone) {
      return bench_device_fail("enqueue turned down what route took: %s", rank->plugin->reasonString(route.reason));
    }
  }
  return 0;
}

/* ---------------------------------------------------------------- bits */

/* The reference of step->layers layers: residual and the norms of the last layer. Scratch memory is the caller's. */
static void step_expect(const struct step* step, void* const inputs[DEMO_RANKS], void* sums[DEMO_PER_LAYER],
                        void* gamma, void* residual, void* norms[DEMO_PER_LAYER]) {
  const struct demo_row* row = step->row;
  int64_t count = row->tokens * row->hidden;
  for (int k = 0; k < DEMO_PER_LAYER; k++) {
    for (int r = 0; r < DEMO_RANKS; r++) fill(step, GENERATOR_INPUT, k, r, inputs[r]);
    reference_sum(DTYPE, DEMO_RANKS, (const void* const*)inputs, count, sums[k]);
  }
  fill(step, GENERATOR_RESIDUAL, 0, 0, residual);
  for (int layer = 0; layer < step->layers; layer++) {
    for (int k = 0; k < DEMO_PER_LAYER; k++) {
      reference_residual(DTYPE, sums[k], residual, count, residual);
      if (layer + 1 < step->layers) continue;
      fill(step, GENERATOR_GAMMA, k, 0, gamma);
      struct reference_norm norm = {.dtype = DTYPE,
                                    .gamma_dtype = DTYPE,
                                    .tokens = row->tokens,
                                    .hidden = row->hidden,
                                    .eps = EPS,
                                    .gamma = gamma};
      reference_norm(&norm, residual, norms[k]);
    }
  }
}

/* 1: what the device holds after a step is what the reference has; 0: it is not; -1 after team_fail. */
static int step_compare(struct step* step) {
  enum {
    INPUTS = 0,
    SUMS = INPUTS + DEMO_RANKS,
    NORMS = SUMS + DEMO_PER_LAYER,
    RESIDUAL = NORMS + DEMO_PER_LAYER,
    GAMMA
  };
  struct bench_device* device = step->rank->device;
  size_t bytes = row_bytes(step->row);
  void* memory[GAMMA + 1] = {NULL};
  int equal = -1;
  for (int i = 0; i <= GAMMA; i++) {
    memory[i] = malloc(bytes);
    if (memory[i] == NULL) {
      team_fail(step->rank->team, "out of memory");
      goto err_free;
    }
  }
  step_expect(step, memory + INPUTS, memory + SUMS, memory[GAMMA], memory[RESIDUAL], memory + NORMS);
  if (device->download(device, &step->residual, bytes) != 0 || device->download(device, &step->norms[0], bytes) != 0 ||
      device->download(device, &step->norms[1], bytes) != 0) {
    team_fail(step->rank->team, "%s", bench_device_error());
    goto err_free;
  }
  equal = memcmp(step->residual.image, memory[RESIDUAL], bytes) == 0 &&
          memcmp(step->norms[0].image, memory[NORMS], bytes) == 0 &&
          memcmp(step->norms[1].image, memory[NORMS + 1], bytes) == 0;

err_free:
  for (int i = 0; i <= GAMMA; i++) free(memory[i]);
  return equal;
}

/* ---------------------------------------------------------------- one row */

static int step_fill_residual(struct step* step) {
  struct bench_device* device = step->rank->device;
  fill(step, GENERATOR_RESIDUAL, 0, 0, step->residual.image);
  if (device->upload(device, &step->residual, row_bytes(step->row)) == 0) return 0;
  return team_fail(step->rank->team, "%s", bench_device_error());
}

/* Fills the other tensors and sets up the requests. */
static int step_prepare(struct step* step) {
  struct bench_rank* rank = step->rank;
  struct bench_device* device = rank->device;
  const struct demo_row* row = step->row;
  arfusionRoute_t route = {.size = sizeof(route)};
  int failed = 0;
  for (int k = 0; k < DEMO_PER_LAYER; k++) {
    fill(step, GENERATOR_INPUT, k, rank->team->rank, step->inputs[k].image);
    fill(step, GENERATOR_GAMMA, k, 0, step->gammas[k].image);
    failed |= device->upload(device, &step->inputs[k], row_bytes(row));
    failed |= device->upload(device, &step->gammas[k], (size_t)row->hidden * bench_dtype_bytes(DTYPE));
    arfusionRequest_t* request = &step->requests[k];
    *request = bench_request();
    request->pattern = arfusionPatternResidualRmsNorm;
    request->operation = arfusionSum;
    request->dataType = DTYPE;
    request->gammaDataType = DTYPE;
    request->tokens = row->tokens;
    request->hidden = row->hidden;
    request->flags = ARFUSION_FLAG_DEPENDENT_LAUNCH;
    request->eps = EPS;
    request->input = step->inputs[k].data;
    request->gamma = step->gammas[k].data;
    request->residualIn = step->residual.data;
    request->residualOut = step->residual.data;
    request->normOut = step->norms[k].data;
  }
  if (failed) return team_fail(rank->team, "%s", bench_device_error());
  if (rank->plugin->route(rank->comm, &step->requests[0], &route) != arfusionSuccess) {
    return team_fail(rank->team, "route: %s", rank->plugin->getLastError());
  }
  step->turned_down = route.algorithm == arfusionAlgoNone;
  return 0;
}

/* Runs one layer, which also warms everything up. *layer_us: how long it took, alike on all ranks. */
static int step_warm_up(struct step* step, double* layer_us) {
  struct measure_item item;
  step->layers = 1;
  if (step_fill_residual(step) != 0) return -1;
  if (measure_record(step->rank, BENCH_LAUNCH_GRAPH, enqueue_fused, step, 1, &item, layer_us) != 0) return -1;
  step->rank->device->discard(step->rank->device, item.batch);
  return 0;
}

/* step->layers layers from the start, compared with the reference. */
static int step_check(struct step* step, enum demo_bits* bits) {
  struct bench_rank* rank = step->rank;
  struct measure_item item;
  int equal[DEMO_RANKS];
  double elapsed;
  if (step_fill_residual(step) != 0) return -1;
  if (measure_record(rank, BENCH_LAUNCH_GRAPH, enqueue_fused, step, 1, &item, &elapsed) != 0) return -1;
  rank->device->discard(rank->device, item.batch);
  int own = step->turned_down ? 1 : step_compare(step);
  if (own < 0) return -1;
  team_all_gather(rank->team, &own, equal, sizeof(own));
  *bits = step->turned_down ? DEMO_NCCL : DEMO_EQUAL;
  for (int r = 0; r < DEMO_RANKS; r++) {
    if (!equal[r]) *bits = DEMO_DIFFER;
  }
  return 0;
}

/* Times step->layers layers of the fused and, where there is one, the unfused path. */
static int step_measure(struct step* step, struct demo_result* result) {
  struct bench_rank* rank = step->rank;
  struct measure_item items[2] = {{0}};
  double elapsed;
  int count = step->unfused->available ? 2 : 1, rounds = 0, failed = 0;
  for (int i = 0; i < count && !failed; i++) {
    failed = measure_record(rank, BENCH_LAUNCH_GRAPH, i == 0 ? enqueue_fused : enqueue_unfused, step, 1, &items[i],
                            &elapsed);
    items[i].operations = step->layers * DEMO_PER_LAYER;
  }
  if (!failed && rank->device->kind == BENCH_DEVICE_HOST) {
    rounds = measure_run(rank, items, count, MEASURE_MAX_ROUNDS, HOST_MIN_ROUNDS, HOST_BUDGET_US);
  } else if (!failed) {
    rounds = measure_run(rank, items, count, GRAPH_REPLAYS, GRAPH_REPLAYS, 0);
  }
  for (int i = 0; i < count; i++) {
    if (items[i].batch != NULL) rank->device->discard(rank->device, items[i].batch);
  }
  if (failed || rounds < 0) return -1;
  result->fused_us = measure_summarize(items[0].samples, rounds).median;
  if (count > 1) result->unfused_us = measure_summarize(items[1].samples, rounds).median;
  return 0;
}

static int run_row(struct step* step, const struct demo_row* row, int number) {
  struct bench_rank* rank = step->rank;
  struct demo_result result = {.row = number};
  arfusionRoute_t route = {.size = sizeof(route)};
  int on_host = rank->device->kind == BENCH_DEVICE_HOST;
  double layer_us;
  step->row = row;
  step->number = number;
  if (step_prepare(step) != 0 || step_warm_up(step, &layer_us) != 0) return -1;
  step->layers = on_host ? measure_fitting(layer_us, HOST_CHECK_US, 1, row->layers) : row->layers;
  if (step_check(step, &result.bits) != 0) return -1;
  if (on_host) step->layers = measure_fitting(layer_us, HOST_BATCH_US, 1, row->layers);
  if (step_measure(step, &result) != 0) return -1;
  rank->plugin->route(rank->comm, &step->requests[0], &route);
  result.algorithm = route.algorithm;
  if (rank->team->rank == 0) team_send(rank->team, &result, sizeof(result));
  return 0;
}

/* ---------------------------------------------------------------- a rank's life */

static int step_alloc(struct step* step, size_t bytes) {
  struct bench_device* device = step->rank->device;
  int failed = device->alloc(device, &step->residual, bytes);
  for (int k = 0; k < DEMO_PER_LAYER && !failed; k++) {
    failed = device->alloc(device, &step->inputs[k], bytes) || device->alloc(device, &step->gammas[k], bytes) ||
             device->alloc(device, &step->norms[k], bytes);
  }
  return failed ? team_fail(step->rank->team, "%s", bench_device_error()) : 0;
}

static void step_free(struct step* step) {
  struct bench_device* device = step->rank->device;
  if (step->residual.data != NULL) device->release(device, &step->residual);
  for (int k = 0; k < DEMO_PER_LAYER; k++) {
    if (step->inputs[k].data != NULL) device->release(device, &step->inputs[k]);
    if (step->gammas[k].data != NULL) device->release(device, &step->gammas[k]);
    if (step->norms[k].data != NULL) device->release(device, &step->norms[k]);
  }
}

int demo_run_rank(struct team_rank* self, void* arg) {
  const struct demo_plan* plan = arg;
  const struct demo_row* largest = &plan->rows[0];
  struct bench_rank rank;
  struct unfused unfused = {0};
  for (int i = 1; i < plan->count; i++) {
    if (row_bytes(&plan->rows[i]) > row_bytes(largest)) largest = &plan->rows[i];
  }
  arfusionConfig_t config = {
      .size = sizeof(config), .maxTokens = largest->tokens, .hidden = largest->hidden, .dataType = DTYPE};
  struct step step = {.rank = &rank, .unfused = &unfused};
  int failed = bench_rank_open(self, plan->session, &config, &rank);
  if (!failed) failed = unfused_open(&rank, &unfused);
  if (!failed) failed = step_alloc(&step, row_bytes(largest));
  for (int i = 0; i < plan->count && !failed; i++) failed = run_row(&step, &plan->rows[i], i);
  if (rank.device != NULL) step_free(&step);
  unfused_close(&unfused);
  return bench_rank_close(&rank) != 0 || failed ? -1 : 0;
}
