/* SPDX-License-Identifier: Apache-2.0
 *
 * test_watchdog_cuda.c: a rank's process is killed, stopped, aborts or no longer calls, while both ranks make eager
 * calls or replay graphs. The other one is let go within the time limit, says why, fails fast from then on (replays
 * too), gets its device memory back, keeps a second communicator that nobody has harmed, and makes a new one with
 * another process.
 *
 *   test_watchdog_cuda [SECONDS [SEED]]    all faults once; with SECONDS, again at other moments until then
 *
 * Three processes on two GPUs or one: rank 0, its peer, and one that takes the peer's place. This process never uses
 * CUDA.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "plugin/core/bootstrap.h"
#include "test/gpu/limit.h"
#include "test/gpu/random.h"
#include "test/gpu/ranks.h"

extern const arfusionPlugin_v1_t arfusionPlugin_v1;
static const arfusionPlugin_v1_t* const plugin = &arfusionPlugin_v1;

enum { LIMIT = 2, SURVIVOR = 0, PEER = 1, SUCCESSOR = 2, PROCESSES = 3, GRAPH_OPERATIONS = 20 };
enum how { KILL, STOP, ABORT, SILENCE, HOWS };
static const char* const how_names[] = {"killed", "stopped", "aborts", "no longer calls"};

/* What the processes of a fault share. */
struct scene {
  enum how how;
  int graphs;
  uint32_t microseconds; /* after both run */
  arfusionUniqueId_t ids[3]; /* of the communicator that fails, of one beside it, of the new one */
  atomic_int running[2];
  atomic_int over;  /* the survivor has looked at everything; who was stopped goes on */
  atomic_int happens; /* the peer aborts or falls silent now */
  atomic_int beside;  /* the communicator beside the failed one is used again */
  atomic_int alone;   /* the survivor's peers have ended */
  int no_gpu, ok[PROCESSES];
};

static struct scene* scene;
static int me;

static void complain(int ok, const char* what) {
  if (ok) return;
  printf("FAILED: process %d, peer %s, %s: %s\n", me, how_names[scene->how], scene->graphs ? "graphs" : "eager", what);
  fflush(stdout);
  scene->ok[me] = 0;
}

/* ---------------------------------------------------------------- a rank */

struct rank_state {
  void *ctx, *comm;
  int rank;
  cudaGraphExec_t exec;
};

static void* join(void* ctx, int which, int rank) {
  arfusionBootstrap_t bootstrap = {.size = sizeof bootstrap};
  void* comm = NULL;
  int result = plugin->bootstrapUniqueId(ctx, &scene->ids[which], RANKS, rank, &bootstrap);
  if (!result) {
    result = plugin->commInit(ctx, rank % gpus, NULL, &bootstrap, &comm);
    plugin->bootstrapDestroy(ctx, &bootstrap);
  }
  if (result) printf("process %d: %s\n", me, plugin->getLastError());
  return comm;
}

static arfusionResult_t enqueue(void* comm, int rank, int tokens) {
  const arfusionRequest_t request = rows_request(rank, tokens);
  arfusionRoute_t route = {.size = sizeof route};
  return plugin->enqueue(comm, &request, memory[rank].stream[0], &route);
}

static void capture(struct rank_state* s) {
  cudaGraph_t graph;
  CHECK(cudaStreamBeginCapture(memory[s->rank].stream[0], cudaStreamCaptureModeThreadLocal));
  for (int k = 0; k < GRAPH_OPERATIONS; ++k) CHECK(enqueue(s->comm, s->rank, 1 + k));
  CHECK(cudaStreamEndCapture(memory[s->rank].stream[0], &graph));
  CHECK(cudaGraphInstantiate(&s->exec, graph, 0));
  CHECK(cudaGraphDestroy(graph));
}

/* A few operations, eager or as a replay; 0: an enqueue has failed. */
static int step(struct rank_state* s) {
  cudaStream_t stream = memory[s->rank].stream[0];
  if (scene->graphs) CHECK(cudaGraphLaunch(s->exec, stream));
  for (int k = 0; k < 8 && !scene->graphs; ++k) {
    if (enqueue(s->comm, s->rank, 1 + k) != arfusionSuccess) return 0;
  }
  CHECK(cudaStreamSynchronize(stream));
  return 1;
}

static arfusionResult_t failure_of(void* comm, char text[512]) {
  arfusionResult_t async = arfusionSuccess;
  plugin->commGetAsyncError(comm, &async, text, 512);
  return async;
}

