/* SPDX-License-Identifier: Apache-2.0
 *
 * test_abi_bad_input.c: requests that are wrong, that are turned down, and that look wrong but are allowed, on two
 * ranks of the host device. After each one nothing has been written and the communicator still works. What is wrong
 * with a communicator's making is in test_abi_bad_init.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "test/unit/support.h"

static const arfusionPlugin_v1_t* const plugin = &arfusionPlugin_v1;

enum { NRANKS = 2, TOKENS = 3, HIDDEN = 64, ROW = HIDDEN * 4, MAX_SETS = 5 };

/* Where tensors are in each rank's arena, in bytes. */
enum {
  INPUT = 0,
  RESIDUAL_IN = 8192,
  GAMMA = 16384,
  RESIDUAL_OUT = 24576,
  NORM_OUT = 32768,
  OTHER = 40960,
  SCALE = 49152,
  SCALES = 53248,
  ARENA = 65536
};
enum { NOWHERE = -1 };

static _Alignas(64) unsigned char arenas[NRANKS][ARENA];
static void* ctx;
static void* comms[NRANKS];

/* A field of the request that a case sets; a pointer's value is a place in the arena. */
struct set {
  size_t offset, bytes;
  int is_pointer;
  int64_t value;
};
#define FIELD(field) offsetof(arfusionRequest_t, field), sizeof(((arfusionRequest_t*)NULL)->field)
#define I(field, value) {FIELD(field), 0, (int64_t)(value)}
#define P(field, place) {FIELD(field), 1, (int64_t)(place)}
#define QUANT(kind) I(quantization, arfusionQuant##kind)

enum base { ROWS, FLAT };

static arfusionRequest_t request_make(enum base base, const struct set* sets, unsigned char* arena) {
  arfusionRequest_t request = {.size = sizeof request,
                               .dataType = arfusionFloat32,
                               .gammaDataType = arfusionFloat32,
                               .tokens = TOKENS,
                               .hidden = HIDDEN,
                               .eps = SUPPORT_EPS,
                               .input = arena + INPUT};
  if (base == ROWS) {
    request.pattern = arfusionPatternResidualRmsNorm;
    request.residualIn = arena + RESIDUAL_IN;
    request.gamma = arena + GAMMA;
    request.residualOut = arena + RESIDUAL_OUT;
    request.normOut = arena + NORM_OUT;
  } else {
    request.pattern = arfusionPatternAllReduce;
    request.allreduceOut = arena + OTHER;
  }
  for (int s = 0; s < MAX_SETS && sets[s].bytes; ++s) {
    unsigned char* place = (unsigned char*)&request + sets[s].offset;
    if (sets[s].is_pointer) {
      const void* pointer = sets[s].value == NOWHERE ? NULL : arena + sets[s].value;
      memcpy(place, &pointer, sizeof pointer);
    } else {
      memcpy(place, &sets[s].value, sets[s].bytes); /* little-endian */
    }
  }
  return request;
}

static int set_up(void** state) {
  (void)state;
  const arfusionConfig_t config = {.size = sizeof config, .maxTokens = 8, .hidden = 128, .dataType = arfusionFloat32};
  support_setting("ARFUSION_DEVICE", "host");
  support_setting("ARFUSION_TIMEOUT", "2"); /* a wrong request that is taken waits for the other rank */
  ctx = support_context();
  return !ctx || plugin->commInitAll(ctx, NRANKS, NULL, &config, comms) != arfusionSuccess;
}

static int tear_down(void** state) {
  (void)state;
  for (int r = 0; r < NRANKS; ++r) plugin->commFinalize(comms[r]);
  return plugin->finalize(ctx) != arfusionSuccess;
}

static arfusionStats_t stats_now(void) {
  arfusionStats_t stats = {.size = sizeof stats};
  assert_int_equal(plugin->commGetStats(comms[0], &stats), arfusionSuccess);
  return stats;
}

/* ---------------------------------------------------------------- errors */

struct wrong {
  enum base base;
  struct set sets[MAX_SETS];
  const char* words;
};

