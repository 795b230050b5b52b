/* SPDX-License-Identifier: Apache-2.0
 *
 * perf.c: the sub-command `perf`: its options and its run.
 */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/tools/bench/bench.h"
#include "plugin/tools/bench/output.h"
#include "plugin/tools/bench/perf_report.h"

#define SILENCE_S 150

/* Of a list of two choices: the first one, the second one. */
#define FIRST 1
#define SECOND 2

struct perf_options {
  struct perf_plan plan;
  const char* json;
  int launches; /* FIRST: graph, SECOND: eager; 0: not said */
  int pdls;     /* FIRST: on, SECOND: off; 0: not said */
};

static const struct argp_option option_table[] = {
    {"json", 'j', "FILE", 0, "Also write the results to FILE as one JSON document", 0},
    {"device", 'd', "host|cuda", 0, "Default: CUDA where there is a GPU", 0},
    {"tokens", 't', "N,N,...", 0, "Default: powers of two, to 8192 on GPUs and 64 on the host", 0},
    {"hidden", 'H', "N,N,...", 0, "Default: 2880,4096,5120,7168,8192 on GPUs, 4096,7168 on the host", 0},
    {"dtype", 'T', "bf16|fp16|fp32", 0, "Default: bf16", 0},
    {"ranks", 'n', "N", 0, "Default: 2", 0},
    {"quant", 'q', "NAME", 0, "With quantized outputs: fp8, fp8_token, fp8_group (of 128) or nvfp4", 0},
    {"launch", 'l', "graph,eager", 0, "Time all paths launched so", 0},
    {"pdl", 'p', "on,off", 0, "Time all paths with dependent launch, without, or both", 0},
    {0}};

/* ---------------------------------------------------------------- options */

/* A list of one or two of two words. Returns their sum of FIRST and SECOND, or 0. */
static int parse_choices(const char* text, const char* first, const char* second) {
  int choices = 0;
  for (;;) {
    size_t length = strcspn(text, ",");
    if (length == strlen(first) && strncmp(text, first, length) == 0) {
      choices |= FIRST;
    } else if (length == strlen(second) && strncmp(text, second, length) == 0) {
      choices |= SECOND;
    } else {
      return 0;
    }
    if (text[length] == '\0') return choices;
    text += length + 1;
  }
}

