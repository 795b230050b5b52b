/* SPDX-License-Identifier: Apache-2.0
 *
 * device_host.c: the host as a device: plain memory, calls that are done when they return; see device.h.
 */
#include <stdlib.h>

#include "plugin/tools/bench/bench.h"
#include "plugin/tools/bench/device.h"

#define ALIGNMENT 4096 /* of memory, as device memory has it */

struct bench_batch {
  int (*enqueue)(void* arg);
  void* arg;
  int count;
};

static void host_close(struct bench_device* device) { free(device); }

static int host_alloc(struct bench_device* device, struct bench_buffer* buffer, size_t bytes) {
  (void)device;
  buffer->data = aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
  if (buffer->data == NULL) return bench_device_fail("cannot allocate %zu bytes of host memory", bytes);
  buffer->image = buffer->data;
  buffer->bytes = bytes;
  return 0;
}

static void host_release(struct bench_device* device, struct bench_buffer* buffer) {
  (void)device;
  free(buffer->data);
  *buffer = (struct bench_buffer){0};
}

static int host_copy(struct bench_device* device, struct bench_buffer* buffer, size_t bytes) {
  (void)device;
  (void)buffer;
  (void)bytes;
  return 0;
}

static int host_synchronize(struct bench_device* device) {
  (void)device;
  return 0;
}

static int host_record(struct bench_device* device, enum bench_launch launch, int (*enqueue)(void* arg), void* arg,
                       int count, struct bench_batch** batch) {
  (void)device;
  (void)launch;
  *batch = malloc(sizeof(**batch));
  if (*batch == NULL) return bench_device_fail("out of memory");
  **batch = (struct bench_batch){.enqueue = enqueue, .arg = arg, .count = count};
  return 0;
}

static int host_replay(struct bench_device* device, struct bench_batch* batch, double* elapsed_us) {
  (void)device;
  double start = bench_now_us();
  for (int i = 0; i < batch->count; i++) {
    if (batch->enqueue(batch->arg) != 0) return -1;
  }
  *elapsed_us = bench_now_us() - start;
  return 0;
}

static void host_discard(struct bench_device* device, struct bench_batch* batch) {
  (void)device;
  free(batch);
}

int bench_device_open_host(struct bench_device** device) {
  *device = malloc(sizeof(**device));
  if (*device == NULL) return bench_device_fail("out of memory");
  **device = (struct bench_device){.kind = BENCH_DEVICE_HOST,
                                   .close = host_close,
                                   .alloc = host_alloc,
                                   .release = host_release,
                                   .upload = host_copy,
                                   .download = host_copy,
                                   .synchronize = host_synchronize,
                                   .record = host_record,
                                   .replay = host_replay,
                                   .discard = host_discard};
  return 0;
}
