/* SPDX-License-Identifier: Apache-2.0
 *
 * test_library.c: libarfusion on the host device. The library is opened once a process, so every test runs in children
 * of its own and the test program itself never opens it. How requests are completed is in test_library_complete.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "arfusion.h"
#include "test/unit/library_ranks.h"

/* In a child there is nobody to catch an assertion. */
#define CHECK(condition)                                                        \
  if (!(condition)) {                                                           \
    fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);     \
    return arfusionInternalError;                                               \
  }

static const arfusionConfig_t small = {.size = sizeof small, .maxTokens = 8, .hidden = 64, .dataType = arfusionFloat32};

static int set_up(void** state) {
  (void)state;
  support_setting("ARFUSION_DEVICE", "host");
  support_setting("ARFUSION_DEBUG", "none");
  support_setting("ARFUSION_INIT_TIMEOUT", "20");
  support_use_plugin();
  return 0;
}

static void in_processes(int nranks, support_function function, void* argument) {
  struct support_outcome outcomes[SUPPORT_MAX_RANKS];
  library_ranks_run(nranks, function, argument, outcomes);
}

/* ---------------------------------------------------------------- the operation */

static arfusionResult_t operation(arfusionComm_t comm, int rank, int nranks) {
  struct support_tensors tensors;
  const arfusionRequest_t request = support_request(&tensors, rank);
  arfusionRoute_t route = {.size = sizeof route};
  const arfusionResult_t result = arfusionAllReduce(comm, &request, NULL, &route);
  if (result != arfusionSuccess) return result;
  CHECK(route.algorithm >= arfusionAlgoOneshotLamport);
  CHECK(support_outputs_right(&tensors, nranks));
  return arfusionSuccess;
}

struct all {
  arfusionComm_t* comms;
  int nranks;
};

static arfusionResult_t operation_of_all(int rank, void* argument, struct support_outcome* outcome) {
  const struct all* all = argument;
  (void)outcome;
  return operation(all->comms[rank], rank, all->nranks);
}

static int operations_right(arfusionComm_t* comms, int nranks) {
  struct support_outcome outcomes[SUPPORT_MAX_RANKS];
  struct all all = {comms, nranks};
  int right = 1;
  support_threads(nranks, operation_of_all, &all, outcomes);
  for (int r = 0; r < nranks; ++r) right &= outcomes[r].result == arfusionSuccess;
  return right;
}

/* ---------------------------------------------------------------- making communicators */

static arfusionResult_t init_all(int unused, void* argument, struct support_outcome* outcome) {
  (void)unused;
  (void)argument;
  (void)outcome;
  for (int nranks = 2; nranks <= 16; nranks *= 2) {
    arfusionComm_t comms[16];
    const int devs[16] = {0};
    int count, rank, dev;
    CHECK(arfusionCommInitAll(comms, nranks, nranks == 4 ? devs : NULL, &small) == arfusionSuccess);
    for (int r = 0; r < nranks; ++r) {
      CHECK(arfusionCommCount(comms[r], &count) == arfusionSuccess && count == nranks);
      CHECK(arfusionCommUserRank(comms[r], &rank) == arfusionSuccess && rank == r);
      CHECK(arfusionCommDevice(comms[r], &dev) == arfusionSuccess && dev == 0);
    }
    CHECK(operations_right(comms, nranks));
    for (int r = 0; r < nranks; ++r) CHECK(arfusionCommDestroy(comms[r]) == arfusionSuccess);
  }
  return arfusionSuccess;
}

static void communicators_of_one_process(void** state) {
  (void)state;
  in_processes(1, init_all, NULL);
}

