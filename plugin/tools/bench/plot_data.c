/* SPDX-License-Identifier: Apache-2.0
 *
 * plot_data.c: the measurements in documents of `perf`; see plot.h.
 */
#include <stdlib.h>
#include <string.h>

#include "plugin/tools/bench/bench.h"
#include "plugin/tools/bench/json_file.h"
#include "plugin/tools/bench/plot.h"

/* The order in legends; other paths come after these, by name. */
static const char* const known_paths[] = {"auto", "oneshot_lamport", "oneshot_sync",   "twoshot",
                                          "nccl", "unfused",         "nccl_symmetric", "epilogue"};
#define KNOWN_PATHS (int)(sizeof(known_paths) / sizeof(known_paths[0]))

static int path_place(const char* path) {
  int place = 0;
  while (place < KNOWN_PATHS && strcmp(path, known_paths[place]) != 0) place++;
  return place;
}

/* ---------------------------------------------------------------- reading */

/* What all measurements must have in common. The first one says what it is. */
static int same_text(const char* file, size_t index, const char* field, const char* value, const char** common) {
  if (*common == NULL) *common = value;
  if (strcmp(value, *common) == 0) return 1;
  bench_fail("%s: measurement %zu: %s is %s, but %s before; one plot shows one of them", file, index, field, value,
             *common);
  return 0;
}

/* The fields of a measurement. */
static const struct {
  const char* name;
  json_type type; /* JSON_TRUE: true or false; JSON_REAL: any number */
} fields[] = {{"tokens", JSON_INTEGER},  {"hidden", JSON_INTEGER}, {"ranks", JSON_INTEGER}, {"dtype", JSON_STRING},
              {"pattern", JSON_STRING},  {"quant", JSON_STRING},   {"path", JSON_STRING},   {"launch", JSON_STRING},
              {"pdl", JSON_TRUE},        {"median_us", JSON_REAL}, {"p10_us", JSON_REAL},   {"p90_us", JSON_REAL},
              {"commit", JSON_STRING}};

/* Whether a measurement has all of them: json_unpack would not name one that is of another type. */
static int has_fields(const char* file, size_t index, const json_t* measurement) {
  for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
    const json_t* value = json_object_get(measurement, fields[i].name);
    const char* needed = NULL;
    switch (fields[i].type) {
      case JSON_INTEGER: needed = json_is_integer(value) ? NULL : "an integer"; break;
      case JSON_STRING: needed = json_is_string(value) ? NULL : "a text"; break;
      case JSON_TRUE: needed = json_is_boolean(value) ? NULL : "true or false"; break;
      default: needed = json_is_number(value) ? NULL : "a number"; break;
    }
    if (needed == NULL) continue;
    bench_fail("%s: measurement %zu: %s: %s is needed", file, index, fields[i].name, needed);
    return 0;
  }
  return 1;
}

static int read_measurement(struct plot_data* data, const char* file, size_t index, json_t* measurement) {
  struct plot_point point;
  json_int_t tokens, hidden, ranks;
  const char *dtype, *pattern, *quant;
  if (!has_fields(file, index, measurement)) return -1;
  json_unpack(measurement, "{s:I, s:I, s:I, s:s, s:s, s:s, s:s, s:s, s:b, s:F}", "tokens", &tokens, "hidden", &hidden,
              "ranks", &ranks, "dtype", &dtype, "pattern", &pattern, "quant", &quant, "path", &point.path, "launch",
              &point.launch, "pdl", &point.pdl, "median_us", &point.median_us);
  const char* wrong = tokens < 1                       ? "tokens must be greater than 0"
                      : hidden < 1                     ? "hidden must be greater than 0"
                      : ranks < 1 || ranks > INT32_MAX ? "ranks must be greater than 0"
                      : point.median_us <= 0           ? "median_us must be greater than 0"
                                                       : NULL;
  if (wrong != NULL) {
    bench_fail("%s: measurement %zu: %s", file, index, wrong);
    return -1;
  }
  if (strcmp(point.launch, "graph") != 0 && strcmp(point.launch, "eager") != 0) {
    bench_fail("%s: measurement %zu: launch is %s; expected graph or eager", file, index, point.launch);
    return -1;
  }
  if (data->ranks == 0) data->ranks = (int)ranks;
  if (data->ranks != ranks) {
    bench_fail("%s: measurement %zu: ranks is %lld, but %d before; one plot shows one of them", file, index,
               (long long)ranks, data->ranks);
    return -1;
  }
  if (!same_text(file, index, "dtype", dtype, &data->dtype) ||
      !same_text(file, index, "pattern", pattern, &data->pattern) ||
      !same_text(file, index, "quant", quant, &data->quant)) {
    return -1;
  }
  point.tokens = tokens;
  point.hidden = hidden;
  data->points[data->npoints++] = point;
  return 0;
}

