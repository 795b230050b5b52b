/* SPDX-License-Identifier: Apache-2.0
 *
 * tune.c: the sub-command `tune`: measures every algorithm and the alternative, and makes a routing table of the times.
 *
 * The ranks' times are the same on all of them (measure.h), and the parent makes one table of what rank 0 sends, so
 * that there is one table for all.
 */
#include <argp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/tools/bench/bench.h"
#include "plugin/tools/bench/output.h"
#include "plugin/tools/bench/perf.h"
#include "plugin/tools/bench/tune.h"

#define SILENCE_S 150

struct tune_options {
  struct perf_plan plan;
  const char* output;
};

struct tune_results {
  const struct perf_plan* plan;
  struct tune_point* points; /* by rising bytes, the times of shapes of the same size added up */
  int* shapes;               /* of each point */
  int count;
  FILE* text; /* the file to be written, in memory */
};

static const struct argp_option option_table[] = {
    {"output", 'o', "FILE", 0, "Write the table to FILE; default: to standard output, behind the times", 0},
    {"device", 'd', "host|cuda", 0, "Default: CUDA where there is a GPU", 0},
    {"tokens", 't', "N,N,...", 0, "Default: powers of two, to 8192 on GPUs and 256 on the host", 0},
    {"hidden", 'H', "N,N,...", 0, "Default: 4096,8192 on GPUs, 1024,4096 on the host", 0},
    {"dtype", 'T', "bf16|fp16|fp32", 0, "Default: bf16", 0},
    {"ranks", 'n', "N", 0, "Default: 2", 0},
    {0}};

static error_t parse_option(int key, char* text, struct argp_state* state) {
  struct tune_options* options = state->input;
  switch (key) {
    case 'o': options->output = text; return 0;
    case ARGP_KEY_ARG: argp_error(state, "%s: unexpected argument", text); return 0;
    default: return perf_plan_parse(&options->plan, key, text, state);
  }
}

static const struct argp parser = {
    .options = option_table,
    .parser = parse_option,
    .doc =
        "Measures every algorithm, and on GPUs ncclAllReduce with the epilogue, at every size, alternating in one run, "
        "and makes a routing table for this machine and rank count: which algorithm is the fastest up to which size, "
        "and from which size on NCCL is. The plugin reads it where ARFUSION_TUNING_FILE names it.\v"
        "A size is tokens x hidden x the data type's bytes; shapes of one size count together. An algorithm gives way "
        "to another one only if that is faster at two neighbouring sizes or more, by 10 % in sum; NCCL must be 5 % "
        "faster at all sizes from there on. Exit code: 0, or 2 for an error."};

static void fill_plan(struct perf_plan* plan) {
  static const int paths[] = {arfusionAlgoOneshotLamport, arfusionAlgoOneshotSync, arfusionAlgoTwoshot, PATH_UNFUSED};
  static const int64_t gpu_hidden[] = {4096, 8192}, host_hidden[] = {1024, 4096};
  int on_gpu = plan->session->kind == BENCH_DEVICE_CUDA;
  if (plan->ntokens == 0) {
    for (int64_t tokens = 1; tokens <= (on_gpu ? 8192 : 256); tokens *= 2) plan->tokens[plan->ntokens++] = tokens;
  }
  if (plan->nhidden == 0) {
    plan->nhidden = 2;
    memcpy(plan->hidden, on_gpu ? gpu_hidden : host_hidden, sizeof(gpu_hidden));
  }
  for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
    if (paths[i] == PATH_UNFUSED && !on_gpu) continue; /* there is no NCCL to give way to */
    plan->forms[plan->nforms++] = (struct path_form){
        .path = paths[i], .launch = on_gpu ? BENCH_LAUNCH_GRAPH : BENCH_LAUNCH_EAGER, .pdl = on_gpu};
  }
}

/* ---------------------------------------------------------------- results */

/* What goes to standard output and into the file. */
__attribute__((format(printf, 2, 3)))
static void say(struct tune_results* results, const char* fmt, ...) {
  FILE* files[] = {stdout, results->text};
  for (int i = 0; i < 2; i++) {
    va_list args;
    va_start(args, fmt);
    vfprintf(files[i], fmt, args);
    va_end(args);
  }
  fflush(stdout);
}

static void say_head(struct tune_results* results) {
  const struct perf_plan* plan = results->plan;
  const arfusionProperties_t* properties = &plan->session->properties;
  say(results, "# arfusion-bench tune, %s: %s, %d ranks, %s; median \302\265s\n#%16s  %10s", ARFUSION_COMMIT,
      properties->name, plan->nranks, bench_dtype_name(plan->dtype), "tokens x hidden", "bytes");
  for (int i = 0; i < plan->nforms; i++) say(results, "  %15s", path_name(plan->forms[i].path, plan->session->kind));
  say(results, "\n");
}

/* The point of that many bytes, made if there is none. */
static struct tune_point* find_point(struct tune_results* results, int64_t bytes) {
  int at = 0;
  while (at < results->count && results->points[at].bytes < bytes) at++;
  if (at == results->count || results->points[at].bytes != bytes) {
    size_t after = (size_t)(results->count - at);
    memmove(&results->points[at + 1], &results->points[at], after * sizeof(results->points[0]));
    memmove(&results->shapes[at + 1], &results->shapes[at], after * sizeof(results->shapes[0]));
    results->points[at] = (struct tune_point){.bytes = bytes};
    results->shapes[at] = 0;
    results->count++;
  }
  return &results->points[at];
}

