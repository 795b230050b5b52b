/* SPDX-License-Identifier: Apache-2.0
 *
 * test_route.c: the routing function as a table: a change to the facts or to the request, and where it then goes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plugin/core/names.h"
#include "plugin/core/route.h"

enum { LAUNCH = 1 << 20, REQUEST = 4 << 20 };

static struct route_facts base_facts(void) {
  return (struct route_facts){
      .nranks = 2,
      .forced = arfusionAlgoAuto,
      .max_request_bytes = REQUEST,
      .launch_bytes = {[arfusionAlgoOneshotLamport] = LAUNCH, [arfusionAlgoOneshotSync] = LAUNCH / 2},
      .table = {.automatic = {{32768, arfusionAlgoOneshotLamport}, {INT64_MAX, arfusionAlgoOneshotSync}},
                .slower_from_bytes = INT64_MAX},
  };
}

static arfusionRequest_t base_request(void) {
  return (arfusionRequest_t){
      .size = sizeof(arfusionRequest_t),
      .pattern = arfusionPatternResidualRmsNorm,
      .operation = arfusionSum,
      .dataType = arfusionBfloat16,
      .gammaDataType = arfusionBfloat16,
      .tokens = 4,
      .hidden = 4096,
  };
}

static arfusionRoute_t select_route(const struct route_facts* facts, const arfusionRequest_t* request) {
  arfusionRoute_t route = {.size = sizeof route, .algorithm = (arfusionAlgorithm_t)99, .launches = -1};
  route_select(facts, request, &route);
  return route;
}

struct row {
  const char* what;
  void (*change)(struct route_facts*, arfusionRequest_t*);
  arfusionAlgorithm_t algorithm;
  arfusionReason_t reason;
  int64_t value, limit;
  int launches;
};

#define CHANGE(name, statements)                                              \
  static void name(struct route_facts* facts, arfusionRequest_t* request) {   \
    (void)facts;                                                              \
    (void)request;                                                            \
    statements                                                                \
  }
CHANGE(nothing, )
CHANGE(no_tokens, request->tokens = 0; request->dataType = arfusionFloat64; facts->reason = arfusionReasonSeveralHosts;)
CHANGE(large, request->tokens = 5;)
CHANGE(two_launches, request->tokens = 65;)
CHANGE(hint, request->algorithmHint = arfusionAlgoOneshotLamport; request->tokens = 512;)
CHANGE(hint_over_forced, request->algorithmHint = arfusionAlgoOneshotLamport; facts->forced = arfusionAlgoOneshotSync;)
CHANGE(hint_missing, request->algorithmHint = arfusionAlgoTwoshot;)
CHANGE(forced, facts->forced = arfusionAlgoOneshotSync;)
CHANGE(forced_missing, facts->forced = arfusionAlgoTwoshot;)
CHANGE(disabled, facts->forced = arfusionAlgoNone;)
CHANGE(disabled_hint, facts->forced = arfusionAlgoNone; request->algorithmHint = arfusionAlgoOneshotSync;)
CHANGE(float64, request->dataType = arfusionFloat64;)
CHANGE(fp8_input, request->dataType = arfusionFloat8e4m3;)
CHANGE(int8_allreduce, request->pattern = arfusionPatternAllReduce; request->dataType = arfusionInt8;)
CHANGE(max_operation, request->operation = arfusionMax;)
CHANGE(custom_operation, request->operation = (arfusionRedOp_t)1234;)
CHANGE(gamma_fp32, request->gammaDataType = arfusionFloat32;)
CHANGE(gamma_fp16, request->gammaDataType = arfusionFloat16;)
CHANGE(gamma_ignored, request->gammaDataType = arfusionFloat16; request->pattern = arfusionPatternAllReduce;)
CHANGE(unaligned_hidden, request->hidden = 4100;)
CHANGE(fp32_hidden_4, request->hidden = 4100; request->dataType = request->gammaDataType = arfusionFloat32;
       request->tokens = 1;)
CHANGE(hidden_largest, request->hidden = 65536; request->tokens = 1;)
CHANGE(hidden_too_large, request->hidden = 65544; request->tokens = 1;)
CHANGE(flat_any_count, request->pattern = arfusionPatternAllReduce; request->tokens = 1; request->hidden = 70001;)
CHANGE(flat_launches, request->pattern = arfusionPatternAllReduce; request->tokens = 1;
       request->hidden = LAUNCH / 4 + 1;)
CHANGE(too_large, request->tokens = 513;)
CHANGE(exactly_fits, request->tokens = 512;)
CHANGE(nvfp4_fp32, request->quantization = arfusionQuantNvfp4;
       request->dataType = request->gammaDataType = arfusionFloat32;)
CHANGE(nvfp4_hidden, request->quantization = arfusionQuantNvfp4; request->hidden = 4104;)
CHANGE(group_zero, request->quantization = arfusionQuantFp8Group;)
CHANGE(group_odd, request->quantization = arfusionQuantFp8Group; request->groupSize = 12;)
CHANGE(group_not_dividing, request->quantization = arfusionQuantFp8Group; request->groupSize = 96;)
CHANGE(fp8, request->quantization = arfusionQuantFp8;)
CHANGE(fp8_fp32, request->quantization = arfusionQuantFp8;
       request->dataType = request->gammaDataType = arfusionFloat32;)
CHANGE(fp8_token, request->quantization = arfusionQuantFp8Token;)
CHANGE(fp8_group, request->quantization = arfusionQuantFp8Group; request->groupSize = 8;)
CHANGE(nvfp4, request->quantization = arfusionQuantNvfp4; request->scaleLayout = arfusionScaleSwizzled128x4;)
CHANGE(slower, facts->table.slower_from_bytes = 32768;)
CHANGE(slower_not_yet, facts->table.slower_from_bytes = 32769;)
CHANGE(slower_but_named, facts->table.slower_from_bytes = 1; request->algorithmHint = arfusionAlgoOneshotLamport;)
CHANGE(slower_but_forced, facts->table.slower_from_bytes = 1; facts->forced = arfusionAlgoOneshotLamport;)
#define COMMUNICATOR(name, why, a, b) \
  CHANGE(name, facts->reason = why; facts->reason_value = a; facts->reason_limit = b; request->dataType = arfusionInt8;)
COMMUNICATOR(rank_count, arfusionReasonRankCount, 17, 16)
COMMUNICATOR(several_hosts, arfusionReasonSeveralHosts, 2, 1)
COMMUNICATOR(no_peer_access, arfusionReasonNoPeerAccess, 0, 1)
COMMUNICATOR(write_test, arfusionReasonPeerWriteTest, 1, 0)
COMMUNICATOR(not_ready, arfusionReasonNotReady, 0, 0)
COMMUNICATOR(driver, arfusionReasonDriver, 75, 80)
COMMUNICATOR(shared_gpu, arfusionReasonSharedGpu, 1, 0)

#define TAKEN(change, algorithm, launches) {#change, change, algorithm, arfusionReasonNone, 0, 0, launches}
#define DOWN(change, reason, value, limit) {#change, change, arfusionAlgoNone, reason, value, limit, 0}

static const struct row table[] = {
    TAKEN(nothing, arfusionAlgoOneshotLamport, 1),
    TAKEN(no_tokens, arfusionAlgoEmpty, 0),
    TAKEN(large, arfusionAlgoOneshotSync, 1),
    TAKEN(two_launches, arfusionAlgoOneshotSync, 2),
    TAKEN(hint, arfusionAlgoOneshotLamport, 4),
    TAKEN(hint_over_forced, arfusionAlgoOneshotLamport, 1),
    DOWN(hint_missing, arfusionReasonAlgorithm, arfusionAlgoTwoshot, 0),
    TAKEN(forced, arfusionAlgoOneshotSync, 1),
    DOWN(forced_missing, arfusionReasonAlgorithm, arfusionAlgoTwoshot, 0),
    DOWN(disabled, arfusionReasonDisabled, 0, 0),
    DOWN(disabled_hint, arfusionReasonDisabled, 0, 0),
    DOWN(float64, arfusionReasonDataType, arfusionFloat64, 0),
    DOWN(fp8_input, arfusionReasonDataType, arfusionFloat8e4m3, 0),
    DOWN(int8_allreduce, arfusionReasonDataType, arfusionInt8, 0),
    DOWN(max_operation, arfusionReasonOperation, arfusionMax, arfusionSum),
    DOWN(custom_operation, arfusionReasonOperation, 1234, arfusionSum),
    TAKEN(gamma_fp32, arfusionAlgoOneshotLamport, 1),
    DOWN(gamma_fp16, arfusionReasonGammaDataType, arfusionFloat16, arfusionBfloat16),
    TAKEN(gamma_ignored, arfusionAlgoOneshotLamport, 1),
    DOWN(unaligned_hidden, arfusionReasonHiddenAlignment, 8200, 16),
    TAKEN(fp32_hidden_4, arfusionAlgoOneshotLamport, 1),
    TAKEN(hidden_largest, arfusionAlgoOneshotSync, 1),
    DOWN(hidden_too_large, arfusionReasonHiddenTooLarge, 65544, ARFUSION_MAX_HIDDEN),
    TAKEN(flat_any_count, arfusionAlgoOneshotSync, 1),
    TAKEN(flat_launches, arfusionAlgoOneshotSync, 2),
    DOWN(too_large, arfusionReasonWorkspace, 513 * 8192, REQUEST),
    TAKEN(exactly_fits, arfusionAlgoOneshotSync, 8),
    DOWN(nvfp4_fp32, arfusionReasonQuantDataType, arfusionQuantNvfp4, arfusionFloat32),
    DOWN(nvfp4_hidden, arfusionReasonHiddenAlignment, 4104, 16),
    DOWN(group_zero, arfusionReasonGroupSize, 0, 4096),
    DOWN(group_odd, arfusionReasonGroupSize, 12, 4096),
    DOWN(group_not_dividing, arfusionReasonGroupSize, 96, 4096),
    TAKEN(fp8, arfusionAlgoOneshotLamport, 1),
    TAKEN(fp8_fp32, arfusionAlgoOneshotSync, 1),
    TAKEN(fp8_token, arfusionAlgoOneshotLamport, 1),
    TAKEN(fp8_group, arfusionAlgoOneshotLamport, 1),
    TAKEN(nvfp4, arfusionAlgoOneshotLamport, 1),
    DOWN(slower, arfusionReasonSlower, 32768, 32768),
    TAKEN(slower_not_yet, arfusionAlgoOneshotLamport, 1),
    TAKEN(slower_but_named, arfusionAlgoOneshotLamport, 1),
    TAKEN(slower_but_forced, arfusionAlgoOneshotLamport, 1),
    DOWN(rank_count, arfusionReasonRankCount, 17, 16),
    DOWN(several_hosts, arfusionReasonSeveralHosts, 2, 1),
    DOWN(no_peer_access, arfusionReasonNoPeerAccess, 0, 1),
    DOWN(write_test, arfusionReasonPeerWriteTest, 1, 0),
    DOWN(not_ready, arfusionReasonNotReady, 0, 0),
    DOWN(driver, arfusionReasonDriver, 75, 80),
    DOWN(shared_gpu, arfusionReasonSharedGpu, 1, 0),
};

static void test_table(void** state) {
  uint64_t reasons_seen = 0;
  (void)state;
  for (size_t i = 0; i < sizeof table / sizeof table[0]; ++i) {
    struct route_facts facts = base_facts();
    arfusionRequest_t request = base_request();
    table[i].change(&facts, &request);
    const arfusionRoute_t route = select_route(&facts, &request);
    if (route.algorithm != table[i].algorithm || route.reason != table[i].reason || route.value != table[i].value ||
        route.limit != table[i].limit || route.launches != table[i].launches) {
      fail_msg("%s: %s, %s, value %lld, limit %lld, %d launches", table[i].what, name_of_algorithm(route.algorithm),
               name_of_reason(route.reason), (long long)route.value, (long long)route.limit, route.launches);
    }
    reasons_seen |= (uint64_t)1 << route.reason;
  }
  for (int reason = 0; reason < ARFUSION_NUM_REASONS; ++reason) {
    if (reason == arfusionReasonQuantUnsupported) continue; /* of other plugins: this one has them all */
    if (!(reasons_seen >> reason & 1)) fail_msg("no row for reason %d (%s)", reason, name_of_reason(reason));
  }
}