/* Keeps the document, whose texts the points use. */
static int keep_document(struct plot_data* data, json_t* document) {
  json_t** documents = realloc(data->documents, ((size_t)data->ndocuments + 1) * sizeof(*documents));
  if (documents == NULL) {
    json_decref(document);
    return -1;
  }
  data->documents = documents;
  documents[data->ndocuments++] = document;
  return 0;
}

int plot_load(struct plot_data* data, const char* file) {
  char text[512];
  json_error_t error;
  json_t *document = json_file_load(file, text, sizeof(text)), *measurements, *measurement;
  const char* device;
  size_t index;
  if (document == NULL) {
    bench_fail("%s", text);
    return -1;
  }
  if (keep_document(data, document) != 0) {
    bench_fail("out of memory");
    return -1;
  }
  if (json_unpack_ex(document, &error, 0, "{s:{s:s}, s:o}", "machine", "device", &device, "measurements",
                     &measurements) != 0) {
    bench_fail("%s: %s", file, error.text);
    return -1;
  }
  if (!json_is_array(measurements) || json_array_size(measurements) == 0) {
    bench_fail("%s: measurements: expected an array that is not empty", file);
    return -1;
  }
  if (data->device == NULL) data->device = device;
  struct plot_point* points =
      realloc(data->points, ((size_t)data->npoints + json_array_size(measurements)) * sizeof(*points));
  if (points == NULL) {
    bench_fail("out of memory");
    return -1;
  }
  data->points = points;
  json_array_foreach(measurements, index, measurement) {
    if (read_measurement(data, file, index, measurement) != 0) return -1;
  }
  return 0;
}

void plot_free(struct plot_data* data) {
  for (int i = 0; i < data->ndocuments; i++) json_decref(data->documents[i]);
  free(data->documents);
  free(data->points);
  *data = (struct plot_data){0};
}

/* ---------------------------------------------------------------- arranging */

/* How far it is from a CUDA graph with dependent launch. */
static int launch_distance(const struct plot_point* point) {
  return 2 * (strcmp(point->launch, "graph") != 0) + !point->pdl;
}

static int compare_paths(const struct plot_point* a, const struct plot_point* b) {
  int place_a = path_place(a->path), place_b = path_place(b->path);
  return place_a != place_b ? (place_a > place_b) - (place_a < place_b) : strcmp(a->path, b->path);
}

static int compare_points(const void* left, const void* right) {
  const struct plot_point *a = left, *b = right;
  int order = compare_paths(a, b);
  if (order == 0) order = launch_distance(a) - launch_distance(b);
  if (order == 0) order = (a->hidden > b->hidden) - (a->hidden < b->hidden);
  if (order == 0) order = (a->tokens > b->tokens) - (a->tokens < b->tokens);
  return order;
}

int plot_arrange(struct plot_data* data) {
  qsort(data->points, (size_t)data->npoints, sizeof(*data->points), compare_points);
  int kept = 0;
  for (int i = 0; i < data->npoints; i++) {
    struct plot_point* point = &data->points[i];
    struct plot_point* last = kept > 0 ? &data->points[kept - 1] : NULL;
    if (last != NULL && compare_points(point, last) == 0) {
      bench_fail("%s, %s, %s dependent launch, %lld x %lld is there twice", point->path, point->launch,
                 point->pdl ? "with" : "without", (long long)point->tokens, (long long)point->hidden);
      return -1;
    }
    if (last != NULL && compare_paths(point, last) == 0 && launch_distance(point) > launch_distance(last)) continue;
    data->points[kept++] = *point;
  }
  data->npoints = kept;
  return 0;
}
