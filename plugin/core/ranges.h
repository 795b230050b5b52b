/* SPDX-License-Identifier: Apache-2.0
 *
 * ranges.h: NVTX ranges around the host's part of operations, for Nsight Systems and other tools: in the domain
 * "arfusion", named after pattern and algorithm ("residual_rmsnorm oneshot_lamport"), with the request's bytes as
 * payload. Where no tool is attached a range costs one comparison; builds without CUDA, or without NVTX beside it, have
 * none.
 */
#ifndef ARFUSION_CORE_RANGES_H_
#define ARFUSION_CORE_RANGES_H_

#include "arfusion_plugin.h"

#ifdef ARFUSION_HAVE_NVTX
/* NULL as long as no tool is attached. */
extern struct nvtxDomainRegistration_st* ranges_domain;

/* Looks for a tool, the first time. From any thread, before any range. */
void ranges_init(void);

void range_push(arfusionPattern_t pattern, arfusionAlgorithm_t algorithm, int64_t bytes);
void range_pop(void);

/* algorithm: arfusionAlgoNone for the epilogue alone. */
static inline void range_begin(arfusionPattern_t pattern, arfusionAlgorithm_t algorithm, int64_t bytes) {
  if (ranges_domain) range_push(pattern, algorithm, bytes);
}

static inline void range_end(void) {
  if (ranges_domain) range_pop();
}
#else
static inline void ranges_init(void) {}
static inline void range_begin(arfusionPattern_t pattern, arfusionAlgorithm_t algorithm, int64_t bytes) {
  (void)pattern;
  (void)algorithm;
  (void)bytes;
}
static inline void range_end(void) {}
#endif

#endif
