/* SPDX-License-Identifier: Apache-2.0
 *
 * probe.h: the sub-command `probe`: what the links between GPUs really do. Every pair is measured by a process of its
 * own under a watchdog, so that a GPU that hangs, or takes its process with it, ends as a line in the report.
 */
#ifndef ARFUSION_TOPO_PROBE_H_
#define ARFUSION_TOPO_PROBE_H_

#include "plugin/tools/topo/probe_child.h"
#include "plugin/tools/topo/tool.h"

enum probe_state {
  PROBE_NOT_MEASURED,
  PROBE_GOOD,
  PROBE_WRONG,  /* data were lost or changed */
  PROBE_NO_WAY, /* there is no peer access, or an error said so */
  PROBE_HUNG    /* the watchdog ended it, or its process died */
};

/* One measurement of an ordered pair. */
struct probe_cell {
  enum probe_state state;
  double value; /* GB/s, or µs one way */
  uint64_t words, wrong;
  char text[256]; /* what went wrong; "" */
};

struct probe_results {
  int ngpus;
  int* gpus;                /* indices in the model */
  struct probe_cell* cells; /* [metric][from][to] */
};

/* How children are started and how long they may be silent. */
struct probe_plan {
  const char* program;  /* run as: PROGRAM probe --pair=BUS_ID,BUS_ID; writes messages to its stdout */
  int start_limit_ms;   /* until the first measurement begins: CUDA starts slowly on machines of many GPUs */
  int measure_limit_ms; /* for each measurement */
  int show_progress;    /* on stderr */
};

/* Measures all pairs of GPUs that CUDA shows, in the order of the model. 0, or -1 when memory runs out. */
int probe_measure(const struct topo* topo, const struct probe_plan* plan, struct probe_results* results);
void probe_free(struct probe_results* results);

struct probe_cell* probe_cell(const struct probe_results* results, enum probe_metric metric, int from, int to);

/* What the results come to. */
enum tool_status probe_status(const struct probe_results* results);

/* The sub-command. The model is redacted after its UUIDs have served to start the children. Returns the exit code. */
int probe_run(struct topo* topo, const struct tool_options* options);

#endif
