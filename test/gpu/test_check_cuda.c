/* SPDX-License-Identifier: Apache-2.0
 *
 * test_check_cuda.c: ARFUSION_CHECK and ARFUSION_COUNT_NAN on GPUs: what the ranks were asked for is compared in eager
 * calls and in graph replays, and NaNs are counted where they came in. Two ranks, on one GPU or two, driven by one
 * thread.
 */
#include "test/gpu/ranks.h"

extern const arfusionPlugin_v1_t arfusionPlugin_v1;
static const arfusionPlugin_v1_t* const plugin = &arfusionPlugin_v1;
static void* comms[RANKS];

enum { LIMIT = 2 /* seconds that an operation waits */ };

static void* open_context(const char* check, const char* count_nan) {
  void* ctx;
  setenv("ARFUSION_TIMEOUT", "2", 1);
  setenv("ARFUSION_CHECK", check, 1);
  setenv("ARFUSION_COUNT_NAN", count_nan, 1);
  CHECK(plugin->init(&ctx, NULL));
  return ctx;
}

static void open_comms(void* ctx) {
  const int devs[RANKS] = {0, 1 % gpus};
  const int result = plugin->commInitAll(ctx, RANKS, devs, NULL, comms);
  if (result) fprintf(stderr, "commInitAll: %s\n", plugin->getLastError());
  CHECK(result);
}

static void close_comms(void) {
  for (int r = 0; r < RANKS; ++r) CHECK(plugin->commFinalize(comms[r]));
}

static int enqueue(int r, int tokens, uint32_t flags) {
  arfusionRequest_t request = rows_request(r, tokens);
  arfusionRoute_t route = {.size = sizeof route};
  request.flags = flags;
  const int result = plugin->enqueue(comms[r], &request, memory[r].stream[0], &route);
  if (result) fprintf(stderr, "enqueue: %s\n", plugin->getLastError());
  return result == arfusionSuccess && route.algorithm != arfusionAlgoNone;
}

/* A graph of rank r's operations of these many tokens. */
static cudaGraphExec_t capture(int r, const int* tokens, int count, size_t* nodes) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  rank_use(r);
  CHECK(cudaStreamBeginCapture(memory[r].stream[0], cudaStreamCaptureModeThreadLocal));
  for (int k = 0; k < count; ++k) CHECK(enqueue(r, tokens[k], ARFUSION_FLAG_DEPENDENT_LAUNCH) ? 0 : 1);
  CHECK(cudaStreamEndCapture(memory[r].stream[0], &graph));
  CHECK(cudaGraphGetNodes(graph, NULL, nodes));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  CHECK(cudaGraphDestroy(graph));
  return exec;
}

static void replay(cudaGraphExec_t* exec, int times) {
  for (int k = 0; k < times; ++k) {
    for (int r = 0; r < RANKS; ++r) {
      rank_use(r);
      CHECK(cudaGraphLaunch(exec[r], memory[r].stream[0]));
    }
  }
}

/* Both ranks say that they were asked for different things, in these words, and go on saying so at once. */
static int told(const char* rank_0, const char* rank_1) {
  const char* const words[RANKS] = {rank_0, rank_1};
  int ok = 1;
  for (int r = 0; r < RANKS; ++r) {
    arfusionResult_t async = arfusionSuccess;
    char text[512];
    plugin->commGetAsyncError(comms[r], &async, text, sizeof text);
    printf("  rank %d: %s\n", r, text);
    ok &= async == arfusionInvalidUsage && strstr(text, "different things") && strstr(text, words[r]);
    const double start = seconds();
    ok &= !enqueue(r, 3, 0) && seconds() - start < 0.2;
  }
  return ok;
}

static void test_agree(void* ctx, int kernels) {
  static const int tokens[] = {4, 1, 64, 192, 7};
  cudaGraphExec_t exec[RANKS];
  int ok = 1;
  open_comms(ctx);
  for (int k = 0; k < 50; ++k) {
    for (int r = 0; r < RANKS; ++r) ok &= enqueue(r, 1 + k, (uint32_t)k % 4);
  }
  streams_sync();
  outputs_clear();
  for (int r = 0; r < RANKS; ++r)
    ok &= enqueue(r, TOKENS, ARFUSION_FLAG_DEPENDENT_LAUNCH | ARFUSION_FLAG_EARLY_TRIGGER);
  streams_sync();
  expect(ok && rows_right(TOKENS), "eager operations of ranks that agree");
  for (int r = 0; r < RANKS; ++r) {
    size_t nodes = 0;
    exec[r] = capture(r, tokens, 5, &nodes);
    ok &= nodes == 5 * (size_t)kernels;
  }
  expect(ok, "the number of a graph's nodes");
  outputs_clear();
  replay(exec, 100);
  streams_sync();
  expect(rows_right(TOKENS), "replays of ranks that agree");
  for (int r = 0; r < RANKS; ++r) CHECK(cudaGraphExecDestroy(exec[r]));
  close_comms();
}

static void test_disagree(void* ctx) {
  open_comms(ctx);
  for (int r = 0; r < RANKS; ++r) enqueue(r, 8, 0);
  streams_sync();
  outputs_clear();
  const double start = seconds();
  for (int r = 0; r < RANKS; ++r) enqueue(r, 4 + r, 0);
  streams_sync();
  const double elapsed = seconds() - start;
  expect(told("tokens is 4 on rank 0, 5 on rank 1", "tokens is 5 on rank 1, 4 on rank 0"),
         "ranks that disagree are told");
  expect(elapsed < 0.5, "at once");
  expect(rows_are(memory[0].norm, want_norm, 0) && rows_are(memory[1].norm, want_norm, 0), "nothing is written");
  close_comms();
}

