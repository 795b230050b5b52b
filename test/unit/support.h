/* SPDX-License-Identifier: Apache-2.0
 *
 * support.h: what the tests of the plugin's table and of libarfusion share: ranks as threads or forked processes, a
 * logger that keeps quiet, and a small operation whose result is known.
 */
#ifndef ARFUSION_TEST_SUPPORT_H_
#define ARFUSION_TEST_SUPPORT_H_

#include "arfusion_plugin.h"

extern const arfusionPlugin_v1_t arfusionPlugin_v1;

enum { SUPPORT_MAX_RANKS = 32 };

/* How a rank's function ended. */
struct support_outcome {
  int ended;               /* 0: its process died, hung and was killed, or leaks memory */
  arfusionResult_t result;
  char text[1024];         /* getLastError, if result is an error */
  double seconds;
  int64_t value[4];        /* what the function leaves there */
};

typedef arfusionResult_t (*support_function)(int rank, void* argument, struct support_outcome* outcome);

/* Calls `function` once a rank, all at the same time, and waits for all. Processes are killed after 30 s. */
void support_threads(int nranks, support_function function, void* argument, struct support_outcome* outcomes);
void support_processes(int nranks, support_function function, void* argument, struct support_outcome* outcomes);

double support_now(void);
void support_sleep(double seconds);

/* A logger that keeps nothing but the number of lines. */
void support_logger(arfusionLogLevel_t level, unsigned long flags, const char* file, int line, const char* fmt, ...);
int support_lines_logged(void);

/* A context with that logger; NULL if init fails. */
void* support_context(void);

/* Sets or (value NULL) removes a variable. */
void support_setting(const char* name, const char* value);

/* Sets ARFUSION_PLUGIN to the plugin of this build. */
void support_use_plugin(void);

/* Whether `text` has each of `words`, which are separated by '|'; says on stderr which one it has not. */
int support_text_has(const char* text, const char* words);

/* Descriptors and mappings of this process. */
int support_descriptors(void);
int support_mappings(const char* name); /* those whose line has `name` in it */

/* ---------------------------------------------------------------- an operation: fp32, values that sums keep exact */

float support_input(int rank, int64_t element);
float support_residual(int64_t element);
float support_gamma(int64_t column);

/* residual_out and norm_out of `tokens` rows, computed in double. eps is SUPPORT_EPS. */
#define SUPPORT_EPS 1e-5f
void support_reference(int nranks, int with_residual, int64_t tokens, int64_t hidden, float* residual_out,
                       float* norm_out);

/* Largest difference between two rows, relative to 1 + |b|. */
double support_distance(const float* a, const float* b, int64_t count);

enum { SUPPORT_TOKENS = 3, SUPPORT_HIDDEN = 64, SUPPORT_ELEMENTS = SUPPORT_TOKENS * SUPPORT_HIDDEN };

struct support_tensors {
  float input[SUPPORT_ELEMENTS], residual_in[SUPPORT_ELEMENTS], gamma[SUPPORT_HIDDEN];
  float residual_out[SUPPORT_ELEMENTS], norm_out[SUPPORT_ELEMENTS];
};

/* Fills the inputs, spoils the outputs, and returns a residual_rmsnorm request over them. */
arfusionRequest_t support_request(struct support_tensors* tensors, int rank);

/* Whether the outputs are right. */
int support_outputs_right(const struct support_tensors* tensors, int nranks);

/* One such operation on this rank: success only if it was not turned down and its outputs are right. */
arfusionResult_t support_operation(void* comm, int rank, int nranks);

/* The same on all ranks, which are communicators of this process; 1 if all succeeded. */
int support_operation_all(void* const* comms, int nranks);

#endif
