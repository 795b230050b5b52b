/* SPDX-License-Identifier: Apache-2.0
 *
 * device_cuda.c: a GPU; see device.h. Built only where CUDA is. All CUDA calls of arfusion-bench but NCCL's are here.
 */
#include <cuda_runtime_api.h>
#include <stdlib.h>

#include "plugin/tools/bench/bench.h"
#include "plugin/tools/bench/device.h"

struct cuda_device {
  struct bench_device base;
  cudaEvent_t start, end;
};

struct bench_batch {
  cudaGraphExec_t graph; /* NULL: eager */
  int (*enqueue)(void* arg);
  void* arg;
  int count;
};

const void* bench_empty_kernel(void); /* in empty_kernel.cu */

static int cuda_check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return 0;
  return bench_device_fail("%s: %s", what, cudaGetErrorString(error));
}

#define CUDA_RETURN_IF_ERROR(call)            \
  do {                                        \
    if (cuda_check((call), #call)) return -1; \
  } while (0)

static cudaStream_t stream_of(struct bench_device* device) { return (cudaStream_t)device->stream; }

static void cuda_close(struct bench_device* base) {
  struct cuda_device* device = (struct cuda_device*)base;
  if (device->start != NULL) cudaEventDestroy(device->start);
  if (device->end != NULL) cudaEventDestroy(device->end);
  if (base->stream != NULL) cudaStreamDestroy(stream_of(base));
  free(device);
}

/* The image is pinned: copies from and to pageable memory may hold a lock of the driver while they wait for a kernel
 * that waits for another thread's launch. */
static int cuda_alloc(struct bench_device* device, struct bench_buffer* buffer, size_t bytes) {
  (void)device;
  void *data = NULL, *image = NULL;
  CUDA_RETURN_IF_ERROR(cudaMalloc(&data, bytes));
  if (cuda_check(cudaMallocHost(&image, bytes), "cudaMallocHost")) {
    cudaFree(data);
    return -1;
  }
  *buffer = (struct bench_buffer){.data = data, .image = image, .bytes = bytes};
  return 0;
}

static void cuda_release(struct bench_device* device, struct bench_buffer* buffer) {
  (void)device;
  cudaFree(buffer->data);
  cudaFreeHost(buffer->image);
  *buffer = (struct bench_buffer){0};
}

static int cuda_synchronize(struct bench_device* device) {
  CUDA_RETURN_IF_ERROR(cudaStreamSynchronize(stream_of(device)));
  return 0;
}

static int cuda_upload(struct bench_device* device, struct bench_buffer* buffer, size_t bytes) {
  CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(buffer->data, buffer->image, bytes, cudaMemcpyHostToDevice, stream_of(device)));
  return cuda_synchronize(device);
}

static int cuda_download(struct bench_device* device, struct bench_buffer* buffer, size_t bytes) {
  CUDA_RETURN_IF_ERROR(cudaMemcpyAsync(buffer->image, buffer->data, bytes, cudaMemcpyDeviceToHost, stream_of(device)));
  return cuda_synchronize(device);
}

static int cuda_record(struct bench_device* device, enum bench_launch launch, int (*enqueue)(void* arg), void* arg,
                       int count, struct bench_batch** batch) {
  cudaGraph_t graph = NULL;
  int result = 0;
  *batch = malloc(sizeof(**batch));
  if (*batch == NULL) return bench_device_fail("out of memory");
  **batch = (struct bench_batch){.enqueue = enqueue, .arg = arg, .count = count};
  if (launch == BENCH_LAUNCH_EAGER) return 0;
  if (cuda_check(cudaStreamBeginCapture(stream_of(device), cudaStreamCaptureModeThreadLocal), "begin capture")) {
    goto err_free;
  }
  for (int i = 0; i < count && result == 0; i++) result = enqueue(arg);
  /* Also after an error: the stream must not stay in capture. */
  cudaError_t ended = cudaStreamEndCapture(stream_of(device), &graph);
  if (result == 0) result = cuda_check(ended, "end capture");
  if (result == 0) result = cuda_check(cudaGraphInstantiate(&(*batch)->graph, graph, 0), "cudaGraphInstantiate");
  if (graph != NULL) cudaGraphDestroy(graph);
  if (result != 0) goto err_free;
  if (cuda_check(cudaGraphUpload((*batch)->graph, stream_of(device)), "cudaGraphUpload") || cuda_synchronize(device)) {
    cudaGraphExecDestroy((*batch)->graph);
    goto err_free;
  }
  return 0;

err_free:
  free(*batch);
  *batch = NULL;
  return -1;
}

static int batch_launch(struct bench_device* device, struct bench_batch* batch) {
  if (batch->graph != NULL) return cuda_check(cudaGraphLaunch(batch->graph, stream_of(device)), "cudaGraphLaunch");
  for (int i = 0; i < batch->count; i++) {
    if (batch->enqueue(batch->arg) != 0) return -1;
  }
  return 0;
}

static int cuda_replay(struct bench_device* base, struct bench_batch* batch, double* elapsed_us) {
  struct cuda_device* device = (struct cuda_device*)base;
  float elapsed_ms = 0;
  CUDA_RETURN_IF_ERROR(cudaEventRecord(device->start, stream_of(base)));
  if (batch_launch(base, batch)) return -1;
  CUDA_RETURN_IF_ERROR(cudaEventRecord(device->end, stream_of(base)));
  if (cuda_synchronize(base)) return -1;
  CUDA_RETURN_IF_ERROR(cudaEventElapsedTime(&elapsed_ms, device->start, device->end));
  *elapsed_us = (double)elapsed_ms * 1e3;
  return 0;
}

static void cuda_discard(struct bench_device* device, struct bench_batch* batch) {
  (void)device;
  if (batch->graph != NULL) cudaGraphExecDestroy(batch->graph);
  free(batch);
}

static int cuda_bare_launch(struct bench_device* device, double* elapsed_us) {
  cudaLaunchConfig_t config = {.gridDim = {1, 1, 1}, .blockDim = {32, 1, 1}, .stream = stream_of(device)};
  double start = bench_now_us();
  CUDA_RETURN_IF_ERROR(cudaLaunchKernelExC(&config, bench_empty_kernel(), NULL));
  *elapsed_us = bench_now_us() - start;
  return 0;
}

int bench_device_open_cuda(int ordinal, struct bench_device** opened) {
  cudaStream_t stream = NULL;
  struct cuda_device* device = calloc(1, sizeof(*device));
  if (device == NULL) return bench_device_fail("out of memory");
  device->base = (struct bench_device){.kind = BENCH_DEVICE_CUDA,
                                       .close = cuda_close,
                                       .alloc = cuda_alloc,
                                       .release = cuda_release,
                                       .upload = cuda_upload,
                                       .download = cuda_download,
                                       .synchronize = cuda_synchronize,
                                       .record = cuda_record,
                                       .replay = cuda_replay,
                                       .discard = cuda_discard,
                                       .bare_launch = cuda_bare_launch};
  /* A non-blocking stream: the legacy stream would wait for the other ranks of this GPU. */
  int failed = cuda_check(cudaSetDevice(ordinal), "cudaSetDevice") ||
               cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  device->base.stream = stream;
  if (failed || cuda_check(cudaEventCreate(&device->start), "cudaEventCreate") ||
      cuda_check(cudaEventCreate(&device->end), "cudaEventCreate")) {
    cuda_close(&device->base);
    return -1;
  }
  *opened = &device->base;
  return 0;
}
