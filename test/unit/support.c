/* SPDX-License-Identifier: Apache-2.0
 *
 * support.c: see support.h.
 */
#include "test/unit/support.h"

#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { HANG_SECONDS = 30 };

static const arfusionPlugin_v1_t* const plugin = &arfusionPlugin_v1;
static atomic_int lines_logged;

double support_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

void support_sleep(double seconds) {
  struct timespec pause = {.tv_sec = (time_t)seconds, .tv_nsec = (long)((seconds - (double)(time_t)seconds) * 1e9)};
  nanosleep(&pause, NULL);
}

/* ---------------------------------------------------------------- ranks */

/* The address sanitizer's, where it is. */
extern int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

struct rank_run {
  support_function function;
  int rank;
  void* argument;
  struct support_outcome* outcome;
};

static void* rank_run(void* argument) {
  const struct rank_run* run = argument;
  const double start = support_now();
  run->outcome->result = run->function(run->rank, run->argument, run->outcome);
  run->outcome->seconds = support_now() - start;
  if (run->outcome->result != arfusionSuccess) {
    snprintf(run->outcome->text, sizeof run->outcome->text, "%s", plugin->getLastError());
  }
  run->outcome->ended = 1;
  return NULL;
}

void support_threads(int nranks, support_function function, void* argument, struct support_outcome* outcomes) {
  struct rank_run runs[SUPPORT_MAX_RANKS];
  pthread_t threads[SUPPORT_MAX_RANKS];
  memset(outcomes, 0, (size_t)nranks * sizeof *outcomes);
  for (int r = 0; r < nranks; ++r) {
    runs[r] = (struct rank_run){function, r, argument, &outcomes[r]};
    if (pthread_create(&threads[r], NULL, rank_run, &runs[r])) {
      perror("pthread_create");
      _exit(1); /* the others would wait for it */
    }
  }
  for (int r = 0; r < nranks; ++r) pthread_join(threads[r], NULL);
}

void support_processes(int nranks, support_function function, void* argument, struct support_outcome* outcomes) {
  const size_t bytes = (size_t)nranks * sizeof *outcomes;
  struct support_outcome* shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pid_t pids[SUPPORT_MAX_RANKS];
  fflush(NULL);
  for (int r = 0; r < nranks; ++r) {
    pids[r] = fork();
    if (pids[r] == 0) {
      struct rank_run run = {function, r, argument, &shared[r]};
      alarm(HANG_SECONDS);
      rank_run(&run);
      if (__lsan_do_recoverable_leak_check && __lsan_do_recoverable_leak_check()) shared[r].ended = 0;
      _exit(0);
    }
  }
  for (int r = 0; r < nranks; ++r) waitpid(pids[r], NULL, 0);
  memcpy(outcomes, shared, bytes);
  munmap(shared, bytes);
}

/* ---------------------------------------------------------------- contexts, settings, texts */

void support_logger(arfusionLogLevel_t level, unsigned long flags, const char* file, int line, const char* fmt, ...) {
  (void)level;
  (void)flags;
  (void)file;
  (void)line;
  (void)fmt;
  atomic_fetch_add(&lines_logged, 1);
}

int support_lines_logged(void) { return atomic_load(&lines_logged); }

void* support_context(void) {
  void* ctx = NULL;
  return plugin->init(&ctx, support_logger) == arfusionSuccess ? ctx : NULL;
}

void support_setting(const char* name, const char* value) {
  if (value) {
    setenv(name, value, 1);
  } else {
    unsetenv(name);
  }
}

void support_use_plugin(void) {
  char path[4096] = "";
  if (readlink("/proc/self/exe", path, sizeof path - 64) < 0) perror("readlink");
  /* BUILDDIR/test/unit/test_... */
  for (int level = 0; level < 3 && strrchr(path, '/'); ++level) *strrchr(path, '/') = '\0';
  strcat(path, "/libarfusion-plugin.so");
  support_setting("ARFUSION_PLUGIN", path);
}

int support_text_has(const char* text, const char* words) {
  while (*words) {
    char word[128];
    const size_t length = strcspn(words, "|");
    snprintf(word, sizeof word, "%.*s", (int)length, words);
    if (!strstr(text, word)) {
      fprintf(stderr, "\"%s\" is not in: %s\n", word, text);
      return 0;
    }
    words += length + (words[length] == '|');
  }
  return 1;
}

int support_descriptors(void) {
  DIR* folder = opendir("/proc/self/fd");
  int count = 0;
  while (folder && readdir(folder)) ++count;
  if (folder) closedir(folder);
  return count;
}

int support_mappings(const char* name) {
  FILE* file = fopen("/proc/self/maps", "re");
  char line[512];
  int count = 0;
  while (file && fgets(line, sizeof line, file)) count += strstr(line, name) != NULL;
  if (file) fclose(file);
  return count;
}

