/* SPDX-License-Identifier: Apache-2.0
 *
 * world.h: several ranks in one process on the GPUs at hand, straight on the launchers of kernels/cuda: workspaces from
 * cudaMalloc, peers through cudaDeviceEnablePeerAccess, a stream for each rank. For the programs of this folder.
 */
#ifndef ARFUSION_TEST_GPU_WORLD_H_
#define ARFUSION_TEST_GPU_WORLD_H_

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/cuda/cuda_kernels.h"

#define CHECK(call)                                                                                    \
  do {                                                                                                 \
    const int check_error = (int)(call);                                                               \
    if (check_error != 0) {                                                                            \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, cudaGetErrorString((cudaError_t)check_error)); \
      exit(1);                                                                                         \
    }                                                                                                  \
  } while (0)

struct world {
  int nranks, device[ARFUSION_MAX_RANKS];
  cudaStream_t stream[ARFUSION_MAX_RANKS];
  struct cuda_comm comm[ARFUSION_MAX_RANKS];
  volatile uint32_t* abort[ARFUSION_MAX_RANKS]; /* host memory */
};

static inline int world_gpus(void) {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess) return 0;
  return count < 2 ? count : 2;
}

/* Every pair of the GPUs used. */
static inline void world_enable_peers(int gpus) {
  for (int a = 0; a < gpus; ++a) {
    CHECK(cudaSetDevice(a));
    for (int b = 0; b < gpus; ++b) {
      if (a != b) CHECK(cudaDeviceEnablePeerAccess(b, 0));
    }
  }
}

static inline void world_reset(struct world* w) {
  for (int r = 0; r < w->nranks; ++r) {
    CHECK(cudaSetDevice(w->device[r]));
    CHECK(cudaDeviceSynchronize());
    *w->abort[r] = 0;
    memset(w->comm[r].failure, 0, sizeof *w->comm[r].failure);
    CHECK(cuda_workspace_reset(&w->comm[r], w->stream[r]));
    CHECK(cudaStreamSynchronize(w->stream[r]));
  }
}

/* Rank r is on GPU r modulo `gpus`. */
static inline void world_make(struct world* w, int nranks, int gpus, int64_t slot_bytes, int max_blocks,
                              uint64_t timeout_ns) {
  struct cuda_layout layout;
  cuda_layout_compute(&layout, nranks, slot_bytes, INT64_MAX / 2);
  w->nranks = nranks;
  for (int r = 0; r < nranks; ++r) {
    struct cuda_comm* comm = &w->comm[r];
    void* host;
    memset(comm, 0, sizeof *comm);
    w->device[r] = r % gpus;
    CHECK(cudaSetDevice(w->device[r]));
    CHECK(cudaStreamCreateWithFlags(&w->stream[r], cudaStreamNonBlocking));
    CHECK(cudaHostAlloc(&host, 256, cudaHostAllocPortable | cudaHostAllocMapped));
    w->abort[r] = host;
    comm->abort = host;
    comm->failure = (struct kernel_failure*)((char*)host + 128);
    comm->rank = r;
    comm->nranks = nranks;
    comm->layout = layout;
    comm->timeout_ns = timeout_ns;
    comm->max_blocks = comm->max_blocks_of_a_token = max_blocks;
    comm->shared_gpu = nranks > gpus;
    CHECK(cudaDeviceGetAttribute(&comm->compute_major, cudaDevAttrComputeCapabilityMajor, w->device[r]));
    CHECK(cudaMalloc(&comm->workspace[r], layout.total));
    CHECK(cuda_kernels_load(nranks));
  }
  for (int r = 0; r < nranks; ++r) {
    for (int p = 0; p < nranks; ++p) w->comm[r].workspace[p] = w->comm[p].workspace[p];
  }
  world_reset(w);
}

static inline void world_free(struct world* w) {
  for (int r = 0; r < w->nranks; ++r) {
    CHECK(cudaSetDevice(w->device[r]));
    CHECK(cudaDeviceSynchronize());
    CHECK(cudaFree(w->comm[r].workspace[r]));
    CHECK(cudaStreamDestroy(w->stream[r]));
    CHECK(cudaFreeHost((void*)w->abort[r]));
  }
}

static inline void world_sync(struct world* w) {
  for (int r = 0; r < w->nranks; ++r) {
    CHECK(cudaSetDevice(w->device[r]));
    CHECK(cudaStreamSynchronize(w->stream[r]));
  }
}

static inline void world_launch(struct world* w, int rank, arfusionAlgorithm_t algorithm, const struct kernel_op* op) {
  CHECK(cudaSetDevice(w->device[rank]));
  CHECK(cuda_launch(&w->comm[rank], algorithm, op, w->stream[rank]));
}

static inline double world_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#endif
