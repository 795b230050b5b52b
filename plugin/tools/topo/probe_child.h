/* SPDX-License-Identifier: Apache-2.0
 *
 * probe_child.h: the process that measures one pair of GPUs, and what it tells its parent. The parent itself touches no
 * GPU: whatever a broken link does to a process, it does to the child.
 */
#ifndef ARFUSION_TOPO_PROBE_CHILD_H_
#define ARFUSION_TOPO_PROBE_CHILD_H_

#include <stdint.h>

enum probe_metric { PROBE_STORES, PROBE_LOADS, PROBE_COPY, PROBE_LATENCY, PROBE_METRICS };

enum probe_message_kind {
  PROBE_BEGIN,  /* this measurement begins */
  PROBE_RESULT, /* this measurement's value */
  PROBE_FAILED, /* this measurement cannot be made, or this pair cannot be used at all (metric PROBE_METRICS): text */
  PROBE_DONE    /* the last message */
};

/* What the child writes to its parent: whole structs, one after the other. */
struct probe_message {
  uint32_t kind;
  uint32_t metric;
  uint32_t backwards; /* 0: from the first GPU to the second; 1: from the second to the first */
  uint32_t reserved;
  double value;   /* GB/s (1e9 bytes); of latencies µs, one way */
  uint64_t words; /* of 16 bytes that were verified */
  uint64_t wrong; /* of them, those that did not hold what had been written */
  char text[256];
};

/* Measures the GPUs with the PCI bus ids `first` and `second` and writes messages to `fd`. Returns the process's exit
 * code. */
int probe_child_run(const char* first, const char* second, int fd);

#endif
