/* SPDX-License-Identifier: Apache-2.0
 *
 * device_ops.cuh: stands in for kernels/cuda/device_ops.cuh where the kernels are compiled for the emulator. Numbers
 * are those of test/gpu/number.h; whatever involves memory, other threads or time is in emu.h. A new wrapper there
 * needs one here.
 */
#ifndef ARFUSION_TEST_EMU_DEVICE_OPS_CUH_
#define ARFUSION_TEST_EMU_DEVICE_OPS_CUH_

#include <cuda_runtime.h>

#include "test/emu/emu.h"
#include "test/gpu/number.h"

#define DEVICE [[maybe_unused]] static inline
#define KERNEL(max_threads) void
#define KERNEL_ARGUMENT(type) const type&
#define UNROLL
#define NO_UNROLL
#define UNLIKELY(condition) __builtin_expect((condition), 0)

struct vec {
  uint32_t w[4];
};

/* ---------------------------------------------------------------- where a thread is */

DEVICE uint32_t device_thread(void) { return emu_place->thread; }
DEVICE uint32_t device_threads(void) { return emu_place->threads; }
DEVICE uint32_t device_block(void) { return emu_place->block; }
DEVICE uint32_t device_blocks(void) { return emu_place->blocks; }

template <class Target>
DEVICE void device_keep(Target*&) {}
DEVICE void device_keep(uint32_t&) {}

template <int WORDS>
DEVICE uint32_t device_shared(void) {
  return emu_shared(WORDS);
}
DEVICE uint32_t device_shared_load(uint32_t address) { return emu_shared_load(address); }
DEVICE void device_shared_max(uint32_t address, uint32_t v) { emu_shared_max(address, v); }
DEVICE void device_shared_store(uint32_t address, uint32_t v) { emu_shared_store(address, v); }

/* ---------------------------------------------------------------- arithmetic */

DEVICE float device_float(uint32_t bits) { return ref_from_bits(bits); }
DEVICE uint32_t device_bits(float a) { return ref_to_bits(a); }
/* Results that are NaN are the canonical one. */
DEVICE float emu_canonical(float a) { return a == a ? a : device_float(0x7fffffffu); }
DEVICE float device_add(float a, float b) { return emu_canonical(a + b); }
DEVICE float device_mul(float a, float b) { return emu_canonical(a * b); }
DEVICE float device_fma(float a, float b, float c) { return emu_canonical(fmaf(a, b, c)); }
DEVICE float device_div(float a, float b) { return emu_canonical(a / b); }
DEVICE float device_rcp(float a) { return emu_canonical(1.0f / a); }
DEVICE float device_rsqrt(float a) { return emu_canonical((float)(1.0 / sqrt((double)a))); }

DEVICE uint32_t emu_to_16bit(float a, arfusionDataType_t dtype) {
  uint16_t bits;
  ref_store(&bits, 0, a, dtype);
  return bits;
}
DEVICE float emu_from_16bit(uint32_t word, arfusionDataType_t dtype) {
  const uint16_t bits = (uint16_t)word;
  return ref_load(&bits, 0, dtype);
}
DEVICE uint32_t emu_add_x2(uint32_t a, uint32_t b, arfusionDataType_t dtype) {
  const float lo = emu_from_16bit(a, dtype) + emu_from_16bit(b, dtype);
  const float hi = emu_from_16bit(a >> 16, dtype) + emu_from_16bit(b >> 16, dtype);
  return emu_to_16bit(lo, dtype) | emu_to_16bit(hi, dtype) << 16;
}
DEVICE uint32_t device_to_bf16x2(float lo, float hi) {
  return emu_to_16bit(lo, arfusionBfloat16) | emu_to_16bit(hi, arfusionBfloat16) << 16;
}
DEVICE uint32_t device_to_fp16x2(float lo, float hi) {
  return emu_to_16bit(lo, arfusionFloat16) | emu_to_16bit(hi, arfusionFloat16) << 16;
}
DEVICE uint32_t device_add_bf16x2(uint32_t a, uint32_t b) { return emu_add_x2(a, b, arfusionBfloat16); }
DEVICE uint32_t device_add_fp16x2(uint32_t a, uint32_t b) { return emu_add_x2(a, b, arfusionFloat16); }
DEVICE void device_from_fp16x2(uint32_t word, float* lo, float* hi) {
  *lo = emu_from_16bit(word, arfusionFloat16);
  *hi = emu_from_16bit(word >> 16, arfusionFloat16);
}

/* As on the oldest GPUs. */
#define DEVICE_HAS_E4M3 0
#define DEVICE_HAS_E2M1 0

DEVICE uint32_t device_max(uint32_t a, uint32_t b) { return a > b ? a : b; }
DEVICE uint32_t device_min(uint32_t a, uint32_t b) { return a < b ? a : b; }
DEVICE uint32_t device_max_u16x2(uint32_t a, uint32_t b) {
  return device_max(a >> 16, b >> 16) << 16 | device_max(a & 0xffff, b & 0xffff);
}
DEVICE uint32_t device_mul_high(uint32_t a, uint32_t b) { return (uint32_t)((uint64_t)a * b >> 32); }

