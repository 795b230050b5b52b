/* SPDX-License-Identifier: Apache-2.0
 *
 * profiler_report.h: what a communicator's allreduces look like, and what the plugin would do with them.
 *
 * NCCL tells function, count and data type of a call; not the operation, which is taken to be a sum, nor the shape
 * behind the count, nor what follows the call. So *fusible* is what the shape of pattern residual_rmsnorm does not
 * rule out: bf16, fp16 or fp32 in a multiple of 16 bytes, which is what any rows of a permitted hidden come to.
 * Whether a residual and a norm follow, only the application's author knows; how many elements divide all counts of a
 * type hints at its hidden.
 */
#ifndef ARFUSION_NCCL_PROFILER_REPORT_H_
#define ARFUSION_NCCL_PROFILER_REPORT_H_

#include <limits.h>
#include <stdio.h>
#include <sys/types.h>

#include "plugin/core/route.h"
#include "plugin/core/tuning.h"
#include "plugin/nccl/profiler_calls.h"

/* Of NCCL's communicator, and of the one of the plugin's that would stand beside it. */
struct profiler_facts {
  uint64_t id;
  char name[64]; /* that the application gave it; "": none */
  char host[64];
  pid_t pid;
  int rank, nranks, nnodes;
  char device[64], arch[TUNING_ARCH_BYTES];
  int compute_major, compute_minor;
  struct route_facts route;
  const char* table; /* where route.table is from */
};

/* What a call could become: the same allreduce by the plugin, or one operation with the residual and norm that follow.
 * */
enum report_form { REPORT_ALLREDUCE, REPORT_FUSED, REPORT_FORMS };

struct report_size {
  struct profiler_size calls;
  int64_t bytes; /* of one call; 0: the type is not known */
  int fusible;
  struct {
    arfusionRoute_t route;
    /* Estimates; 0: turned down, or there is none. */
    double now_us;   /* what NCCL and, if fused, the kernel behind it take */
    double saved_us; /* of that, by the route */
  } form[REPORT_FORMS];
};

struct report_sum {
  uint64_t calls;
  double now_us, saved_us; /* of those that would be taken */
};

struct report {
  const struct profiler_facts* facts;
  double seconds; /* from the communicator's beginning to its end */
  int ended;      /* 0: the process ends and the communicator has not */
  int nsizes;
  struct report_size* sizes; /* by number of calls, falling */
  uint64_t eager, captured;  /* allreduces; captured ones are counted once, whatever the graph's replays */
  uint64_t others, overflow;
  uint64_t fusible; /* by shape; captured ones too */
  struct {
    uint64_t taken[ARFUSION_NUM_ALGORITHMS], reasons[ARFUSION_NUM_REASONS]; /* calls, captured ones too */
    struct report_sum eager, captured;                                      /* captured: a replay of each graph */
  } form[REPORT_FORMS];
  int64_t divides[12]; /* by data type: what divides the counts of all fusible calls; 0: there are none */
  const char* basis;   /* of the estimates; NULL: there are none */
};

/* Judges what has been counted. -1: out of memory. report_free ends what it made. */
int report_make(struct report* report, const struct profiler_facts* facts, struct profiler_calls* calls);
void report_free(struct report* report);

/* NCCL's name of a data type to its number, and the name in reports. */
arfusionDataType_t report_type_parse(const char* nccl_name);
const char* report_type_name(arfusionDataType_t type);

/* A table for people; one line of JSON. */
void report_print_text(const struct report* report, FILE* out);
void report_print_json(const struct report* report, FILE* out);

#endif
