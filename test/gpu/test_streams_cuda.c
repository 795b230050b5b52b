/* SPDX-License-Identifier: Apache-2.0
 *
 * test_streams_cuda.c: operations on one stream and on several, in branches of a graph, in a graph and eagerly by
 * turns, of two communicators at once, in several launches, of the largest size, and small ones right after large
 * ones. Through the plugin's table, on two GPUs or one.
 *
 *   test_streams_cuda [SEED]
 *
 * Rows repeat after PERIOD of them, so that the reference knows every row of any number. Outputs are overwritten
 * before each operation and compared after it, on its stream.
 */
#include "test/gpu/limit.h"
#include "test/gpu/random.h"
#include "test/gpu/ranks.h"
#include "test/gpu/reference.h"
#include "test/gpu/support.h"

enum {
  WIDTH = 8192, /* hidden */
  PERIOD = 61,
  MOST_TOKENS = 16384,
  LANES = 3,
  LANE_TOKENS = 320,
  LIMIT_SECONDS = 200
};
#define ROW_BYTES ((size_t)WIDTH * 2)

extern const arfusionPlugin_v1_t arfusionPlugin_v1;
static const arfusionPlugin_v1_t* const plugin = &arfusionPlugin_v1;
static void* ctx;

/* A stream of each rank, with what operations on it write. */
struct lane {
  cudaStream_t stream[RANKS];
  unsigned char *norm[RANKS], *residual[RANKS];
};

struct data {
  unsigned char *input, *residual, *gamma;      /* MOST_TOKENS rows of input and residual */
  unsigned char *sum, *residual_out, *norm_out; /* what must come of PERIOD rows */
  struct support_found* found;                  /* [2]: of norm or sum, of residual */
};

struct operation {
  arfusionPattern_t pattern;
  arfusionAlgorithm_t algorithm;
  int64_t tokens;
  uint32_t flags;
};

static struct data data[RANKS];
static struct lane lanes[LANES], large; /* `large` has MOST_TOKENS rows */
static uint32_t state;

static uint32_t draw(uint32_t below) { return random_draw(&state, below); }

/* ---------------------------------------------------------------- memory */

static void* device_bytes(size_t bytes) {
  void* p;
  CHECK(cudaMalloc(&p, bytes));
  return p;
}

static void* host_bytes(size_t bytes) {
  void* p = malloc(bytes);
  CHECK(p == NULL);
  return p;
}

static void* host_values(int64_t count) {
  void* p = host_bytes((size_t)count * 2);
  for (int64_t i = 0; i < count; ++i) ref_store(p, i, (float)draw(65536) / 32768.0f - 1.0f, arfusionBfloat16);
  return p;
}

static unsigned char* uploaded(const void* host, size_t bytes) {
  unsigned char* p = device_bytes(bytes);
  CHECK(cudaMemcpy(p, host, bytes, cudaMemcpyHostToDevice));
  return p;
}

/* MOST_TOKENS rows on the current device. */
static unsigned char* repeated(const void* host, cudaStream_t stream) {
  unsigned char *once = uploaded(host, PERIOD * ROW_BYTES), *rows = device_bytes(MOST_TOKENS * ROW_BYTES);
  const struct support_ranges ranges = {
      .count = 1,
      .range[0] = {.to = rows, .from = once, .bytes = MOST_TOKENS * ROW_BYTES, .period = PERIOD * ROW_BYTES}};
  CHECK(support_copy(&ranges, stream));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaFree(once));
  return rows;
}

static void lane_make(struct lane* lane, int r, int64_t tokens) {
  CHECK(cudaStreamCreateWithFlags(&lane->stream[r], cudaStreamNonBlocking));
  lane->norm[r] = device_bytes((size_t)tokens * ROW_BYTES);
  lane->residual[r] = device_bytes((size_t)tokens * ROW_BYTES);
}

