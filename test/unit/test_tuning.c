/* SPDX-License-Identifier: Apache-2.0
 *
 * test_tuning.c: the tuning file, line by line: what is read, and what is said about everything that is wrong; and the
 * tables that are built in.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "plugin/core/log.h"
#include "plugin/core/tuning.h"
#include "test/unit/support.h"

static char folder[64], path[96];
static const struct tuning_target h200 = {.gpu = "NVIDIA H200", .compute_major = 9, .compute_minor = 0, .nranks = 4};
static const struct tuning_target host = {.gpu = "host", .nranks = 2};

static int set_up(void** state) {
  (void)state;
  log_configure(support_logger, arfusionLogWarn);
  strcpy(folder, "/tmp/arfusion-tuning-XXXXXX");
  if (!mkdtemp(folder)) return -1;
  snprintf(path, sizeof path, "%s/table.txt", folder);
  return 0;
}

static int tear_down(void** state) {
  (void)state;
  unlink(path);
  return rmdir(folder);
}

static void write_bytes(const char* bytes, size_t count) {
  FILE* file = fopen(path, "we");
  assert_non_null(file);
  assert_int_equal(fwrite(bytes, 1, count, file), count);
  assert_int_equal(fclose(file), 0);
}

static void write_text(const char* text) { write_bytes(text, strlen(text)); }

/* The file as it is gives this error, and the table is not touched. */
static void expect_error(const struct tuning_target* target, const char* words) {
  struct route_table table, before;
  memset(&table, 0x5a, sizeof table);
  memcpy(&before, &table, sizeof table);
  int found;
  assert_int_equal(tuning_read(path, target, &found, &table), arfusionInvalidArgument);
  if (!support_text_has(error_last(), words)) fail_msg("'%s' has not '%s'", error_last(), words);
  assert_true(support_text_has(error_last(), "ARFUSION_TUNING_FILE"));
  assert_non_null(strstr(error_last(), path));
  assert_memory_equal(&table, &before, sizeof table);
}

/* The file as it is has a table for `target`. */
static void expect_table(const struct tuning_target* target, struct route_table* table) {
  int found = 0;
  if (tuning_read(path, target, &found, table) != arfusionSuccess) fail_msg("%s", error_last());
  assert_true(found);
}

#define H "arfusion-tuning 1\narch host\nranks 2\n" /* a head that is right */
#define T "up_to unlimited twoshot\nslower_from never\n" /* and the rest */

/* ---------------------------------------------------------------- what is read */

static void a_whole_file_is_read(void** state) {
  (void)state;
  struct route_table table;
  write_text("# made by hand\n\n  arfusion-tuning\t1 \r\n\tarch   sm_90\r\ngpu NVIDIA H200  \n#gpu\n   # ranks 3\n"
             "ranks 4\nup_to 65536 oneshot_lamport\nup_to  1048576\toneshot_sync\nup_to unlimited twoshot\n"
             "slower_from 9223372036854775806");
  expect_table(&h200, &table);
  assert_int_equal(table.automatic[0].up_to_bytes, 65536);
  assert_int_equal(table.automatic[0].algorithm, arfusionAlgoOneshotLamport);
  assert_int_equal(table.automatic[1].up_to_bytes, 1048576);
  assert_int_equal(table.automatic[1].algorithm, arfusionAlgoOneshotSync);
  assert_true(table.automatic[2].up_to_bytes == INT64_MAX);
  assert_int_equal(table.automatic[2].algorithm, arfusionAlgoTwoshot);
  assert_true(table.slower_from_bytes == INT64_MAX - 1);
}

static void a_file_may_leave_out_the_gpus_name(void** state) {
  (void)state;
  struct route_table table;
  write_text("arfusion-tuning 1\narch sm_90\nranks 4\nup_to unlimited twoshot\nslower_from never\n# end\n");
  expect_table(&h200, &table);
  assert_int_equal(table.automatic[0].algorithm, arfusionAlgoTwoshot);
  assert_true(table.automatic[0].up_to_bytes == INT64_MAX && table.slower_from_bytes == INT64_MAX);
}

