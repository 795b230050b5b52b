/* SPDX-License-Identifier: Apache-2.0
 *
 * test_library_cuda.c: libarfusion on two GPUs with NCCL: what the plugin takes, what NCCL and the epilogue complete,
 * eagerly and captured, and communicators made from an ncclComm_t. Each rank is a thread.
 */
#include <dlfcn.h>
#include <pthread.h>

#include "arfusion.h"
#include "test/gpu/ranks.h"

static arfusionComm_t comms[RANKS];

struct nccl_id {
  char internal[128];
};
static int (*nccl_get_unique_id)(struct nccl_id*);
static int (*nccl_comm_init_rank)(void**, int, struct nccl_id, int);
static int (*nccl_comm_destroy)(void*);

struct job {
  pthread_t thread;
  int rank, ok;
  int (*work)(int rank);
};

static void* job_run(void* argument) {
  struct job* job = argument;
  job->ok = cudaSetDevice(job->rank) == cudaSuccess && job->work(job->rank);
  if (!job->ok) printf("rank %d: %s\n", job->rank, arfusionGetLastError());
  return NULL;
}

/* Runs `work` for both ranks at once; all must succeed. */
static int both(int (*work)(int rank)) {
  struct job jobs[RANKS];
  int ok = 1;
  for (int r = 0; r < RANKS; ++r) {
    jobs[r] = (struct job){.rank = r, .work = work};
    pthread_create(&jobs[r].thread, NULL, job_run, &jobs[r]);
  }
  for (int r = 0; r < RANKS; ++r) {
    pthread_join(jobs[r].thread, NULL);
    ok &= jobs[r].ok;
  }
  streams_sync();
  return ok;
}

static arfusionReason_t last_reason[RANKS];
static arfusionAlgorithm_t last_algorithm[RANKS];

static int call(int r, const arfusionRequest_t* request) {
  arfusionRoute_t route = {.size = sizeof route};
  if (arfusionAllReduce(comms[r], request, memory[r].stream[0], &route) != arfusionSuccess) return 0;
  last_reason[r] = route.reason;
  last_algorithm[r] = route.algorithm;
  return 1;
}

static int call_rows(int r) {
  const arfusionRequest_t request = rows_request(r, 40);
  return call(r, &request);
}

/* The sum's place: normOut, residualOut, or scratch. */
static int call_rows_without_norm(int r) {
  arfusionRequest_t request = rows_request(r, 40);
  request.normOut = NULL;
  return call(r, &request);
}
static int call_rows_in_place(int r) { /* residual updated in place, and no normOut: only scratch is left */
  arfusionRequest_t request = rows_request(r, 40);
  if (cudaMemcpyAsync(memory[r].residual_out, memory[r].residual, 40 * HIDDEN * 2, cudaMemcpyDeviceToDevice,
                      memory[r].stream[0])) return 0;
  request.residualIn = request.residualOut;
  request.normOut = NULL;
  return call(r, &request);
}
/* 20 rows of input, every other row of the memory: packed first. */
static int call_rows_strided(int r) {
  arfusionRequest_t request = rows_request(r, 1);
  request.tokens = 20;
  request.hidden = HIDDEN;
  request.inputStride = request.residualInStride = 2 * HIDDEN;
  request.residualOutStride = request.normOutStride = 2 * HIDDEN;
  return call(r, &request);
}
static int call_sum(int r) {
  arfusionRequest_t request = {.size = sizeof request,
                               .pattern = arfusionPatternAllReduce,
                               .dataType = arfusionBfloat16,
                               .tokens = 7,
                               .hidden = 1001,
                               .input = memory[r].input,
                               .allreduceOut = memory[r].sum};
  return call(r, &request);
}
static int call_max(int r) {
  arfusionRequest_t request = {.size = sizeof request,
                               .pattern = arfusionPatternAllReduce,
                               .dataType = arfusionBfloat16,
                               .operation = arfusionMax,
                               .tokens = 1,
                               .hidden = HIDDEN,
                               .input = memory[r].input,
                               .allreduceOut = memory[r].sum};
  return call(r, &request);
}
static int call_hidden_12(int r) { /* 24 bytes a row: neither the kernels nor the epilogue take it */
  arfusionRequest_t request = rows_request(r, 1);
  request.hidden = 12;
  return arfusionAllReduce(comms[r], &request, memory[r].stream[0], NULL) == arfusionInvalidArgument;
}
static int call_captured(int r) {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  if (cudaStreamBeginCapture(memory[r].stream[0], cudaStreamCaptureModeThreadLocal)) return 0;
  int ok = call_rows(r) && call_rows_in_place(r) && call_rows(r);
  if (cudaStreamEndCapture(memory[r].stream[0], &graph)) return 0;
  ok = ok && !cudaGraphInstantiate(&exec, graph, 0);
  for (int k = 0; ok && k < 20; ++k) ok = !cudaGraphLaunch(exec, memory[r].stream[0]);
  ok = ok && !cudaStreamSynchronize(memory[r].stream[0]);
  return ok && !cudaGraphExecDestroy(exec) && !cudaGraphDestroy(graph);
}

