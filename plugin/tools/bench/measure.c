/* SPDX-License-Identifier: Apache-2.0
 *
 * measure.c: alternating measurements; see measure.h.
 */
#include "plugin/tools/bench/measure.h"

#include <stdlib.h>

#include "plugin/tools/bench/bench.h"

/* The smallest and the largest of the ranks' values. */
static void over_ranks(struct bench_rank* rank, double value, double* min, double* max) {
  double values[ARFUSION_MAX_RANKS];
  team_all_gather(rank->team, &value, values, sizeof(value));
  *min = *max = values[0];
  for (int r = 1; r < rank->team->nranks; r++) {
    if (values[r] < *min) *min = values[r];
    if (values[r] > *max) *max = values[r];
  }
}

int measure_record(struct bench_rank* rank, enum bench_launch launch, int (*enqueue)(void* arg), void* arg, int count,
                   struct measure_item* item, double* elapsed_us) {
  double elapsed, min;
  item->operations = count;
  if (rank->device->record(rank->device, launch, enqueue, arg, count, &item->batch) != 0) {
    return team_fail(rank->team, "%s", bench_device_error());
  }
  team_barrier(rank->team);
  if (rank->device->replay(rank->device, item->batch, &elapsed) != 0) {
    return team_fail(rank->team, "%s", bench_device_error());
  }
  over_ranks(rank, elapsed, &min, elapsed_us);
  return 0;
}

int measure_fitting(double each_us, double budget_us, int min, int max) {
  double fitting = each_us > 0 ? budget_us / each_us : max;
  if (fitting < min) return min;
  return fitting > max ? max : (int)fitting;
}

int measure_run(struct bench_rank* rank, struct measure_item* items, int count, int rounds, int min_rounds,
                double budget_us) {
  double spent = 0;
  int round = 0;
  for (; round < rounds && (round < min_rounds || spent < budget_us); round++) {
    for (int i = 0; i < count; i++) {
      double elapsed, min, max;
      team_barrier(rank->team);
      if (rank->device->replay(rank->device, items[i].batch, &elapsed) != 0) {
        return team_fail(rank->team, "%s", bench_device_error());
      }
      over_ranks(rank, elapsed, &min, &max);
      items[i].samples[round] = min / items[i].operations;
      spent += max;
    }
  }
  return round;
}

static int compare_doubles(const void* left, const void* right) {
  double a = *(const double*)left, b = *(const double*)right;
  return (a > b) - (a < b);
}

static double percentile(const double* sorted, int count, double fraction) {
  double position = fraction * (count - 1);
  int below = (int)position;
  if (below + 1 >= count) return sorted[count - 1];
  return sorted[below] + (position - below) * (sorted[below + 1] - sorted[below]);
}

struct measure_summary measure_summarize(double* samples, int count) {
  qsort(samples, (size_t)count, sizeof(*samples), compare_doubles);
  return (struct measure_summary){.median = percentile(samples, count, 0.5),
                                  .p10 = percentile(samples, count, 0.1),
                                  .p90 = percentile(samples, count, 0.9)};
}
