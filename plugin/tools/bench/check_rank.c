/* SPDX-License-Identifier: Apache-2.0
 *
 * check_rank.c: one rank's part of `check`; see check.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/tools/bench/bench.h"
#include "plugin/tools/bench/check.h"
#include "plugin/tools/bench/number.h"
#include "plugin/tools/bench/placement.h"
#include "plugin/tools/bench/reference.h"
#include "plugin/tools/bench/variant.h"

/* The tensors of a request: the inputs, then the outputs in the order of enum case_output. */
enum tensor { TENSOR_INPUT, TENSOR_RESIDUAL, TENSOR_GAMMA, TENSOR_OUTPUTS, TENSORS = TENSOR_OUTPUTS + OUTPUTS };

struct checker {
  const struct check_group* group;
  struct bench_rank rank;
  struct bench_buffer buffers[TENSORS];
  struct bench_buffer scale; /* one float */
  void* dense[TENSORS];      /* the inputs as generated; outputs as they must be, once known */
  void* gamma_fp32;
  int known[OUTPUTS];      /* dense[TENSOR_OUTPUTS + i] holds the bytes of the digest */
  int64_t stride[TENSORS]; /* elements of the running variant; 0 for dense tensors */
  struct placement placed[TENSORS];
  struct check_report report;
};

/* Keeps the first difference of a case. */
static void report_difference(struct checker* checker, arfusionAlgorithm_t algorithm, const struct variant* variant,
                              const char* what) {
  if (checker->report.verdict == CHECK_DIFFERS) return;
  checker->report.verdict = CHECK_DIFFERS;
  snprintf(checker->report.text, sizeof(checker->report.text), "%s, %s, rank %d: %s", bench_algorithm_name(algorithm),
           variant->name, checker->rank.team->rank, what);
}

/* ---------------------------------------------------------------- tensors */

/* Bytes of an element, as its pointer must be aligned. */
static size_t tensor_element(const struct bench_case* c, int tensor) {
  if (tensor == TENSOR_GAMMA) return bench_dtype_bytes(c->gamma_dtype);
  if (tensor == TENSOR_OUTPUTS + OUTPUT_QUANT) return 1;
  if (tensor == TENSOR_OUTPUTS + OUTPUT_SCALE) return c->quantization == arfusionQuantNvfp4 ? 1 : sizeof(float);
  return bench_dtype_bytes(c->dtype);
}

static size_t tensor_bytes(const struct bench_case* c, int tensor) {
  size_t full = (size_t)c->tokens * (size_t)c->hidden * bench_dtype_bytes(c->dtype);
  int rows = c->pattern == arfusionPatternResidualRmsNorm;
  if (tensor == TENSOR_INPUT) return full;
  if (tensor == TENSOR_RESIDUAL) return rows && c->residual ? full : 0;
  if (tensor == TENSOR_GAMMA) return rows ? (size_t)c->hidden * bench_dtype_bytes(c->gamma_dtype) : 0;
  return case_output_bytes(c, (enum case_output)(tensor - TENSOR_OUTPUTS));
}

/* Which multiple of the variant's padding a tensor's rows have; 0: it is dense. */
static int tensor_padding(int tensor) {
  switch (tensor) {
    case TENSOR_INPUT: return 1;
    case TENSOR_RESIDUAL: return 2;
    case TENSOR_OUTPUTS + OUTPUT_RESIDUAL: return 3;
    case TENSOR_OUTPUTS + OUTPUT_NORM: return 4;
    default: return 0;
  }
}

static void tensor_place(struct checker* checker, const struct bench_case* c, const struct variant* variant,
                         int tensor) {
  size_t bytes = tensor_bytes(c, tensor), element = tensor_element(c, tensor);
  int padding = variant->padding * tensor_padding(tensor);
  struct placement* p = &checker->placed[tensor];
  if (tensor == TENSOR_GAMMA && variant->gamma_fp32) {
    element = sizeof(float);
    bytes = (size_t)c->hidden * element;
  }
  *p = (struct placement){.buffer = &checker->buffers[tensor],
                          .offset = (size_t)variant->offset * element,
                          .rows = 1,
                          .row_bytes = bytes,
                          .stride_bytes = bytes};
  checker->stride[tensor] = 0;
  if (padding == 0) return;
  p->rows = (size_t)c->tokens;
  p->row_bytes = (size_t)c->hidden * element;
  p->stride_bytes = p->row_bytes + (size_t)padding * element;
  checker->stride[tensor] = c->hidden + padding;
}

