/* SPDX-License-Identifier: Apache-2.0
 *
 * test_library_complete.c: what libarfusion does itself on the host device because the plugin turned it down, compared
 * with a plain sum in double. Each test runs in children, as the library is opened once a process.
 */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "arfusion.h"
#include "test/unit/library_ranks.h"

static const arfusionConfig_t small = {.size = sizeof small, .maxTokens = 4, .hidden = 64, .dataType = arfusionFloat32};

static int set_up(void** state) {
  (void)state;
  support_setting("ARFUSION_DEVICE", "host");
  support_setting("ARFUSION_DEBUG", "none");
  support_setting("ARFUSION_INIT_TIMEOUT", "10");
  support_use_plugin();
  return 0;
}

/* ---------------------------------------------------------------- elements of all types */

static const int element_bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
static const double tolerance[] = {0, 0, 0, 0, 0, 0, 0x1p-11, 0x1p-24, 0x1p-53, 0x1p-8};

static double half_value(uint16_t half) {
  const int exponent = half >> 10 & 31, mantissa = half & 1023;
  const double magnitude = exponent ? ldexp(1024 + mantissa, exponent - 25) : ldexp(mantissa, -24);
  return half & 0x8000 ? -magnitude : magnitude;
}

static uint16_t half_of(double value) { /* of whole numbers that it holds */
  for (uint32_t bits = 0; bits < 0x7c00; ++bits) {
    if (half_value((uint16_t)bits) == fabs(value)) return (uint16_t)(bits | (value < 0 ? 0x8000 : 0));
  }
  return 0x7fff;
}

static void store(arfusionDataType_t dtype, void* at, double value) {
  const float single = (float)value;
  uint32_t bits;
  memcpy(&bits, &single, sizeof bits);
  switch (dtype) {
    case arfusionInt8: *(int8_t*)at = (int8_t)value; break;
    case arfusionUint8: *(uint8_t*)at = (uint8_t)value; break;
    case arfusionInt32: *(int32_t*)at = (int32_t)value; break;
    case arfusionUint32: *(uint32_t*)at = (uint32_t)value; break;
    case arfusionInt64: *(int64_t*)at = (int64_t)value; break;
    case arfusionUint64: *(uint64_t*)at = (uint64_t)value; break;
    case arfusionFloat16: *(uint16_t*)at = half_of(value); break;
    case arfusionFloat32: *(float*)at = single; break;
    case arfusionFloat64: *(double*)at = value; break;
    case arfusionBfloat16: *(uint16_t*)at = (uint16_t)(bits >> 16); break;
    default: break;
  }
}

static double load(arfusionDataType_t dtype, const void* at) {
  uint32_t bits;
  float single;
  switch (dtype) {
    case arfusionInt8: return *(const int8_t*)at;
    case arfusionUint8: return *(const uint8_t*)at;
    case arfusionInt32: return *(const int32_t*)at;
    case arfusionUint32: return *(const uint32_t*)at;
    case arfusionInt64: return (double)*(const int64_t*)at;
    case arfusionUint64: return (double)*(const uint64_t*)at;
    case arfusionFloat16: return half_value(*(const uint16_t*)at);
    case arfusionFloat32: return *(const float*)at;
    case arfusionFloat64: return *(const double*)at;
    case arfusionBfloat16:
      bits = (uint32_t)*(const uint16_t*)at << 16;
      memcpy(&single, &bits, sizeof single);
      return single;
    default: return NAN;
  }
}

static int is_unsigned(arfusionDataType_t dtype) {
  return dtype == arfusionUint8 || dtype == arfusionUint32 || dtype == arfusionUint64;
}

static int is_whole(arfusionDataType_t dtype) { return dtype <= arfusionUint64; }

/* -2 to 3 (0 to 5 where nothing is negative): products of three ranks stay within 8 bits. */
static double value_of(arfusionDataType_t dtype, int rank, int64_t i) {
  const int64_t value = (i * 5 + rank * 7 + i / 11) % 6;
  return (double)(is_unsigned(dtype) ? value : value - 2);
}

