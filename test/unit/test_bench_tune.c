/* SPDX-License-Identifier: Apache-2.0
 *
 * test_bench_tune.c: the routing table that arfusion-bench tune makes of times, that the plugin reads what it writes,
 * and what tune refuses to run.
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

#include "plugin/tools/bench/perf.h"
#include "plugin/tools/bench/tune.h"

#define LAMPORT arfusionAlgoOneshotLamport
#define SYNC arfusionAlgoOneshotSync
#define TWOSHOT arfusionAlgoTwoshot

enum { MOST = 64 };

/* Sizes from 1024 bytes, doubling; each row's times: one-shot Lamport, two-shot, the alternative. */
static int make_points(const double (*us)[3], int count, struct tune_point* points) {
  for (int i = 0; i < count; i++) {
    points[i] = (struct tune_point){.bytes = (int64_t)1024 << i, .alternative_us = us[i][2]};
    points[i].us[LAMPORT] = us[i][0];
    points[i].us[TWOSHOT] = us[i][1];
  }
  return count;
}

#define CHOOSE(table, ...)                                                                      \
  do {                                                                                          \
    static const double us_[][3] = __VA_ARGS__;                                                 \
    struct tune_point points_[MOST];                                                            \
    int count_ = make_points(us_, (int)(sizeof(us_) / sizeof(us_[0])), points_);                \
    assert_int_equal(tune_choose(points_, count_, table), 0);                                   \
  } while (0)

static void expect_one(const struct route_table* table, arfusionAlgorithm_t algorithm) {
  assert_int_equal(table->automatic[0].algorithm, algorithm);
  assert_true(table->automatic[0].up_to_bytes == INT64_MAX);
}

static void expect_two(const struct route_table* table, int64_t border) {
  assert_int_equal(table->automatic[0].algorithm, LAMPORT);
  assert_int_equal(table->automatic[0].up_to_bytes, border);
  assert_int_equal(table->automatic[1].algorithm, TWOSHOT);
  assert_true(table->automatic[1].up_to_bytes == INT64_MAX);
}

static void the_fastest_is_taken_at_each_size(void** state) {
  (void)state;
  struct route_table table;
  CHOOSE(&table, {{2, 3, 9}, {2, 3, 9}, {4, 3, 9}, {8, 5, 9}});
  expect_two(&table, 2896); /* between 2048 and 4096 */
  assert_true(table.slower_from_bytes == INT64_MAX);
  CHOOSE(&table, {{2, 3, 0}, {2, 3, 0}, {2, 3, 0}});
  expect_one(&table, LAMPORT);
  CHOOSE(&table, {{3, 2, 0}});
  expect_one(&table, TWOSHOT);
  assert_true(table.slower_from_bytes == INT64_MAX);
}

static void noise_makes_no_segments(void** state) {
  (void)state;
  struct route_table table;
  /* One size, however bad it looks there. */
  CHOOSE(&table, {{2, 3, 9}, {2, 3, 9}, {30, 3, 9}, {2, 3, 9}, {2, 3, 9}});
  expect_one(&table, LAMPORT);
  CHOOSE(&table, {{30, 3, 9}, {2, 3, 9}, {2, 3, 9}, {2, 3, 9}});
  expect_one(&table, LAMPORT);
  CHOOSE(&table, {{2, 3, 9}, {2, 3, 9}, {2, 3, 9}, {4, 3, 9}});
  expect_one(&table, LAMPORT);
  /* Several sizes that differ by next to nothing: 4 x 1 %. */
  CHOOSE(&table, {{100, 150, 0}, {100, 150, 0}, {101, 100, 0}, {101, 100, 0}, {101, 100, 0}, {101, 100, 0}});
  expect_one(&table, LAMPORT);
  /* But little counts where it lasts: 4 x 3 %. */
  CHOOSE(&table, {{100, 150, 0}, {100, 150, 0}, {103, 100, 0}, {103, 100, 0}, {103, 100, 0}, {103, 100, 0}});
  expect_two(&table, 2896);
  /* A middle part is two changes, and worth it only from 20 % on. */
  CHOOSE(&table, {{100, 150, 0}, {100, 150, 0}, {109, 100, 0}, {109, 100, 0}, {100, 150, 0}, {100, 150, 0}});
  expect_one(&table, LAMPORT);
  CHOOSE(&table, {{100, 150, 0}, {100, 150, 0}, {112, 100, 0}, {112, 100, 0}, {100, 150, 0}, {100, 150, 0}});
  assert_int_equal(table.automatic[1].algorithm, TWOSHOT);
  assert_int_equal(table.automatic[1].up_to_bytes, 11585);
  assert_int_equal(table.automatic[2].algorithm, LAMPORT);
  assert_true(table.automatic[2].up_to_bytes == INT64_MAX);
}