static arfusionResult_t init_rank(int rank, void* argument, struct support_outcome* outcome) {
  (void)outcome;
  for (int dev = -1; dev <= 0; ++dev) {
    arfusionComm_t comm = NULL;
    int own = 7;
    const arfusionResult_t result =
        arfusionCommInitRank(&comm, 3, (arfusionUniqueId_t*)argument + (dev + 1), rank, dev, &small);
    if (result != arfusionSuccess) return result;
    CHECK(arfusionCommDevice(comm, &own) == arfusionSuccess && own == 0);
    CHECK(operation(comm, rank, 3) == arfusionSuccess);
    CHECK(arfusionCommDestroy(comm) == arfusionSuccess);
  }
  return arfusionSuccess;
}

static void communicators_over_a_unique_id(void** state) {
  (void)state;
  arfusionUniqueId_t ids[2];
  void* ctx = support_context();
  for (int i = 0; i < 2; ++i) assert_int_equal(arfusionPlugin_v1.getUniqueId(ctx, &ids[i]), arfusionSuccess);
  arfusionPlugin_v1.finalize(ctx);
  in_processes(3, init_rank, ids);
}

static arfusionResult_t init_environment(int rank, void* argument, struct support_outcome* outcome) {
  char text[16];
  arfusionComm_t comm;
  (void)argument;
  (void)outcome;
  snprintf(text, sizeof text, "%d", rank);
  support_setting("RANK", text);
  support_setting("LOCAL_RANK", text);
  support_setting("WORLD_SIZE", "3");
  support_setting("MASTER_ADDR", "localhost");
  support_setting("MASTER_PORT", "29512");
  const arfusionResult_t result = arfusionCommInitEnvironment(&comm, NULL);
  if (result != arfusionSuccess) return result;
  CHECK(operation(comm, rank, 3) == arfusionSuccess);
  return arfusionCommDestroy(comm);
}

static void communicators_over_torchruns_environment(void** state) {
  (void)state;
  in_processes(3, init_environment, NULL);
}

/* The host's own all-gather is the plugin's here, which is as good as any. */
static arfusionResult_t init_bootstrap(int rank, void* argument, struct support_outcome* outcome) {
  void* ctx = support_context();
  arfusionBootstrap_t bootstrap = {.size = sizeof bootstrap};
  arfusionComm_t comm = NULL;
  (void)outcome;
  arfusionResult_t result = arfusionPlugin_v1.bootstrapUniqueId(ctx, argument, 3, rank, &bootstrap);
  if (result == arfusionSuccess) result = arfusionCommInitBootstrap(&comm, &bootstrap, 0, &small);
  if (result == arfusionSuccess) result = operation(comm, rank, 3);
  CHECK(arfusionCommDestroy(comm) == arfusionSuccess);
  CHECK(bootstrap.opaque && bootstrap.allGather); /* the caller's still */
  arfusionPlugin_v1.bootstrapDestroy(ctx, &bootstrap);
  arfusionPlugin_v1.finalize(ctx);
  return result;
}

static void communicators_over_the_callers_all_gather(void** state) {
  (void)state;
  arfusionUniqueId_t id;
  void* ctx = support_context();
  assert_int_equal(arfusionPlugin_v1.getUniqueId(ctx, &id), arfusionSuccess);
  arfusionPlugin_v1.finalize(ctx);
  in_processes(3, init_bootstrap, &id);
}

/* ---------------------------------------------------------------- bad input */

#define IS_ERROR(call, words)                           \
  CHECK((call) == arfusionInvalidArgument);             \
  CHECK(support_text_has(arfusionGetLastError(), words))

