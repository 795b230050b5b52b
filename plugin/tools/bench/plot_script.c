/* SPDX-License-Identifier: Apache-2.0
 *
 * plot_script.c: what gnuplot is to draw: a panel for each hidden, a curve for each path, and the legend in the cell
 * behind the last panel; see plot.h.
 */
#include <ctype.h>
#include <math.h>
#include <string.h>

#include "plugin/tools/bench/plot.h"

#define PANEL_WIDTH 400 /* pixels, as is all that follows */
#define PANEL_HEIGHT 340
#define TITLE_HEIGHT 60
#define MARGIN 1.5 /* beyond the data, a factor on both axes */
#define LABELLED_DECADES 4 /* up to so many get labels at 2 and 5 too */

/* How known paths are drawn and what they are; the others take turns. Colours that colour-blind readers can tell
 * apart. */
static const struct style {
  const char *path, *meaning, *color;
  double width;
  int dash, mark;
} styles[] = {{"auto", "chosen by the plugin", "#0072b2", 4, 1, 7},
              {"oneshot_lamport", NULL, "#56b4e9", 1.5, 2, 6},
              {"oneshot_sync", NULL, "#009e73", 1.5, 2, 4},
              {"twoshot", NULL, "#cc79a7", 1.5, 2, 12},
              {"nccl", "ncclAllReduce, then the epilogue", "#d55e00", 2, 1, 5},
              {"unfused", "plain allreduce, then the epilogue", "#d55e00", 2, 1, 5},
              {"nccl_symmetric", "on symmetric windows", "#e69f00", 2, 1, 9},
              {"epilogue", "without an allreduce", "#808080", 1.5, 3, 2}};
static const struct style others[] = {{NULL, NULL, "#000000", 2, 1, 11},
                                      {NULL, NULL, "#6a3d9a", 2, 1, 13},
                                      {NULL, NULL, "#8b4513", 2, 1, 15}};
#define COUNT(array) (int)(sizeof(array) / sizeof((array)[0]))

/* In quotes, without anything that means something to gnuplot or SVG. */
static void write_text(FILE* script, const char* text) {
  for (; *text != '\0'; text++) {
    fputc(isalnum((unsigned char)*text) || strchr(" _.,+:/()-", *text) != NULL ? *text : '?', script);
  }
}

static int starts_path(const struct plot_data* data, int i) {
  return i == 0 || strcmp(data->points[i].path, data->points[i - 1].path) != 0;
}

static int starts_curve(const struct plot_data* data, int i) {
  return starts_path(data, i) || data->points[i].hidden != data->points[i - 1].hidden;
}

/* The least hidden that is greater than `hidden`; 0: none. */
static int64_t next_hidden(const struct plot_data* data, int64_t hidden) {
  int64_t next = 0;
  for (int i = 0; i < data->npoints; i++) {
    int64_t h = data->points[i].hidden;
    if (h > hidden && (next == 0 || h < next)) next = h;
  }
  return next;
}

/* NULL: the path has none of its own. */
static const struct style* find_style(const char* path) {
  for (int i = 0; i < COUNT(styles); i++) {
    if (strcmp(styles[i].path, path) == 0) return &styles[i];
  }
  return NULL;
}

/* Each path's line style, numbered from 1, and each curve's points in a data block named after its first one. */
static void write_curves(const struct plot_data* data, FILE* script) {
  int npaths = 0, nothers = 0;
  for (int i = 0; i < data->npoints; i++) {
    const struct plot_point* point = &data->points[i];
    if (starts_path(data, i)) {
      const struct style* style = find_style(point->path);
      if (style == NULL) style = &others[nothers++ % COUNT(others)];
      fprintf(script, "set style line %d lc rgb '%s' lw %g dt %d pt %d ps 0.6\n", ++npaths, style->color, style->width,
              style->dash, style->mark);
    }
    if (starts_curve(data, i)) fprintf(script, "$curve%d << EOD\n", i);
    fprintf(script, "%lld %.6g\n", (long long)point->tokens, point->median_us);
    if (i + 1 == data->npoints || starts_curve(data, i + 1)) fprintf(script, "EOD\n");
  }
}

