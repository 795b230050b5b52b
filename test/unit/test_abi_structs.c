/* SPDX-License-Identifier: Apache-2.0
 *
 * test_abi_structs.c: structs of other sizes than this header's. Each stands right in front of a page that cannot be
 * touched, so that a byte read or written too many is a crash.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "arfusion.h"
#include "plugin/core/structs.h"
#include "test/unit/support.h"

static const arfusionPlugin_v1_t* const plugin = &arfusionPlugin_v1;

enum { NRANKS = 2 };

static void* ctx;
static void* comms[NRANKS];
static unsigned char* guard; /* the first byte that cannot be touched */

/* `bytes` in front of the guard, aligned as a struct is. */
static unsigned char* place_before_guard(size_t bytes) { return guard - (bytes + 7) / 8 * 8; }

static int set_up(void** state) {
  (void)state;
  const long page = sysconf(_SC_PAGESIZE);
  unsigned char* memory = mmap(NULL, (size_t)(32 * page), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  guard = memory + 31 * page;
  mprotect(guard, (size_t)page, PROT_NONE);
  support_setting("ARFUSION_DEVICE", "host");
  ctx = support_context();
  return !ctx || plugin->commInitAll(ctx, NRANKS, NULL, NULL, comms) != arfusionSuccess;
}

static int tear_down(void** state) {
  (void)state;
  for (int r = 0; r < NRANKS; ++r) plugin->commFinalize(comms[r]);
  return plugin->finalize(ctx) != arfusionSuccess;
}

/* ---------------------------------------------------------------- inputs */

static void* input_comm; /* what commInit made */

static arfusionResult_t give_config(void* config) {
  const arfusionBootstrap_t bootstrap = {.size = sizeof bootstrap, .rank = 0, .nranks = 1};
  return plugin->commInit(ctx, 0, config, &bootstrap, &input_comm);
}
static arfusionResult_t give_bootstrap(void* bootstrap) {
  return plugin->commInit(ctx, 0, NULL, bootstrap, &input_comm);
}
static arfusionResult_t give_bootstrap_to_destroy(void* bootstrap) { return plugin->bootstrapDestroy(ctx, bootstrap); }
static arfusionResult_t give_request_to_route(void* request) {
  arfusionRoute_t route = {.size = sizeof route};
  return plugin->route(comms[0], request, &route);
}
static arfusionResult_t give_request_to_enqueue(void* request) {
  arfusionRoute_t route = {.size = sizeof route};
  return plugin->enqueue(comms[0], request, NULL, &route);
}
static arfusionResult_t give_request_to_epilogue(void* request) { return plugin->epilogue(comms[0], request, NULL); }

static const arfusionConfig_t good_config = {
    .size = sizeof good_config, .maxTokens = 8, .hidden = 64, .dataType = arfusionFloat32};
static const arfusionBootstrap_t good_bootstrap = {.size = sizeof good_bootstrap, .rank = 0, .nranks = 1};
/* Empty, so that it needs no other rank. */
static const arfusionRequest_t good_request = {.size = sizeof good_request,
                                               .pattern = arfusionPatternResidualRmsNorm,
                                               .dataType = arfusionFloat32,
                                               .gammaDataType = arfusionFloat32,
                                               .tokens = 0,
                                               .hidden = 64};

static const struct input {
  const char* name;
  arfusionResult_t (*give)(void* callers);
  const void* good;
  size_t known, v1_size;
} inputs[] = {
    {"config", give_config, &good_config, sizeof good_config, ARFUSION_CONFIG_V1_SIZE},
    {"bootstrap", give_bootstrap, &good_bootstrap, sizeof good_bootstrap, ARFUSION_BOOTSTRAP_V1_SIZE},
    {"bootstrap", give_bootstrap_to_destroy, &good_bootstrap, sizeof good_bootstrap, ARFUSION_BOOTSTRAP_V1_SIZE},
    {"request", give_request_to_route, &good_request, sizeof good_request, ARFUSION_REQUEST_V1_SIZE},
    {"request", give_request_to_enqueue, &good_request, sizeof good_request, ARFUSION_REQUEST_V1_SIZE},
    {"request", give_request_to_epilogue, &good_request, sizeof good_request, ARFUSION_REQUEST_V1_SIZE},
};
enum { NINPUTS = sizeof inputs / sizeof inputs[0] };

/* The good struct with another size: `in_memory` bytes of it in front of the guard, what is beyond the known ones 0. */
static unsigned char* input_place(const struct input* input, size_t size, size_t in_memory) {
  unsigned char* place = place_before_guard(in_memory);
  memset(place, 0, in_memory);
  memcpy(place, input->good, in_memory < input->known ? in_memory : input->known);
  memcpy(place, &size, sizeof size);
  return place;
}

static arfusionResult_t input_give(const struct input* input, void* callers) {
  input_comm = NULL;
  const arfusionResult_t result = input->give(callers);
  if (result != arfusionSuccess) assert_null(input_comm);
  if (input_comm) assert_int_equal(plugin->commFinalize(input_comm), arfusionSuccess);
  return result;
}

static void inputs_of_known_and_larger_sizes_are_read(void** state) {
  (void)state;
  for (int i = 0; i < NINPUTS; ++i) {
    const size_t sizes[] = {inputs[i].v1_size, inputs[i].known, inputs[i].known + 1, inputs[i].known + 8, 4096, 65536};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; ++s) {
      assert_int_equal(input_give(&inputs[i], input_place(&inputs[i], sizes[s], sizes[s])), arfusionSuccess);
    }
  }
}