/* The agreed fields alone: route sees these too. */
static const struct wrong wrong_agreed[] = {
    {ROWS, {I(pattern, 2)}, "request.pattern is 2|0 to 1"},
    {ROWS, {I(pattern, -1)}, "request.pattern is -1"},
    {ROWS, {I(operation, -1)}, "request.operation is -1"},
    {ROWS, {I(dataType, -1)}, "request.dataType is -1|0 to 11"},
    {ROWS, {I(dataType, 12)}, "request.dataType is 12|0 to 11"},
    {FLAT, {I(dataType, 99)}, "request.dataType is 99|0 to 11"},
    {ROWS, {I(gammaDataType, -7)}, "request.gammaDataType is -7|0 to 11"},
    {ROWS, {I(gammaDataType, 12)}, "request.gammaDataType is 12|0 to 11"},
    {ROWS, {I(quantization, 5)}, "request.quantization is 5|0 to 4"},
    {ROWS, {I(quantization, -1)}, "request.quantization is -1|0 to 4"},
    {FLAT, {I(quantization, arfusionQuantFp8)}, "request.quantization is 1|allreduce"},
    {ROWS, {I(scaleLayout, 2)}, "request.scaleLayout is 2|0 to 1"},
    {ROWS, {I(scaleLayout, -1)}, "request.scaleLayout is -1|0 to 1"},
    {ROWS, {I(algorithmHint, arfusionAlgoNone)}, "request.algorithmHint is 1|3 to 5"},
    {ROWS, {I(algorithmHint, arfusionAlgoEmpty)}, "request.algorithmHint is 2|3 to 5"},
    {FLAT, {I(algorithmHint, 6)}, "request.algorithmHint is 6|3 to 5"},
    {ROWS, {I(algorithmHint, -1)}, "request.algorithmHint is -1|3 to 5"},
    {ROWS, {I(groupSize, -1)}, "request.groupSize is -1|at least 0"},
    {ROWS, {I(tokens, -1)}, "request.tokens is -1|at least 0"},
    {FLAT, {I(tokens, INT64_MIN)}, "request.tokens is -9223372036854775808|at least 0"},
    {ROWS, {I(hidden, 0)}, "request.hidden is 0|at least 1"},
    {FLAT, {I(hidden, 0)}, "request.hidden is 0|at least 1"},
    {ROWS, {I(hidden, -16)}, "request.hidden is -16|at least 1"},
    {ROWS, {I(hidden, 0), I(tokens, 0)}, "request.hidden is 0|at least 1"},
    {ROWS, {I(tokens, INT64_MAX)}, "request.tokens x request.hidden|9223372036854775807 x 64"},
    {FLAT, {I(tokens, (int64_t)1 << 40), I(hidden, (int64_t)1 << 40)}, "request.tokens x request.hidden"},
    {ROWS, {I(flags, 4)}, "request.flags is 0x4|0x3"},
    {FLAT, {I(flags, 0x80000001)}, "request.flags is 0x80000001|0x3"},
    {ROWS, {I(reserved, 1)}, "request.reserved is 1|0"},
};

