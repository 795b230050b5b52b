/* SPDX-License-Identifier: Apache-2.0
 *
 * bootstrap_ranks.h: runs a function once a rank, as threads or as forked processes, and collects how it ended. For the
 * tests of the bootstraps.
 */
#ifndef ARFUSION_TEST_BOOTSTRAP_RANKS_H_
#define ARFUSION_TEST_BOOTSTRAP_RANKS_H_

#include <assert.h>
#include <dirent.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "plugin/core/bootstrap_internal.h"
#include "plugin/core/log.h"

#define RANKS_MAX 40

struct outcome {
  arfusionResult_t result;
  char text[1024]; /* the last error's, if result is one */
  double seconds;
};

typedef arfusionResult_t (*rank_function)(int index, void* context);

struct rank_thread {
  rank_function function;
  int index;
  void* context;
  struct outcome* outcome;
};

static inline void* rank_run(void* argument) {
  struct rank_thread* thread = argument;
  int64_t start = net_now();

  thread->outcome->result = thread->function(thread->index, thread->context);
  thread->outcome->seconds = (double)(net_now() - start) / NET_SECOND;
  if (thread->outcome->result != arfusionSuccess) snprintf(thread->outcome->text, 1024, "%s", error_last());
  return NULL;
}

static inline void ranks_as_threads(int count, rank_function function, void* context, struct outcome* outcomes) {
  struct rank_thread threads[RANKS_MAX];
  pthread_t ids[RANKS_MAX];

  memset(outcomes, 0, (size_t)count * sizeof(*outcomes));
  for (int i = 0; i < count; i++) {
    threads[i] = (struct rank_thread){function, i, context, &outcomes[i]};
    int error = pthread_create(&ids[i], NULL, rank_run, &threads[i]);
    assert(error == 0);
    (void)error;
  }
  for (int i = 0; i < count; i++) pthread_join(ids[i], NULL);
}

/* A process that ends without having come back leaves the result -1. */
static inline void ranks_as_processes(int count, rank_function function, void* context, struct outcome* outcomes) {
  size_t bytes = (size_t)count * sizeof(*outcomes);
  struct outcome* shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pid_t pids[RANKS_MAX];

  assert(shared != MAP_FAILED);
  for (int i = 0; i < count; i++) {
    shared[i].result = (arfusionResult_t)-1;
    fflush(NULL);
    pids[i] = fork();
    if (pids[i] == 0) {
      struct rank_thread thread = {function, i, context, &shared[i]};
      rank_run(&thread);
      _exit(0);
    }
  }
  for (int i = 0; i < count; i++) waitpid(pids[i], NULL, 0);
  memcpy(outcomes, shared, bytes);
  munmap(shared, bytes);
}

static inline int descriptors_open(void) {
  DIR* folder = opendir("/proc/self/fd");
  int count = 0;

  assert(folder != NULL);
  while (readdir(folder) != NULL) count++;
  closedir(folder);
  return count;
}

#endif