static void the_most_segments_and_the_longest_line_are_read(void** state) {
  (void)state;
  struct route_table table;
  char text[1024] = H;
  size_t length = strlen(text);
  memset(text + length, '#', 255);
  strcpy(text + length + 255, "\nup_to 1 twoshot\nup_to 2 twoshot\nup_to 3 twoshot\nup_to 4 twoshot\nup_to 5 twoshot\n"
         "up_to 6 twoshot\nup_to 9223372036854775806 twoshot\nup_to unlimited oneshot_sync\nslower_from 1\n");
  write_text(text);
  expect_table(&host, &table);
  assert_int_equal(table.automatic[ROUTE_MAX_SEGMENTS - 1].algorithm, arfusionAlgoOneshotSync);
  assert_int_equal(table.slower_from_bytes, 1);
}

/* ---------------------------------------------------------------- what is wrong with a line */

static const struct {
  const char *text, *words;
} wrong_lines[] = {
    {"", "line 0|the file ends|arfusion-tuning 1"},
    {"# nothing\n\n", "line 2|the file ends"},
    {"{\"version\": 1}\n", "line 1|'{\"version\": 1}'|arfusion-tuning 1"},
    {"arfusion-tuning\n", "line 1|version ''|version 1"},
    {"\narfusion-tuning 2\n", "line 2|version '2'|version 1"},
    {"arfusion-tuning 1 2\n", "line 1|version '1 2'"},
    {"arfusion-tuning 1x\n", "line 1|version '1x'"},
    {"arfusion-tuning -1\n", "line 1|version '-1'"},
    {"arfusion-tuning 99999999999999999999\n", "line 1|version '9"},
    {"arfusion-tunings 1\n", "line 1|'arfusion-tunings 1'"},
    {"arfusion-tuning 1\n", "line 1|ends|arch sm_NN"},
    {"arfusion-tuning 1\nranks 2\n", "line 2|'ranks 2'|arch"},
    {"arfusion-tuning 1\narch\n", "line 2|'' is no architecture"},
    {"arfusion-tuning 1\narch 90\n", "line 2|'90' is no architecture|sm_NN"},
    {"arfusion-tuning 1\narch sm_\n", "line 2|no architecture"},
    {"arfusion-tuning 1\narch sm_90a\n", "line 2|'sm_90a' is no architecture"},
    {"arfusion-tuning 1\narch host \n", "line 2|ends|ranks NUMBER"},
    {"arfusion-tuning 1\narch host\nup_to 1 twoshot\n", "line 3|'up_to 1 twoshot'|ranks NUMBER"},
    {"arfusion-tuning 1\narch host\nranks two\n", "line 3|'two'|2 to 16"},
    {"arfusion-tuning 1\narch host\nranks 1\n", "line 3|'1'|2 to 16"},
    {"arfusion-tuning 1\narch host\nranks 17\n", "line 3|'17'|2 to 16"},
    {"arfusion-tuning 1\narch host\nranks 2 3\n", "line 3|'2 3'"},
    {"arfusion-tuning 1\narch host\nranks 2\nranks 2\n", "line 4|'ranks 2'|up_to BYTES"},
    {H, "line 3|ends|up_to BYTES"},
    {H "slower_from never\n", "line 4|slower_from never|up_to BYTES"},
    {H "up_to\n", "line 4|up_to ''"},
    {H "up_to 0 twoshot\n", "line 4|up_to '0'|from 1"},
    {H "up_to -5 twoshot\n", "line 4|up_to '-5'"},
    {H "up_to +5 twoshot\n", "line 4|up_to '+5'"},
    {H "up_to 4K twoshot\n", "line 4|up_to '4K'"},
    {H "up_to 0x10 twoshot\n", "line 4|up_to '0x10'"},
    {H "up_to 1e3 twoshot\n", "line 4|up_to '1e3'"},
    {H "up_to 9223372036854775807 twoshot\n", "line 4|up_to '9223372036854775807'|9223372036854775806 or unlimited"},
    {H "up_to 9223372036854775808 twoshot\n", "line 4|up_to '9223372036854775808'"},
    {H "up_to unlimite twoshot\n", "line 4|up_to 'unlimite'"},
    {H "up_to 5 twoshot\nup_to 5 twoshot\n", "line 5|up_to 5 after up_to 5|rise"},
    {H "up_to 5 twoshot\n\nup_to 4 twoshot\n", "line 6|up_to 4 after up_to 5"},
    {H "up_to 5\n", "line 4|'' is no algorithm"},
    {H "up_to 5 ring\n", "line 4|'ring' is no algorithm|oneshot_lamport"},
    {H "up_to 5 auto\n", "line 4|'auto' is no algorithm"},
    {H "up_to 5 none\n", "line 4|'none' is no algorithm"},
    {H "up_to 5 twoshot twoshot\n", "line 4|'twoshot twoshot' is no algorithm"},
    {H "up_to 5 twoshot # small\n", "line 4|no algorithm"},
    {H "up_to 5 twoshot\n", "line 4|ends|up_to BYTES"},
    {H "up_to 5 twoshot\nslower_from never\n", "line 5|'slower_from never'|up_to BYTES"},
    {H "up_to 1 twoshot\nup_to 2 twoshot\nup_to 3 twoshot\nup_to 4 twoshot\nup_to 5 twoshot\nup_to 6 twoshot\n"
       "up_to 7 twoshot\nup_to 8 twoshot\nup_to unlimited twoshot\n",
     "line 12|more than 8"},
    {H "up_to unlimited twoshot\nup_to unlimited twoshot\n", "line 5|up_to unlimited twoshot|slower_from"},
    {H "up_to unlimited twoshot\n", "line 4|ends|slower_from"},
    {H "up_to unlimited twoshot\nslower_from\n", "line 5|slower_from ''|never"},
    {H "up_to unlimited twoshot\nslower_from 0\n", "line 5|slower_from '0'"},
    {H "up_to unlimited twoshot\nslower_from nevermore\n", "line 5|slower_from 'nevermore'"},
    {H "up_to unlimited twoshot\nslower_from 9223372036854775807\n", "line 5|slower_from '9223372036854775807'"},
    {H "up_to unlimited twoshot\nslower_from 7 8\n", "line 5|slower_from '7 8'"},
    {H "up_to unlimited twoshot\nslower_from never\nslower_from never\n",
     "line 6|'slower_from never'|arfusion-tuning 1"},
    {H "up_to unlimited twoshot\nslower_from never\n\nhello\n", "line 7|'hello'|arfusion-tuning 1"},
    {H T H T, "line 6|second table for 2 ranks|line 1"},
    {H T "arfusion-tuning 1\narch host\nranks 3\nup_to 5 twoshot\n", "line 9|ends|up_to BYTES"},
    {"arfusion-tuning 1\narch sm_90\nranks 2\n" T H "up_to 5 ring\n", "line 9|'ring' is no algorithm"},
    {H "up_to 5 two\x01shot\n", "line 4|0x01|text"},
    {H "up_to 5 two\x7fshot\n", "line 4|0x7f|text"},
    {"\xff\xfe"
     "a",
     "line 1|arfusion-tuning 1"},
};