/* Operations of this rank and its peer, with the right bits. */
static int works(void* comm, int rank) {
  rank_use(rank);
  CHECK(cudaMemset(memory[rank].residual_out, 0xee, ELEMENTS * 2));
  CHECK(cudaMemset(memory[rank].norm, 0xee, ELEMENTS * 2));
  CHECK(cudaDeviceSynchronize());
  for (int k = 0; k < 10; ++k) {
    if (enqueue(comm, rank, 10 + k) != arfusionSuccess) return 0;
  }
  CHECK(cudaStreamSynchronize(memory[rank].stream[0]));
  return rows_are(memory[rank].residual_out, want_residual, 19) && rows_are(memory[rank].norm, want_norm, 19);
}

static void wait_for(const atomic_int* flag) {
  while (!atomic_load(flag)) usleep(500);
}

/* ---------------------------------------------------------------- the survivor */

static void fails_fast(struct rank_state* s) {
  const double start = seconds();
  for (int k = 0; k < 5; ++k) complain(enqueue(s->comm, SURVIVOR, 4) != arfusionSuccess, "a later call succeeds");
  for (int k = 0; k < 100; ++k) CHECK(cudaGraphLaunch(s->exec, memory[SURVIVOR].stream[0]));
  CHECK(cudaStreamSynchronize(memory[SURVIVOR].stream[0]));
  complain(seconds() - start < 0.5, "later calls and replays wait again");
}

static void survivor_run(void) {
  struct rank_state s = {.rank = SURVIVOR};
  char text[512];
  size_t before, after, total;
  CHECK(plugin->init(&s.ctx, NULL));
  void* beside = join(s.ctx, 1, SURVIVOR);
  complain(beside != NULL && works(beside, SURVIVOR), "a communicator beside the other one");
  CHECK(cudaMemGetInfo(&before, &total));
  const int descriptors = open_descriptors();
  s.comm = join(s.ctx, 0, SURVIVOR);
  if (!s.comm || !beside) exit(1);
  complain(works(s.comm, SURVIVOR), "operations before the fault");
  capture(&s);
  atomic_store(&scene->running[SURVIVOR], 1);
  double start = seconds();
  while (step(&s) && failure_of(s.comm, text) == arfusionSuccess) start = seconds();
  const double elapsed = seconds() - start;
  const arfusionResult_t async = failure_of(s.comm, text);
  printf("peer %s, %s: after %.2f s: %s\n", how_names[scene->how], scene->graphs ? "graphs" : "eager", elapsed, text);
  complain(async == arfusionRemoteError && strstr(text, "rank 1"), text);
  complain(elapsed < (scene->how == ABORT ? 1 : LIMIT + 1), "the wait was too long");
  fails_fast(&s);
  CHECK(cudaGraphExecDestroy(s.exec));
  start = seconds();
  CHECK(plugin->commFinalize(s.comm));
  complain(seconds() - start < 1, "commFinalize waits");
  complain(open_descriptors() == descriptors, "descriptors are left over");
  void* again = join(s.ctx, 2, SURVIVOR);
  complain(again != NULL && works(again, SURVIVOR), "a new communicator");
  atomic_store(&scene->beside, 1);
  if (scene->how == ABORT || scene->how == SILENCE) complain(works(beside, SURVIVOR), "the communicator beside it");
  atomic_store(&scene->over, 1);
  if (again) CHECK(plugin->commFinalize(again));
  wait_for(&scene->alone); /* memory is free once nobody has it mapped */
  CHECK(cudaMemGetInfo(&after, &total));
  complain(after + (4 << 20) >= before, "device memory is left over");
  CHECK(plugin->commFinalize(beside));
  plugin->finalize(s.ctx);
}

/* ---------------------------------------------------------------- the others */

static void* abort_when_told(void* comm) {
  wait_for(&scene->happens);
  plugin->commAbort(comm);
  return NULL;
}

