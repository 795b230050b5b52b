/* SPDX-License-Identifier: Apache-2.0
 *
 * test_bootstrap_environment.c: the bootstrap from torchrun's variables: jobs side by side, several hosts, wrong
 * variables.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "test/unit/bootstrap_ranks.h"

#define LIMIT_S 20

static struct outcome outcomes[RANKS_MAX];

static void environment_set(const char* name, int value) {
  char text[16];
  snprintf(text, sizeof(text), "%d", value);
  setenv(name, text, 1);
}

/* Two jobs of three ranks at once, with different ports, two communicators each. */
static arfusionResult_t environment_rank(int index, void* context) {
  (void)context;

  setenv("MASTER_ADDR", "127.0.0.1", 1);
  environment_set("MASTER_PORT", 29500 + index / 3);
  environment_set("WORLD_SIZE", 3);
  environment_set("LOCAL_WORLD_SIZE", 3);
  environment_set("RANK", index % 3);
  environment_set("LOCAL_RANK", index % 3);
  environment_set("TORCHELASTIC_RUN_ID", (int)getppid());
  for (int call = 0; call < 2; call++) {
    arfusionBootstrap_t bootstrap;
    arfusionResult_t result;
    int32_t jobs[3], job = 10 * (index / 3) + call, local = -1;

    FORWARD_IF_ERROR(bootstrap_from_environment(LIMIT_S, &bootstrap, call == 0 ? &local : NULL));
    if (call == 0 && local != index % 3) return error_set(arfusionInternalError, "local rank %d", local);
    result = bootstrap_all_gather(&bootstrap, &job, jobs, sizeof(job));
    for (int r = 0; r < 3 && result == arfusionSuccess; r++) {
      if (jobs[r] != job) result = error_set(arfusionInternalError, "the jobs or the calls are mixed");
    }
    bootstrap_destroy(&bootstrap);
    FORWARD_IF_ERROR(result);
  }
  return arfusionSuccess;
}

static void test_environment(void** state) {
  (void)state;
  ranks_as_processes(6, environment_rank, NULL, outcomes);
  for (int i = 0; i < 6; i++) {
    if (outcomes[i].result != arfusionSuccess) fail_msg("process %d: %s", i, outcomes[i].text);
  }
}

static arfusionResult_t several_hosts_rank(int index, void* context) {
  arfusionBootstrap_t bootstrap;
  int local;
  (void)index, (void)context;

  setenv("MASTER_ADDR", "10.0.0.1", 1);
  environment_set("MASTER_PORT", 29500);
  environment_set("WORLD_SIZE", 20);
  environment_set("LOCAL_WORLD_SIZE", 8);
  environment_set("RANK", 9);
  environment_set("LOCAL_RANK", 1);
  FORWARD_IF_ERROR(bootstrap_from_environment(LIMIT_S, &bootstrap, &local));
  if (bootstrap.nhosts != 3 || bootstrap.allGather != NULL || bootstrap.rank != 9 || bootstrap.nranks != 20 ||
      local != 1) {
    return error_set(arfusionInternalError, "wrong fields");
  }
  bootstrap_destroy(&bootstrap);
  return arfusionSuccess;
}

static void test_several_hosts(void** state) {
  (void)state;
  ranks_as_processes(1, several_hosts_rank, NULL, outcomes);
  assert_int_equal(outcomes[0].result, arfusionSuccess);
}

static const char* const complete[][2] = {
    {"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "29500"}};

static const struct {
  const char *name, *value, *text;
} wrong_variables[] = {
    {"RANK", NULL, "RANK is not set"},
    {"WORLD_SIZE", NULL, "WORLD_SIZE is not set"},
    {"LOCAL_RANK", NULL, "LOCAL_RANK is not set"},
    {"MASTER_ADDR", NULL, "MASTER_ADDR is not set"},
    {"MASTER_PORT", NULL, "MASTER_PORT is not set"},
    {"MASTER_ADDR", "", "MASTER_ADDR is not set"},
    {"RANK", "1", "RANK is 1, allowed is a whole number from 0 to 0"},
    {"RANK", "-1", "RANK is -1"},
    {"RANK", "x", "RANK is x"},
    {"RANK", " 0", "RANK is  0"},
    {"RANK", "0.", "RANK is 0."},
    {"WORLD_SIZE", "0", "WORLD_SIZE is 0, allowed is a whole number from 1"},
    {"WORLD_SIZE", "99999999999999999999999", "WORLD_SIZE is 9"},
    {"LOCAL_RANK", "1", "LOCAL_RANK is 1"},
    {"LOCAL_WORLD_SIZE", "2", "LOCAL_WORLD_SIZE is 2, allowed is a whole number from 1 to 1"},
    {"MASTER_PORT", "65536", "MASTER_PORT is 65536, allowed is a whole number from 1 to 65535"},
};

static arfusionResult_t variable_rank(int index, void* context) {
  arfusionBootstrap_t bootstrap;
  (void)context;

  unsetenv("LOCAL_WORLD_SIZE");
  for (size_t v = 0; v < sizeof(complete) / sizeof(complete[0]); v++) setenv(complete[v][0], complete[v][1], 1);
  if (wrong_variables[index].value == NULL) {
    unsetenv(wrong_variables[index].name);
  } else {
    setenv(wrong_variables[index].name, wrong_variables[index].value, 1);
  }
  return bootstrap_from_environment(LIMIT_S, &bootstrap, NULL);
}

static void test_variables(void** state) {
  const int count = (int)(sizeof(wrong_variables) / sizeof(wrong_variables[0]));
  (void)state;

  ranks_as_processes(count, variable_rank, NULL, outcomes);
  for (int i = 0; i < count; i++) {
    if (outcomes[i].result == arfusionInvalidArgument && strstr(outcomes[i].text, wrong_variables[i].text) != NULL)
      continue;
    fail_msg("%s: %d %s", wrong_variables[i].text, (int)outcomes[i].result, outcomes[i].text);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_environment),
      cmocka_unit_test(test_several_hosts),
      cmocka_unit_test(test_variables),
  };
  log_configure(NULL, arfusionLogNone);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