static arfusionResult_t bad_arguments_of_making_one(void) {
  arfusionComm_t none = NULL;
  arfusionUniqueId_t id;
  arfusionBootstrap_t bootstrap = {.size = sizeof bootstrap, .nranks = 2};
  arfusionConfig_t config = small;
  arfusionProperties_t properties = {.size = sizeof properties};
  CHECK(arfusionGetUniqueId(&id) == arfusionSuccess);
  IS_ERROR(arfusionGetDeviceCount(NULL), "ndev is NULL");
  IS_ERROR(arfusionGetProperties(0, NULL), "props is NULL");
  IS_ERROR(arfusionGetProperties(9, &properties), "dev is 9");
  IS_ERROR(arfusionGetUniqueId(NULL), "id is NULL");
  IS_ERROR(arfusionCommInitRank(NULL, 2, &id, 0, 0, NULL), "comm is NULL");
  IS_ERROR(arfusionCommInitRank(&none, 2, NULL, 0, 0, NULL), "id is NULL");
  IS_ERROR(arfusionCommInitRank(&none, 2, &id, 2, 0, NULL), "rank is 2|1");
  IS_ERROR(arfusionCommInitRank(&none, 0, &id, 0, 0, NULL), "nranks is 0");
  IS_ERROR(arfusionCommInitRank(&none, 1, &id, 0, 3, NULL), "dev is 3|0 to 0");
  IS_ERROR(arfusionCommInitRank(&none, 1, &id, 0, -2, NULL), "dev is -2|0 to 0");
  IS_ERROR(arfusionCommInitEnvironment(NULL, NULL), "comm is NULL");
  IS_ERROR(arfusionCommInitEnvironment(&none, NULL), "is not set in the environment");
  IS_ERROR(arfusionCommInitAll(NULL, 2, NULL, NULL), "comms is NULL");
  IS_ERROR(arfusionCommInitAll(&none, 0, NULL, NULL), "nranks is 0|1 to 4096");
  IS_ERROR(arfusionCommInitAll(&none, 4097, NULL, NULL), "nranks is 4097|1 to 4096");
  IS_ERROR(arfusionCommInitBootstrap(NULL, &bootstrap, 0, NULL), "comm is NULL");
  IS_ERROR(arfusionCommInitBootstrap(&none, NULL, 0, NULL), "bootstrap is NULL");
  IS_ERROR(arfusionCommInitBootstrap(&none, &bootstrap, 0, NULL), "bootstrap.allGather is NULL");
  IS_ERROR(arfusionCommInitNccl(NULL, &id, NULL), "comm is NULL");
  IS_ERROR(arfusionCommInitNccl(&none, NULL, NULL), "ncclComm is NULL");
  config.maxTokens = -5;
  IS_ERROR(arfusionCommInitAll(&none, 1, NULL, &config), "config.maxTokens is -5");
  config.size = 3;
  IS_ERROR(arfusionCommInitAll(&none, 1, NULL, &config), "config.size is 3|32");
  CHECK(!none);
  return arfusionSuccess;
}

static arfusionResult_t bad_arguments_of_using_one(arfusionComm_t comm) {
  arfusionRequest_t request = {.size = sizeof request};
  arfusionResult_t result;
  int number;
  CHECK(arfusionCommDestroy(NULL) == arfusionSuccess);
  IS_ERROR(arfusionCommAbort(NULL), "comm is NULL");
  IS_ERROR(arfusionCommGetAsyncError(NULL, &result, NULL, 0), "comm is NULL");
  IS_ERROR(arfusionCommGetAsyncError(comm, NULL, NULL, 0), "result is NULL");
  IS_ERROR(arfusionCommCount(NULL, &number), "comm is NULL");
  IS_ERROR(arfusionCommCount(comm, NULL), "nranks is NULL");
  IS_ERROR(arfusionCommUserRank(NULL, &number), "comm is NULL");
  IS_ERROR(arfusionCommUserRank(comm, NULL), "rank is NULL");
  IS_ERROR(arfusionCommDevice(NULL, &number), "comm is NULL");
  IS_ERROR(arfusionCommDevice(comm, NULL), "dev is NULL");
  IS_ERROR(arfusionCommGetCapacity(NULL, NULL), "comm is NULL");
  IS_ERROR(arfusionCommGetCapacity(comm, NULL), "capacity is NULL");
  IS_ERROR(arfusionCommGetStats(NULL, NULL), "comm is NULL");
  IS_ERROR(arfusionCommGetStats(comm, NULL), "stats is NULL");
  IS_ERROR(arfusionCommGetWorkspaceMetadata(NULL, 0, NULL), "comm is NULL");
  IS_ERROR(arfusionCommGetWorkspaceMetadata(comm, 0, NULL), "metadata is NULL");
  IS_ERROR(arfusionCommGetWorkspace(NULL, NULL), "comm is NULL");
  IS_ERROR(arfusionCommGetWorkspace(comm, NULL), "workspace is NULL");
  IS_ERROR(arfusionAllReduce(NULL, &request, NULL, NULL), "comm is NULL");
  IS_ERROR(arfusionAllReduce(comm, NULL, NULL, NULL), "request is NULL");
  IS_ERROR(arfusionAllReduce(comm, &request, NULL, NULL), "request.hidden is 0");
  IS_ERROR(arfusionEpilogue(NULL, &request, NULL), "comm is NULL");
  IS_ERROR(arfusionEpilogue(comm, &request, NULL), "request.hidden is 0");
  return arfusionSuccess;
}
#undef IS_ERROR