static void data_make(void) {
  const void* inputs[RANKS];
  void *residual = host_values(PERIOD * WIDTH), *gamma = host_values(WIDTH);
  void *sum = host_bytes(PERIOD * ROW_BYTES), *residual_out = host_bytes(PERIOD * ROW_BYTES);
  void* norm_out = host_bytes(PERIOD * ROW_BYTES);
  static float row[WIDTH];
  for (int r = 0; r < RANKS; ++r) inputs[r] = host_values(PERIOD * WIDTH);
  const struct kernel_op op = {.pattern = arfusionPatternResidualRmsNorm, .dtype = arfusionBfloat16,
                               .gamma_dtype = arfusionBfloat16, .tokens = PERIOD, .hidden = WIDTH,
                               .residual_in_stride = WIDTH, .residual_out_stride = WIDTH, .norm_out_stride = WIDTH,
                               .residual_in = residual, .gamma = gamma, .residual_out = residual_out,
                               .norm_out = norm_out, .eps = 1e-5f};
  for (int64_t t = 0; t < PERIOD; ++t) {
    for (int64_t i = 0; i < WIDTH; ++i) {
      const int64_t index[RANKS] = {t * WIDTH + i, t * WIDTH + i};
      row[i] = ref_sum(inputs, index, RANKS, arfusionBfloat16);
      ref_store(sum, t * WIDTH + i, row[i], arfusionBfloat16);
    }
    ref_epilogue_row(&op, t, row);
  }
  for (int r = 0; r < RANKS; ++r) {
    struct data* d = &data[r];
    rank_use(r);
    CHECK(support_load());
    for (int l = 0; l < LANES; ++l) lane_make(&lanes[l], r, LANE_TOKENS);
    lane_make(&large, r, MOST_TOKENS);
    d->input = repeated(inputs[r], large.stream[r]);
    d->residual = repeated(residual, large.stream[r]);
    d->gamma = uploaded(gamma, ROW_BYTES);
    d->sum = uploaded(sum, PERIOD * ROW_BYTES);
    d->residual_out = uploaded(residual_out, PERIOD * ROW_BYTES);
    d->norm_out = uploaded(norm_out, PERIOD * ROW_BYTES);
    d->found = device_bytes(2 * sizeof *d->found);
    CHECK(cudaMemset(d->found, 0, 2 * sizeof *d->found));
    CHECK(cudaDeviceSynchronize());
    free((void*)inputs[r]);
  }
  void* const host[] = {residual, gamma, sum, residual_out, norm_out};
  for (int i = 0; i < 5; ++i) free(host[i]);
}

/* ---------------------------------------------------------------- operations */

static struct operation operation_draw(int64_t most_tokens) {
  struct operation op;
  op.pattern = draw(4) ? arfusionPatternResidualRmsNorm : arfusionPatternAllReduce;
  op.algorithm = draw(4) ? (arfusionAlgorithm_t)(arfusionAlgoOneshotLamport + (int)draw(3)) : arfusionAlgoAuto;
  op.tokens = 1 + (int64_t)draw(draw(2) ? 8 : (uint32_t)most_tokens);
  op.flags = draw(4);
  return op;
}

static struct operation operation_rows(arfusionAlgorithm_t algorithm, int64_t tokens) {
  return (struct operation){.pattern = arfusionPatternResidualRmsNorm, .algorithm = algorithm, .tokens = tokens};
}

static arfusionRequest_t request_of(const struct operation* op, const struct lane* lane, int r) {
  const int rows = op->pattern == arfusionPatternResidualRmsNorm;
  arfusionRequest_t request = {.size = sizeof request, .pattern = op->pattern, .dataType = arfusionBfloat16,
                               .gammaDataType = arfusionBfloat16, .algorithmHint = op->algorithm, .tokens = op->tokens,
                               .hidden = WIDTH, .flags = op->flags, .input = data[r].input};
  if (!rows) {
    request.allreduceOut = lane->norm[r];
    return request;
  }
  request.eps = 1e-5f;
  request.residualIn = data[r].residual;
  request.gamma = data[r].gamma;
  request.residualOut = lane->residual[r];
  request.normOut = lane->norm[r];
  return request;
}

