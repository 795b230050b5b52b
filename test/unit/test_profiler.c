/* SPDX-License-Identifier: Apache-2.0
 *
 * test_profiler.c: the plugin as NCCL's profiler: what it counts, and that nothing wrong around it makes NCCL fail.
 * Where its report goes: test_profiler_file.c; what stands in it: test_profiler_report.c.
 */
#include <malloc.h>
#include <pthread.h>

#include "test/unit/profiler_reports.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#else
#define SANITIZED 0
#endif

/* ---------------------------------------------------------------- counting */

static const struct {
  const char *nccl, *name;
} types[] = {{"ncclBfloat16", "bfloat16"},     {"ncclFloat16", "float16"},
             {"ncclFloat32", "float32"},       {"ncclInt8", "int8"},
             {"ncclInt32", "int32"},           {"ncclUint32", "uint32"},
             {"ncclInt64", "int64"},           {"ncclUint64", "uint64"},
             {"ncclFloat64", "float64"},       {"ncclFloat8e4m3", "float8e4m3"},
             {"ncclFloat8e5m2", "float8e5m2"}, {"Unknown", "unknown"}};
enum { TYPES = sizeof types / sizeof types[0], COUNTS = 5, CALLS = 4000, COMMS = 3 };
static const size_t counts[COUNTS] = {1, 8, 4096, 7 * 2880, (size_t)8192 * 8192};

struct program { /* a thread that makes calls on a communicator, and what it did */
  struct driver* driver;
  struct driver_comm comm;
  int rank;
  unsigned seed;
  long eager[TYPES][COUNTS], captured[TYPES][COUNTS], others;
};

static void* program_run(void* argument) {
  static const char* const other[] = {"AllGather", "Broadcast", "Reduce", "ReduceScatter", "AllReduceX", "AlltoAll"};
  struct program* self = argument;
  char name[16];
  snprintf(name, sizeof name, "tp:%d", self->rank);
  driver_begin(self->driver, &self->comm, 0x1000 + (unsigned)self->rank, name, 1, 2 + self->rank, self->rank);
  for (int i = 0; i < CALLS; ++i) {
    const unsigned draw = (unsigned)rand_r(&self->seed);
    const int type = (int)(draw % TYPES), count = (int)(draw / TYPES % COUNTS);
    const bool captured = draw >> 16 & 1;
    if (draw >> 17 & 1) {
      driver_call(&self->comm, other[draw % 6], types[type].nccl, counts[count], captured);
      ++self->others;
    } else {
      driver_call(&self->comm, "AllReduce", types[type].nccl, counts[count], captured);
      ++(captured ? self->captured : self->eager)[type][count];
    }
  }
  driver_end(&self->comm);
  return NULL;
}

static void program_check(const struct program* program, const json_t* report) {
  long eager = 0, captured = 0;
  size_t different = 0;
  for (int t = 0; t < TYPES; ++t) {
    for (int c = 0; c < COUNTS; ++c) {
      eager += program->eager[t][c];
      captured += program->captured[t][c];
      if (program->eager[t][c] + program->captured[t][c] == 0) continue;
      ++different;
      expect_calls(report, types[t].name, (json_int_t)counts[c], program->eager[t][c], program->captured[t][c]);
    }
  }
  assert_int_equal(json_array_size(json_object_get(report, "sizes")), different);
  assert_int_equal(number(report, "eager_calls"), eager);
  assert_int_equal(number(report, "captured_calls"), captured);
  assert_int_equal(number(report, "other_collectives"), program->others);
  assert_int_equal(number(report, "calls_not_counted_by_size"), 0);
  assert_int_equal(number(report, "ranks"), 2 + program->rank);
  assert_int_equal(number(report, "pid"), getpid());
  assert_true(json_is_true(json_object_get(report, "ended")));
}