static arfusionResult_t bad_arguments(int unused, void* argument, struct support_outcome* outcome) {
  arfusionComm_t comms[2];
  (void)unused;
  (void)argument;
  (void)outcome;
  CHECK(arfusionCommInitAll(comms, 2, NULL, &small) == arfusionSuccess);
  CHECK(bad_arguments_of_making_one() == arfusionSuccess);
  CHECK(bad_arguments_of_using_one(comms[0]) == arfusionSuccess);
  CHECK(operations_right(comms, 2));
  for (int r = 0; r < 2; ++r) arfusionCommDestroy(comms[r]);
  return arfusionSuccess;
}

static void bad_arguments_are_errors_that_name_them(void** state) {
  (void)state;
  in_processes(1, bad_arguments, NULL);
}

static void every_result_has_a_sentence(void** state) {
  (void)state;
  for (int a = arfusionSuccess; a <= arfusionInProgress; ++a) {
    assert_string_not_equal(arfusionGetErrorString((arfusionResult_t)a), "unknown result code");
    for (int b = 0; b < a; ++b) {
      assert_string_not_equal(arfusionGetErrorString((arfusionResult_t)a), arfusionGetErrorString((arfusionResult_t)b));
    }
  }
  assert_string_equal(arfusionGetErrorString((arfusionResult_t)99), "unknown result code");
}

static arfusionResult_t aborting(int unused, void* argument, struct support_outcome* outcome) {
  arfusionComm_t comms[2];
  struct support_tensors tensors;
  arfusionRequest_t request = support_request(&tensors, 0);
  arfusionResult_t result;
  char text[256];
  (void)unused;
  (void)argument;
  (void)outcome;
  CHECK(arfusionCommInitAll(comms, 2, NULL, &small) == arfusionSuccess);
  CHECK(arfusionCommAbort(comms[0]) == arfusionSuccess);
  CHECK(arfusionAllReduce(comms[0], &request, NULL, NULL) == arfusionInvalidUsage);
  CHECK(arfusionAllReduce(comms[1], &request, NULL, NULL) == arfusionRemoteError);
  request.pattern = arfusionPatternAllReduce; /* also what the library would complete */
  request.dataType = arfusionFloat64;
  request.residualOut = request.normOut = NULL;
  request.allreduceOut = tensors.norm_out;
  request.hidden = 8;
  CHECK(arfusionAllReduce(comms[0], &request, NULL, NULL) == arfusionInvalidUsage);
  CHECK(arfusionCommGetAsyncError(comms[1], &result, text, sizeof text) == arfusionSuccess);
  CHECK(result == arfusionRemoteError && support_text_has(text, "rank 0"));
  for (int r = 0; r < 2; ++r) CHECK(arfusionCommDestroy(comms[r]) == arfusionSuccess);
  return arfusionSuccess;
}

static void an_abort_ends_it(void** state) {
  (void)state;
  in_processes(1, aborting, NULL);
}

/* ---------------------------------------------------------------- the epilogue alone */

