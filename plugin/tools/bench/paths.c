/* SPDX-License-Identifier: Apache-2.0
 *
 * paths.c: the paths through the fused operation, and their times; see paths.h.
 */
#include "plugin/tools/bench/paths.h"

#include <string.h>

#include "plugin/tools/bench/bench.h"
#include "plugin/tools/bench/generator.h"

#define EPS 1e-5f
#define GPU_LAUNCHES 20 /* of a sample */
/* On the host, which is slower by orders: how long a sample takes, how long all samples of a size, and how many there
 * are at least. */
#define HOST_BATCH_US 3e3
#define HOST_BUDGET_US 5e6
#define HOST_MIN_ROUNDS 5
#define HOST_MAX_CALLS 1000

const char* path_name(int path, enum bench_device_kind kind) {
  if (path == PATH_UNFUSED) return kind == BENCH_DEVICE_CUDA ? "nccl" : "unfused";
  if (path == PATH_WINDOWS) return "nccl_symmetric";
  if (path == PATH_EPILOGUE) return "epilogue";
  return bench_algorithm_name((arfusionAlgorithm_t)path);
}

/* ---------------------------------------------------------------- one path */

int path_prepare(struct paths* paths, const struct path_form* form, int64_t tokens, int64_t hidden, struct path* path) {
  struct bench_rank* rank = &paths->rank;
  arfusionRoute_t route = {.size = sizeof(route)};
  *path = (struct path){
      .paths = paths, .number = form->path, .algorithm = arfusionAlgoNone, .request = paths->request};
  path->request.tokens = tokens;
  path->request.hidden = hidden;
  path->request.flags = form->pdl ? ARFUSION_FLAG_DEPENDENT_LAUNCH : 0;
  if (form->path == PATH_UNFUSED) return paths->unfused.available;
  if (form->path == PATH_WINDOWS) return paths->unfused.window_input != NULL;
  if (form->path == PATH_EPILOGUE) return 1;
  path->request.algorithmHint = (arfusionAlgorithm_t)form->path;
  if (rank->plugin->route(rank->comm, &path->request, &route) != arfusionSuccess) return 0;
  path->algorithm = route.algorithm;
  return route.algorithm != arfusionAlgoNone;
}

int path_enqueue(void* arg) {
  struct path* path = arg;
  struct bench_rank* rank = &path->paths->rank;
  struct unfused* unfused = &path->paths->unfused;
  arfusionRoute_t route = {.size = sizeof(route)};
  if (path->number == PATH_UNFUSED) return unfused_enqueue(unfused, &path->request);
  if (path->number == PATH_WINDOWS) return unfused_enqueue_windows(unfused, &path->request);
  if (path->number == PATH_EPILOGUE) return unfused_enqueue_epilogue(unfused, &path->request);
  if (rank->plugin->enqueue(rank->comm, &path->request, rank->device->stream, &route) != arfusionSuccess) {
    return bench_device_fail("enqueue: %s", rank->plugin->getLastError());
  }
  if (route.algorithm == arfusionAlgoNone) {
    return bench_device_fail("enqueue turned down what route took: %s", rank->plugin->reasonString(route.reason));
  }
  return 0;
}

/* A batch as long as this device needs it for a steady sample. */
static int path_record(struct path* path, enum bench_launch launch, struct measure_item* item) {
  struct bench_rank* rank = &path->paths->rank;
  double elapsed;
  int count = GPU_LAUNCHES;
  if (rank->device->kind == BENCH_DEVICE_HOST) {
    if (measure_record(rank, launch, path_enqueue, path, 1, item, &elapsed) != 0) return -1;
    rank->device->discard(rank->device, item->batch);
    count = measure_fitting(elapsed, HOST_BATCH_US, 1, HOST_MAX_CALLS);
  }
  return measure_record(rank, launch, path_enqueue, path, count, item, &elapsed);
}

/* ---------------------------------------------------------------- all paths of one size */

int paths_measure(struct paths* paths, int64_t tokens, int64_t hidden, const struct path_form* forms, int count,
                  int rounds, struct path_result* results) {
  struct bench_rank* rank = &paths->rank;
  struct path prepared[PATH_MAX_FORMS];
  struct measure_item items[PATH_MAX_FORMS];
  int owner[PATH_MAX_FORMS], nitems = 0, failed = 0, done = 0;
  if (count > PATH_MAX_FORMS) return team_fail(rank->team, "%d forms to measure, at most %d", count, PATH_MAX_FORMS);
  for (int i = 0; i < count && !failed; i++) {
    int exists = path_prepare(paths, &forms[i], tokens, hidden, &prepared[i]);
    results[i] = (struct path_result){.algorithm = prepared[i].algorithm};
    if (!exists) continue;
    failed = path_record(&prepared[i], forms[i].launch, &items[nitems]);
    if (!failed) owner[nitems++] = i;
  }
  if (!failed && rank->device->kind == BENCH_DEVICE_HOST) {
    done = measure_run(rank, items, nitems, rounds, HOST_MIN_ROUNDS, HOST_BUDGET_US);
  } else if (!failed) {
    done = measure_run(rank, items, nitems, rounds, rounds, 0);
  }
  for (int i = 0; i < nitems; i++) {
    rank->device->discard(rank->device, items[i].batch);
    if (done > 0) results[owner[i]].summary = measure_summarize(items[i].samples, done);
  }
  return failed || done < 0 ? -1 : 0;
}