/* Communicators of several threads at once; the library is closed and opened again. */
static void the_counts_are_those_of_the_program(void** state) {
  static struct program programs[COMMS];
  (void)state;
  stderr_catch();
  for (int round = 0; round < 3; ++round) {
    struct driver driver;
    pthread_t threads[COMMS];
    driver_open(&driver, round % 2 ? 5 : 6);
    for (int c = 0; c < COMMS; ++c) {
      programs[c] = (struct program){.driver = &driver, .rank = c, .seed = (unsigned)(round * COMMS + c + 1)};
    }
    /* The first one makes the others' mask. */
    struct driver_comm first;
    driver_begin(&driver, &first, 1, NULL, 1, 2, 1);
    for (int c = 0; c < COMMS; ++c) assert_int_equal(pthread_create(&threads[c], NULL, program_run, &programs[c]), 0);
    for (int c = 0; c < COMMS; ++c) assert_int_equal(pthread_join(threads[c], NULL), 0);
    driver_end(&first);
    driver_close(&driver);

    struct reports reports = reports_read(file);
    assert_int_equal(reports.count, (round + 1) * (COMMS + 1)); /* runs are added to each other */
    for (int i = round * (COMMS + 1); i < reports.count; ++i) {
      const char* name = json_string_value(json_object_get(reports.line[i], "name"));
      if (name[0]) program_check(&programs[number(reports.line[i], "rank")], reports.line[i]);
      if (!name[0]) assert_int_equal(json_array_size(json_object_get(reports.line[i], "sizes")), 0);
    }
    reports_free(&reports);
  }
  char* text = stderr_release();
  assert_int_equal(occurrences(text, "arfusion: communicator 0x1000 \"tp:0\", rank 0 of 2"), 3); /* rank 0 alone */
  assert_int_equal(occurrences(text, "arfusion: communicator"), 3);
  if (strstr(text, "WARN")) fail_msg("%s", text);
  free(text);
}

struct hammer {
  struct driver_comm* comm;
  int kind; /* COLL_API: calls; otherwise that kind of event */
};

enum { HAMMERS = 6, BLOWS = 20000 };

static void* hammer_run(void* argument) {
  const struct hammer* self = argument;
  for (int i = 0; i < BLOWS; ++i) {
    if (self->kind == COLL_API) {
      driver_call(self->comm, "AllReduce", "ncclBfloat16", (size_t)(i % 16 + 1) * 4096, i % 4 == 0);
    } else {
      driver_event(self->comm, (self->kind + i) % KINDS == COLL_API ? GROUP : (self->kind + i) % KINDS);
    }
  }
  return NULL;
}

/* The application's threads and NCCL's proxies. */
static void several_threads_share_a_communicator(void** state) {
  struct driver driver;
  struct driver_comm comm;
  struct hammer hammers[HAMMERS];
  pthread_t threads[HAMMERS];
  (void)state;
  driver_open(&driver, 6);
  driver_begin(&driver, &comm, 1, NULL, 1, 2, 1);
  for (int h = 0; h < HAMMERS; ++h) {
    hammers[h] = (struct hammer){.comm = &comm, .kind = h < 4 ? COLL_API : h};
    assert_int_equal(pthread_create(&threads[h], NULL, hammer_run, &hammers[h]), 0);
  }
  for (int h = 0; h < HAMMERS; ++h) assert_int_equal(pthread_join(threads[h], NULL), 0);
  driver_end(&comm);
  driver_close(&driver);
  struct reports reports = reports_read(file);
  assert_int_equal(reports.count, 1);
  assert_int_equal(number(reports.line[0], "eager_calls"), 4 * BLOWS * 3 / 4);
  assert_int_equal(number(reports.line[0], "captured_calls"), 4 * BLOWS / 4);
  for (int c = 1; c <= 16; ++c) {
    const int captured = c % 4 == 1;
    expect_calls(reports.line[0], "bfloat16", c * 4096, captured ? 0 : 4 * BLOWS / 16, captured ? 4 * BLOWS / 16 : 0);
  }
  reports_free(&reports);
}

static void events_allocate_nothing_and_have_no_handle(void** state) {
  struct driver driver;
  struct driver_comm comm;
  (void)state;
  driver_open(&driver, 5);
  driver_begin(&driver, &comm, 1, NULL, 1, 2, 1);
  assert_int_equal(driver.mask, 1 << COLL_API); /* nothing that costs a kernel or a proxy time */
  const struct mallinfo2 before = mallinfo2();
  for (int i = 1; i < 5000; ++i) driver_call(&comm, "AllReduce", "ncclFloat16", (size_t)i * 64, i % 2);
  for (int kind = 0; kind < 64; ++kind) {
    struct event event = {.type = (uint64_t)1 << kind};
    void* handle = &event;
    event.coll_api.func = "AllReduce";
    assert_int_equal(driver.profiler->start(comm.context, &handle, &event), 0);
    assert_null(handle);
  }
  const struct mallinfo2 after = mallinfo2();
  if (!SANITIZED) assert_true(before.uordblks == after.uordblks && before.hblkhd == after.hblkhd);
  driver_end(&comm);
  driver_close(&driver);
}

