/* SPDX-License-Identifier: Apache-2.0
 *
 * output.h: the file that a sub-command writes its results to: opened before anything is measured, and emptied only
 * when there is something better.
 */
#ifndef ARFUSION_BENCH_OUTPUT_H_
#define ARFUSION_BENCH_OUTPUT_H_

#include <stddef.h>

struct output {
  const char* path; /* NULL: there is none */
  int fd, created;
};

/* 0, or -1 after one line about it. */
int output_open(struct output* output, const char* path);

/* Writes the text if `result` is BENCH_EQUAL; else a file that was not there before is not there again. Returns
 * `result`, or BENCH_FAILED after one line about it. */
int output_close(struct output* output, int result, const char* text, size_t bytes);

#endif
