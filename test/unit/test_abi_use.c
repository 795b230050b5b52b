/* SPDX-License-Identifier: Apache-2.0
 *
 * test_abi_use.c: what a communicator promises about its use: capacity, launches, counters, empty requests, that the
 * epilogue alone is the fused operation's, and where workspaces are.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "test/unit/support.h"

static const arfusionPlugin_v1_t* const plugin = &arfusionPlugin_v1;

enum { NRANKS = 2 };

static void* ctx;

static int set_up(void** state) {
  (void)state;
  support_setting("ARFUSION_DEVICE", "host");
  support_setting("ARFUSION_TIMEOUT", "10");
  ctx = support_context();
  return !ctx;
}

static int tear_down(void** state) {
  (void)state;
  return plugin->finalize(ctx) != arfusionSuccess;
}

static void comms_make(void* from, const arfusionConfig_t* config, void** comms) {
  assert_int_equal(plugin->commInitAll(from, NRANKS, NULL, config, comms), arfusionSuccess);
}

static void comms_end(void** comms) {
  for (int r = 0; r < NRANKS; ++r) assert_int_equal(plugin->commFinalize(comms[r]), arfusionSuccess);
}

static arfusionStats_t stats_of(void* comm) {
  arfusionStats_t stats = {.size = sizeof stats};
  assert_int_equal(plugin->commGetStats(comm, &stats), arfusionSuccess);
  return stats;
}

static arfusionCapacity_t capacity_of(void* comm) {
  arfusionCapacity_t capacity = {.size = sizeof capacity};
  assert_int_equal(plugin->commGetCapacity(comm, &capacity), arfusionSuccess);
  return capacity;
}

/* ---------------------------------------------------------------- flat requests of any size, on all ranks */

struct flat {
  void** comms;
  int64_t count;
  arfusionAlgorithm_t hint;
  int launches; /* of the route, on rank 0 */
  arfusionAlgorithm_t algorithm;
};

static arfusionResult_t flat_run(int rank, void* argument, struct support_outcome* outcome) {
  struct flat* flat = argument;
  float* input = malloc((size_t)flat->count * 4);
  float* sum = malloc((size_t)flat->count * 4 + 4);
  arfusionRoute_t route = {.size = sizeof route};
  for (int64_t i = 0; i < flat->count; ++i) input[i] = support_input(rank, i);
  sum[flat->count] = 12345;
  const arfusionRequest_t request = {.size = sizeof request,
                                     .dataType = arfusionFloat32,
                                     .algorithmHint = flat->hint,
                                     .tokens = 1,
                                     .hidden = flat->count,
                                     .input = input,
                                     .allreduceOut = sum};
  const arfusionResult_t result = plugin->enqueue(flat->comms[rank], &request, NULL, &route);
  int right = sum[flat->count] == 12345;
  for (int64_t i = 0; i < flat->count && right; ++i) {
    float expected = 0;
    for (int r = 0; r < NRANKS; ++r) expected += support_input(r, i);
    right = sum[i] == expected;
  }
  outcome->value[0] = right;
  if (rank == 0) {
    flat->launches = route.launches;
    flat->algorithm = route.algorithm;
  }
  free(input);
  free(sum);
  return result;
}

static void flat_do(struct flat* flat) {
  struct support_outcome outcomes[NRANKS];
  support_threads(NRANKS, flat_run, flat, outcomes);
  for (int r = 0; r < NRANKS; ++r) {
    assert_int_equal(outcomes[r].result, arfusionSuccess);
    assert_int_equal(outcomes[r].value[0], 1);
  }
}

/* ---------------------------------------------------------------- capacity and launches */

static arfusionRoute_t route_of(void* comm, arfusionPattern_t pattern, arfusionDataType_t dtype, int64_t tokens,
                                int64_t hidden) {
  arfusionRoute_t route = {.size = sizeof route};
  const arfusionRequest_t request = {.size = sizeof request,
                                     .pattern = pattern,
                                     .dataType = dtype,
                                     .gammaDataType = dtype,
                                     .tokens = tokens,
                                     .hidden = hidden};
  assert_int_equal(plugin->route(comm, &request, &route), arfusionSuccess);
  return route;
}

