/* SPDX-License-Identifier: Apache-2.0
 *
 * unfused.h: the same operation without fusion, as a host program does it without this plugin or when the plugin turns
 * a request down: an allreduce, then the epilogue. On GPUs the allreduce is NCCL's, on the host the plugin's flat one.
 */
#ifndef ARFUSION_BENCH_UNFUSED_H_
#define ARFUSION_BENCH_UNFUSED_H_

#include "plugin/tools/bench/session.h"

struct nccl;

struct unfused {
  struct bench_rank* rank;
  struct nccl* nccl; /* NULL on the host */
  int available;     /* 0: there is no NCCL; the same on all ranks */
  char why[256];     /* then, why */
};

/* 0, or -1 after team_fail. That there is no NCCL is no failure. */
int unfused_open(struct bench_rank* rank, struct unfused* unfused);
void unfused_close(struct unfused* unfused);

/* Enqueues `request` (pattern residual_rmsnorm, with norm_out, dense). 0, or -1 with bench_device_error(). */
int unfused_enqueue(struct unfused* unfused, const arfusionRequest_t* request);

/* NCCL, opened at run time. nccl_open returns 0 with *nccl NULL and `why` set where it is not there. */
int nccl_open(struct team_rank* team, struct nccl** nccl, char* why, size_t why_bytes);
void nccl_close(struct nccl* nccl);
int nccl_all_reduce(struct nccl* nccl, const void* input, void* output, size_t count, arfusionDataType_t dtype,
                    void* stream);

#endif
