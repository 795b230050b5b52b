/* SPDX-License-Identifier: Apache-2.0
 *
 * test_soak_cuda.c: very many operations back to back: random sizes, patterns, data types, algorithms, outputs,
 * strides and alignment, single ranks delayed on the GPU or the host, and epochs that start just below every wrap. See
 * usage().
 *
 * A pool of problems, of one to three operations each, is made first, with the bits that must come of them. Ranks then
 * run problems of the pool in the same random order, several in a row: copied to where they are worked on, run, and
 * compared with what must have come of every byte, all of it on the GPU. What has been found is read at the end of a
 * phase, which is also when epochs are set.
 *
 * Ranks are threads, or processes: a tool that makes a process wait for each of its kernels leaves only the latter
 * alive.
 */
#include <inttypes.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "kernels/cuda/cuda_internal.h"
#include "test/gpu/limit.h"
#include "test/gpu/plan.h"
#include "test/gpu/support.h"
#include "test/gpu/world.h"

#define MOST_PHASES 40
#define LEAST_OF_A_PHASE 50 /* operations: enough to pass a wrap */
#define POOLS_BYTES ((size_t)192 << 20) /* of all ranks together */
#define MOST_OPERATIONS 1600            /* in a pool */
#define MOST_OF_A_PROBLEM 3
#define SLOT_BYTES ((int64_t)1 << 20)
#define TIMEOUT_NS (30ull * 1000 * 1000 * 1000)
#define LIMIT_SECONDS 400
#define PRINTED 5 /* failures of a rank and phase that are told in full */

enum mode { MODE_THREADS, MODE_PROCESSES, MODE_MISTAKE };

struct problem {
  int first, count;                  /* operations of the plan */
  size_t at[ARFUSION_MAX_RANKS];     /* where it begins in a rank's arena */
  size_t bytes[ARFUSION_MAX_RANKS];  /* with what may not be written behind it */
};

/* A run of a problem, as one rank remembers it. */
struct use {
  int problem;
  arfusionAlgorithm_t algorithm[MOST_OF_A_PROBLEM];
  uint32_t flags[MOST_OF_A_PROBLEM];
};

/* A rank's memory on its GPU. */
struct rank {
  unsigned char *initial, *expected; /* the pool: before and after */
  unsigned char* work;
  uint32_t* word;              /* an allocation of 4 bytes */
  struct support_found* found; /* [uses of a phase] */
  struct use* uses;
  int nuses;
  double enqueued; /* seconds that the launches of a phase took; as long as a time-out: something held them up */
  uint32_t random;
};

/* What ranks share, be they threads or processes. */
struct meeting {
  pthread_barrier_t barrier;
  void* workspace[ARFUSION_MAX_RANKS];
  cudaIpcMemHandle_t handle[ARFUSION_MAX_RANKS];
  int wrong[ARFUSION_MAX_RANKS]; /* phases in which that rank has found something */
  int phases;                    /* done by all */
  int gpus;
};

static int64_t operations = 100000;
static uint64_t seed;
static int nranks = 2, nphases;
static size_t pool_bytes; /* of a rank */
static enum mode mode = MODE_THREADS;

static struct plan plan;
static struct problem* problems;
static int nproblems;
static unsigned char* initial[ARFUSION_MAX_RANKS]; /* the plan's arenas before the reference has run on them */
static struct meeting* meeting;
static struct world world;

/* ---------------------------------------------------------------- the pool */

static int next_problem; /* of those that wait for the reference */

static void* reference_run(void* unused) {
  for (;;) {
    const int p = __atomic_fetch_add(&next_problem, 1, __ATOMIC_RELAXED);
    if (p >= nproblems) return unused;
    for (int k = 0; k < problems[p].count; ++k) plan_reference(&plan, problems[p].first + k);
  }
}

/* All operations fit a launch of every algorithm. */
static int operation_add(void) {
  for (;;) {
    const struct plan_shape s = plan_draw_shape(&plan);
    if (kernel_slot_bytes(s.tokens, s.hidden, s.dtype) <= SLOT_BYTES) return plan_add(&plan, &s);
  }
}

