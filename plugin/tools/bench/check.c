/* SPDX-License-Identifier: Apache-2.0
 *
 * check.c: the sub-command `check`: case files against the plugin. One communicator for each rank count.
 */
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/tools/bench/bench.h"
#include "plugin/tools/bench/check.h"

#define SILENCE_S 150 /* longer than the plugin's own time limits, so that its explanation comes first */

enum ranks_as { RANKS_AS_FITS, RANKS_AS_PROCESSES, RANKS_AS_THREADS };

struct check_options {
  const char* cases;
  const char* device;
  enum ranks_as ranks_as;
  int nranks; /* 0: each case's own */
  arfusionAlgorithm_t algorithms[ARFUSION_NUM_ALGORITHMS];
  int nalgorithms;
};

struct case_result {
  int reports;
  int lowest_rank; /* whose text is kept */
  enum check_verdict verdict;
  char text[CHECK_REPORT_TEXT];
};

/* What the ranks of the running group have said, and the sums over all groups. */
struct check_results {
  const struct check_group* group;
  struct case_result* cases; /* of the running group */
  int counts[3];             /* by enum check_verdict */
};

static const struct argp_option option_table[] = {
    {"cases", 'c', "FILE", 0, "Case file (required)", 0},
    {"device", 'd', "host|cuda", 0, "Default: CUDA where there is a GPU", 0},
    {"algo", 'a', "NAME", 0, "oneshot_lamport, oneshot_sync, twoshot or all (default)", 0},
    {"ranks-as", 'r', "processes|threads", 0, "Default: processes, or threads where several ranks must share a GPU", 0},
    {"ranks", 'n', "N", 0,
     "Run every case on N ranks; what is expected is then the reference in this program. Default: each case on its own "
     "number of ranks, compared with its digests",
     0},
    {0}};

static error_t parse_option(int key, char* text, struct argp_state* state) {
  struct check_options* options = state->input;
  switch (key) {
    case 'c': options->cases = text; return 0;
    case 'd':
      if (bench_parse_device(text, &options->device) != 0) argp_error(state, "--device is host or cuda");
      return 0;
    case 'a':
      options->nalgorithms = 0;
      if (strcmp(text, "all") == 0) return 0;
      if (bench_parse_algorithm(text, &options->algorithms[0]) != 0) argp_error(state, "unknown algorithm %s", text);
      options->nalgorithms = 1;
      return 0;
    case 'r':
      if (strcmp(text, "processes") == 0) options->ranks_as = RANKS_AS_PROCESSES;
      else if (strcmp(text, "threads") == 0) options->ranks_as = RANKS_AS_THREADS;
      else argp_error(state, "--ranks-as is processes or threads");
      return 0;
    case 'n':
      if (bench_parse_ranks(text, &options->nranks) == 0) return 0;
      argp_error(state, "--ranks %s: expected a number from 2 to %d", text, ARFUSION_MAX_RANKS);
      return 0;
    case ARGP_KEY_END:
      if (options->cases == NULL) argp_error(state, "--cases FILE is required");
      return 0;
    case ARGP_KEY_ARG: argp_error(state, "%s: unexpected argument", text); return 0;
    default: return ARGP_ERR_UNKNOWN;
  }
}

static const struct argp parser = {
    .options = option_table,
    .parser = parse_option,
    .doc =
        "Runs each case of a file on all its ranks, with each algorithm and in every form of the request that must "
        "give the same bytes, and compares the outputs on every rank. A case whose quantization the "
        "plugin does not have is skipped; a route other than the one asked for differs.\v"
        "The last line is the summary. Exit code: 0 equal, 1 some differ, 2 could not run. An operation that waits "
        "longer than ARFUSION_TIMEOUT seconds (here 60 unless it is set) ends the run."};