static double expected_of(arfusionDataType_t dtype, arfusionRedOp_t operation, int nranks, int64_t i) {
  double total = value_of(dtype, 0, i);
  for (int r = 1; r < nranks; ++r) {
    const double value = value_of(dtype, r, i);
    total = operation == arfusionProd  ? total * value
            : operation == arfusionMax ? fmax(total, value)
            : operation == arfusionMin ? fmin(total, value)
                                       : total + value;
  }
  if (operation == arfusionAvg) total = is_whole(dtype) ? trunc(total / nranks) : total / nranks;
  return total;
}

/* ---------------------------------------------------------------- flat requests */

struct flat {
  int nranks;
  int64_t tokens, hidden;
  arfusionDataType_t dtype;
  arfusionRedOp_t operation;
  int in_place;
  arfusionReason_t reason;
};

static arfusionResult_t flat_run(arfusionComm_t comm, int rank, const struct flat* flat,
                                 struct support_outcome* outcome) {
  const int64_t count = flat->tokens * flat->hidden;
  const size_t size = (size_t)element_bytes[flat->dtype];
  unsigned char* input = malloc((size_t)count * size + 8);
  unsigned char* output = flat->in_place ? input : malloc((size_t)count * size + 8);
  for (int64_t i = 0; i < count; ++i) store(flat->dtype, input + (size_t)i * size, value_of(flat->dtype, rank, i));
  memset(output + (size_t)count * size, 0x5a, 8);
  const arfusionRequest_t request = {.size = sizeof request,
                                     .operation = flat->operation,
                                     .dataType = flat->dtype,
                                     .tokens = flat->tokens,
                                     .hidden = flat->hidden,
                                     .input = input,
                                     .allreduceOut = output};
  arfusionRoute_t route = {.size = sizeof route};
  const arfusionResult_t result = arfusionAllReduce(comm, &request, NULL, &route);
  int right = route.algorithm == arfusionAlgoNone && route.reason == flat->reason;
  for (int64_t i = 0; i < count && right && result == arfusionSuccess; ++i) {
    const double got = load(flat->dtype, output + (size_t)i * size);
    const double expected = expected_of(flat->dtype, flat->operation, flat->nranks, i);
    right = fabs(got - expected) <= fabs(expected) * tolerance[flat->dtype];
    if (!right) fprintf(stderr, "element %lld: %.17g instead of %.17g\n", (long long)i, got, expected);
  }
  for (int b = 0; b < 8; ++b) right &= output[(size_t)count * size + (size_t)b] == 0x5a;
  outcome->value[0] += right;
  outcome->value[1] += 1;
  if (!right) fprintf(stderr, "type %d, operation %d, reason %d\n", flat->dtype, flat->operation, route.reason);
  if (output != input) free(output);
  free(input);
  return result;
}

struct job {
  arfusionUniqueId_t id;
  int nranks;
  const char *name, *value; /* a setting; of several hosts each rank has its own */
  arfusionResult_t (*run)(arfusionComm_t comm, int rank, int nranks, struct support_outcome* outcome);
};

static arfusionResult_t job_rank(int rank, void* argument, struct support_outcome* outcome) {
  const struct job* job = argument;
  arfusionComm_t comm;
  if (job->name) support_setting(job->name, job->value);
  if (job->name && !job->value) support_setting(job->name, rank ? "right" : "left");
  arfusionResult_t result = arfusionCommInitRank(&comm, job->nranks, &job->id, rank, 0, &small);
  if (result != arfusionSuccess) return result;
  result = job->run(comm, rank, job->nranks, outcome);
  arfusionCommDestroy(comm);
  return result;
}