static void capacity_is_what_was_asked_for_in_any_shape(void** state) {
  (void)state;
  const arfusionConfig_t config = {.size = sizeof config, .maxTokens = 10, .hidden = 96, .dataType = arfusionBfloat16};
  void* comms[NRANKS];
  comms_make(ctx, &config, comms);
  const arfusionCapacity_t capacity = capacity_of(comms[0]);
  assert_int_equal(capacity.maxRequestBytes, 1920);
  assert_int_equal(capacity.maxRowBytes, 1920);
  assert_true(capacity.maxLaunchBytes >= 1920);
  assert_true(capacity.workspaceBytes > 0);
  static const struct {
    arfusionPattern_t pattern;
    arfusionDataType_t dtype;
    int64_t tokens, hidden;
    int fits;
  } shapes[] = {
      {arfusionPatternResidualRmsNorm, arfusionBfloat16, 10, 96, 1},
      {arfusionPatternResidualRmsNorm, arfusionBfloat16, 11, 96, 0},
      {arfusionPatternResidualRmsNorm, arfusionFloat16, 1, 960, 1},
      {arfusionPatternResidualRmsNorm, arfusionFloat16, 1, 968, 0},
      {arfusionPatternResidualRmsNorm, arfusionFloat32, 120, 4, 1},
      {arfusionPatternResidualRmsNorm, arfusionFloat32, 121, 4, 0},
      {arfusionPatternAllReduce, arfusionFloat32, 1, 480, 1},
      {arfusionPatternAllReduce, arfusionFloat32, 1, 481, 0},
      {arfusionPatternAllReduce, arfusionBfloat16, 960, 1, 1},
      {arfusionPatternAllReduce, arfusionBfloat16, 961, 1, 0},
  };
  for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; ++i) {
    const arfusionRoute_t route =
        route_of(comms[0], shapes[i].pattern, shapes[i].dtype, shapes[i].tokens, shapes[i].hidden);
    assert_int_equal(route.reason, shapes[i].fits ? arfusionReasonNone : arfusionReasonWorkspace);
    if (!shapes[i].fits) assert_int_equal(route.limit, 1920);
  }
  comms_end(comms);
}

static void the_default_is_16384_tokens_of_8192_bf16(void** state) {
  (void)state;
  const arfusionConfig_t zeros = {.size = sizeof zeros};
  for (int given = 0; given < 2; ++given) {
    void* comms[NRANKS];
    comms_make(ctx, given ? &zeros : NULL, comms);
    assert_int_equal(capacity_of(comms[0]).maxRequestBytes, (int64_t)16384 * 8192 * 2);
    comms_end(comms);
  }
}

static void large_requests_go_out_as_several_launches(void** state) {
  (void)state;
  const arfusionConfig_t config = {.size = sizeof config, .maxTokens = 64, .hidden = 4096, .dataType = arfusionFloat32};
  void* comms[NRANKS];
  support_setting("ARFUSION_WORKSPACE_LIMIT", "512K");
  void* narrow = support_context();
  support_setting("ARFUSION_WORKSPACE_LIMIT", NULL);
  comms_make(narrow, &config, comms);
  const arfusionCapacity_t capacity = capacity_of(comms[0]);
  assert_int_equal(capacity.maxRequestBytes, 1 << 20);
  assert_true(capacity.maxLaunchBytes < 1 << 20);
  assert_true(capacity.workspaceBytes <= 512 << 10);
  assert_int_equal(capacity.maxRowBytes, capacity.maxLaunchBytes);
  const int64_t per_launch = capacity.maxLaunchBytes / 4;
  uint64_t launches = 0, bytes = 0;
  for (int hint = arfusionAlgoOneshotLamport; hint <= arfusionAlgoTwoshot; ++hint) {
    const int64_t counts[] = {1, per_launch, per_launch + 1, 2 * per_launch + 7, 1 << 18};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; ++i) {
      struct flat flat = {.comms = comms, .count = counts[i], .hint = (arfusionAlgorithm_t)hint};
      flat_do(&flat);
      assert_int_equal(flat.algorithm, hint);
      assert_true(flat.launches >= (counts[i] + per_launch - 1) / per_launch);
      launches += (uint64_t)flat.launches;
      bytes += (uint64_t)counts[i] * 4;
    }
  }
  assert_int_equal(stats_of(comms[0]).launches, launches);
  assert_int_equal(stats_of(comms[0]).bytes, bytes);
  /* A row is never cut: up to the capacity an algorithm is found that takes it whole. */
  arfusionRoute_t route =
      route_of(comms[0], arfusionPatternResidualRmsNorm, arfusionFloat32, 1, capacity.maxRowBytes / 4);
  assert_int_equal(route.reason, arfusionReasonNone);
  assert_int_equal(route.launches, 1);
  route = route_of(comms[0], arfusionPatternResidualRmsNorm, arfusionFloat32, 1, capacity.maxRowBytes / 4 + 4);
  assert_int_equal(route.reason, arfusionReasonWorkspace);
  assert_int_equal(route.value, capacity.maxRowBytes + 32); /* of whole packs */
  assert_int_equal(route.limit, capacity.maxRowBytes);
  comms_end(comms);
  plugin->finalize(narrow);
}

