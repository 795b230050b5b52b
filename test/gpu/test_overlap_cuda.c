/* SPDX-License-Identifier: Apache-2.0
 *
 * test_overlap_cuda.c: an operation that finds another one of its communicator running must fail the communicator, on
 * every rank, rather than mix their data. Two ranks, on one GPU or two, straight on the launchers, which order nothing.
 */
#include <unistd.h>

#include "test/gpu/world.h"
/* After world.h, whose parameters have the names of its globals. */
#include "test/gpu/expect.h"

#define SLOT_BYTES (1 << 20)
#define HIDDEN 4096
#define TIMEOUT_NS (20ull * 1000 * 1000 * 1000)

static struct world w;
static void* memory[2];
static cudaStream_t other_stream;

static struct kernel_op operation(int rank, arfusionPattern_t pattern, int64_t tokens) {
  struct kernel_op op = {.pattern = pattern, .dtype = arfusionBfloat16, .gamma_dtype = arfusionBfloat16, .eps = 1e-6f};
  op.tokens = pattern == arfusionPatternAllReduce ? 1 : tokens;
  op.hidden = pattern == arfusionPatternAllReduce ? tokens * HIDDEN : HIDDEN;
  op.input_stride = op.residual_in_stride = op.residual_out_stride = op.norm_out_stride = HIDDEN;
  op.input = op.gamma = op.norm_out = op.allreduce_out = memory[rank];
  return op;
}

/* Rank 0's operation waits for rank 1 when a second one starts on another stream. */
static void test_overlap(arfusionPattern_t pattern, int64_t tokens, int64_t second_tokens) {
  const struct kernel_op first = operation(0, pattern, tokens), second = operation(0, pattern, second_tokens);
  const struct kernel_op peers = operation(1, pattern, tokens);
  const double start = world_seconds();
  world_launch(&w, 0, algorithm, &first);
  usleep(20000);
  CHECK(cuda_launch(&w.comm[0], algorithm, &second, other_stream));
  CHECK(cudaStreamSynchronize(other_stream));
  world_sync(&w);
  const struct kernel_failure* failure = w.comm[0].failure;
  expect(failure->kind == KERNEL_FAILURE_OVERLAP && failure->rank == 0 && failure->algorithm == (uint32_t)algorithm,
         "two operations at a time fail the communicator");
  expect(world_seconds() - start < 5, "at once");
  world_launch(&w, 1, algorithm, &peers);
  world_sync(&w);
  expect(w.comm[1].failure->kind == KERNEL_FAILURE_REMOTE && w.comm[1].failure->peer == 0, "and the peer learns of it");
  world_reset(&w);
}

/* The same two streams, ordered: no failure. */
static void test_ordered(void) {
  cudaEvent_t ended;
  CHECK(cudaSetDevice(w.device[0]));
  CHECK(cudaEventCreateWithFlags(&ended, cudaEventDisableTiming));
  for (int k = 0; k < 200; ++k) {
    const int64_t tokens = 1 + k % 5;
    const struct kernel_op own = operation(0, arfusionPatternResidualRmsNorm, tokens);
    const struct kernel_op peers = operation(1, arfusionPatternResidualRmsNorm, tokens);
    cudaStream_t here = k % 2 ? other_stream : w.stream[0], last = k % 2 ? w.stream[0] : other_stream;
    CHECK(cudaSetDevice(w.device[0]));
    CHECK(cudaEventRecord(ended, last));
    CHECK(cudaStreamWaitEvent(here, ended, 0));
    CHECK(cuda_launch(&w.comm[0], algorithm, &own, here));
    world_launch(&w, 1, algorithm, &peers);
  }
  CHECK(cudaSetDevice(w.device[0]));
  CHECK(cudaStreamSynchronize(other_stream));
  world_sync(&w);
  expect(w.comm[0].failure->kind == KERNEL_FAILURE_NONE && w.comm[1].failure->kind == KERNEL_FAILURE_NONE,
         "operations that are ordered do not");
  CHECK(cudaEventDestroy(ended));
}

int main(void) {
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  const int gpus = world_gpus();
  if (gpus == 0) {
    printf("no GPU\n");
    return 77;
  }
  world_enable_peers(gpus);
  world_make(&w, 2, gpus, SLOT_BYTES, 24, TIMEOUT_NS);
  for (int r = 0; r < 2; ++r) {
    CHECK(cudaSetDevice(w.device[r]));
    CHECK(cudaMalloc(&memory[r], SLOT_BYTES));
    CHECK(cudaMemset(memory[r], 0, SLOT_BYTES));
  }
  CHECK(cudaSetDevice(w.device[0]));
  CHECK(cudaStreamCreateWithFlags(&other_stream, cudaStreamNonBlocking));
  for (int a = arfusionAlgoOneshotLamport; a <= arfusionAlgoTwoshot; ++a) {
    algorithm = (arfusionAlgorithm_t)a;
    for (int64_t tokens = 1; tokens <= 60; tokens *= 4) {
      for (int64_t second = 1; second <= 60; second *= 4) {
        test_overlap(arfusionPatternResidualRmsNorm, tokens, second);
        test_overlap(arfusionPatternAllReduce, tokens, second);
      }
    }
    test_ordered();
  }
  CHECK(cudaStreamDestroy(other_stream));
  for (int r = 0; r < 2; ++r) CHECK(cudaFree(memory[r]));
  world_free(&w);
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
