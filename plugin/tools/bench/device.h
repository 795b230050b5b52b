/* SPDX-License-Identifier: Apache-2.0
 *
 * device.h: the memory, the stream and the clock of the device that a rank runs on: CUDA, or the host.
 *
 * Every call returns 0, or -1 with a line in bench_device_error() (of the calling thread).
 */
#ifndef ARFUSION_BENCH_DEVICE_H_
#define ARFUSION_BENCH_DEVICE_H_

#include <stddef.h>

enum bench_device_kind { BENCH_DEVICE_HOST, BENCH_DEVICE_CUDA };

/* Device memory and its image in host memory; on the host they are the same bytes. */
struct bench_buffer {
  unsigned char* data;
  unsigned char* image;
  size_t bytes;
};

/* Recorded work: a CUDA graph, or the callback itself. */
struct bench_batch;

enum bench_launch { BENCH_LAUNCH_GRAPH, BENCH_LAUNCH_EAGER };

struct bench_device {
  enum bench_device_kind kind;
  void* stream; /* for the plugin's enqueue; NULL on the host */
  void (*close)(struct bench_device* device);
  int (*alloc)(struct bench_device* device, struct bench_buffer* buffer, size_t bytes);
  void (*release)(struct bench_device* device, struct bench_buffer* buffer);
  /* The first `bytes` bytes, after everything enqueued so far; done when the call returns. */
  int (*upload)(struct bench_device* device, struct bench_buffer* buffer, size_t bytes);
  int (*download)(struct bench_device* device, struct bench_buffer* buffer, size_t bytes);
  int (*synchronize)(struct bench_device* device);
  /* Records what enqueue(arg) enqueues on the stream, called `count` times: as a graph, or eagerly (always so on the
   * host), when each replay calls it. `arg` must outlive the batch. */
  int (*record)(struct bench_device* device, enum bench_launch launch, int (*enqueue)(void* arg), void* arg, int count,
                struct bench_batch** batch);
  /* Runs it once, waits for its end, and says how long it took on the device. */
  int (*replay)(struct bench_device* device, struct bench_batch* batch, double* elapsed_us);
  void (*discard)(struct bench_device* device, struct bench_batch* batch);
  /* Host time of launching an empty kernel; NULL on the host. */
  int (*bare_launch)(struct bench_device* device, double* elapsed_us);
};

/* Device `ordinal` of the kind (ignored on the host), for the calling thread. */
int bench_device_open(enum bench_device_kind kind, int ordinal, struct bench_device** device);

const char* bench_device_error(void);

/* For the two implementations: */
int bench_device_fail(const char* fmt, ...) __attribute__((format(printf, 1, 2)));
int bench_device_open_host(struct bench_device** device);
int bench_device_open_cuda(int ordinal, struct bench_device** device);

#endif