static const struct wrong wrong_local[] = {
    {ROWS, {P(input, NOWHERE)}, "request.input is NULL"},
    {ROWS, {P(gamma, NOWHERE)}, "request.gamma is NULL"},
    {ROWS, {P(residualOut, NOWHERE), P(normOut, NOWHERE)}, "request.residualOut|request.normOut|NULL"},
    {ROWS, {P(allreduceOut, OTHER)}, "request.allreduceOut is not NULL"},
    {ROWS, {P(quantOut, OTHER)}, "request.quantOut is not NULL|quantization"},
    {ROWS, {P(scaleOut, OTHER)}, "request.scaleOut is not NULL|quantization"},
    {ROWS, {P(input, INPUT + 1)}, "request.input is|not aligned|4 bytes"},
    {ROWS, {P(residualIn, RESIDUAL_IN + 2)}, "request.residualIn is|not aligned|4 bytes"},
    {ROWS, {P(gamma, GAMMA + 3)}, "request.gamma is|not aligned|4 bytes"},
    {ROWS, {P(residualOut, RESIDUAL_OUT + 1)}, "request.residualOut is|not aligned|4 bytes"},
    {ROWS, {P(normOut, NORM_OUT + 2)}, "request.normOut is|not aligned|4 bytes"},
    {ROWS, {I(inputStride, HIDDEN - 1)}, "request.inputStride is 63|hidden (64)"},
    {ROWS, {I(residualInStride, 1)}, "request.residualInStride is 1|hidden (64)"},
    {ROWS, {I(residualOutStride, -HIDDEN)}, "request.residualOutStride is -64|hidden (64)"},
    {ROWS, {I(normOutStride, HIDDEN - 1)}, "request.normOutStride is 63|hidden (64)"},
    {ROWS, {I(normOutStride, INT64_MAX)}, "request.normOutStride is 9223372036854775807|addressed"},
    /* overlaps */
    {ROWS, {P(normOut, RESIDUAL_OUT)}, "request.residualOut overlaps request.normOut"},
    {ROWS, {P(normOut, RESIDUAL_OUT + 2 * ROW + 4)}, "request.residualOut overlaps request.normOut"},
    {ROWS, {P(residualOut, NORM_OUT - 4)}, "request.residualOut overlaps request.normOut"},
    {ROWS, {P(residualOut, INPUT + ROW)}, "request.residualOut overlaps request.input"},
    {ROWS, {P(residualOut, INPUT), I(residualOutStride, HIDDEN + 4)}, "request.residualOut overlaps request.input"},
    {ROWS, {P(residualOut, INPUT), P(normOut, INPUT)}, "request.residualOut overlaps request.normOut"},
    {ROWS, {P(normOut, INPUT + 4)}, "request.normOut overlaps request.input"},
    {ROWS, {P(normOut, INPUT), I(normOutStride, HIDDEN + 4)}, "request.normOut overlaps request.input"},
    {ROWS, {P(residualOut, RESIDUAL_IN + 4)}, "request.residualOut overlaps request.residualIn"},
    {ROWS,
     {P(residualOut, RESIDUAL_IN), I(residualInStride, 2 * HIDDEN)},
     "request.residualOut overlaps request.residualIn"},
    {ROWS, {P(normOut, RESIDUAL_IN)}, "request.normOut overlaps request.residualIn"},
    {ROWS, {P(normOut, RESIDUAL_IN), P(residualOut, NOWHERE)}, "request.normOut overlaps request.residualIn"},
    {ROWS, {P(normOut, GAMMA)}, "request.normOut overlaps request.gamma"},
    {ROWS, {P(residualOut, GAMMA + ROW - 4)}, "request.residualOut overlaps request.gamma"},
    {ROWS,
     {I(residualOutStride, 2 * HIDDEN), I(normOutStride, 2 * HIDDEN), P(normOut, RESIDUAL_OUT + ROW - 4)},
     "request.residualOut overlaps request.normOut"},
    {ROWS,
     {I(residualOutStride, 2 * HIDDEN), I(normOutStride, 2 * HIDDEN), P(normOut, RESIDUAL_OUT + ROW + 4)},
     "request.residualOut overlaps request.normOut"},
    /* quantization */
    {ROWS, {QUANT(Fp8), P(fp8Scale, SCALE)}, "request.quantOut is NULL|quantization 1"},
    {ROWS, {QUANT(Fp8), P(quantOut, OTHER)}, "request.fp8Scale is NULL|quantization 1"},
    {ROWS, {QUANT(Fp8), P(quantOut, OTHER), P(nvfp4GlobalScale, SCALE)}, "request.fp8Scale is NULL"},
    {ROWS, {QUANT(Fp8), P(quantOut, OTHER), P(fp8Scale, SCALE + 2)}, "request.fp8Scale is|not aligned|4 bytes"},
    {ROWS,
     {QUANT(Fp8), P(quantOut, OTHER), P(fp8Scale, SCALE), P(scaleOut, SCALES)},
     "request.scaleOut is not NULL|fp8"},
    {ROWS, {QUANT(Fp8), P(quantOut, OTHER), P(fp8Scale, SCALE), P(gamma, NOWHERE)}, "request.gamma is NULL"},
    {ROWS,
     {QUANT(Fp8), P(quantOut, OTHER), P(fp8Scale, OTHER + TOKENS * HIDDEN - 4)},
     "request.quantOut overlaps request.fp8Scale"},
    {ROWS, {QUANT(Fp8), P(quantOut, INPUT), P(fp8Scale, SCALE)}, "request.quantOut overlaps request.input"},
    {ROWS, {QUANT(Fp8), P(quantOut, NORM_OUT + 1), P(fp8Scale, SCALE)}, "request.normOut overlaps request.quantOut"},
    {ROWS, {QUANT(Fp8Token), P(scaleOut, SCALES)}, "request.quantOut is NULL|quantization 2"},
    {ROWS, {QUANT(Fp8Token), P(quantOut, OTHER)}, "request.scaleOut is NULL|quantization 2"},
    {ROWS, {QUANT(Fp8Token), P(quantOut, OTHER), P(scaleOut, SCALES + 1)}, "request.scaleOut is|not aligned|4 bytes"},
    {ROWS,
     {QUANT(Fp8Token), P(quantOut, OTHER), P(scaleOut, OTHER + TOKENS * HIDDEN - 4)},
     "request.quantOut overlaps request.scaleOut"},
    {ROWS, {QUANT(Fp8Token), P(quantOut, OTHER), P(scaleOut, GAMMA)}, "request.scaleOut overlaps request.gamma"},
    {ROWS, {QUANT(Fp8Group), I(groupSize, 8), P(quantOut, OTHER)}, "request.scaleOut is NULL|quantization 3"},
    {ROWS, {QUANT(Fp8Group), I(groupSize, 8), P(scaleOut, OTHER)}, "request.quantOut is NULL|quantization 3"},
    {ROWS,
     {QUANT(Fp8Group), I(groupSize, 8), P(quantOut, OTHER + 24), P(scaleOut, OTHER)}, /* 7 words: the last byte */
     "request.quantOut overlaps request.scaleOut"},
    {ROWS,
     {QUANT(Nvfp4), I(dataType, arfusionBfloat16), P(quantOut, OTHER), P(scaleOut, SCALES)},
     "request.nvfp4GlobalScale is NULL|quantization 4"},
    {ROWS,
     {QUANT(Nvfp4), I(dataType, arfusionBfloat16), P(quantOut, OTHER), P(nvfp4GlobalScale, SCALE)},
     "request.scaleOut is NULL|quantization 4"},
    {ROWS,
     {QUANT(Nvfp4), I(dataType, arfusionBfloat16), P(scaleOut, SCALES), P(nvfp4GlobalScale, SCALE)},
     "request.quantOut is NULL|quantization 4"},
    {ROWS,
     {QUANT(Nvfp4), I(dataType, arfusionBfloat16), P(quantOut, OTHER), P(scaleOut, SCALES),
      P(nvfp4GlobalScale, SCALE + 1)},
     "request.nvfp4GlobalScale is|not aligned|4 bytes"},
    {ROWS,
     {QUANT(Nvfp4), I(dataType, arfusionBfloat16), P(quantOut, OTHER), P(scaleOut, OTHER + TOKENS * HIDDEN / 2 - 1),
      P(nvfp4GlobalScale, SCALE)},
     "request.quantOut overlaps request.scaleOut"},
    /* pattern allreduce */
    {FLAT, {P(input, NOWHERE)}, "request.input is NULL"},
    {FLAT, {P(allreduceOut, NOWHERE)}, "request.allreduceOut is NULL"},
    {FLAT, {P(residualOut, RESIDUAL_OUT)}, "request.residualOut is not NULL"},
    {FLAT, {P(normOut, NORM_OUT)}, "request.normOut is not NULL"},
    {FLAT, {P(quantOut, NORM_OUT)}, "request.quantOut is not NULL"},
    {FLAT, {P(scaleOut, NORM_OUT)}, "request.scaleOut is not NULL"},
    {FLAT, {I(inputStride, HIDDEN)}, "request.inputStride|0"},
    {FLAT, {I(normOutStride, 1)}, "request.inputStride|0"},
    {FLAT, {P(input, INPUT + 2)}, "request.input is|not aligned|4 bytes"},
    {FLAT, {P(allreduceOut, OTHER + 1)}, "request.allreduceOut is|not aligned|4 bytes"},
    {FLAT, {P(allreduceOut, INPUT + 4)}, "request.allreduceOut overlaps request.input"},
    {FLAT, {P(allreduceOut, INPUT + 3 * ROW - 4)}, "request.allreduceOut overlaps request.input"},
    /* What others would have to do is looked at as well. */
    {FLAT, {I(operation, arfusionMax), P(allreduceOut, INPUT + 4)}, "request.allreduceOut overlaps request.input"},
    {FLAT, {I(dataType, arfusionFloat64), P(input, INPUT + 4)}, "request.input is|not aligned|8 bytes"},
    {FLAT,
     {I(dataType, arfusionFloat64), P(allreduceOut, INPUT + 2 * TOKENS * ROW - 8)},
     "request.allreduceOut overlaps"},
    {FLAT, {I(dataType, arfusionInt8), P(normOut, NORM_OUT)}, "request.normOut is not NULL"},
};

