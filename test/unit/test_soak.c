/* SPDX-License-Identifier: Apache-2.0
 *
 * test_soak.c: the plugin on the host device for a long time: communicators of 2 to 8 ranks, threads or processes, made
 * and destroyed; operations of random shapes, patterns, data types, quantizations, algorithms, outputs, strides and
 * alignment, all bytes compared with the reference; ranks killed or stopped at any time; memory and descriptors stay as
 * they are.
 *
 *   test_soak [SECONDS [SEED]]     (8 s, the time)
 */
#include <inttypes.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "test/gpu/limit.h"
#include "test/gpu/soak.h"
#include "test/unit/support.h"

#define MOST_RANKS 8
#define TIMEOUT_SECONDS 1
#define WARM_UP 6 /* generations after which memory must stay as it is */

static const arfusionPlugin_v1_t* const plugin = &arfusionPlugin_v1;

enum { PLAIN, SMALL, CHECKED, CONTEXTS }; /* a workspace that takes several launches; ARFUSION_CHECK and _COUNT_NAN */
static void* contexts[CONTEXTS][2]; /* [hasty] */

/* What all ranks of a generation see. */
struct shared {
  atomic_int running[MOST_RANKS];  /* has done an operation */
  atomic_int wrong, operations;
  int result[MOST_RANKS];          /* arfusionResult_t; -1: never came to its end */
  double seconds[MOST_RANKS];      /* of the last call */
  char text[MOST_RANKS][256];
};

/* One communicator's life. */
struct generation {
  void* ctx;
  arfusionUniqueId_t id;
  int nranks, passes, victim; /* victim: -1, or who is killed; then there are more passes than can be done */
  uint32_t agreed;            /* what all ranks draw from */
  struct soak soak;
  unsigned char* work;        /* [nranks][SOAK_ARENA_BYTES] */
  struct shared* shared;
};

static uint64_t seed;
static uint32_t random_state;
static uint32_t draw(uint32_t below) { return random_draw(&random_state, below); }

static void* shared_memory(size_t bytes) {
  void* p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (p != MAP_FAILED) return p;
  perror("mmap");
  exit(1);
}

/* ---------------------------------------------------------------- operations */

/* Operation k from its beginning; all of its bytes are looked at. */
static arfusionResult_t operation_run(const struct generation* g, void* comm, int r, int k, arfusionAlgorithm_t hint) {
  const struct soak* soak = &g->soak;
  unsigned char* work = g->work + (size_t)r * SOAK_ARENA_BYTES;
  const size_t at = soak->at[k][r], bytes = soak_bytes(soak, k, r);
  const arfusionRequest_t request = soak_request(soak, k, r, work, hint);
  arfusionRoute_t route = {.size = sizeof route};
  memcpy(work + at, soak->initial[r] + at, bytes);
  const arfusionResult_t result = plugin->enqueue(comm, &request, NULL, &route);
  if (result != arfusionSuccess) return result;
  atomic_fetch_add(&g->shared->operations, 1);
  if (route.algorithm >= arfusionAlgoOneshotLamport && !memcmp(work + at, soak->plan.arena[r] + at, bytes))
    return result;
  if (atomic_fetch_add(&g->shared->wrong, 1) < 5) {
    printf("rank %d of %d, algorithm %d, reason %d: ", r, g->nranks, route.algorithm, route.reason);
    plan_print(&soak->plan.planned[k].op[r], soak->plan.arena[r]);
    fflush(stdout);
  }
  return result;
}

/* ---------------------------------------------------------------- ranks */

static arfusionResult_t passes_run(const struct generation* g, void* comm, int r) {
  uint32_t agreed = g->agreed, own = random_seed(g->agreed, 10 + (uint32_t)r);
  arfusionResult_t result = arfusionSuccess;
  for (int i = 0; i < g->passes * g->soak.plan.count && result == arfusionSuccess; ++i) {
    const int k = (int)random_draw(&agreed, (uint32_t)g->soak.plan.count);
    const arfusionAlgorithm_t hint = soak_hint(random_draw(&agreed, 4));
    if (random_draw(&own, 16) == 0) support_sleep(1e-6 * random_draw(&own, 300));
    const double start = support_now();
    result = operation_run(g, comm, r, k, hint);
    g->shared->seconds[r] = support_now() - start;
    atomic_store(&g->shared->running[r], 1);
  }
  return result;
}

