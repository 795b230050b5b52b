/* SPDX-License-Identifier: Apache-2.0
 *
 * case.c: reading case files; see case.h.
 */
#include "plugin/tools/bench/case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/tools/bench/bench.h"
#include "plugin/tools/bench/json_file.h"
#include "topo/one_line.h"

#define MAX_ELEMENTS ((int64_t)1 << 31) /* of a tensor; the generator numbers elements with 32 bits */

static const char* const output_names[OUTPUTS] = {"allreduce_out", "residual_out", "norm_out", "quant_out",
                                                  "scale_out"};
static const char* const patterns[] = {"allreduce", "residual_rmsnorm"};
static const char* const layouts[] = {"linear", "swizzled_128x4"};

const char* case_output_name(enum case_output output) { return output_names[output]; }

size_t case_output_bytes(const struct bench_case* c, enum case_output output) {
  if (c->digest[output][0] == '\0') return 0;
  arfusionRequest_t request = {.quantization = c->quantization,
                               .scaleLayout = c->layout,
                               .groupSize = c->group,
                               .tokens = c->tokens,
                               .hidden = c->hidden};
  if (output == OUTPUT_QUANT) return (size_t)arfusionQuantOutBytes(&request);
  if (output == OUTPUT_SCALE) return (size_t)arfusionScaleOutBytes(&request);
  return (size_t)c->tokens * (size_t)c->hidden * bench_dtype_bytes(c->dtype);
}

#define READER_FIELDS 24 /* more than a case has */

/* Reading one object: `error` is set by the first thing that is wrong. */
struct reader {
  json_t* object;
  const char* id;
  char* error;
  size_t error_bytes;
  const char* known[READER_FIELDS]; /* the names that have been asked for */
  size_t nknown;
  int failed;
};

static void reader_fail(struct reader* reader, const char* field, const char* what) {
  if (!reader->failed) snprintf(reader->error, reader->error_bytes, "case %s: %s: %s", reader->id, field, what);
  reader->failed = 1;
}

/* The first field that has not been asked for, so that a misspelt one is not taken for its default. */
static void reader_check_known(struct reader* reader) {
  const char* name;
  json_t* value;
  json_object_foreach(reader->object, name, value) {
    size_t i = 0;
    while (i < reader->nknown && strcmp(name, reader->known[i]) != 0) i++;
    if (i < reader->nknown) continue;
    char shown[64];
    snprintf(shown, sizeof(shown), "%s", name);
    text_one_line(shown);
    reader_fail(reader, shown, "is not a field of a case");
    return;
  }
}

/* NULL if the field is not there (an error if it must be). */
static json_t* reader_field(struct reader* reader, const char* field, int required) {
  json_t* value = json_object_get(reader->object, field);
  if (reader->nknown < READER_FIELDS) reader->known[reader->nknown++] = field;
  if (value == NULL && required) reader_fail(reader, field, "missing");
  return value;
}

static int64_t read_integer(struct reader* reader, const char* field, int64_t min, int64_t max, const int64_t* preset) {
  json_t* value = reader_field(reader, field, preset == NULL);
  if (value == NULL) return preset != NULL ? *preset : 0;
  int64_t number = json_integer_value(value);
  if (!json_is_integer(value) || number < min || number > max) {
    char text[96];
    snprintf(text, sizeof(text), "must be an integer from %lld to %lld", (long long)min, (long long)max);
    reader_fail(reader, field, text);
  }
  return number;
}

static float read_float(struct reader* reader, const char* field, double preset) {
  json_t* value = reader_field(reader, field, 0);
  if (value != NULL && !json_is_number(value)) reader_fail(reader, field, "must be a number");
  return (float)(value != NULL ? json_number_value(value) : preset);
}

static const char* read_text(struct reader* reader, const char* field, const char* preset) {
  json_t* value = reader_field(reader, field, preset == NULL);
  const char* text = value != NULL ? json_string_value(value) : preset;
  if (value != NULL && text == NULL) reader_fail(reader, field, "must be a string");
  return text != NULL ? text : "";
}

/* The index of the text among two names. */
static int read_name(struct reader* reader, const char* field, const char* const names[2], const char* preset) {
  const char* text = read_text(reader, field, preset);
  if (strcmp(text, names[0]) == 0) return 0;
  if (strcmp(text, names[1]) == 0) return 1;
  char what[96];
  snprintf(what, sizeof(what), "must be %s or %s", names[0], names[1]);
  reader_fail(reader, field, what);
  return 0;
}

static arfusionDataType_t read_dtype(struct reader* reader, const char* field, const char* preset) {
  arfusionDataType_t dtype = arfusionBfloat16;
  if (bench_parse_dtype(read_text(reader, field, preset), &dtype) != 0) {
    reader_fail(reader, field, "must be bf16, fp16 or fp32");
  }
  return dtype;
}

/* Exactly the digests that the pattern and the quantization have. */
static void read_digests(struct reader* reader, struct bench_case* c) {
  json_t* digests = reader_field(reader, "digests", 1);
  if (digests == NULL) return;
  int rows = c->pattern == arfusionPatternResidualRmsNorm;
  const int wanted[OUTPUTS] = {!rows, rows, rows, c->quantization != arfusionQuantNone,
                               c->quantization > arfusionQuantFp8};
  size_t count = 0;
  for (int i = 0; i < OUTPUTS; i++) {
    if (!wanted[i]) continue;
    const char* text = json_string_value(json_object_get(digests, output_names[i]));
    if (text == NULL || strlen(text) != DIGEST_LENGTH || strspn(text, "0123456789abcdef") != DIGEST_LENGTH) {
      char what[96];
      snprintf(what, sizeof(what), "%s must be %d lower-case hex digits", output_names[i], DIGEST_LENGTH);
      reader_fail(reader, "digests", what);
      return;
    }
    memcpy(c->digest[i], text, DIGEST_LENGTH + 1);
    count++;
  }
  if (json_object_size(digests) != count) reader_fail(reader, "digests", "has an output that the case does not have");
}