static void check_wrong(const struct wrong* wrong, int agreed) {
  static unsigned char before[ARENA];
  arfusionRoute_t route = {.size = sizeof route, .value = 77, .limit = 78};
  const arfusionStats_t stats = stats_now();
  memset(arenas[0], 0x5a, ARENA);
  memcpy(before, arenas[0], ARENA);
  const arfusionRequest_t request = request_make(wrong->base, wrong->sets, arenas[0]);

  assert_int_equal(plugin->enqueue(comms[0], &request, NULL, &route), arfusionInvalidArgument);
  assert_true(support_text_has(plugin->getLastError(), wrong->words));
  assert_int_equal(plugin->enqueue(comms[0], &request, NULL, NULL), arfusionInvalidArgument);
  assert_int_equal(stats_now().errors, stats.errors + 2);
  assert_int_equal(stats_now().requests, stats.requests);
  if (agreed) {
    assert_int_equal(plugin->route(comms[0], &request, &route), arfusionInvalidArgument);
    assert_true(support_text_has(plugin->getLastError(), wrong->words));
  } else {
    assert_int_equal(plugin->route(comms[0], &request, &(arfusionRoute_t){.size = sizeof route}), arfusionSuccess);
  }
  if (wrong->base == ROWS) {
    assert_int_equal(plugin->epilogue(comms[0], &request, NULL), arfusionInvalidArgument);
    assert_true(support_text_has(plugin->getLastError(), wrong->words));
  }
  assert_true(route.value == 77 && route.limit == 78);
  assert_memory_equal(before, arenas[0], ARENA);
  assert_true(support_operation_all(comms, NRANKS));
}

static void wrong_agreed_fields_are_errors_that_name_them(void** state) {
  (void)state;
  for (size_t i = 0; i < sizeof wrong_agreed / sizeof wrong_agreed[0]; ++i) check_wrong(&wrong_agreed[i], 1);
}

static void wrong_local_fields_are_errors_that_name_them(void** state) {
  (void)state;
  for (size_t i = 0; i < sizeof wrong_local / sizeof wrong_local[0]; ++i) check_wrong(&wrong_local[i], 0);
}

#define IS_ERROR(call, words)                                    \
  assert_int_equal(plugin->call, arfusionInvalidArgument);       \
  assert_true(support_text_has(plugin->getLastError(), words))

