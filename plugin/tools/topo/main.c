/* SPDX-License-Identifier: Apache-2.0
 *
 * main.c: arfusion-topo: what the GPUs of a machine can do for each other, how that is known, and what is broken.
 */
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plugin/tools/topo/decide.h"
#include "plugin/tools/topo/doctor.h"
#include "plugin/tools/topo/export.h"
#include "plugin/tools/topo/json.h"
#include "plugin/tools/topo/probe.h"
#include "plugin/tools/topo/text.h"
#include "plugin/tools/topo/tool.h"
#include "topo/one_line.h"

/* Looked for by libc, from which everything else here is hidden. */
__attribute__((visibility("default"))) const char* argp_program_version = "arfusion-topo " ARFUSION_VERSION;

static const char* const command_names[] = {"overview", "doctor", "probe", "export"};

enum { OPTION_JSON = 256, OPTION_REDACT, OPTION_HWLOC_XML, OPTION_NCCL_XML, OPTION_PAIR };

static const struct argp_option option_table[] = {
    {"json", OPTION_JSON, NULL, 0, "Print one JSON document (plugin/tools/topo/SCHEMA.md describes it)", 0},
    {"hwloc-xml", OPTION_HWLOC_XML, "FILE", 0, "Read the machine from hwloc's XML (lstopo FILE.xml)", 0},
    {"nccl-xml", OPTION_NCCL_XML, "FILE", 0, "Read the machine from NCCL's topology XML (NCCL_TOPO_DUMP_FILE)", 0},
    {"redact", OPTION_REDACT, NULL, 0, "Leave out UUIDs, serial numbers, host hashes and the host's name", 0},
    {"format", 'f', "FORMAT", 0, "Of export: hwloc-xml, nccl-xml, dot or svg", 0},
    {"output", 'o', "FILE", 0, "Of export: where to write to in place of stdout", 0},
    {"pair", OPTION_PAIR, "BUS-ID,BUS-ID", OPTION_HIDDEN, NULL, 0},
    {0}};

/* ---------------------------------------------------------------- options */

static void parse_command(struct tool_options* options, char* text, struct argp_state* state) {
  text_one_line(text);
  if (state->arg_num > 0) argp_error(state, "%s: one command at a time", text);
  for (int i = TOOL_DOCTOR; i <= TOOL_EXPORT; i++) {
    if (strcmp(text, command_names[i]) == 0) options->command = (enum tool_command)i;
  }
  if (options->command == TOOL_OVERVIEW)
    argp_error(state, "unknown command %s; there are doctor, probe and export", text);
}

static void check_options(const struct tool_options* options, struct argp_state* state) {
  int offline = options->hwloc_xml != NULL || options->nccl_xml != NULL;
  if (options->hwloc_xml != NULL && options->nccl_xml != NULL)
    argp_error(state, "--hwloc-xml and --nccl-xml: one file at a time");
  if (options->command == TOOL_PROBE && offline)
    argp_error(state, "probe measures this machine: it takes no --hwloc-xml or --nccl-xml");
  if (options->command == TOOL_EXPORT && options->format == TOOL_FORMAT_NONE) {
    argp_error(state, "export needs --format hwloc-xml, nccl-xml, dot or svg");
  }
  if (options->command != TOOL_EXPORT && (options->format != TOOL_FORMAT_NONE || options->output != NULL)) {
    argp_error(state, "--format and --output belong to export");
  }
}

static error_t parse_option(int key, char* text, struct argp_state* state) {
  struct tool_options* options = state->input;
  char* comma;
  switch (key) {
    case OPTION_JSON: options->json = 1; return 0;
    case OPTION_REDACT: options->redact = 1; return 0;
    case OPTION_HWLOC_XML: options->hwloc_xml = text; return 0;
    case OPTION_NCCL_XML: options->nccl_xml = text; return 0;
    case 'f':
      text_one_line(text);
      options->format = export_format_parse(text);
      if (options->format == TOOL_FORMAT_NONE)
        argp_error(state, "--format %s: there are hwloc-xml, nccl-xml, dot and svg", text);
      return 0;
    case 'o': options->output = text; return 0;
    case OPTION_PAIR:
      text_one_line(text);
      comma = strchr(text, ',');
      if (comma == NULL) argp_error(state, "--pair %s: expected two bus ids with a comma", text);
      *comma = '\0';
      options->pair[0] = text;
      options->pair[1] = comma + 1;
      return 0;
    case ARGP_KEY_ARG: parse_command(options, text, state); return 0;
    case ARGP_KEY_END: check_options(options, state); return 0;
    default: return ARGP_ERR_UNKNOWN;
  }
}

