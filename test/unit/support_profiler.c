/* SPDX-License-Identifier: Apache-2.0
 *
 * support_profiler.c: see profiler_driver.h.
 */
#include "test/unit/profiler_driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(condition)                                                      \
  do {                                                                        \
    if (condition) break;                                                     \
    fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
    _Exit(1);                                                                 \
  } while (0)

static const char* const table_names[] = {[5] = "ncclProfiler_v5", [6] = "ncclProfiler_v6"};

void driver_path(const char* name, char path[4096]) {
  const ssize_t length = readlink("/proc/self/exe", path, 4000);
  CHECK(length > 0);
  path[length] = '\0';
  /* BUILDDIR/test/unit/test_... */
  for (int level = 0; level < 3 && strrchr(path, '/'); ++level) *strrchr(path, '/') = '\0';
  snprintf(path + strlen(path), 96, "/%s", name);
}

void driver_open(struct driver* driver, int version) {
  char path[4096];
  driver_path("libnccl-profiler-arfusion.so", path);
  driver->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!driver->library) fprintf(stderr, "%s\n", dlerror());
  CHECK(driver->library);
  driver->profiler = dlsym(driver->library, table_names[version]);
  driver->mask = 0;
  CHECK(driver->profiler && !strcmp(driver->profiler->name, "arfusion"));
}

void driver_close(struct driver* driver) { CHECK(!dlclose(driver->library)); }

/* As silent as NCCL's is unless NCCL_DEBUG is set. */
static void logger(int level, unsigned long flags, const char* file, int line, const char* fmt, ...) {
  (void)level, (void)flags, (void)file, (void)line, (void)fmt;
}

void driver_begin(struct driver* driver, struct driver_comm* comm, uint64_t id, const char* name, int nnodes,
                  int nranks, int rank) {
  *comm = (struct driver_comm){.driver = driver};
  CHECK(driver->profiler->init(&comm->context, id, &driver->mask, name, nnodes, nranks, rank, logger) == 0);
}

void driver_end(struct driver_comm* comm) {
  if (comm->context) CHECK(comm->driver->profiler->finalize(comm->context) == 0);
}

/* What `comm` is told when an event begins, if one of `kinds` is asked for. */
static void* start(struct driver_comm* comm, int kinds, struct event* event) {
  void* handle = NULL;
  if (__atomic_load_n(&comm->driver->mask, __ATOMIC_RELAXED) & kinds)
    CHECK(comm->driver->profiler->start(comm->context, &handle, event) == 0);
  return handle;
}

static void stop(struct driver_comm* comm, void* handle) {
  if (handle) CHECK(comm->driver->profiler->stop(handle) == 0);
}

void driver_call(struct driver_comm* comm, const char* func, const char* datatype, size_t count, bool captured) {
  /* An event is also sent when only its children are asked for. */
  const int below_coll = 1 << COLL | 1 << PROXY_OP | 1 << PROXY_STEP | 1 << KERNEL_CH | 1 << NET_PLUGIN;
  const int below_call = below_coll | 1 << COLL_API | 1 << CE_COLL | 1 << CE_SYNC | 1 << CE_BATCH;
  struct event event = {.type = 1 << GROUP_API, .group_api = {.captured = captured, .depth = 1}};
  void* group_api =
      start(comm, below_call | 1 << GROUP_API | 1 << GROUP | 1 << P2P_API | 1 << P2P | 1 << KERNEL_LAUNCH, &event);
  if (group_api) CHECK(comm->driver->profiler->record(group_api, 23, NULL) == 0);
  event = (struct event){.type = 1 << COLL_API,
                         .parent = group_api,
                         .coll_api = {.func = func, .count = count, .datatype = datatype, .captured = captured}};
  stop(comm, start(comm, below_call, &event));
  if (group_api) CHECK(comm->driver->profiler->record(group_api, 24, NULL) == 0);
  event = (struct event){.type = 1 << KERNEL_LAUNCH, .parent = group_api};
  void* launch = start(comm, 1 << KERNEL_LAUNCH, &event);
  event = (struct event){.type = 1 << GROUP};
  void* group = start(comm, below_coll | 1 << GROUP, &event);
  event = (struct event){.type = 1 << COLL, .parent = group};
  void* coll = start(comm, below_coll, &event);
  stop(comm, launch);
  stop(comm, coll);
  stop(comm, group);
  stop(comm, group_api);
}

void driver_event(struct driver_comm* comm, int kind) {
  const struct profiler* profiler = comm->driver->profiler;
  unsigned char args[64];
  struct event event;
  void* handle = NULL;
  memset(&event, 0xa5, sizeof event);
  memset(args, 0xa5, sizeof args);
  event.type = (uint64_t)1 << kind;
  CHECK(profiler->start(comm->context, &handle, &event) == 0);
  if (!handle) return;
  for (int state = 0; state <= 30; ++state) CHECK(profiler->record(handle, state, args) == 0);
  CHECK(profiler->stop(handle) == 0);
}