static void the_capacity_is_that_of_the_algorithm_that_is_forced(void** state) {
  (void)state;
  static const char* const names[] = {"oneshot_lamport", "oneshot_sync", "twoshot"};
  const arfusionConfig_t config = {.size = sizeof config, .maxTokens = 64, .hidden = 4096, .dataType = arfusionFloat32};
  support_setting("ARFUSION_WORKSPACE_LIMIT", "512K");
  for (int a = 0; a < 3; ++a) {
    void* comms[NRANKS];
    support_setting("ARFUSION_ALGO", names[a]);
    void* forced = support_context();
    comms_make(forced, &config, comms);
    const int64_t hidden = capacity_of(comms[0]).maxRowBytes / 4;
    arfusionRoute_t route = route_of(comms[0], arfusionPatternResidualRmsNorm, arfusionFloat32, 1, hidden);
    assert_int_equal(route.algorithm, arfusionAlgoOneshotLamport + a);
    route = route_of(comms[0], arfusionPatternResidualRmsNorm, arfusionFloat32, 1, hidden + 4);
    assert_int_equal(route.reason, arfusionReasonWorkspace);
    comms_end(comms);
    plugin->finalize(forced);
  }
  support_setting("ARFUSION_ALGO", NULL);
  support_setting("ARFUSION_WORKSPACE_LIMIT", NULL);
}

/* No memory holds these, but they can be asked about. */
/* The first reason for which a request of a new communicator is turned down. */
static arfusionReason_t reason_with(void* own) {
  const arfusionConfig_t config = {.size = sizeof config, .maxTokens = 4, .hidden = 64, .dataType = arfusionFloat32};
  void* comms[NRANKS];
  comms_make(own, &config, comms);
  const arfusionReason_t reason = route_of(comms[0], arfusionPatternAllReduce, arfusionFloat32, 1, 64).reason;
  comms_end(comms);
  return reason;
}

static void a_hosts_default_counts_unless_the_user_has_set_it(void** state) {
  (void)state;
  void* own = support_context();
  assert_non_null(own);
  assert_int_equal(plugin->setDefault(own, "ARFUSION_ALGO", "none"), arfusionSuccess);
  assert_int_equal(reason_with(own), arfusionReasonDisabled);
  assert_int_equal(plugin->setDefault(own, "ARFUSION_ALGO", "fastest"), arfusionInvalidArgument);
  assert_true(support_text_has(plugin->getLastError(), "ARFUSION_ALGO=fastest|the host program|twoshot"));
  assert_int_equal(plugin->setDefault(own, "ARFUSION_AGLO", "none"), arfusionInvalidArgument);
  assert_int_equal(plugin->setDefault(own, NULL, "none"), arfusionInvalidArgument);
  assert_int_equal(plugin->finalize(own), arfusionSuccess);

  support_setting("ARFUSION_ALGO", "twoshot");
  own = support_context();
  support_setting("ARFUSION_ALGO", NULL);
  assert_non_null(own);
  assert_int_equal(plugin->setDefault(own, "ARFUSION_ALGO", "none"), arfusionSuccess);
  assert_int_equal(reason_with(own), arfusionReasonNone);
  assert_int_equal(plugin->finalize(own), arfusionSuccess);
}

