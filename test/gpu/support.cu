/* SPDX-License-Identifier: Apache-2.0
 *
 * support.cu: see support.h.
 */
#include "test/gpu/support.h"

#include "kernels/cuda/device_ops.cuh"

#define THREADS 256
#define BLOCKS 32 /* few, so that they find room beside kernels that spin */

static __device__ void delay(uint64_t ns) {
  const uint64_t start = device_nanoseconds();
  while (ns != 0 && device_nanoseconds() - start < ns) {
  }
}

static KERNEL(1) delay_kernel(uint64_t ns) {
  device_grid_wait();
  delay(ns);
}

static __device__ const uint4* from_of(const struct support_ranges& ranges, int k) {
  const struct support_range& range = ranges.range[k];
  const uint64_t variant = ranges.variant ? *(const volatile uint32_t*)ranges.variant : 0;
  return (const uint4*)((const unsigned char*)range.from + variant * range.variant_bytes);
}

/* Row y of the grid works on range y. */
static KERNEL(THREADS) copy_kernel(KERNEL_ARGUMENT(struct support_ranges) ranges) {
  device_grid_wait();
  const struct support_range& range = ranges.range[blockIdx.y];
  const uint4* from = from_of(ranges, (int)blockIdx.y);
  const uint64_t period = (range.period ? range.period : range.bytes) / 16;
  for (uint64_t i = device_block() * THREADS + device_thread(); i < range.bytes / 16; i += device_blocks() * THREADS)
    ((uint4*)range.to)[i] = from[i % period];
}

static KERNEL(THREADS) compare_kernel(KERNEL_ARGUMENT(struct support_ranges) ranges, struct support_found* found) {
  device_grid_wait();
  const struct support_range& range = ranges.range[blockIdx.y];
  const uint4* from = from_of(ranges, (int)blockIdx.y);
  const uint64_t period = (range.period ? range.period : range.bytes) / 16;
  for (uint64_t i = device_block() * THREADS + device_thread(); i < range.bytes / 16; i += device_blocks() * THREADS) {
    const uint4 a = ((const uint4*)range.to)[i], b = from[i % period];
    if (a.x == b.x && a.y == b.y && a.z == b.z && a.w == b.w) continue;
    atomicAdd(&found[blockIdx.y].vectors, 1);
    atomicMax(&found[blockIdx.y].first, ~(uint32_t)i);
  }
}

static KERNEL(THREADS) mix_kernel(KERNEL_ARGUMENT(struct support_mix) mix) {
  if (mix.trigger) device_grid_trigger();
  device_grid_wait();
  delay(mix.delay_ns);
  const uint16_t* from = mix.from + (mix.variant ? *(const volatile uint32_t*)mix.variant : 0) * mix.variant_words;
  for (uint64_t i = device_block() * THREADS + device_thread(); i < mix.count; i += device_blocks() * THREADS)
    mix.to[i] = from[(i + mix.shift) % mix.count] ^ support_mix_bits(i, mix.key);
}

static KERNEL(1) advance_kernel(uint32_t* variant, uint32_t variants) {
  device_grid_wait();
  *variant = *variant + 1 == variants ? 0 : *variant + 1;
}

static KERNEL(64) mistake_kernel(const volatile uint32_t* word) {
  __shared__ volatile uint32_t raced_for;
  raced_for = device_thread();
  if (word[device_thread()] == 1 && raced_for == 1) __nanosleep(1);
}

static int launch(const void* kernel, dim3 blocks, uint32_t threads, int dependent, void** arguments, void* stream) {
  cudaLaunchAttribute attribute;
  cudaLaunchConfig_t config = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.gridDim = blocks;
  config.blockDim = dim3(threads);
  config.stream = (cudaStream_t)stream;
  config.attrs = &attribute;
  config.numAttrs = dependent ? 1 : 0;
  return cudaLaunchKernelExC(&config, kernel, arguments);
}

int support_load(void) {
  static const void* const kernels[] = {(const void*)delay_kernel, (const void*)copy_kernel,
                                        (const void*)compare_kernel, (const void*)mix_kernel,
                                        (const void*)advance_kernel};
  for (const void* kernel : kernels) {
    cudaFuncAttributes attributes;
    const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
    if (error != cudaSuccess) return error;
  }
  return 0;
}

int support_delay(uint64_t ns, void* stream) {
  void* arguments[] = {&ns};
  return launch((const void*)delay_kernel, dim3(1), 1, 0, arguments, stream);
}

int support_copy(const struct support_ranges* ranges, void* stream) {
  void* arguments[] = {(void*)ranges};
  return launch((const void*)copy_kernel, dim3(BLOCKS, (uint32_t)ranges->count), THREADS, 0, arguments, stream);
}

int support_compare(const struct support_ranges* ranges, struct support_found* found, int dependent, void* stream) {
  void* arguments[] = {(void*)ranges, &found};
  return launch((const void*)compare_kernel, dim3(BLOCKS, (uint32_t)ranges->count), THREADS, dependent, arguments,
                stream);
}

int support_mix(const struct support_mix* mix, int dependent, void* stream) {
  void* arguments[] = {(void*)mix};
  return launch((const void*)mix_kernel, dim3(BLOCKS), THREADS, dependent, arguments, stream);
}

int support_advance(uint32_t* variant, uint32_t variants, void* stream) {
  void* arguments[] = {&variant, &variants};
  return launch((const void*)advance_kernel, dim3(1), 1, 0, arguments, stream);
}

int support_mistake(const uint32_t* word, void* stream) {
  void* arguments[] = {&word};
  return launch((const void*)mistake_kernel, dim3(1), 64, 0, arguments, stream);
}