/* ---------------------------------------------------------------- warps and blocks */

DEVICE float device_shuffle(float a, uint32_t lane) { return device_float(emu_shuffle(device_bits(a), lane)); }
DEVICE float device_shuffle_xor(float a, int mask) { return device_shuffle(a, emu_place->thread ^ (uint32_t)mask); }
DEVICE uint32_t device_shuffle_u32(uint32_t a, uint32_t lane) { return emu_shuffle(a, lane); }
DEVICE uint32_t device_shuffle_xor_u32(uint32_t a, int mask) {
  return emu_shuffle(a, emu_place->thread ^ (uint32_t)mask);
}
DEVICE uint32_t device_warp_max(uint32_t a) {
  for (int mask = 16; mask; mask /= 2) a = device_max(a, device_shuffle_xor_u32(a, mask));
  return a;
}
DEVICE bool device_warp_any(bool a) { return emu_vote(a) != 0; }
DEVICE void device_barrier(void) { emu_barrier(); }
DEVICE void device_pin(uint32_t& v) { v = emu_shuffle(v, emu_place->thread); }
DEVICE void device_split_arrive(uint32_t threads) { emu_split_arrive(threads); }
DEVICE void device_split_wait(uint32_t threads) { emu_split_wait(threads); }
DEVICE void device_grid_wait(void) { emu_grid_wait(); }
DEVICE void device_grid_trigger(void) { emu_grid_trigger(); }

/* ---------------------------------------------------------------- memory */

template <class V>
DEVICE V emu_load_as(const void* p, enum emu_order order) {
  V v;
  emu_load(&v, p, sizeof v, order);
  return v;
}
template <class V>
DEVICE void emu_store_as(void* p, const V& v, enum emu_order order) {
  emu_store(p, &v, sizeof v, order);
}

DEVICE struct vec device_load(const void* p) { return emu_load_as<struct vec>(p, EMU_WEAK); }
DEVICE uint32_t device_load_u32(const void* p) { return emu_load_as<uint32_t>(p, EMU_WEAK); }
DEVICE uint32_t device_load_u16(const void* p) { return emu_load_as<uint16_t>(p, EMU_WEAK); }
DEVICE uint32_t device_load_u8(const void* p) { return emu_load_as<uint8_t>(p, EMU_WEAK); }
DEVICE void device_prefetch(const void*) {}
DEVICE void device_store(void* p, const struct vec& v) { emu_store_as(p, v, EMU_WEAK); }
DEVICE void device_store_u32(void* p, uint32_t v) { emu_store_as(p, v, EMU_WEAK); }
DEVICE void device_store_u8(void* p, uint32_t v) { emu_store_as(p, (uint8_t)v, EMU_WEAK); }
DEVICE void device_store_u32x2(void* p, uint32_t a, uint32_t b) {
  device_store_u32(p, a);
  device_store_u32((unsigned char*)p + 4, b);
}
DEVICE void device_store_u16(void* p, uint32_t v) { emu_store_as(p, (uint16_t)v, EMU_WEAK); }

DEVICE struct vec device_load_relaxed_sys(const void* p) { return emu_load_as<struct vec>(p, EMU_RELAXED_SYS); }
DEVICE void device_store_relaxed_sys(void* p, const struct vec& v) { emu_store_as(p, v, EMU_RELAXED_SYS); }
DEVICE uint32_t device_load_relaxed_sys_u32(const void* p) { return emu_load_as<uint32_t>(p, EMU_RELAXED_SYS); }
DEVICE void device_store_relaxed_sys_u32(void* p, uint32_t v) { emu_store_as(p, v, EMU_RELAXED_SYS); }
DEVICE void device_store_relaxed_sys_u64(void* p, uint64_t v) { emu_store_as(p, v, EMU_RELAXED_SYS); }
DEVICE uint64_t device_load_acquire_sys_u64(const void* p) { return emu_load_as<uint64_t>(p, EMU_ACQUIRE_SYS); }
DEVICE void device_store_release_sys_u64(void* p, uint64_t v) { emu_store_as(p, v, EMU_RELEASE_SYS); }
DEVICE void device_fence_sys(void) { emu_fence_sys(); }

DEVICE uint64_t device_load_relaxed_gpu_u64(const void* p) { return emu_load_as<uint64_t>(p, EMU_RELAXED_GPU); }
DEVICE void device_atomic_add_u64(void* p, uint64_t v) { emu_atomic_add(p, v, sizeof v); }
DEVICE uint64_t device_atomic_fetch_add_u64(void* p, uint64_t v) { return emu_atomic_fetch_add_u64(p, v); }
DEVICE uint32_t device_atomic_count(uint32_t* p, uint32_t last) { return emu_atomic_count(p, last); }
DEVICE uint32_t device_atomic_exchange(uint32_t* p, uint32_t v) { return emu_atomic_exchange(p, v); }

/* ---------------------------------------------------------------- time */

DEVICE uint64_t device_nanoseconds(void) { return emu_nanoseconds(); }

#endif