static error_t parse_option(int key, char* text, struct argp_state* state) {
  struct perf_options* options = state->input;
  switch (key) {
    case 'j': options->json = text; return 0;
    case 'q':
      if (bench_parse_quant(text, &options->plan.quantization) != 0) {
        argp_error(state, "--quant is none, fp8, fp8_token, fp8_group or nvfp4");
      }
      return 0;
    case 'l':
      options->launches = parse_choices(text, "graph", "eager");
      if (options->launches == 0) argp_error(state, "--launch %s: expected graph, eager, or both with a comma", text);
      return 0;
    case 'p':
      options->pdls = parse_choices(text, "on", "off");
      if (options->pdls == 0) argp_error(state, "--pdl %s: expected on, off, or both with a comma", text);
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
        "it (auto), with each algorithm that the device has, unfused (on GPUs ncclAllReduce, plain as nccl and on "
        "registered symmetric windows as nccl_symmetric, on the host the plugin's plain allreduce; then the epilogue), "
        "and the epilogue alone.\v"
        "Each rank is a process with a device of its own. A time is the median of 20 samples; on GPUs a sample is the "
        "replay of a CUDA graph of 20 launches, with dependent launch of the plugin's kernels, and of the ranks' times "
        "the smallest counts. Without --launch and --pdl also auto without dependent launch and, launched eagerly, "
        "auto and nccl. NCCL never uses multicast here (NCCL_NVLS_ENABLE=0). Exit code: 0, or 2 for an error."};

/* What is timed of each size; auto comes first. */
static void set_forms(struct perf_plan* plan, int launches, int pdls) {
  static const int paths[] = {arfusionAlgoAuto,    arfusionAlgoOneshotLamport, arfusionAlgoOneshotSync,
                              arfusionAlgoTwoshot, PATH_UNFUSED,               PATH_WINDOWS,
                              PATH_EPILOGUE};
  static const struct path_form others[] = {{arfusionAlgoAuto, BENCH_LAUNCH_GRAPH, 0},
                                            {arfusionAlgoAuto, BENCH_LAUNCH_EAGER, 1},
                                            {PATH_UNFUSED, BENCH_LAUNCH_EAGER, 1}};
  const int npaths = sizeof(paths) / sizeof(paths[0]), nothers = sizeof(others) / sizeof(others[0]);
  _Static_assert(4 * sizeof(paths) / sizeof(paths[0]) <= PATH_MAX_FORMS, "all paths launched in all ways fit");
  int on_host = plan->session->kind == BENCH_DEVICE_HOST, by_default = !on_host && launches == 0 && pdls == 0;
  if (launches == 0) launches = on_host ? SECOND : FIRST;
  if (pdls == 0) pdls = on_host ? SECOND : FIRST;
  for (int launch = FIRST; launch <= SECOND; launch++) {
    for (int pdl = FIRST; pdl <= SECOND; pdl++) {
      if (!(launches & launch) || !(pdls & pdl)) continue;
      for (int i = 0; i < npaths; i++) {
        if (on_host && paths[i] == PATH_WINDOWS) continue;
        plan->forms[plan->nforms++] = (struct path_form){
            paths[i], launch == FIRST ? BENCH_LAUNCH_GRAPH : BENCH_LAUNCH_EAGER, pdl == FIRST};
      }
    }
  }
  for (int i = 0; by_default && i < nothers; i++) plan->forms[plan->nforms++] = others[i];
}

static void default_sizes(struct perf_plan* plan) {
  static const int64_t gpu_hidden[] = {2880, 4096, 5120, 7168, 8192}, host_hidden[] = {4096, 7168};
  int on_host = plan->session->kind == BENCH_DEVICE_HOST;
  if (plan->ntokens == 0) {
    for (int64_t tokens = 1; tokens <= (on_host ? 64 : 8192); tokens *= 2) plan->tokens[plan->ntokens++] = tokens;
  }
  if (plan->nhidden == 0) {
    const int64_t* hidden = on_host ? host_hidden : gpu_hidden;
    for (int i = 0; i < (on_host ? 2 : 5); i++) {
      if (perf_plan_takes(plan, hidden[i])) plan->hidden[plan->nhidden++] = hidden[i];
    }
  }
}

/* ---------------------------------------------------------------- the run */

static int on_message(void* arg, int rank, const void* message) {
  (void)rank;
  perf_report_take(arg, message);
  return 0;
}

/* The document as text; NULL without memory. */
static char* make_text(const struct perf_report* report) {
  json_t* document = perf_report_document(report);
  char *line = document != NULL ? json_dumps(document, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) : NULL, *text = NULL;
  if (line != NULL && asprintf(&text, "%s\n", line) < 0) text = NULL;
  free(line);
  json_decref(document);
  return text;
}

/* Measures, and leaves the document's text in *text if one is wanted. */
static int run_perf(struct perf_options* options, char** text) {
  struct perf_plan* plan = &options->plan;
  struct perf_report report;
  if (perf_plan_check(plan) != 0) return BENCH_FAILED;
  if (plan->session->kind == BENCH_DEVICE_HOST && (options->launches != 0 || options->pdls != 0)) {
    return bench_fail("--%s: the host device has no choice there", options->launches != 0 ? "launch" : "pdl");
  }
  default_sizes(plan);
  set_forms(plan, options->launches, options->pdls);
  perf_report_open(&report, plan);
  struct team team = {.nranks = plan->nranks,
                      .silence_s = SILENCE_S,
                      .run_rank = perf_run_rank,
                      .rank_arg = plan,
                      .on_message = on_message,
                      .message_bytes = sizeof(struct perf_message),
                      .message_arg = &report};
  int result = team_run(&team) == 0 ? BENCH_EQUAL : BENCH_FAILED;
  if (result == BENCH_EQUAL) perf_report_compare(&report);
  if (result == BENCH_EQUAL && options->json != NULL) {
    *text = make_text(&report);
    if (*text == NULL) result = bench_fail("out of memory");
  }
  perf_report_close(&report);
  return result;
}

int perf_main(int argc, char** argv) {
  struct perf_options options = {.plan = {.nranks = 2, .dtype = arfusionBfloat16}};
  struct bench_session session;
  struct output output;
  char* text = NULL;
  if (argp_parse(&parser, argc, argv, 0, NULL, &options) != 0) return BENCH_FAILED;
  if (output_open(&output, options.json) != 0) return BENCH_FAILED;
  int result = BENCH_FAILED;
  if (bench_session_open(options.plan.device, &session) == 0) {
    options.plan.session = &session;
    result = run_perf(&options, &text);
    bench_session_close(&session);
  }
  result = output_close(&output, result, text, text != NULL ? strlen(text) : 0);
  free(text);
  return result;
}