/* Runs it on ranks that are processes; all that was tried must be right. */
static void job_do(int nranks, const char* name, const char* value,
                   arfusionResult_t (*run)(arfusionComm_t comm, int rank, int nranks,
                                           struct support_outcome* outcome)) {
  struct support_outcome outcomes[SUPPORT_MAX_RANKS];
  struct job job = {.nranks = nranks, .name = name, .value = value, .run = run, .id = library_unique_id()};
  library_ranks_run(nranks, job_rank, &job, outcomes);
  for (int r = 0; r < nranks; ++r) {
    assert_true(outcomes[r].value[1] > 0);
    assert_int_equal(outcomes[r].value[0], outcomes[r].value[1]);
  }
}

static arfusionResult_t all_types(arfusionComm_t comm, int rank, int nranks, struct support_outcome* outcome) {
  for (int dtype = arfusionInt8; dtype <= arfusionBfloat16; ++dtype) {
    const int supported = dtype == arfusionFloat16 || dtype == arfusionFloat32 || dtype == arfusionBfloat16;
    for (int operation = arfusionSum; operation <= arfusionAvg; ++operation) {
      if (supported && operation == arfusionSum) continue; /* not turned down */
      const struct flat flat = {.nranks = nranks,
                                .tokens = 3,
                                .hidden = 111,
                                .dtype = (arfusionDataType_t)dtype,
                                .operation = (arfusionRedOp_t)operation,
                                .in_place = operation & 1,
                                .reason = operation ? arfusionReasonOperation : arfusionReasonDataType};
      const arfusionResult_t result = flat_run(comm, rank, &flat, outcome);
      if (result != arfusionSuccess) return result;
    }
  }
  return arfusionSuccess;
}

static void all_types_and_operations_are_completed(void** state) {
  (void)state;
  job_do(2, NULL, NULL, all_types);
  job_do(3, NULL, NULL, all_types);
}

static arfusionResult_t large(arfusionComm_t comm, int rank, int nranks, struct support_outcome* outcome) {
  for (int in_place = 0; in_place < 2; ++in_place) { /* not a multiple of what is gathered at once */
    const struct flat wide = {nranks, 1, 50001, arfusionFloat64, arfusionSum, in_place, arfusionReasonDataType};
    const struct flat many = {nranks, 7, 9001, arfusionFloat32, arfusionSum, in_place, arfusionReasonWorkspace};
    arfusionResult_t result = flat_run(comm, rank, &wide, outcome);
    if (result == arfusionSuccess) result = flat_run(comm, rank, &many, outcome);
    if (result != arfusionSuccess) return result;
  }
  return arfusionSuccess;
}

static void flat_requests_larger_than_a_piece_are_completed(void** state) {
  (void)state;
  job_do(3, NULL, NULL, large);
}

/* ---------------------------------------------------------------- rows */

enum { ROWS = 9, WIDTH = 132, STRIDE = 140 };

struct form {
  int64_t input_stride, residual_in_stride, residual_out_stride, norm_out_stride;
  int norm_in_place, residual_in_place, residual_in_input, no_residual, no_residual_out, no_norm_out;
};

static void rows_put(float* to, int64_t stride, const float* from) {
  for (int64_t t = 0; t < ROWS; ++t) memcpy(to + t * stride, from + t * WIDTH, WIDTH * sizeof *to);
}

/* The rows are right and what is between them is as it was (NaN, or what stood there before). */
static int rows_are(const float* rows, int64_t stride, const float* expected) {
  for (int64_t t = 0; t < ROWS; ++t) {
    if (support_distance(rows + t * stride, expected + t * WIDTH, WIDTH) > 1e-5) return 0;
    for (int64_t c = WIDTH; c < stride; ++c) {
      if (!isnan(rows[t * stride + c])) return 0;
    }
  }
  return 1;
}

