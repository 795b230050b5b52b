/* SPDX-License-Identifier: Apache-2.0
 *
 * demo.h: the rows of the demo, and what a rank makes of each.
 */
#ifndef ARFUSION_BENCH_DEMO_H_
#define ARFUSION_BENCH_DEMO_H_

#include "plugin/tools/bench/session.h"

/* A decoder layer has two allreduces, after attention and after the MLP, each followed by residual add and RMSNorm. */
#define DEMO_PER_LAYER 2
#define DEMO_RANKS 2

struct demo_row {
  const char* model;
  const char* phase;
  int64_t tokens, hidden;
  int layers;
};

struct demo_plan {
  const struct bench_session* session;
  const struct demo_row* rows;
  int count;
};

enum demo_bits { DEMO_EQUAL, DEMO_DIFFER, DEMO_NCCL /* the plugin turned it down; NCCL's sum has bits of its own */ };

/* What rank 0 sends of each row. */
struct demo_result {
  int row;
  arfusionAlgorithm_t algorithm; /* arfusionAlgoNone: turned down */
  double fused_us, unfused_us;   /* medians of an allreduce; unfused 0: there is no NCCL */
  enum demo_bits bits;
};

/* A rank's whole life; `arg` is a struct demo_plan. For team_run. */
int demo_run_rank(struct team_rank* self, void* arg);

#endif
