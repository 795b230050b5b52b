/* SPDX-License-Identifier: Apache-2.0
 *
 * ranks.h: two ranks on two GPUs, or on one that they share, through the plugin's table or libarfusion, with data
 * whose right answer the host's epilogue gives. For the programs of this folder that test more than kernels.
 */
#ifndef ARFUSION_TEST_GPU_RANKS_H_
#define ARFUSION_TEST_GPU_RANKS_H_

#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kernels/host/host_kernels.h"

enum { RANKS = 2, TOKENS = 192, HIDDEN = 4096, ELEMENTS = TOKENS * HIDDEN };

#define CHECK(call)                                                                                    \
  do {                                                                                                 \
    const int check_error = (int)(call);                                                               \
    if (check_error != 0) {                                                                            \
      fprintf(stderr, "%s:%d: %s: %d\n", __FILE__, __LINE__, #call, check_error);                      \
      exit(1);                                                                                         \
    }                                                                                                  \
  } while (0)

static int passed, failed;
static int gpus; /* in use */

/* Before anything else: how many GPUs there are for the ranks, 0 to 2, and what one GPU for both needs. */
static inline int ranks_find_gpus(void) {
  int count = 0;
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  if (cudaGetDeviceCount(&count) != cudaSuccess) count = 0;
  gpus = count < RANKS ? count : RANKS;
  if (gpus == 1) setenv("ARFUSION_SHARED_GPU", "1", 1);
  return gpus;
}

static inline void rank_use(int r) { CHECK(cudaSetDevice(r % gpus)); }

static inline void expect(int ok, const char* what) {
  if (ok) {
    ++passed;
  } else {
    ++failed;
    printf("FAILED: %s\n", what);
  }
  fflush(stdout);
}

static inline int finish(void) {
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}

static inline double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Small integers in bf16: sums are exact, so that any order gives the contract's bits. */
static inline uint16_t small(uint32_t i, uint32_t seed) {
  uint32_t h = (i + seed * 77777u) * 2654435761u;
  h ^= h >> 15;
  const float value = (float)((int)(h % 17) - 8);
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (uint16_t)(bits >> 16);
}

static inline float bf16_value(uint16_t bits) {
  const uint32_t wide = (uint32_t)bits << 16;
  float value;
  memcpy(&value, &wide, sizeof value);
  return value;
}

struct rank_memory {
  cudaStream_t stream[2];
  uint16_t *input, *residual, *gamma, *sum, *residual_out, *norm; /* device */
};

static struct rank_memory memory[RANKS];
static uint16_t want_sum[ELEMENTS], want_residual[ELEMENTS], want_norm[ELEMENTS], got[ELEMENTS];

static inline void* upload(const uint16_t* values, size_t count) {
  void* p;
  CHECK(cudaMalloc(&p, count * 2));
  if (values) CHECK(cudaMemcpy(p, values, count * 2, cudaMemcpyHostToDevice));
  return p;
}

/* The inputs that all ranks have alike, and what must come out. Needs no GPU. */
static uint16_t all_residual[ELEMENTS], all_gamma[HIDDEN];
static inline void memory_plan(void) {
  for (int i = 0; i < ELEMENTS; ++i) all_residual[i] = small((uint32_t)i, 50);
  for (int i = 0; i < HIDDEN; ++i) all_gamma[i] = small((uint32_t)i, 60);
  for (int i = 0; i < ELEMENTS; ++i) {
    float total = 0;
    for (uint32_t r = 0; r < RANKS; ++r) total += bf16_value(small((uint32_t)i, r + 1));
    uint32_t bits;
    memcpy(&bits, &total, sizeof bits);
    want_sum[i] = (uint16_t)(bits >> 16);
  }
  const struct kernel_op op = {.pattern = arfusionPatternResidualRmsNorm,
                               .dtype = arfusionBfloat16,
                               .gamma_dtype = arfusionBfloat16,
                               .tokens = TOKENS,
                               .hidden = HIDDEN,
                               .input_stride = HIDDEN,
                               .residual_in_stride = HIDDEN,
                               .residual_out_stride = HIDDEN,
                               .norm_out_stride = HIDDEN,
                               .input = want_sum,
                               .residual_in = all_residual,
                               .gamma = all_gamma,
                               .residual_out = want_residual,
                               .norm_out = want_norm,
                               .eps = 1e-5f};
  host_epilogue(&op);
}

static inline void memory_create_rank(int r) {
  static uint16_t values[ELEMENTS];
  struct rank_memory* m = &memory[r];
  rank_use(r);
  for (int i = 0; i < ELEMENTS; ++i) values[i] = small((uint32_t)i, (uint32_t)r + 1);
  for (int s = 0; s < 2; ++s) CHECK(cudaStreamCreateWithFlags(&m->stream[s], cudaStreamNonBlocking));
  m->input = upload(values, ELEMENTS);
  m->residual = upload(all_residual, ELEMENTS);
  m->gamma = upload(all_gamma, HIDDEN);
  m->sum = upload(NULL, ELEMENTS);
  m->residual_out = upload(NULL, ELEMENTS);
  m->norm = upload(NULL, ELEMENTS);
}

/* Fills everybody's inputs and what must come out. */
static inline void memory_create(void) {
  memory_plan();
  for (int r = 0; r < RANKS; ++r) memory_create_rank(r);
}

static inline void outputs_clear(void) {
  for (int r = 0; r < RANKS; ++r) {
    rank_use(r);
    CHECK(cudaMemset(memory[r].sum, 0xee, ELEMENTS * 2));
    CHECK(cudaMemset(memory[r].residual_out, 0xee, ELEMENTS * 2));
    CHECK(cudaMemset(memory[r].norm, 0xee, ELEMENTS * 2));
    CHECK(cudaDeviceSynchronize());
  }
}

static inline void streams_sync(void) {
  for (int r = 0; r < RANKS; ++r) {
    for (int s = 0; s < 2; ++s) CHECK(cudaStreamSynchronize(memory[r].stream[s]));
  }
}

/* The first `tokens` rows of a device array are those wanted, and what follows was left alone. */
static inline int rows_are(const uint16_t* device, const uint16_t* want, int tokens) {
  CHECK(cudaMemcpy(got, device, ELEMENTS * 2, cudaMemcpyDeviceToHost));
  for (int i = tokens * HIDDEN; i < ELEMENTS; ++i) {
    if (got[i] != 0xeeee) return 0;
  }
  return !memcmp(got, want, (size_t)tokens * HIDDEN * 2);
}

static inline int rows_right(int tokens) {
  int right = 1;
  for (int r = 0; r < RANKS; ++r) {
    right &= rows_are(memory[r].residual_out, want_residual, tokens) & rows_are(memory[r].norm, want_norm, tokens);
  }
  return right;
}

static inline arfusionRequest_t rows_request(int r, int tokens) {
  return (arfusionRequest_t){.size = sizeof(arfusionRequest_t),
                             .pattern = arfusionPatternResidualRmsNorm,
                             .dataType = arfusionBfloat16,
                             .gammaDataType = arfusionBfloat16,
                             .tokens = tokens,
                             .hidden = HIDDEN,
                             .eps = 1e-5f,
                             .input = memory[r].input,
                             .residualIn = memory[r].residual,
                             .gamma = memory[r].gamma,
                             .residualOut = memory[r].residual_out,
                             .normOut = memory[r].norm};
}

static inline int open_descriptors(void) {
  int count = 0;
  for (int fd = 0; fd < 4096; ++fd) count += fcntl(fd, F_GETFD) >= 0;
  return count;
}

#endif