static void note(const struct generation* g, int r, arfusionResult_t result) {
  char* text = g->shared->text[r];
  if (result != arfusionSuccess && !text[0]) snprintf(text, sizeof g->shared->text[r], "%s", plugin->getLastError());
}

static void rank_run(const struct generation* g, int r) {
  const arfusionConfig_t config = {
      .size = sizeof config, .maxTokens = 1, .hidden = 300000, .dataType = arfusionFloat32};
  arfusionBootstrap_t bootstrap = {.size = sizeof bootstrap};
  void* comm;
  arfusionResult_t result = plugin->bootstrapUniqueId(g->ctx, &g->id, g->nranks, r, &bootstrap);
  if (result == arfusionSuccess) {
    result = plugin->commInit(g->ctx, 0, &config, &bootstrap, &comm);
    plugin->bootstrapDestroy(g->ctx, &bootstrap);
    if (result == arfusionSuccess) {
      result = passes_run(g, comm, r);
      note(g, r, result);
      plugin->commFinalize(comm);
    }
  }
  note(g, r, result);
  g->shared->result[r] = (int)result;
}

struct rank_thread {
  pthread_t thread;
  const struct generation* g;
  int r;
};

static void* rank_thread_run(void* argument) {
  const struct rank_thread* self = argument;
  rank_run(self->g, self->r);
  return NULL;
}

static void ranks_as_threads(const struct generation* g) {
  struct rank_thread threads[MOST_RANKS];
  for (int r = 0; r < g->nranks; ++r) {
    threads[r] = (struct rank_thread){.g = g, .r = r};
    if (pthread_create(&threads[r].thread, NULL, rank_thread_run, &threads[r])) exit(1);
  }
  for (int r = 0; r < g->nranks; ++r) pthread_join(threads[r].thread, NULL);
}

/* The victim is killed or stopped, during set-up or later. */
static void victim_end(const struct generation* g, pid_t victim) {
  const int stopped = draw(4) == 0, early = draw(4) == 0;
  for (int i = 0; i < 5000 && !early && !atomic_load(&g->shared->running[g->victim]); ++i) support_sleep(0.001);
  support_sleep(1e-6 * draw(20000));
  kill(victim, stopped ? SIGSTOP : SIGKILL);
  if (stopped) support_sleep(TIMEOUT_SECONDS + 0.5);
  kill(victim, SIGKILL);
}

static void ranks_as_processes(const struct generation* g) {
  pid_t pids[MOST_RANKS];
  fflush(stdout);
  for (int r = 0; r < g->nranks; ++r) {
    pids[r] = fork();
    if (pids[r] < 0) exit(1);
    if (pids[r] == 0) {
      alarm(60);
      rank_run(g, r);
      _exit(0);
    }
  }
  if (g->victim >= 0) victim_end(g, pids[g->victim]);
  for (int r = 0; r < g->nranks; ++r) waitpid(pids[r], NULL, 0);
}

/* ---------------------------------------------------------------- generations */

/* 0: as it should be. */
static int generation_check(const struct generation* g) {
  int bad = atomic_load(&g->shared->wrong) != 0;
  for (int r = 0; r < g->nranks; ++r) {
    const int result = g->shared->result[r], expected = g->victim < 0 ? arfusionSuccess : arfusionRemoteError;
    if (r == g->victim || (result == expected && (g->victim < 0 || g->shared->seconds[r] < TIMEOUT_SECONDS + 5)))
      continue;
    printf("rank %d of %d: %d after %.1f s, victim %d: %s\n", r, g->nranks, result, g->shared->seconds[r], g->victim,
           g->shared->text[r]);
    bad = 1;
  }
  return bad;
}