/* ---------------------------------------------------------------- the operation */

float support_input(int rank, int64_t element) { return (float)((element * 7 + rank * 5) % 23 - 11); }
float support_residual(int64_t element) { return (float)(element * 3 % 17 - 8); }
float support_gamma(int64_t column) { return 0.5f + (float)(column % 9) * 0.25f; }

void support_reference(int nranks, int with_residual, int64_t tokens, int64_t hidden, float* residual_out,
                       float* norm_out) {
  for (int64_t t = 0; t < tokens; ++t) {
    double squares = 0;
    for (int64_t c = 0; c < hidden; ++c) {
      double y = with_residual ? support_residual(t * hidden + c) : 0;
      for (int r = 0; r < nranks; ++r) y += support_input(r, t * hidden + c);
      residual_out[t * hidden + c] = (float)y;
      squares += y * y;
    }
    const double scale = 1.0 / sqrt(squares / (double)hidden + SUPPORT_EPS);
    for (int64_t c = 0; c < hidden; ++c) {
      norm_out[t * hidden + c] = (float)(residual_out[t * hidden + c] * scale * support_gamma(c));
    }
  }
}

double support_distance(const float* a, const float* b, int64_t count) {
  double largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double distance = fabs((double)a[i] - (double)b[i]) / (1 + fabs((double)b[i]));
    if (!(distance <= largest)) largest = distance; /* also of NaN */
  }
  return largest;
}

arfusionRequest_t support_request(struct support_tensors* tensors, int rank) {
  memset(tensors, 0xa5, sizeof *tensors);
  for (int i = 0; i < SUPPORT_ELEMENTS; ++i) {
    tensors->input[i] = support_input(rank, i);
    tensors->residual_in[i] = support_residual(i);
  }
  for (int c = 0; c < SUPPORT_HIDDEN; ++c) tensors->gamma[c] = support_gamma(c);
  return (arfusionRequest_t){.size = sizeof(arfusionRequest_t),
                             .pattern = arfusionPatternResidualRmsNorm,
                             .dataType = arfusionFloat32,
                             .gammaDataType = arfusionFloat32,
                             .tokens = SUPPORT_TOKENS,
                             .hidden = SUPPORT_HIDDEN,
                             .eps = SUPPORT_EPS,
                             .input = tensors->input,
                             .residualIn = tensors->residual_in,
                             .gamma = tensors->gamma,
                             .residualOut = tensors->residual_out,
                             .normOut = tensors->norm_out};
}

int support_outputs_right(const struct support_tensors* tensors, int nranks) {
  float residual_out[SUPPORT_ELEMENTS], norm_out[SUPPORT_ELEMENTS];
  support_reference(nranks, 1, SUPPORT_TOKENS, SUPPORT_HIDDEN, residual_out, norm_out);
  return support_distance(tensors->residual_out, residual_out, SUPPORT_ELEMENTS) == 0 &&
         support_distance(tensors->norm_out, norm_out, SUPPORT_ELEMENTS) < 1e-5;
}

arfusionResult_t support_operation(void* comm, int rank, int nranks) {
  struct support_tensors tensors;
  const arfusionRequest_t request = support_request(&tensors, rank);
  arfusionRoute_t route = {.size = sizeof route};
  const arfusionResult_t result = plugin->enqueue(comm, &request, NULL, &route);
  if (result != arfusionSuccess) return result;
  if (route.algorithm < arfusionAlgoOneshotLamport || !support_outputs_right(&tensors, nranks)) {
    fprintf(stderr, "rank %d of %d: algorithm %d, reason %d, outputs %s\n", rank, nranks, route.algorithm, route.reason,
            support_outputs_right(&tensors, nranks) ? "right" : "wrong");
    return arfusionInternalError;
  }
  return arfusionSuccess;
}

struct operation_all {
  void* const* comms;
  int nranks;
};

static arfusionResult_t operation_rank(int rank, void* argument, struct support_outcome* outcome) {
  const struct operation_all* all = argument;
  (void)outcome;
  return support_operation(all->comms[rank], rank, all->nranks);
}

int support_operation_all(void* const* comms, int nranks) {
  struct support_outcome outcomes[SUPPORT_MAX_RANKS];
  struct operation_all all = {comms, nranks};
  int right = 1;
  support_threads(nranks, operation_rank, &all, outcomes);
  for (int r = 0; r < nranks; ++r) {
    if (outcomes[r].result == arfusionSuccess) continue;
    fprintf(stderr, "rank %d of %d: %d, %s\n", r, nranks, outcomes[r].result, outcomes[r].text);
    right = 0;
  }
  return right;
}