/* A path that one shape lacks counts as lacking in all of the size. */
static void add_time(double* sum, double us, int shapes) {
  *sum = us > 0 && (shapes == 0 || *sum > 0) ? *sum + us : 0;
}

static int on_message(void* arg, int rank, const void* data) {
  struct tune_results* results = arg;
  const struct perf_plan* plan = results->plan;
  const struct perf_message* message = data;
  (void)rank;
  if (message->kind == PERF_START && message->no_nccl[0] != '\0') {
    say(results, "# without the times of NCCL, so it never counts as faster: %s\n", message->no_nccl);
  }
  if (message->kind != PERF_SIZE) return 0;
  char size[32];
  int64_t request_bytes = message->tokens * message->hidden * (int64_t)bench_dtype_bytes(plan->dtype);
  struct tune_point* point = find_point(results, request_bytes);
  int* shapes = &results->shapes[point - results->points];
  snprintf(size, sizeof(size), "%lld x %lld", (long long)message->tokens, (long long)message->hidden);
  say(results, "#%16s  %10lld", size, (long long)request_bytes);
  for (int i = 0; i < plan->nforms; i++) {
    double us = message->results[i].summary.median;
    int path = plan->forms[i].path;
    add_time(path == PATH_UNFUSED ? &point->alternative_us : &point->us[path], us, *shapes);
    if (us > 0) {
      say(results, "  %15.2f", us);
    } else {
      say(results, "  %15s", "-");
    }
  }
  say(results, "\n");
  ++*shapes;
  return 0;
}

static void write_table(struct tune_results* results, const struct route_table* table) {
  const struct bench_session* session = results->plan->session;
  const arfusionProperties_t* properties = &session->properties;
  FILE* files[] = {results->text, stdout};
  char arch[TUNING_ARCH_BYTES];
  tuning_arch(properties->computeMajor, properties->computeMinor, arch);
  for (int i = 0; i < 2; i++) {
    tune_write(files[i], arch, properties->isHost ? NULL : properties->name, results->plan->nranks, table);
  }
}

/* ---------------------------------------------------------------- the run */

static int measure(struct tune_results* results) {
  const struct perf_plan* plan = results->plan;
  struct route_table table;
  struct team team = {.nranks = plan->nranks,
                      .silence_s = SILENCE_S,
                      .run_rank = perf_run_rank,
                      .rank_arg = (void*)plan,
                      .on_message = on_message,
                      .message_bytes = sizeof(struct perf_message),
                      .message_arg = results};
  say_head(results);
  if (team_run(&team) != 0) return BENCH_FAILED;
  if (tune_choose(results->points, results->count, &table) != 0) {
    return bench_fail("the plugin has no algorithm for all of these sizes (ARFUSION_DEBUG=info lets it say why)");
  }
  write_table(results, &table);
  return BENCH_EQUAL;
}

/* Measures, and leaves the file's text in *text, to be freed also after a failure. */
static int make_text(const struct perf_plan* plan, char** text, size_t* bytes) {
  size_t sizes = (size_t)plan->ntokens * (size_t)plan->nhidden;
  struct tune_results results = {.plan = plan,
                                 .points = calloc(sizes, sizeof(*results.points)),
                                 .shapes = calloc(sizes, sizeof(*results.shapes)),
                                 .text = open_memstream(text, bytes)};
  int result = BENCH_FAILED;
  if (results.points != NULL && results.shapes != NULL && results.text != NULL) {
    result = measure(&results);
  } else {
    bench_fail("out of memory for %zu sizes", sizes);
  }
  if (results.text != NULL && fclose(results.text) != 0 && result == BENCH_EQUAL) result = bench_fail("out of memory");
  free(results.shapes);
  free(results.points);
  return result;
}

static int run_tune(struct tune_options* options) {
  struct perf_plan* plan = &options->plan;
  char* text = NULL;
  size_t bytes = 0;
  struct output output;
  if (output_open(&output, options->output) != 0) return BENCH_FAILED;
  fill_plan(plan);
  int result = perf_plan_check(plan) == 0 ? make_text(plan, &text, &bytes) : BENCH_FAILED;
  result = output_close(&output, result, text, bytes);
  if (result == BENCH_EQUAL && options->output != NULL) {
    printf("# written: ARFUSION_TUNING_FILE=%s takes it into use\n", options->output);
  }
  free(text);
  return result;
}

int tune_main(int argc, char** argv) {
  struct tune_options options = {.plan = {.nranks = 2, .dtype = arfusionBfloat16}};
  struct bench_session session;
  int result = BENCH_FAILED;
  if (argp_parse(&parser, argc, argv, 0, NULL, &options) != 0) return BENCH_FAILED;
  setenv("ARFUSION_TUNING_FILE", "none", 1); /* what a table says is measured anew, and it may be for other ranks */
  if (bench_session_open(options.plan.device, &session) == 0) {
    options.plan.session = &session;
    result = run_tune(&options);
    bench_session_close(&session);
  }
  return result;
}
