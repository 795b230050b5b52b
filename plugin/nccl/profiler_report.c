/* SPDX-License-Identifier: Apache-2.0
 *
 * profiler_report.c: judging the calls. See profiler_report.h.
 */
#include "plugin/nccl/profiler_report.h"

#include <stdlib.h>
#include <string.h>

#include "plugin/core/request.h"

enum { ROW_ALIGN = 16 /* bytes */ };

/* The usual ones first: parsing is on the way of every call. */
static const struct {
  const char *nccl, *name;
  arfusionDataType_t type;
} type_names[] = {
    {"ncclBfloat16", "bfloat16", arfusionBfloat16},
    {"ncclFloat16", "float16", arfusionFloat16},
    {"ncclFloat32", "float32", arfusionFloat32},
    {"ncclInt8", "int8", arfusionInt8},
    {"ncclUint8", "uint8", arfusionUint8},
    {"ncclInt32", "int32", arfusionInt32},
    {"ncclUint32", "uint32", arfusionUint32},
    {"ncclInt64", "int64", arfusionInt64},
    {"ncclUint64", "uint64", arfusionUint64},
    {"ncclFloat64", "float64", arfusionFloat64},
    {"ncclFloat8e4m3", "float8e4m3", arfusionFloat8e4m3},
    {"ncclFloat8e5m2", "float8e5m2", arfusionFloat8e5m2},
};
enum { TYPES = sizeof type_names / sizeof type_names[0] };
_Static_assert(TYPES == sizeof((struct report*)0)->divides / sizeof(int64_t), "a divisor for each type");

arfusionDataType_t report_type_parse(const char* nccl_name) {
  for (int i = 0; nccl_name && i < TYPES; ++i) {
    if (!strcmp(nccl_name, type_names[i].nccl)) return type_names[i].type;
  }
  return PROFILER_TYPE_UNKNOWN;
}

const char* report_type_name(arfusionDataType_t type) {
  for (int i = 0; i < TYPES; ++i) {
    if (type_names[i].type == type) return type_names[i].name;
  }
  return "unknown";
}

/* ---------------------------------------------------------------- what the shape allows */

static int64_t elements_of_alignment(arfusionDataType_t type) { return ROW_ALIGN / kernel_element_size(type); }

static int shape_is_fusible(const struct profiler_size* size) {
  const arfusionRequest_t request = {.dataType = size->type, .tokens = 1, .hidden = 1};
  arfusionRoute_t unused;
  return route_request_supported(&request, &unused) && size->count > 0 &&
         size->count % (uint64_t)elements_of_alignment(size->type) == 0;
}