/* A row that no launch of one algorithm can take goes to another one; if there is none it is turned down, not cut. */
static void test_row_larger_than_a_launch(void** state) {
  struct route_facts facts = base_facts();
  arfusionRequest_t request = base_request();
  (void)state;
  facts.launch_bytes[arfusionAlgoOneshotLamport] = 8191;
  arfusionRoute_t route = select_route(&facts, &request);
  assert_int_equal(route.algorithm, arfusionAlgoOneshotSync);
  facts.launch_bytes[arfusionAlgoOneshotSync] = 8190;
  route = select_route(&facts, &request);
  assert_int_equal(route.reason, arfusionReasonWorkspace);
  assert_int_equal(route.value, 8192);
  assert_int_equal(route.limit, 8191);
}

/* Local fields never decide: the whole local part of the request set to other values gives the same route. */
static void test_local_fields_do_not_decide(void** state) {
  static int memory;
  (void)state;
  for (size_t i = 0; i < sizeof table / sizeof table[0]; ++i) {
    struct route_facts facts = base_facts();
    arfusionRequest_t request = base_request();
    table[i].change(&facts, &request);
    request.flags = ARFUSION_FLAG_DEPENDENT_LAUNCH;
    request.eps = 3;
    request.weightBias = 1;
    request.inputStride = request.residualInStride = request.residualOutStride = request.normOutStride = 123457;
    request.input = request.residualIn = request.gamma = (const char*)&memory + 1;
    request.residualOut = request.normOut = request.allreduceOut = request.quantOut = &memory;
    const arfusionRoute_t route = select_route(&facts, &request);
    assert_int_equal(route.algorithm, table[i].algorithm);
    assert_int_equal(route.reason, table[i].reason);
    assert_int_equal(route.launches, table[i].launches);
  }
}

static void test_every_reason_has_a_text(void** state) {
  (void)state;
  for (int a = 0; a < ARFUSION_NUM_REASONS; ++a) {
    assert_string_not_equal(name_of_reason(a), "unknown reason");
    assert_string_not_equal(key_of_reason(a), "unknown");
    for (int b = 0; b < a; ++b) {
      assert_string_not_equal(name_of_reason(a), name_of_reason(b));
      assert_string_not_equal(key_of_reason(a), key_of_reason(b));
    }
  }
  assert_string_equal(name_of_reason(ARFUSION_NUM_REASONS), "unknown reason");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_table),
      cmocka_unit_test(test_row_larger_than_a_launch),
      cmocka_unit_test(test_local_fields_do_not_decide),
      cmocka_unit_test(test_every_reason_has_a_text),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
