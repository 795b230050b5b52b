/* SPDX-License-Identifier: Apache-2.0
 *
 * device_ops.cuh: every PTX instruction and CUDA intrinsic that the kernels use, by name. Kernels contain nothing else
 * that is CUDA's, so that with another device_ops.cuh the same source runs elsewhere.
 *
 * Accesses to global memory are volatile assembly: they are issued in the order of the source.
 */
#ifndef ARFUSION_KERNELS_DEVICE_OPS_CUH_
#define ARFUSION_KERNELS_DEVICE_OPS_CUH_

#include <cuda_runtime.h>
#include <stdint.h>

#define DEVICE static __device__ __forceinline__
#define KERNEL(max_threads) __global__ void __launch_bounds__(max_threads, 1)
#define KERNEL_ARGUMENT(type) const __grid_constant__ type
#define UNROLL _Pragma("unroll")
#define NO_UNROLL _Pragma("unroll 1")
#define UNLIKELY(condition) __builtin_expect((condition), 0)

/* 16 bytes, the unit of all fast accesses. */
struct vec {
  uint32_t w[4];
};

/* ---------------------------------------------------------------- where a thread is */

DEVICE uint32_t device_thread(void) { return threadIdx.x; }
DEVICE uint32_t device_threads(void) { return blockDim.x; }
DEVICE uint32_t device_block(void) { return blockIdx.x; }
DEVICE uint32_t device_blocks(void) { return gridDim.x; }

/* The value is computed here and stays in its registers: not later, where something is waited for. */
template <class Target>
DEVICE void device_keep(Target*& p) {
  asm volatile("" : "+l"(p));
}
DEVICE void device_keep(uint32_t& v) { asm volatile("" : "+r"(v)); }

/* The address of a block's shared memory: the same words in every call of one kernel with this size. */
template <int WORDS>
DEVICE uint32_t device_shared(void) {
  __shared__ uint32_t words[WORDS];
  uint32_t address = (uint32_t)__cvta_generic_to_shared(words);
  device_keep(address);
  return address;
}
DEVICE uint32_t device_shared_load(uint32_t address) {
  uint32_t v;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(address) : "memory");
  return v;
}
DEVICE void device_shared_store(uint32_t address, uint32_t v) {
  asm volatile("st.shared.u32 [%0], %1;" ::"r"(address), "r"(v) : "memory");
}

DEVICE void device_shared_max(uint32_t address, uint32_t v) {
  asm volatile("red.relaxed.cta.shared::cta.max.u32 [%0], %1;" ::"r"(address), "r"(v) : "memory");
}

/* ---------------------------------------------------------------- arithmetic: each operation rounded on its own */

DEVICE float device_add(float a, float b) { return __fadd_rn(a, b); }
DEVICE float device_mul(float a, float b) { return __fmul_rn(a, b); }
DEVICE float device_fma(float a, float b, float c) { return __fmaf_rn(a, b, c); } /* a * b + c, rounded once */
DEVICE float device_div(float a, float b) { return __fdiv_rn(a, b); }
DEVICE float device_rcp(float a) { return __frcp_rn(a); }
DEVICE float device_rsqrt(float a) { return __frsqrt_rn(a); }
DEVICE float device_float(uint32_t bits) { return __uint_as_float(bits); }
DEVICE uint32_t device_bits(float a) { return __float_as_uint(a); }

/* Two elements in a word, the first in the low half. */
DEVICE uint32_t device_to_bf16x2(float lo, float hi) {
  uint32_t word;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(hi), "f"(lo));
  return word;
}
DEVICE uint32_t device_to_fp16x2(float lo, float hi) {
  uint32_t word;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(hi), "f"(lo));
  return word;
}
/* Sums of two elements in a word each, rounded once; a NaN is the canonical one. */
DEVICE uint32_t device_add_bf16x2(uint32_t a, uint32_t b) {
  uint32_t word;
  asm("{ .reg .b32 one; mov.b32 one, 0x3f803f80; fma.rn.bf16x2 %0, %1, one, %2; }" : "=r"(word) : "r"(a), "r"(b));
  return word;
}
DEVICE uint32_t device_add_fp16x2(uint32_t a, uint32_t b) {
  uint32_t word;
  asm("add.rn.f16x2 %0, %1, %2;" : "=r"(word) : "r"(a), "r"(b));
  return word;
}
DEVICE void device_from_fp16x2(uint32_t word, float* lo, float* hi) {
  asm("{ .reg .f16 l, h; mov.b32 {l, h}, %2; cvt.f32.f16 %0, l; cvt.f32.f16 %1, h; }"
      : "=f"(*lo), "=f"(*hi)
      : "r"(word));
}