static int64_t operations;
static int killed;

static int generation_run(void) {
  const int processes = draw(2), nranks = 2 + (int)draw(draw(2) ? 2 : MOST_RANKS - 1);
  struct generation g = {.nranks = nranks, .passes = 1 + (int)draw(6), .victim = -1,
                         .agreed = random_seed(seed, draw(UINT32_MAX))};
  const size_t bytes = (size_t)nranks * SOAK_ARENA_BYTES;
  if (processes && draw(3) == 0) {
    g.victim = (int)draw((uint32_t)nranks);
    g.passes = 1000000;
  }
  g.ctx = contexts[draw(CONTEXTS)][g.victim >= 0]; /* where nobody dies no wait may end before its time */
  if (plugin->getUniqueId(g.ctx, &g.id) != arfusionSuccess) return 1;
  soak_make(&g.soak, nranks, random_seed(seed, draw(UINT32_MAX)));
  g.work = shared_memory(bytes);
  g.shared = shared_memory(sizeof *g.shared);
  for (int r = 0; r < nranks; ++r) g.shared->result[r] = -1;
  if (processes) ranks_as_processes(&g);
  else ranks_as_threads(&g);
  const int bad = generation_check(&g);
  operations += atomic_load(&g.shared->operations);
  killed += g.victim >= 0;
  munmap(g.work, bytes);
  munmap(g.shared, sizeof *g.shared);
  soak_free(&g.soak);
  return bad;
}

static void contexts_open(int hasty) {
  setenv("ARFUSION_DEVICE", "host", 1);
  setenv("ARFUSION_TIMEOUT", hasty ? "1" : "60", 1);
  setenv("ARFUSION_INIT_TIMEOUT", hasty ? "5" : "60", 1);
  contexts[PLAIN][hasty] = support_context();
  setenv("ARFUSION_WORKSPACE_LIMIT", "2M", 1);
  contexts[SMALL][hasty] = support_context();
  unsetenv("ARFUSION_WORKSPACE_LIMIT");
  setenv("ARFUSION_CHECK", "1", 1);
  setenv("ARFUSION_COUNT_NAN", "1", 1);
  contexts[CHECKED][hasty] = support_context();
  unsetenv("ARFUSION_CHECK");
  unsetenv("ARFUSION_COUNT_NAN");
  for (int c = 0; c < CONTEXTS; ++c) {
    if (!contexts[c][hasty]) exit(1);
  }
}

int main(int argc, char** argv) {
  const double limit = argc > 1 ? atof(argv[1]) : 8, start = support_now();
  int generations = 0, failed = 0, descriptors = 0;
  size_t heap = 0, heap_now = 0;
  seed = argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)time(NULL);
  random_state = random_seed(seed, 0);
  limit_start((unsigned)limit + 120);
  printf("seed %" PRIu64 "\n", seed);
  for (int hasty = 0; hasty < 2; ++hasty) contexts_open(hasty);
  for (; !failed && (generations <= WARM_UP || support_now() - start < limit); ++generations) {
    failed = generation_run();
    if (failed) printf("FAILED: generation %d\n", generations);
    heap_now = mallinfo2().uordblks;
    /* Chunks that threads keep for themselves count as used: not to the byte, as test_faults does. */
    if (generations == WARM_UP) heap = heap_now, descriptors = support_descriptors();
  }
  printf("%d communicators, %" PRId64
         " operations of single ranks, %d ranks killed or stopped, %.0f s; heap %+lld bytes\n",
         generations, operations, killed, support_now() - start, (long long)heap_now - (long long)heap);
  if (!failed &&
      (heap_now > heap + 262144 || support_descriptors() != descriptors || support_mappings("arfusion-workspace"))) {
    printf("FAILED: memory or descriptors are left over\n");
    failed = 1;
  }
  for (int c = 0; c < 2 * CONTEXTS; ++c) plugin->finalize(contexts[c / 2][c % 2]);
  printf("%d passed, %d failed\n", generations - failed, failed);
  return failed;
}