static void more_sizes_than_counters_are_said_to_be(void** state) {
  enum { SIZES = 13000, COUNTED = 12288 };
  struct driver driver;
  struct driver_comm comm;
  (void)state;
  stderr_catch();
  driver_open(&driver, 6);
  driver_begin(&driver, &comm, 1, NULL, 1, 2, 0);
  for (int round = 0; round < 2; ++round) {
    for (size_t i = 1; i <= SIZES; ++i) driver_call(&comm, "AllReduce", "ncclBfloat16", i * 8, false);
  }
  driver_call(&comm, "AllReduce", "ncclBfloat16", SIZE_MAX, false);
  driver_end(&comm);
  driver_close(&driver);
  char* text = stderr_release();
  assert_non_null(strstr(text, "more, of sizes beyond the 12288 that are counted"));
  assert_non_null(strstr(text, "and 12276 more sizes"));
  free(text);
  struct reports reports = reports_read(file);
  assert_int_equal(number(reports.line[0], "eager_calls"), 2 * COUNTED);
  assert_int_equal(number(reports.line[0], "calls_not_counted_by_size"), 2 * (SIZES - COUNTED) + 1);
  assert_int_equal(json_array_size(json_object_get(reports.line[0], "sizes")), COUNTED);
  reports_free(&reports);
}

/* ---------------------------------------------------------------- what is wrong around it */

static void what_can_never_be_served_is_reported_with_its_reason(void** state) {
  static const struct {
    int nnodes, nranks, reason, value, limit;
  } shapes[] = {{1, 1, 3, 1, 16},   {1, 20, 3, 20, 16}, {1, 0, 3, 0, 16},
                {1, -1, 3, -1, 16}, {2, 16, 7, 2, 1},   {1000, 100000, 3, 100000, 16}};
  (void)state;
  for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; ++i) {
    json_t* report = report_of_one(shapes[i].nnodes, shapes[i].nranks, 3, "ncclBfloat16", 4096);
    const json_t* route = json_object_get(size_of(report, "bfloat16", 4096), "allreduce");
    assert_int_equal(number(report, "fusible_calls"), 1); /* by its shape */
    assert_int_equal(turned_down(report, "allreduce", shapes[i].reason), 1);
    assert_int_equal(turned_down(report, "fused", shapes[i].reason), 1);
    assert_string_equal(json_string_value(json_object_get(route, "algorithm")), "none");
    assert_int_equal(number(route, "reason"), shapes[i].reason);
    assert_int_equal(number(route, "value"), shapes[i].value);
    assert_int_equal(number(route, "limit"), shapes[i].limit);
    json_decref(report);
  }
}

static void types_and_shapes_decide_what_is_fusible(void** state) {
  static const struct {
    const char *nccl, *name;
    size_t count;
    int fusible, reason, fused_reason; /* 0: taken */
  } calls[] = {{"ncclBfloat16", "bfloat16", 8, 1, 0, 0},
               {"ncclFloat16", "float16", 4096, 1, 0, 0},
               {"ncclFloat32", "float32", 4, 1, 0, 0},
               {"ncclBfloat16", "bfloat16", 7, 0, 0, 4},
               {"ncclFloat32", "float32", 1, 0, 0, 4},
               {"ncclInt32", "int32", 4096, 0, 1, 1},
               {"ncclFloat64", "float64", 4096, 0, 1, 1},
               {"Unknown", "unknown", 4096, 0, 1, 1},
               {"ncclNewType", "unknown", 4096, 0, 1, 1},
               {NULL, "unknown", 4096, 0, 1, 1},
               {"ncclBfloat16", "bfloat16", (size_t)1 << 40, 1, 6, 6},
               {"ncclBfloat16", "bfloat16", (size_t)1 << 55, 1, 6, 6}};
  (void)state;
  for (size_t i = 0; i < sizeof calls / sizeof calls[0]; ++i) {
    json_t* report = report_of_one(1, 2, 1, calls[i].nccl, calls[i].count);
    const json_t* size = size_of(report, calls[i].name, (json_int_t)calls[i].count);
    assert_non_null(size);
    assert_int_equal(json_is_true(json_object_get(size, "fusible")), calls[i].fusible);
    assert_int_equal(number(report, "fusible_calls"), calls[i].fusible);
    assert_int_equal(turned_down(report, "allreduce", calls[i].reason), calls[i].reason != 0);
    assert_int_equal(turned_down(report, "fused", calls[i].fused_reason), calls[i].fused_reason != 0);
    assert_int_equal(json_object_size(json_object_get(json_object_get(report, "allreduce"), "taken")),
                     calls[i].reason == 0);
    json_decref(report);
  }
}

static void the_settings_count_as_for_a_communicator(void** state) {
  (void)state;
  support_setting("ARFUSION_ALGO", "twoshot");
  json_t* report = report_of_one(1, 4, 1, "ncclBfloat16", 4096);
  assert_int_equal(number(json_object_get(json_object_get(report, "fused"), "taken"), "twoshot"), 1);
  json_decref(report);
  support_setting("ARFUSION_ALGO", "none");
  report = report_of_one(1, 4, 1, "ncclBfloat16", 4096);
  assert_int_equal(turned_down(report, "allreduce", 14), 1);
  json_decref(report);
}

