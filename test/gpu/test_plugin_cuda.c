/* SPDX-License-Identifier: Apache-2.0
 *
 * test_plugin_cuda.c: the plugin's table on two GPUs, or on one for both ranks: set-up, capture, failures, and what it
 * leaves behind. One thread drives both ranks, since calls are asynchronous. Streams and sizes: test_streams_cuda.c.
 */
#include <malloc.h>
#include <pthread.h>

#include "test/gpu/ranks.h"

extern const arfusionPlugin_v1_t arfusionPlugin_v1;
static const arfusionPlugin_v1_t* const plugin = &arfusionPlugin_v1;
static void* ctx;
static void* comms[RANKS];

static void open_context(const char* setting, const char* value) {
  if (setting) setenv(setting, value, 1);
  CHECK(plugin->init(&ctx, NULL));
  if (setting) unsetenv(setting);
}

static void open_comms(const arfusionConfig_t* config) {
  const int devs[RANKS] = {0, 1 % gpus};
  const int result = plugin->commInitAll(ctx, RANKS, gpus == RANKS ? NULL : devs, config, comms);
  if (result) fprintf(stderr, "commInitAll: %s\n", plugin->getLastError());
  CHECK(result);
}

static void close_comms(void) {
  for (int r = 0; r < RANKS; ++r) CHECK(plugin->commFinalize(comms[r]));
}

/* Rows of both ranks on stream `s`. */
static int enqueue_rows(int tokens, int s, uint32_t flags) {
  for (int r = 0; r < RANKS; ++r) {
    arfusionRequest_t request = rows_request(r, tokens);
    arfusionRoute_t route = {.size = sizeof route};
    request.flags = flags;
    if (plugin->enqueue(comms[r], &request, memory[r].stream[s], &route)) {
      fprintf(stderr, "enqueue: %s\n", plugin->getLastError());
      return 0;
    }
    if (route.algorithm == arfusionAlgoNone) return 0;
  }
  return 1;
}

static void test_set_up(void) {
  open_context(NULL, NULL);
  arfusionProperties_t properties = {.size = sizeof properties};
  CHECK(plugin->getProperties(ctx, gpus - 1, &properties));
  printf("%s at %s\n", properties.name, properties.pciBusId);
  expect(!properties.isHost && properties.deviceOrdinal == gpus - 1 && properties.computeMajor >= 8,
         "properties of a GPU");
  const double start = seconds();
  open_comms(NULL);
  printf("set-up with the default workspace: %.2f s\n", seconds() - start);
  arfusionCapacity_t capacity = {.size = sizeof capacity};
  CHECK(plugin->commGetCapacity(comms[0], &capacity));
  expect(capacity.maxRequestBytes == 16384ll * 8192 * 2 && capacity.workspaceBytes <= 288 << 20,
         "the default capacity");
  close_comms();
}

static void test_eager(void) {
  open_comms(NULL);
  outputs_clear();
  int ok = 1;
  for (int k = 0; k < 50; ++k) ok &= enqueue_rows(1 + k % 64, 0, k % 2 ? ARFUSION_FLAG_DEPENDENT_LAUNCH : 0);
  outputs_clear();
  ok &= enqueue_rows(TOKENS, 0, ARFUSION_FLAG_DEPENDENT_LAUNCH | ARFUSION_FLAG_EARLY_TRIGGER);
  streams_sync();
  expect(ok && rows_right(TOKENS), "eager operations");

  rank_use(1);
  ok = enqueue_rows(3, 0, 0);
  int device = -1;
  CHECK(cudaGetDevice(&device));
  streams_sync();
  expect(ok && device == 1 % gpus, "the current device stays");
  close_comms();
}