static void every_wrong_line_is_named(void** state) {
  (void)state;
  for (size_t i = 0; i < sizeof wrong_lines / sizeof wrong_lines[0]; ++i) {
    write_text(wrong_lines[i].text);
    expect_error(&host, wrong_lines[i].words);
  }
}

static void nul_bytes_and_long_lines_are_named(void** state) {
  (void)state;
  static const char nul[] = H "up_to 5 twoshot\0\nup_to unlimited twoshot\nslower_from never\n";
  char text[512] = H;
  write_bytes(nul, sizeof nul - 1);
  expect_error(&host, "line 4|0x00|text");
  const size_t length = strlen(text);
  memset(text + length, '#', 256);
  write_text(text);
  expect_error(&host, "line 4|256 characters|255");
  memset(text, 0, sizeof text);
  write_bytes(text, sizeof text);
  expect_error(&host, "line 1|0x00");
}

static void files_for_other_devices_alone_are_named(void** state) {
  (void)state;
  static const struct {
    const char *text, *words;
  } other[] = {
      {"arfusion-tuning 1\narch sm_80\nranks 4\n" T, "line 5|no table|sm_90|NVIDIA H200"},
      {H T, "no table|sm_90"},
      {"arfusion-tuning 1\narch sm_90\n\ngpu NVIDIA H100 80GB HBM3\nranks 4\n" T, "no table|sm_90 (NVIDIA H200)"},
      {"arfusion-tuning 1\narch sm_90\ngpu\nranks 4\n" T H T, "line 11|no table|sm_90 (NVIDIA H200)"},
  };
  for (size_t i = 0; i < sizeof other / sizeof other[0]; ++i) {
    write_text(other[i].text);
    expect_error(&h200, other[i].words);
  }
  write_text("arfusion-tuning 1\narch sm_90\nranks 2\n" T);
  expect_error(&host, "no table|host");
}

