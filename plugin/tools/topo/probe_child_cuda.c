/* SPDX-License-Identifier: Apache-2.0
 *
 * probe_child_cuda.c: measures one pair of GPUs; see probe_child.h. Every wait here may last for ever: the parent is
 * the watchdog.
 */
#include <cuda_runtime_api.h>
#include <errno.h>
#include <stdarg.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plugin/tools/topo/probe_child.h"
#include "plugin/tools/topo/probe_kernels.h"

#define BUFFER_MAX ((size_t)256 << 20) /* well beyond every L2 cache */
#define BUFFER_MIN ((size_t)4 << 20)
#define TIMED_RUNS 11
#define PING_ROUNDS 1000
/* Words of a flag that are tried, this far apart: what it takes to a word depends on the part of the L2 cache it is
 * in. */
#define PING_PLACES 32
#define PING_STRIDE_WORDS 1056
#define PING_LIMIT_NS 2000000000ull
#define BLOCKS_PER_SM 4

/* One of the two GPUs, with memory of its own. */
struct side {
  int device;
  int blocks;
  int reaches_other;   /* peer access to the other one is enabled */
  char no_access[128]; /* why it is not */
  void* data;
  uint32_t* flag;
  uint64_t* counter; /* words found wrong, or a time */
  cudaStream_t stream;
  cudaEvent_t start, end;
};

struct pair {
  int fd;
  size_t bytes; /* of each buffer */
  struct side sides[2];
};

/* ---------------------------------------------------------------- messages */

static void message_send(const struct pair* pair, const struct probe_message* message) {
  const char* at = (const char*)message;
  size_t left = sizeof(*message);
  while (left > 0) {
    ssize_t written = write(pair->fd, at, left);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) _exit(1); /* the parent is gone */
    at += written;
    left -= (size_t)written;
  }
}

static int fail(const struct pair* pair, enum probe_metric metric, int backwards, const char* fmt, ...)
    __attribute__((format(printf, 4, 5)));
static int fail(const struct pair* pair, enum probe_metric metric, int backwards, const char* fmt, ...) {
  struct probe_message message = {.kind = PROBE_FAILED, .metric = metric, .backwards = (uint32_t)backwards};
  va_list args;
  va_start(args, fmt);
  vsnprintf(message.text, sizeof(message.text), fmt, args);
  va_end(args);
  message_send(pair, &message);
  return -1;
}

/* ---------------------------------------------------------------- setting up */

#define RETURN_IF_ERROR(call)                 \
  do {                                        \
    cudaError_t error_ = (call);              \
    if (error_ != cudaSuccess) return error_; \
  } while (0)

static cudaError_t side_open(struct side* side, size_t bytes) {
  int processors;
  RETURN_IF_ERROR(cudaSetDevice(side->device));
  RETURN_IF_ERROR(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, side->device));
  side->blocks = processors * BLOCKS_PER_SM;
  RETURN_IF_ERROR(cudaMalloc(&side->data, bytes));
  RETURN_IF_ERROR(cudaMalloc((void**)&side->flag, PING_PLACES * PING_STRIDE_WORDS * sizeof(*side->flag)));
  RETURN_IF_ERROR(cudaMalloc((void**)&side->counter, sizeof(*side->counter)));
  RETURN_IF_ERROR(cudaStreamCreateWithFlags(&side->stream, cudaStreamNonBlocking));
  RETURN_IF_ERROR(cudaEventCreate(&side->start));
  return cudaEventCreate(&side->end);
}

static void side_reach(struct side* side, const struct side* other) {
  int can = 0;
  cudaError_t error = cudaDeviceCanAccessPeer(&can, side->device, other->device);
  if (error != cudaSuccess || !can) {
    snprintf(side->no_access, sizeof(side->no_access), "cudaDeviceCanAccessPeer: %s",
             error != cudaSuccess ? cudaGetErrorString(error) : "no");
    return;
  }
  error = cudaSetDevice(side->device);
  if (error == cudaSuccess) error = cudaDeviceEnablePeerAccess(other->device, 0);
  side->reaches_other = error == cudaSuccess;
  if (error != cudaSuccess) {
    snprintf(side->no_access, sizeof(side->no_access), "cudaDeviceEnablePeerAccess: %s", cudaGetErrorString(error));
  }
}

