/* SPDX-License-Identifier: Apache-2.0
 *
 * perf_report.h: what `perf` prints and writes: a table as it goes, at which sizes the plugin's choice is not the
 * faster one, and one JSON document.
 */
#ifndef ARFUSION_BENCH_PERF_REPORT_H_
#define ARFUSION_BENCH_PERF_REPORT_H_

#include <jansson.h>

#include "plugin/tools/bench/perf.h"

/* What the plugin's choice is compared with: the unfused path, plain and in symmetric windows. */
#define PERF_RIVALS 2

struct perf_report {
  const struct perf_plan* plan;
  json_t* measurements;
  json_t* host_time; /* NULL: not measured on this device */
  int nccl_version;  /* 0: none */
  int rows;          /* printed so far */
  struct {
    int form;     /* its number in the plan; -1: there is none */
    int compared; /* sizes at which both are there */
    json_t* lost; /* those at which it is as fast or faster, as text */
  } rivals[PERF_RIVALS];
};

/* For the plan, whose forms are set. perf_report_close frees what it holds. */
void perf_report_open(struct perf_report* report, const struct perf_plan* plan);
void perf_report_close(struct perf_report* report);

/* Takes a rank's message and prints what is to be printed. */
void perf_report_take(struct perf_report* report, const struct perf_message* message);

/* Prints at which sizes the plugin's choice is not the faster one. */
void perf_report_compare(const struct perf_report* report);

/* A new reference to the document; NULL without memory. */
json_t* perf_report_document(const struct perf_report* report);

#endif
