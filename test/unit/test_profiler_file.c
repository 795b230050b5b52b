/* SPDX-License-Identifier: Apache-2.0
 *
 * test_profiler_file.c: the plugin as NCCL's profiler: where its report goes, and when.
 */
#include <dlfcn.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "test/unit/profiler_reports.h"

/* ---------------------------------------------------------------- the file */

static void files_have_their_ranks_names(void** state) {
  char path[160], expected[256], host[64] = "";
  struct stat status;
  (void)state;
  gethostname(host, sizeof host - 1);
  const mode_t mask = umask(0);
  snprintf(path, sizeof path, "%s/r%%r-c%%c-p%%p-h%%h-%%%%-%%x%%", folder);
  support_setting("ARFUSION_REPORT", path);
  struct driver driver;
  struct driver_comm comms[2];
  driver_open(&driver, 6);
  for (int r = 0; r < 2; ++r) driver_begin(&driver, &comms[r], 0xabc, NULL, 1, 3, r + 1);
  for (int r = 0; r < 2; ++r) driver_end(&comms[r]);
  driver_close(&driver);
  umask(mask);
  for (int r = 0; r < 2; ++r) {
    snprintf(expected, sizeof expected, "%s/r%d-cabc-p%d-h%s-%%-%%x%%", folder, r + 1, (int)getpid(), host);
    struct reports reports = reports_read(expected);
    assert_int_equal(reports.count, 1);
    assert_int_equal(number(reports.line[0], "rank"), r + 1);
    reports_free(&reports);
    assert_int_equal(stat(expected, &status), 0);
    assert_int_equal(status.st_mode & 0777, 0600);
  }
}

static void a_relative_name_is_of_the_folder_at_the_beginning(void** state) {
  struct driver driver;
  struct driver_comm comm;
  char here[4096];
  (void)state;
  assert_non_null(getcwd(here, sizeof here));
  support_setting("ARFUSION_REPORT", "report.json");
  assert_int_equal(chdir(folder), 0);
  driver_open(&driver, 6);
  driver_begin(&driver, &comm, 1, NULL, 1, 2, 1);
  assert_int_equal(chdir("/"), 0);
  driver_end(&comm);
  driver_close(&driver);
  assert_int_equal(chdir(here), 0);
  struct reports reports = reports_read(file);
  assert_int_equal(reports.count, 1);
  reports_free(&reports);
}

/* Three communicators, one warning, and the application goes on. */
static void expect_no_file(const char* path, const char* why) {
  struct driver driver;
  struct driver_comm comms[3];
  support_setting("ARFUSION_REPORT", path);
  stderr_catch();
  driver_open(&driver, 6);
  for (int c = 0; c < 3; ++c) {
    driver_begin(&driver, &comms[c], 0xabcdef, NULL, 1, 2, 0);
    assert_non_null(comms[c].context);
    driver_call(&comms[c], "AllReduce", "ncclBfloat16", 4096, false);
  }
  for (int c = 0; c < 3; ++c) driver_end(&comms[c]);
  driver_close(&driver);
  char* text = stderr_release();
  if (!strstr(text, why)) fail_msg("%s: no '%s' in %s", path, why, text);
  assert_int_equal(occurrences(text, "ARFUSION_REPORT"), 1);
  assert_int_equal(occurrences(text, "arfusion: communicator"), 3); /* the text is there all the same */
  free(text);
}

static void files_that_cannot_be_written_are_one_warning(void** state) {
  char path[256], target[256], name[256];
  struct stat status;
  (void)state;
  snprintf(path, sizeof path, "%s/no/folder/report.json", folder);
  expect_no_file(path, "No such file or directory");
  expect_no_file(folder, "Is a directory");

  snprintf(target, sizeof target, "%s/target", folder); /* links are not followed, neither kind */
  fclose(fopen(target, "w"));
  snprintf(path, sizeof path, "%s/symbolic", folder);
  assert_int_equal(symlink(target, path), 0);
  expect_no_file(path, "Too many levels of symbolic links");
  snprintf(path, sizeof path, "%s/hard", folder);
  assert_int_equal(link(target, path), 0);
  expect_no_file(path, "Operation not permitted");
  assert_int_equal(stat(target, &status), 0);
  assert_int_equal(status.st_size, 0);

  snprintf(path, sizeof path, "%s/fifo", folder); /* nobody reads it: it must not be waited for */
  assert_int_equal(mkfifo(path, 0600), 0);
  expect_no_file(path, "No such device or address");
  expect_no_file("/dev/null", "Invalid argument");
  expect_no_file("/dev/full", "Invalid argument");
  for (int i = 0; i < 120; ++i) memcpy(name + 2 * i, "%c", 3);
  expect_no_file(name, "File name too long");
}