/* What is turned down leaves no node, and what is not leaves one. */
static void test_capture(void) {
  cudaGraphExec_t exec[RANKS];
  cudaGraph_t graph;
  open_comms(NULL);
  outputs_clear();
  int ok = 1;
  for (int r = 0; r < RANKS; ++r) {
    rank_use(r);
    CHECK(cudaStreamBeginCapture(memory[r].stream[0], cudaStreamCaptureModeGlobal));
    for (int k = 0; k < 20; ++k) {
      arfusionRequest_t request = rows_request(r, 1 + k);
      arfusionRoute_t route = {.size = sizeof route};
      request.flags = ARFUSION_FLAG_DEPENDENT_LAUNCH;
      ok &= plugin->enqueue(comms[r], &request, memory[r].stream[0], &route) == arfusionSuccess;
      if (k == 10) {
        request.operation = arfusionMax;
        ok &= plugin->enqueue(comms[r], &request, memory[r].stream[0], &route) == arfusionSuccess;
        ok &= route.reason == arfusionReasonOperation;
      }
    }
    CHECK(cudaStreamEndCapture(memory[r].stream[0], &graph));
    size_t nodes = 0;
    CHECK(cudaGraphGetNodes(graph, NULL, &nodes));
    ok &= nodes == 20;
    CHECK(cudaGraphInstantiate(&exec[r], graph, 0));
    CHECK(cudaGraphDestroy(graph));
  }
  for (int r = 0; r < RANKS; ++r) {
    rank_use(r);
    CHECK(cudaGraphLaunch(exec[r], memory[r].stream[0]));
  }
  streams_sync();
  expect(ok && rows_right(20), "captured operations");
  for (int r = 0; r < RANKS; ++r) CHECK(cudaGraphExecDestroy(exec[r]));
  close_comms();
}

/* Nothing is allocated for an operation, on the device or on the host. The first pass fills the driver's own pools. */
static void test_no_allocation(void) {
  size_t before = 0, after = 0, total;
  struct mallinfo2 heap_before = {0}, heap_after = {0};
  int ok = 1;
  open_comms(NULL);
  for (int pass = 0; pass < 2; ++pass) {
    CHECK(cudaMemGetInfo(&before, &total));
    heap_before = mallinfo2();
    for (int k = 0; k < 2000; ++k) {
      ok &= enqueue_rows(8, 0, 0);
      if (k % 100 == 99) streams_sync();
    }
    heap_after = mallinfo2();
    CHECK(cudaMemGetInfo(&after, &total));
  }
  printf("2,000 operations: device memory %+lld bytes, heap %+lld bytes\n", (long long)before - (long long)after,
         (long long)heap_after.uordblks - (long long)heap_before.uordblks);
  expect(ok && before == after, "no device memory is taken by operations");
  expect(heap_after.uordblks < heap_before.uordblks + 4096, "no heap memory is taken by operations");
  close_comms();
}

static void test_nothing_is_left(void) {
  size_t before = 0, after = 0, total;
  open_comms(NULL);
  close_comms();
  CHECK(cudaMemGetInfo(&before, &total));
  const int descriptors = open_descriptors();
  const arfusionConfig_t config = {
      .size = sizeof config, .maxTokens = 64, .hidden = HIDDEN, .dataType = arfusionBfloat16};
  for (int k = 0; k < 30; ++k) {
    open_comms(&config);
    enqueue_rows(4, 0, 0);
    streams_sync();
    close_comms();
  }
  CHECK(cudaMemGetInfo(&after, &total));
  expect(before <= after, "device memory comes back");
  expect(open_descriptors() == descriptors, "descriptors come back");
}

/* Rank 1 never calls. */
static void test_time_out(void) {
  arfusionResult_t async = arfusionSuccess;
  char text[256];
  void *others[RANKS], *usual = ctx;
  open_comms(NULL);
  memcpy(others, comms, sizeof others);
  open_context("ARFUSION_TIMEOUT", "1");
  open_comms(NULL);
  arfusionRequest_t request = rows_request(0, 4);
  arfusionRoute_t route = {.size = sizeof route};
  const double start = seconds();
  CHECK(plugin->enqueue(comms[0], &request, memory[0].stream[0], &route));
  CHECK(cudaStreamSynchronize(memory[0].stream[0]));
  const double elapsed = seconds() - start;
  plugin->commGetAsyncError(comms[0], &async, text, sizeof text);
  printf("time-out after %.2f s: %s\n", elapsed, text);
  expect(elapsed > 0.9 && elapsed < 3, "a wait ends after ARFUSION_TIMEOUT");
  expect(async == arfusionRemoteError && strstr(text, "rank 0 waited for rank 1"), "who waited for whom is known");
  expect(plugin->enqueue(comms[0], &request, memory[0].stream[0], &route) != arfusionSuccess, "later calls fail");
  request = rows_request(1, 4);
  const double peer_start = seconds();
  plugin->enqueue(comms[1], &request, memory[1].stream[0], &route);
  rank_use(1);
  CHECK(cudaStreamSynchronize(memory[1].stream[0]));
  plugin->commGetAsyncError(comms[1], &async, text, sizeof text);
  expect(seconds() - peer_start < 0.5 && async == arfusionRemoteError, "the peer fails at once");
  close_comms();
  plugin->finalize(ctx);
  ctx = usual;
  memcpy(comms, others, sizeof others);
  outputs_clear();
  const int ok = enqueue_rows(5, 0, 0);
  streams_sync();
  expect(ok && rows_right(5), "other communicators live on");
  close_comms();
}