static void absurd_sizes_are_routed_without_overflow(void** state) {
  (void)state;
  const arfusionConfig_t config = {
      .size = sizeof config, .maxTokens = (int64_t)1 << 40, .hidden = 65536, .dataType = arfusionFloat32};
  void* comms[NRANKS];
  comms_make(ctx, &config, comms);
  assert_int_equal(capacity_of(comms[0]).maxRequestBytes, (int64_t)1 << 58);
  for (int bits = 20; bits <= 56; ++bits) {
    const arfusionRoute_t route = route_of(comms[0], arfusionPatternAllReduce, arfusionFloat32, 1, (int64_t)1 << bits);
    assert_int_equal(route.reason, arfusionReasonNone);
    assert_true(route.launches >= 1);
  }
  const arfusionRequest_t request = {.size = sizeof request,
                                     .pattern = arfusionPatternResidualRmsNorm,
                                     .dataType = arfusionFloat32,
                                     .gammaDataType = arfusionFloat32,
                                     .hidden = INT64_MAX}; /* without tokens it is not too many elements */
  assert_int_equal(plugin->epilogue(comms[0], &request, NULL), arfusionInvalidArgument);
  assert_non_null(strstr(plugin->getLastError(), "limit 65536"));
  comms_end(comms);
}

/* ---------------------------------------------------------------- rows far apart */

enum { FAR_TENSORS = 4 };
#define FAR (((int64_t)1 << 30) + 16) /* elements of fp32: one step passes 32 bits in bytes, two pass 31 in elements */

/* Rows of all tensors beside each other in address space that takes no memory but where they are. */
static arfusionResult_t far_run(int rank, void* argument, struct support_outcome* outcome) {
  void** comms = argument;
  const size_t row = SUPPORT_HIDDEN * sizeof(float),
               bytes = (size_t)((SUPPORT_TOKENS - 1) * FAR) * 4 + FAR_TENSORS * row;
  struct support_tensors tensors;
  arfusionRequest_t request = support_request(&tensors, rank);
  arfusionRoute_t route = {.size = sizeof route};
  arfusionResult_t result = arfusionSuccess;
  float* space = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED) return arfusionSystemError;
  float* const near[FAR_TENSORS] = {tensors.input, tensors.residual_in, tensors.residual_out, tensors.norm_out};
  float* far[FAR_TENSORS];
  for (int i = 0; i < FAR_TENSORS; ++i) far[i] = space + i * SUPPORT_HIDDEN;
  request.inputStride = request.residualInStride = request.residualOutStride = request.normOutStride = FAR;
  request.input = far[0];
  request.residualIn = far[1];
  request.residualOut = far[2];
  request.normOut = far[3];
  for (int hint = arfusionAlgoOneshotLamport; hint <= arfusionAlgoTwoshot && result == arfusionSuccess; ++hint) {
    request.algorithmHint = (arfusionAlgorithm_t)hint;
    for (int64_t t = 0; t < SUPPORT_TOKENS; ++t) {
      for (int i = 0; i < FAR_TENSORS; ++i) {
        memcpy(far[i] + t * FAR, i < 2 ? near[i] + t * SUPPORT_HIDDEN : near[0], row);
      }
    }
    result = plugin->enqueue(comms[rank], &request, NULL, &route);
    for (int64_t t = 0; t < SUPPORT_TOKENS; ++t) {
      for (int i = 2; i < FAR_TENSORS; ++i) memcpy(near[i] + t * SUPPORT_HIDDEN, far[i] + t * FAR, row);
    }
    outcome->value[0] += route.algorithm == request.algorithmHint && support_outputs_right(&tensors, NRANKS);
  }
  munmap(space, bytes);
  return result;
}

static void rows_may_be_4_gb_apart(void** state) {
  (void)state;
  struct support_outcome outcomes[NRANKS];
  void* comms[NRANKS];
  comms_make(ctx, NULL, comms);
  support_threads(NRANKS, far_run, comms, outcomes);
  for (int r = 0; r < NRANKS; ++r) {
    assert_int_equal(outcomes[r].result, arfusionSuccess);
    assert_int_equal(outcomes[r].value[0], 3);
  }
  comms_end(comms);
}

/* ---------------------------------------------------------------- counters */