static void odd_calls_do_no_harm(void** state) {
  struct driver driver;
  struct driver_comm comm, nobody;
  struct event event = {.type = 1 << COLL_API};
  void *handle = &event, *context = &event;
  int mask = -1;
  (void)state;
  driver_open(&driver, 6);
  driver_begin(&driver, &comm, 1, "quote \" backslash \\ newline \n \xff", 1, 2, 1);
  assert_int_equal(driver.profiler->start(comm.context, &handle, &event), 0); /* no func */
  assert_null(handle);
  event.coll_api.func = "AllReduce";
  assert_int_equal(driver.profiler->start(comm.context, NULL, &event), 0); /* count 0, no data type */
  assert_int_equal(driver.profiler->start(comm.context, &handle, NULL), 0);
  assert_int_equal(driver.profiler->start(NULL, &handle, &event), 0);
  assert_int_equal(driver.profiler->init(NULL, 1, &mask, NULL, 1, 2, 0, NULL), 0);
  assert_int_equal(driver.profiler->init(&context, 1, NULL, NULL, 1, 2, 0, NULL), 0);
  nobody = (struct driver_comm){.driver = &driver};
  for (int kind = 0; kind < KINDS; ++kind) driver_event(&nobody, kind);
  assert_int_equal(driver.profiler->stop(NULL), 0);
  assert_int_equal(driver.profiler->record(NULL, 23, NULL), 0);
  assert_int_equal(driver.profiler->finalize(NULL), 0);
  driver_end(&comm);
  driver_close(&driver);
  struct reports reports = reports_read(file);
  assert_int_equal(reports.count, 1);
  assert_string_equal(json_string_value(json_object_get(reports.line[0], "name")),
                      "quote \" backslash \\ newline \n \xc3\xbf");
  expect_calls(reports.line[0], "unknown", 0, 1, 0);
  reports_free(&reports);
}

static void wrong_settings_leave_nccl_alone(void** state) {
  static const char* const wrong[][2] = {
      {"ARFUSION_TIMEOUT", "soon"}, {"ARFUSION_TUNING_FILE", "/nowhere"}, {"ARFUSION_WORKSPACE_LIMIT", "8K"}};
  (void)state;
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; ++i) {
    struct driver driver;
    struct driver_comm comm, other;
    stderr_catch();
    support_setting(wrong[i][0], wrong[i][1]);
    driver_open(&driver, 6);
    driver.mask = -1;
    driver_begin(&driver, &comm, 0xbad, NULL, 1, 2, 0);
    assert_null(comm.context);
    assert_int_equal(driver.mask, 0);
    driver_call(&comm, "AllReduce", "ncclBfloat16", 4096, false);
    support_setting(wrong[i][0], NULL);
    driver_begin(&driver, &other, 1, NULL, 1, 2, 1); /* the next one is all right, */
    assert_int_equal(driver.mask, 1 << COLL_API);
    support_setting(wrong[i][0], wrong[i][1]);
    driver_begin(&driver, &comm, 0xbad, NULL, 1, 2, 1); /* and settings are read once for all that live */
    assert_int_equal(driver.mask, 1 << COLL_API);
    support_setting(wrong[i][0], NULL);
    driver_end(&comm);
    driver_end(&other);
    driver_close(&driver);
    char* text = stderr_release();
    assert_int_equal(occurrences(text, wrong[i][0]), 1);
    assert_int_equal(occurrences(text, "NCCL communicator 0xbad has no report"), 1);
    free(text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(the_counts_are_those_of_the_program, set_up, tear_down),
      cmocka_unit_test_setup_teardown(several_threads_share_a_communicator, set_up, tear_down),
      cmocka_unit_test_setup_teardown(events_allocate_nothing_and_have_no_handle, set_up, tear_down),
      cmocka_unit_test_setup_teardown(more_sizes_than_counters_are_said_to_be, set_up, tear_down),
      cmocka_unit_test_setup_teardown(what_can_never_be_served_is_reported_with_its_reason, set_up, tear_down),
      cmocka_unit_test_setup_teardown(types_and_shapes_decide_what_is_fusible, set_up, tear_down),
      cmocka_unit_test_setup_teardown(the_settings_count_as_for_a_communicator, set_up, tear_down),
      cmocka_unit_test_setup_teardown(odd_calls_do_no_harm, set_up, tear_down),
      cmocka_unit_test_setup_teardown(wrong_settings_leave_nccl_alone, set_up, tear_down),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