static void* abort_later(void* comm) {
  usleep(200000);
  plugin->commAbort(comm);
  return NULL;
}

static void test_abort(void) {
  pthread_t thread;
  arfusionResult_t async = arfusionSuccess;
  char text[256];
  open_comms(NULL);
  const arfusionRequest_t request = rows_request(0, 4);
  arfusionRoute_t route = {.size = sizeof route};
  CHECK(plugin->enqueue(comms[0], &request, memory[0].stream[0], &route));
  const double start = seconds();
  pthread_create(&thread, NULL, abort_later, comms[0]);
  CHECK(cudaStreamSynchronize(memory[0].stream[0]));
  pthread_join(thread, NULL);
  expect(seconds() - start < 1, "an abort ends the wait within a second");
  plugin->commGetAsyncError(comms[0], &async, text, sizeof text);
  expect(async != arfusionSuccess, "the communicator has failed");
  close_comms();

  open_comms(NULL); /* rank 1, which runs nothing, aborts: rank 0, which waits for it, is let go */
  CHECK(plugin->enqueue(comms[0], &request, memory[0].stream[0], &route));
  const double idle_start = seconds();
  pthread_create(&thread, NULL, abort_later, comms[1]);
  CHECK(cudaStreamSynchronize(memory[0].stream[0]));
  pthread_join(thread, NULL);
  plugin->commGetAsyncError(comms[0], &async, text, sizeof text);
  printf("after the peer's abort: %s\n", text);
  expect(seconds() - idle_start < 1 && async == arfusionRemoteError, "an idle rank's abort lets its peers go");
  close_comms();
}

/* A graph that contains an operation does not wait again once the communicator has failed. */
static void test_replay_after_failure(void) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  plugin->finalize(ctx);
  open_context("ARFUSION_TIMEOUT", "1");
  open_comms(NULL);
  const arfusionRequest_t request = rows_request(0, 4);
  arfusionRoute_t route = {.size = sizeof route};
  rank_use(0);
  CHECK(cudaStreamBeginCapture(memory[0].stream[0], cudaStreamCaptureModeThreadLocal));
  for (int k = 0; k < 5; ++k) CHECK(plugin->enqueue(comms[0], &request, memory[0].stream[0], &route));
  CHECK(cudaStreamEndCapture(memory[0].stream[0], &graph));
  CHECK(cudaGraphInstantiate(&exec, graph, 0));
  const double start = seconds();
  for (int k = 0; k < 100; ++k) CHECK(cudaGraphLaunch(exec, memory[0].stream[0]));
  CHECK(cudaStreamSynchronize(memory[0].stream[0]));
  expect(seconds() - start < 2.5, "a graph replay after a failure does not wait again");
  CHECK(cudaGraphExecDestroy(exec));
  CHECK(cudaGraphDestroy(graph));
  close_comms();
  plugin->finalize(ctx);
  open_context(NULL, NULL);
}

int main(void) {
  if (ranks_find_gpus() == 0) {
    printf("a GPU is needed\n");
    return 77;
  }
  memory_create();
  test_set_up();
  test_eager();
  test_capture();
  test_no_allocation();
  test_nothing_is_left();
  test_time_out();
  test_abort();
  test_replay_after_failure();
  plugin->finalize(ctx);
  return finish();
}
