/* SPDX-License-Identifier: Apache-2.0
 *
 * tune_choose.c: a routing table from measured times; see tune.h.
 *
 * The choice is the cheapest path through the sizes, where a size costs how much slower its algorithm is than the
 * fastest one there, up to MOST: a single wild time must not decide. A change of algorithm costs CHANGE.
 */
#include <math.h>
#include <stdlib.h>

#include "plugin/tools/bench/bench.h"
#include "plugin/tools/bench/tune.h"

#define CHANGE 0.10
#define MOST 0.50
#define ALTERNATIVE_GAIN 0.05
#define HELD 2 /* sizes */

enum { NONE = -1, FIRST, LATER /* whether a size is the first one of its algorithm */, PLACES };

/* The cheapest way to one size that takes one algorithm there. */
struct way {
  double cost;
  int before; /* the algorithm of the size before this one */
  int place;  /* there: FIRST or LATER */
};

struct step {
  struct way to[ARFUSION_NUM_ALGORITHMS][PLACES];
};

static void usable_algorithms(const struct tune_point* points, int count, int usable[ARFUSION_NUM_ALGORITHMS]) {
  for (int a = 0; a < ARFUSION_NUM_ALGORITHMS; a++) {
    usable[a] = a >= arfusionAlgoOneshotLamport;
    for (int i = 0; i < count; i++) usable[a] = usable[a] && points[i].us[a] > 0;
  }
}

static double fastest(const struct tune_point* point, const int usable[ARFUSION_NUM_ALGORITHMS]) {
  double us = INFINITY;
  for (int a = 0; a < ARFUSION_NUM_ALGORITHMS; a++) {
    if (usable[a]) us = fmin(us, point->us[a]);
  }
  return us;
}

static void consider(struct way* way, double cost, int before, int place) {
  if (cost < way->cost) *way = (struct way){.cost = cost, .before = before, .place = place};
}

/* All ways to one size; `previous` is NULL at the first one. */
static void step_fill(struct step* step, const struct step* previous, const struct tune_point* point,
                      const int usable[ARFUSION_NUM_ALGORITHMS], double change) {
  double best = fastest(point, usable);
  for (int a = 0; a < ARFUSION_NUM_ALGORITHMS; a++) {
    for (int place = FIRST; place < PLACES; place++) step->to[a][place] = (struct way){.cost = INFINITY};
    if (!usable[a]) continue;
    double cost = fmin(point->us[a] / best - 1, MOST);
    if (previous == NULL) {
      consider(&step->to[a][FIRST], cost, NONE, NONE);
      continue;
    }
    for (int place = FIRST; place < PLACES; place++) {
      consider(&step->to[a][LATER], previous->to[a][place].cost + cost, a, place);
    }
    for (int b = 0; b < ARFUSION_NUM_ALGORITHMS; b++) {
      if (b != a) consider(&step->to[a][FIRST], previous->to[b][LATER].cost + change + cost, b, LATER);
    }
  }
}

/* chosen[i]: the algorithm of size i. Returns the number of segments. */
static int cheapest_path(const struct tune_point* points, int count, const int usable[ARFUSION_NUM_ALGORITHMS],
                         double change, struct step* steps, int* chosen) {
  int algorithm = NONE, place = count < HELD ? FIRST : LATER, segments = 1;
  for (int i = 0; i < count; i++) {
    step_fill(&steps[i], i > 0 ? &steps[i - 1] : NULL, &points[i], usable, change);
  }
  for (int a = 0; a < ARFUSION_NUM_ALGORITHMS; a++) {
    double cost = steps[count - 1].to[a][place].cost;
    if (cost < INFINITY && (algorithm == NONE || cost < steps[count - 1].to[algorithm][place].cost)) algorithm = a;
  }
  for (int i = count - 1; i >= 0; i--) {
    struct way way = steps[i].to[algorithm][place];
    chosen[i] = algorithm;
    segments += i > 0 && way.before != algorithm;
    algorithm = way.before;
    place = way.place;
  }
  return segments;
}

/* Between two sizes the border is where they are equally many times away. */
static void fill_segments(const struct tune_point* points, int count, const int* chosen, struct route_table* table) {
  int segment = 0;
  for (int i = 0; i < count; i++) {
    if (i + 1 < count && chosen[i + 1] == chosen[i]) continue;
    table->automatic[segment].algorithm = (arfusionAlgorithm_t)chosen[i];
    table->automatic[segment].up_to_bytes =
        i + 1 < count ? (int64_t)sqrt((double)points[i].bytes * (double)points[i + 1].bytes) : INT64_MAX;
    segment++;
  }
}

static int64_t alternative_from(const struct tune_point* points, int count, const int* chosen) {
  int first = count;
  while (first > 0) {
    const struct tune_point* point = &points[first - 1];
    double faster = point->us[chosen[first - 1]] * (1 - ALTERNATIVE_GAIN);
    if (point->alternative_us <= 0 || point->alternative_us > faster) break;
    first--;
  }
  return count - first < HELD ? INT64_MAX : points[first].bytes;
}

int tune_choose(const struct tune_point* points, int count, struct route_table* table) {
  int usable[ARFUSION_NUM_ALGORITHMS], some = 0, failed = -1;
  struct step* steps = calloc((size_t)count, sizeof(*steps));
  int* chosen = calloc((size_t)count, sizeof(*chosen));
  usable_algorithms(points, count, usable);
  for (int a = 0; a < ARFUSION_NUM_ALGORITHMS; a++) some |= usable[a];
  if (count > 0 && some && steps != NULL && chosen != NULL) {
    double change = CHANGE;
    while (cheapest_path(points, count, usable, change, steps, chosen) > ROUTE_MAX_SEGMENTS) change *= 2;
    *table = (struct route_table){.slower_from_bytes = alternative_from(points, count, chosen)};
    fill_segments(points, count, chosen, table);
    failed = 0;
  }
  free(chosen);
  free(steps);
  return failed;
}

/* ---------------------------------------------------------------- the file */

static void write_bytes(FILE* file, const char* key, int64_t bytes, const char* without_end) {
  if (bytes == INT64_MAX) {
    fprintf(file, "%s %s", key, without_end);
  } else {
    fprintf(file, "%s %lld", key, (long long)bytes);
  }
}

void tune_write(FILE* file, const char* arch, const char* gpu, int nranks, const struct route_table* table) {
  fprintf(file, "%s %d\narch %s\n", TUNING_FORMAT, TUNING_VERSION, arch);
  if (gpu != NULL) fprintf(file, "gpu %s\n", gpu);
  fprintf(file, "ranks %d\n", nranks);
  for (int i = 0; i == 0 || table->automatic[i - 1].up_to_bytes != INT64_MAX; i++) {
    write_bytes(file, "up_to", table->automatic[i].up_to_bytes, "unlimited");
    fprintf(file, " %s\n", bench_algorithm_name(table->automatic[i].algorithm));
  }
  write_bytes(file, "slower_from", table->slower_from_bytes, "never");
  fprintf(file, "\n");
}
