/* SPDX-License-Identifier: Apache-2.0
 *
 * real.h: the libnccl behind this one. It is looked for at the first call of any NCCL function, in this order:
 *
 *   1. ARFUSION_NCCL_LIB, and nothing else if that is set
 *   2. a libnccl.so.2 that is already loaded
 *   3. the folders that the calling object (the program, or the library that called) searches for its libraries
 *   4. wherever the loader finds libnccl.so.2
 *
 * What is found must be an NCCL and must not be this library. If nothing is, one line says what was tried, and every
 * function of NCCL returns ncclSystemError from then on.
 */
#ifndef ARFUSION_NCCL_REAL_H_
#define ARFUSION_NCCL_REAL_H_

#include "plugin/nccl/nccl_abi.h"

#define HERE(name, index) REAL_##name = (index),
#define FORWARD HERE
enum real_index {
#include "nccl_functions.h"
  REAL_COUNT
};
#undef HERE
#undef FORWARD

/* Where each function is; NULL until it was looked for. Also read by forward.S. */
extern void* forward_slots[REAL_COUNT];

/* The function, looked for on behalf of code at `caller`. Never NULL: what is not there is replaced by something that
 * returns ncclSystemError, or ncclInvalidUsage where there is a libnccl that is too old to have it. Also called by
 * forward.S. */
void* real_resolve(int index, const void* caller);

/* Whether there is a libnccl. */
int real_found(const void* caller);

/* A symbol of the real library that NCCL does not have; NULL: this one does not either. */
void* real_extra(const char* symbol);

static inline void* real_get(int index, const void* caller) {
  void* function = __atomic_load_n(&forward_slots[index], __ATOMIC_ACQUIRE);
  return function ? function : real_resolve(index, caller);
}

/* The real function of this name, with the type that nccl_abi.h declares. */
#define REAL(name) ((__typeof__(&name))real_get(REAL_##name, __builtin_return_address(0)))

/* Counts up while a real function runs that may call NCCL's functions itself: what comes in then only passes through.
 * Of this thread. */
extern _Thread_local int real_depth;
#define CALL_REAL(name, ...)                            \
  __extension__({                                       \
    __typeof__(&name) real_function_ = REAL(name);      \
    ++real_depth;                                       \
    __auto_type real_result_ = real_function_(__VA_ARGS__); \
    --real_depth;                                       \
    real_result_;                                       \
  })

/* A call that NCCL itself made while it was called by this thread. */
#define FROM_NCCL (real_depth > 0)

/* Such a call, or there is no libnccl: nothing is to be done but to call REAL. */
#define PASS_THROUGH (FROM_NCCL || !real_found(__builtin_return_address(0)))

/* pncclFoo is ncclFoo. */
#define TWIN(type, name, ...)               \
  NCCL_EXPORT type p##name(__VA_ARGS__);    \
  NCCL_EXPORT type p##name(__VA_ARGS__) __attribute__((alias(#name)))

#endif