/* As much as both GPUs can spare, a multiple of 16. */
static int choose_bytes(struct pair* pair) {
  pair->bytes = BUFFER_MAX;
  for (int i = 0; i < 2; i++) {
    size_t available, total;
    cudaError_t error = cudaSetDevice(pair->sides[i].device);
    if (error == cudaSuccess) error = cudaMemGetInfo(&available, &total);
    if (error != cudaSuccess) return fail(pair, PROBE_METRICS, 0, "cudaMemGetInfo: %s", cudaGetErrorString(error));
    while (pair->bytes > BUFFER_MIN && pair->bytes > available / 2) pair->bytes /= 2;
    if (pair->bytes > available / 2) {
      return fail(pair, PROBE_METRICS, 0, "only %zu bytes of GPU memory are free; the probe needs %zu", available,
                  2 * BUFFER_MIN);
    }
  }
  return 0;
}

static int pair_open(struct pair* pair, const char* const names[2]) {
  for (int i = 0; i < 2; i++) {
    cudaError_t error = cudaDeviceGetByPCIBusId(&pair->sides[i].device, names[i]);
    if (error != cudaSuccess) {
      return fail(pair, PROBE_METRICS, 0, "cudaDeviceGetByPCIBusId(%s): %s", names[i], cudaGetErrorString(error));
    }
  }
  if (choose_bytes(pair) != 0) return -1;
  for (int i = 0; i < 2; i++) {
    cudaError_t error = side_open(&pair->sides[i], pair->bytes);
    if (error != cudaSuccess) {
      return fail(pair, PROBE_METRICS, 0, "setting up %s: %s", names[i], cudaGetErrorString(error));
    }
  }
  for (int i = 0; i < 2; i++) side_reach(&pair->sides[i], &pair->sides[!i]);
  return 0;
}

/* ---------------------------------------------------------------- measuring */

static int compare_floats(const void* left, const void* right) {
  float a = *(const float*)left, b = *(const float*)right;
  return (a > b) - (a < b);
}

/* The work of one timed run, enqueued on from's stream. Stores and copies go from `from` to `to`; loads are made by
 * `from` in the memory of `to`. */
static cudaError_t run_enqueue(const struct side* from, const struct side* to, enum probe_metric metric, size_t bytes,
                               uint32_t seed) {
  switch (metric) {
    case PROBE_STORES: return probe_fill(to->data, bytes, seed, from->blocks, from->stream);
    case PROBE_LOADS: return probe_check(to->data, bytes, seed, from->counter, from->blocks, from->stream);
    default: return cudaMemcpyPeerAsync(to->data, to->device, from->data, from->device, bytes, from->stream);
  }
}

/* What must lie in memory before: the pattern where it is read from, another one where it is to arrive. */
static cudaError_t prepare(const struct side* from, const struct side* to, enum probe_metric metric, size_t bytes,
                           uint32_t seed) {
  RETURN_IF_ERROR(cudaSetDevice(to->device));
  RETURN_IF_ERROR(cudaMemsetAsync(to->counter, 0, sizeof(*to->counter), to->stream));
  RETURN_IF_ERROR(probe_fill(to->data, bytes, metric == PROBE_LOADS ? seed : ~seed, to->blocks, to->stream));
  RETURN_IF_ERROR(cudaStreamSynchronize(to->stream));
  RETURN_IF_ERROR(cudaSetDevice(from->device));
  RETURN_IF_ERROR(cudaMemsetAsync(from->counter, 0, sizeof(*from->counter), from->stream));
  if (metric == PROBE_COPY) RETURN_IF_ERROR(probe_fill(from->data, bytes, seed, from->blocks, from->stream));
  return cudaStreamSynchronize(from->stream);
}

static cudaError_t measure_bandwidth(const struct side* from, const struct side* to, enum probe_metric metric,
                                     size_t bytes, struct probe_message* result) {
  const uint32_t seed = 0x1000u + metric;
  float times[TIMED_RUNS];
  RETURN_IF_ERROR(prepare(from, to, metric, bytes, seed));
  RETURN_IF_ERROR(run_enqueue(from, to, metric, bytes, seed)); /* warms up */
  for (int i = 0; i < TIMED_RUNS; i++) {
    RETURN_IF_ERROR(cudaEventRecord(from->start, from->stream));
    RETURN_IF_ERROR(run_enqueue(from, to, metric, bytes, seed));
    RETURN_IF_ERROR(cudaEventRecord(from->end, from->stream));
    RETURN_IF_ERROR(cudaStreamSynchronize(from->stream));
    RETURN_IF_ERROR(cudaEventElapsedTime(&times[i], from->start, from->end));
  }
  const struct side* reader = metric == PROBE_LOADS ? from : to; /* loads were verified as they were timed */
  RETURN_IF_ERROR(cudaSetDevice(reader->device));
  if (metric != PROBE_LOADS) {
    RETURN_IF_ERROR(probe_check(reader->data, bytes, seed, reader->counter, reader->blocks, reader->stream));
  }
  RETURN_IF_ERROR(
      cudaMemcpyAsync(&result->wrong, reader->counter, sizeof(result->wrong), cudaMemcpyDeviceToHost, reader->stream));
  RETURN_IF_ERROR(cudaStreamSynchronize(reader->stream));
  qsort(times, TIMED_RUNS, sizeof(times[0]), compare_floats);
  result->words = bytes / 16 * (metric == PROBE_LOADS ? TIMED_RUNS + 1 : 1);
  result->value = (double)bytes / ((double)times[TIMED_RUNS / 2] * 1e6);
  return cudaSuccess;
}

