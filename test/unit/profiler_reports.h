/* SPDX-License-Identifier: Apache-2.0
 *
 * profiler_reports.h: what the tests of the plugin as NCCL's profiler share: a folder for each test, what goes to
 * stderr, and reports as they are read back.
 */
#ifndef ARFUSION_TEST_PROFILER_REPORTS_H_
#define ARFUSION_TEST_PROFILER_REPORTS_H_

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <jansson.h>

#include "test/unit/profiler_driver.h"
#include "test/unit/support.h"

enum { MOST_LINES = 64 };

static char folder[64], file[128], errors[128]; /* the report, and what stderr gets */
static int kept_stderr = -1;

/* ---------------------------------------------------------------- around each test */

static inline int set_up(void** state) {
  (void)state;
  strcpy(folder, "/tmp/arfusion-profiler-XXXXXX");
  if (!mkdtemp(folder)) return -1;
  snprintf(file, sizeof file, "%s/report.json", folder);
  snprintf(errors, sizeof errors, "%s/stderr", folder);
  support_setting("ARFUSION_DEVICE", "host");
  support_setting("ARFUSION_REPORT", file);
  return 0;
}

static inline int tear_down(void** state) {
  static const char* const names[] = {"ARFUSION_REPORT", "ARFUSION_DEBUG",       "ARFUSION_TIMEOUT",
                                      "ARFUSION_ALGO",   "ARFUSION_TUNING_FILE", "ARFUSION_WORKSPACE_LIMIT"};
  char command[128];
  (void)state;
  for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) support_setting(names[i], NULL);
  snprintf(command, sizeof command, "rm -rf '%s'", folder);
  return system(command);
}

static inline void stderr_catch(void) {
  fflush(stderr);
  kept_stderr = dup(STDERR_FILENO);
  assert_non_null(freopen(errors, "w", stderr));
}

static inline char* file_text(const char* path) {
  FILE* in = fopen(path, "r");
  size_t bytes = 0, room = 1 << 22;
  char* text = calloc(1, room);
  assert_non_null(text);
  if (in) {
    bytes = fread(text, 1, room - 1, in);
    fclose(in);
  }
  text[bytes] = '\0';
  return text;
}

/* What has been written to stderr since; to be freed. */
static inline char* stderr_release(void) {
  fflush(stderr);
  dup2(kept_stderr, STDERR_FILENO);
  close(kept_stderr);
  return file_text(errors);
}

static inline int occurrences(const char* text, const char* word) {
  int n = 0;
  for (const char* at = text; (at = strstr(at, word)); at += strlen(word)) ++n;
  return n;
}

/* ---------------------------------------------------------------- reports */

struct reports {
  int count;
  json_t* line[MOST_LINES];
};

static inline struct reports reports_read(const char* path) {
  struct reports reports = {0};
  char* text = file_text(path);
  for (char* at = text; *at; at += strcspn(at, "\n") + 1) {
    json_error_t error;
    assert_true(reports.count < MOST_LINES);
    json_t* line = json_loadb(at, strcspn(at, "\n"), 0, &error);
    if (!line) fail_msg("%s: %s", error.text, at);
    assert_string_equal(json_string_value(json_object_get(line, "format")), "arfusion-report");
    reports.line[reports.count++] = line;
  }
  free(text);
  return reports;
}

static inline void reports_free(struct reports* reports) {
  for (int i = 0; i < reports->count; ++i) json_decref(reports->line[i]);
}

static inline json_int_t number(const json_t* object, const char* name) {
  const json_t* value = json_object_get(object, name);
  if (!json_is_integer(value)) fail_msg("no number %s", name);
  return json_integer_value(value);
}

static inline const json_t* size_of(const json_t* report, const char* type, json_int_t count) {
  size_t i;
  const json_t* size;
  json_array_foreach(json_object_get(report, "sizes"), i, size) {
    if (number(size, "count") == count && !strcmp(json_string_value(json_object_get(size, "type")), type)) return size;
  }
  return NULL;
}

static inline void expect_calls(const json_t* report, const char* type, json_int_t count, json_int_t eager,
                         json_int_t captured) {
  const json_t* size = size_of(report, type, count);
  if (!size) fail_msg("no calls of %lld %s", (long long)count, type);
  assert_int_equal(number(size, "eager_calls"), eager);
  assert_int_equal(number(size, "captured_calls"), captured);
}

/* The calls that are turned down for `reason`, of one form. */
static inline json_int_t turned_down(const json_t* report, const char* form, int reason) {
  size_t i;
  const json_t* entry;
  json_array_foreach(json_object_get(json_object_get(report, form), "turned_down"), i, entry) {
    if (number(entry, "reason") == reason) return number(entry, "calls");
  }
  return 0;
}

/* One communicator that makes one call; the last line of its report. */
static inline json_t* report_of_one(int nnodes, int nranks, int rank, const char* datatype, size_t count) {
  struct driver driver;
  struct driver_comm comm;
  driver_open(&driver, 6);
  driver_begin(&driver, &comm, 7, NULL, nnodes, nranks, rank);
  assert_non_null(comm.context);
  driver_call(&comm, "AllReduce", datatype, count, false);
  driver_end(&comm);
  driver_close(&driver);
  struct reports reports = reports_read(file);
  assert_true(reports.count > 0);
  json_t* last = json_incref(reports.line[reports.count - 1]);
  reports_free(&reports);
  return last;
}

#endif