static int64_t greatest_divisor(int64_t a, int64_t b) {
  while (b) {
    const int64_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

/* The longest permitted row of which `count` elements can be several. */
static int64_t hidden_within(int64_t count, arfusionDataType_t type) {
  const int64_t step = elements_of_alignment(type);
  int64_t hidden = ARFUSION_MAX_HIDDEN;
  while (count % hidden) hidden -= step;
  return hidden;
}

/* ---------------------------------------------------------------- routes and times */

static arfusionRequest_t request_of(const struct report* report, const struct report_size* size,
                                    enum report_form form) {
  const arfusionDataType_t type = size->calls.type;
  const int64_t count = (int64_t)size->calls.count;
  arfusionRequest_t request = {.size = sizeof request, .dataType = type, .gammaDataType = type};
  if (form == REPORT_ALLREDUCE) {
    request.pattern = arfusionPatternAllReduce;
    request.tokens = count > 0;
    request.hidden = count;
  } else {
    request.pattern = arfusionPatternResidualRmsNorm;
    /* A row of 1 is turned down: that is the reason for what is not fusible. */
    request.hidden = size->fusible ? hidden_within(report->divides[type], type) : 1;
    request.tokens = count / request.hidden;
  }
  return request;
}

static double at_least_0(double x) { return x > 0 ? x : 0; }

static void estimate(struct report* report, struct report_size* size) {
  const struct profiler_facts* facts = report->facts;
  for (int form = 0; form < REPORT_FORMS; ++form) {
    const arfusionAlgorithm_t algorithm = size->form[form].route.algorithm;
    struct tuning_times times;
    if (algorithm < arfusionAlgoOneshotLamport) continue;
    const char* basis =
        tuning_estimate(facts->compute_major, facts->compute_minor, facts->nranks, algorithm, size->bytes, &times);
    if (!basis) return;
    report->basis = basis;
    size->form[form].now_us = times.nccl_us + (form == REPORT_FUSED ? times.epilogue_us : 0);
    size->form[form].saved_us = at_least_0(size->form[form].now_us - times.operation_us);
  }
}

static void sum_add(struct report_sum* sum, uint64_t calls, double now_us, double saved_us) {
  sum->calls += calls;
  sum->now_us += (double)calls * now_us;
  sum->saved_us += (double)calls * saved_us;
}

static void size_judge(struct report* report, struct report_size* size) {
  const uint64_t calls = size->calls.eager + size->calls.captured;
  for (int form = 0; form < REPORT_FORMS; ++form) {
    const arfusionRequest_t request = request_of(report, size, (enum report_form)form);
    route_select(&report->facts->route, &request, &size->form[form].route);
  }
  estimate(report, size);
  for (int form = 0; form < REPORT_FORMS; ++form) {
    const arfusionRoute_t* route = &size->form[form].route;
    if (route->algorithm == arfusionAlgoNone) {
      report->form[form].reasons[route->reason] += calls;
      continue;
    }
    report->form[form].taken[route->algorithm] += calls;
    sum_add(&report->form[form].eager, size->calls.eager, size->form[form].now_us, size->form[form].saved_us);
    sum_add(&report->form[form].captured, size->calls.captured, size->form[form].now_us, size->form[form].saved_us);
  }
  report->eager += size->calls.eager;
  report->captured += size->calls.captured;
  if (size->fusible) report->fusible += calls;
}

/* ---------------------------------------------------------------- the report */

static int compare_sizes(const void* left, const void* right) {
  const struct profiler_size *a = &((const struct report_size*)left)->calls,
                             *b = &((const struct report_size*)right)->calls;
  const uint64_t a_calls = a->eager + a->captured, b_calls = b->eager + b->captured;
  if (a_calls != b_calls) return a_calls < b_calls ? 1 : -1;
  if (a->type != b->type) return a->type < b->type ? -1 : 1;
  return (a->count > b->count) - (a->count < b->count);
}

static void sizes_take(struct report* report, const struct profiler_size* sizes) {
  for (int i = 0; i < report->nsizes; ++i) {
    struct report_size* size = &report->sizes[i];
    size->calls = sizes[i];
    size->fusible = shape_is_fusible(&sizes[i]);
    if (sizes[i].type != PROFILER_TYPE_UNKNOWN) {
      size->bytes = (int64_t)sizes[i].count * request_element_size(sizes[i].type);
    }
    if (!size->fusible) continue;
    int64_t* divisor = &report->divides[sizes[i].type];
    *divisor = greatest_divisor((int64_t)sizes[i].count, *divisor);
  }
}

int report_make(struct report* report, const struct profiler_facts* facts, struct profiler_calls* calls) {
  struct profiler_size* sizes = malloc(PROFILER_SIZES * sizeof *sizes);
  memset(report, 0, sizeof *report);
  report->facts = facts;
  if (!sizes) return -1;
  report->nsizes = profiler_calls_read(calls, sizes);
  report->others = atomic_load(&calls->others);
  report->overflow = atomic_load(&calls->overflow);
  report->sizes = calloc((size_t)report->nsizes + 1, sizeof *report->sizes);
  if (!report->sizes) {
    free(sizes);
    return -1;
  }
  sizes_take(report, sizes);
  free(sizes);
  for (int i = 0; i < report->nsizes; ++i) size_judge(report, &report->sizes[i]);
  qsort(report->sizes, (size_t)report->nsizes, sizeof *report->sizes, compare_sizes);
  return 0;
}

void report_free(struct report* report) { free(report->sizes); }