/* ---------------------------------------------------------------- processes */

/* A forked process that has a communicator of its own, or none: nothing is written about its parent's. */
static void fork_one(struct driver* driver, struct driver_comm* inherited, int with_own) {
  struct driver_comm own;
  int status;
  const pid_t child = fork();
  if (child == 0) {
    if (with_own) driver_begin(driver, &own, 0xf0, NULL, 1, 2, 1);
    driver_end(inherited);
    exit(0);
  }
  if (waitpid(child, &status, 0) != child || status != 0) _Exit(2);
}

/* A process that makes a communicator and a call, forks, and ends without destroying it. */
static void run_and_leave(void) {
  struct driver driver;
  struct driver_comm comm;
  driver_open(&driver, 6);
  driver_begin(&driver, &comm, 0xcafe, NULL, 1, 2, 0);
  driver_call(&comm, "AllReduce", "ncclFloat16", 4096, true);
  fork_one(&driver, &comm, 0);
  fork_one(&driver, &comm, 1);
  exit(0);
}

static void what_is_never_destroyed_is_reported_when_the_process_ends(void** state) {
  int status;
  (void)state;
  stderr_catch();
  const pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) run_and_leave();
  assert_int_equal(waitpid(child, &status, 0), child);
  char* text = stderr_release();
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  assert_int_equal(occurrences(text, "never destroyed"), 1);
  free(text);
  struct reports reports = reports_read(file);
  assert_int_equal(reports.count, 2);
  assert_int_equal(number(reports.line[0], "rank"), 1); /* of the forked process, which ends first */
  assert_true(number(reports.line[0], "pid") != child);
  assert_int_equal(number(reports.line[1], "rank"), 0);
  assert_int_equal(number(reports.line[1], "pid"), child);
  for (int i = 0; i < reports.count; ++i) assert_true(json_is_false(json_object_get(reports.line[i], "ended")));
  expect_calls(reports.line[1], "float16", 4096, 0, 1);
  reports_free(&reports);
}

static void without_a_file_and_log_lines_nothing_is_written(void** state) {
  struct driver driver;
  struct driver_comm comm;
  (void)state;
  support_setting("ARFUSION_REPORT", NULL);
  support_setting("ARFUSION_DEBUG", "none");
  stderr_catch();
  driver_open(&driver, 6);
  driver_begin(&driver, &comm, 1, NULL, 1, 2, 0);
  driver_call(&comm, "AllReduce", "ncclBfloat16", 4096, false);
  driver_end(&comm);
  driver_close(&driver);
  char* text = stderr_release();
  assert_string_equal(text, "");
  free(text);
  assert_int_equal(access(file, F_OK), -1);
}

/* Both names of the library are one file, so that NCCL's net and profiler are one library in the process. */
static void both_names_are_one_library(void** state) {
  char net[4096];
  struct driver driver;
  (void)state;
  driver_open(&driver, 5);
  driver_path("libnccl-net-arfusion.so", net);
  void* library = dlopen(net, RTLD_NOW | RTLD_LOCAL);
  assert_ptr_equal(library, driver.library);
  assert_int_equal(dlclose(library), 0);
  driver_close(&driver);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(files_have_their_ranks_names, set_up, tear_down),
      cmocka_unit_test_setup_teardown(a_relative_name_is_of_the_folder_at_the_beginning, set_up, tear_down),
      cmocka_unit_test_setup_teardown(files_that_cannot_be_written_are_one_warning, set_up, tear_down),
      cmocka_unit_test_setup_teardown(what_is_never_destroyed_is_reported_when_the_process_ends, set_up, tear_down),
      cmocka_unit_test_setup_teardown(without_a_file_and_log_lines_nothing_is_written, set_up, tear_down),
      cmocka_unit_test_setup_teardown(both_names_are_one_library, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
