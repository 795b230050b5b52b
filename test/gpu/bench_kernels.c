/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_kernels.c: µs per fused operation on two GPUs (on one that both ranks share, to compare builds): bf16, two
 * ranks, residual and norm written, dependent launch. A graph of 20 launches, replayed 20 times; of the two ranks'
 * elapsed times the smaller (the rank launched last has not waited for the other's launch), the median of the replays;
 * for each algorithm. Then the host's time of a launch.
 *
 *   bench_kernels [max_blocks [slot_mib]]
 */
#include "test/gpu/world.h"

#define LAUNCHES 20
#define REPLAYS 20
#define WARM_UP 3
#define LARGEST_BYTES ((int64_t)8192 * 8192 * 2)

static int compare(const void* a, const void* b) {
  const double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static double graph_us(struct world* w, arfusionAlgorithm_t algorithm, const struct kernel_op* ops) {
  cudaGraphExec_t exec[2];
  cudaEvent_t begin[2], end[2];
  double times[REPLAYS];
  for (int r = 0; r < 2; ++r) {
    cudaGraph_t graph;
    CHECK(cudaSetDevice(w->device[r]));
    CHECK(cudaStreamBeginCapture(w->stream[r], cudaStreamCaptureModeRelaxed));
    for (int k = 0; k < LAUNCHES; ++k) world_launch(w, r, algorithm, &ops[r]);
    CHECK(cudaStreamEndCapture(w->stream[r], &graph));
    CHECK(cudaGraphInstantiate(&exec[r], graph, 0));
    CHECK(cudaGraphDestroy(graph));
    CHECK(cudaEventCreate(&begin[r]));
    CHECK(cudaEventCreate(&end[r]));
  }
  for (int k = -WARM_UP; k < REPLAYS; ++k) {
    for (int r = 0; r < 2; ++r) {
      CHECK(cudaSetDevice(w->device[r]));
      CHECK(cudaEventRecord(begin[r], w->stream[r]));
      CHECK(cudaGraphLaunch(exec[r], w->stream[r]));
      CHECK(cudaEventRecord(end[r], w->stream[r]));
    }
    double least = 1e30;
    for (int r = 0; r < 2; ++r) {
      float ms;
      CHECK(cudaSetDevice(w->device[r]));
      CHECK(cudaStreamSynchronize(w->stream[r]));
      CHECK(cudaEventElapsedTime(&ms, begin[r], end[r]));
      if (ms < least) least = ms;
    }
    if (k >= 0) times[k] = least * 1000.0 / LAUNCHES;
  }
  for (int r = 0; r < 2; ++r) {
    CHECK(cudaGraphExecDestroy(exec[r]));
    CHECK(cudaEventDestroy(begin[r]));
    CHECK(cudaEventDestroy(end[r]));
  }
  qsort(times, REPLAYS, sizeof times[0], compare);
  return times[REPLAYS / 2];
}

/* µs that the host spends on a launch of ours (both ranks alternating), or of the epilogue kernel alone. */
static double host_us(struct world* w, const struct kernel_op* ops, int epilogue) {
  double times[200];
  for (int k = 0; k < 200; ++k) {
    const double start = world_seconds();
    for (int i = 0; i < 10; ++i) {
      for (int r = 0; r < 2; ++r) {
        if (epilogue) {
          CHECK(cudaSetDevice(w->device[r]));
          CHECK(cuda_launch_epilogue(&ops[r], w->comm[r].compute_major, w->stream[r]));
        } else {
          world_launch(w, r, arfusionAlgoOneshotLamport, &ops[r]);
        }
      }
    }
    times[k] = (world_seconds() - start) * 1e6 / 20;
    world_sync(w);
  }
  qsort(times, 200, sizeof times[0], compare);
  return times[100];
}

/* An operation of each rank, but for its size. */
static void make_ops(const struct world* w, struct kernel_op* ops) {
  for (int r = 0; r < 2; ++r) {
    void* buffers[5];
    CHECK(cudaSetDevice(w->device[r]));
    for (int i = 0; i < 5; ++i) {
      CHECK(cudaMalloc(&buffers[i], LARGEST_BYTES));
      CHECK(cudaMemset(buffers[i], 0x3c, LARGEST_BYTES));
    }
    ops[r] = (struct kernel_op){.pattern = arfusionPatternResidualRmsNorm,
                                .dtype = arfusionBfloat16,
                                .gamma_dtype = arfusionBfloat16,
                                .flags = ARFUSION_FLAG_DEPENDENT_LAUNCH,
                                .input = buffers[0],
                                .residual_in = buffers[1],
                                .gamma = buffers[2],
                                .residual_out = buffers[3],
                                .norm_out = buffers[4],
                                .eps = 1e-5f};
    CHECK(cudaDeviceSynchronize());
  }
}

static void print_times(struct world* w, int64_t tokens, int64_t hidden, struct kernel_op* ops) {
  for (int r = 0; r < 2; ++r) {
    struct kernel_op* op = &ops[r];
    op->tokens = tokens;
    op->hidden = hidden;
    op->input_stride = op->residual_in_stride = op->residual_out_stride = op->norm_out_stride = op->hidden;
  }
  printf("%5lld x %5lld                   ", (long long)tokens, (long long)hidden);
  for (int a = arfusionAlgoOneshotLamport; a <= arfusionAlgoTwoshot; ++a)
    printf("  %14.2f", graph_us(w, (arfusionAlgorithm_t)a, ops));
  printf("\n");
  fflush(stdout);
}

int main(int argc, char** argv) {
  static const int64_t sizes[][2] = {{1, 4096},   {8, 4096},   {32, 4096},   {128, 4096},  {512, 4096},  {1, 7168},
                                     {32, 7168},  {128, 7168}, {512, 7168},  {4096, 7168}, {8192, 7168}, {1, 8192},
                                     {128, 8192}, {8192, 8192}, {1, 16384},  {128, 16384}};
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  const int gpus = world_gpus();
  if (gpus == 0) {
    printf("no GPU\n");
    return 77;
  }
  world_enable_peers(gpus);
  int multiprocessors;
  CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
  const int max_blocks = argc > 1 ? atoi(argv[1]) : (multiprocessors - multiprocessors / 8) * gpus / 2;
  const int64_t slot = argc > 2 ? (int64_t)atoi(argv[2]) << 20 : LARGEST_BYTES;
  struct world w;
  world_make(&w, 2, gpus, slot, max_blocks, 20ull * 1000 * 1000 * 1000);
  for (int r = 0; r < 2 && argc <= 1 && gpus == 2; ++r) {
    w.comm[r].max_blocks_of_few_tokens = multiprocessors - multiprocessors / 32;
  }
  struct kernel_op ops[2];
  make_ops(&w, ops);
  printf("%d GPUs, %d blocks at most; us:          one-shot Lamport   one-shot sync        two-shot\n", gpus,
         max_blocks);
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
    if (kernel_slot_bytes(sizes[i][0], sizes[i][1], arfusionBfloat16) <= slot) {
      print_times(&w, sizes[i][0], sizes[i][1], ops);
    }
  }
  for (int r = 0; r < 2; ++r) {
    ops[r].tokens = 1;
    ops[r].hidden = 4096;
  }
  printf("host time of a launch: %.2f us; of the epilogue kernel alone: %.2f us\n", host_us(&w, ops, 0),
         host_us(&w, ops, 1));
  for (int r = 0; r < 2; ++r) {
    if (w.comm[r].failure->kind != KERNEL_FAILURE_NONE) {
      printf("rank %d failed\n", r);
      return 1;
    }
  }
  return 0;
}
