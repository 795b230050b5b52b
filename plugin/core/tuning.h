/* SPDX-License-Identifier: Apache-2.0
 *
 * tuning.h: routing tables: which algorithm `auto` takes at which size, and from which size on the alternative, an
 * allreduce of NCCL's and then the epilogue, is faster. Built in (tuning_builtin.c), or from the file that
 * ARFUSION_TUNING_FILE names; `none` names none, also where a configuration file has named one.
 *
 * `arfusion-bench tune` writes such a file; by hand it is these lines in this order, words separated by spaces or tabs:
 *
 *   arfusion-tuning 1               the version of the format
 *   arch sm_90                      the GPUs' architecture, or host
 *   gpu NVIDIA H200                 may be left out; for GPUs of this name alone
 *   ranks 2                         of the communicator, 2 to 16
 *   up_to 1048576 oneshot_lamport   1 to 8 of these; a request's bytes are tokens x hidden x element size, and rise
 *   up_to unlimited twoshot         the last one
 *   slower_from never               or bytes; counts with ARFUSION_PREFER=speed
 *
 * Several tables may follow one another, for other rank counts and other GPUs: files of tune's, put together. Lines
 * that begin with # and empty ones may be anywhere. At most 64 KiB, at most 255 characters a line.
 */
#ifndef ARFUSION_CORE_TUNING_H_
#define ARFUSION_CORE_TUNING_H_

#include <stdio.h>

#include "plugin/core/route.h"

#define TUNING_FORMAT "arfusion-tuning"
#define TUNING_VERSION 1

/* What a table is for. */
struct tuning_target {
  const char* gpu;   /* its name, as arfusionProperties_t has it */
  int compute_major; /* 0: the host device */
  int compute_minor;
  int nranks;
};

/* "sm_90"; "host". */
#define TUNING_ARCH_BYTES 16
static inline void tuning_arch(int compute_major, int compute_minor, char arch[TUNING_ARCH_BYTES]) {
  if (compute_major == 0) {
    snprintf(arch, TUNING_ARCH_BYTES, "host");
  } else {
    snprintf(arch, TUNING_ARCH_BYTES, "sm_%d", compute_major * 10 + compute_minor);
  }
}

/* Reads the table for `target`. With tables for the device, but none of that many ranks, *found is 0 and `table` as it
 * was. arfusionInvalidArgument, with file, line and what is allowed, for a file that is missing, malformed, of another
 * version, for other devices alone, or has two tables for the target; `table` is then as it was. */
arfusionResult_t tuning_read(const char* path, const struct tuning_target* target, int* found,
                             struct route_table* table);

/* The table for GPUs of this architecture; there is one for each (see tuning_builtin.c). Returns where it is from:
 * "measured", "from a model", ... */
const char* tuning_builtin(int compute_major, int compute_minor, int nranks, struct route_table* table);

/* GPU times in µs for one operation of `bytes` (tokens x hidden x element size). */
struct tuning_times {
  double operation_us; /* allreduce + residual + RMSNorm by `algorithm`; no more than that for an allreduce alone */
  double nccl_us;      /* ncclAllReduce */
  double epilogue_us;  /* residual and RMSNorm in a kernel of their own */
};

/* Estimates them, for 2 to 16 ranks of one host and for an algorithm with a name; returns what they are based on. NULL
 * for the host device: nothing is known of NCCL there. */
const char* tuning_estimate(int compute_major, int compute_minor, int nranks, arfusionAlgorithm_t algorithm,
                            int64_t bytes, struct tuning_times* times);

int tuning_equal(const struct route_table* a, const struct route_table* b);

/* "oneshot_lamport up to 4096 bytes, then twoshot". */
#define TUNING_TEXT_BYTES 512
void tuning_text(const struct route_table* table, char text[TUNING_TEXT_BYTES]);

#endif
