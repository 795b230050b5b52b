/* SPDX-License-Identifier: Apache-2.0
 *
 * test_abi_layout.c: version 1 of the ABI as it was released: where every field and function is, and the number of
 * every enum's last value. Lines are added here when something is added to the header; none changes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "arfusion.h"

struct place {
  const char* what;
  size_t is, was;
};

#define FIELD(type, field, was) {#type "." #field, offsetof(type, field), was}
static const struct place places[] = {
    FIELD(arfusionProperties_t, size, 0),
    FIELD(arfusionProperties_t, name, 8),
    FIELD(arfusionProperties_t, pciBusId, 72),
    FIELD(arfusionProperties_t, isHost, 92),
    FIELD(arfusionProperties_t, deviceOrdinal, 96),
    FIELD(arfusionProperties_t, computeMajor, 100),
    FIELD(arfusionProperties_t, computeMinor, 104),
    FIELD(arfusionProperties_t, multiprocessors, 108),
    FIELD(arfusionProperties_t, memoryBytes, 112),
    FIELD(arfusionConfig_t, size, 0),
    FIELD(arfusionConfig_t, maxTokens, 8),
    FIELD(arfusionConfig_t, hidden, 16),
    FIELD(arfusionConfig_t, dataType, 24),
    FIELD(arfusionConfig_t, reserved, 28),
    FIELD(arfusionBootstrap_t, size, 0),
    FIELD(arfusionBootstrap_t, rank, 8),
    FIELD(arfusionBootstrap_t, nranks, 12),
    FIELD(arfusionBootstrap_t, nhosts, 16),
    FIELD(arfusionBootstrap_t, reserved, 20),
    FIELD(arfusionBootstrap_t, opaque, 24),
    FIELD(arfusionBootstrap_t, allGather, 32),
    FIELD(arfusionRequest_t, size, 0),
    FIELD(arfusionRequest_t, pattern, 8),
    FIELD(arfusionRequest_t, operation, 12),
    FIELD(arfusionRequest_t, dataType, 16),
    FIELD(arfusionRequest_t, gammaDataType, 20),
    FIELD(arfusionRequest_t, quantization, 24),
    FIELD(arfusionRequest_t, scaleLayout, 28),
    FIELD(arfusionRequest_t, algorithmHint, 32),
    FIELD(arfusionRequest_t, groupSize, 36),
    FIELD(arfusionRequest_t, tokens, 40),
    FIELD(arfusionRequest_t, hidden, 48),
    FIELD(arfusionRequest_t, flags, 56),
    FIELD(arfusionRequest_t, eps, 60),
    FIELD(arfusionRequest_t, weightBias, 64),
    FIELD(arfusionRequest_t, reserved, 68),
    FIELD(arfusionRequest_t, inputStride, 72),
    FIELD(arfusionRequest_t, residualInStride, 80),
    FIELD(arfusionRequest_t, residualOutStride, 88),
    FIELD(arfusionRequest_t, normOutStride, 96),
    FIELD(arfusionRequest_t, input, 104),
    FIELD(arfusionRequest_t, residualIn, 112),
    FIELD(arfusionRequest_t, gamma, 120),
    FIELD(arfusionRequest_t, fp8Scale, 128),
    FIELD(arfusionRequest_t, nvfp4GlobalScale, 136),
    FIELD(arfusionRequest_t, allreduceOut, 144),
    FIELD(arfusionRequest_t, residualOut, 152),
    FIELD(arfusionRequest_t, normOut, 160),
    FIELD(arfusionRequest_t, quantOut, 168),
    FIELD(arfusionRequest_t, scaleOut, 176),
    FIELD(arfusionRoute_t, size, 0),
    FIELD(arfusionRoute_t, algorithm, 8),
    FIELD(arfusionRoute_t, reason, 12),
    FIELD(arfusionRoute_t, value, 16),
    FIELD(arfusionRoute_t, limit, 24),
    FIELD(arfusionRoute_t, launches, 32),
    FIELD(arfusionRoute_t, reserved, 36),
    FIELD(arfusionCapacity_t, size, 0),
    FIELD(arfusionCapacity_t, maxRequestBytes, 8),
    FIELD(arfusionCapacity_t, maxLaunchBytes, 16),
    FIELD(arfusionCapacity_t, workspaceBytes, 24),
    FIELD(arfusionCapacity_t, maxRowBytes, 32),
    FIELD(arfusionWorkspace_t, size, 0),
    FIELD(arfusionWorkspace_t, nranks, 8),
    FIELD(arfusionWorkspace_t, reserved, 12),
    FIELD(arfusionWorkspace_t, bytes, 16),
    FIELD(arfusionWorkspace_t, flagsOffset, 24),
    FIELD(arfusionWorkspace_t, lamportOffset, 32),
    FIELD(arfusionWorkspace_t, stageOffset, 40),
    FIELD(arfusionWorkspace_t, address, 48),
    FIELD(arfusionStats_t, size, 0),
    FIELD(arfusionStats_t, requests, 8),
    FIELD(arfusionStats_t, byAlgorithm, 16),
    FIELD(arfusionStats_t, byReason, 144),
    FIELD(arfusionStats_t, launches, 656),
    FIELD(arfusionStats_t, bytes, 664),
    FIELD(arfusionStats_t, errors, 672),
    FIELD(arfusionStats_t, nanInputs, 680),
    FIELD(arfusionStats_t, nanResiduals, 688),
    FIELD(arfusionStats_t, nanOutputs, 696),
    FIELD(arfusionPlugin_v1_t, size, 0),
    FIELD(arfusionPlugin_v1_t, name, 8),
    FIELD(arfusionPlugin_v1_t, init, 16),
    FIELD(arfusionPlugin_v1_t, devices, 24),
    FIELD(arfusionPlugin_v1_t, getProperties, 32),
    FIELD(arfusionPlugin_v1_t, getUniqueId, 40),
    FIELD(arfusionPlugin_v1_t, bootstrapUniqueId, 48),
    FIELD(arfusionPlugin_v1_t, bootstrapEnvironment, 56),
    FIELD(arfusionPlugin_v1_t, bootstrapDestroy, 64),
    FIELD(arfusionPlugin_v1_t, commInit, 72),
    FIELD(arfusionPlugin_v1_t, commInitAll, 80),
    FIELD(arfusionPlugin_v1_t, route, 88),
    FIELD(arfusionPlugin_v1_t, enqueue, 96),
    FIELD(arfusionPlugin_v1_t, epilogue, 104),
    FIELD(arfusionPlugin_v1_t, commFinalize, 112),
    FIELD(arfusionPlugin_v1_t, commAbort, 120),
    FIELD(arfusionPlugin_v1_t, commGetAsyncError, 128),
    FIELD(arfusionPlugin_v1_t, commGetCapacity, 136),
    FIELD(arfusionPlugin_v1_t, commGetStats, 144),
    FIELD(arfusionPlugin_v1_t, regBuffer, 152),
    FIELD(arfusionPlugin_v1_t, deregBuffer, 160),
    FIELD(arfusionPlugin_v1_t, finalize, 168),
    FIELD(arfusionPlugin_v1_t, reasonString, 176),
    FIELD(arfusionPlugin_v1_t, getLastError, 184),
    FIELD(arfusionPlugin_v1_t, commGetWorkspace, 192),
    FIELD(arfusionWorkspaceMetadata_t, size, 0),
    FIELD(arfusionWorkspaceMetadata_t, tp_rank, 8),
    FIELD(arfusionWorkspaceMetadata_t, tp_size, 16),
    FIELD(arfusionWorkspaceMetadata_t, max_token_num, 24),
    FIELD(arfusionWorkspaceMetadata_t, hidden_dim, 32),
    FIELD(arfusionWorkspaceMetadata_t, use_fp32_lamport, 40),
    FIELD(arfusionWorkspaceMetadata_t, buffer_size, 48),
    FIELD(arfusionWorkspaceMetadata_t, flag_size, 56),
    FIELD(arfusionWorkspaceMetadata_t, lamport_comm_size, 64),
    FIELD(arfusionWorkspaceMetadata_t, lamport_buffer_size, 72),
};

#define SIZE(type, was) {"sizeof " #type, sizeof(type), was}
static const struct place sizes[] = {
    SIZE(arfusionProperties_t, ARFUSION_PROPERTIES_V1_SIZE), SIZE(arfusionConfig_t, ARFUSION_CONFIG_V1_SIZE),
    SIZE(arfusionBootstrap_t, ARFUSION_BOOTSTRAP_V1_SIZE),   SIZE(arfusionRequest_t, ARFUSION_REQUEST_V1_SIZE),
    SIZE(arfusionRoute_t, ARFUSION_ROUTE_V1_SIZE),           SIZE(arfusionCapacity_t, ARFUSION_CAPACITY_V1_SIZE),
    SIZE(arfusionWorkspace_t, ARFUSION_WORKSPACE_V1_SIZE),   SIZE(arfusionStats_t, ARFUSION_STATS_V1_SIZE),
    SIZE(arfusionPlugin_v1_t, ARFUSION_PLUGIN_V1_SIZE),      SIZE(arfusionUniqueId_t, 128),
    SIZE(arfusionWorkspaceMetadata_t, ARFUSION_WORKSPACE_METADATA_V1_SIZE)};

static const struct place values[] = {
    {"results", arfusionInProgress, 7},      {"data types", arfusionFloat8e5m2, 11}, {"operations", arfusionAvg, 4},
    {"patterns", arfusionPatternResidualRmsNorm, 1}, {"quantizations", arfusionQuantNvfp4, 4},
    {"scale layouts", arfusionScaleSwizzled128x4, 1}, {"algorithms", arfusionAlgoTwoshot, 5},
    {"reasons", arfusionReasonSharedGpu, 19}, {"log levels", arfusionLogTrace, 5}};

static void check(const struct place* table, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (table[i].is != table[i].was) fail_msg("%s is %zu, version 1 has %zu", table[i].what, table[i].is, table[i].was);
  }
}

static void fields_are_where_they_were(void** state) {
  (void)state;
  check(places, sizeof places / sizeof places[0]);
}

static void values_are_what_they_were(void** state) {
  (void)state;
  check(values, sizeof values / sizeof values[0]);
}

/* What is added to a struct goes behind all of version 1, which then is not its last byte any more. */
static void structs_have_not_shrunk(void** state) {
  (void)state;
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; ++i) {
    if (sizes[i].is < sizes[i].was) fail_msg("%s is %zu, version 1 has %zu", sizes[i].what, sizes[i].is, sizes[i].was);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(fields_are_where_they_were),
      cmocka_unit_test(values_are_what_they_were),
      cmocka_unit_test(structs_have_not_shrunk),
  };
  return cmocka_run_group_tests_name("abi_layout", tests, NULL, NULL);
}