static void one_of_several_tables_is_taken(void** state) {
  (void)state;
  struct tuning_target target = h200;
  struct route_table table;
  write_text(H T
             "arfusion-tuning 1\narch sm_90\nranks 2\nup_to 7 twoshot\nup_to unlimited oneshot_sync\nslower_from 8\n"
             "arfusion-tuning 1\narch sm_90\ngpu NVIDIA H100 80GB HBM3\nranks 4\nup_to unlimited oneshot_sync\n"
             "slower_from never\n# another\narfusion-tuning 1\narch sm_90\ngpu NVIDIA H200\nranks 4\n"
             "up_to 9 oneshot_lamport\n" T);
  expect_table(&host, &table);
  assert_int_equal(table.automatic[0].algorithm, arfusionAlgoTwoshot);
  expect_table(&h200, &table);
  assert_int_equal(table.automatic[0].up_to_bytes, 9);
  assert_true(table.slower_from_bytes == INT64_MAX);
  target.nranks = 2;
  expect_table(&target, &table);
  assert_int_equal(table.automatic[0].up_to_bytes, 7);
  assert_int_equal(table.slower_from_bytes, 8);
}

static void a_rank_count_without_a_table_is_no_error(void** state) {
  (void)state;
  struct tuning_target target = h200;
  struct route_table table = {.slower_from_bytes = 5};
  int found = 1;
  write_text("arfusion-tuning 1\narch sm_90\nranks 2\n" T);
  assert_int_equal(tuning_read(path, &target, &found, &table), arfusionSuccess);
  assert_int_equal(found, 0);
  assert_int_equal(table.slower_from_bytes, 5);
}

/* ---------------------------------------------------------------- what is wrong with a file */

static void files_that_cannot_be_read_are_named(void** state) {
  (void)state;
  unlink(path);
  expect_error(&host, "No such file");
  assert_int_equal(mkdir(path, 0700), 0);
  expect_error(&host, "not a regular file");
  assert_int_equal(rmdir(path), 0);
  assert_int_equal(mkfifo(path, 0600), 0);
  expect_error(&host, "not a regular file"); /* at once, though nobody writes into it */
  assert_int_equal(unlink(path), 0);
  assert_int_equal(symlink(path, path), 0);
  expect_error(&host, "symbolic links");
  assert_int_equal(unlink(path), 0);
}

static void a_huge_file_is_named(void** state) {
  (void)state;
  enum { LIMIT = 64 << 10 };
  static char text[LIMIT + 1] = H "up_to unlimited twoshot\nslower_from never\n";
  struct route_table table;
  for (size_t i = strlen(text); i < sizeof text; ++i) text[i] = i % 8 ? '#' : '\n';
  write_bytes(text, LIMIT);
  expect_table(&host, &table);
  write_bytes(text, LIMIT + 1);
  expect_error(&host, "larger than 65536 bytes");
  assert_int_equal(truncate(path, (off_t)1 << 40), 0); /* no more is read of it than needs be */
  expect_error(&host, "larger than 65536 bytes");
}

/* ---------------------------------------------------------------- tables */

static void tables_are_compared_and_told(void** state) {
  (void)state;
  const struct route_table table = {
      .automatic = {{4096, arfusionAlgoOneshotLamport}, {INT64_MAX, arfusionAlgoTwoshot}}, .slower_from_bytes = 8192};
  struct route_table other = table;
  char text[TUNING_TEXT_BYTES];
  other.automatic[2].up_to_bytes = 7; /* behind the end */
  assert_true(tuning_equal(&table, &other));
  other.automatic[0].up_to_bytes = 4097;
  assert_false(tuning_equal(&table, &other));
  other = table;
  other.automatic[1].algorithm = arfusionAlgoOneshotSync;
  assert_false(tuning_equal(&table, &other));
  other = table;
  other.slower_from_bytes = INT64_MAX;
  assert_false(tuning_equal(&table, &other));
  tuning_text(&table, text);
  assert_string_equal(text, "oneshot_lamport up to 4096 bytes, then twoshot; slower from 8192 bytes");
  for (int i = 0; i < ROUTE_MAX_SEGMENTS; ++i) {
    other.automatic[i].algorithm = arfusionAlgoOneshotLamport;
    other.automatic[i].up_to_bytes = INT64_MAX - ROUTE_MAX_SEGMENTS + 1 + i;
  }
  other.slower_from_bytes = INT64_MAX - 1;
  tuning_text(&other, text); /* the longest one */
  assert_non_null(strstr(text, "; slower from 9223372036854775806 bytes"));
}

