/* SPDX-License-Identifier: Apache-2.0
 *
 * measure.h: times of several kinds of work, alternating in one run so that a noisy moment hits all alike. A sample is
 * one replay of a batch, per operation; of the ranks' elapsed times the smallest counts, since the rank that was
 * launched last has not waited for another's launch.
 */
#ifndef ARFUSION_BENCH_MEASURE_H_
#define ARFUSION_BENCH_MEASURE_H_

#include "plugin/tools/bench/session.h"

#define MEASURE_MAX_ROUNDS 200

struct measure_item {
  struct bench_batch* batch;
  int operations;                     /* of one replay */
  double samples[MEASURE_MAX_ROUNDS]; /* µs an operation; the same on all ranks */
};

struct measure_summary {
  double median, p10, p90;
};

/* Records enqueue(arg) `count` times as an item's batch and replays it once, which also warms it up. *elapsed_us is
 * that replay's time, the largest of the ranks'. 0, or -1 after team_fail. */
int measure_record(struct bench_rank* rank, enum bench_launch launch, int (*enqueue)(void* arg), void* arg, int count,
                   struct measure_item* item, double* elapsed_us);

/* How often something that takes `each_us` fits into `budget_us`, at least `min` and at most `max`. */
int measure_fitting(double each_us, double budget_us, int min, int max);

/* Replays all items in turn, `rounds` times, or fewer (but at least `min_rounds`) once `budget_us` has been spent.
 * Returns the number of rounds, the same on all ranks, or -1 after team_fail. */
int measure_run(struct bench_rank* rank, struct measure_item* items, int count, int rounds, int min_rounds,
                double budget_us);

/* Sorts the samples. Between two samples the percentiles are interpolated. */
struct measure_summary measure_summarize(double* samples, int count);

#endif
