/* SPDX-License-Identifier: Apache-2.0
 *
 * host_kernels_bench.c: medians of the host kernels between two processes that share a mapping, for each algorithm,
 * with and without the epilogue. One line a shape.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kernels/host/host_kernels.h"

#define RANKS 2
#define MAX_ELEMENTS (512 * 4096)

static const struct {
  int64_t tokens, hidden;
  int iterations;
} shapes[] = {{1, 256, 2000},  {1, 1024, 2000}, {1, 4096, 2000}, {2, 4096, 2000},  {4, 4096, 1000},
              {8, 4096, 1000}, {16, 4096, 600}, {64, 4096, 300}, {128, 4096, 150}, {512, 4096, 60}};

static const struct {
  arfusionAlgorithm_t algorithm;
  const char* name;
} algorithms[] = {{arfusionAlgoOneshotLamport, "lamport"},
                  {arfusionAlgoOneshotSync, "sync"},
                  {arfusionAlgoTwoshot, "twoshot"}};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static double clock_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

static int compare_double(const void* a, const void* b) {
  double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

static double measure(struct host_comm* comm, arfusionAlgorithm_t algorithm, const struct kernel_op* op,
                      int iterations) {
  double* spent = malloc((size_t)iterations * sizeof(*spent));
  for (int i = -iterations / 10; i < iterations; i++) {
    double start = clock_us();
    if (host_run(comm, algorithm, op)) {
      fprintf(stderr, "rank %d: failed, kind %u\n", comm->rank, comm->failure.kind);
      exit(1);
    }
    if (i >= 0) spent[i] = clock_us() - start;
  }
  qsort(spent, (size_t)iterations, sizeof(*spent), compare_double);
  double median = spent[iterations / 2];
  free(spent);
  return median;
}

static void* tensor(size_t elements) {
  float* data = aligned_alloc(4096, elements * sizeof(float));
  for (size_t i = 0; i < elements; i++) data[i] = 1.0f; /* as bf16: 0.0 and 1.0 in turn */
  return data;
}

static void rank_main(struct host_comm* comm) {
  static const arfusionDataType_t dtypes[] = {arfusionFloat32, arfusionBfloat16};
  void *input = tensor(MAX_ELEMENTS), *residual = tensor(MAX_ELEMENTS), *gamma = tensor(ARFUSION_MAX_HIDDEN);
  void *y = tensor(MAX_ELEMENTS), *norm = tensor(MAX_ELEMENTS);

  for (size_t d = 0; d < COUNT(dtypes); d++)
    for (size_t s = 0; s < COUNT(shapes); s++) {
      int64_t hidden = shapes[s].hidden;
      struct kernel_op op = {.pattern = arfusionPatternResidualRmsNorm, .dtype = dtypes[d], .gamma_dtype = dtypes[d],
                             .tokens = shapes[s].tokens, .hidden = hidden, .input_stride = hidden,
                             .residual_in_stride = hidden, .residual_out_stride = hidden, .norm_out_stride = hidden,
                             .input = input, .residual_in = residual, .gamma = gamma, .residual_out = y,
                             .norm_out = norm, .eps = 1e-5f};
      struct kernel_op flat = {.pattern = arfusionPatternAllReduce, .dtype = dtypes[d], .tokens = 1,
                               .hidden = shapes[s].tokens * hidden, .input = input, .allreduce_out = norm};
      if (comm->rank == 0)
        printf("%s %4ld x %ld %8ld bytes, us (allreduce alone):", dtypes[d] == arfusionFloat32 ? "fp32" : "bf16",
               (long)shapes[s].tokens, (long)hidden, (long)(flat.hidden * kernel_element_size(dtypes[d])));
      for (size_t a = 0; a < COUNT(algorithms); a++) {
        double fused = measure(comm, algorithms[a].algorithm, &op, shapes[s].iterations);
        double alone = measure(comm, algorithms[a].algorithm, &flat, shapes[s].iterations);
        if (comm->rank == 0) printf("  %s %.1f (%.1f)", algorithms[a].name, fused, alone);
      }
      if (comm->rank == 0) printf("\n");
      fflush(stdout);
    }
}

int main(void) {
  struct host_layout layout;
  host_layout_compute(&layout, RANKS, MAX_ELEMENTS * (int64_t)sizeof(float), INT64_MAX);
  unsigned char* shared = mmap(NULL, RANKS * layout.total, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) {
    perror("mmap");
    return 1;
  }

  static struct host_comm comm[RANKS];
  for (int r = 0; r < RANKS; r++) {
    comm[r] = (struct host_comm){.rank = r, .nranks = RANKS, .timeout_ns = 20000000000u, .layout = layout};
    for (int p = 0; p < RANKS; p++) comm[r].workspace[p] = shared + (size_t)p * layout.total;
    host_comm_reset(&comm[r]);
  }

  pid_t child = fork();
  if (child < 0) {
    perror("fork");
    return 1;
  }
  rank_main(&comm[child == 0]);
  if (child == 0) return 0;
  int status;
  waitpid(child, &status, 0);
  return status != 0;
}
