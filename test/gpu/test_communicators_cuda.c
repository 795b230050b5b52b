/* SPDX-License-Identifier: Apache-2.0
 *
 * test_communicators_cuda.c: the plugin on GPUs for a long time: communicators of 2 to 4 ranks made and destroyed, on
 * two GPUs or one; random requests, eager on two streams or as graphs that are replayed, all bytes compared with the
 * reference; memory and descriptors stay as they are. One thread drives all ranks. Kernels alone, faster:
 * test_soak_cuda.c; peers that die: test_watchdog_cuda.c.
 *
 *   test_communicators_cuda [SECONDS [SEED]]     (20 s, the time)
 */
#include <inttypes.h>
#include <malloc.h>

#include "test/gpu/limit.h"
#include "test/gpu/ranks.h"
#include "test/gpu/soak.h"

#define MOST_RANKS 4
#define BATCH 6   /* requests between two looks at the bytes */
#define WARM_UP 6 /* communicators after which memory must stay as it is */

extern const arfusionPlugin_v1_t arfusionPlugin_v1;
static const arfusionPlugin_v1_t* const plugin = &arfusionPlugin_v1;

enum { PLAIN, CHECKED, CONTEXTS }; /* ARFUSION_CHECK and ARFUSION_COUNT_NAN */
static void* contexts[CONTEXTS];

struct rank {
  void* comm;
  cudaStream_t stream[2];
  unsigned char *work, *looked_at; /* [SOAK_ARENA_BYTES] on the GPU, and in host memory */
};

static struct rank ranks[MOST_RANKS];
static struct soak soak;
static int nranks;
static uint64_t seed;
static uint32_t random_state;
static int64_t operations, replays;

static uint32_t draw(uint32_t below) { return random_draw(&random_state, below); }

/* ---------------------------------------------------------------- a batch of requests */

struct batch {
  int count, operation[BATCH], stream[BATCH];
  arfusionAlgorithm_t hint[BATCH];
};

/* Each operation at most once, as it has but one place. */
static struct batch batch_draw(int one_stream) {
  struct batch b = {.count = 0};
  const int wanted = 1 + (int)draw(BATCH), first = (int)draw((uint32_t)soak.plan.count), step = 1 + (int)draw(2) * 4;
  for (int i = 0; i < wanted && i * step < soak.plan.count; ++i, ++b.count) {
    b.operation[i] = (first + i * step) % soak.plan.count;
    b.stream[i] = one_stream ? 0 : (int)draw(2);
    b.hint[i] = soak_hint(draw(4));
  }
  return b;
}

static void batch_restore(const struct batch* b) {
  for (int r = 0; r < nranks; ++r) {
    rank_use(r);
    for (int i = 0; i < b->count; ++i) {
      const size_t at = soak.at[b->operation[i]][r];
      CHECK(cudaMemcpy(ranks[r].work + at, soak.initial[r] + at, soak_bytes(&soak, b->operation[i], r),
                       cudaMemcpyHostToDevice));
    }
    CHECK(cudaDeviceSynchronize());
  }
}

/* Request i of the batch on rank r. */
static int batch_enqueue(const struct batch* b, int i, int r) {
  const arfusionRequest_t request = soak_request(&soak, b->operation[i], r, ranks[r].work, b->hint[i]);
  arfusionRoute_t route = {.size = sizeof route};
  const int result = plugin->enqueue(ranks[r].comm, &request, ranks[r].stream[b->stream[i]], &route);
  ++operations;
  if (result == arfusionSuccess && route.algorithm >= arfusionAlgoOneshotLamport) return 1;
  printf("rank %d: %d, reason %d: %s\n", r, result, (int)route.reason, plugin->getLastError());
  return 0;
}

static int batch_right(const struct batch* b) {
  int right = 1;
  for (int r = 0; r < nranks; ++r) {
    arfusionResult_t async = arfusionSuccess;
    char text[512];
    rank_use(r);
    CHECK(cudaDeviceSynchronize());
    plugin->commGetAsyncError(ranks[r].comm, &async, text, sizeof text);
    if (async != arfusionSuccess) printf("rank %d: %s\n", r, text);
    right &= async == arfusionSuccess;
    for (int i = 0; i < b->count; ++i) {
      const int k = b->operation[i];
      const size_t at = soak.at[k][r], bytes = soak_bytes(&soak, k, r);
      CHECK(cudaMemcpy(ranks[r].looked_at + at, ranks[r].work + at, bytes, cudaMemcpyDeviceToHost));
      if (!memcmp(ranks[r].looked_at + at, soak.plan.arena[r] + at, bytes)) continue;
      printf("rank %d of %d, hint %d, stream %d: ", r, nranks, (int)b->hint[i], b->stream[i]);
      plan_print(&soak.plan.planned[k].op[r], soak.plan.arena[r]);
      right = 0;
    }
  }
  return right;
}

static int run_eager(void) {
  const struct batch b = batch_draw(0);
  int ok = 1;
  batch_restore(&b);
  for (int i = 0; i < b.count; ++i) {
    for (int r = 0; r < nranks; ++r) ok &= batch_enqueue(&b, i, r);
  }
  return ok && batch_right(&b);
}