/* Largest buffer that any case and variant need, so that nothing is allocated while peers may be waiting. */
static size_t tensor_max_bytes(const struct check_group* group, int tensor) {
  size_t max = 0;
  for (int i = 0; i < group->count; i++) {
    const struct bench_case* c = group->cases[i];
    size_t bytes = tensor_bytes(c, tensor);
    if (tensor == TENSOR_GAMMA && bytes > 0) bytes = (size_t)c->hidden * sizeof(float);
    if (tensor_padding(tensor) > 0 && bytes > 0) bytes += (size_t)c->tokens * VARIANT_MAX_PADDING * sizeof(float);
    if (bytes > max) max = bytes;
  }
  return max > 0 ? max + sizeof(float) + 2 * PLACEMENT_GUARD : 0;
}

/* ---------------------------------------------------------------- expected bytes */

static void fill(const struct bench_case* c, enum generator_tensor which, int rank, void* out) {
  if (which == GENERATOR_GAMMA) {
    generator_fill(out, c->gamma_dtype, c->hidden, c->seed, which, rank, GENERATOR_UNIFORM);
  } else {
    generator_fill(out, c->dtype, c->tokens * c->hidden, c->seed, which, rank, c->inputs);
  }
}

/* The quantized outputs of norm_out (`n`), of which `output` goes to `out`. 0, or -1 for lack of memory. */
static int expect_quantized(const struct bench_case* c, int output, const void* n, void* out) {
  int other = output == OUTPUT_QUANT ? OUTPUT_SCALE : OUTPUT_QUANT;
  void* unused = malloc(case_output_bytes(c, (enum case_output)other) + 1);
  if (unused == NULL) return -1;
  reference_quant_case(c, n, output == OUTPUT_QUANT ? out : unused, output == OUTPUT_SCALE ? out : unused);
  free(unused);
  return 0;
}

/* What the reference has for an output. 0, or -1 for lack of memory. */
static int expect_output(const struct checker* checker, const struct bench_case* c, int output, void* out) {
  int64_t count = c->tokens * c->hidden;
  size_t bytes = (size_t)count * bench_dtype_bytes(c->dtype);
  int quantized = output == OUTPUT_QUANT || output == OUTPUT_SCALE;
  void* inputs[ARFUSION_MAX_RANKS] = {NULL};
  void* data = quantized ? malloc(bytes) : out; /* of the data type */
  int result = data == NULL ? -1 : 0;
  for (int r = 0; r < c->nranks && result == 0; r++) {
    inputs[r] = malloc(bytes);
    if (inputs[r] == NULL) result = -1;
    else fill(c, GENERATOR_INPUT, r, inputs[r]);
  }
  if (result == 0) reference_sum(c->dtype, c->nranks, (const void* const*)inputs, count, data);
  if (result == 0 && output != OUTPUT_ALLREDUCE && c->residual) {
    reference_residual(c->dtype, data, checker->dense[TENSOR_RESIDUAL], count, data);
  }
  if (result == 0 && (output == OUTPUT_NORM || quantized)) {
    struct reference_norm norm = {.dtype = c->dtype,
                                  .gamma_dtype = c->gamma_dtype,
                                  .tokens = c->tokens,
                                  .hidden = c->hidden,
                                  .eps = c->eps,
                                  .weight_bias = c->weight_bias,
                                  .gamma = checker->dense[TENSOR_GAMMA]};
    reference_norm(&norm, data, data);
  }
  if (result == 0 && quantized) result = expect_quantized(c, output, data, out);
  for (int r = 0; r < c->nranks; r++) free(inputs[r]);
  if (quantized) free(data);
  return result;
}