/* An id stands in messages and table rows, each of one line, and is refused before one quotes it. */
static void read_id(struct reader* reader, struct bench_case* c) {
  const char* id = read_text(reader, "id", NULL);
  size_t length = strlen(id), printable = 0;
  while (id[printable] > ' ' && id[printable] <= '~') printable++;
  if (length == 0 || length >= sizeof(c->id) || printable != length) {
    char what[96];
    snprintf(what, sizeof(what), "must be 1 to %zu printable characters without blanks", sizeof(c->id) - 1);
    reader_fail(reader, "id", what);
    return;
  }
  memcpy(c->id, id, length + 1);
  reader->id = c->id;
}

static int read_case(struct reader* reader, struct bench_case* c) {
  static const int64_t default_group = 128;
  reader->id = "without an id";
  reader->nknown = 0;
  if (!json_is_object(reader->object)) {
    reader_fail(reader, "object", "expected");
    return -1;
  }
  read_id(reader, c);
  c->nranks = (int)read_integer(reader, "nranks", 2, ARFUSION_MAX_RANKS, NULL);
  c->dtype = read_dtype(reader, "dtype", NULL);
  c->gamma_dtype = read_dtype(reader, "gamma_dtype", bench_dtype_name(c->dtype));
  c->tokens = read_integer(reader, "tokens", 1, MAX_ELEMENTS, NULL);
  c->hidden = read_integer(reader, "hidden", 1, MAX_ELEMENTS, NULL);
  if (!reader->failed && c->tokens > MAX_ELEMENTS / c->hidden) {
    reader_fail(reader, "tokens", "tokens * hidden is more than 2^31");
  }
  c->pattern = (arfusionPattern_t)read_name(reader, "pattern", patterns, NULL);
  if (bench_parse_quant(read_text(reader, "quant", "none"), &c->quantization) != 0) {
    reader_fail(reader, "quant", "must be none, fp8, fp8_token, fp8_group or nvfp4");
  }
  if (c->quantization != arfusionQuantNone && c->pattern == arfusionPatternAllReduce) {
    reader_fail(reader, "quant", "needs pattern residual_rmsnorm");
  }
  c->eps = read_float(reader, "eps", 1e-5);
  c->weight_bias = read_float(reader, "weight_bias", 0.0);
  c->scale = read_float(reader, "scale", 1.0);
  c->group = (int)read_integer(reader, "group", 1, ARFUSION_MAX_HIDDEN, &default_group);
  if (!reader->failed && c->quantization == arfusionQuantFp8Group && c->hidden % c->group != 0) {
    reader_fail(reader, "group", "does not divide hidden");
  }
  if (!reader->failed && c->quantization == arfusionQuantNvfp4 && c->hidden % NVFP4_BLOCK != 0) {
    char what[64];
    snprintf(what, sizeof(what), "must be a multiple of %d with quant nvfp4", NVFP4_BLOCK);
    reader_fail(reader, "hidden", what);
  }
  c->layout = (arfusionScaleLayout_t)read_name(reader, "layout", layouts, "linear");
  if (generator_parse_kind(read_text(reader, "inputs", "uniform"), &c->inputs) != 0) {
    reader_fail(reader, "inputs", "must be uniform, large, tiny, zeros, mixed or special");
  }
  c->seed = (uint32_t)read_integer(reader, "seed", 0, UINT32_MAX, NULL);
  json_t* residual = reader_field(reader, "residual", 0);
  c->residual = residual == NULL || json_is_true(residual);
  if (residual != NULL && !json_is_boolean(residual)) reader_fail(reader, "residual", "must be true or false");
  read_digests(reader, c);
  reader_check_known(reader);
  return reader->failed ? -1 : 0;
}

int case_list_load(const char* path, struct case_list* list, char* error, size_t error_bytes) {
  list->cases = NULL;
  list->count = 0;
  json_t* root = json_file_load(path, error, error_bytes);
  if (root == NULL) return -1;
  size_t count = json_array_size(root);
  if (!json_is_array(root) || count == 0) {
    snprintf(error, error_bytes, "%s: no cases: a JSON list of objects is expected", path);
    goto err_release;
  }
  list->cases = calloc(count, sizeof(*list->cases));
  if (list->cases == NULL) {
    snprintf(error, error_bytes, "%s: out of memory", path);
    goto err_release;
  }
  char text[384];
  struct reader reader = {.error = text, .error_bytes = sizeof(text)};
  for (size_t i = 0; i < count; i++) {
    reader.object = json_array_get(root, i);
    if (read_case(&reader, &list->cases[i]) == 0) continue;
    snprintf(error, error_bytes, "%s: number %zu of the list: %s", path, i + 1, text);
    goto err_release;
  }
  list->count = (int)count;
  json_decref(root);
  return 0;

err_release:
  json_decref(root);
  case_list_free(list);
  return -1;
}

void case_list_free(struct case_list* list) {
  free(list->cases);
  list->cases = NULL;
  list->count = 0;
}
