/* SPDX-License-Identifier: Apache-2.0
 *
 * host_internal.h: what the host kernels' files share: the control words of a workspace, an operation under way (a
 * task), the waits, and the table of vector functions that is picked once for each operation.
 *
 * The unit of work is one segment of one row (32 packs, 256 elements; the last of a row may be shorter). Units are
 * numbered row by row. In slots, rows are padded to whole packs and stand one after the other, so that a range of units
 * is also a range of bytes there.
 */
#ifndef ARFUSION_KERNELS_HOST_INTERNAL_H_
#define ARFUSION_KERNELS_HOST_INTERNAL_H_

#include <stdalign.h>

#include "kernels/host/host_kernels.h"

#define HOST_SEGMENT_PACKS 32
#define HOST_SEGMENT (HOST_SEGMENT_PACKS * KERNEL_PACK) /* elements */
#define HOST_MAX_SEGMENTS (ARFUSION_MAX_HIDDEN / HOST_SEGMENT)
#define HOST_CALL_WORDS (sizeof(struct kernel_call) / sizeof(uint64_t))
#define HOST_LINE 128 /* bytes that processors fetch together */

/* All words only grow. `staged` and `reduced` count units since the communicator was made, so that their targets follow
 * from what all ranks agree on; each has its own line. */
struct host_control {
  alignas(HOST_LINE) _Atomic uint64_t staged;  /* units of this rank's inputs that its `stage` has held */
  alignas(HOST_LINE) _Atomic uint64_t reduced; /* units whose share of this rank its `sums` has held */
  alignas(HOST_LINE) _Atomic uint32_t fail;    /* 0, or 1 + the rank that gave up */
  alignas(HOST_LINE) _Atomic uint64_t checked; /* calls that this rank has shown the others; the last one is `call` */
  _Atomic uint64_t call[HOST_CALL_WORDS];      /* struct kernel_call */
};

/* Vector functions for one data type. `n` counts elements; lists of packs in slots and in `acc` are always whole, and a
 * short last pack is filled up with +0.0. `acc` holds fp32. */
struct host_compute {
  /* acc = fp32(src), as it is. */
  void (*load)(float* acc, const void* src, int n);
  /* acc = (first ? +0.0 : acc) + src[0] + src[1] + ... in this order. */
  void (*sum)(float* acc, const void* const* src, int nsrc, int n, int first);
  /* Writes n elements of src to a Lamport slot, -0.0 as +0.0. */
  void (*send)(void* slot, const void* src, int64_t n);
  /* acc = (first ? +0.0 : acc) + slot, and puts the sentinel back, from element `done` on, as far as the slot's words
   * have arrived. Returns how far that was (the next call's `done`): n or more when all is done. */
  int (*receive)(float* acc, void* slot, int done, int n, int first);
  /* dst = T(acc). */
  void (*store)(void* dst, const float* acc, int n);
  /* dst = y = T(fp32(T(acc)) + residual), or T(acc) if residual is NULL, for a segment of which n elements are there.
   * Returns the sum of squares of y over the segment. */
  float (*finish)(void* dst, const float* acc, const void* residual, int n);
  /* dst = T((y * scale) * (weight_bias + gamma)). */
  void (*norm)(void* dst, const void* y, const void* gamma, int64_t n, float scale, float weight_bias);
  /* The same with gamma in fp32. */
  void (*norm_gamma_fp32)(void* dst, const void* y, const void* gamma, int64_t n, float scale, float weight_bias);
  /* The e4m3 code of a number of any type. */
  unsigned char (*e4m3)(float v);
  /* The largest magnitude of n elements; NaN if there is one. */
  float (*absmax)(const void* src, int64_t n);
  /* One byte an element: e4m3(src * factor), e4m3(src / divisor). */
  void (*fp8_multiply)(unsigned char* codes, const void* src, int64_t n, float factor);
  void (*fp8_divide)(unsigned char* codes, const void* src, int64_t n, float divisor);
  /* Half a byte an element, the first in the low half: e2m1(src * factor). n is a multiple of 8. */
  void (*fp4_multiply)(unsigned char* codes, const void* src, int64_t n, float factor);
};

