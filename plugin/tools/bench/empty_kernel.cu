/* SPDX-License-Identifier: Apache-2.0
 *
 * empty_kernel.cu: a kernel that does nothing, to measure what a launch alone costs.
 */
extern "C" const void* bench_empty_kernel(void);

static __global__ void empty_kernel() {}

extern "C" const void* bench_empty_kernel(void) { return reinterpret_cast<const void*>(empty_kernel); }