static int enqueue(void* comm, const struct operation* op, const struct lane* lane, int r) {
  const arfusionRequest_t request = request_of(op, lane, r);
  arfusionRoute_t route = {.size = sizeof route};
  if (plugin->enqueue(comm, &request, lane->stream[r], &route) != arfusionSuccess) {
    printf("rank %d: %s\n", r, plugin->getLastError());
    return 0;
  }
  return route.algorithm != arfusionAlgoNone &&
         (op->algorithm == arfusionAlgoAuto || op->algorithm == route.algorithm);
}

static void outputs_overwrite(const struct operation* op, const struct lane* lane, int r) {
  rank_use(r);
  CHECK(cudaMemsetAsync(lane->norm[r], 0xee, (size_t)op->tokens * ROW_BYTES, lane->stream[r]));
  CHECK(cudaMemsetAsync(lane->residual[r], 0xee, (size_t)op->tokens * ROW_BYTES, lane->stream[r]));
}

static void outputs_compare(const struct operation* op, const struct lane* lane, int r) {
  const int rows = op->pattern == arfusionPatternResidualRmsNorm;
  const uint64_t bytes = (uint64_t)op->tokens * ROW_BYTES, period = PERIOD * ROW_BYTES;
  struct support_ranges ranges = {.count = rows ? 2 : 1};
  ranges.range[0] = (struct support_range){
      .to = lane->norm[r], .from = rows ? data[r].norm_out : data[r].sum, .bytes = bytes, .period = period};
  ranges.range[1] =
      (struct support_range){.to = lane->residual[r], .from = data[r].residual_out, .bytes = bytes, .period = period};
  rank_use(r);
  CHECK(support_compare(&ranges, data[r].found, 0, lane->stream[r]));
}

/* One operation of one rank, between what overwrites its outputs and what compares them. */
static int run(void* comm, const struct operation* op, const struct lane* lane, int r) {
  outputs_overwrite(op, lane, r);
  const int ok = enqueue(comm, op, lane, r);
  outputs_compare(op, lane, r);
  return ok;
}

static int run_both(void* const* comms, const struct operation* op, const struct lane* lane) {
  int ok = 1;
  for (int r = 0; r < RANKS; ++r) ok &= run(comms[r], op, lane, r);
  return ok;
}

/* Waits for all streams; whether everything since the last call was right. */
static int all_right(void* const* comms) {
  int right = 1;
  for (int r = 0; r < RANKS; ++r) {
    struct support_found found[2];
    arfusionResult_t async = arfusionSuccess;
    char text[256];
    rank_use(r);
    for (int l = 0; l < LANES; ++l) CHECK(cudaStreamSynchronize(lanes[l].stream[r]));
    CHECK(cudaStreamSynchronize(large.stream[r]));
    CHECK(cudaMemcpy(found, data[r].found, sizeof found, cudaMemcpyDeviceToHost));
    CHECK(cudaMemset(data[r].found, 0, sizeof found));
    CHECK(cudaDeviceSynchronize());
    for (int i = 0; i < 2; ++i) {
      if (found[i].vectors == 0) continue;
      right = 0;
      printf("rank %d: %u vectors of 16 bytes of %s differ, the first in row %zu\n", r, found[i].vectors,
             i ? "residual_out" : "norm_out or the sum", (size_t)~found[i].first * 16 / ROW_BYTES);
    }
    CHECK(plugin->commGetAsyncError(comms[r], &async, text, sizeof text));
    if (async == arfusionSuccess) continue;
    right = 0;
    printf("rank %d: %s\n", r, text);
  }
  return right;
}

