/* SPDX-License-Identifier: Apache-2.0
 *
 * host_compute_avx2.c: the vector functions for x86-64 with AVX2, and F16C, which every processor with AVX2 has. The
 * rest of the library stays plain x86-64.
 */
#include "kernels/host/host_internal.h"

#if defined(__x86_64__)
#include <immintrin.h>

static const struct host_compute* compute_table(arfusionDataType_t dtype);

const struct host_compute* host_compute_avx2(arfusionDataType_t dtype) {
  return __builtin_cpu_supports("avx2") ? compute_table(dtype) : NULL;
}

#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,f16c")
#endif
#define COMPUTE_AVX2
#define COMPUTE_TABLE compute_table
#define COMPUTE_LINKAGE static
#include "kernels/host/host_compute.inc"
#if defined(__clang__)
#pragma clang attribute pop
#endif

#else
const struct host_compute* host_compute_avx2(arfusionDataType_t dtype) {
  (void)dtype;
  return NULL;
}
#endif
