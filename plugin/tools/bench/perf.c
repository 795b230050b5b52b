/* SPDX-License-Identifier: Apache-2.0
 *
 * perf.c: the sub-command `perf`: its options, its table and its JSON document.
 */
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "plugin/tools/bench/bench.h"
#include "plugin/tools/bench/perf.h"

#define SILENCE_S 150

struct perf_options {
  struct perf_plan plan;
  const char* json;
  const char* device;
};

struct perf_results {
  const struct perf_plan* plan;
  json_t* measurements;
  json_t* host_time; /* NULL: not measured on this device */
  int rows;          /* printed so far */
};

static const struct argp_option option_table[] = {
    {"json", 'j', "FILE", 0, "Also write the results to FILE as one JSON document", 0},
    {"device", 'd', "host|cuda", 0, "Default: CUDA where there is a GPU", 0},
    {"tokens", 't', "N,N,...", 0, "Default: powers of two, to 8192 on GPUs and 64 on the host", 0},
    {"hidden", 'H', "N,N,...", 0, "Default: 2880,4096,5120,7168,8192 on GPUs, 4096,7168 on the host", 0},
    {"dtype", 'T', "bf16|fp16|fp32", 0, "Default: bf16", 0},
    {"ranks", 'n', "N", 0, "Default: 2", 0},
    {0}};

/* ---------------------------------------------------------------- options */

static error_t parse_option(int key, char* text, struct argp_state* state) {
  struct perf_options* options = state->input;
  switch (key) {
    case 'j': options->json = text; return 0;
    case 'd':
      if (strcmp(text, "host") != 0 && strcmp(text, "cuda") != 0) argp_error(state, "--device is host or cuda");
      options->device = text;
      return 0;
    case ARGP_KEY_ARG: argp_error(state, "%s: unexpected argument", text); return 0;
    default: return perf_plan_parse(&options->plan, key, text, state);
  }
}

static const struct argp parser = {
    .options = option_table,
    .parser = parse_option,
    .doc =
        "Times allreduce + residual + RMSNorm, size by size, all paths alternating in one run: as the plugin routes "
        "it (auto), with each algorithm that the device has, and unfused (on GPUs ncclAllReduce, on the host the "
        "plugin's plain allreduce, then the epilogue).\v"
        "Each rank is a process with a device of its own. On GPUs a sample is the replay of a CUDA graph of 20 "
        "launches, with dependent launch; of the ranks' times the smallest counts. Exit code: 0, or 2 for an error."};

/* Auto comes first. */
static void default_forms(struct perf_plan* plan) {
  static const int numbers[] = {arfusionAlgoAuto, arfusionAlgoOneshotLamport, arfusionAlgoOneshotSync,
                                arfusionAlgoTwoshot, PATH_UNFUSED};
  int on_gpu = plan->session->kind == BENCH_DEVICE_CUDA;
  for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
    plan->forms[plan->nforms++] = (struct path_form){
        .path = numbers[i], .launch = on_gpu ? BENCH_LAUNCH_GRAPH : BENCH_LAUNCH_EAGER, .pdl = on_gpu};
  }
}

static void default_sizes(struct perf_plan* plan) {
  static const int64_t gpu_hidden[] = {2880, 4096, 5120, 7168, 8192}, host_hidden[] = {4096, 7168};
  int on_host = plan->session->kind == BENCH_DEVICE_HOST;
  if (plan->ntokens == 0) {
    for (int64_t tokens = 1; tokens <= (on_host ? 64 : 8192); tokens *= 2) plan->tokens[plan->ntokens++] = tokens;
  }
  if (plan->nhidden == 0) {
    plan->nhidden = on_host ? 2 : 5;
    memcpy(plan->hidden, on_host ? host_hidden : gpu_hidden, (size_t)plan->nhidden * sizeof(plan->hidden[0]));
  }
}

/* ---------------------------------------------------------------- results */

static void print_row(struct perf_results* results, const struct perf_message* message) {
  const struct perf_plan* plan = results->plan;
  if (results->rows++ == 0) {
    printf("median \302\265s (p10-p90)\n%15s  %-15s", "tokens x hidden", "route");
    for (int i = 0; i < plan->nforms; i++) printf("  %-25s", path_name(plan->forms[i].path, plan->session->kind));
    printf("\n");
  }
  char size[32];
  snprintf(size, sizeof(size), "%lld x %lld", (long long)message->tokens, (long long)message->hidden);
  printf("%15s  %-15s", size, bench_algorithm_name(message->results[0].algorithm));
  for (int i = 0; i < plan->nforms; i++) {
    char cell[48] = "-";
    const struct measure_summary* summary = &message->results[i].summary;
    if (summary->median > 0) {
      snprintf(cell, sizeof(cell), "%.2f (%.2f-%.2f)", summary->median, summary->p10, summary->p90);
    }
    printf("  %-25s", cell);
  }
  printf("\n");
  fflush(stdout);
}