/* ---------------------------------------------------------------- communicators */

static void open_context(const char* workspace_limit) {
  if (workspace_limit) setenv("ARFUSION_WORKSPACE_LIMIT", workspace_limit, 1);
  CHECK(plugin->init(&ctx, NULL));
  if (workspace_limit) unsetenv("ARFUSION_WORKSPACE_LIMIT");
}

static void open_comms(void** comms) {
  const int result = plugin->commInitAll(ctx, RANKS, NULL, NULL, comms);
  if (result) fprintf(stderr, "commInitAll: %s\n", plugin->getLastError());
  CHECK(result);
}

static void close_comms(void** comms) {
  for (int r = 0; r < RANKS; ++r) CHECK(plugin->commFinalize(comms[r]));
}

/* ---------------------------------------------------------------- streams */

static void test_one_stream(void* const* comms) {
  int ok = 1;
  for (int k = 0; k < 500; ++k) {
    const struct operation op = operation_draw(LANE_TOKENS);
    ok &= run_both(comms, &op, &lanes[0]);
  }
  expect(all_right(comms) & ok, "one stream");
}

/* An operation comes after the one before it, on whatever stream that was, and not the same ones on both ranks. */
static void test_several_streams(void* const* comms) {
  int ok = 1;
  for (int k = 0; k < 600; ++k) {
    const struct operation op = operation_draw(LANE_TOKENS);
    for (int r = 0; r < RANKS; ++r) ok &= run(comms[r], &op, &lanes[draw(LANES)], r);
  }
  expect(all_right(comms) & ok, "several streams");
}

/* A graph of one rank: `count` operations on `branches` streams in turn. */
static cudaGraphExec_t capture(void* comm, int r, const struct operation* ops, int count, int branches, int* ok) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaEvent_t events[LANES];
  rank_use(r);
  for (int b = 0; b < branches; ++b) CHECK(cudaEventCreateWithFlags(&events[b], cudaEventDisableTiming));
  CHECK(cudaStreamBeginCapture(lanes[0].stream[r], cudaStreamCaptureModeThreadLocal));
  CHECK(cudaEventRecord(events[0], lanes[0].stream[r]));
  for (int b = 1; b < branches; ++b) CHECK(cudaStreamWaitEvent(lanes[b].stream[r], events[0], 0));
  for (int k = 0; k < count; ++k) *ok &= run(comm, &ops[k], &lanes[k % branches], r);
  for (int b = 1; b < branches; ++b) {
    CHECK(cudaEventRecord(events[b], lanes[b].stream[r]));
    CHECK(cudaStreamWaitEvent(lanes[0].stream[r], events[b], 0));
  }
  CHECK(cudaStreamEndCapture(lanes[0].stream[r], &graph));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK(cudaGraphDestroy(graph));
  for (int b = 0; b < branches; ++b) CHECK(cudaEventDestroy(events[b]));
  return exec;
}

/* A graph of `branches`, replayed; with `eager`, one more operation after each replay, on the same stream. */
static void test_graph(void* const* comms, int branches, int eager, const char* what) {
  enum { OPERATIONS = 18, REPLAYS = 150 };
  cudaGraphExec_t exec[RANKS];
  struct operation ops[OPERATIONS];
  int ok = 1;
  for (int k = 0; k < OPERATIONS; ++k) ops[k] = operation_draw(LANE_TOKENS);
  for (int r = 0; r < RANKS; ++r) exec[r] = capture(comms[r], r, ops, OPERATIONS, branches, &ok);
  for (int k = 0; k < REPLAYS; ++k) {
    for (int r = 0; r < RANKS; ++r) {
      rank_use(r);
      CHECK(cudaGraphLaunch(exec[r], lanes[0].stream[r]));
    }
    if (!eager) continue;
    const struct operation op = operation_draw(LANE_TOKENS);
    ok &= run_both(comms, &op, &lanes[0]);
  }
  expect(all_right(comms) & ok, what);
  for (int r = 0; r < RANKS; ++r) CHECK(cudaGraphExecDestroy(exec[r]));
}