static void inputs_smaller_than_version_1_are_errors(void** state) {
  (void)state;
  for (int i = 0; i < NINPUTS; ++i) {
    const size_t sizes[] = {0, 1, sizeof(size_t), inputs[i].v1_size - 1};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; ++s) {
      char words[128];
      const size_t in_memory = sizes[s] < sizeof(size_t) ? sizeof(size_t) : sizes[s];
      assert_int_equal(input_give(&inputs[i], input_place(&inputs[i], sizes[s], in_memory)), arfusionInvalidArgument);
      snprintf(words, sizeof words, "%s.size|%zu|%zu", inputs[i].name, sizes[s], inputs[i].v1_size);
      assert_true(support_text_has(plugin->getLastError(), words));
    }
  }
}

static void implausible_sizes_are_errors_and_not_followed(void** state) {
  (void)state;
  for (int i = 0; i < NINPUTS; ++i) {
    const size_t sizes[] = {65537, (size_t)1 << 31, SIZE_MAX};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; ++s) {
      char words[128];
      assert_int_equal(input_give(&inputs[i], input_place(&inputs[i], sizes[s], inputs[i].known)),
                       arfusionInvalidArgument);
      snprintf(words, sizeof words, "%s.size|%zu|65536", inputs[i].name, sizes[s]);
      assert_true(support_text_has(plugin->getLastError(), words));
    }
  }
}

static void the_first_surplus_byte_that_is_not_0_is_named(void** state) {
  (void)state;
  for (int i = 0; i < NINPUTS; ++i) {
    const size_t size = inputs[i].known + 24;
    for (size_t at = inputs[i].known; at < size; at += 23) {
      char words[128];
      unsigned char* place = input_place(&inputs[i], size, size);
      place[at] = 1;
      place[size - 1] = 1;
      assert_int_equal(input_give(&inputs[i], place), arfusionInvalidArgument);
      snprintf(words, sizeof words, "%s|byte %zu|%zu", inputs[i].name, at, inputs[i].known);
      assert_true(support_text_has(plugin->getLastError(), words));
    }
  }
}

/* A caller older than the plugin: what it does not have is 0. Version 1 cannot show this through its table. */
static void fields_that_the_caller_does_not_have_are_0(void** state) {
  (void)state;
  struct {
    arfusionConfig_t config;
    uint64_t later[3];
  } own;
  memset(&own, 0xa5, sizeof own);
  assert_int_equal(struct_read(&own, sizeof own, &good_config, ARFUSION_CONFIG_V1_SIZE, "config"), arfusionSuccess);
  assert_int_equal(own.config.size, sizeof own);
  assert_int_equal(own.config.maxTokens, good_config.maxTokens);
  assert_int_equal(own.config.hidden, good_config.hidden);
  for (int i = 0; i < 3; ++i) assert_int_equal(own.later[i], 0);
}

/* ---------------------------------------------------------------- outputs */

