/* SPDX-License-Identifier: Apache-2.0
 *
 * ranges_cuda.c: see ranges.h. NVTX is a header of the CUDA toolkit; a tool that is attached is loaded by it.
 */
#include "plugin/core/ranges.h"

#ifdef ARFUSION_HAVE_NVTX
#include <nvtx3/nvToolsExt.h>
#include <pthread.h>
#include <stdio.h>

#include "plugin/core/names.h"

enum { PATTERNS = arfusionPatternResidualRmsNorm + 1 };

struct nvtxDomainRegistration_st* ranges_domain;
static nvtxStringHandle_t names[PATTERNS][ARFUSION_NUM_ALGORITHMS];

static void names_register(nvtxDomainHandle_t domain) {
  char name[64];
  for (int p = 0; p < PATTERNS; ++p) {
    for (int a = 0; a < ARFUSION_NUM_ALGORITHMS; ++a) {
      const char* algorithm = a == arfusionAlgoNone ? "epilogue" : name_of_algorithm((arfusionAlgorithm_t)a);
      snprintf(name, sizeof name, "%s %s", name_of_pattern((arfusionPattern_t)p), algorithm);
      names[p][a] = nvtxDomainRegisterStringA(domain, name);
    }
  }
}

static void look_for_tool(void) {
  const nvtxDomainHandle_t domain = nvtxDomainCreateA("arfusion");
  if (domain) names_register(domain);
  ranges_domain = domain;
}

void ranges_init(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, look_for_tool);
}

void range_push(arfusionPattern_t pattern, arfusionAlgorithm_t algorithm, int64_t bytes) {
  const nvtxEventAttributes_t event = {
      .version = NVTX_VERSION,
      .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
      .messageType = NVTX_MESSAGE_TYPE_REGISTERED,
      .message = {.registered = names[pattern][algorithm]},
      .payloadType = NVTX_PAYLOAD_TYPE_INT64,
      .payload = {.llValue = bytes},
  };
  nvtxDomainRangePushEx(ranges_domain, &event);
}

void range_pop(void) { nvtxDomainRangePop(ranges_domain); }
#endif
