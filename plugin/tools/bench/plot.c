/* SPDX-License-Identifier: Apache-2.0
 *
 * plot.c: the sub-command `plot`.
 */
#include "plugin/tools/bench/plot.h"

#include <argp.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/tools/bench/bench.h"

struct plot_options {
  char** files; /* of argv */
  int nfiles;
  const char* output;
};

static const struct argp_option option_table[] = {{"output", 'o', "FILE", 0, "The SVG file to write", 0}, {0}};

static error_t parse_option(int key, char* text, struct argp_state* state) {
  struct plot_options* options = state->input;
  switch (key) {
    case 'o': options->output = text; return 0;
    case ARGP_KEY_ARGS: /* all that are no options */
      options->files = state->argv + state->next;
      options->nfiles = state->argc - state->next;
      return 0;
    case ARGP_KEY_END:
      if (options->nfiles == 0) argp_error(state, "a document of perf is needed");
      if (options->output == NULL) argp_error(state, "--output FILE is needed");
      return 0;
    default: return ARGP_ERR_UNKNOWN;
  }
}

static const struct argp parser = {
    .options = option_table,
    .parser = parse_option,
    .args_doc = "FILE.json...",
    .doc =
        "Draws what `perf --json` wrote: time against tokens, a panel for each hidden, a curve for each path.\v"
        "Several documents are drawn together if they agree in data type, ranks and pattern; the machine that is named "
        "is the first one's. Of each path the graph with dependent launch is drawn, or what is nearest to it. Needs "
        "gnuplot. Exit code: 0, or 2 for an error."};

static int write_file(const char* name, const char* data, size_t bytes) {
  FILE* file = fopen(name, "w");
  if (file == NULL) return bench_fail("%s: %s", name, strerror(errno));
  int failed = fwrite(data, 1, bytes, file) != bytes;
  failed |= fclose(file) != 0;
  return failed ? bench_fail("%s: %s", name, strerror(errno)) : BENCH_EQUAL;
}

static int draw(const struct plot_data* data, const char* output) {
  char *script = NULL, *svg = NULL;
  size_t script_bytes = 0, svg_bytes = 0;
  int result = BENCH_FAILED;
  FILE* stream = open_memstream(&script, &script_bytes);
  if (stream == NULL) return bench_fail("out of memory");
  plot_write_script(data, stream);
  if (fclose(stream) != 0) {
    bench_fail("out of memory");
  } else if (plot_run_gnuplot(script, script_bytes, &svg, &svg_bytes) == 0) {
    result = write_file(output, svg, svg_bytes);
  }
  free(svg);
  free(script);
  return result;
}

int plot_main(int argc, char** argv) {
  struct plot_options options = {0};
  struct plot_data data = {0};
  int failed = 0, result = BENCH_FAILED;
  if (argp_parse(&parser, argc, argv, 0, NULL, &options) != 0) return BENCH_FAILED;
  for (int i = 0; i < options.nfiles && !failed; i++) failed = plot_load(&data, options.files[i]);
  if (!failed && plot_arrange(&data) == 0) result = draw(&data, options.output);
  plot_free(&data);
  return result;
}
