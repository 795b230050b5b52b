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

/* The largest grid of a rank, such that all ranks of a GPU are resident together. */
static inline int world_max_blocks(int nranks, int gpus) {
  int multiprocessors;
  CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
  const int sharing = (nranks + gpus - 1) / gpus;
  const int share = (multiprocessors - multiprocessors / 8) / sharing;
  return sharing == 1 || share < 12 ? share : 12;
}

static inline void world_rank_reset(struct world* w, int r) {
  CHECK(cudaSetDevice(w->device[r]));
  CHECK(cudaDeviceSynchronize());
  *w->abort[r] = 0;
  memset(w->comm[r].failure, 0, sizeof *w->comm[r].failure);
  CHECK(cuda_workspace_reset(&w->comm[r], w->stream[r]));
  CHECK(cudaStreamSynchronize(w->stream[r]));
}

static inline void world_reset(struct world* w) {
  for (int r = 0; r < w->nranks; ++r) world_rank_reset(w, r);
}

/* One rank, on GPU r modulo `gpus`, but for its peers' workspaces. */
static inline void world_rank_make(struct world* w, int r, int nranks, int gpus, int64_t slot_bytes, int max_blocks,
                                   uint64_t timeout_ns) {
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
  cuda_layout_compute(&comm->layout, nranks, slot_bytes, INT64_MAX / 2);
  comm->timeout_ns = timeout_ns;
  comm->max_blocks = comm->max_blocks_of_few_tokens = max_blocks;
  comm->shared_gpu = nranks > gpus;
  CHECK(cudaDeviceGetAttribute(&comm->compute_major, cudaDevAttrComputeCapabilityMajor, w->device[r]));
  CHECK(cudaMalloc(&comm->workspace[r], comm->layout.total));
  CHECK(cuda_kernels_load(nranks));
}

static inline void world_make(struct world* w, int nranks, int gpus, int64_t slot_bytes, int max_blocks,
                              uint64_t timeout_ns) {
  w->nranks = nranks;
  for (int r = 0; r < nranks; ++r) world_rank_make(w, r, nranks, gpus, slot_bytes, max_blocks, timeout_ns);
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

/* Whether no wait of this rank has failed; prints which has. */
static inline int world_rank_healthy(const struct world* w, int r) {
  const struct kernel_failure* f = w->comm[r].failure;
  if (f->kind == KERNEL_FAILURE_NONE) return 1;
  printf("rank %d failed: kind %u, waited for rank %u, epoch %llu, token %lld\n", r, f->kind, f->peer,
         (unsigned long long)f->epoch, (long long)f->token);
  return 0;
}

static inline double world_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

#endif
