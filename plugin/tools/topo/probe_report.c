/* SPDX-License-Identifier: Apache-2.0
 *
 * probe_report.c: what the probe found, as text and as JSON; see probe.h.
 */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "plugin/tools/topo/json.h"
#include "plugin/tools/topo/probe.h"
#include "plugin/tools/topo/text.h"

#define START_LIMIT_MS 30000
#define MEASURE_LIMIT_MS 10000
#define SLOW 0.8 /* of the fastest pair's stores */

static const struct {
  const char *name, *unit, *title;
} metrics[PROBE_METRICS] = {{"stores", "gb_s", "SM stores, GB/s: from the row's GPU into the column's memory"},
                            {"loads", "gb_s", "SM loads, GB/s: by the row's GPU from the column's memory"},
                            {"copies", "gb_s", "Copy engine, GB/s: from the row's memory into the column's"},
                            {"latency", "us", "Flag latency one way, \302\265s: half a round trip between the two"}};

static const char* const state_names[] = {"NOT OBSERVABLE", "OK", "FAIL", "FAIL", "FAIL"};

static double best_stores(const struct probe_results* results) {
  double best = 0;
  for (int from = 0; from < results->ngpus; from++) {
    for (int to = 0; to < results->ngpus; to++) {
      double value = probe_cell(results, PROBE_STORES, from, to)->value;
      if (from != to && value > best) best = value;
    }
  }
  return best;
}

enum tool_status probe_status(const struct probe_results* results) {
  enum tool_status status = results->ngpus < 2 ? TOOL_CANNOT_TELL : TOOL_GOOD;
  double best = best_stores(results);
  for (int from = 0; from < results->ngpus; from++) {
    for (int to = 0; to < results->ngpus; to++) {
      for (int metric = 0; metric < PROBE_METRICS && from != to; metric++) {
        if (probe_cell(results, (enum probe_metric)metric, from, to)->state != PROBE_GOOD) return TOOL_UNUSABLE;
      }
      if (from != to && probe_cell(results, PROBE_STORES, from, to)->value < SLOW * best) status = TOOL_DEGRADED;
    }
  }
  return status;
}

static const char* status_why(enum tool_status status) {
  switch (status) {
    case TOOL_GOOD: return "every pair stores, loads, copies and signals, and all data arrived as they were sent";
    case TOOL_DEGRADED:
      return "all data arrived as they were sent, but some pairs store at less than 80 % of the fastest pair's speed";
    case TOOL_UNUSABLE: return "some measurements failed (below); arfusion's kernels need all of them";
    default: break;
  }
#if ARFUSION_HAVE_CUDA
  return "the probe needs two GPUs that CUDA shows";
#else
  return "this arfusion-topo was built without CUDA, which the probe needs";
#endif
}

/* ---------------------------------------------------------------- text */

static void print_matrix(const struct probe_results* results, enum probe_metric metric) {
  static const char* const words[] = {"?", "", "wrong", "none", "hung"};
  printf("\n%s\n%-8s", metrics[metric].title, "");
  for (int to = 0; to < results->ngpus; to++) printf("GPU%-5d", results->gpus[to]);
  printf("\n");
  for (int from = 0; from < results->ngpus; from++) {
    printf("GPU%-5d", results->gpus[from]);
    for (int to = 0; to < results->ngpus; to++) {
      const struct probe_cell* cell = probe_cell(results, metric, from, to);
      if (from == to) {
        printf("%-8s", "X");
      } else if (cell->state == PROBE_GOOD) {
        printf(metric == PROBE_LATENCY ? "%-8.3f" : "%-8.1f", cell->value);
      } else {
        printf("%-8s", words[cell->state]);
      }
    }
    printf("\n");
  }
}

static void print_failures(const struct probe_results* results) {
  int printed = 0;
  for (int from = 0; from < results->ngpus; from++) {
    for (int to = 0; to < results->ngpus; to++) {
      for (int metric = 0; metric < PROBE_METRICS && from != to; metric++) {
        const struct probe_cell* cell = probe_cell(results, (enum probe_metric)metric, from, to);
        char head[96];
        if (cell->state == PROBE_GOOD) continue;
        if (printed++ == 0) printf("\n");
        snprintf(head, sizeof(head), "FAIL  GPU%d to GPU%d, %s: ", results->gpus[from], results->gpus[to],
                 metrics[metric].name);
        text_wrapped(head, 6, cell->text);
      }
    }
  }
}

static int text_report(const struct topo* topo, const struct probe_results* results, enum tool_status status) {
  char verdict[256];
  snprintf(verdict, sizeof(verdict), "%s: %s.", tool_status_name(status), status_why(status));
  text_wrapped("Probe: ", 7, verdict);
  for (int i = 0; i < results->ngpus; i++) {
    const struct topo_gpu* gpu = &topo->gpus[results->gpus[i]];
    printf("GPU%-4d %s  CUDA %d  %s\n", results->gpus[i], gpu->bus_id, gpu->cuda.value, gpu->name);
  }
  for (int metric = 0; metric < PROBE_METRICS && results->ngpus > 1; metric++) {
    print_matrix(results, (enum probe_metric)metric);
  }
  print_failures(results);
  return status;
}

/* ---------------------------------------------------------------- JSON */

static json_t* pair_value(const struct topo* topo, const struct probe_results* results, int from, int to) {
  json_t* value = json_pack("{s:s, s:s}", "from", topo->gpus[results->gpus[from]].bus_id, "to",
                            topo->gpus[results->gpus[to]].bus_id);
  for (int metric = 0; metric < PROBE_METRICS; metric++) {
    const struct probe_cell* cell = probe_cell(results, (enum probe_metric)metric, from, to);
    json_t* measured =
        json_pack("{s:s, s:o, s:o}", "state", state_names[cell->state], metrics[metric].unit,
                  cell->state == PROBE_GOOD ? json_real(cell->value) : json_null(), "text", json_text(cell->text));
    if (metric != PROBE_LATENCY) {
      json_object_set_new(measured, "words", json_integer((json_int_t)cell->words));
      json_object_set_new(measured, "wrong", json_integer((json_int_t)cell->wrong));
    }
    json_object_set_new(value, metrics[metric].name, measured);
  }
  return value;
}

static int json_report(const struct topo* topo, const struct probe_results* results, enum tool_status status) {
  struct json_document document;
  json_begin(&document, "probe");
  json_machine(&document, topo);
  json_member(&document, "why", json_string(status_why(status)));
  json_array_begin(&document, "pairs");
  for (int from = 0; from < results->ngpus; from++) {
    for (int to = 0; to < results->ngpus; to++) {
      if (from != to) json_array_element(&document, pair_value(topo, results, from, to));
    }
  }
  json_array_finish(&document);
  return json_end(&document, status);
}

int probe_run(struct topo* topo, const struct tool_options* options) {
  const struct probe_plan plan = {.program = "/proc/self/exe",
                                  .start_limit_ms = START_LIMIT_MS,
                                  .measure_limit_ms = MEASURE_LIMIT_MS,
                                  .show_progress = isatty(STDERR_FILENO)};
  struct probe_results results;
  if (probe_measure(topo, &plan, &results) != 0) return tool_fail("out of memory");
  if (options->redact) topo_redact(topo);
  enum tool_status status = probe_status(&results);
  int code = options->json ? json_report(topo, &results, status) : text_report(topo, &results, status);
  probe_free(&results);
  return code;
}