/* Each has a stream of its own. Their operations are enqueued in one order on one rank and in the other on the other:
 * both must make progress, although each may run first somewhere, and is larger than the largest grid. */
static void test_two_communicators(void* const* comms) {
  void* others[RANKS];
  int ok = 1;
  open_comms(others);
  for (int k = 0; k < 300; ++k) {
    const struct operation op[2] = {operation_draw(LANE_TOKENS), operation_draw(LANE_TOKENS)};
    for (int c = 0; c < 2; ++c) {
      for (int r = 0; r < RANKS; ++r) {
        const int which = c ^ r;
        ok &= run(which ? others[r] : comms[r], &op[which], &lanes[which], r);
      }
    }
  }
  expect(all_right(comms) & all_right(others) & ok,
         gpus == 1 ? "two communicators on two streams" : "two communicators crossed on two GPUs");
  close_comms(others);
}

/* ---------------------------------------------------------------- sizes */

/* A workspace far smaller than the requests: they go out as several launches, each with its own epoch. */
static void test_several_launches(void) {
  void *comms[RANKS], *usual = ctx;
  open_context("512K");
  open_comms(comms);
  for (int a = arfusionAlgoOneshotLamport; a <= arfusionAlgoTwoshot; ++a) {
    struct operation op = operation_rows((arfusionAlgorithm_t)a, LANE_TOKENS);
    const arfusionRequest_t request = request_of(&op, &lanes[0], 0);
    arfusionRoute_t route = {.size = sizeof route};
    CHECK(plugin->route(comms[0], &request, &route));
    int ok = run_both(comms, &op, &lanes[0]);
    op.pattern = arfusionPatternAllReduce;
    ok &= run_both(comms, &op, &lanes[1]);
    printf("algorithm %d: %d launches\n", a, route.launches);
    expect(all_right(comms) & ok & (route.launches > 10), "a request of many launches");
  }
  close_comms(comms);
  CHECK(plugin->finalize(ctx));
  ctx = usual;
}

static void test_largest(void* const* comms) {
  arfusionCapacity_t capacity = {.size = sizeof capacity};
  CHECK(plugin->commGetCapacity(comms[0], &capacity));
  printf("workspace %lld bytes, a launch %lld, a request %lld\n", (long long)capacity.workspaceBytes,
         (long long)capacity.maxLaunchBytes, (long long)capacity.maxRequestBytes);
  expect(capacity.workspaceBytes <= 288ll << 20 &&
             capacity.maxRequestBytes >= (int64_t)(MOST_TOKENS * ROW_BYTES),
         "16,384 x 8,192 bf16 fit a workspace of 288 MiB");
  for (int a = arfusionAlgoOneshotLamport - 1; a <= arfusionAlgoTwoshot; ++a) {
    const int named = a >= arfusionAlgoOneshotLamport;
    const struct operation op = operation_rows(named ? (arfusionAlgorithm_t)a : arfusionAlgoAuto, MOST_TOKENS);
    const int ok = run_both(comms, &op, &large);
    char what[80];
    snprintf(what, sizeof what, "16,384 x 8,192 bf16, algorithm %d", (int)op.algorithm);
    expect(all_right(comms) & ok, what);
  }
}