static void pool_make(void) {
  pool_bytes = POOLS_BYTES / (size_t)nranks / 256 * 256;
  plan_make(&plan, nranks, pool_bytes, MOST_OPERATIONS, random_seed(seed, 0));
  problems = plan_allocate(MOST_OPERATIONS * sizeof *problems);
  for (;;) {
    struct problem* p = &problems[nproblems];
    p->first = plan.first = plan.count;
    p->count = nproblems == 0 ? 1 : 1 + (int)plan_draw(&plan, MOST_OF_A_PROBLEM); /* one fits every rest of a phase */
    for (int r = 0; r < nranks; ++r) p->at[r] = (plan.used[r] + 255) / 256 * 256;
    int added = 0;
    while (added < p->count && operation_add()) ++added;
    if (added < p->count) break; /* full */
    for (int r = 0; r < nranks; ++r) p->bytes[r] = (plan.used[r] + 255) / 256 * 256 - p->at[r];
    ++nproblems;
  }
  for (int r = 0; r < nranks; ++r) {
    initial[r] = plan_allocate(pool_bytes);
    memcpy(initial[r], plan.arena[r], pool_bytes);
  }
  long cores = sysconf(_SC_NPROCESSORS_ONLN);
  cores = cores < 1 ? 1 : cores > 64 ? 64 : cores;
  pthread_t threads[64];
  for (int t = 0; t < cores; ++t) pthread_create(&threads[t], NULL, reference_run, NULL);
  for (int t = 0; t < cores; ++t) pthread_join(threads[t], NULL);
}

/* ---------------------------------------------------------------- a rank's set-up */

static void meet(void) { pthread_barrier_wait(&meeting->barrier); }

/* Rank r's own part of the world, and its peers' workspaces. */
static void connect(int r, int gpus) {
  struct cuda_comm* comm = &world.comm[r];
  world_rank_make(&world, r, nranks, gpus, SLOT_BYTES, world_max_blocks(nranks, gpus), TIMEOUT_NS);
  CHECK(support_load());
  meeting->workspace[r] = comm->workspace[r];
  if (mode != MODE_THREADS) CHECK(cudaIpcGetMemHandle(&meeting->handle[r], comm->workspace[r]));
  meet();
  for (int p = 0; p < nranks; ++p) {
    if (p == r) continue;
    if (mode == MODE_THREADS) {
      comm->workspace[p] = meeting->workspace[p];
    } else {
      CHECK(cudaIpcOpenMemHandle(&comm->workspace[p], meeting->handle[p], cudaIpcMemLazyEnablePeerAccess));
    }
  }
}

static int64_t operations_of(int phase) { return operations * (phase + 1) / nphases - operations * phase / nphases; }