/* Codes of four (eight) numbers, the first in the lowest bits: to nearest even, saturating; a NaN is 0x7f (7). Only
 * where the architecture has the instruction. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
#define DEVICE_HAS_E4M3 1
DEVICE uint32_t device_to_e4m3x4(float a, float b, float c, float d) {
  uint32_t word;
  asm("{ .reg .b16 lo, hi; cvt.rn.satfinite.e4m3x2.f32 lo, %2, %1; cvt.rn.satfinite.e4m3x2.f32 hi, %4, %3;"
      " mov.b32 %0, {lo, hi}; }"
      : "=r"(word)
      : "f"(a), "f"(b), "f"(c), "f"(d));
  return word;
}
#else
#define DEVICE_HAS_E4M3 0
#endif
#if defined(__CUDA_ARCH_FAMILY_SPECIFIC__) && __CUDA_ARCH_FAMILY_SPECIFIC__ >= 1000 /* sm_100f, sm_120f */
#define DEVICE_HAS_E2M1 1
DEVICE uint32_t device_to_e2m1x8(const float* v) {
  uint32_t word;
  asm("{ .reg .b8 a, b, c, d; cvt.rn.satfinite.e2m1x2.f32 a, %2, %1; cvt.rn.satfinite.e2m1x2.f32 b, %4, %3;"
      " cvt.rn.satfinite.e2m1x2.f32 c, %6, %5; cvt.rn.satfinite.e2m1x2.f32 d, %8, %7; mov.b32 %0, {a, b, c, d}; }"
      : "=r"(word)
      : "f"(v[0]), "f"(v[1]), "f"(v[2]), "f"(v[3]), "f"(v[4]), "f"(v[5]), "f"(v[6]), "f"(v[7]));
  return word;
}
#else
#define DEVICE_HAS_E2M1 0
#endif

/* ---------------------------------------------------------------- integers */

DEVICE uint32_t device_max(uint32_t a, uint32_t b) { return max(a, b); }
DEVICE uint32_t device_min(uint32_t a, uint32_t b) { return min(a, b); }
/* Of the halves of two words each. */
DEVICE uint32_t device_max_u16x2(uint32_t a, uint32_t b) { return __vmaxu2(a, b); }
DEVICE uint32_t device_mul_high(uint32_t a, uint32_t b) { return __umulhi(a, b); }

/* ---------------------------------------------------------------- warps and blocks */

DEVICE float device_shuffle_xor(float a, int mask) { return __shfl_xor_sync(0xffffffffu, a, mask); }
DEVICE float device_shuffle(float a, uint32_t lane) { return __shfl_sync(0xffffffffu, a, lane); }
DEVICE uint32_t device_shuffle_xor_u32(uint32_t a, int mask) { return __shfl_xor_sync(0xffffffffu, a, mask); }
DEVICE uint32_t device_shuffle_u32(uint32_t a, uint32_t lane) { return __shfl_sync(0xffffffffu, a, lane); }
DEVICE uint32_t device_warp_max(uint32_t a) { return __reduce_max_sync(0xffffffffu, a); }
DEVICE bool device_warp_any(bool a) { return __any_sync(0xffffffffu, a) != 0; }
DEVICE void device_barrier(void) { __syncthreads(); }
/* As device_keep, but a shuffle of each lane with itself, which the assembler does not see through either: special
 * registers that the value comes from are not read again where it is used. All lanes call. */
DEVICE void device_pin(uint32_t& v) {
  asm volatile("shfl.sync.bfly.b32 %0, %0, 0, 31, 0xffffffff;" : "+r"(v));
}

/* A second barrier, split: `arrive` does not wait. `threads` is the block's size. */
DEVICE void device_split_wait(uint32_t threads) { asm volatile("barrier.cta.sync 1, %0;" ::"r"(threads) : "memory"); }
DEVICE void device_split_arrive(uint32_t threads) {
/* after an arrival, that tool no longer sees the order that the block's other barrier makes */
#ifdef ARFUSION_RACECHECK
  device_split_wait(threads);
#else
  asm volatile("barrier.cta.arrive 1, %0;" ::"r"(threads) : "memory");
#endif
}

/* ---------------------------------------------------------------- dependent launch */