/* Describes a difference at byte `where`: the element, what was got and what the reference has. */
static void describe_element(const struct checker* checker, const struct bench_case* c, int output, int64_t where,
                             char* text, size_t text_bytes) {
  const struct placement* p = &checker->placed[TENSOR_OUTPUTS + output];
  const void* expected = checker->dense[TENSOR_OUTPUTS + output];
  int64_t element = where / (int64_t)tensor_element(c, TENSOR_OUTPUTS + output);
  size_t row = (size_t)where / p->row_bytes, in_row = (size_t)where % p->row_bytes;
  const unsigned char* got =
      (const unsigned char*)p->buffer->image + PLACEMENT_GUARD + p->offset + row * p->stride_bytes;
  if (output == OUTPUT_QUANT || output == OUTPUT_SCALE) {
    snprintf(text, text_bytes, "%s: byte %lld: got 0x%02x, expected 0x%02x", case_output_name((enum case_output)output),
             (long long)where, got[in_row], ((const unsigned char*)expected)[where]);
    return;
  }
  int digits = 2 * (int)bench_dtype_bytes(c->dtype);
  snprintf(text, text_bytes, "%s: element %lld (token %lld, column %lld): got 0x%0*x, expected 0x%0*x",
           case_output_name((enum case_output)output), (long long)element, (long long)(element / c->hidden),
           (long long)(element % c->hidden), digits,
           (unsigned)number_bits(c->dtype, got, (int64_t)(in_row / bench_dtype_bytes(c->dtype))), digits,
           (unsigned)number_bits(c->dtype, expected, element));
}

/* The first time that an output is seen: its digest says whether it is right, and later ones are compared with these
 * bytes. Where it is not, or there is none for so many ranks, the reference's bytes take that place. 0 to go on
 * comparing, -1 with `text` set. */
static int learn_output(struct checker* checker, const struct bench_case* c, int output, char* text,
                        size_t text_bytes) {
  void* dense = checker->dense[TENSOR_OUTPUTS + output];
  size_t bytes = case_output_bytes(c, (enum case_output)output);
  char digest[DIGEST_LENGTH + 1], expected[DIGEST_LENGTH + 1];
  if (checker->group->by_reference) {
    if (expect_output(checker, c, output, dense) == 0) {
      checker->known[output] = 1;
      return 0;
    }
    snprintf(text, text_bytes, "%s: out of memory for the reference", case_output_name((enum case_output)output));
    return -1;
  }
  placement_pack(&checker->placed[TENSOR_OUTPUTS + output], dense);
  digest_compute(dense, bytes, digest);
  if (strcmp(digest, c->digest[output]) == 0) {
    checker->known[output] = 1;
    return 0;
  }
  const char* name = case_output_name((enum case_output)output);
  if (expect_output(checker, c, output, dense) != 0) {
    snprintf(text, text_bytes, "%s: digest %s, expected %s", name, digest, c->digest[output]);
    return -1;
  }
  digest_compute(dense, bytes, expected);
  if (strcmp(expected, c->digest[output]) != 0) {
    snprintf(text, text_bytes, "%s: digest %s, the case has %s, and the reference %s", name, digest, c->digest[output],
             expected);
    return -1;
  }
  checker->known[output] = 1;
  return 0;
}

/* ---------------------------------------------------------------- one operation */

static int place_all(struct checker* checker, const struct bench_case* c, const struct variant* variant) {
  for (int i = 0; i < TENSORS; i++) {
    if (tensor_bytes(c, i) == 0) continue;
    tensor_place(checker, c, variant, i);
    const void* dense = i >= TENSOR_OUTPUTS ? NULL : checker->dense[i];
    if (i == TENSOR_GAMMA && variant->gamma_fp32) dense = checker->gamma_fp32;
    if (placement_write(checker->rank.device, &checker->placed[i], dense) != 0) return -1;
  }
  if (variant->sum_in_input) checker->placed[TENSOR_OUTPUTS + OUTPUT_RESIDUAL] = checker->placed[TENSOR_INPUT];
  if (!variant->in_place) return 0;
  int output = c->pattern == arfusionPatternAllReduce ? OUTPUT_ALLREDUCE : OUTPUT_NORM;
  checker->placed[TENSOR_OUTPUTS + output] = checker->placed[TENSOR_INPUT];
  if (tensor_bytes(c, TENSOR_RESIDUAL) > 0) {
    checker->placed[TENSOR_OUTPUTS + OUTPUT_RESIDUAL] = checker->placed[TENSOR_RESIDUAL];
  }
  return 0;
}