static void rank_make(struct rank* rank, int r) {
  int64_t most = 1;
  size_t largest = 0;
  *rank = (struct rank){.random = random_seed(seed, 100 + (uint32_t)r)};
  for (int phase = 0; phase < nphases; ++phase) most = operations_of(phase) > most ? operations_of(phase) : most;
  for (int p = 0; p < nproblems; ++p) largest = problems[p].bytes[r] > largest ? problems[p].bytes[r] : largest;
  rank->uses = plan_allocate((size_t)most * sizeof *rank->uses);
  CHECK(cudaMalloc((void**)&rank->initial, pool_bytes));
  CHECK(cudaMalloc((void**)&rank->expected, pool_bytes));
  CHECK(cudaMalloc((void**)&rank->work, SUPPORT_RANGES * largest));
  CHECK(cudaMalloc((void**)&rank->word, sizeof *rank->word));
  CHECK(cudaMalloc((void**)&rank->found, (size_t)(most + SUPPORT_RANGES) * sizeof *rank->found));
  CHECK(cudaMemcpy(rank->initial, initial[r], pool_bytes, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(rank->expected, plan.arena[r], pool_bytes, cudaMemcpyHostToDevice));
  CHECK(cudaDeviceSynchronize());
}

/* As if `epoch` operations had been done, the last of them by every block. */
static void epoch_set(int r, uint64_t epoch) {
  const uint64_t word = epoch * CUDA_EPOCH;
  uint64_t staged[CUDA_SYNC_BLOCKS][ARFUSION_MAX_RANKS];
  unsigned char* control = (unsigned char*)world.comm[r].workspace[r] + world.comm[r].layout.control;
  for (int b = 0; b < CUDA_SYNC_BLOCKS; ++b) {
    for (int p = 0; p < ARFUSION_MAX_RANKS; ++p) staged[b][p] = word;
  }
  CHECK(cudaMemcpy(control + offsetof(struct cuda_control, epoch), &word, sizeof word, cudaMemcpyHostToDevice));
  CHECK(cudaMemcpy(control + offsetof(struct cuda_control, staged), staged, sizeof staged, cudaMemcpyHostToDevice));
  CHECK(cudaDeviceSynchronize());
}

/* The epoch's word. */
static uint64_t epoch_get(int r) {
  uint64_t word;
  const unsigned char* control = (unsigned char*)world.comm[r].workspace[r] + world.comm[r].layout.control;
  CHECK(cudaMemcpy(&word, control + offsetof(struct cuda_control, epoch), sizeof word, cudaMemcpyDeviceToHost));
  return word;
}

/* ---------------------------------------------------------------- running */

/* Now and then something keeps this rank from its next launch. */
static void delay(struct rank* rank, int r) {
  if (random_draw(&rank->random, 16) != 0) return;
  if (random_draw(&rank->random, 4) == 0)
    usleep(1 + random_draw(&rank->random, 200));
  else
    CHECK(support_delay(1000 + random_draw(&rank->random, 1000u << random_draw(&rank->random, 7)), world.stream[r]));
}

/* The next problem, and with which algorithms: drawn alike by all ranks. */
static struct use use_draw(uint32_t* agreed, int64_t left) {
  struct use use = {.problem = (int)random_draw(agreed, (uint32_t)nproblems)};
  while (problems[use.problem].count > left) use.problem = (use.problem + 1) % nproblems;
  for (int k = 0; k < MOST_OF_A_PROBLEM; ++k)
    use.algorithm[k] = (arfusionAlgorithm_t)(arfusionAlgoOneshotLamport + (int)random_draw(agreed, 3));
  return use;
}

static void phase_run(struct rank* rank, int r, int phase) {
  uint32_t agreed = random_seed(seed, 1000 + (uint32_t)phase);
  const double start = world_seconds();
  rank->nuses = 0;
  for (int64_t left = operations_of(phase); left > 0;) {
    struct support_ranges before = {.count = 0}, after = {.count = 0};
    struct use* uses = &rank->uses[rank->nuses];
    const int wanted = 1 + (int)random_draw(&rank->random, SUPPORT_RANGES);
    unsigned char* work = rank->work;
    for (; before.count < wanted && left > 0; ++before.count, ++after.count) {
      struct use* use = &uses[before.count];
      *use = use_draw(&agreed, left);
      const struct problem* p = &problems[use->problem];
      const struct support_range range = {.to = work, .bytes = p->bytes[r]};
      before.range[before.count] = after.range[after.count] = range;
      before.range[before.count].from = rank->initial + p->at[r];
      after.range[after.count].from = rank->expected + p->at[r];
      work += p->bytes[r];
      left -= p->count;
    }
    CHECK(support_copy(&before, world.stream[r]));
    for (int u = 0; u < before.count; ++u) {
      const struct problem* p = &problems[uses[u].problem];
      for (int k = 0; k < p->count; ++k) {
        struct kernel_op op =
            plan_op(&plan.planned[p->first + k].op[r], plan.arena[r] + p->at[r], before.range[u].to);
        op.flags = uses[u].flags[k] = random_draw(&rank->random, 4); /* dependent launch, early trigger */
        delay(rank, r);
        CHECK(cuda_launch(&world.comm[r], uses[u].algorithm[k], &op, world.stream[r]));
      }
    }
    CHECK(support_compare(&after, rank->found + rank->nuses, 0, world.stream[r]));
    rank->nuses += before.count;
  }
  rank->enqueued = world_seconds() - start;
}

static void use_print(int r, const struct use* use, const struct support_found* found) {
  const struct problem* p = &problems[use->problem];
  printf("rank %d, problem %d: %u vectors of 16 bytes differ from byte %u of %zu on\n", r, use->problem, found->vectors,
         ~found->first * 16, p->bytes[r]);
  for (int k = 0; k < p->count; ++k) {
    struct kernel_op op = plan.planned[p->first + k].op[r];
    op.flags = use->flags[k];
    printf("  algorithm %d: ", (int)use->algorithm[k]);
    plan_print(&op, plan.arena[r] + p->at[r]);
  }
}

/* What this rank has found in a phase; 0: nothing. */
static int phase_check(const struct rank* rank, int r, uint64_t epoch, int64_t done) {
  struct support_found* found = plan_allocate((size_t)rank->nuses * sizeof *found);
  int wrong = 0;
  CHECK(cudaMemcpy(found, rank->found, (size_t)rank->nuses * sizeof *found, cudaMemcpyDeviceToHost));
  for (int u = 0; u < rank->nuses; ++u) {
    if (found[u].vectors != 0 && ++wrong <= PRINTED) use_print(r, &rank->uses[u], &found[u]);
  }
  free(found);
  if (wrong != 0) {
    printf("rank %d: %d of %d problems went wrong, enqueued in %.1f s\n", r, wrong, rank->nuses, rank->enqueued);
  }
  const uint64_t now = epoch_get(r);
  if (now != (epoch + (uint64_t)done) * CUDA_EPOCH) {
    printf("rank %d: the epoch's word is %" PRIx64 ", not that of %" PRIx64 " + %" PRId64 "\n", r, now, epoch, done);
    wrong = 1;
  }
  if (!world_rank_healthy(&world, r)) wrong = 1;
  fflush(stdout);
  return wrong != 0;
}

/* Where a phase's epochs start: at 0, or just below a wrap of the 32 bits that kernels use, of a sign, or of all 48. */
static uint64_t phase_epoch(int phase) {
  static const uint64_t wraps[] = {0, (uint64_t)1 << 32, 0, (uint64_t)1 << 31, (uint64_t)1 << 47};
  uint32_t random = random_seed(seed, 2000 + (uint32_t)phase);
  return phase == 0 ? 0 : wraps[phase % 5] - 1 - random_draw(&random, 20);
}

static int rank_run(int r) {
  struct rank rank;
  const int gpus = world_gpus();
  if (gpus == 0) return 77;
  if (r == 0) meeting->gpus = gpus;
  connect(r, gpus);
  rank_make(&rank, r);
  if (mode == MODE_MISTAKE) CHECK(support_mistake(rank.word, world.stream[r]));
  for (int phase = 0; phase < nphases; ++phase) {
    const uint64_t epoch = phase_epoch(phase);
    CHECK(cudaMemset(rank.found, 0, (size_t)(operations_of(phase) + SUPPORT_RANGES) * sizeof *rank.found));
    world_rank_reset(&world, r);
    epoch_set(r, epoch);
    meet(); /* nobody begins before all are ready */
    phase_run(&rank, r, phase);
    CHECK(cudaStreamSynchronize(world.stream[r]));
    meeting->wrong[r] += phase_check(&rank, r, epoch, operations_of(phase));
    meet(); /* all have ended */
    int wrong = 0;
    for (int p = 0; p < nranks; ++p) wrong += meeting->wrong[p];
    if (r == 0) meeting->phases = phase + 1;
    if (wrong != 0) break;
  }
  meet(); /* nobody's workspace goes before all have ended */
  return 0;
}

/* ---------------------------------------------------------------- ranks */

static void* thread_run(void* argument) {
  const int r = (int)(intptr_t)argument;
  return (void*)(intptr_t)rank_run(r);
}

static int run_threads(void) {
  pthread_t threads[ARFUSION_MAX_RANKS];
  int status = 0;
  const int gpus = world_gpus();
  if (gpus == 0) return 77;
  world_enable_peers(gpus);
  for (int r = 0; r < nranks; ++r) pthread_create(&threads[r], NULL, thread_run, (void*)(intptr_t)r);
  for (int r = 0; r < nranks; ++r) {
    void* result;
    pthread_join(threads[r], &result);
    if (result) status = (int)(intptr_t)result;
  }
  return status;
}

/* The first that fails takes the others with it, which would wait for it. */
static int run_processes(void) {
  pid_t children[ARFUSION_MAX_RANKS];
  int status = 0;
  fflush(stdout);
  for (int r = 0; r < nranks; ++r) {
    children[r] = fork();
    if (children[r] == 0) {
      limit_start(LIMIT_SECONDS);
      exit(rank_run(r));
    }
  }
  for (int left = nranks; left > 0; --left) {
    int how;
    const pid_t child = wait(&how);
    const int code = child > 0 && WIFEXITED(how) ? WEXITSTATUS(how) : 1;
    for (int r = 0; r < nranks; ++r) {
      if (children[r] == child) children[r] = 0;
      if (code != 0 && status == 0 && children[r] > 0) kill(children[r], SIGKILL);
    }
    if (status == 0) status = code;
  }
  return status;
}

/* ---------------------------------------------------------------- the program */

static int usage(void) {
  fprintf(stderr,
          "usage: test_soak_cuda [OPERATIONS [SEED [RANKS [threads|processes|mistake]]]]\n"
          "  OPERATIONS  1 to 1000000000 (100000)      SEED   any number (the time)      RANKS   2 to %d (2)\n"
          "  mistake     processes that read memory that is not theirs: a sanitizer must say so\n",
          ARFUSION_MAX_RANKS);
  return 2;
}

static int parse(const char* text, uint64_t least, uint64_t most, uint64_t* value) {
  char* end;
  *value = strtoull(text, &end, 0);
  return *text >= '0' && *text <= '9' && !*end && *value >= least && *value <= most;
}

int main(int argc, char** argv) {
  static const char* const modes[] = {"threads", "processes", "mistake"};
  uint64_t value;
  seed = (uint64_t)time(NULL);
  if (argc > 5) return usage();
  if (argc > 1) {
    if (!parse(argv[1], 1, 1000000000, &value)) return usage();
    operations = (int64_t)value;
  }
  if (argc > 2 && !parse(argv[2], 0, UINT64_MAX, &seed)) return usage();
  if (argc > 3) {
    if (!parse(argv[3], 2, ARFUSION_MAX_RANKS, &value)) return usage();
    nranks = (int)value;
  }
  if (argc > 4) {
    while ((int)mode < 3 && strcmp(argv[4], modes[mode]) != 0) mode = (enum mode)(mode + 1);
    if ((int)mode == 3) return usage();
  }
  nphases = (int)(operations < MOST_PHASES * LEAST_OF_A_PHASE ? (operations + LEAST_OF_A_PHASE - 1) / LEAST_OF_A_PHASE
                                                              : MOST_PHASES);
  limit_start(LIMIT_SECONDS);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  world.nranks = nranks;

  pthread_barrierattr_t shared;
  meeting = mmap(NULL, sizeof *meeting, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (meeting == MAP_FAILED) return 1;
  pthread_barrierattr_init(&shared);
  pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&meeting->barrier, &shared, (unsigned)nranks);

  const double start = world_seconds();
  pool_make();
  printf("seed %" PRIu64 "; %d problems of %d operations, made in %.1f s\n", seed, nproblems, plan.count,
         world_seconds() - start);
  const double begin = world_seconds();
  const int status = mode == MODE_THREADS ? run_threads() : run_processes();
  if (status == 77) {
    printf("no GPU\n");
    return 77;
  }
  int64_t done = 0;
  int wrong = 0;
  for (int phase = 0; phase < meeting->phases; ++phase) done += operations_of(phase);
  for (int r = 0; r < nranks; ++r) wrong |= meeting->wrong[r] != 0;
  printf("%d ranks on %d GPUs: %" PRId64 " operations in %.1f s, in %d phases, each from an epoch just below a wrap\n",
         nranks, meeting->gpus, done, world_seconds() - begin, meeting->phases);
  const int failed = wrong || status != 0 || done != operations;
  printf("%d passed, %d failed\n", meeting->phases - wrong, failed);
  return failed;
}