/* Waits until the kernels this one may overlap have ended and their writes can be seen. */
DEVICE void device_grid_wait(void) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/* This block no longer keeps its dependents from starting. */
DEVICE void device_grid_trigger(void) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* ---------------------------------------------------------------- the caller's memory */

DEVICE struct vec device_load(const void* p) {
  struct vec v;
  asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
               : "l"(p));
  return v;
}
DEVICE uint32_t device_load_u32(const void* p) {
  uint32_t v;
  asm volatile("ld.global.u32 %0, [%1];" : "=r"(v) : "l"(p));
  return v;
}
DEVICE uint32_t device_load_u16(const void* p) {
  uint16_t v;
  asm volatile("ld.global.u16 %0, [%1];" : "=h"(v) : "l"(p));
  return v;
}
DEVICE uint32_t device_load_u8(const void* p) {
  uint16_t v;
  asm volatile("ld.global.u8 %0, [%1];" : "=h"(v) : "l"(p));
  return v;
}
/* Brings the sector that p is in to the L2 cache, without waiting for it. */
DEVICE void device_prefetch(const void* p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"((uintptr_t)p & ~(uintptr_t)31));
}
DEVICE void device_store(void* p, const struct vec& v) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.w[0]), "r"(v.w[1]), "r"(v.w[2]), "r"(v.w[3])
               : "memory");
}
DEVICE void device_store_u32(void* p, uint32_t v) {
  asm volatile("st.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
DEVICE void device_store_u16(void* p, uint32_t v) {
  asm volatile("st.global.u16 [%0], %1;" ::"l"(p), "h"((uint16_t)v) : "memory");
}

DEVICE void device_store_u8(void* p, uint32_t v) {
  asm volatile("st.global.u8 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
DEVICE void device_store_u32x2(void* p, uint32_t a, uint32_t b) {
  asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(p), "r"(a), "r"(b) : "memory");
}

/* ---------------------------------------------------------------- memory that other GPUs or the host see */

DEVICE struct vec device_load_relaxed_sys(const void* p) {
  struct vec v;
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.w[0]), "=r"(v.w[1]), "=r"(v.w[2]), "=r"(v.w[3])
               : "l"(p)
               : "memory");
  return v;
}
DEVICE void device_store_relaxed_sys(void* p, const struct vec& v) {
  asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(p), "r"(v.w[0]), "r"(v.w[1]), "r"(v.w[2]),
               "r"(v.w[3])
               : "memory");
}
DEVICE uint32_t device_load_relaxed_sys_u32(const void* p) {
  uint32_t v;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
  return v;
}
DEVICE void device_store_relaxed_sys_u32(void* p, uint32_t v) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(p), "r"(v) : "memory");
}
DEVICE void device_store_relaxed_sys_u64(void* p, uint64_t v) {
  asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
DEVICE uint64_t device_load_acquire_sys_u64(const void* p) {
  uint64_t v;
  asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}
DEVICE void device_store_release_sys_u64(void* p, uint64_t v) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
DEVICE void device_fence_sys(void) { __threadfence_system(); }

/* ---------------------------------------------------------------- words that only this GPU's kernels use */

DEVICE uint64_t device_load_relaxed_gpu_u64(const void* p) {
  uint64_t v;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
  return v;
}
/* Adds without an answer. */
DEVICE void device_atomic_add_u64(void* p, uint64_t v) {
  asm volatile("red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(p), "l"(v) : "memory");
}
DEVICE uint64_t device_atomic_fetch_add_u64(void* p, uint64_t v) {
  uint64_t old;
  asm volatile("atom.relaxed.gpu.global.add.u64 %0, [%1], %2;" : "=l"(old) : "l"(p), "l"(v) : "memory");
  return old;
}
/* Counts up to `last`, then starts again at 0. */
DEVICE uint32_t device_atomic_count(uint32_t* p, uint32_t last) {
  uint32_t old;
  asm volatile("atom.relaxed.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(last) : "memory");
  return old;
}
DEVICE uint32_t device_atomic_exchange(uint32_t* p, uint32_t v) {
  uint32_t old;
  asm volatile("atom.relaxed.gpu.global.exch.b32 %0, [%1], %2;" : "=r"(old) : "l"(p), "r"(v) : "memory");
  return old;
}

/* ---------------------------------------------------------------- time */

DEVICE uint64_t device_nanoseconds(void) {
  uint64_t t;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
  return t;
}

#endif