static arfusionResult_t rows_form(arfusionComm_t comm, int rank, int nranks, const struct form* form,
                                  arfusionReason_t reason, struct support_outcome* outcome) {
  enum { TENSOR = ROWS * STRIDE };
  static float input[TENSOR], residual[TENSOR], residual_out[TENSOR], norm_out[TENSOR], gamma[WIDTH];
  static float values[ROWS * WIDTH], expected_y[ROWS * WIDTH], expected_n[ROWS * WIDTH];
  float* const tensors[] = {input, residual, residual_out, norm_out};
  for (int i = 0; i < 4; ++i) {
    for (int e = 0; e < TENSOR; ++e) tensors[i][e] = NAN;
  }
  for (int i = 0; i < ROWS * WIDTH; ++i) values[i] = support_input(rank, i);
  rows_put(input, form->input_stride ? form->input_stride : WIDTH, values);
  for (int i = 0; i < ROWS * WIDTH; ++i) values[i] = support_residual(i);
  rows_put(residual, form->residual_in_stride ? form->residual_in_stride : WIDTH, values);
  for (int c = 0; c < WIDTH; ++c) gamma[c] = support_gamma(c);
  const arfusionRequest_t request = {.size = sizeof request,
                                     .pattern = arfusionPatternResidualRmsNorm,
                                     .dataType = arfusionFloat32,
                                     .gammaDataType = arfusionFloat32,
                                     .tokens = ROWS,
                                     .hidden = WIDTH,
                                     .eps = SUPPORT_EPS,
                                     .inputStride = form->input_stride,
                                     .residualInStride = form->residual_in_stride,
                                     .residualOutStride = form->residual_out_stride,
                                     .normOutStride = form->norm_out_stride,
                                     .input = input,
                                     .residualIn = form->no_residual ? NULL : residual,
                                     .gamma = form->no_norm_out ? NULL : gamma,
                                     .residualOut = form->no_residual_out     ? NULL
                                                    : form->residual_in_place ? residual
                                                    : form->residual_in_input ? input
                                                                              : residual_out,
                                     .normOut = form->no_norm_out ? NULL : form->norm_in_place ? input : norm_out};
  arfusionRoute_t route = {.size = sizeof route};
  const arfusionResult_t result = arfusionAllReduce(comm, &request, NULL, &route);
  if (result != arfusionSuccess) return result;
  support_reference(nranks, !form->no_residual, ROWS, WIDTH, expected_y, expected_n);
  const int64_t y_stride = form->residual_out_stride ? form->residual_out_stride : WIDTH;
  const int64_t n_stride = form->norm_out_stride ? form->norm_out_stride : WIDTH;
  const int right = route.algorithm == arfusionAlgoNone && route.reason == reason &&
                    (!request.residualOut || rows_are(request.residualOut, y_stride, expected_y)) &&
                    (!request.normOut || rows_are(request.normOut, n_stride, expected_n));
  if (!right) fprintf(stderr, "form %d of rows is wrong (reason %d)\n", (int)outcome->value[1], route.reason);
  outcome->value[0] += right;
  outcome->value[1] += 1;
  return arfusionSuccess;
}

static arfusionResult_t rows_forms(arfusionComm_t comm, int rank, int nranks, arfusionReason_t reason,
                                   struct support_outcome* outcome) {
  static const struct form forms[] = {
      {0},
      {.input_stride = STRIDE},
      {.input_stride = 133, .residual_in_stride = 136, .residual_out_stride = 139, .norm_out_stride = STRIDE},
      {.norm_in_place = 1},
      {.norm_in_place = 1, .residual_in_place = 1},
      {.norm_in_place = 1, .input_stride = STRIDE, .norm_out_stride = STRIDE},
      {.residual_in_place = 1, .residual_in_stride = 137, .residual_out_stride = 137},
      {.residual_in_input = 1},
      {.residual_in_input = 1, .input_stride = STRIDE, .residual_out_stride = STRIDE, .no_norm_out = 1},
      {.no_residual = 1},
      {.no_residual_out = 1, .norm_out_stride = STRIDE},
      {.no_norm_out = 1},
  };
  for (size_t i = 0; i < sizeof forms / sizeof forms[0]; ++i) {
    const arfusionResult_t result = rows_form(comm, rank, nranks, &forms[i], reason, outcome);
    if (result != arfusionSuccess) return result;
  }
  return arfusionSuccess;
}

