/* SPDX-License-Identifier: Apache-2.0
 *
 * support.c: see support.h.
 */
#include "test/nccl/support.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct nccl_config support_nonblocking(void) {
  return (struct nccl_config){.size = sizeof(struct nccl_config), .magic = 0xcafebeef, .version = 22809, .blocking = 0};
}

void support_settings(void) {
  char path[4096];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path - 64);
  CHECK(length > 0);
  path[length] = '\0';
  strcpy(strrchr(path, '/'), "/libarfusion-plugin-stream.so");
  setenv("ARFUSION_PLUGIN", path, 1);
  setenv("ARFUSION_DEVICE", "host", 1);
  setenv("ARFUSION_WORKSPACE_LIMIT", "1M", 1);
  setenv("ARFUSION_INIT_TIMEOUT", "20", 0);
}

static void* plugin_symbol(const char* name) {
  void* plugin = dlopen(getenv("ARFUSION_PLUGIN"), RTLD_NOW | RTLD_NOLOAD);
  CHECK(plugin);
  void* symbol = dlsym(plugin, name);
  CHECK(symbol);
  dlclose(plugin);
  return symbol;
}

int support_plugin_communicators(void) {
  int (*count)(void);
  void* symbol = plugin_symbol("streamPluginCommunicators");
  memcpy(&count, &symbol, sizeof count);
  return count();
}

const char* support_plugin_defaults(void) {
  const char* (*defaults)(void);
  void* symbol = plugin_symbol("streamPluginDefaults");
  memcpy(&defaults, &symbol, sizeof defaults);
  return defaults();
}

void support_plugin_ends(void) {
  for (int i = 0; i < 1000 && support_plugin_communicators(); ++i) nanosleep(&(struct timespec){0, 10000000}, NULL);
  CHECK(support_plugin_communicators() == 0);
}

void support_fail(const char* file, int line, const char* condition) {
  fprintf(stderr, "%s:%d: not so: %s (%s)\n", file, line, condition, ncclGetLastError(NULL));
  fflush(stderr);
  _Exit(1);
}

struct thread {
  pthread_t thread;
  int index;
  void (*function)(int, void*);
  void* argument;
};

static void* thread_run(void* argument) {
  struct thread* thread = argument;
  thread->function(thread->index, thread->argument);
  return NULL;
}

void support_threads(int count, void (*function)(int index, void* argument), void* argument) {
  struct thread* threads = calloc((size_t)count, sizeof *threads);
  CHECK(threads);
  for (int i = 0; i < count; ++i) {
    threads[i] = (struct thread){.index = i, .function = function, .argument = argument};
    CHECK(pthread_create(&threads[i].thread, NULL, thread_run, &threads[i]) == 0);
  }
  for (int i = 0; i < count; ++i) pthread_join(threads[i].thread, NULL);
  free(threads);
}

double support_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

int support_wait(void* comm) {
  const struct timespec pause = {0, 50000};
  for (;;) {
    int state = NCCL_SUCCESS;
    CHECK(ncclCommGetAsyncError(comm, &state) == NCCL_SUCCESS);
    if (state != NCCL_IN_PROGRESS) return state;
    nanosleep(&pause, NULL);
  }
}
