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
  /* NCCL's symmetric windows: one for input and one for output, in one piece of memory. NULL: there are none. */
  unsigned char *window_input, *window_output;
  char no_window_why[256]; /* then, why */
};

/* 0, or -1 after team_fail. That there is no NCCL is no failure. */
int unfused_open(struct bench_rank* rank, struct unfused* unfused);
void unfused_close(struct unfused* unfused);

/* Makes the windows, for requests up to the size of `input`, and copies its image into them. 0, or -1 after team_fail.
 * That NCCL has no windows is no failure. */
int unfused_open_windows(struct unfused* unfused, const struct bench_buffer* input);

/* Enqueues `request` (pattern residual_rmsnorm, with norm_out, dense). The second takes the windows in place of input
 * and norm_out, the third does only what follows the sum, which norm_out holds. 0, or -1 with bench_device_error(). */
int unfused_enqueue(struct unfused* unfused, const arfusionRequest_t* request);
int unfused_enqueue_windows(struct unfused* unfused, const arfusionRequest_t* request);
int unfused_enqueue_epilogue(struct unfused* unfused, const arfusionRequest_t* request);

/* NCCL, opened at run time. nccl_open returns 0 with *nccl NULL and `why` set where it is not there. nccl_close frees
 * the window too. */
int nccl_open(struct team_rank* team, struct nccl** nccl, char* why, size_t why_bytes);
void nccl_close(struct nccl* nccl);
int nccl_all_reduce(struct nccl* nccl, const void* input, void* output, size_t count, arfusionDataType_t dtype,
                    void* stream);

/* Memory of `bytes` bytes, registered as a symmetric window: NCCL 2.27 and later. NULL with `why` set where that is not
 * there, alike on all ranks. One window at a time. */
void* nccl_open_window(struct nccl* nccl, struct team_rank* team, size_t bytes, char* why, size_t why_bytes);

/* Its version as it counts (22803 is 2.28.3). */
int nccl_version(const struct nccl* nccl);

#endif