static void null_arguments_of_a_context_are_errors_that_name_them(void** state) {
  (void)state;
  arfusionBootstrap_t bootstrap = {.size = sizeof bootstrap, .nranks = 1};
  arfusionProperties_t properties = {.size = sizeof properties};
  arfusionUniqueId_t id;
  void* comm = NULL;
  int ndev;
  plugin->getUniqueId(ctx, &id);
  IS_ERROR(init(NULL, support_logger), "ctx is NULL");
  IS_ERROR(devices(NULL, &ndev), "ctx is NULL");
  IS_ERROR(devices(ctx, NULL), "ndev is NULL");
  IS_ERROR(getProperties(NULL, 0, &properties), "ctx is NULL");
  IS_ERROR(getProperties(ctx, 0, NULL), "props is NULL");
  IS_ERROR(getProperties(ctx, 1, &properties), "dev is 1|0 to 0");
  IS_ERROR(getProperties(ctx, -1, &properties), "dev is -1|0 to 0");
  IS_ERROR(getUniqueId(NULL, &id), "ctx is NULL");
  IS_ERROR(getUniqueId(ctx, NULL), "id is NULL");
  IS_ERROR(bootstrapAbort(NULL, &bootstrap), "ctx is NULL");
  IS_ERROR(bootstrapAbort(ctx, NULL), "bootstrap is NULL");
  IS_ERROR(bootstrapUniqueId(NULL, &id, 1, 0, &bootstrap), "ctx is NULL");
  IS_ERROR(bootstrapUniqueId(ctx, NULL, 1, 0, &bootstrap), "id is NULL");
  IS_ERROR(bootstrapUniqueId(ctx, &id, 1, 0, NULL), "bootstrap is NULL");
  IS_ERROR(bootstrapEnvironment(NULL, &bootstrap, NULL), "ctx is NULL");
  IS_ERROR(bootstrapEnvironment(ctx, NULL, NULL), "bootstrap is NULL");
  IS_ERROR(bootstrapDestroy(NULL, &bootstrap), "ctx is NULL");
  IS_ERROR(bootstrapDestroy(ctx, NULL), "bootstrap is NULL");
  IS_ERROR(commInit(NULL, 0, NULL, &bootstrap, &comm), "ctx is NULL");
  IS_ERROR(commInit(ctx, 0, NULL, NULL, &comm), "bootstrap is NULL");
  IS_ERROR(commInit(ctx, 0, NULL, &bootstrap, NULL), "comm is NULL");
  IS_ERROR(commInitAll(NULL, 1, NULL, NULL, &comm), "ctx is NULL");
  IS_ERROR(commInitAll(ctx, 1, NULL, NULL, NULL), "comms is NULL");
  IS_ERROR(finalize(NULL), "ctx is NULL");
  assert_null(comm);
  assert_null(plugin->regBuffer);
  assert_null(plugin->deregBuffer);
}

static void null_arguments_of_a_communicator_are_errors_that_name_them(void** state) {
  (void)state;
  arfusionRoute_t route = {.size = sizeof route};
  arfusionRequest_t request = {.size = sizeof request, .hidden = 64};
  arfusionResult_t result;
  IS_ERROR(route(NULL, &request, &route), "comm is NULL");
  IS_ERROR(route(comms[0], NULL, &route), "request is NULL");
  IS_ERROR(route(comms[0], &request, NULL), "route is NULL");
  IS_ERROR(enqueue(NULL, &request, NULL, &route), "comm is NULL");
  IS_ERROR(enqueue(comms[0], NULL, NULL, &route), "request is NULL");
  IS_ERROR(epilogue(NULL, &request, NULL), "comm is NULL");
  IS_ERROR(epilogue(comms[0], NULL, NULL), "request is NULL");
  IS_ERROR(commFinalize(NULL), "comm is NULL");
  IS_ERROR(commAbort(NULL), "comm is NULL");
  IS_ERROR(commGetAsyncError(NULL, &result, NULL, 0), "comm is NULL");
  IS_ERROR(commGetAsyncError(comms[0], NULL, NULL, 0), "result is NULL");
  IS_ERROR(commGetCapacity(NULL, &(arfusionCapacity_t){.size = sizeof(arfusionCapacity_t)}), "comm is NULL");
  IS_ERROR(commGetCapacity(comms[0], NULL), "capacity is NULL");
  IS_ERROR(commGetStats(NULL, &(arfusionStats_t){.size = sizeof(arfusionStats_t)}), "comm is NULL");
  IS_ERROR(commGetStats(comms[0], NULL), "stats is NULL");
  IS_ERROR(commGetWorkspace(NULL, &(arfusionWorkspace_t){.size = sizeof(arfusionWorkspace_t)}), "comm is NULL");
  IS_ERROR(commGetWorkspace(comms[0], NULL), "workspace is NULL");
  assert_int_equal(plugin->commGetAsyncError(comms[0], &result, NULL, 0), arfusionSuccess);
  assert_int_equal(result, arfusionSuccess);
  assert_true(support_operation_all(comms, NRANKS));
}
#undef IS_ERROR

/* ---------------------------------------------------------------- turned down */