static arfusionRequest_t make_request(const struct checker* checker, const struct bench_case* c,
                                      const struct variant* variant, arfusionAlgorithm_t algorithm) {
  arfusionRequest_t request = bench_request();
  void* data[TENSORS] = {NULL};
  for (int i = 0; i < TENSORS; i++) {
    if (tensor_bytes(c, i) == 0) continue;
    if (i >= TENSOR_OUTPUTS && (variant->left_out & (1u << (i - TENSOR_OUTPUTS)))) continue;
    data[i] = placement_data(&checker->placed[i]);
  }
  int needs_gamma = data[TENSOR_OUTPUTS + OUTPUT_NORM] != NULL || data[TENSOR_OUTPUTS + OUTPUT_QUANT] != NULL;
  request.pattern = c->pattern;
  request.operation = arfusionSum;
  request.dataType = c->dtype;
  request.gammaDataType = variant->gamma_fp32 ? arfusionFloat32 : c->gamma_dtype;
  request.quantization = c->quantization;
  request.scaleLayout = c->layout;
  request.algorithmHint = algorithm;
  request.groupSize = c->quantization == arfusionQuantFp8Group ? c->group : 0;
  request.tokens = c->tokens;
  request.hidden = c->hidden;
  request.eps = c->eps;
  request.weightBias = c->weight_bias;
  request.inputStride = checker->stride[TENSOR_INPUT];
  request.residualInStride = checker->stride[TENSOR_RESIDUAL];
  request.residualOutStride = checker->stride[TENSOR_OUTPUTS + OUTPUT_RESIDUAL];
  request.normOutStride = checker->stride[TENSOR_OUTPUTS + OUTPUT_NORM];
  request.input = data[TENSOR_INPUT];
  request.residualIn = data[TENSOR_RESIDUAL];
  request.gamma = needs_gamma ? data[TENSOR_GAMMA] : NULL;
  if (c->quantization == arfusionQuantFp8) request.fp8Scale = (const float*)checker->scale.data;
  if (c->quantization == arfusionQuantNvfp4) request.nvfp4GlobalScale = (const float*)checker->scale.data;
  request.allreduceOut = data[TENSOR_OUTPUTS + OUTPUT_ALLREDUCE];
  request.residualOut = data[TENSOR_OUTPUTS + OUTPUT_RESIDUAL];
  request.normOut = data[TENSOR_OUTPUTS + OUTPUT_NORM];
  request.quantOut = data[TENSOR_OUTPUTS + OUTPUT_QUANT];
  request.scaleOut = data[TENSOR_OUTPUTS + OUTPUT_SCALE];
  return request;
}