static void add_measurements(struct perf_results* results, const struct perf_message* message) {
  const struct perf_plan* plan = results->plan;
  for (int i = 0; i < plan->nforms; i++) {
    const struct path_form* form = &plan->forms[i];
    const struct measure_summary* summary = &message->results[i].summary;
    if (summary->median <= 0) continue;
    json_array_append_new(
        results->measurements,
        json_pack("{s:I, s:I, s:i, s:s, s:s, s:s, s:s, s:s, s:b, s:f, s:f, s:f, s:s}", "tokens",
                  (json_int_t)message->tokens, "hidden", (json_int_t)message->hidden, "ranks", plan->nranks, "dtype",
                  bench_dtype_name(plan->dtype), "pattern", "residual_rmsnorm", "quant", "none", "path",
                  path_name(form->path, plan->session->kind), "launch",
                  form->launch == BENCH_LAUNCH_GRAPH ? "graph" : "eager", "pdl", form->pdl, "median_us", summary->median,
                  "p10_us", summary->p10, "p90_us", summary->p90, "commit", ARFUSION_COMMIT));
  }
}

static int on_message(void* arg, int rank, const void* data, size_t bytes) {
  struct perf_results* results = arg;
  struct perf_message message;
  if (bytes != sizeof(message)) {
    bench_fail("rank %d sent %zu bytes, which is no result", rank, bytes);
    return -1;
  }
  memcpy(&message, data, sizeof(message));
  if (message.kind == PERF_SIZE) {
    print_row(results, &message);
    add_measurements(results, &message);
  } else {
    printf("host time of one eager enqueue: %.2f \302\265s, %.2f \302\265s with dependent launch; of a bare launch of an "
           "empty kernel: %.2f \302\265s\n",
           message.enqueue_us, message.dependent_us, message.bare_launch_us);
    results->host_time = json_pack("{s:f, s:f, s:f}", "enqueue_us", message.enqueue_us, "enqueue_dependent_us",
                                   message.dependent_us, "bare_launch_us", message.bare_launch_us);
  }
  return 0;
}

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

static json_t* describe_machine(const struct bench_session* session) {
  const arfusionProperties_t* properties = &session->properties;
  struct utsname system;
  char cpu[128], compute[16] = "";
  cpu_name(cpu, sizeof(cpu));
  uname(&system);
  if (!properties->isHost) {
    snprintf(compute, sizeof(compute), "%d.%d", properties->computeMajor, properties->computeMinor);
  }
  return json_pack("{s:s, s:i, s:s, s:i, s:I, s:s, s:i, s:s}", "device", properties->name, "devices", session->ndev,
                   "compute", compute, "multiprocessors", properties->multiprocessors, "memory_bytes",
                   (json_int_t)properties->memoryBytes, "cpu", cpu, "cpus", (int)sysconf(_SC_NPROCESSORS_ONLN),
                   "kernel", system.release);
}

/* Takes over the references in `results`. 0, or -1 with errno set. */
static int write_json(int fd, const struct bench_session* session, struct perf_results* results) {
  json_t* document = json_pack("{s:o, s:o*, s:o}", "machine", describe_machine(session), "host_time",
                               results->host_time, "measurements", results->measurements);
  int cannot_truncate = ftruncate(fd, 0) != 0 && errno != EINVAL; /* EINVAL: a pipe or a device */
  int failed = document == NULL || cannot_truncate ||
               json_dumpfd(document, fd, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) != 0 || write(fd, "\n", 1) != 1;
  json_decref(document);
  return failed ? -1 : 0;
}

static int run_perf(struct perf_options* options, int json_fd) {
  struct perf_plan* plan = &options->plan;
  const struct bench_session* session = plan->session;
  struct perf_results results = {.plan = plan, .measurements = json_array()};
  default_sizes(plan);
  default_forms(plan);
  if (perf_plan_check(plan) != 0) {
    json_decref(results.measurements);
    return BENCH_FAILED;
  }
  struct team team = {.nranks = plan->nranks,
                      .silence_s = SILENCE_S,
                      .run_rank = perf_run_rank,
                      .rank_arg = plan,
                      .on_message = on_message,
                      .message_arg = &results};
  int failed = team_run(&team);
  if (!failed && json_fd >= 0) {
    if (write_json(json_fd, session, &results) == 0) return BENCH_EQUAL;
    return bench_fail("%s: %s", options->json, strerror(errno));
  }
  json_decref(results.host_time);
  json_decref(results.measurements);
  return failed ? BENCH_FAILED : BENCH_EQUAL;
}

int perf_main(int argc, char** argv) {
  struct perf_options options = {.plan = {.nranks = 2, .dtype = arfusionBfloat16}};
  struct bench_session session;
  int json_fd = -1;
  if (argp_parse(&parser, argc, argv, 0, NULL, &options) != 0) return BENCH_FAILED;
  /* Before anything is measured, and without destroying what is there until there is something better. */
  if (options.json != NULL) {
    json_fd = open(options.json, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    if (json_fd < 0) return bench_fail("%s: %s", options.json, strerror(errno));
  }
  int result = BENCH_FAILED;
  if (bench_session_open(options.device, &session) == 0) {
    options.plan.session = &session;
    result = run_perf(&options, json_fd);
    bench_session_close(&session);
  }
  if (json_fd >= 0 && close(json_fd) != 0 && result == BENCH_EQUAL) {
    result = bench_fail("%s: %s", options.json, strerror(errno));
  }
  return result;
}
