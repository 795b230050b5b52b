/* SPDX-License-Identifier: Apache-2.0
 *
 * failure.h: what a failed operation means to the caller.
 */
#ifndef ARFUSION_CORE_FAILURE_H_
#define ARFUSION_CORE_FAILURE_H_

#include <stddef.h>

#include "kernels/op.h"

/* Of a kind that is not KERNEL_FAILURE_NONE. */
arfusionResult_t failure_result(const struct kernel_failure* failure);

/* Which rank waited for which, and for what; at most `bytes` characters. */
void failure_text(const struct kernel_failure* failure, char* text, size_t bytes);

/* What the ranks compare of a request that goes to `algorithm` (ARFUSION_CHECK). */
struct kernel_call failure_call(const arfusionRequest_t* request, arfusionAlgorithm_t algorithm);

#endif