/* The last rank's report of a case settles it. */
static int on_report(void* arg, int rank, const void* message) {
  struct check_results* results = arg;
  const struct check_report* report = message;
  const struct bench_case* c = results->group->cases[report->index];
  struct case_result* entry = &results->cases[report->index];
  if (report->verdict == CHECK_DIFFERS && (entry->verdict != CHECK_DIFFERS || rank < entry->lowest_rank)) {
    entry->lowest_rank = rank;
    memcpy(entry->text, report->text, sizeof(entry->text));
  }
  if (entry->reports == 0 || report->verdict == CHECK_DIFFERS) entry->verdict = report->verdict;
  if (++entry->reports < c->nranks) return 0;
  if (entry->verdict == CHECK_DIFFERS) printf("%s: %s\n", c->id, entry->text);
  results->counts[entry->verdict]++;
  return 0;
}

/* All cases of one rank count. 0, or -1 after one line about it. */
static int run_group(const struct check_options* options, const struct check_group* group,
                     struct check_results* results) {
  const struct bench_session* session = group->session;
  int nranks = group->cases[0]->nranks;
  int crowded = session->kind == BENCH_DEVICE_CUDA && nranks > session->ndev;
  results->group = group;
  results->cases = calloc((size_t)group->count, sizeof(*results->cases));
  if (results->cases == NULL) {
    bench_fail("out of memory");
    return -1;
  }
  bench_session_prepare(session, nranks);
  struct team team = {
      .nranks = nranks,
      .as_threads = options->ranks_as == RANKS_AS_THREADS || (options->ranks_as == RANKS_AS_FITS && crowded),
      .silence_s = SILENCE_S,
      .run_rank = check_run_rank,
      .rank_arg = (void*)group,
      .on_message = on_report,
      .message_bytes = sizeof(struct check_report),
      .message_arg = results};
  int result = team_run(&team);
  free(results->cases);
  return result;
}

static int run_cases(const struct check_options* options, const struct case_list* list) {
  struct check_results results = {0};
  struct bench_session session;
  int failed = 0;
  const struct bench_case** cases = malloc((size_t)list->count * sizeof(*cases));
  if (cases == NULL) return bench_fail("out of memory");
  if (bench_session_open(options->device, &session) != 0) {
    free(cases);
    return BENCH_FAILED;
  }
  struct check_group group = {.session = &session, .cases = cases, .nalgorithms = options->nalgorithms,
                              .by_reference = options->nranks != 0};
  memcpy(group.algorithms, options->algorithms, sizeof(group.algorithms));
  for (int nranks = 2; nranks <= ARFUSION_MAX_RANKS && !failed; nranks++) {
    group.count = 0;
    for (int i = 0; i < list->count; i++) {
      if (list->cases[i].nranks == nranks) cases[group.count++] = &list->cases[i];
    }
    if (group.count > 0) failed = run_group(options, &group, &results);
  }
  bench_session_close(&session);
  free(cases);
  if (failed) return BENCH_FAILED;
  printf("%d cases: %d equal, %d skipped, %d differ\n", list->count, results.counts[CHECK_EQUAL],
         results.counts[CHECK_SKIPPED], results.counts[CHECK_DIFFERS]);
  return results.counts[CHECK_DIFFERS] > 0 ? BENCH_DIFFER : BENCH_EQUAL;
}

int check_main(int argc, char** argv) {
  struct check_options options = {0};
  struct case_list list;
  char error[512];
  if (argp_parse(&parser, argc, argv, 0, NULL, &options) != 0) return BENCH_FAILED;
  if (options.nalgorithms == 0) {
    for (int i = arfusionAlgoOneshotLamport; i < ARFUSION_NUM_ALGORITHMS; i++) {
      options.algorithms[options.nalgorithms++] = (arfusionAlgorithm_t)i;
    }
  }
  if (case_list_load(options.cases, &list, error, sizeof(error)) != 0) return bench_fail("%s", error);
  for (int i = 0; i < list.count && options.nranks != 0; i++) list.cases[i].nranks = options.nranks;
  int result = run_cases(&options, &list);
  case_list_free(&list);
  return result;
}