static arfusionResult_t take_properties(void* out) { return plugin->getProperties(ctx, 0, out); }
static arfusionResult_t take_route(void* out) { return plugin->route(comms[0], &good_request, out); }
static arfusionResult_t take_route_of_enqueue(void* out) { return plugin->enqueue(comms[0], &good_request, NULL, out); }
static arfusionResult_t take_capacity(void* out) { return plugin->commGetCapacity(comms[0], out); }
static arfusionResult_t take_stats(void* out) { return plugin->commGetStats(comms[0], out); }
static arfusionResult_t take_workspace(void* out) { return plugin->commGetWorkspace(comms[0], out); }
static arfusionResult_t take_bootstrap(void* out) {
  arfusionUniqueId_t id;
  const arfusionResult_t result = plugin->getUniqueId(ctx, &id);
  return result == arfusionSuccess ? plugin->bootstrapUniqueId(ctx, &id, 1, 0, out) : result;
}
static arfusionResult_t take_bootstrap_of_environment(void* out) {
  return plugin->bootstrapEnvironment(ctx, out, NULL);
}

static const struct output {
  const char* name;
  arfusionResult_t (*take)(void* out);
  size_t known, v1_size;
} outputs[] = {
    {"props", take_properties, sizeof(arfusionProperties_t), ARFUSION_PROPERTIES_V1_SIZE},
    {"route", take_route, sizeof(arfusionRoute_t), ARFUSION_ROUTE_V1_SIZE},
    {"route", take_route_of_enqueue, sizeof(arfusionRoute_t), ARFUSION_ROUTE_V1_SIZE},
    {"capacity", take_capacity, sizeof(arfusionCapacity_t), ARFUSION_CAPACITY_V1_SIZE},
    {"stats", take_stats, sizeof(arfusionStats_t), ARFUSION_STATS_V1_SIZE},
    {"workspace", take_workspace, sizeof(arfusionWorkspace_t), ARFUSION_WORKSPACE_V1_SIZE},
    {"bootstrap", take_bootstrap, sizeof(arfusionBootstrap_t), ARFUSION_BOOTSTRAP_V1_SIZE},
    {"bootstrap", take_bootstrap_of_environment, sizeof(arfusionBootstrap_t), ARFUSION_BOOTSTRAP_V1_SIZE},
};
enum { NOUTPUTS = sizeof outputs / sizeof outputs[0], SPOILED = 0xa5 };

static int all_spoiled(const unsigned char* bytes, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    if (bytes[i] != SPOILED) return 0;
  }
  return 1;
}

static unsigned char* output_place(size_t size, size_t in_memory) {
  unsigned char* place = place_before_guard(in_memory);
  memset(place - 64, SPOILED, in_memory + 64);
  memcpy(place, &size, sizeof size);
  return place;
}

static void bootstrap_give_back(const struct output* output, unsigned char* place, size_t size) {
  if (strcmp(output->name, "bootstrap")) return;
  arfusionBootstrap_t own;
  memcpy(&own, place, size < sizeof own ? size : sizeof own);
  own.size = sizeof own;
  assert_int_equal(plugin->bootstrapDestroy(ctx, &own), arfusionSuccess);
}

static void outputs_are_written_up_to_the_callers_size(void** state) {
  (void)state;
  static const char* const variables[][2] = {{"RANK", "0"},           {"WORLD_SIZE", "1"},      {"LOCAL_RANK", "0"},
                                             {"MASTER_ADDR", "here"}, {"MASTER_PORT", "29500"}};
  for (size_t v = 0; v < 5; ++v) support_setting(variables[v][0], variables[v][1]);
  for (int i = 0; i < NOUTPUTS; ++i) {
    const size_t sizes[] = {outputs[i].v1_size, outputs[i].known, outputs[i].known + 8, outputs[i].known + 1000};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; ++s) {
      unsigned char* place = output_place(sizes[s], sizes[s]);
      assert_int_equal(outputs[i].take(place), arfusionSuccess);
      size_t size;
      memcpy(&size, place, sizeof size);
      assert_int_equal(size, sizes[s]);
      assert_true(all_spoiled(place - 64, 64));
      if (sizes[s] > outputs[i].known) assert_true(all_spoiled(place + outputs[i].known, sizes[s] - outputs[i].known));
      const size_t known = sizes[s] < outputs[i].known ? sizes[s] : outputs[i].known;
      assert_false(all_spoiled(place + sizeof size, known - sizeof size));
      bootstrap_give_back(&outputs[i], place, sizes[s]);
    }
  }
  for (size_t v = 0; v < 5; ++v) support_setting(variables[v][0], NULL);
}