static void counters_are_exact(void** state) {
  (void)state;
  const arfusionConfig_t config = {.size = sizeof config, .maxTokens = 8, .hidden = 64, .dataType = arfusionFloat32};
  void* comms[NRANKS];
  struct support_tensors tensors;
  arfusionRoute_t route = {.size = sizeof route};
  arfusionStats_t expected = {.size = sizeof expected};
  comms_make(ctx, &config, comms);
  arfusionStats_t stats = stats_of(comms[0]);
  assert_memory_equal(&stats, &expected, sizeof stats);
  for (int hint = arfusionAlgoOneshotLamport; hint <= arfusionAlgoTwoshot; ++hint) {
    struct flat flat = {.comms = comms, .count = 100 + hint, .hint = (arfusionAlgorithm_t)hint};
    for (int times = 0; times < hint; ++times) flat_do(&flat);
    expected.requests += (uint64_t)hint;
    expected.byAlgorithm[hint] += (uint64_t)hint;
    expected.byReason[arfusionReasonNone] += (uint64_t)hint;
    expected.launches += (uint64_t)hint;
    expected.bytes += (uint64_t)hint * (uint64_t)(100 + hint) * 4;
  }
  arfusionRequest_t request = support_request(&tensors, 0);
  request.operation = arfusionMin;
  for (int i = 0; i < 4; ++i) plugin->enqueue(comms[0], &request, NULL, &route);
  plugin->enqueue(comms[0], &request, NULL, NULL); /* an error */
  request.operation = arfusionSum;
  request.tokens = 0;
  for (int i = 0; i < 2; ++i) plugin->enqueue(comms[0], &request, NULL, i ? NULL : &route);
  request.tokens = -1;
  for (int i = 0; i < 3; ++i) plugin->enqueue(comms[0], &request, NULL, &route);
  request.tokens = 1;
  for (int i = 0; i < 7; ++i) plugin->route(comms[0], &request, &route); /* nothing */
  plugin->epilogue(comms[0], &request, NULL);                            /* nothing */
  expected.requests += 6;
  expected.byAlgorithm[arfusionAlgoNone] += 4;
  expected.byReason[arfusionReasonOperation] += 4;
  expected.byAlgorithm[arfusionAlgoEmpty] += 2;
  expected.byReason[arfusionReasonNone] += 2;
  expected.errors += 4;
  stats = stats_of(comms[0]);
  assert_memory_equal(&stats, &expected, sizeof stats);
  assert_int_equal(stats_of(comms[1]).errors, 0);
  assert_int_equal(stats_of(comms[1]).requests, 12);
  comms_end(comms);
}

/* ---------------------------------------------------------------- empty requests */

static void without_tokens_there_is_nothing_to_do(void** state) {
  (void)state;
  void *comms[NRANKS], *alone;
  comms_make(ctx, NULL, comms);
  assert_int_equal(plugin->commInitAll(ctx, 1, NULL, NULL, &alone), arfusionSuccess);
  void* const both[] = {comms[0], alone};
  for (int c = 0; c < 2; ++c) {
    for (int pattern = 0; pattern < 2; ++pattern) {
      for (int dtype = arfusionInt8; dtype <= arfusionFloat8e5m2; ++dtype) {
        const arfusionRequest_t request = {.size = sizeof request,
                                           .pattern = (arfusionPattern_t)pattern,
                                           .dataType = (arfusionDataType_t)dtype,
                                           .hidden = 7};
        arfusionRoute_t route = {.size = sizeof route};
        assert_int_equal(plugin->enqueue(both[c], &request, NULL, &route), arfusionSuccess);
        assert_int_equal(route.algorithm, arfusionAlgoEmpty);
        assert_int_equal(route.reason, arfusionReasonNone);
        assert_int_equal(route.launches, 0);
        assert_int_equal(plugin->enqueue(both[c], &request, NULL, NULL), arfusionSuccess);
        memset(&route.algorithm, 0xff, sizeof route - sizeof route.size);
        assert_int_equal(plugin->route(both[c], &request, &route), arfusionSuccess);
        assert_int_equal(route.algorithm, arfusionAlgoEmpty);
      }
    }
  }
  comms_end(comms);
  plugin->commFinalize(alone);
}

/* ---------------------------------------------------------------- the epilogue alone */

struct fused {
  void** comms;
  arfusionDataType_t dtype, gamma_dtype;
  float bias;
};

enum { TOKENS = 5, HIDDEN = 392, STRIDE = 400, BYTES = TOKENS * STRIDE * 4 }; /* rows with a short last segment */

