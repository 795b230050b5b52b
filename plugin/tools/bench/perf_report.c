/* SPDX-License-Identifier: Apache-2.0
 *
 * perf_report.c: the table and the document of `perf`; see perf_report.h.
 */
#include "plugin/tools/bench/perf_report.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "plugin/tools/bench/bench.h"

#define LABEL_BYTES 32

/* What the plan's first form, which is auto, is compared with: the same launch of another path. */
static int find_rival(const struct perf_plan* plan, int path) {
  for (int i = 0; i < plan->nforms; i++) {
    const struct path_form* form = &plan->forms[i];
    if (form->path == path && form->launch == plan->forms[0].launch && form->pdl == plan->forms[0].pdl) return i;
  }
  return -1;
}

void perf_report_open(struct perf_report* report, const struct perf_plan* plan) {
  static const int paths[PERF_RIVALS] = {PATH_UNFUSED, PATH_WINDOWS};
  *report = (struct perf_report){.plan = plan, .measurements = json_array()};
  for (int i = 0; i < PERF_RIVALS; i++) {
    report->rivals[i].form = find_rival(plan, paths[i]);
    report->rivals[i].lost = json_array();
  }
}

void perf_report_close(struct perf_report* report) {
  json_decref(report->measurements);
  json_decref(report->host_time);
  for (int i = 0; i < PERF_RIVALS; i++) json_decref(report->rivals[i].lost);
  *report = (struct perf_report){0};
}

/* ---------------------------------------------------------------- the table */

/* A column's head: the path, and what of its launch is not the usual. */
static void form_label(const struct perf_plan* plan, const struct path_form* form, char label[LABEL_BYTES]) {
  int on_gpu = plan->session->kind == BENCH_DEVICE_CUDA;
  snprintf(label, LABEL_BYTES, "%s%s%s", path_name(form->path, plan->session->kind),
           on_gpu && form->launch == BENCH_LAUNCH_EAGER ? " eager" : "", on_gpu && !form->pdl ? " pdl off" : "");
}

static void print_number(double value, int width) {
  if (value > 0) {
    printf("  %*.2f", width, value);
  } else {
    printf("  %*s", width, "-");
  }
}

/* `message` NULL: the head. */
static void print_row(const struct perf_report* report, const struct perf_message* message) {
  const struct perf_plan* plan = report->plan;
  char label[LABEL_BYTES], size[32];
  if (message == NULL) {
    printf("median \302\265s\n%15s  %-15s", "tokens x hidden", "route");
  } else {
    snprintf(size, sizeof(size), "%lld x %lld", (long long)message->tokens, (long long)message->hidden);
    printf("%15s  %-15s", size, bench_algorithm_name(message->results[0].algorithm));
  }
  for (int i = 0; i < plan->nforms; i++) {
    form_label(plan, &plan->forms[i], label);
    int width = strlen(label) > 7 ? (int)strlen(label) : 7;
    if (message == NULL) {
      printf("  %*s", width, label);
    } else {
      print_number(message->results[i].summary.median, width);
    }
  }
  int rival = report->rivals[0].form;
  if (rival >= 0) {
    int width = snprintf(label, sizeof(label), "%s / auto", path_name(plan->forms[rival].path, plan->session->kind));
    if (message == NULL) {
      printf("  %*s", width, label);
    } else {
      double own = message->results[0].summary.median;
      print_number(own > 0 ? message->results[rival].summary.median / own : 0, width);
    }
  }
  printf("\n");
  fflush(stdout);
}

/* ---------------------------------------------------------------- messages */

static void take_size(struct perf_report* report, const struct perf_message* message) {
  const struct perf_plan* plan = report->plan;
  double own = message->results[0].summary.median;
  if (report->rows++ == 0) print_row(report, NULL);
  print_row(report, message);
  for (int i = 0; i < plan->nforms; i++) {
    const struct path_form* form = &plan->forms[i];
    const struct measure_summary* summary = &message->results[i].summary;
    if (summary->median <= 0) continue;
    json_array_append_new(
        report->measurements,
        json_pack("{s:I, s:I, s:i, s:s, s:s, s:s, s:s, s:s, s:b, s:f, s:f, s:f, s:s}", "tokens",
                  (json_int_t)message->tokens, "hidden", (json_int_t)message->hidden, "ranks", plan->nranks, "dtype",
                  bench_dtype_name(plan->dtype), "pattern", "residual_rmsnorm", "quant",
                  bench_quant_name(plan->quantization), "path", path_name(form->path, plan->session->kind), "launch",
                  form->launch == BENCH_LAUNCH_GRAPH ? "graph" : "eager", "pdl", form->pdl, "median_us",
                  summary->median, "p10_us", summary->p10, "p90_us", summary->p90, "commit", ARFUSION_COMMIT));
  }
  for (int i = 0; i < PERF_RIVALS; i++) {
    int form = report->rivals[i].form;
    double rival = form >= 0 ? message->results[form].summary.median : 0;
    if (own <= 0 || rival <= 0) continue;
    report->rivals[i].compared++;
    if (own < rival) continue;
    json_array_append_new(report->rivals[i].lost, json_sprintf("%lld x %lld", (long long)message->tokens,
                                                               (long long)message->hidden));
  }
}