/* One scale for all panels. */
static void write_axes(const struct plot_data* data, FILE* script) {
  double min = data->points[0].median_us, max = min;
  int64_t fewest = data->points[0].tokens, most = fewest;
  for (int i = 1; i < data->npoints; i++) {
    const struct plot_point* point = &data->points[i];
    if (point->median_us < min) min = point->median_us;
    if (point->median_us > max) max = point->median_us;
    if (point->tokens < fewest) fewest = point->tokens;
    if (point->tokens > most) most = point->tokens;
  }
  min /= MARGIN;
  max *= MARGIN;
  fprintf(script, "set logscale x 2\nset logscale y 10\nset xtics 4 nomirror\nset xrange [%.6g:%.6g]\n",
          (double)fewest / MARGIN, (double)most * MARGIN);
  fprintf(script, "set ytics nomirror\nset yrange [%.6g:%.6g]\n", min, max);
  if (max / min > pow(10, LABELLED_DECADES)) return;
  for (int decade = (int)floor(log10(min)) - 1, first = 1; decade <= (int)ceil(log10(max)); decade++) {
    for (int digit = 1; digit <= 5; digit += digit == 1 ? 1 : 3, first = 0) {
      double at = digit * pow(10, decade);
      fprintf(script, "set ytics %s('%.6g' %.6g)\n", first ? "" : "add ", at, at);
    }
  }
}

static void write_panel(const struct plot_data* data, int64_t hidden, FILE* script) {
  int number = 0, curves = 0;
  fprintf(script, "set title 'hidden %lld'\n", (long long)hidden);
  for (int i = 0; i < data->npoints; i++) {
    if (starts_path(data, i)) number++;
    if (!starts_curve(data, i) || data->points[i].hidden != hidden) continue;
    fprintf(script, "%s$curve%d using 1:2 with linespoints ls %d notitle", curves++ > 0 ? ", " : "plot ", i, number);
  }
  fprintf(script, "\n");
}

/* Lines out of sight that have the curves' styles and names. */
static void write_legend(const struct plot_data* data, FILE* script) {
  int number = 0;
  fprintf(script,
          "unset logscale\nunset border\nunset tics\nunset grid\nunset xlabel\nunset ylabel\nunset title\n"
          "set xrange [0:1]\nset yrange [0:1]\nset key left center maxcols 1 Left reverse samplen 3 spacing 1.3\n");
  for (int i = 0; i < data->npoints; i++) {
    const struct plot_point* point = &data->points[i];
    if (!starts_path(data, i)) continue;
    number++;
    fprintf(script, "%s2 with linespoints ls %d title '", number > 1 ? ", " : "plot ", number);
    write_text(script, point->path);
    const struct style* style = find_style(point->path);
    if (style != NULL && style->meaning != NULL) {
      fprintf(script, ": ");
      write_text(script, style->meaning);
    }
    if (strcmp(point->launch, data->points[0].launch) != 0) fprintf(script, " (%s)", point->launch);
    fprintf(script, "'");
  }
  fprintf(script, "\n");
}

void plot_write_script(const struct plot_data* data, FILE* script) {
  int cells = 1, columns = 1; /* one cell for the legend */
  for (int64_t hidden = next_hidden(data, 0); hidden != 0; hidden = next_hidden(data, hidden)) cells++;
  while (columns * columns < cells) columns++;
  int rows = (cells + columns - 1) / columns;
  fprintf(script, "set encoding utf8\nset terminal svg size %d,%d noenhanced font 'sans-serif,13' background 'white'\n",
          columns * PANEL_WIDTH, rows * PANEL_HEIGHT + TITLE_HEIGHT);
  fprintf(script, "set grid lt 1 lc rgb '#dddddd'\nset tmargin 3\nset bmargin 3.5\n");
  fprintf(script, "set xlabel 'tokens'\nset ylabel '\302\265s'\n");
  write_curves(data, script);
  write_axes(data, script);
  fprintf(script, "set multiplot layout %d,%d title '", rows, columns);
  write_text(script, strcmp(data->pattern, "residual_rmsnorm") == 0 ? "allreduce + residual + RMSNorm" : data->pattern);
  if (strcmp(data->quant, "none") != 0) {
    fprintf(script, " + ");
    write_text(script, data->quant);
  }
  fprintf(script, ", ");
  write_text(script, data->dtype);
  fprintf(script, ", %d ranks, ", data->ranks);
  write_text(script, data->device);
  fprintf(script, ", launched %s' font ',16'\n",
          strcmp(data->points[0].launch, "graph") == 0 ? "as CUDA graphs" : "eagerly");
  for (int64_t hidden = next_hidden(data, 0); hidden != 0; hidden = next_hidden(data, hidden)) {
    write_panel(data, hidden, script);
  }
  write_legend(data, script);
  fprintf(script, "unset multiplot\n");
}