static int residual_right(int tokens) {
  int right = 1;
  for (int r = 0; r < RANKS; ++r) right &= rows_are(memory[r].residual_out, want_residual, tokens);
  return right;
}

static int strided_right(void) {
  int right = 1;
  for (int r = 0; r < RANKS; ++r) {
    CHECK(cudaMemcpy(got, memory[r].norm, sizeof got, cudaMemcpyDeviceToHost));
    for (int row = 0; row < 40; ++row) {
      for (int i = 0; i < HIDDEN; ++i) {
        const int at = row * HIDDEN + i;
        right &= got[at] == (row % 2 ? 0xeeee : want_norm[at]);
      }
    }
  }
  return right;
}

static int sum_right(int count) {
  int right = 1;
  for (int r = 0; r < RANKS; ++r) {
    CHECK(cudaMemcpy(got, memory[r].sum, sizeof got, cudaMemcpyDeviceToHost));
    right &= !memcmp(got, want_sum, (size_t)count * 2);
  }
  return right;
}

static int max_right(void) {
  int right = 1;
  for (int r = 0; r < RANKS; ++r) {
    CHECK(cudaMemcpy(got, memory[r].sum, sizeof got, cudaMemcpyDeviceToHost));
    for (uint32_t i = 0; i < HIDDEN; ++i) {
      const float a = bf16_value(small(i, 1)), b = bf16_value(small(i, 2));
      right &= bf16_value(got[i]) == (a > b ? a : b);
    }
  }
  return right;
}

#define RUN(work, right, taken, what)                                                              \
  do {                                                                                             \
    outputs_clear();                                                                               \
    const int ran = both(work);                                                                    \
    const int by_plugin = last_algorithm[0] != arfusionAlgoNone;                                   \
    expect(ran && (right) && by_plugin == (taken) && last_algorithm[0] == last_algorithm[1], what); \
  } while (0)

/* `taken`: by the plugin; else everything is turned down and completed. */
static void run_all(int taken) {
  RUN(call_rows, rows_right(40), taken, "rows");
  RUN(call_rows_without_norm, residual_right(40), taken, "rows without normOut");
  RUN(call_rows_in_place, residual_right(40), taken, "rows in place, which need scratch for the sum");
  RUN(call_rows_strided, strided_right(), taken, "strided rows");
  RUN(call_sum, sum_right(7 * 1001), taken, "a flat sum");
  RUN(call_max, max_right(), 0, "a maximum, which is NCCL's");
  RUN(call_captured, rows_right(40), taken, "captured");
  outputs_clear();
  expect(both(call_hidden_12) && rows_are(memory[0].norm, want_norm, 0),
         "what nobody can do is an error, and nothing is written");
}

static void* nccl_comms[RANKS];
static struct nccl_id nccl_id;
static int nccl_init(int r) { return nccl_comm_init_rank(&nccl_comms[r], RANKS, nccl_id, r) == 0; }
static int adopt(int r) { return arfusionCommInitNccl(&comms[r], nccl_comms[r], NULL) == arfusionSuccess; }

static void test_adopted(void) {
  void* library = dlopen("libnccl.so.2", RTLD_NOW);
  if (!library) {
    expect(0, "there is a libnccl.so.2");
    return;
  }
  *(void**)&nccl_get_unique_id = dlsym(library, "ncclGetUniqueId");
  *(void**)&nccl_comm_init_rank = dlsym(library, "ncclCommInitRank");
  *(void**)&nccl_comm_destroy = dlsym(library, "ncclCommDestroy");
  CHECK(nccl_get_unique_id(&nccl_id));
  expect(both(nccl_init) && both(adopt), "communicators from ncclComm_t");
  int rank, count, device;
  CHECK(arfusionCommUserRank(comms[1], &rank));
  CHECK(arfusionCommCount(comms[1], &count));
  CHECK(arfusionCommDevice(comms[1], &device));
  expect(rank == 1 && count == RANKS && device == 1, "their rank, size and device");
  run_all(1);
  for (int r = 0; r < RANKS; ++r) CHECK(arfusionCommDestroy(comms[r]));
  for (int r = 0; r < RANKS; ++r) CHECK(nccl_comm_destroy(nccl_comms[r]));
}

int main(int argc, char** argv) {
  if (ranks_find_gpus() < RANKS) {
    printf("two GPUs are needed\n");
    return 77;
  }
  /* The library reads its settings once a process: with everything turned down, a process of its own. */
  const int none = argc > 1 && !strcmp(argv[1], "none");
  if (none) setenv("ARFUSION_ALGO", "none", 1);
  memory_create();
  const double start = seconds();
  CHECK(arfusionCommInitAll(comms, RANKS, NULL, NULL));
  printf("set-up with NCCL: %.2f s\n", seconds() - start);
  run_all(!none);
  for (int r = 0; r < RANKS; ++r) CHECK(arfusionCommDestroy(comms[r]));
  if (!none) test_adopted();
  const int status = finish();
  if (status || none) return status;
  fflush(stdout);
  execl("/proc/self/exe", argv[0], "none", (char*)NULL);
  return 1;
}
