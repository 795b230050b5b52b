/* SPDX-License-Identifier: Apache-2.0
 *
 * demo.c: the sub-command `demo`: the allreduces of real models' steps, and a table of what fusion saves.
 */
#include <argp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "plugin/tools/bench/bench.h"
#include "plugin/tools/bench/demo.h"

#define SILENCE_S 150
#define BAR_WIDTH 30

/* Hidden size and layers as the models' published configurations have them. */
static const struct {
  const char* name;
  int64_t hidden;
  int layers;
} models[] = {{"Llama-3.1-8B", 4096, 32},
              {"Llama-3.1-70B", 8192, 80},
              {"Qwen3-32B", 5120, 64},
              {"DeepSeek-V3", 7168, 61},
              {"gpt-oss-120b", 2880, 36}};
#define MODELS (sizeof(models) / sizeof(models[0]))

static const struct {
  const char* name;
  int64_t tokens;
} phases[] = {{"decode, batch 1", 1}, {"decode, batch 8", 8}, {"decode, batch 64", 64}, {"prefill", 512}};
#define PHASES (sizeof(phases) / sizeof(phases[0]))

struct demo_results {
  const struct demo_plan* plan;
  int bar;  /* stderr is a terminal */
  int done; /* rows */
  struct demo_result rows[MODELS * PHASES];
};

static void draw_bar(const struct demo_results* results) {
  if (!results->bar) return;
  int filled = BAR_WIDTH * results->done / results->plan->count;
  fprintf(stderr, "\r\033[K[%.*s%*s] %d/%d", filled, "##############################", BAR_WIDTH - filled, "",
          results->done, results->plan->count);
  if (results->done < results->plan->count) {
    const struct demo_row* row = &results->plan->rows[results->done];
    fprintf(stderr, " %s, %s", row->model, row->phase);
  }
  fflush(stderr);
}

static void clear_bar(const struct demo_results* results) {
  if (results->bar) fprintf(stderr, "\r\033[K");
}

static int on_result(void* arg, int rank, const void* message) {
  struct demo_results* results = arg;
  const struct demo_result* result = message;
  (void)rank;
  results->rows[result->row] = *result;
  results->done++;
  draw_bar(results);
  return 0;
}

static const char* bits_name(enum demo_bits bits) {
  return bits == DEMO_EQUAL ? "equal" : bits == DEMO_DIFFER ? "DIFFER" : "nccl";
}

/* Returns the exit code. */
static int print_table(const struct demo_results* results) {
  const struct bench_session* session = results->plan->session;
  int on_host = session->kind == BENCH_DEVICE_HOST;
  int exit_code = BENCH_EQUAL;
  printf(
      "%d ranks as processes on %s%s, bf16; median time of one allreduce + residual + RMSNorm%s;\n"
      "unfused is %s, then the epilogue\n\n",
      DEMO_RANKS, on_host ? "the host" : session->properties.name, on_host ? "" : " GPUs",
      on_host ? "" : " in a CUDA graph of the step", on_host ? "the plugin's plain allreduce" : "ncclAllReduce");
  printf("%-14s %-17s %15s  %-15s %11s %14s  %s\n", "model", "phase", "tokens x hidden", "route", "median \302\265s",
         "unfused/fused", "bits");
  for (int i = 0; i < results->plan->count; i++) {
    const struct demo_row* row = &results->plan->rows[i];
    const struct demo_result* result = &results->rows[i];
    char size[32], ratio[32] = "-";
    snprintf(size, sizeof(size), "%lld x %lld", (long long)row->tokens, (long long)row->hidden);
    if (result->unfused_us > 0) snprintf(ratio, sizeof(ratio), "%.2f", result->unfused_us / result->fused_us);
    printf("%-14s %-17s %15s  %-15s %10.2f %14s  %s\n", row->model, row->phase, size,
           bench_algorithm_name(result->algorithm), result->fused_us, ratio, bits_name(result->bits));
    if (result->bits == DEMO_DIFFER) exit_code = BENCH_DIFFER;
  }
  return exit_code;
}

static int run_demo(const struct bench_session* session) {
  struct demo_row rows[MODELS * PHASES];
  for (size_t i = 0; i < MODELS * PHASES; i++) {
    rows[i] = (struct demo_row){.model = models[i / PHASES].name,
                                .phase = phases[i % PHASES].name,
                                .tokens = phases[i % PHASES].tokens,
                                .hidden = models[i / PHASES].hidden,
                                .layers = models[i / PHASES].layers};
  }
  struct demo_plan plan = {.session = session, .rows = rows, .count = MODELS * PHASES};
  struct demo_results results = {.plan = &plan, .bar = isatty(STDERR_FILENO)};
  struct team team = {.nranks = DEMO_RANKS,
                      .silence_s = SILENCE_S,
                      .run_rank = demo_run_rank,
                      .rank_arg = &plan,
                      .on_message = on_result,
                      .message_bytes = sizeof(struct demo_result),
                      .message_arg = &results};
  draw_bar(&results);
  int failed = team_run(&team);
  clear_bar(&results);
  return failed ? BENCH_FAILED : print_table(&results);
}

static error_t parse_option(int key, char* text, struct argp_state* state) {
  if (key != ARGP_KEY_ARG) return ARGP_ERR_UNKNOWN;
  argp_error(state, "%s: unexpected argument", text);
  return 0;
}

static const struct argp parser = {
    .parser = parse_option,
    .doc =
        "Replays the allreduces of real models' decode and prefill steps on two ranks, and prints for each the "
        "route, the median time of one allreduce + residual + RMSNorm, how many times as long the unfused path "
        "takes on the same device, and whether the bits are the reference's. On GPUs where there are two, else on "
        "the host.\v"
        "Bits: equal, DIFFER, or nccl where the plugin turned the row down and NCCL did it. Exit code: 0, 1 if a "
        "row is DIFFER, 2 could not run."};

int demo_main(int argc, char** argv) {
  struct bench_session session;
  if (argp_parse(&parser, argc, argv, 0, NULL, NULL) != 0) return BENCH_FAILED;
  if (bench_session_open(NULL, &session) != 0) return BENCH_FAILED;
  if (session.kind == BENCH_DEVICE_CUDA && session.ndev < DEMO_RANKS) {
    bench_session_close(&session);
    if (bench_session_open("host", &session) != 0) return BENCH_FAILED;
  }
  int result = run_demo(&session);
  bench_session_close(&session);
  return result;
}