/* The time of one way, through the word at `place` of each side's flag. */
static cudaError_t ping_once(const struct side* const both[2], int place, double* us) {
  uint64_t elapsed_ns[2];
  for (int i = 0; i < 2; i++) {
    RETURN_IF_ERROR(cudaSetDevice(both[i]->device));
    RETURN_IF_ERROR(cudaMemsetAsync(both[i]->flag + place, 0, sizeof(*both[i]->flag), both[i]->stream));
    RETURN_IF_ERROR(cudaStreamSynchronize(both[i]->stream));
  }
  for (int i = 0; i < 2; i++) {
    RETURN_IF_ERROR(cudaSetDevice(both[i]->device));
    RETURN_IF_ERROR(probe_ping(both[i]->flag + place, both[!i]->flag + place, i == 0, PING_ROUNDS, PING_LIMIT_NS,
                               both[i]->counter, both[i]->stream));
  }
  for (int i = 0; i < 2; i++) {
    RETURN_IF_ERROR(cudaSetDevice(both[i]->device));
    RETURN_IF_ERROR(cudaMemcpyAsync(&elapsed_ns[i], both[i]->counter, sizeof(elapsed_ns[i]), cudaMemcpyDeviceToHost,
                                    both[i]->stream));
    RETURN_IF_ERROR(cudaStreamSynchronize(both[i]->stream));
  }
  if (elapsed_ns[0] == UINT64_MAX || elapsed_ns[1] == UINT64_MAX) return cudaErrorLaunchTimeout;
  *us = (double)elapsed_ns[0] / (2.0 * PING_ROUNDS) / 1e3;
  return cudaSuccess;
}

/* The least of all places: what the link takes. */
static cudaError_t measure_latency(const struct side* from, const struct side* to, struct probe_message* result) {
  const struct side* const both[2] = {from, to};
  result->value = INFINITY;
  for (int place = 0; place < PING_PLACES; place++) {
    double us;
    RETURN_IF_ERROR(ping_once(both, place * PING_STRIDE_WORDS, &us));
    if (us < result->value) result->value = us;
  }
  return cudaSuccess;
}

static int measure(struct pair* pair, enum probe_metric metric, int backwards) {
  struct side *from = &pair->sides[backwards], *to = &pair->sides[!backwards];
  struct probe_message message = {.kind = PROBE_BEGIN, .metric = metric, .backwards = (uint32_t)backwards};
  message_send(pair, &message);
  if (metric != PROBE_COPY && !from->reaches_other) {
    fail(pair, metric, backwards, "%s", from->no_access);
    return 0; /* copies go through the host then */
  }
  if (metric == PROBE_LATENCY && !to->reaches_other) {
    fail(pair, metric, backwards, "the answer cannot be written: %s", to->no_access);
    return 0;
  }
  cudaError_t error = metric == PROBE_LATENCY ? measure_latency(from, to, &message)
                                              : measure_bandwidth(from, to, metric, pair->bytes, &message);
  if (error == cudaErrorLaunchTimeout && metric == PROBE_LATENCY) {
    fail(pair, metric, backwards, "a flag did not arrive within %llu s", PING_LIMIT_NS / 1000000000ull);
    return 0;
  }
  if (error != cudaSuccess) return fail(pair, metric, backwards, "%s", cudaGetErrorString(error));
  message.kind = PROBE_RESULT;
  message_send(pair, &message);
  return 0;
}

int probe_child_run(const char* first, const char* second, int fd) {
  const char* const names[2] = {first, second};
  struct pair pair = {.fd = fd};
  struct probe_message done = {.kind = PROBE_DONE};
  if (pair_open(&pair, names) != 0) return 1;
  for (int metric = 0; metric < PROBE_METRICS; metric++) {
    for (int backwards = 0; backwards < 2; backwards++) {
      /* A CUDA error stays with the process: nothing that follows would be worth anything. */
      if (measure(&pair, (enum probe_metric)metric, backwards) != 0) return 1;
    }
  }
  message_send(&pair, &done);
  return 0; /* the driver takes everything back with the process */
}
