/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_gather.h: a bootstrap's allGather over an ncclComm_t, with a time limit. Shared by libarfusion and
 * libarfusion-nccl.so.
 */
#ifndef ARFUSION_HOST_NCCL_GATHER_H_
#define ARFUSION_HOST_NCCL_GATHER_H_

#include <stdatomic.h>

#include "arfusion_plugin.h"

struct nccl_gather;

/* Where messages stand while NCCL carries them. */
struct nccl_gather_memory {
  arfusionResult_t (*open)(struct nccl_gather* gather);
  /* Makes the memory and copies `send` to its beginning. */
  arfusionResult_t (*put)(struct nccl_gather* gather, const void* send, size_t bytes);
  /* *done: whether what was enqueued on the stream has ended. */
  arfusionResult_t (*query)(struct nccl_gather* gather, int* done);
  /* Copies what was gathered (nranks * bytes, behind the first `bytes`) to `recv`. */
  arfusionResult_t (*get)(struct nccl_gather* gather, void* recv, size_t bytes);
  void (*drop)(struct nccl_gather* gather);
  void (*close)(struct nccl_gather* gather);
  /* Around each of the above: the rank's device is the current one. */
  arfusionResult_t (*enter)(struct nccl_gather* gather);
  void (*leave)(struct nccl_gather* gather);
};

#ifdef ARFUSION_HAVE_CUDA
/* device memory; pinned host memory where there is no more of it */
extern const struct nccl_gather_memory nccl_gather_cuda;
#endif

struct nccl_gather {
  const struct nccl_gather_memory* where;
  int (*all_gather)(const void*, void*, size_t, int, void*, void*); /* ncclAllGather */
  int (*async_error)(void*, int*);                                  /* ncclCommGetAsyncError */
  const char* (*error_string)(int);                                 /* ncclGetErrorString */
  void* comm;
  int dev, nranks;
  int64_t limit_s;
  const atomic_int* cancelled; /* not 0: give up, and call NCCL no more; NULL: never */
  atomic_int* calling;         /* 1 while all_gather is called; NULL: nobody asks */
  const char* advice;          /* to whom the limit has passed; NULL: none */
  /* of nccl_gather.c and `where` */
  void* stream;
  unsigned char* memory;
  int pinned; /* `memory` is host memory */
  int stuck;  /* an all-gather has not ended: its memory stays NCCL's until its communicator is gone */
  int previous_dev, previous_mode;
};

/* The upper half of the struct is the caller's. */
arfusionResult_t nccl_gather_open(struct nccl_gather* gather);

/* As arfusionBootstrap_t's allGather; `opaque` is a struct nccl_gather. arfusionRemoteError when the other ranks have
 * not answered within the limit: what was enqueued cannot be taken back then, so that only aborting the ncclComm_t is
 * left. */
arfusionResult_t nccl_gather_run(void* opaque, const void* send, void* recv, size_t bytes);

/* An error if `cancelled` is not 0. */
arfusionResult_t nccl_gather_check(const atomic_int* cancelled);

/* Waits for nothing. */
void nccl_gather_close(struct nccl_gather* gather);

/* Once the ncclComm_t is gone: frees what is stuck, if anything is. */
void nccl_gather_drop_stuck(struct nccl_gather* gather);

#endif
