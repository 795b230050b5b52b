/* SPDX-License-Identifier: Apache-2.0
 *
 * doc_tables.c: what man pages and README.md say of the code, printed by the code: settings, reasons, and what is
 * supported, which is asked of the routing function.
 *
 *   doc_tables roff|markdown TABLE
 */
#include <stdio.h>
#include <string.h>

#include "kernels/op.h"
#include "plugin/core/names.h"
#include "plugin/core/route.h"
#include "plugin/core/settings.h"

enum form { ROFF, MARKDOWN };

/* Roff takes a hyphen for one that a line may be broken at, and a point at the start of a line for a request. */
static void print_text(enum form form, const char* text) {
  for (; *text != '\0'; text++) {
    if (form == ROFF && (*text == '-' || *text == '\\')) putchar('\\');
    putchar(*text);
  }
}

/* ---------------------------------------------------------------- settings */

static void print_values(const struct setting_info* info) {
  switch (info->kind) {
    case SETTING_KIND_STRING: printf("text"); break;
    case SETTING_KIND_CHOICE:
      for (const char* at = info->choices; *at != '\0'; at++) printf("%s", *at == ' ' ? ", " : (char[]){*at, '\0'});
      break;
    case SETTING_KIND_INTEGER:
      printf("%lld to %lld%s%s", (long long)info->min, (long long)info->max, info->unit != NULL ? " " : "",
             info->unit != NULL ? info->unit : "");
      break;
    case SETTING_KIND_BYTES: printf("bytes, also with K, M or G behind the number"); break;
  }
}

static void print_settings(enum form form) {
  if (form == MARKDOWN) printf("| setting | values | default | what it does |\n|---|---|---|---|\n");
  for (int id = 0; id < SETTING_COUNT; id++) {
    const struct setting_info* info = setting_info((enum setting_id)id);
    if (form == MARKDOWN) {
      printf("| %s | ", info->name);
      print_values(info);
      printf(" | %s | %s |\n", info->default_text, info->help);
      continue;
    }
    printf(".TP\n.B %s\n", info->name);
    print_text(form, info->help);
    printf("\nValues: ");
    print_values(info);
    printf(".\n%s%s%s%s", info->default_text[0] != '\0' ? "Default: " : "", info->default_text,
           info->default_text[0] != '\0' ? ".\n" : "", info->agreed ? "Must be equal on all ranks.\n" : "");
  }
}

/* ---------------------------------------------------------------- reasons */

static void print_reasons(enum form form) {
  for (int reason = arfusionReasonNone + 1; reason < ARFUSION_NUM_REASONS; reason++) {
    printf(form == ROFF ? ".TP\n.B %d\n" : "| %d | ", reason);
    print_text(form, name_of_reason((arfusionReason_t)reason));
    printf(form == ROFF ? "\n" : " |\n");
  }
}

/* ---------------------------------------------------------------- what is supported */

enum { ALIGNMENTS = 256, UNLIMITED = 1 << 20 };

static const struct route_facts everything = {
    .nranks = 2,
    .forced = arfusionAlgoAuto,
    .max_request_bytes = INT64_MAX,
    .launch_bytes = {[arfusionAlgoTwoshot] = INT64_MAX},
    .table = {.automatic = {{INT64_MAX, arfusionAlgoTwoshot}}, .slower_from_bytes = INT64_MAX},
};

static int taken(const arfusionRequest_t* request) {
  arfusionRoute_t route = {.size = sizeof route};
  route_select(&everything, request, &route);
  return route.algorithm != arfusionAlgoNone;
}

static arfusionRequest_t request_of(arfusionPattern_t pattern, arfusionDataType_t dtype, arfusionQuant_t quantization) {
  return (arfusionRequest_t){
      .size = sizeof(arfusionRequest_t),
      .pattern = pattern,
      .operation = arfusionSum,
      .dataType = dtype,
      .gammaDataType = dtype,
      .quantization = quantization,
      .groupSize = KERNEL_PACK,
      .tokens = 1,
  };
}

/* "any", "8, 16, ... 65536", or "no": the hidden sizes that are taken. */
static void hidden_sizes(arfusionRequest_t request, char* text, size_t bytes) {
  int64_t step = 0, largest = 0;
  for (request.hidden = 1; request.hidden <= ALIGNMENTS && step == 0; request.hidden++) {
    if (taken(&request)) step = request.hidden;
  }
  if (step == 0) {
    snprintf(text, bytes, "no");
    return;
  }
  for (request.hidden = step; request.hidden <= UNLIMITED && taken(&request); request.hidden += step) {
    largest = request.hidden;
  }
  if (step == 1 && largest == UNLIMITED) {
    snprintf(text, bytes, "any");
  } else {
    snprintf(text, bytes, "%lld, %lld, ... %lld", (long long)step, (long long)(2 * step), (long long)largest);
  }
}