static const struct argp parser = {
    .options = option_table,
    .parser = parse_option,
    .args_doc = "[doctor|probe|export]",
    .doc =
        "Says which path arfusion takes on this machine and why, and shows the GPUs as nvidia-smi topo -m does.\v"
        "Commands:\n"
        "  doctor  check what has gone wrong on such machines before: what is known, what it means, how to mend it\n"
        "  probe   measure every pair of GPUs (stores, loads, copies, latency) and verify the data\n"
        "  export  write the machine as hwloc XML, NCCL topology XML, or a picture\n"
        "\n"
        "Options may stand before or after the command. What nothing says is NOT OBSERVABLE, never guessed.\n"
        "\n"
        "Exit code: 0 good, 1 degraded, 2 unusable for arfusion's kernels, 3 cannot tell (also after an error), 64 "
        "usage. "
        "export: 0 once it is written."};

/* ---------------------------------------------------------------- running */

static int open_topo(const struct tool_options* options, struct topo** topo) {
  struct topo_error error = {0};
  int failed;
  if (options->hwloc_xml != NULL) {
    failed = topo_read_hwloc_xml(options->hwloc_xml, topo, &error);
  } else if (options->nccl_xml != NULL) {
    failed = topo_read_nccl_xml(options->nccl_xml, topo, &error);
  } else {
    failed = topo_discover_live(TOPO_USE_ALL, topo, &error);
  }
  if (!failed) return 0;
  tool_fail("%s", error.text);
  if (options->json) json_error(command_names[options->command], &error);
  return -1;
}

static int run_command(struct topo* topo, const struct host* host, const struct tool_options* options) {
  struct decision decision;
  decide(topo, host, &decision);
  const struct check_input input = {.topo = topo, .host = host, .decision = &decision};
  switch (options->command) {
    case TOOL_DOCTOR: return doctor_run(&input, options->json);
    case TOOL_EXPORT: return export_run(topo, &decision, options);
    default: break;
  }
  if (options->json) return json_overview(topo, &decision);
  text_overview(topo, &decision);
  return decision.status;
}

static int run(const struct tool_options* options) {
  struct topo* topo;
  struct host host;
  int result, live = options->hwloc_xml == NULL && options->nccl_xml == NULL;
  if (open_topo(options, &topo) != 0) return TOOL_CANNOT_TELL;
  if (options->command == TOOL_PROBE) {
    result = probe_run(topo, options);
  } else if (live && (options->command == TOOL_DOCTOR ? host_read(topo, "", &host) : host_read_settings(&host)) != 0) {
    result = tool_fail("out of memory");
  } else {
    if (options->redact) {
      topo_redact(topo);
      if (live) host_redact(&host);
    }
    result = run_command(topo, live ? &host : NULL, options);
    if (live) host_free(&host);
  }
  topo_free(topo);
  return result;
}

/* The measuring process: its stdout is a pipe to the parent. */
static int run_pair(const struct tool_options* options) {
#if ARFUSION_HAVE_CUDA
  return probe_child_run(options->pair[0], options->pair[1], STDOUT_FILENO);
#else
  return tool_fail("%s and %s cannot be measured: this was built without CUDA", options->pair[0], options->pair[1]);
#endif
}

/* A closed stdin, stdout or stderr would be the number of the next file that is opened, and get or give its contents.
 * Reading from and writing to what stands in for them is an error. */
static void keep_standard_files(void) {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
    if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
      exit(TOOL_CANNOT_TELL);
  }
}

int main(int argc, char** argv) {
  struct tool_options options = {0};
  keep_standard_files();
  argp_err_exit_status = TOOL_USAGE;
  if (argp_parse(&parser, argc, argv, 0, NULL, &options) != 0) return TOOL_USAGE;
  if (options.pair[0] != NULL) return run_pair(&options);
  int result = run(&options);
  errno = 0;
  if (fflush(stdout) != 0 || ferror(stdout)) {
    return tool_fail("cannot write the output%s%s", errno != 0 ? ": " : "", errno != 0 ? strerror(errno) : "");
  }
  return result;
}