/* The third operation of the graphs differs; later replays are over at once. */
static void test_disagree_in_graphs(void* ctx) {
  static const int tokens[RANKS][5] = {{4, 4, 4, 4, 4}, {4, 4, 16, 4, 4}};
  cudaGraphExec_t exec[RANKS];
  size_t nodes;
  open_comms(ctx);
  for (int r = 0; r < RANKS; ++r) exec[r] = capture(r, tokens[r], 5, &nodes);
  const double start = seconds();
  replay(exec, 100);
  streams_sync();
  const double elapsed = seconds() - start;
  expect(told("tokens is 4 on rank 0, 16 on rank 1", "tokens is 16 on rank 1, 4 on rank 0"), "so are graphs");
  expect(elapsed < 1, "and their replays do not wait");
  for (int r = 0; r < RANKS; ++r) CHECK(cudaGraphExecDestroy(exec[r]));
  close_comms();
}

static void test_missing(void* ctx) {
  arfusionResult_t async = arfusionSuccess;
  char text[512];
  open_comms(ctx);
  const double start = seconds();
  enqueue(0, 4, 0);
  CHECK(cudaStreamSynchronize(memory[0].stream[0]));
  const double elapsed = seconds() - start;
  plugin->commGetAsyncError(comms[0], &async, text, sizeof text);
  printf("  after %.1f s: %s\n", elapsed, text);
  expect(
      async == arfusionRemoteError && strstr(text, "rank 0 waited for rank 1") && strstr(text, "what it was asked for"),
      "a call that a rank does not make is missed");
  expect(elapsed > LIMIT - 0.2 && elapsed < LIMIT + 2, "at the time limit");
  close_comms();
}

static int counters_are(int r, uint64_t inputs, uint64_t residuals, uint64_t outputs) {
  arfusionStats_t stats = {.size = sizeof stats};
  CHECK(plugin->commGetStats(comms[r], &stats));
  if (stats.nanInputs == inputs && stats.nanResiduals == residuals && stats.nanOutputs == outputs) return 1;
  printf("  rank %d: %llu, %llu, %llu\n", r, (unsigned long long)stats.nanInputs,
         (unsigned long long)stats.nanResiduals, (unsigned long long)stats.nanOutputs);
  return 0;
}

/* Rank 1's input has two NaNs in its row 2. */
static void test_nans(void* ctx) {
  static const uint16_t nans[2] = {0x7fc0, 0xff81};
  uint16_t kept[2];
  open_comms(ctx);
  for (int r = 0; r < RANKS; ++r) enqueue(r, 8, 0);
  streams_sync();
  expect(counters_are(0, 0, 0, 0) && counters_are(1, 0, 0, 0), "no NaNs");
  uint16_t* at = memory[1].input + 2 * HIDDEN + 100;
  CHECK(cudaMemcpy(kept, at, sizeof kept, cudaMemcpyDeviceToHost));
  CHECK(cudaMemcpy(at, nans, sizeof nans, cudaMemcpyHostToDevice));
  for (int k = 0; k < 2; ++k) {
    for (int r = 0; r < RANKS; ++r) enqueue(r, 8, 0);
  }
  streams_sync();
  expect(counters_are(0, 0, 0, 2 * (2 + HIDDEN)) && counters_are(1, 4, 0, 2 * (2 + HIDDEN)),
         "NaNs are counted where they came in");
  CHECK(cudaMemcpy(at, kept, sizeof kept, cudaMemcpyHostToDevice));
  close_comms();
}

/* What they cost, in graphs of 20 operations of 8 rows. */
static void print_cost(void* ctx, const char* name) {
  int tokens[20];
  cudaGraphExec_t exec[RANKS];
  size_t nodes;
  for (int k = 0; k < 20; ++k) tokens[k] = 8;
  open_comms(ctx);
  for (int r = 0; r < RANKS; ++r) exec[r] = capture(r, tokens, 20, &nodes);
  replay(exec, 20);
  streams_sync();
  const double start = seconds();
  replay(exec, 100);
  streams_sync();
  printf("%s: %.2f us an operation\n", name, (seconds() - start) / 2000 * 1e6);
  for (int r = 0; r < RANKS; ++r) CHECK(cudaGraphExecDestroy(exec[r]));
  close_comms();
}

int main(void) {
  if (ranks_find_gpus() == 0) {
    printf("no GPU\n");
    return 77;
  }
  memory_create();
  void* const plain = open_context("0", "0");
  void* const checking = open_context("1", "0");
  void* const counting = open_context("0", "1");
  test_agree(checking, 2);
  test_agree(counting, 3);
  test_disagree(checking);
  test_disagree_in_graphs(checking);
  test_missing(checking);
  test_nans(counting);
  print_cost(plain, "neither");
  print_cost(checking, "ARFUSION_CHECK");
  print_cost(counting, "ARFUSION_COUNT_NAN");
  plugin->finalize(plain);
  plugin->finalize(checking);
  plugin->finalize(counting);
  return finish();
}