/* One rank's input as the sum: the operation of one rank. */
static arfusionResult_t epilogue(int unused, void* argument, struct support_outcome* outcome) {
  arfusionComm_t comms[2];
  struct support_tensors tensors;
  arfusionRequest_t request = support_request(&tensors, 0);
  (void)unused;
  (void)argument;
  (void)outcome;
  CHECK(arfusionCommInitAll(comms, 2, NULL, &small) == arfusionSuccess);
  CHECK(arfusionEpilogue(comms[0], &request, NULL) == arfusionSuccess);
  CHECK(support_outputs_right(&tensors, 1));
  for (int r = 0; r < 2; ++r) CHECK(arfusionCommDestroy(comms[r]) == arfusionSuccess);
  return arfusionSuccess;
}

static void the_epilogue_follows_a_sum(void** state) {
  (void)state;
  in_processes(1, epilogue, NULL);
}

/* ---------------------------------------------------------------- FlashInfer's metadata */

static arfusionResult_t metadata(int unused, void* argument, struct support_outcome* outcome) {
  static const struct {
    arfusionConfig_t config;
    int nranks, fp32;
    int64_t tokens, hidden, buffer, lamport;
  } forms[] = {
      {{.maxTokens = 100, .hidden = 128, .dataType = arfusionBfloat16}, 2, 0, 100, 128, 51200, 51200},
      {{.maxTokens = 100, .hidden = 128, .dataType = arfusionBfloat16}, 4, 5, 100, 128, 102400, 204800},
      {{.maxTokens = 16384, .hidden = 16384, .dataType = arfusionFloat32}, 4, 1, 16384, 16384, 2147483648, 2145386496},
      {{.maxTokens = 0, .hidden = 0}, 2, 0, 16384, 8192, 536870912, 536870912},
      {{.maxTokens = 0, .hidden = 0}, 8, 0, 16384, 8192, 2147483648, 2145386496},
  };
  (void)unused;
  (void)argument;
  (void)outcome;
  for (size_t i = 0; i < sizeof forms / sizeof forms[0]; ++i) {
    arfusionComm_t comms[8];
    arfusionConfig_t config = forms[i].config;
    config.size = sizeof config;
    CHECK(arfusionCommInitAll(comms, forms[i].nranks, NULL, i == 4 ? NULL : &config) == arfusionSuccess);
    for (int r = 0; r < forms[i].nranks; ++r) {
      arfusionWorkspaceMetadata_t known = {.size = sizeof known};
      CHECK(arfusionCommGetWorkspaceMetadata(comms[r], forms[i].fp32, &known) == arfusionSuccess);
      CHECK(known.tp_rank == r && known.tp_size == forms[i].nranks);
      CHECK(known.max_token_num == forms[i].tokens && known.hidden_dim == forms[i].hidden);
      CHECK(known.use_fp32_lamport == (forms[i].fp32 != 0));
      CHECK(known.buffer_size == forms[i].buffer);
      CHECK(known.flag_size == forms[i].nranks * 1024);
      CHECK(known.lamport_comm_size == forms[i].lamport);
      CHECK(known.lamport_buffer_size == 3 * forms[i].lamport);
      arfusionCommDestroy(comms[r]);
    }
  }
  return arfusionSuccess;
}

static void workspace_metadata_is_flashinfers(void** state) {
  (void)state;
  in_processes(1, metadata, NULL);
}

/* ---------------------------------------------------------------- where workspaces are */

static arfusionResult_t workspaces(int unused, void* argument, struct support_outcome* outcome) {
  arfusionComm_t comms[3];
  (void)unused;
  (void)argument;
  (void)outcome;
  CHECK(arfusionCommInitAll(comms, 3, NULL, &small) == arfusionSuccess);
  for (int r = 0; r < 3; ++r) {
    arfusionWorkspace_t workspace = {.size = sizeof workspace};
    CHECK(arfusionCommGetWorkspace(comms[r], &workspace) == arfusionSuccess);
    CHECK(workspace.nranks == 3 && workspace.bytes > 0);
    CHECK(workspace.address[0] && workspace.address[1] && workspace.address[2] && !workspace.address[3]);
  }
  for (int r = 0; r < 3; ++r) CHECK(arfusionCommDestroy(comms[r]) == arfusionSuccess);
  return arfusionSuccess;
}