static const struct turned_down {
  enum base base;
  struct set sets[MAX_SETS];
  arfusionReason_t reason;
  int64_t value, limit;
} turned_down[] = {
    {ROWS, {I(dataType, arfusionInt8)}, arfusionReasonDataType, 0, 0},
    {ROWS, {I(dataType, arfusionFloat64)}, arfusionReasonDataType, 8, 0},
    {FLAT, {I(dataType, arfusionFloat8e4m3)}, arfusionReasonDataType, 10, 0},
    {FLAT, {I(dataType, arfusionFloat8e5m2)}, arfusionReasonDataType, 11, 0},
    {FLAT, {I(dataType, arfusionUint64)}, arfusionReasonDataType, 5, 0},
    {ROWS, {I(operation, arfusionProd)}, arfusionReasonOperation, 1, 0},
    {FLAT, {I(operation, arfusionMax)}, arfusionReasonOperation, 2, 0},
    {FLAT, {I(operation, arfusionMin)}, arfusionReasonOperation, 3, 0},
    {FLAT, {I(operation, arfusionAvg)}, arfusionReasonOperation, 4, 0},
    {FLAT, {I(operation, 1000)}, arfusionReasonOperation, 1000, 0}, /* NCCL's own operations go on without an end */
    {ROWS, {I(gammaDataType, arfusionBfloat16)}, arfusionReasonGammaDataType, 9, 7},
    {ROWS, {I(gammaDataType, arfusionInt32)}, arfusionReasonGammaDataType, 2, 7},
    {ROWS, {I(hidden, 3)}, arfusionReasonHiddenAlignment, 12, 16},
    {ROWS, {I(hidden, 66)}, arfusionReasonHiddenAlignment, 264, 16},
    {ROWS,
     {I(hidden, ARFUSION_MAX_HIDDEN + 4)},
     arfusionReasonHiddenTooLarge,
     ARFUSION_MAX_HIDDEN + 4,
     ARFUSION_MAX_HIDDEN},
    {ROWS, {I(tokens, 17)}, arfusionReasonWorkspace, 17 * ROW, 16 * ROW},
    {ROWS, {I(tokens, 1), I(hidden, 1028)}, arfusionReasonWorkspace, 4112, 4096},
    {FLAT, {I(tokens, 1), I(hidden, 1025)}, arfusionReasonWorkspace, 4100, 4096},
    {ROWS, {I(algorithmHint, arfusionAlgoTwoshot), I(tokens, 17)}, arfusionReasonWorkspace, 17 * ROW, 16 * ROW},
    {ROWS, {I(quantization, arfusionQuantFp8Group), I(groupSize, 0)}, arfusionReasonGroupSize, 0, 64},
    {ROWS, {I(quantization, arfusionQuantFp8Group), I(groupSize, 12)}, arfusionReasonGroupSize, 12, 64},
    {ROWS, {I(quantization, arfusionQuantFp8Group), I(groupSize, 48)}, arfusionReasonGroupSize, 48, 64},
    {ROWS, {I(quantization, arfusionQuantNvfp4)}, arfusionReasonQuantDataType, 4, 7},
    {ROWS,
     {I(quantization, arfusionQuantNvfp4), I(dataType, arfusionBfloat16), I(hidden, 8)},
     arfusionReasonHiddenAlignment,
     8,
     16},
};

static void check_turned_down(const struct turned_down* turned) {
  static unsigned char before[ARENA];
  arfusionRoute_t route = {.size = sizeof route}, asked = {.size = sizeof asked};
  const arfusionStats_t stats = stats_now();
  memset(arenas[0], 0x5a, ARENA);
  memcpy(before, arenas[0], ARENA);
  const arfusionRequest_t request = request_make(turned->base, turned->sets, arenas[0]);

  assert_int_equal(plugin->route(comms[0], &request, &asked), arfusionSuccess);
  assert_int_equal(plugin->enqueue(comms[0], &request, NULL, &route), arfusionSuccess);
  assert_int_equal(route.algorithm, arfusionAlgoNone);
  assert_int_equal(route.reason, turned->reason);
  assert_int_equal(route.value, turned->value);
  assert_int_equal(route.limit, turned->limit);
  assert_int_equal(route.launches, 0);
  assert_memory_equal(&asked, &route, sizeof route);
  arfusionStats_t now = stats_now();
  assert_int_equal(now.requests, stats.requests + 1);
  assert_int_equal(now.byAlgorithm[arfusionAlgoNone], stats.byAlgorithm[arfusionAlgoNone] + 1);
  assert_int_equal(now.byReason[turned->reason], stats.byReason[turned->reason] + 1);
  assert_int_equal(now.launches, stats.launches);
  assert_int_equal(now.bytes, stats.bytes);

  assert_int_equal(plugin->enqueue(comms[0], &request, NULL, NULL), arfusionInvalidUsage);
  assert_true(support_text_has(plugin->getLastError(), "route is NULL"));
  assert_true(support_text_has(plugin->getLastError(), plugin->reasonString(turned->reason)));
  assert_int_equal(stats_now().errors, stats.errors + 1);
  assert_memory_equal(before, arenas[0], ARENA);
  assert_true(support_operation_all(comms, NRANKS));
}

static void what_is_turned_down_says_why_and_leaves_all_as_it_was(void** state) {
  (void)state;
  for (size_t i = 0; i < sizeof turned_down / sizeof turned_down[0]; ++i) check_turned_down(&turned_down[i]);
}

/* Nobody could do these after the sum, so here they are errors. */
static void the_epilogue_refuses_what_it_cannot_do(void** state) {
  (void)state;
  for (size_t i = 0; i < sizeof turned_down / sizeof turned_down[0]; ++i) {
    arfusionRequest_t request = request_make(turned_down[i].base, turned_down[i].sets, arenas[0]);
    if (turned_down[i].base == FLAT || turned_down[i].reason == arfusionReasonWorkspace) continue; /* it needs none */
    for (int tokens = 0; tokens < 2; ++tokens) {
      request.tokens = tokens;
      assert_int_equal(plugin->epilogue(comms[0], &request, NULL), arfusionInvalidArgument);
      assert_true(support_text_has(plugin->getLastError(), plugin->reasonString(turned_down[i].reason)));
    }
  }
  const arfusionRequest_t flat = request_make(FLAT, (struct set[MAX_SETS]){I(flags, 0)}, arenas[0]);
  assert_int_equal(plugin->epilogue(comms[0], &flat, NULL), arfusionInvalidArgument);
  assert_true(support_text_has(plugin->getLastError(), "request.pattern is 0|residual_rmsnorm"));
  const arfusionRequest_t nothing = request_make(
      ROWS, (struct set[MAX_SETS]){I(tokens, 0), P(input, NOWHERE), P(normOut, NOWHERE), P(residualOut, NOWHERE)},
      NULL);
  assert_int_equal(plugin->epilogue(comms[0], &nothing, NULL), arfusionSuccess);
}