static int64_t oneshot_up_to(int major, int minor, int nranks, const char* source) {
  struct route_table table;
  assert_string_equal(tuning_builtin(major, minor, nranks, &table), source);
  assert_int_equal(table.automatic[0].algorithm, arfusionAlgoOneshotLamport);
  assert_true(table.slower_from_bytes == INT64_MAX);
  if (table.automatic[0].up_to_bytes != INT64_MAX) {
    assert_int_equal(table.automatic[1].algorithm, arfusionAlgoTwoshot);
    assert_true(table.automatic[1].up_to_bytes == INT64_MAX);
  }
  return table.automatic[0].up_to_bytes;
}

static void built_in_tables_are_there_for_every_gpu(void** state) {
  (void)state;
  static const int archs[][2] = {{8, 0}, {8, 6}, {8, 9}, {9, 0}, {10, 0}, {10, 3}, {12, 0}, {12, 1}, {99, 9}};
  for (size_t i = 0; i < sizeof archs / sizeof archs[0]; ++i) {
    const int measured = archs[i][0] == 9;
    int64_t before = INT64_MAX;
    assert_true(oneshot_up_to(archs[i][0], archs[i][1], 2, measured ? "measured" : "from a model") == INT64_MAX);
    for (int nranks = 3; nranks <= ARFUSION_MAX_RANKS; ++nranks) { /* the more peers, the sooner two-shot pays */
      const int64_t up_to = oneshot_up_to(archs[i][0], archs[i][1], nranks, "from a model");
      assert_true(up_to > 0 && up_to < before);
      before = up_to;
    }
  }
  /* 2.7 µs are worth 704 KB at four ranks on NVLink 4: 3/365 - 1.5/342 ns a byte. */
  assert_in_range(oneshot_up_to(9, 0, 4, "from a model"), 700000, 710000);
  assert_in_range(oneshot_up_to(9, 0, 8, "from a model"), 190000, 194000);
  /* With the link twice as fast, twice as much. */
  const int64_t twice = oneshot_up_to(10, 0, 8, "from a model") - 2 * oneshot_up_to(9, 0, 8, "from a model");
  assert_in_range(twice + 2, 0, 4);
  assert_true(oneshot_up_to(8, 0, 8, "from a model") < oneshot_up_to(9, 0, 8, "from a model"));
  assert_int_equal(oneshot_up_to(10, 3, 8, "from a model"), oneshot_up_to(10, 0, 8, "from a model"));
  assert_int_equal(oneshot_up_to(8, 9, 8, "from a model"), oneshot_up_to(8, 6, 8, "from a model"));
}

static void the_hosts_table_is_its_own(void** state) {
  (void)state;
  struct route_table table;
  assert_string_equal(tuning_builtin(0, 0, 2, &table), "measured");
  assert_int_equal(table.automatic[0].algorithm, arfusionAlgoOneshotLamport);
  assert_int_equal(table.automatic[0].up_to_bytes, 4096);
  assert_int_equal(table.automatic[1].algorithm, arfusionAlgoOneshotSync);
  assert_true(table.automatic[1].up_to_bytes == INT64_MAX && table.slower_from_bytes == INT64_MAX);
  assert_string_not_equal(tuning_builtin(0, 0, 3, &table), "measured");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_whole_file_is_read),
      cmocka_unit_test(a_file_may_leave_out_the_gpus_name),
      cmocka_unit_test(the_most_segments_and_the_longest_line_are_read),
      cmocka_unit_test(every_wrong_line_is_named),
      cmocka_unit_test(nul_bytes_and_long_lines_are_named),
      cmocka_unit_test(files_for_other_devices_alone_are_named),
      cmocka_unit_test(one_of_several_tables_is_taken),
      cmocka_unit_test(a_rank_count_without_a_table_is_no_error),
      cmocka_unit_test(files_that_cannot_be_read_are_named),
      cmocka_unit_test(a_huge_file_is_named),
      cmocka_unit_test(tables_are_compared_and_told),
      cmocka_unit_test(built_in_tables_are_there_for_every_gpu),
      cmocka_unit_test(the_hosts_table_is_its_own),
  };
  return cmocka_run_group_tests(tests, set_up, tear_down);
}
