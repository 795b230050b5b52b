/* SPDX-License-Identifier: Apache-2.0
 *
 * main.c: arfusion-bench: checks and measures the plugin, which it knows only through its ABI and its lookup.
 */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/tools/bench/bench.h"

static const struct {
  const char* name;
  const char* full_name; /* what its own --help and errors are headed with */
  int (*run)(int argc, char** argv);
} commands[] = {{"check", "arfusion-bench check", check_main},
                {"demo", "arfusion-bench demo", demo_main},
                {"perf", "arfusion-bench perf", perf_main},
                {"plot", "arfusion-bench plot", plot_main},
                {"tune", "arfusion-bench tune", tune_main}};

/* Looked for by libc, from which everything else here is hidden. */
__attribute__((visibility("default"))) const char* argp_program_version = "arfusion-bench " ARFUSION_VERSION;

struct arguments {
  int command; /* its index in argv */
};

static error_t parse_option(int key, char* text, struct argp_state* state) {
  struct arguments* arguments = state->input;
  switch (key) {
    case ARGP_KEY_ARG: /* the command; the rest is its own */
      (void)text;
      arguments->command = state->next - 1;
      state->next = state->argc;
      return 0;
    case ARGP_KEY_NO_ARGS: argp_error(state, "a command is needed: check, demo, perf, plot or tune"); return 0;
    default: return ARGP_ERR_UNKNOWN;
  }
}

static const struct argp parser = {
    .parser = parse_option,
    .args_doc = "COMMAND [OPTION...]",
    .doc =
        "Checks and measures the arfusion plugin.\v"
        "Commands (each has --help):\n"
        "  check   compare the plugin's bits with recorded cases\n"
        "  demo    replay the allreduces of real models, with and without fusion\n"
        "  perf    time each algorithm against the unfused path\n"
        "  plot    draw what perf measured\n"
        "  tune    make the plugin's routing table for this machine\n"
        "\n"
        "ARFUSION_PLUGIN names the plugin; ARFUSION_DEVICE=host keeps it off the GPUs; ARFUSION_DEBUG=info lets it "
        "say what it does. Exit code: 0, 1 if bits differ, 2 for an error."};

int main(int argc, char** argv) {
  struct arguments arguments = {0};
  argp_err_exit_status = BENCH_FAILED;
  if (argp_parse(&parser, argc, argv, ARGP_IN_ORDER, NULL, &arguments) != 0) return BENCH_FAILED;
  for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
    char* name = argv[arguments.command];
    if (strcmp(name, commands[i].name) != 0) continue;
    argv[arguments.command] = (char*)commands[i].full_name;
    int result = commands[i].run(argc - arguments.command, argv + arguments.command);
    if (fflush(stdout) != 0 || ferror(stdout)) return bench_fail("cannot write the output");
    return result;
  }
  return bench_fail("unknown command %s; there are check, demo, perf, plot and tune", argv[arguments.command]);
}