/* ---------------------------------------------------------------- the tensors */

static int paths_alloc(struct paths* paths, arfusionDataType_t dtype, int64_t tokens, int64_t hidden) {
  struct bench_device* device = paths->rank.device;
  size_t element = bench_dtype_bytes(dtype);
  int64_t count = tokens * hidden;
  int failed = device->alloc(device, &paths->input, (size_t)count * element) ||
               device->alloc(device, &paths->residual, (size_t)count * element) ||
               device->alloc(device, &paths->norm, (size_t)count * element) ||
               device->alloc(device, &paths->gamma, (size_t)hidden * element);
  if (failed) return team_fail(paths->rank.team, "%s", bench_device_error());
  generator_fill(paths->input.image, dtype, count, 1, GENERATOR_INPUT, paths->rank.team->rank, GENERATOR_UNIFORM);
  generator_fill(paths->residual.image, dtype, count, 1, GENERATOR_RESIDUAL, 0, GENERATOR_UNIFORM);
  generator_fill(paths->gamma.image, dtype, hidden, 1, GENERATOR_GAMMA, 0, GENERATOR_UNIFORM);
  memset(paths->norm.image, 0, paths->norm.bytes);
  failed = device->upload(device, &paths->input, paths->input.bytes) ||
           device->upload(device, &paths->residual, paths->residual.bytes) ||
           device->upload(device, &paths->norm, paths->norm.bytes) ||
           device->upload(device, &paths->gamma, paths->gamma.bytes);
  return failed ? team_fail(paths->rank.team, "%s", bench_device_error()) : 0;
}

/* The quantized outputs, large enough for each kind and size up to tokens x hidden, and the scale that goes in. */
static int paths_alloc_quant(struct paths* paths, arfusionQuant_t quantization, int64_t tokens, int64_t hidden) {
  struct bench_device* device = paths->rank.device;
  arfusionRequest_t* request = &paths->request;
  const float scale = quantization == arfusionQuantNvfp4 ? 100.0f : 0.02f;
  int64_t scales = (tokens + 127) / 128 * 128 * (hidden / 16 + 4);
  if (quantization == arfusionQuantNone) return 0;
  int failed = device->alloc(device, &paths->codes, (size_t)(tokens * hidden)) ||
               device->alloc(device, &paths->scales, (size_t)scales) ||
               device->alloc(device, &paths->scale, sizeof(scale));
  if (failed) return team_fail(paths->rank.team, "%s", bench_device_error());
  memcpy(paths->scale.image, &scale, sizeof(scale));
  if (device->upload(device, &paths->scale, sizeof(scale)) != 0) {
    return team_fail(paths->rank.team, "%s", bench_device_error());
  }
  request->quantization = quantization;
  request->scaleLayout = quantization == arfusionQuantNvfp4 ? arfusionScaleSwizzled128x4 : arfusionScaleLinear;
  request->groupSize = quantization == arfusionQuantFp8Group ? PATH_GROUP : 0;
  request->fp8Scale = request->nvfp4GlobalScale = (const float*)paths->scale.data;
  request->quantOut = paths->codes.data;
  request->scaleOut = quantization == arfusionQuantFp8 ? NULL : paths->scales.data;
  return 0;
}

int paths_open(struct team_rank* team, const struct bench_session* session, arfusionDataType_t dtype,
               arfusionQuant_t quantization, int64_t tokens, int64_t hidden, struct paths* paths) {
  arfusionConfig_t config = {.size = sizeof(config), .maxTokens = tokens, .hidden = hidden, .dataType = dtype};
  *paths = (struct paths){.request = bench_request()};
  if (bench_rank_open(team, session, &config, &paths->rank) != 0) return -1;
  if (unfused_open(&paths->rank, &paths->unfused) != 0) return -1;
  if (paths_alloc(paths, dtype, tokens, hidden) != 0) return -1;
  if (paths_alloc_quant(paths, quantization, tokens, hidden) != 0) return -1;
  if (unfused_open_windows(&paths->unfused, &paths->input) != 0) return -1;
  paths->request.pattern = arfusionPatternResidualRmsNorm;
  paths->request.operation = arfusionSum;
  paths->request.dataType = dtype;
  paths->request.gammaDataType = dtype;
  paths->request.eps = EPS;
  paths->request.input = paths->input.data;
  paths->request.residualIn = paths->residual.data;
  paths->request.gamma = paths->gamma.data;
  paths->request.residualOut = paths->residual.data;
  paths->request.normOut = paths->norm.data;
  team_barrier(team);
  return 0;
}

int paths_close(struct paths* paths) {
  struct bench_buffer* buffers[] = {&paths->input, &paths->residual, &paths->norm, &paths->gamma,
                                    &paths->codes, &paths->scales,   &paths->scale};
  struct bench_device* device = paths->rank.device;
  for (size_t i = 0; i < sizeof(buffers) / sizeof(buffers[0]); i++) {
    if (buffers[i]->data != NULL) device->release(device, buffers[i]);
  }
  unfused_close(&paths->unfused);
  return bench_rank_close(&paths->rank);
}