/* Compares all that the operation may or must have written. */
static int compare_all(struct checker* checker, const struct bench_case* c, const struct variant* variant,
                       arfusionAlgorithm_t algorithm) {
  for (int i = 0; i < TENSORS; i++) {
    int output = i - TENSOR_OUTPUTS;
    const struct placement* p = &checker->placed[i];
    char text[224];
    int64_t where;
    if (tensor_bytes(c, i) == 0) continue;
    /* In place, inputs have become outputs; a left-out output has no memory that the plugin knows of. */
    if (i < TENSOR_OUTPUTS && variant->in_place && i != TENSOR_GAMMA) continue;
    if (i == TENSOR_INPUT && variant->sum_in_input) continue;
    if (i >= TENSOR_OUTPUTS && (variant->left_out & (1u << output))) continue;
    if (placement_read(checker->rank.device, p) != 0) return -1;
    if (i >= TENSOR_OUTPUTS && !checker->known[output] && learn_output(checker, c, output, text, sizeof(text)) != 0) {
      report_difference(checker, algorithm, variant, text);
      continue;
    }
    const void* dense = i == TENSOR_GAMMA && variant->gamma_fp32 ? checker->gamma_fp32 : checker->dense[i];
    enum placement_verdict verdict = placement_compare(p, dense, &where);
    if (verdict == PLACEMENT_EQUAL) continue;
    static const char* const input_names[] = {"input", "residual_in", "gamma"};
    const char* name = i < TENSOR_OUTPUTS ? input_names[i] : case_output_name((enum case_output)output);
    if (verdict == PLACEMENT_OUTSIDE) {
      snprintf(text, sizeof(text), "%s: byte %lld, which is not part of it, was written", name, (long long)where);
    } else if (i < TENSOR_OUTPUTS) {
      snprintf(text, sizeof(text), "%s: byte %lld of this input was changed", name, (long long)where);
    } else {
      describe_element(checker, c, output, where, text, sizeof(text));
    }
    report_difference(checker, algorithm, variant, text);
  }
  return 0;
}

/* 0, or -1 after team_fail: the ranks are no longer in step. What is merely wrong is reported. */
static int run_variant(struct checker* checker, const struct bench_case* c, const struct variant* variant,
                       arfusionAlgorithm_t algorithm) {
  struct bench_rank* rank = &checker->rank;
  arfusionRoute_t route = {.size = sizeof(route)};
  arfusionResult_t async = arfusionSuccess;
  char text[224], why[512] = "";
  if (place_all(checker, c, variant) != 0) return team_fail(rank->team, "%s", bench_device_error());
  arfusionRequest_t request = make_request(checker, c, variant, algorithm);
  arfusionResult_t result = rank->plugin->enqueue(rank->comm, &request, rank->device->stream, &route);
  if (result != arfusionSuccess) snprintf(text, sizeof(text), "enqueue: %s", rank->plugin->getLastError());
  if (result == arfusionSuccess && rank->device->synchronize(rank->device) != 0) {
    return team_fail(rank->team, "case %s: %s, %s: %s", c->id, bench_algorithm_name(algorithm), variant->name,
                     bench_device_error());
  }
  rank->plugin->commGetAsyncError(rank->comm, &async, why, sizeof(why));
  if (async != arfusionSuccess) {
    return team_fail(rank->team, "case %s: %s, %s: the communicator has failed: %s", c->id,
                     bench_algorithm_name(algorithm), variant->name, why);
  }
  if (result == arfusionSuccess && route.algorithm == algorithm) {
    if (compare_all(checker, c, variant, algorithm) == 0) return 0;
    return team_fail(rank->team, "case %s: %s", c->id, bench_device_error());
  }
  if (result == arfusionSuccess && route.algorithm == arfusionAlgoNone) {
    snprintf(text, sizeof(text), "turned down: %s", rank->plugin->reasonString(route.reason));
  } else if (result == arfusionSuccess) {
    snprintf(text, sizeof(text), "went to %s", bench_algorithm_name(route.algorithm));
  }
  report_difference(checker, algorithm, variant, text);
  return 0;
}

/* ---------------------------------------------------------------- one case */

static int is_skipped(struct checker* checker, const struct bench_case* c) {
  arfusionRoute_t route = {.size = sizeof(route)};
  if (c->quantization == arfusionQuantNone || place_all(checker, c, &variants[0]) != 0) return 0;
  arfusionRequest_t request = make_request(checker, c, &variants[0], checker->group->algorithms[0]);
  if (checker->rank.plugin->route(checker->rank.comm, &request, &route) != arfusionSuccess) return 0;
  return route.algorithm == arfusionAlgoNone && route.reason == arfusionReasonQuantUnsupported;
}