/* Compared only afterwards: nothing stands between the two. */
static void test_small_after_large(void* const* comms) {
  enum { LARGE = 8192 };
  int ok = 1;
  for (int pair = 0; pair < 9; ++pair) {
    const struct operation before = operation_rows((arfusionAlgorithm_t)(arfusionAlgoOneshotLamport + pair / 3), LARGE);
    struct operation after = operation_rows((arfusionAlgorithm_t)(arfusionAlgoOneshotLamport + pair % 3), 1);
    struct lane small = lanes[0]; /* its outputs, on the other's stream */
    memcpy(small.stream, large.stream, sizeof small.stream);
    after.flags = ARFUSION_FLAG_DEPENDENT_LAUNCH;
    for (int r = 0; r < RANKS; ++r) {
      outputs_overwrite(&before, &large, r);
      outputs_overwrite(&after, &small, r);
      ok &= enqueue(comms[r], &before, &large, r);
      ok &= enqueue(comms[r], &after, &small, r);
      outputs_compare(&before, &large, r);
      outputs_compare(&after, &small, r);
    }
  }
  expect(all_right(comms) & ok, "a token right after 8,192 of them");
}

static int compare(const void* a, const void* b) {
  const float x = *(const float*)a, y = *(const float*)b;
  return (x > y) - (x < y);
}

/* ms of one token, after 8,192 of them or after a pause: of the two ranks the one that has not waited for the other's
 * start, and the median of the repeats. */
static float small_ms(void* const* comms, int after) {
  enum { LARGE = 8192, PAUSE_NS = 300000, REPEATS = 31 };
  const struct operation before = operation_rows(arfusionAlgoOneshotLamport, LARGE);
  const struct operation small = operation_rows(arfusionAlgoOneshotLamport, 1);
  cudaEvent_t begin[RANKS], end[RANKS];
  float times[REPEATS];
  for (int r = 0; r < RANKS; ++r) {
    rank_use(r);
    CHECK(cudaEventCreate(&begin[r]));
    CHECK(cudaEventCreate(&end[r]));
  }
  for (int k = 0; k < REPEATS; ++k) {
    for (int r = 0; r < RANKS; ++r) {
      rank_use(r);
      CHECK(after ? !enqueue(comms[r], &before, &large, r) : support_delay(PAUSE_NS, large.stream[r]));
      CHECK(cudaEventRecord(begin[r], large.stream[r]));
      CHECK(!enqueue(comms[r], &small, &large, r));
      CHECK(cudaEventRecord(end[r], large.stream[r]));
    }
    for (int r = 0; r < RANKS; ++r) {
      float ms;
      CHECK(cudaStreamSynchronize(large.stream[r]));
      CHECK(cudaEventElapsedTime(&ms, begin[r], end[r]));
      if (r == 0 || ms < times[k]) times[k] = ms;
    }
  }
  for (int r = 0; r < RANKS; ++r) {
    CHECK(cudaEventDestroy(begin[r]));
    CHECK(cudaEventDestroy(end[r]));
  }
  qsort(times, REPEATS, sizeof times[0], compare);
  return times[REPEATS / 2];
}

int main(int argc, char** argv) {
  void* comms[RANKS];
  const uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
  if (ranks_find_gpus() == 0) {
    printf("no GPU\n");
    return 77;
  }
  limit_start(LIMIT_SECONDS);
  setenv("ARFUSION_TIMEOUT", "30", 1);
  state = random_seed(seed, 0);
  printf("seed %llu, %d GPUs\n", (unsigned long long)seed, gpus);
  data_make();
  open_context(NULL);
  open_comms(comms);
  test_one_stream(comms);
  test_several_streams(comms);
  test_graph(comms, 1, 0, "a graph, replayed");
  test_graph(comms, LANES, 0, "branches of one graph");
  test_graph(comms, 1, 1, "a graph and eager operations by turns");
  test_graph(comms, LANES, 1, "a graph of several branches and eager operations by turns");
  test_two_communicators(comms);
  test_several_launches();
  test_largest(comms);
  test_small_after_large(comms);
  const float alone = small_ms(comms, 0), after = small_ms(comms, 1);
  printf("a token: %.2f us alone, %.2f us after 8,192 of them\n", (double)alone * 1e3, (double)after * 1e3);
  close_comms(comms);
  CHECK(plugin->finalize(ctx));
  return finish();
}
