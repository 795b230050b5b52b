/* SPDX-License-Identifier: Apache-2.0
 *
 * Documents of `perf` as curves: what is kept of them, in which order, and what gnuplot is told.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "plugin/tools/bench/plot.h"

struct row {
  const char *path, *launch;
  int pdl, tokens, hidden;
  double median;
};

/* Adds the rows to `data`, by way of a file. */
static void load(struct plot_data* data, const struct row* rows, size_t count) {
  char name[] = "/tmp/test_bench_plot_XXXXXX";
  int fd = mkstemp(name);
  assert_true(fd >= 0);
  json_t* measurements = json_array();
  for (size_t i = 0; i < count; i++) {
    json_array_append_new(
        measurements,
        json_pack("{s:i, s:i, s:i, s:s, s:s, s:s, s:s, s:s, s:b, s:f, s:i, s:f, s:s}", "tokens", rows[i].tokens,
                  "hidden", rows[i].hidden, "ranks", 2, "dtype", "bf16", "pattern", "residual_rmsnorm", "quant", "none",
                  "path", rows[i].path, "launch", rows[i].launch, "pdl", rows[i].pdl, "median_us", rows[i].median,
                  "p10_us", 1 /* an integer is a number too */, "p90_us", 1e3, "commit", "0"));
  }
  json_t* document = json_pack("{s:{s:s}, s:o}", "machine", "device", "NVIDIA `H200'", "measurements", measurements);
  assert_int_equal(json_dumpfd(document, fd, 0), 0);
  json_decref(document);
  close(fd);
  int loaded = plot_load(data, name);
  unlink(name);
  assert_int_equal(loaded, 0);
}

#define LOAD(data, rows) load(data, rows, sizeof(rows) / sizeof((rows)[0]))

/* Of a path only the launch nearest to a graph with dependent launch; paths in the legend's order, then sizes. */
static void test_arrange(void** state) {
  (void)state;
  static const struct row first[] = {{"nccl", "graph", 1, 8, 4096, 9},      {"nccl", "graph", 1, 1, 4096, 8},
                                     {"auto", "eager", 1, 1, 4096, 7},      {"auto", "graph", 0, 1, 4096, 6},
                                     {"auto", "graph", 1, 1, 8192, 5},      {"auto", "graph", 1, 1, 4096, 4},
                                     {"flashinfer", "eager", 0, 1, 4096, 3}};
  static const struct row second[] = {{"epilogue", "eager", 1, 1, 4096, 2}, {"epilogue", "graph", 0, 1, 4096, 1}};
  static const struct row expected[] = {{"auto", "graph", 1, 1, 4096, 4},     {"auto", "graph", 1, 1, 8192, 5},
                                        {"nccl", "graph", 1, 1, 4096, 8},     {"nccl", "graph", 1, 8, 4096, 9},
                                        {"epilogue", "graph", 0, 1, 4096, 1}, {"flashinfer", "eager", 0, 1, 4096, 3}};
  struct plot_data data = {0};
  LOAD(&data, first);
  LOAD(&data, second);
  assert_int_equal(plot_arrange(&data), 0);
  assert_int_equal(data.npoints, 6);
  assert_int_equal(data.ranks, 2);
  assert_string_equal(data.device, "NVIDIA `H200'");
  for (int i = 0; i < data.npoints; i++) {
    assert_string_equal(data.points[i].path, expected[i].path);
    assert_string_equal(data.points[i].launch, expected[i].launch);
    assert_int_equal(data.points[i].tokens, expected[i].tokens);
    assert_int_equal(data.points[i].hidden, expected[i].hidden);
    assert_true(data.points[i].median_us == expected[i].median);
  }
  plot_free(&data);
}

static void test_twice(void** state) {
  (void)state;
  static const struct row rows[] = {{"auto", "graph", 1, 1, 4096, 4}};
  struct plot_data data = {0};
  LOAD(&data, rows);
  LOAD(&data, rows);
  assert_int_equal(plot_arrange(&data), -1);
  plot_free(&data);
}

static int count(const char* text, const char* part) {
  int found = 0;
  for (const char* at = strstr(text, part); at != NULL; at = strstr(at + 1, part)) found++;
  return found;
}

/* Two panels, two curves in the first and one in the second, and a legend; nothing in a text ends its quotes. */
static void test_script(void** state) {
  (void)state;
  static const struct row rows[] = {{"auto", "graph", 1, 1, 4096, 4},
                                    {"auto", "graph", 1, 2, 4096, 5},
                                    {"auto", "graph", 1, 1, 8192, 6},
                                    {"it's `ls`", "eager", 0, 1, 4096, 30}};
  struct plot_data data = {0};
  char* script;
  size_t bytes;
  LOAD(&data, rows);
  assert_int_equal(plot_arrange(&data), 0);
  FILE* stream = open_memstream(&script, &bytes);
  plot_write_script(&data, stream);
  fclose(stream);
  assert_int_equal(count(script, "\nset title 'hidden 4096'\nplot $curve0 using 1:2 with linespoints ls 1 notitle, "
                                 "$curve3 using 1:2 with linespoints ls 2 notitle\n"),
                   1);
  assert_int_equal(count(script, "\nset title 'hidden 8192'\nplot $curve2 using 1:2 with linespoints ls 1 notitle\n"),
                   1);
  assert_int_equal(count(script, "\n$curve0 << EOD\n1 4\n2 5\nEOD\n"), 1);
  assert_int_equal(count(script, "\n$curve"), 3);
  assert_int_equal(count(script, "plot 2 with linespoints ls 1 title 'auto: chosen by the plugin', 2 with linespoints "
                                 "ls 2 title 'it?s ?ls? (eager)'\n"),
                   1);
  assert_int_equal(count(script, "bf16, 2 ranks, NVIDIA ?H200?, launched as CUDA graphs'"), 1);
  assert_int_equal(count(script, "layout 2,2"), 1);
  assert_null(strchr(script, '`'));
  free(script);
  plot_free(&data);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_arrange), cmocka_unit_test(test_twice),
                                     cmocka_unit_test(test_script)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