static arfusionResult_t rows_too_large(arfusionComm_t comm, int rank, int nranks, struct support_outcome* outcome) {
  return rows_forms(comm, rank, nranks, arfusionReasonWorkspace, outcome);
}

static arfusionResult_t rows_of_many_ranks(arfusionComm_t comm, int rank, int nranks, struct support_outcome* outcome) {
  const struct flat flat = {nranks, 5, 13, arfusionFloat32, arfusionSum, 0, arfusionReasonRankCount};
  const arfusionResult_t result = flat_run(comm, rank, &flat, outcome);
  return result == arfusionSuccess ? rows_forms(comm, rank, nranks, arfusionReasonRankCount, outcome) : result;
}

static arfusionResult_t rows_disabled(arfusionComm_t comm, int rank, int nranks, struct support_outcome* outcome) {
  const struct flat flat = {nranks, 5, 13, arfusionBfloat16, arfusionSum, 1, arfusionReasonDisabled};
  const arfusionResult_t result = flat_run(comm, rank, &flat, outcome);
  return result == arfusionSuccess ? rows_forms(comm, rank, nranks, arfusionReasonDisabled, outcome) : result;
}

static arfusionResult_t rows_on_hosts(arfusionComm_t comm, int rank, int nranks, struct support_outcome* outcome) {
  return rows_forms(comm, rank, nranks, arfusionReasonSeveralHosts, outcome);
}

static void rows_larger_than_the_workspace_are_completed(void** state) {
  (void)state;
  job_do(2, NULL, NULL, rows_too_large);
}

static void one_rank_and_17_are_completed(void** state) {
  (void)state;
  job_do(1, NULL, NULL, rows_of_many_ranks);
  job_do(17, NULL, NULL, rows_of_many_ranks);
}

static void what_is_turned_off_is_completed(void** state) {
  (void)state;
  job_do(2, "ARFUSION_ALGO", "none", rows_disabled);
}

static void several_hosts_are_completed(void** state) {
  (void)state;
  job_do(3, "NCCL_HOSTID", NULL, rows_on_hosts);
}

/* ---------------------------------------------------------------- what nobody can do */

static arfusionResult_t impossible(arfusionComm_t comm, int rank, int nranks, struct support_outcome* outcome) {
  static const struct {
    arfusionPattern_t pattern;
    arfusionRedOp_t operation;
    arfusionDataType_t dtype;
    int64_t hidden;
    arfusionQuant_t quantization;
    const char* words;
  } forms[] = {
      {arfusionPatternAllReduce, arfusionSum, arfusionFloat8e4m3, 64, 0, "request.dataType is 10"},
      {arfusionPatternAllReduce, 5, arfusionFloat32, 64, 0, "request.operation is 5|0 to 4"},
      {arfusionPatternResidualRmsNorm, arfusionMax, arfusionFloat32, 64, 0, "sum|2"},
      {arfusionPatternResidualRmsNorm, arfusionSum, arfusionFloat64, 64, 0, "data type|8"},
      {arfusionPatternResidualRmsNorm, arfusionSum, arfusionFloat32, 61, 0, "hidden|16 bytes|244"},
      {arfusionPatternResidualRmsNorm, arfusionSum, arfusionFloat32, 65540, 0, "hidden|65540|65536"},
      {arfusionPatternResidualRmsNorm, arfusionSum, arfusionFloat32, 64, arfusionQuantFp8, "request.quantOut is NULL"},
      {arfusionPatternResidualRmsNorm, arfusionSum, arfusionFloat32, 64, arfusionQuantNvfp4, "quantization|4"},
      {arfusionPatternResidualRmsNorm, arfusionSum, arfusionFloat32, 64, arfusionQuantFp8Group, "group size|64"},
  };
  (void)rank;
  (void)nranks;
  for (size_t i = 0; i < sizeof forms / sizeof forms[0]; ++i) {
    struct support_tensors tensors, copy;
    arfusionRequest_t request = support_request(&tensors, 0);
    request.pattern = forms[i].pattern;
    request.operation = forms[i].operation;
    request.dataType = request.gammaDataType = forms[i].dtype;
    request.quantization = forms[i].quantization;
    request.tokens = 1;
    request.hidden = forms[i].hidden;
    if (request.pattern == arfusionPatternAllReduce) {
      request.allreduceOut = request.normOut;
      request.residualOut = request.normOut = NULL;
    }
    copy = tensors;
    const arfusionResult_t result = arfusionAllReduce(comm, &request, NULL, NULL); /* the same on all ranks */
    outcome->value[0] += result == arfusionInvalidArgument &&
                         support_text_has(arfusionGetLastError(), forms[i].words) &&
                         !memcmp(&copy, &tensors, sizeof copy);
    outcome->value[1] += 1;
  }
  struct support_tensors tensors;
  const arfusionRequest_t request = support_request(&tensors, rank);
  const arfusionResult_t result = arfusionAllReduce(comm, &request, NULL, NULL);
  outcome->value[0] += support_outputs_right(&tensors, nranks);
  outcome->value[1] += 1;
  return result;
}