/* The table for this processor and `dtype`. The other two are its choices; avx2 is NULL where it is not there. */
const struct host_compute* host_compute_select(arfusionDataType_t dtype);
const struct host_compute* host_compute_base(arfusionDataType_t dtype);
const struct host_compute* host_compute_avx2(arfusionDataType_t dtype);

/* One operation under way. */
struct host_task {
  struct host_comm* comm; /* NULL in host_epilogue */
  const struct kernel_op* op; /* NULL in host_check */
  const struct host_compute* compute;
  arfusionAlgorithm_t algorithm;
  uint64_t epoch;      /* operations of its kind (Lamport or synchronised) before it; picks the buffer or half */
  int element;         /* bytes */
  int64_t row_packed;  /* elements of a row in a slot */
  int64_t segments;    /* of a row */
  int64_t units;       /* tokens * segments */
  unsigned char* row;  /* room for one where normalised values are quantized but not written; else NULL */
  float segment_sum[HOST_MAX_SEGMENTS]; /* sums of squares of the row under way */
};

struct host_unit {
  int64_t row, column; /* of its first element */
  int64_t packed;      /* its first element's place in a slot */
  int count;           /* elements */
};

void host_task_start(struct host_task* task, struct host_comm* comm, arfusionAlgorithm_t algorithm,
                     const struct kernel_op* op);
struct host_unit host_task_unit(const struct host_task* task, int64_t unit);

/* Operations of its kind that this communicator has done. */
uint64_t host_task_epoch(const struct host_comm* comm, arfusionAlgorithm_t algorithm);

/* The place in a slot where unit `unit` begins (the end of the last one for task->units), in elements. */
int64_t host_task_packed(const struct host_task* task, int64_t unit);

/* The own input of a unit. */
const void* host_task_input(const struct host_task* task, const struct host_unit* unit);

/* Calls `copy(dst, src, n)` for each piece of the own input within [begin, end) that is contiguous in both places.
 * `slot` is where unit 0 goes. */
void host_task_copy_input(const struct host_task* task, unsigned char* slot, int64_t begin, int64_t end,
                          void (*copy)(void* dst, const void* src, int64_t n));

/* Stages the own input of [begin, end) at `slot`, short packs filled up with zeros. */
void host_task_stage(const struct host_task* task, unsigned char* slot, int64_t begin, int64_t end);

/* What follows the sum (in acc) of one unit. Units of a row must come in order. */
void host_task_finish(struct host_task* task, const struct host_unit* unit, const float acc[HOST_SEGMENT]);

/* Quantizes the normalised values n of row `token` of the op. */
void host_quant_row(const struct host_task* task, int64_t token, const void* n);

/* The algorithms: 0, or -1 with the failure set. */
int host_lamport_run(struct host_task* task);
int host_oneshot_sync_run(struct host_task* task);
int host_twoshot_run(struct host_task* task);

static inline struct host_control* host_comm_control(const struct host_comm* comm, int rank) {
  return (struct host_control*)(void*)comm->workspace[rank];
}

/* A wait for `peer`, for `unit`. Zero the rest. */
struct host_wait {
  const struct host_task* task;
  int peer;
  int64_t unit;
  uint64_t start_ns;
  uint32_t polls;
};

/* To be called after each look that found nothing. 0: look again; -1: given up, the failure is set. */
int host_wait_again(struct host_wait* wait);

/* Waits until *flag is `target` or more (acquire). */
int host_wait_flag(const struct host_task* task, int peer, const _Atomic uint64_t* flag, uint64_t target, int64_t unit);

/* Looks once whether the operation must not begin: 0, or -1 with the failure set. */
int host_wait_check(const struct host_task* task);

/* Fails because rank `peer` was asked for `theirs`. -1. */
int host_wait_disagree(const struct host_task* task, int peer, const struct kernel_call* own,
                       const struct kernel_call* theirs);

#endif
