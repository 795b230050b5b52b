/* SPDX-License-Identifier: Apache-2.0
 *
 * perf_plan.c: the options that say what is measured, for each sub-command that measures; see perf.h.
 */
#include <argp.h>
#include <errno.h>
#include <stdlib.h>

#include "plugin/tools/bench/bench.h"
#include "plugin/tools/bench/perf.h"

/* A list of positive integers, no two of them equal. Returns how many, or -1. */
static int parse_list(const char* text, int64_t max, int64_t list[PERF_MAX_SIZES]) {
  for (int count = 0; count < PERF_MAX_SIZES; text++) {
    char* end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || errno != 0 || value < 1 || value > max) return -1;
    for (int i = 0; i < count; i++) {
      if (list[i] == value) return -1;
    }
    list[count++] = value;
    if (*end == '\0') return count;
    if (*end != ',') return -1;
    text = end;
  }
  return -1;
}

static int parse_sizes(const char* option, const char* text, int64_t max, int64_t list[PERF_MAX_SIZES],
                       const struct argp_state* state) {
  const int count = parse_list(text, max, list);
  if (count < 0) {
    argp_error(state, "--%s %s: expected up to %d different numbers from 1 to %lld, with commas", option, text,
               PERF_MAX_SIZES, (long long)max);
  }
  return count;
}

int perf_plan_parse(struct perf_plan* plan, int key, const char* text, struct argp_state* state) {
  switch (key) {
    case 'd':
      if (bench_parse_device(text, &plan->device) != 0) argp_error(state, "--device is host or cuda");
      return 0;
    case 't':
      plan->ntokens = parse_sizes("tokens", text, 1 << 20, plan->tokens, state);
      return 0;
    case 'H':
      plan->nhidden = parse_sizes("hidden", text, ARFUSION_MAX_HIDDEN, plan->hidden, state);
      return 0;
    case 'T':
      if (bench_parse_dtype(text, &plan->dtype) != 0) argp_error(state, "--dtype is bf16, fp16 or fp32");
      return 0;
    case 'n':
      if (bench_parse_ranks(text, &plan->nranks) != 0) {
        argp_error(state, "--ranks %s: expected a number from 2 to %d", text, ARFUSION_MAX_RANKS);
      }
      return 0;
    default: return ARGP_ERR_UNKNOWN;
  }
}

int perf_plan_takes(const struct perf_plan* plan, int64_t hidden) {
  if (plan->quantization == arfusionQuantFp8Group) return hidden % PATH_GROUP == 0;
  if (plan->quantization == arfusionQuantNvfp4) return hidden % 16 == 0;
  return hidden * (int64_t)bench_dtype_bytes(plan->dtype) % 16 == 0;
}

int perf_plan_check(const struct perf_plan* plan) {
  const struct bench_session* session = plan->session;
  if (session->kind == BENCH_DEVICE_CUDA && plan->nranks > session->ndev) {
    bench_fail("%d ranks, but only %d GPU%s", plan->nranks, session->ndev, session->ndev == 1 ? "" : "s");
    return -1;
  }
  if (plan->quantization == arfusionQuantNvfp4 && plan->dtype == arfusionFloat32) {
    bench_fail("--quant nvfp4: not from fp32");
    return -1;
  }
  for (int i = 0; i < plan->nhidden; i++) {
    if (perf_plan_takes(plan, plan->hidden[i])) continue;
    if (plan->quantization == arfusionQuantFp8Group) {
      bench_fail("--hidden %lld: --quant fp8_group needs a multiple of %d", (long long)plan->hidden[i], PATH_GROUP);
    } else {
      bench_fail("--hidden %lld: rows of %s must be a multiple of 16 %s", (long long)plan->hidden[i],
                 bench_dtype_name(plan->dtype), plan->quantization == arfusionQuantNvfp4 ? "elements" : "bytes");
    }
    return -1;
  }
  return 0;
}