static void what_nobody_can_do_is_an_error_and_writes_nothing(void** state) {
  (void)state;
  job_do(2, NULL, NULL, impossible);
}

/* ---------------------------------------------------------------- aborts */

static int aborter; /* rank 2 has nothing to do, and is there all the time */

static void* abort_later(void* comm) {
  support_sleep(0.2);
  arfusionCommAbort(comm);
  return NULL;
}

static arfusionResult_t wait_for_the_idle(arfusionComm_t comm, int rank, int nranks, struct support_outcome* outcome) {
  double in[4] = {0}, out[4] = {0};
  const arfusionRequest_t request = {.size = sizeof request, .dataType = arfusionFloat64, .tokens = 1, .hidden = 4,
                                     .input = in, .allreduceOut = out};
  const arfusionResult_t expected = rank == aborter ? arfusionInvalidUsage : arfusionRemoteError;
  pthread_t thread;
  (void)nranks;
  if (rank == aborter && pthread_create(&thread, NULL, abort_later, comm)) return arfusionSystemError;
  const double start = support_now();
  if (rank == 2) support_sleep(1.5);
  for (int times = 0; times < 2 && rank != 2; ++times) {
    const arfusionResult_t result = arfusionAllReduce(comm, &request, NULL, NULL);
    if (result != expected) fprintf(stderr, "rank %d: %d, %s\n", rank, result, arfusionGetLastError());
    outcome->value[0] += result == expected && support_now() - start < 1.2;
    outcome->value[1] += 1;
  }
  if (rank == aborter) pthread_join(thread, NULL);
  if (rank == 2) outcome->value[0] = outcome->value[1] = 1;
  return arfusionSuccess;
}

static void an_abort_ends_a_completion_here_and_elsewhere(void** state) {
  (void)state;
  for (aborter = 0; aborter < 3; ++aborter) job_do(3, NULL, NULL, wait_for_the_idle);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_types_and_operations_are_completed),
      cmocka_unit_test(flat_requests_larger_than_a_piece_are_completed),
      cmocka_unit_test(rows_larger_than_the_workspace_are_completed),
      cmocka_unit_test(one_rank_and_17_are_completed),
      cmocka_unit_test(what_is_turned_off_is_completed),
      cmocka_unit_test(several_hosts_are_completed),
      cmocka_unit_test(what_nobody_can_do_is_an_error_and_writes_nothing),
      cmocka_unit_test(an_abort_ends_a_completion_here_and_elsewhere),
  };
  return cmocka_run_group_tests_name("library_complete", tests, set_up, NULL);
}