void perf_report_take(struct perf_report* report, const struct perf_message* message) {
  switch (message->kind) {
    case PERF_START:
      report->nccl_version = message->nccl_version;
      if (message->no_nccl[0] != '\0') printf("no path nccl: %s\n", message->no_nccl);
      if (message->no_windows[0] != '\0') printf("no path nccl_symmetric: %s\n", message->no_windows);
      return;
    case PERF_SIZE: take_size(report, message); return;
    case PERF_HOST_TIME:
      printf("host time of one eager enqueue: %.2f \302\265s, %.2f \302\265s with dependent launch; of a bare launch "
             "of an empty kernel: %.2f \302\265s\n",
             message->enqueue_us, message->dependent_us, message->bare_launch_us);
      report->host_time = json_pack("{s:f, s:f, s:f}", "enqueue_us", message->enqueue_us, "enqueue_dependent_us",
                                    message->dependent_us, "bare_launch_us", message->bare_launch_us);
      return;
  }
}

void perf_report_compare(const struct perf_report* report) {
  const struct perf_plan* plan = report->plan;
  for (int i = 0; i < PERF_RIVALS; i++) {
    int compared = report->rivals[i].compared, lost = (int)json_array_size(report->rivals[i].lost);
    if (compared == 0) continue;
    const char* name = path_name(plan->forms[report->rivals[i].form].path, plan->session->kind);
    if (lost == 0) {
      printf("auto is faster than %s at all %d sizes\n", name, compared);
      continue;
    }
    printf("auto is not faster than %s at %d of %d sizes:", name, lost, compared);
    for (int k = 0; k < lost; k++) {
      printf("%s %s", k > 0 ? "," : "", json_string_value(json_array_get(report->rivals[i].lost, (size_t)k)));
    }
    printf("\n");
  }
}

/* ---------------------------------------------------------------- the document */

/* The processor's name as Linux has it. */
static void cpu_name(char* name, size_t bytes) {
  char line[256];
  FILE* file = fopen("/proc/cpuinfo", "r");
  snprintf(name, bytes, "unknown");
  while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
    const char* colon = strchr(line, ':');
    if (strncmp(line, "model name", 10) != 0 || colon == NULL) continue;
    snprintf(name, bytes, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
    break;
  }
  if (file != NULL) fclose(file);
}

static json_t* describe_machine(const struct perf_report* report) {
  const struct bench_session* session = report->plan->session;
  const arfusionProperties_t* properties = &session->properties;
  struct utsname system;
  char cpu[128], compute[16] = "";
  cpu_name(cpu, sizeof(cpu));
  uname(&system);
  if (!properties->isHost) {
    snprintf(compute, sizeof(compute), "%d.%d", properties->computeMajor, properties->computeMinor);
  }
  json_t* machine =
      json_pack("{s:s, s:i, s:s, s:i, s:I, s:s, s:i, s:s}", "device", properties->name, "devices", session->ndev,
                "compute", compute, "multiprocessors", properties->multiprocessors, "memory_bytes",
                (json_int_t)properties->memoryBytes, "cpu", cpu, "cpus", (int)sysconf(_SC_NPROCESSORS_ONLN), "kernel",
                system.release);
  int nccl = report->nccl_version;
  if (nccl > 0) {
    json_object_set_new(machine, "nccl", json_sprintf("%d.%d.%d", nccl / 10000, nccl / 100 % 100, nccl % 100));
  }
  return machine;
}

json_t* perf_report_document(const struct perf_report* report) {
  return json_pack("{s:o, s:O*, s:O}", "machine", describe_machine(report), "host_time", report->host_time,
                   "measurements", report->measurements);
}
