/* SPDX-License-Identifier: Apache-2.0
 *
 * paths.h: the paths that allreduce + residual + RMSNorm can take on one rank, each ready to be timed at any size. The
 * tensors are made once, for the largest size; all paths of one size are timed alternating (measure.h).
 */
#ifndef ARFUSION_BENCH_PATHS_H_
#define ARFUSION_BENCH_PATHS_H_

#include "plugin/tools/bench/measure.h"
#include "plugin/tools/bench/unfused.h"

/* A path's number: an algorithm that can be asked for, by its arfusionAlgorithm_t (arfusionAlgoAuto: the plugin
 * chooses), or one of these. */
enum {
  PATH_UNFUSED = ARFUSION_NUM_ALGORITHMS, /* an allreduce (NCCL's; on the host the plugin's), then the epilogue */
  PATH_WINDOWS,                           /* the same in NCCL's symmetric windows; not on the host */
  PATH_EPILOGUE,                          /* the epilogue alone */
  PATH_COUNT
};

/* A path and how it is launched. On the host neither of the two makes a difference. */
struct path_form {
  int path;
  enum bench_launch launch;
  int pdl; /* dependent launch */
};
#define PATH_MAX_FORMS 32 /* of one paths_measure */

#define PATH_GROUP 128 /* elements, of quantization fp8_group */

struct path_result {
  arfusionAlgorithm_t algorithm;  /* that it took; arfusionAlgoNone if it is none of the plugin's */
  struct measure_summary summary; /* µs; all 0: there is no such path at this size */
};

struct paths {
  struct bench_rank rank;
  struct unfused unfused;
  struct bench_buffer input, residual, gamma, norm;
  struct bench_buffer codes, scales, scale; /* of a quantization */
  arfusionRequest_t request;
};

/* Makes the ranks' communicator, NCCL's where it is there, and the tensors for sizes up to tokens x hidden. nvfp4 has
 * its scales in 128x4 tiles. 0, or -1 after team_fail; paths_close is due either way. */
int paths_open(struct team_rank* team, const struct bench_session* session, arfusionDataType_t dtype,
               arfusionQuant_t quantization, int64_t tokens, int64_t hidden, struct paths* paths);
int paths_close(struct paths* paths); /* 0, or -1 after team_fail */

/* Times `count` forms at one size, alternating: on a GPU `rounds` samples of 20 launches each, on the host as many
 * samples as fit into some seconds, at most `rounds` (up to MEASURE_MAX_ROUNDS). The same call on all ranks, with the
 * same results on all. 0, or -1 after team_fail. */
int paths_measure(struct paths* paths, int64_t tokens, int64_t hidden, const struct path_form* forms, int count,
                  int rounds, struct path_result* results);

/* One path at one size, for whoever times it in another way. */
struct path {
  struct paths* paths;
  int number;
  arfusionAlgorithm_t algorithm; /* as in path_result */
  arfusionRequest_t request;
};

/* 1, or 0 if there is no such path at this size: alike on all ranks. `paths` must outlive the path. */
int path_prepare(struct paths* paths, const struct path_form* form, int64_t tokens, int64_t hidden, struct path* path);

/* Enqueues the operation once; `arg` is the struct path. 0, or -1 with bench_device_error(). */
int path_enqueue(void* arg);

/* The name in tables and documents. */
const char* path_name(int path, enum bench_device_kind kind);

#endif
