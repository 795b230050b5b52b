/* SPDX-License-Identifier: Apache-2.0
 *
 * bench.h: what the parts of arfusion-bench share: exit codes, the one line that an error is, and the sub-commands.
 */
#ifndef ARFUSION_BENCH_BENCH_H_
#define ARFUSION_BENCH_BENCH_H_

#include "arfusion_plugin.h"

/* What results say they were made with; the build may name the commit. */
#ifndef ARFUSION_COMMIT
#define ARFUSION_COMMIT "unknown"
#endif

/* Exit codes of every sub-command. */
enum bench_exit {
  BENCH_EQUAL = 0,
  BENCH_DIFFER = 1, /* it ran, and bits differ */
  BENCH_FAILED = 2  /* it could not run */
};

/* Prints "arfusion-bench: TEXT" on stderr. Returns BENCH_FAILED. */
int bench_fail(const char* fmt, ...) __attribute__((format(printf, 1, 2)));

/* The names that options, case files and results use. Parsers return 0, or -1 for an unknown text. */
int bench_parse_dtype(const char* text, arfusionDataType_t* dtype);
int bench_parse_algorithm(const char* text, arfusionAlgorithm_t* algorithm); /* one that can be asked for */
int bench_parse_quant(const char* text, arfusionQuant_t* quantization);
int bench_parse_device(const char* text, const char** device); /* *device is then `text` */
int bench_parse_ranks(const char* text, int* nranks);          /* 2 to ARFUSION_MAX_RANKS */
const char* bench_dtype_name(arfusionDataType_t dtype);
const char* bench_quant_name(arfusionQuant_t quantization);
const char* bench_algorithm_name(arfusionAlgorithm_t algorithm);
size_t bench_dtype_bytes(arfusionDataType_t dtype);

/* Microseconds of a clock that only goes forward. */
double bench_now_us(void);

/* Sub-commands: argv[0] is the name to print in --help. */
int check_main(int argc, char** argv);
int demo_main(int argc, char** argv);
int perf_main(int argc, char** argv);
int plot_main(int argc, char** argv);
int tune_main(int argc, char** argv);

#endif
