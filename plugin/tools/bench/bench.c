/* SPDX-License-Identifier: Apache-2.0
 *
 * bench.c: names, errors and the clock; see bench.h.
 */
#include "plugin/tools/bench/bench.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "topo/one_line.h"

int bench_fail(const char* fmt, ...) {
  char text[2048];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof(text), fmt, args);
  va_end(args);
  text_one_line(text);
  fprintf(stderr, "arfusion-bench: %s\n", text);
  return BENCH_FAILED;
}

static const struct {
  const char* name;
  arfusionDataType_t dtype;
} dtypes[] = {{"bf16", arfusionBfloat16}, {"fp16", arfusionFloat16}, {"fp32", arfusionFloat32}};
#define DTYPES (sizeof(dtypes) / sizeof(dtypes[0]))

static const char* const algorithms[ARFUSION_NUM_ALGORITHMS] = {
    [arfusionAlgoAuto] = "auto",
    [arfusionAlgoNone] = "none",
    [arfusionAlgoEmpty] = "empty",
    [arfusionAlgoOneshotLamport] = "oneshot_lamport",
    [arfusionAlgoOneshotSync] = "oneshot_sync",
    [arfusionAlgoTwoshot] = "twoshot"};

static const char* const quantizations[] = {[arfusionQuantNone] = "none",
                                            [arfusionQuantFp8] = "fp8",
                                            [arfusionQuantFp8Token] = "fp8_token",
                                            [arfusionQuantFp8Group] = "fp8_group",
                                            [arfusionQuantNvfp4] = "nvfp4"};
#define QUANTIZATIONS (sizeof(quantizations) / sizeof(quantizations[0]))

int bench_parse_dtype(const char* text, arfusionDataType_t* dtype) {
  for (size_t i = 0; i < DTYPES; i++) {
    if (strcmp(text, dtypes[i].name) != 0) continue;
    *dtype = dtypes[i].dtype;
    return 0;
  }
  return -1;
}

int bench_parse_algorithm(const char* text, arfusionAlgorithm_t* algorithm) {
  for (int i = arfusionAlgoOneshotLamport; i < ARFUSION_NUM_ALGORITHMS; i++) {
    if (strcmp(text, algorithms[i]) != 0) continue;
    *algorithm = (arfusionAlgorithm_t)i;
    return 0;
  }
  return -1;
}

int bench_parse_device(const char* text, const char** device) {
  if (strcmp(text, "host") != 0 && strcmp(text, "cuda") != 0) return -1;
  *device = text;
  return 0;
}

int bench_parse_ranks(const char* text, int* nranks) {
  char* end;
  const long number = strtol(text, &end, 10);
  if (end == text || *end != '\0' || number < 2 || number > ARFUSION_MAX_RANKS) return -1;
  *nranks = (int)number;
  return 0;
}

int bench_parse_quant(const char* text, arfusionQuant_t* quantization) {
  for (size_t i = 0; i < QUANTIZATIONS; i++) {
    if (strcmp(text, quantizations[i]) != 0) continue;
    *quantization = (arfusionQuant_t)i;
    return 0;
  }
  return -1;
}

const char* bench_quant_name(arfusionQuant_t quantization) {
  return (size_t)quantization < QUANTIZATIONS ? quantizations[quantization] : "unknown";
}

const char* bench_dtype_name(arfusionDataType_t dtype) {
  for (size_t i = 0; i < DTYPES; i++) {
    if (dtypes[i].dtype == dtype) return dtypes[i].name;
  }
  return "unknown";
}

size_t bench_dtype_bytes(arfusionDataType_t dtype) { return dtype == arfusionFloat32 ? 4 : 2; }

const char* bench_algorithm_name(arfusionAlgorithm_t algorithm) {
  return (unsigned)algorithm < ARFUSION_NUM_ALGORITHMS ? algorithms[algorithm] : "unknown";
}

double bench_now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}