static int run_graph(void) {
  const struct batch b = batch_draw(1);
  const int times = 1 + (int)draw(4);
  cudaGraphExec_t exec[MOST_RANKS];
  int ok = 1;
  for (int r = 0; r < nranks; ++r) {
    cudaGraph_t graph;
    rank_use(r);
    CHECK(cudaStreamBeginCapture(ranks[r].stream[0], cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < b.count; ++i) ok &= batch_enqueue(&b, i, r);
    CHECK(cudaStreamEndCapture(ranks[r].stream[0], &graph));
    CHECK(cudaGraphInstantiate(&exec[r], graph, 0));
    CHECK(cudaGraphDestroy(graph));
  }
  for (int k = 0; k < times && ok; ++k, ++replays) {
    batch_restore(&b);
    for (int r = 0; r < nranks; ++r) {
      rank_use(r);
      CHECK(cudaGraphLaunch(exec[r], ranks[r].stream[0]));
    }
    ok &= batch_right(&b);
  }
  for (int r = 0; r < nranks; ++r) CHECK(cudaGraphExecDestroy(exec[r]));
  return ok;
}

/* ---------------------------------------------------------------- communicators */

static int communicators_run(void) {
  static const arfusionConfig_t config = {
      .size = sizeof config, .maxTokens = 1, .hidden = 300000, .dataType = arfusionFloat32};
  void* const ctx = contexts[draw(CONTEXTS)];
  void* comms[MOST_RANKS];
  int devs[MOST_RANKS], ok = 1;
  nranks = draw(2) ? 2 : 2 + (int)draw(MOST_RANKS - 1);
  for (int r = 0; r < nranks; ++r) devs[r] = r % gpus;
  soak_make(&soak, nranks, random_seed(seed, draw(UINT32_MAX)));
  const int result = plugin->commInitAll(ctx, nranks, devs, &config, comms);
  if (result) printf("commInitAll: %s\n", plugin->getLastError());
  if (result) return 0;
  for (int r = 0; r < nranks; ++r) ranks[r].comm = comms[r];
  for (int k = 1 + (int)draw(20); k > 0 && ok; --k) ok &= draw(2) ? run_eager() : run_graph();
  for (int r = 0; r < nranks; ++r) CHECK(plugin->commFinalize(comms[r]));
  soak_free(&soak);
  return ok;
}

static void open_contexts(void) {
  setenv("ARFUSION_SHARED_GPU", "1", 1);
  setenv("ARFUSION_TIMEOUT", "30", 1);
  CHECK(plugin->init(&contexts[PLAIN], NULL));
  setenv("ARFUSION_CHECK", "1", 1);
  setenv("ARFUSION_COUNT_NAN", "1", 1);
  CHECK(plugin->init(&contexts[CHECKED], NULL));
}

static void open_ranks(void) {
  for (int r = 0; r < MOST_RANKS; ++r) {
    rank_use(r);
    for (int s = 0; s < 2; ++s) CHECK(cudaStreamCreateWithFlags(&ranks[r].stream[s], cudaStreamNonBlocking));
    CHECK(cudaMalloc((void**)&ranks[r].work, SOAK_ARENA_BYTES));
    ranks[r].looked_at = plan_allocate(SOAK_ARENA_BYTES);
  }
}

static size_t device_memory_free(void) {
  size_t least = SIZE_MAX, now, total;
  for (int g = 0; g < gpus; ++g) {
    CHECK(cudaSetDevice(g));
    CHECK(cudaMemGetInfo(&now, &total));
    least = now < least ? now : least;
  }
  return least;
}

int main(int argc, char** argv) {
  const double limit = argc > 1 ? atof(argv[1]) : 20, start = seconds();
  size_t device = 0, heap = 0;
  int descriptors = 0, count = 0, ok = 1;
  seed = argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)time(NULL);
  random_state = random_seed(seed, 0);
  if (ranks_find_gpus() == 0) {
    printf("no GPU\n");
    return 77;
  }
  limit_start((unsigned)limit + 120);
  printf("seed %" PRIu64 "\n", seed);
  open_contexts();
  open_ranks();
  for (; ok && (count <= WARM_UP || seconds() - start < limit); ++count) {
    ok = communicators_run();
    expect(ok, "a communicator's requests");
    if (count != WARM_UP) continue;
    device = device_memory_free();
    heap = mallinfo2().uordblks;
    descriptors = open_descriptors();
  }
  const size_t device_now = device_memory_free(), heap_now = mallinfo2().uordblks;
  printf("%d communicators, %" PRId64 " operations of single ranks, %" PRId64
         " replays, %.0f s; device memory %+lld, heap %+lld "
         "bytes\n",
         count, operations, replays, seconds() - start, (long long)device - (long long)device_now,
         (long long)heap_now - (long long)heap);
  expect(device_now + (8 << 20) >= device, "device memory comes back");
  expect(heap_now < heap + (1 << 20), "so does the heap");
  expect(open_descriptors() == descriptors, "so do descriptors");
  for (int c = 0; c < CONTEXTS; ++c) plugin->finalize(contexts[c]);
  return finish();
}