static int run_case(struct checker* checker, int index) {
  const struct check_group* group = checker->group;
  const struct bench_case* c = group->cases[index];
  checker->report = (struct check_report){.index = index, .verdict = CHECK_EQUAL};
  memset(checker->known, 0, sizeof(checker->known));
  memset(checker->stride, 0, sizeof(checker->stride));
  fill(c, GENERATOR_INPUT, checker->rank.team->rank, checker->dense[TENSOR_INPUT]);
  if (tensor_bytes(c, TENSOR_RESIDUAL) > 0) fill(c, GENERATOR_RESIDUAL, 0, checker->dense[TENSOR_RESIDUAL]);
  if (tensor_bytes(c, TENSOR_GAMMA) > 0) {
    fill(c, GENERATOR_GAMMA, 0, checker->dense[TENSOR_GAMMA]);
    number_load(c->gamma_dtype, checker->dense[TENSOR_GAMMA], c->hidden, checker->gamma_fp32);
  }
  memcpy(checker->scale.image, &c->scale, sizeof(c->scale));
  if (checker->rank.device->upload(checker->rank.device, &checker->scale, sizeof(c->scale)) != 0) {
    return team_fail(checker->rank.team, "%s", bench_device_error());
  }
  if (is_skipped(checker, c)) {
    checker->report.verdict = CHECK_SKIPPED;
  } else {
    for (int a = 0; a < group->nalgorithms; a++) {
      for (int v = 0; v < variant_count; v++) {
        if (!variant_applies(&variants[v], c)) continue;
        if (run_variant(checker, c, &variants[v], group->algorithms[a]) != 0) return -1;
      }
    }
  }
  team_send(checker->rank.team, &checker->report, sizeof(checker->report));
  return 0;
}

/* ---------------------------------------------------------------- a rank's life */

static int checker_alloc(struct checker* checker) {
  struct bench_device* device = checker->rank.device;
  int failed = device->alloc(device, &checker->scale, sizeof(float));
  for (int i = 0; i < TENSORS && !failed; i++) {
    size_t bytes = tensor_max_bytes(checker->group, i);
    if (bytes == 0) continue;
    failed = device->alloc(device, &checker->buffers[i], bytes);
    checker->dense[i] = malloc(bytes);
    if (checker->dense[i] == NULL) failed = bench_device_fail("out of memory");
  }
  if (!failed && checker->buffers[TENSOR_GAMMA].bytes > 0) {
    checker->gamma_fp32 = malloc(checker->buffers[TENSOR_GAMMA].bytes);
    if (checker->gamma_fp32 == NULL) failed = bench_device_fail("out of memory");
  }
  return failed ? team_fail(checker->rank.team, "%s", bench_device_error()) : 0;
}

static void checker_free(struct checker* checker) {
  struct bench_device* device = checker->rank.device;
  if (checker->scale.data != NULL) device->release(device, &checker->scale);
  for (int i = 0; i < TENSORS; i++) {
    if (checker->buffers[i].data != NULL) device->release(device, &checker->buffers[i]);
    free(checker->dense[i]);
  }
  free(checker->gamma_fp32);
}

/* The largest case, in bytes. */
static arfusionConfig_t group_config(const struct check_group* group) {
  arfusionConfig_t config = {.size = sizeof(config)};
  int64_t max = 0;
  for (int i = 0; i < group->count; i++) {
    const struct bench_case* c = group->cases[i];
    int64_t bytes = c->tokens * c->hidden * (int64_t)bench_dtype_bytes(c->dtype);
    if (bytes <= max) continue;
    max = bytes;
    config.maxTokens = c->tokens;
    config.hidden = c->hidden;
    config.dataType = c->dtype;
  }
  return config;
}

int check_run_rank(struct team_rank* self, void* arg) {
  const struct check_group* group = arg;
  struct checker checker = {.group = group};
  arfusionConfig_t config = group_config(group);
  int failed = bench_rank_open(self, group->session, &config, &checker.rank);
  if (!failed) failed = checker_alloc(&checker);
  /* Memory is allocated and freed only while no rank can be waiting on a GPU that they share. */
  if (!failed) team_barrier(self);
  for (int i = 0; i < group->count && !failed; i++) failed = run_case(&checker, i);
  if (!failed) team_barrier(self);
  if (checker.rank.device != NULL) checker_free(&checker);
  return bench_rank_close(&checker.rank) != 0 || failed ? -1 : 0;
}
