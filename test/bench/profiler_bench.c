/* SPDX-License-Identifier: Apache-2.0
 *
 * profiler_bench.c: what the plugin as NCCL's profiler adds to the host's time of one allreduce: both events that NCCL
 * sends for a call with the mask that the plugin sets, by the number of different sizes, and from two threads at once
 * on one communicator. Medians; one line a case.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "plugin/nccl/profiler_abi.h"

enum { RUNS = 41, CALLS = 40000, GROUP_API = 1 << 8 };

static const struct nccl_profiler* profiler;

static double clock_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static int compare_double(const void* a, const void* b) {
  double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

/* The pointer is read anew in every call, as NCCL does it. */
static void call(void* context, size_t count, const char* datatype) {
  const struct nccl_profiler* volatile table = profiler;
  struct nccl_profiler_event group = {.type = GROUP_API};
  struct nccl_profiler_event coll = {.type = NCCL_PROFILER_COLL_API,
                                     .coll_api = {.func = "AllReduce", .count = count, .datatype = datatype}};
  void* handle;
  table->start_event(context, &handle, &group);
  table->start_event(context, &handle, &coll);
  if (handle) table->stop_event(handle);
}

struct work {
  void* context;
  int sizes;
  const char* datatype;
  double ns; /* of a call */
};

static void* work_run(void* argument) {
  struct work* work = argument;
  double runs[RUNS];
  for (int r = 0; r < RUNS; r++) {
    const double start = clock_ns();
    for (int i = 0; i < CALLS; i++) call(work->context, (size_t)(i % work->sizes + 1) * 4096, work->datatype);
    runs[r] = (clock_ns() - start) / CALLS;
  }
  qsort(runs, RUNS, sizeof(runs[0]), compare_double);
  work->ns = runs[RUNS / 2];
  return NULL;
}

static void measure(int nthreads, int sizes, const char* datatype) {
  pthread_t threads[2];
  struct work work[2];
  void* context;
  int mask = 0;
  if (profiler->init(&context, 1, &mask, NULL, 1, 2, 1, NULL) || !context || mask != NCCL_PROFILER_COLL_API) {
    fprintf(stderr, "the profiler did not begin\n");
    exit(1);
  }
  for (int t = 0; t < nthreads; t++) {
    work[t] = (struct work){.context = context, .sizes = sizes, .datatype = datatype};
    if (pthread_create(&threads[t], NULL, work_run, &work[t])) exit(1);
  }
  for (int t = 0; t < nthreads; t++) pthread_join(threads[t], NULL);
  printf("%d thread%-1s %5d sizes, %-14s %6.1f ns a call, %5.2f us for 160\n", nthreads, nthreads > 1 ? "s" : "", sizes,
         datatype, work[0].ns, work[0].ns * 160 / 1000);
  profiler->finalize(context);
}

int main(void) {
  static const int sizes[] = {1, 2, 64, 1024, 12288};
  unsetenv("ARFUSION_REPORT");
  void* library = dlopen("libnccl-profiler-arfusion.so", RTLD_NOW | RTLD_LOCAL);
  profiler = library ? dlsym(library, "ncclProfiler_v6") : NULL;
  if (!profiler) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) measure(1, sizes[s], "ncclBfloat16");
  measure(1, 64, "ncclFloat8e5m2"); /* the last one that is looked for */
  for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) measure(2, sizes[s], "ncclBfloat16");
  return 0;
}