static void there_are_never_more_segments_than_a_table_holds(void** state) {
  (void)state;
  struct tune_point points[40];
  struct route_table table;
  for (int i = 0; i < 40; i++) { /* every two sizes another one: 20 segments */
    points[i] = (struct tune_point){.bytes = (int64_t)1 << i};
    points[i].us[LAMPORT] = i / 2 % 2 ? 1 : 3;
    points[i].us[SYNC] = i / 2 % 2 ? 3 : 1;
  }
  assert_int_equal(tune_choose(points, 40, &table), 0);
  int last = 0;
  while (table.automatic[last].up_to_bytes != INT64_MAX) {
    assert_true(last + 1 < ROUTE_MAX_SEGMENTS);
    assert_true(table.automatic[last].up_to_bytes < table.automatic[last + 1].up_to_bytes);
    last++;
  }
}

static void the_alternative_counts_from_where_it_stays_faster(void** state) {
  (void)state;
  struct route_table table;
  CHOOSE(&table, {{2, 3, 9}, {2, 3, 1}, {4, 6, 9}, {8, 9, 7}, {16, 18, 15}});
  expect_one(&table, LAMPORT);
  assert_int_equal(table.slower_from_bytes, 8192);
  CHOOSE(&table, {{2, 3, 1}, {2, 3, 1}, {4, 6, 1}});
  assert_int_equal(table.slower_from_bytes, 1024);
  CHOOSE(&table, {{2, 3, 9}, {2, 3, 9}, {4, 6, 9}, {8, 9, 9}, {16, 18, 12}}); /* at one size alone */
  assert_true(table.slower_from_bytes == INT64_MAX);
  CHOOSE(&table, {{2, 3, 9}, {2, 3, 9}, {4, 6, 3.9}, {8, 9, 7.8}, {16, 18, 15.7}}); /* by too little */
  assert_true(table.slower_from_bytes == INT64_MAX);
  CHOOSE(&table, {{2, 3, 9}, {2, 3, 9}, {4, 6, 3}, {8, 9, 7}, {16, 18, 0}}); /* not measured at the largest */
  assert_true(table.slower_from_bytes == INT64_MAX);
}

static void what_was_not_measured_everywhere_is_not_taken(void** state) {
  (void)state;
  struct tune_point points[3];
  struct route_table table;
  static const double us[][3] = {{2, 1, 0}, {2, 0, 0}, {2, 1, 0}};
  make_points(us, 3, points);
  assert_int_equal(tune_choose(points, 3, &table), 0);
  expect_one(&table, LAMPORT);
  points[0].us[LAMPORT] = 0;
  assert_int_equal(tune_choose(points, 3, &table), -1);
  assert_int_equal(tune_choose(points, 0, &table), -1);
}

static void the_plugin_reads_what_is_written(void** state) {
  (void)state;
  static const struct route_table tables[] = {
      {.automatic = {{INT64_MAX, LAMPORT}}, .slower_from_bytes = INT64_MAX},
      {.automatic = {{4096, SYNC}, {65536, TWOSHOT}, {INT64_MAX, LAMPORT}}, .slower_from_bytes = 1},
      {.automatic = {{1, LAMPORT}, {2, SYNC}, {3, LAMPORT}, {4, SYNC}, {5, LAMPORT}, {6, SYNC}, {7, LAMPORT},
                     {INT64_MAX, TWOSHOT}},
       .slower_from_bytes = INT64_MAX - 1},
  };
  static const struct tuning_target targets[] = {
      {.gpu = "NVIDIA H200", .compute_major = 9, .nranks = 8}, {.gpu = "host", .nranks = 16}};
  char path[] = "/tmp/arfusion-tune-XXXXXX";
  close(mkstemp(path));
  for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
    for (int t = 0; t < 2; t++) {
      int found = 0;
      struct route_table read;
      char arch[TUNING_ARCH_BYTES];
      FILE* file = fopen(path, "we");
      assert_non_null(file);
      tuning_arch(targets[t].compute_major, targets[t].compute_minor, arch);
      tune_write(file, arch, targets[t].compute_major ? targets[t].gpu : NULL, targets[t].nranks, &tables[i]);
      assert_int_equal(fclose(file), 0);
      assert_int_equal(tuning_read(path, &targets[t], &found, &read), arfusionSuccess);
      assert_true(found);
      assert_true(tuning_equal(&read, &tables[i]));
    }
  }
  unlink(path);
}

static void more_ranks_than_gpus_are_refused(void** state) {
  (void)state;
  const struct bench_session session = {.kind = BENCH_DEVICE_CUDA, .ndev = 2};
  struct perf_plan plan = {.session = &session, .nranks = 2, .dtype = arfusionBfloat16, .hidden = {4096}, .nhidden = 1};
  assert_int_equal(perf_plan_check(&plan), 0);
  plan.nranks = 3;
  assert_int_equal(perf_plan_check(&plan), -1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_fastest_is_taken_at_each_size),
      cmocka_unit_test(noise_makes_no_segments),
      cmocka_unit_test(there_are_never_more_segments_than_a_table_holds),
      cmocka_unit_test(the_alternative_counts_from_where_it_stays_faster),
      cmocka_unit_test(what_was_not_measured_everywhere_is_not_taken),
      cmocka_unit_test(the_plugin_reads_what_is_written),
      cmocka_unit_test(more_ranks_than_gpus_are_refused),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
