/* SPDX-License-Identifier: Apache-2.0
 *
 * test_library_quant.c: quantized requests through libarfusion on the host device: with each algorithm, cut into
 * several launches, whose scales share one array, and completed because the plugin is turned off. What is written must
 * be the reference's codes and scales of the norm_out that comes with them, and the same without a norm_out.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "arfusion.h"
#include "plugin/tools/bench/reference.h"
#include "test/unit/library_ranks.h"

enum { NRANKS = 2, TOKENS = 131, HIDDEN = 1040 };

static const float scale = 7.5f;

static const struct form {
  arfusionQuant_t quantization;
  arfusionScaleLayout_t layout;
  int group;
} forms[] = {{arfusionQuantFp8, 0, 0},
             {arfusionQuantFp8Token, 0, 0},
             {arfusionQuantFp8Group, 0, 80},
             {arfusionQuantNvfp4, arfusionScaleLinear, 0},
             {arfusionQuantNvfp4, arfusionScaleSwizzled128x4, 0}};

struct memory {
  uint16_t input[TOKENS * HIDDEN], residual[TOKENS * HIDDEN], gamma[HIDDEN], norm[TOKENS * HIDDEN];
  unsigned char codes[TOKENS * HIDDEN], scales[TOKENS * HIDDEN];
  unsigned char expected_codes[TOKENS * HIDDEN], expected_scales[TOKENS * HIDDEN];
};

static uint16_t element(int rank, int64_t i) {
  return (uint16_t)(0x3e00 + ((uint64_t)i * 2654435761u >> 7 & 0x81ff) + rank);
}

static arfusionRequest_t request_of(const struct form* form, struct memory* m) {
  return (arfusionRequest_t){.size = sizeof(arfusionRequest_t),
                             .pattern = arfusionPatternResidualRmsNorm,
                             .dataType = arfusionBfloat16,
                             .gammaDataType = arfusionBfloat16,
                             .quantization = form->quantization,
                             .scaleLayout = form->layout,
                             .groupSize = form->group,
                             .tokens = TOKENS,
                             .hidden = HIDDEN,
                             .eps = SUPPORT_EPS,
                             .input = m->input,
                             .residualIn = m->residual,
                             .gamma = m->gamma,
                             .fp8Scale = &scale,
                             .nvfp4GlobalScale = &scale,
                             .normOut = m->norm,
                             .quantOut = m->codes,
                             .scaleOut = form->quantization == arfusionQuantFp8 ? NULL : m->scales};
}

/* Once with norm_out, once without. */
static arfusionResult_t run_form(arfusionComm_t comm, const struct form* form, arfusionAlgorithm_t algorithm,
                                 struct memory* m, struct support_outcome* outcome) {
  for (int without = 0; without < 2; ++without) {
    arfusionRoute_t route = {.size = sizeof route};
    arfusionRequest_t request = request_of(form, m);
    request.algorithmHint = algorithm == arfusionAlgoNone ? arfusionAlgoAuto : algorithm;
    if (without) request.normOut = NULL;
    memset(m->codes, 0xa5, sizeof m->codes);
    memset(m->scales, 0xa5, sizeof m->scales);
    const arfusionResult_t result = arfusionAllReduce(comm, &request, NULL, &route);
    if (result != arfusionSuccess) return result;
    if (!without) {
      struct reference_quant reference = {.dtype = arfusionBfloat16,
                                          .quantization = form->quantization,
                                          .layout = form->layout,
                                          .group = form->group,
                                          .tokens = TOKENS,
                                          .hidden = HIDDEN,
                                          .all_tokens = TOKENS,
                                          .scale = scale,
                                          .scales = m->expected_scales};
      memset(m->expected_codes, 0xa5, sizeof m->expected_codes);
      memset(m->expected_scales, 0xa5, sizeof m->expected_scales);
      reference_quant(&reference, m->norm, m->expected_codes);
    }
    outcome->value[0] += route.algorithm == algorithm && (algorithm == arfusionAlgoNone || route.launches > 1) &&
                         !memcmp(m->codes, m->expected_codes, sizeof m->codes) &&
                         !memcmp(m->scales, m->expected_scales, sizeof m->scales);
    ++outcome->value[1];
  }
  return arfusionSuccess;
}

struct job {
  arfusionUniqueId_t id;
  int turned_off;
};

static arfusionResult_t job_rank(int rank, void* argument, struct support_outcome* outcome) {
  static const arfusionConfig_t config = {.size = sizeof config, .maxTokens = TOKENS, .hidden = HIDDEN,
                                          .dataType = arfusionBfloat16};
  static const arfusionAlgorithm_t algorithms[] = {arfusionAlgoOneshotLamport, arfusionAlgoOneshotSync,
                                                   arfusionAlgoTwoshot};
  const struct job* job = argument;
  arfusionComm_t comm;
  if (job->turned_off) support_setting("ARFUSION_ALGO", "none");
  arfusionResult_t result = arfusionCommInitRank(&comm, NRANKS, &job->id, rank, 0, &config);
  if (result != arfusionSuccess) return result;
  struct memory* m = malloc(sizeof *m);
  if (!m) return arfusionSystemError;
  for (int64_t i = 0; i < TOKENS * HIDDEN; ++i) m->input[i] = element(rank, i);
  for (int64_t i = 0; i < TOKENS * HIDDEN; ++i) m->residual[i] = element(5, i * 3);
  for (int64_t i = 0; i < HIDDEN; ++i) m->gamma[i] = element(6, i * 5);
  for (size_t f = 0; f < sizeof forms / sizeof forms[0]; ++f) {
    for (int a = 0; a < (job->turned_off ? 1 : 3) && result == arfusionSuccess; ++a) {
      result = run_form(comm, &forms[f], job->turned_off ? arfusionAlgoNone : algorithms[a], m, outcome);
    }
  }
  free(m);
  arfusionCommDestroy(comm);
  return result;
}

static void job_do(int turned_off) {
  struct support_outcome outcomes[SUPPORT_MAX_RANKS];
  struct job job = {.turned_off = turned_off, .id = library_unique_id()};
  library_ranks_run(NRANKS, job_rank, &job, outcomes);
  for (int r = 0; r < NRANKS; ++r) {
    assert_int_equal(outcomes[r].value[1], (turned_off ? 1 : 3) * 2 * sizeof forms / sizeof forms[0]);
    assert_int_equal(outcomes[r].value[0], outcomes[r].value[1]);
  }
}

static void quantized_requests_of_several_launches_are_done(void** state) {
  (void)state;
  job_do(0);
}

static void quantized_requests_that_are_turned_down_are_completed(void** state) {
  (void)state;
  job_do(1);
}

static int set_up(void** state) {
  (void)state;
  support_setting("ARFUSION_DEVICE", "host");
  support_setting("ARFUSION_DEBUG", "none");
  support_setting("ARFUSION_INIT_TIMEOUT", "10");
  support_setting("ARFUSION_WORKSPACE_LIMIT", "512K");
  support_use_plugin();
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(quantized_requests_of_several_launches_are_done),
      cmocka_unit_test(quantized_requests_that_are_turned_down_are_completed),
  };
  return cmocka_run_group_tests_name("library_quant", tests, set_up, NULL);
}