struct column {
  const char* title;
  arfusionPattern_t pattern;
  arfusionQuant_t quantization;
};

/* Every pattern, and after residual_rmsnorm what it looks like with each kind of quantized output. */
static int columns_fill(struct column* columns) {
  int count = 0;
  for (int p = 0; strncmp(name_of_pattern((arfusionPattern_t)p), "unknown", 7) != 0; p++) {
    columns[count++] = (struct column){name_of_pattern((arfusionPattern_t)p), (arfusionPattern_t)p, arfusionQuantNone};
    if (p != arfusionPatternResidualRmsNorm) continue;
    for (int q = arfusionQuantNone + 1; q <= arfusionQuantNvfp4; q++) {
      const arfusionQuant_t quantization = (arfusionQuant_t)q;
      columns[count++] = (struct column){name_of_quantization(quantization), (arfusionPattern_t)p, quantization};
    }
  }
  return count;
}

static void print_operations(void) {
  static const char* const names[] = {"sum", "prod", "max", "min", "avg"};
  arfusionRequest_t request = request_of(arfusionPatternAllReduce, arfusionFloat32, arfusionQuantNone);
  request.hidden = 1;
  for (int operation = arfusionSum; operation <= arfusionAvg; operation++) {
    request.operation = (arfusionRedOp_t)operation;
    printf("%s%s: %s", operation == arfusionSum ? "" : ", ", names[operation], taken(&request) ? "yes" : "no");
  }
}

static void print_gamma_types(void) {
  const char* separator = "";
  for (int gamma = 0; gamma <= arfusionFloat8e5m2; gamma++) {
    arfusionRequest_t request = request_of(arfusionPatternResidualRmsNorm, arfusionBfloat16, arfusionQuantNone);
    request.gammaDataType = (arfusionDataType_t)gamma;
    request.hidden = ALIGNMENTS;
    if (!taken(&request)) continue;
    printf("%s%s", separator, name_of_data_type((arfusionDataType_t)gamma));
    separator = ", ";
  }
}

/* Hidden sizes by data type (those with equal lines in one), pattern and quantization. */
static void print_supported(void) {
  enum { MOST_COLUMNS = 16, CELL = 40 };
  struct column columns[MOST_COLUMNS];
  const int count = columns_fill(columns);
  char lines[arfusionFloat8e5m2 + 1][MOST_COLUMNS * CELL] = {{0}};
  printf("| hidden sizes of |");
  for (int c = 0; c < count; c++) printf(" %s%s |", columns[c].quantization ? "+ " : "", columns[c].title);
  printf("\n|---|");
  for (int c = 0; c < count; c++) printf("---|");
  for (int t = 0; t <= arfusionFloat8e5m2; t++) {
    for (int c = 0; c < count; c++) {
      char cell[CELL];
      hidden_sizes(request_of(columns[c].pattern, (arfusionDataType_t)t, columns[c].quantization), cell, sizeof cell);
      strcat(strcat(lines[t], cell), " | ");
    }
  }
  for (int t = 0; t <= arfusionFloat8e5m2; t++) {
    int shown = 0;
    for (int before = 0; before < t; before++) shown |= strcmp(lines[before], lines[t]) == 0;
    if (shown) continue;
    printf("\n| ");
    for (int same = t; same <= arfusionFloat8e5m2; same++) {
      if (strcmp(lines[same], lines[t]) != 0) continue;
      printf("%s%s", same == t ? "" : ", ", name_of_data_type((arfusionDataType_t)same));
    }
    printf(" | %.*s|", (int)strlen(lines[t]) - 2, lines[t]);
  }
  printf("\n\nOperations: ");
  print_operations();
  printf(". Gamma beside bfloat16: ");
  print_gamma_types();
  printf(".\n");
}

int main(int argc, char** argv) {
  if (argc == 3) {
    const enum form form = strcmp(argv[1], "roff") == 0 ? ROFF : MARKDOWN;
    const char* table = argv[2];
    if (strcmp(table, "settings") == 0) return print_settings(form), 0;
    if (strcmp(table, "reasons") == 0) return print_reasons(form), 0;
    if (strcmp(table, "supported") == 0) return print_supported(), 0;
  }
  fprintf(stderr, "usage: doc_tables roff|markdown settings|reasons|supported\n");
  return 2;
}
