/* SPDX-License-Identifier: Apache-2.0
 *
 * plot.h: documents of `perf` as curves: for each path and hidden, time against tokens.
 */
#ifndef ARFUSION_BENCH_PLOT_H_
#define ARFUSION_BENCH_PLOT_H_

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

/* One measurement. Texts belong to the document. */
struct plot_point {
  const char *path, *launch;
  int pdl;
  int64_t tokens, hidden;
  double median_us;
};

struct plot_data {
  json_t** documents;
  int ndocuments;
  struct plot_point* points;
  int npoints;
  /* The same of all points: */
  const char *device, *dtype, *pattern, *quant;
  int ranks;
};

/* Adds the measurements of a document to `data`, which starts zeroed. 0, or -1 after one line about what is wrong with
 * the file. plot_free frees all of it, also after an error. */
int plot_load(struct plot_data* data, const char* file);
void plot_free(struct plot_data* data);

/* Leaves each path the way it is launched that is most like a CUDA graph with dependent launch, and sorts the points by
 * path, hidden and tokens. 0, or -1 after one line about it. */
int plot_arrange(struct plot_data* data);

/* Writes a gnuplot script that draws the arranged data as SVG on its standard output. */
void plot_write_script(const struct plot_data* data, FILE* script);

/* Runs gnuplot. 0 with its output in *svg, which the caller frees, or -1 after one line about why not. */
int plot_run_gnuplot(const char* script, size_t script_bytes, char** svg, size_t* svg_bytes);

#endif