static void outputs_of_senseless_sizes_are_errors_and_untouched(void** state) {
  (void)state;
  for (int i = 0; i < NOUTPUTS; ++i) {
    const size_t sizes[] = {0, 7, outputs[i].v1_size - 1, 65537, SIZE_MAX};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; ++s) {
      char words[128];
      const size_t in_memory = sizes[s] < sizeof(size_t)    ? sizeof(size_t)
                               : sizes[s] < outputs[i].known ? sizes[s]
                                                             : outputs[i].known;
      unsigned char* place = output_place(sizes[s], in_memory);
      assert_int_equal(outputs[i].take(place), arfusionInvalidArgument);
      snprintf(words, sizeof words, "%s.size|%zu", outputs[i].name, sizes[s]);
      assert_true(support_text_has(plugin->getLastError(), words));
      assert_true(all_spoiled(place + sizeof(size_t), in_memory - sizeof(size_t)));
    }
  }
}

static void an_enqueue_with_a_senseless_route_does_nothing(void** state) {
  (void)state;
  arfusionStats_t before = {.size = sizeof before}, after = {.size = sizeof after};
  struct support_tensors tensors, copy;
  const arfusionRequest_t request = support_request(&tensors, 0);
  arfusionRoute_t route = {.size = ARFUSION_ROUTE_V1_SIZE - 1};
  copy = tensors;
  plugin->commGetStats(comms[0], &before);
  assert_int_equal(plugin->enqueue(comms[0], &request, NULL, &route), arfusionInvalidArgument);
  plugin->commGetStats(comms[0], &after);
  assert_memory_equal(&copy, &tensors, sizeof copy);
  assert_int_equal(after.errors, before.errors + 1);
  assert_int_equal(after.requests, before.requests);
  assert_true(support_operation_all(comms, NRANKS));
}

static void the_librarys_metadata_follows_the_same_rules(void** state) {
  (void)state;
  arfusionComm_t library_comm;
  arfusionWorkspaceMetadata_t known = {.size = sizeof known};
  support_use_plugin();
  support_setting("ARFUSION_DEBUG", "none");
  assert_int_equal(arfusionCommInitAll(&library_comm, 1, NULL, &good_config), arfusionSuccess);
  assert_int_equal(arfusionCommGetWorkspaceMetadata(library_comm, 0, &known), arfusionSuccess);
  unsigned char* place = output_place(sizeof known + 16, sizeof known + 16);
  assert_int_equal(arfusionCommGetWorkspaceMetadata(library_comm, 0, (void*)place), arfusionSuccess);
  assert_memory_equal(place + sizeof(size_t), (unsigned char*)&known + sizeof(size_t), sizeof known - sizeof(size_t));
  assert_true(all_spoiled(place + sizeof known, 16));
  place = output_place(ARFUSION_WORKSPACE_METADATA_V1_SIZE - 1, ARFUSION_WORKSPACE_METADATA_V1_SIZE - 1);
  assert_int_equal(arfusionCommGetWorkspaceMetadata(library_comm, 0, (void*)place), arfusionInvalidArgument);
  assert_true(support_text_has(arfusionGetLastError(), "metadata.size|79|80"));
  assert_true(all_spoiled(place + sizeof(size_t), ARFUSION_WORKSPACE_METADATA_V1_SIZE - 1 - sizeof(size_t)));
  assert_int_equal(arfusionCommDestroy(library_comm), arfusionSuccess);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(inputs_of_known_and_larger_sizes_are_read),
      cmocka_unit_test(inputs_smaller_than_version_1_are_errors),
      cmocka_unit_test(implausible_sizes_are_errors_and_not_followed),
      cmocka_unit_test(the_first_surplus_byte_that_is_not_0_is_named),
      cmocka_unit_test(fields_that_the_caller_does_not_have_are_0),
      cmocka_unit_test(outputs_are_written_up_to_the_callers_size),
      cmocka_unit_test(outputs_of_senseless_sizes_are_errors_and_untouched),
      cmocka_unit_test(an_enqueue_with_a_senseless_route_does_nothing),
      cmocka_unit_test(the_librarys_metadata_follows_the_same_rules),
  };
  return cmocka_run_group_tests_name("abi_structs", tests, set_up, tear_down);
}