static uint16_t to_bfloat16(float value) { /* of values that need no rounding */
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (uint16_t)(bits >> 16);
}

static void put(arfusionDataType_t dtype, void* tensor, int64_t at, float value) {
  if (dtype == arfusionFloat32) {
    ((float*)tensor)[at] = value;
  } else {
    ((uint16_t*)tensor)[at] = to_bfloat16(value);
  }
}

static arfusionResult_t fused_and_apart(int rank, void* argument, struct support_outcome* outcome) {
  const struct fused* fused = argument;
  enum { INPUT, RESIDUAL, GAMMA, RESIDUAL_OUT, NORM_OUT, SUM, OTHER_RESIDUAL_OUT, OTHER_NORM_OUT, COUNT };
  unsigned char* memory = calloc(COUNT, BYTES);
  void* tensor[COUNT];
  for (int i = 0; i < COUNT; ++i) tensor[i] = memory + i * BYTES;
  for (int64_t i = 0; i < TOKENS * HIDDEN; ++i) {
    put(fused->dtype, tensor[INPUT], i, support_input(rank, i));
    put(fused->dtype, tensor[RESIDUAL], i / HIDDEN * STRIDE + i % HIDDEN, support_residual(i));
  }
  for (int64_t c = 0; c < HIDDEN; ++c) put(fused->gamma_dtype, tensor[GAMMA], c, support_gamma(c));
  arfusionRequest_t request = {.size = sizeof request,
                               .pattern = arfusionPatternResidualRmsNorm,
                               .dataType = fused->dtype,
                               .gammaDataType = fused->gamma_dtype,
                               .tokens = TOKENS,
                               .hidden = HIDDEN,
                               .eps = SUPPORT_EPS,
                               .weightBias = fused->bias,
                               .residualInStride = STRIDE,
                               .input = tensor[INPUT],
                               .residualIn = tensor[RESIDUAL],
                               .gamma = tensor[GAMMA],
                               .residualOut = tensor[RESIDUAL_OUT],
                               .normOut = tensor[NORM_OUT]};
  const arfusionRequest_t flat = {.size = sizeof flat,
                                  .dataType = fused->dtype,
                                  .tokens = TOKENS,
                                  .hidden = HIDDEN,
                                  .input = tensor[INPUT],
                                  .allreduceOut = tensor[SUM]};
  arfusionRoute_t route = {.size = sizeof route};
  arfusionResult_t result = plugin->enqueue(fused->comms[rank], &request, NULL, &route);
  if (result == arfusionSuccess) result = plugin->enqueue(fused->comms[rank], &flat, NULL, &route);
  /* Where the sum stands: by itself, in normOut, in residualOut. */
  for (int place = 0; place < 3 && result == arfusionSuccess; ++place) {
    void* const places[] = {tensor[SUM], tensor[OTHER_NORM_OUT], tensor[OTHER_RESIDUAL_OUT]};
    memset(tensor[OTHER_RESIDUAL_OUT], 0x77, BYTES);
    memset(tensor[OTHER_NORM_OUT], 0x77, BYTES);
    if (place) memcpy(places[place], tensor[SUM], BYTES);
    request.input = places[place];
    request.residualOut = tensor[OTHER_RESIDUAL_OUT];
    request.normOut = tensor[OTHER_NORM_OUT];
    result = plugin->epilogue(fused->comms[rank], &request, NULL);
    const size_t bytes = (size_t)TOKENS * HIDDEN * (fused->dtype == arfusionFloat32 ? 4 : 2);
    outcome->value[place] = !memcmp(tensor[OTHER_RESIDUAL_OUT], tensor[RESIDUAL_OUT], bytes) &&
                            !memcmp(tensor[OTHER_NORM_OUT], tensor[NORM_OUT], bytes);
  }
  free(memory);
  return result;
}