static void workspaces_are_where_the_plugin_says(void** state) {
  (void)state;
  in_processes(1, workspaces, NULL);
}

/* ---------------------------------------------------------------- no plugin */

static arfusionResult_t no_plugin(int unused, void* argument, struct support_outcome* outcome) {
  static const struct {
    const char* value;
    arfusionResult_t result;
    const char* words;
  } forms[] = {
      {"none", arfusionInvalidUsage, "turned off|ARFUSION_PLUGIN=none"},
      {"nosuch", arfusionSystemError, "no plugin found|nosuch|libarfusion-plugin-nosuch.so"},
      {"/nosuch/plugin.so", arfusionSystemError, "no plugin found|/nosuch/plugin.so"},
      {"libm.so.6", arfusionSystemError, "libm.so.6|is not an arfusion plugin|arfusionPlugin_v1"},
      {"/proc/self/maps", arfusionSystemError, "/proc/self/maps"},
  };
  arfusionComm_t comm = NULL;
  arfusionUniqueId_t id;
  int ndev = -1;
  (void)unused;
  (void)argument;
  (void)outcome;
  for (size_t i = 0; i < sizeof forms / sizeof forms[0]; ++i) {
    support_setting("ARFUSION_PLUGIN", forms[i].value);
    CHECK(arfusionGetDeviceCount(&ndev) == forms[i].result);
    CHECK(support_text_has(arfusionGetLastError(), forms[i].words));
    CHECK(arfusionGetUniqueId(&id) == forms[i].result);
    CHECK(arfusionCommInitAll(&comm, 1, NULL, NULL) == forms[i].result);
    CHECK(support_text_has(arfusionGetLastError(), forms[i].words));
    CHECK(!strcmp(arfusionReasonString(arfusionReasonNone), "unknown reason"));
  }
  CHECK(ndev == -1 && !comm);
  support_use_plugin();
  support_setting("ARFUSION_TIMEOUT", "soon"); /* found, but it does not start */
  CHECK(arfusionGetDeviceCount(&ndev) == arfusionInvalidArgument);
  CHECK(support_text_has(arfusionGetLastError(), "ARFUSION_TIMEOUT|soon"));
  support_setting("ARFUSION_TIMEOUT", NULL);
  CHECK(arfusionGetDeviceCount(&ndev) == arfusionSuccess && ndev == 1); /* a failure is not remembered */
  CHECK(arfusionCommInitAll(&comm, 1, NULL, NULL) == arfusionSuccess);
  CHECK(strcmp(arfusionReasonString(arfusionReasonNone), "unknown reason"));
  return arfusionCommDestroy(comm);
}

static void without_a_plugin_every_call_says_why(void** state) {
  (void)state;
  in_processes(1, no_plugin, NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(communicators_of_one_process),
      cmocka_unit_test(communicators_over_a_unique_id),
      cmocka_unit_test(communicators_over_torchruns_environment),
      cmocka_unit_test(communicators_over_the_callers_all_gather),
      cmocka_unit_test(bad_arguments_are_errors_that_name_them),
      cmocka_unit_test(every_result_has_a_sentence),
      cmocka_unit_test(an_abort_ends_it),
      cmocka_unit_test(the_epilogue_follows_a_sum),
      cmocka_unit_test(workspace_metadata_is_flashinfers),
      cmocka_unit_test(workspaces_are_where_the_plugin_says),
      cmocka_unit_test(without_a_plugin_every_call_says_why),
  };
  return cmocka_run_group_tests_name("library", tests, set_up, NULL);
}