static void peer_run(void) {
  struct rank_state s = {.rank = PEER};
  char text[512];
  pthread_t thread;
  CHECK(plugin->init(&s.ctx, NULL));
  void* beside = join(s.ctx, 1, PEER);
  complain(beside != NULL && works(beside, PEER), "a communicator beside the other one");
  s.comm = join(s.ctx, 0, PEER);
  if (!s.comm || !beside) exit(1);
  complain(works(s.comm, PEER), "operations before the fault");
  capture(&s);
  atomic_store(&scene->running[PEER], 1);
  if (scene->how == ABORT) CHECK(pthread_create(&thread, NULL, abort_when_told, s.comm));
  while (step(&s) && failure_of(s.comm, text) == arfusionSuccess) {
    if (scene->how == SILENCE && atomic_load(&scene->happens)) break;
  }
  if (scene->how == ABORT) pthread_join(thread, NULL);
  if (scene->how != STOP) {
    wait_for(&scene->beside);
    complain(works(beside, PEER), "the communicator beside it");
    wait_for(&scene->over);
  }
  const double start = seconds();
  step(&s); /* a rank that comes late learns of it at once */
  complain(failure_of(s.comm, text) != arfusionSuccess && seconds() - start < 0.5, "the peer does not learn of it");
  CHECK(cudaGraphExecDestroy(s.exec));
  CHECK(plugin->commFinalize(s.comm));
  CHECK(plugin->commFinalize(beside));
  plugin->finalize(s.ctx);
}

static void successor_run(void) {
  void* ctx;
  CHECK(plugin->init(&ctx, NULL));
  void* comm = join(ctx, 2, PEER); /* as soon as the survivor comes */
  complain(comm != NULL && works(comm, PEER), "the new communicator");
  if (comm) CHECK(plugin->commFinalize(comm));
  plugin->finalize(ctx);
}

static void process_run(int which) {
  static void (*const runs[])(void) = {survivor_run, peer_run, successor_run};
  me = which;
  limit_start(90);
  scene->ok[which] = 1;
  if (ranks_find_gpus() == 0) {
    scene->no_gpu = 1;
    exit(77);
  }
  memory_create_rank(which == SURVIVOR ? SURVIVOR : PEER);
  runs[which]();
  exit(scene->ok[which] ? 0 : 1);
}

/* ---------------------------------------------------------------- faults */

static int exit_of(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static int runs_so_far(pid_t pid) {
  int status;
  return waitpid(pid, &status, WNOHANG) == 0;
}

/* 1: all was as it should be; -1: there is no GPU. */
static int fault_run(enum how how, int graphs, uint32_t microseconds) {
  pid_t pids[PROCESSES];
  memset(scene, 0, sizeof *scene);
  scene->how = how;
  scene->graphs = graphs;
  for (int i = 0; i < 3; ++i) CHECK(bootstrap_unique_id(&scene->ids[i]));
  fflush(stdout);
  for (int p = 0; p < PROCESSES; ++p) {
    pids[p] = fork();
    if (pids[p] == 0) process_run(p);
  }
  for (int i = 0; i < 60000 && !(atomic_load(&scene->running[0]) && atomic_load(&scene->running[1])); ++i) {
    usleep(1000);
    if (i % 100 == 99 && !runs_so_far(pids[SURVIVOR])) break;
  }
  usleep(microseconds);
  atomic_store(&scene->happens, 1);
  if (how == KILL) kill(pids[PEER], SIGKILL);
  if (how == STOP) {
    kill(pids[PEER], SIGSTOP);
    for (int i = 0; i < 30000 && !atomic_load(&scene->over); ++i) usleep(1000);
    kill(pids[PEER], SIGCONT);
  }
  const int peer = exit_of(pids[PEER]), successor = exit_of(pids[SUCCESSOR]);
  atomic_store(&scene->alone, 1);
  const int survivor = exit_of(pids[SURVIVOR]);
  if (scene->no_gpu) return -1;
  if (survivor || successor || peer != (how == KILL ? 128 + SIGKILL : 0)) {
    printf("exit codes %d, %d, %d\n", survivor, peer, successor);
    return 0;
  }
  return 1;
}

int main(int argc, char** argv) {
  const double start = seconds(), limit = argc > 1 ? atof(argv[1]) : 0;
  uint32_t random = random_seed(argc > 2 ? strtoull(argv[2], NULL, 0) : (uint64_t)time(NULL), 0);
  char text[16];
  snprintf(text, sizeof text, "%d", LIMIT);
  setenv("ARFUSION_TIMEOUT", text, 1);
  scene = mmap(NULL, sizeof *scene, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (scene == MAP_FAILED) return 1;
  memory_plan();
  do {
    for (int how = 0; how < HOWS; ++how) {
      for (int graphs = 0; graphs < 2; ++graphs) {
        const int ok = fault_run((enum how)how, graphs, random_draw(&random, 20000));
        if (ok < 0) {
          printf("a GPU is needed\n");
          return 77;
        }
        expect(ok, how_names[how]);
      }
    }
  } while (seconds() - start < limit && !failed);
  return finish();
}