static void the_epilogue_alone_is_the_fused_operations(void** state) {
  (void)state;
  static const struct fused forms[] = {{NULL, arfusionFloat32, arfusionFloat32, 0},
                                       {NULL, arfusionFloat32, arfusionFloat32, 1},
                                       {NULL, arfusionBfloat16, arfusionBfloat16, 0},
                                       {NULL, arfusionBfloat16, arfusionFloat32, 1}};
  void* comms[NRANKS];
  comms_make(ctx, NULL, comms);
  for (size_t i = 0; i < sizeof forms / sizeof forms[0]; ++i) {
    struct support_outcome outcomes[NRANKS];
    struct fused fused = forms[i];
    fused.comms = comms;
    support_threads(NRANKS, fused_and_apart, &fused, outcomes);
    for (int r = 0; r < NRANKS; ++r) {
      assert_int_equal(outcomes[r].result, arfusionSuccess);
      for (int place = 0; place < 3; ++place) assert_int_equal(outcomes[r].value[place], 1);
    }
  }
  comms_end(comms);
}

static void the_epilogue_needs_no_other_rank(void** state) {
  (void)state;
  void* comm;
  struct support_tensors tensors;
  arfusionRequest_t request = support_request(&tensors, 0);
  assert_int_equal(plugin->commInitAll(ctx, 1, NULL, NULL, &comm), arfusionSuccess);
  assert_int_equal(plugin->epilogue(comm, &request, NULL), arfusionSuccess);
  assert_true(support_outputs_right(&tensors, 1));
  plugin->commFinalize(comm);
}

/* ---------------------------------------------------------------- where workspaces are */

static void all_ranks_map_the_same_workspaces(void** state) {
  (void)state;
  void *comms[NRANKS], *alone;
  arfusionWorkspace_t views[NRANKS];
  comms_make(ctx, NULL, comms);
  struct flat staged = {.comms = comms, .count = 1000, .hint = arfusionAlgoOneshotSync};
  flat_do(&staged);
  for (int r = 0; r < NRANKS; ++r) {
    views[r] = (arfusionWorkspace_t){.size = sizeof views[r]};
    assert_int_equal(plugin->commGetWorkspace(comms[r], &views[r]), arfusionSuccess);
    assert_int_equal(views[r].nranks, NRANKS);
    assert_int_equal(views[r].bytes, capacity_of(comms[r]).workspaceBytes);
    assert_true(views[r].flagsOffset < views[r].lamportOffset && views[r].lamportOffset < views[r].stageOffset &&
                views[r].stageOffset < views[r].bytes);
    for (int other = NRANKS; other < ARFUSION_MAX_RANKS; ++other) assert_null(views[r].address[other]);
  }
  for (int owner = 0; owner < NRANKS; ++owner) {
    const unsigned char *first = views[0].address[owner], *second = views[1].address[owner];
    assert_ptr_not_equal(first, second);
    assert_memory_equal(first, second, (size_t)views[0].bytes);
    assert_int_equal(first[views[0].lamportOffset + 3], 0x80); /* a word that says "not yet" */
  }
  assert_memory_not_equal((char*)views[0].address[0] + views[0].stageOffset,
                          (char*)views[0].address[1] + views[0].stageOffset,
                          (size_t)(views[0].bytes - views[0].stageOffset)); /* each rank's own input */
  comms_end(comms);

  assert_int_equal(plugin->commInitAll(ctx, 1, NULL, NULL, &alone), arfusionSuccess);
  assert_int_equal(plugin->commGetWorkspace(alone, &views[0]), arfusionSuccess);
  assert_int_equal(views[0].nranks, 0);
  assert_int_equal(views[0].bytes, 0);
  assert_null(views[0].address[0]);
  plugin->commFinalize(alone);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(capacity_is_what_was_asked_for_in_any_shape),
      cmocka_unit_test(the_default_is_16384_tokens_of_8192_bf16),
      cmocka_unit_test(large_requests_go_out_as_several_launches),
      cmocka_unit_test(the_capacity_is_that_of_the_algorithm_that_is_forced),
      cmocka_unit_test(a_hosts_default_counts_unless_the_user_has_set_it),
      cmocka_unit_test(absurd_sizes_are_routed_without_overflow),
      cmocka_unit_test(rows_may_be_4_gb_apart),
      cmocka_unit_test(counters_are_exact),
      cmocka_unit_test(without_tokens_there_is_nothing_to_do),
      cmocka_unit_test(the_epilogue_alone_is_the_fused_operations),
      cmocka_unit_test(the_epilogue_needs_no_other_rank),
      cmocka_unit_test(all_ranks_map_the_same_workspaces),
  };
  return cmocka_run_group_tests_name("abi_use", tests, set_up, tear_down);
}
