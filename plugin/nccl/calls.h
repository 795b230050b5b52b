/* SPDX-License-Identifier: Apache-2.0
 *
 * calls.h: how the functions that applications call pass on to NCCL's.
 */
#ifndef ARFUSION_NCCL_CALLS_H_
#define ARFUSION_NCCL_CALLS_H_

#include "plugin/nccl/group.h"
#include "plugin/nccl/real.h"

/* The whole of a function that a group must know of only if it fails. */
#define PASS_ON(name, ...)                                  \
  do {                                                      \
    if (FROM_NCCL) return REAL(name)(__VA_ARGS__);          \
    return group_passed_on(CALL_REAL(name, __VA_ARGS__));   \
  } while (0)

#endif
