/* SPDX-License-Identifier: Apache-2.0
 *
 * check.h: the cases of one rank count, as a rank runs them: every case with every algorithm in every variant that must
 * give the same bytes. One report a case goes to the parent.
 */
#ifndef ARFUSION_BENCH_CHECK_H_
#define ARFUSION_BENCH_CHECK_H_

#include "plugin/tools/bench/case.h"
#include "plugin/tools/bench/session.h"

#define CHECK_REPORT_TEXT 320

struct check_group {
  const struct bench_session* session;
  const struct bench_case* const* cases; /* all of one rank count */
  int count;
  arfusionAlgorithm_t algorithms[ARFUSION_NUM_ALGORITHMS];
  int nalgorithms;
  int by_reference; /* the ranks are not those of the digests: what is expected is the reference's */
};

enum check_verdict { CHECK_EQUAL, CHECK_SKIPPED, CHECK_DIFFERS };

struct check_report {
  int index; /* of the case in its group */
  enum check_verdict verdict;
  char text[CHECK_REPORT_TEXT]; /* what differs first: algorithm, variant, output, element; or why it was skipped */
};

/* A rank's whole life; `arg` is a struct check_group. For team_run. */
int check_run_rank(struct team_rank* self, void* arg);

#endif