/* ---------------------------------------------------------------- allowed */

static const struct allowed {
  enum base base;
  struct set sets[MAX_SETS];
} allowed[] = {
    {ROWS, {P(normOut, INPUT)}},
    {ROWS, {P(residualOut, RESIDUAL_IN)}},
    {ROWS, {P(normOut, INPUT), P(residualOut, RESIDUAL_IN)}},
    {ROWS, {P(normOut, INPUT), I(inputStride, 80), I(normOutStride, 80)}},
    /* strides of one row say nothing */
    {ROWS, {P(normOut, INPUT), I(inputStride, 80), I(normOutStride, 96), I(tokens, 1)}},
    {ROWS, {P(normOut, NOWHERE)}},
    {ROWS, {P(normOut, NOWHERE), P(gamma, NOWHERE)}},
    {ROWS, {P(residualOut, NOWHERE)}},
    {ROWS, {P(residualIn, NOWHERE)}},
    {ROWS, {P(normOut, RESIDUAL_OUT + TOKENS * ROW)}}, /* one right behind the other */
    {ROWS, {I(inputStride, 65), I(residualInStride, 68), I(residualOutStride, 77), I(normOutStride, 128)}},
    {ROWS, {I(residualOutStride, 2 * HIDDEN), I(normOutStride, 2 * HIDDEN), P(normOut, RESIDUAL_OUT + ROW)}},
    {ROWS, {I(residualOutStride, 2 * HIDDEN), I(normOutStride, 2 * HIDDEN), P(normOut, RESIDUAL_OUT - ROW)}},
    {ROWS, {I(inputStride, 2 * HIDDEN), I(normOutStride, 2 * HIDDEN), P(normOut, INPUT + ROW)}},
    {ROWS, {P(input, INPUT + 4), P(residualOut, RESIDUAL_OUT + 12)}},
    {ROWS, {P(residualIn, RESIDUAL_IN + 4), P(gamma, GAMMA + 8), P(normOut, NORM_OUT + 4)}},
    {ROWS, {I(flags, 3)}},
    {ROWS, {I(tokens, 8), I(hidden, 128)}},
    {ROWS, {I(tokens, 1), I(hidden, 1024)}},
    {ROWS, {I(tokens, 256), I(hidden, 4)}},
    {ROWS, {I(groupSize, 7), I(scaleLayout, 1)}}, /* of a quantization that is not asked for */
    {ROWS, {QUANT(Fp8), P(quantOut, OTHER + 1), P(fp8Scale, SCALE)}},
    {ROWS, {QUANT(Fp8), P(quantOut, OTHER), P(fp8Scale, SCALE), P(nvfp4GlobalScale, SCALE + 1), I(groupSize, 7)}},
    {ROWS, {QUANT(Fp8Token), P(quantOut, OTHER), P(scaleOut, OTHER + TOKENS * HIDDEN)}},
    {ROWS, {QUANT(Fp8Token), P(quantOut, OTHER), P(scaleOut, SCALES), P(residualOut, NOWHERE), P(normOut, NOWHERE)}},
    {ROWS, {QUANT(Fp8Group), I(groupSize, 8), P(quantOut, OTHER + 3), P(scaleOut, SCALES + 4), P(normOut, NOWHERE)}},
    {ROWS, {QUANT(Fp8Group), I(groupSize, 64), P(quantOut, OTHER), P(scaleOut, SCALES), P(residualOut, NOWHERE)}},
    {ROWS, {I(algorithmHint, arfusionAlgoOneshotLamport)}},
    {ROWS, {I(algorithmHint, arfusionAlgoOneshotSync)}},
    {ROWS, {I(algorithmHint, arfusionAlgoTwoshot)}},
    {FLAT, {P(allreduceOut, INPUT)}},
    {FLAT, {P(allreduceOut, INPUT + TOKENS * ROW)}},
    {FLAT, {I(tokens, 1), I(hidden, 1)}},
    {FLAT, {I(tokens, 1), I(hidden, 37), P(input, INPUT + 4)}},
    {FLAT, {I(tokens, 37), I(hidden, 3), P(allreduceOut, OTHER + 12)}},
    {FLAT, {I(tokens, 1024), I(hidden, 1)}},
    {FLAT, {I(algorithmHint, arfusionAlgoOneshotLamport)}},
    {FLAT, {I(algorithmHint, arfusionAlgoOneshotSync)}},
    {FLAT, {I(algorithmHint, arfusionAlgoTwoshot)}},
    {FLAT, {I(gammaDataType, arfusionInt8), P(gamma, GAMMA + 1)}}, /* ignored */
};

enum { MOST_ELEMENTS = 1024 };

static void rows_put(void* to, int64_t stride, const float* from, int64_t tokens, int64_t hidden) {
  for (int64_t t = 0; t < tokens; ++t)
    memcpy((float*)to + t * (stride ? stride : hidden), from + t * hidden, (size_t)hidden * 4);
}

