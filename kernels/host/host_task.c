/* SPDX-License-Identifier: Apache-2.0
 *
 * host_task.c: the shape of an operation, its input's way into slots, and the epilogue that all algorithms share.
 */
#include <math.h>
#include <string.h>

#include "kernels/host/host_internal.h"

uint64_t host_task_epoch(const struct host_comm* comm, arfusionAlgorithm_t algorithm) {
  return algorithm == arfusionAlgoOneshotLamport ? comm->lamport_epoch : comm->sync_epoch;
}

void host_task_start(struct host_task* task, struct host_comm* comm, arfusionAlgorithm_t algorithm,
                     const struct kernel_op* op) {
  task->comm = comm;
  task->op = op;
  task->compute = host_compute_select(op->dtype);
  task->algorithm = algorithm;
  task->epoch = comm ? host_task_epoch(comm, algorithm) : 0;
  task->element = kernel_element_size(op->dtype);
  task->row_packed = kernel_packs(op->hidden) * KERNEL_PACK;
  task->segments = (op->hidden + HOST_SEGMENT - 1) / HOST_SEGMENT;
  task->units = op->tokens * task->segments;
  task->row = NULL;
}

int64_t host_task_packed(const struct host_task* task, int64_t unit) {
  int64_t row = unit / task->segments;
  return row * task->row_packed + (unit - row * task->segments) * HOST_SEGMENT;
}

struct host_unit host_task_unit(const struct host_task* task, int64_t unit) {
  int64_t row = unit / task->segments;
  int64_t column = (unit - row * task->segments) * HOST_SEGMENT;
  int64_t left = task->op->hidden - column;
  return (struct host_unit){.row = row,
                            .column = column,
                            .packed = row * task->row_packed + column,
                            .count = left < HOST_SEGMENT ? (int)left : HOST_SEGMENT};
}

static inline const unsigned char* element_at(const struct host_task* task, const void* base, int64_t stride,
                                              int64_t row, int64_t column) {
  return (const unsigned char*)base + (row * stride + column) * task->element;
}

const void* host_task_input(const struct host_task* task, const struct host_unit* unit) {
  return element_at(task, task->op->input, task->op->input_stride, unit->row, unit->column);
}

void host_task_copy_input(const struct host_task* task, unsigned char* slot, int64_t begin, int64_t end,
                          void (*copy)(void* dst, const void* src, int64_t n)) {
  const struct kernel_op* op = task->op;
  int dense = op->input_stride == op->hidden && task->row_packed == op->hidden;

  for (int64_t unit = begin; unit < end;) {
    struct host_unit first = host_task_unit(task, unit);
    int64_t row_end = (first.row + 1) * task->segments;
    int64_t stop = dense || row_end > end ? end : row_end;
    struct host_unit last = host_task_unit(task, stop - 1);
    copy(slot + first.packed * task->element, host_task_input(task, &first),
         last.packed + last.count - first.packed);
    unit = stop;
  }
}

static void stage_copy(void* dst, const void* src, int64_t n, int element) {
  size_t bytes = (size_t)n * (size_t)element, pack = (size_t)(KERNEL_PACK * element);
  memcpy(dst, src, bytes);
  if (bytes % pack) memset((unsigned char*)dst + bytes, 0, pack - bytes % pack);
}

static void stage_copy_2(void* dst, const void* src, int64_t n) { stage_copy(dst, src, n, 2); }
static void stage_copy_4(void* dst, const void* src, int64_t n) { stage_copy(dst, src, n, 4); }

void host_task_stage(const struct host_task* task, unsigned char* slot, int64_t begin, int64_t end) {
  host_task_copy_input(task, slot, begin, end, task->element == 2 ? stage_copy_2 : stage_copy_4);
}

/* 32 consecutive values of which `n` are there, as 32 lanes sum them. */
static float butterfly(const float* value, int64_t n) {
  float lane[32];
  for (int l = 0; l < 32; l++) lane[l] = l < n ? value[l] : 0.0f;
  for (int d = 16; d > 0; d /= 2)
    for (int l = 0; l < d; l++) lane[l] += lane[l + d];
  return lane[0];
}

static float row_scale(const struct host_task* task) {
  float sum = 0.0f;
  for (int64_t s = 0; s < task->segments; s += 32) sum += butterfly(task->segment_sum + s, task->segments - s);
  float mean = sum * (1.0f / (float)task->op->hidden);
  return (float)(1.0 / sqrt((double)(mean + task->op->eps)));
}

/* Normalises a row that is complete, into norm_out or task->row, and quantizes it from there. */
static void row_finish(struct host_task* task, int64_t row, const void* y) {
  const struct kernel_op* op = task->op;
  const int wide = op->gamma_dtype == arfusionFloat32 && op->dtype != arfusionFloat32;
  void* n = op->norm_out ? (void*)element_at(task, op->norm_out, op->norm_out_stride, row, 0) : task->row;

  (wide ? task->compute->norm_gamma_fp32 : task->compute->norm)(n, y, op->gamma, op->hidden, row_scale(task),
                                                                op->weight_bias);
  if (op->quant_out) host_quant_row(task, row, n);
}

/* y waits in an output (or task->row) for the row's sum of squares: it is already rounded to T, so nothing is lost, and
 * norm_out's own elements have been read by then where it is the input. */
void host_task_finish(struct host_task* task, const struct host_unit* unit, const float acc[HOST_SEGMENT]) {
  const struct kernel_op* op = task->op;
  const struct host_compute* compute = task->compute;

  if (op->pattern == arfusionPatternAllReduce) {
    compute->store((void*)element_at(task, op->allreduce_out, 0, 0, unit->column), acc, unit->count);
    return;
  }

  unsigned char* y = task->row; /* of the row */
  if (op->residual_out)
    y = (unsigned char*)element_at(task, op->residual_out, op->residual_out_stride, unit->row, 0);
  else if (op->norm_out)
    y = (unsigned char*)element_at(task, op->norm_out, op->norm_out_stride, unit->row, 0);
  const void* residual = NULL;
  if (op->residual_in) residual = element_at(task, op->residual_in, op->residual_in_stride, unit->row, unit->column);
  int64_t segment = unit->column / HOST_SEGMENT;
  task->segment_sum[segment] = compute->finish(y + unit->column * task->element, acc, residual, unit->count);
  if ((op->norm_out || op->quant_out) && segment + 1 == task->segments) row_finish(task, unit->row, y);
}