static int rows_are(const void* rows, int64_t stride, const float* expected, const arfusionRequest_t* request) {
  for (int64_t t = 0; t < request->tokens; ++t) {
    const float* row = (const float*)rows + t * (stride ? stride : request->hidden);
    if (support_distance(row, expected + t * request->hidden, request->hidden) > 1e-5) return 0;
  }
  return 1;
}

/* The arena as it must be afterwards but for the outputs, whose bytes are taken from what there is. */
static void outputs_copy(const arfusionRequest_t* request, const unsigned char* arena, unsigned char* expected) {
  const void* const outputs[] = {request->residualOut, request->normOut, request->allreduceOut};
  const int64_t strides[] = {request->residualOutStride, request->normOutStride, 0};
  for (int i = 0; i < 3; ++i) {
    if (!outputs[i]) continue;
    const size_t at = (size_t)((const unsigned char*)outputs[i] - arena), row = (size_t)request->hidden * 4;
    const size_t stride = strides[i] ? (size_t)strides[i] * 4 : row;
    for (size_t t = 0; t < (size_t)request->tokens; ++t)
      memcpy(expected + at + t * stride, arena + at + t * stride, row);
  }
  const void* const quantized[] = {request->quantOut, request->scaleOut};
  const int64_t bytes[] = {arfusionQuantOutBytes(request), arfusionScaleOutBytes(request)};
  for (int i = 0; i < 2; ++i) {
    if (!quantized[i]) continue;
    const size_t at = (size_t)((const unsigned char*)quantized[i] - arena);
    memcpy(expected + at, arena + at, (size_t)bytes[i]);
  }
}

static arfusionResult_t allowed_run(int rank, void* argument, struct support_outcome* outcome) {
  const struct allowed* form = argument;
  float values[MOST_ELEMENTS], residual_out[MOST_ELEMENTS], norm_out[MOST_ELEMENTS];
  unsigned char expected[ARENA];
  unsigned char* arena = arenas[rank];
  memset(arena, 0x5a, ARENA);
  const arfusionRequest_t request = request_make(form->base, form->sets, arena);
  const int64_t tokens = request.tokens, hidden = request.hidden;
  for (int64_t i = 0; i < tokens * hidden; ++i) values[i] = support_residual(i);
  if (request.residualIn)
    rows_put((void*)(uintptr_t)request.residualIn, request.residualInStride, values, tokens, hidden);
  for (int64_t i = 0; i < tokens * hidden; ++i) values[i] = support_input(rank, i);
  rows_put((void*)(uintptr_t)request.input, request.inputStride, values, tokens, hidden);
  for (int64_t c = 0; c < hidden; ++c) values[c] = support_gamma(c);
  if (form->base == ROWS && request.gamma) rows_put((void*)(uintptr_t)request.gamma, 0, values, 1, hidden);
  memcpy(expected, arena, ARENA);

  arfusionRoute_t route = {.size = sizeof route};
  const arfusionResult_t result = plugin->enqueue(comms[rank], &request, NULL, &route);
  if (result != arfusionSuccess) return result;
  const int hinted = !request.algorithmHint || route.algorithm == request.algorithmHint;
  outcome->value[0] = hinted && route.algorithm >= arfusionAlgoOneshotLamport && route.reason == arfusionReasonNone;

  support_reference(NRANKS, request.residualIn != NULL, tokens, hidden, residual_out, norm_out);
  outcome->value[1] =
      (!request.residualOut || rows_are(request.residualOut, request.residualOutStride, residual_out, &request)) &&
      (!request.normOut || rows_are(request.normOut, request.normOutStride, norm_out, &request)) &&
      (!request.allreduceOut || rows_are(request.allreduceOut, 0, residual_out, &request));
  outputs_copy(&request, arena, expected);
  outcome->value[2] = !memcmp(expected, arena, ARENA);
  return arfusionSuccess;
}

static void what_is_allowed_is_done_and_nothing_else_is_touched(void** state) {
  (void)state;
  struct support_outcome outcomes[NRANKS];
  for (size_t i = 0; i < sizeof allowed / sizeof allowed[0]; ++i) {
    support_threads(NRANKS, allowed_run, (void*)(uintptr_t)&allowed[i], outcomes);
    for (int r = 0; r < NRANKS; ++r) {
      const struct support_outcome* rank = &outcomes[r];
      if (rank->result == arfusionSuccess && rank->value[0] && rank->value[1] && rank->value[2]) continue;
      fail_msg("allowed[%zu] on rank %d: result %d (%s), route %s, outputs %s, the rest %s", i, r, rank->result,
               rank->text, rank->value[0] ? "right" : "wrong", rank->value[1] ? "right" : "wrong",
               rank->value[2] ? "untouched" : "touched");
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(wrong_agreed_fields_are_errors_that_name_them),
      cmocka_unit_test(wrong_local_fields_are_errors_that_name_them),
      cmocka_unit_test(null_arguments_of_a_context_are_errors_that_name_them),
      cmocka_unit_test(null_arguments_of_a_communicator_are_errors_that_name_them),
      cmocka_unit_test(what_is_turned_down_says_why_and_leaves_all_as_it_was),
      cmocka_unit_test(the_epilogue_refuses_what_it_cannot_do),
      cmocka_unit_test(what_is_allowed_is_done_and_nothing_else_is_touched),
  };
  return cmocka_run_group_tests_name("abi_bad_input", tests, set_up, tear_down);
}
