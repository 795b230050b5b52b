/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_abi.c: any sequence of calls of the plugin's table, under libFuzzer, on the host device: each byte is a call,
 * with the next ones as its arguments. Handles are those that the calls made, or NULL. Structs are of any size, with
 * not a byte more memory. Errors have a text, what was made can be taken down, and nothing is left over.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "arfusion_plugin.h"
#include "test/fuzz/fuzz_logger.h"

extern const arfusionPlugin_v1_t arfusionPlugin_v1;
static const arfusionPlugin_v1_t* const plugin = &arfusionPlugin_v1;

enum { CONTEXTS = 2, GROUPS = 2, NRANKS = 3, TOKENS = 2, HIDDEN = 64, MOST_CALLS = 64 };

struct group {
  void* ctx;
  int nranks; /* 0: none */
  void* comms[NRANKS];
  int aborted;
};

struct world {
  const uint8_t* data;
  size_t bytes;
  void* contexts[CONTEXTS];
  struct group groups[GROUPS];
  arfusionBootstrap_t bootstrap; /* size 0: none */
  void* bootstrap_ctx;
  arfusionUniqueId_t id;
};

static uint8_t take(struct world* world) {
  if (world->bytes == 0) return 0;
  --world->bytes;
  return *world->data++;
}

static arfusionResult_t check(arfusionResult_t result) {
  if (result < arfusionSuccess || result >= arfusionInProgress) abort();
  if (result != arfusionSuccess && plugin->getLastError()[0] == '\0') abort();
  return result;
}

static void check_fails(arfusionResult_t result) {
  if (check(result) == arfusionSuccess) abort();
}

/* A struct of about the size of version 1, from the input. */
static void* struct_take(struct world* world, size_t v1_size) {
  size_t bytes = v1_size + (size_t)(int8_t)take(world);
  if (bytes < sizeof bytes || bytes > v1_size + 128) bytes = v1_size;
  unsigned char* out = malloc(bytes);
  if (!out) abort();
  memcpy(out, &bytes, sizeof bytes);
  for (size_t i = sizeof bytes; i < bytes; ++i) out[i] = take(world);
  return out;
}

static void* context(struct world* world) { return world->contexts[take(world) % CONTEXTS]; }

static struct group* group(struct world* world) { return &world->groups[take(world) % GROUPS]; }

/* ---------------------------------------------------------------- contexts */

static void call_init(struct world* world) {
  void** slot = &world->contexts[take(world) % CONTEXTS];
  if (!*slot && check(plugin->init(slot, no_logger)) != arfusionSuccess) abort();
}

static void call_finalize(struct world* world) {
  void** slot = &world->contexts[take(world) % CONTEXTS];
  for (int g = 0; g < GROUPS; ++g) {
    if (world->groups[g].nranks && world->groups[g].ctx == *slot) return;
  }
  if (world->bootstrap.size && world->bootstrap_ctx == *slot) return;
  const arfusionResult_t result = check(plugin->finalize(*slot));
  if ((result == arfusionSuccess) != (*slot != NULL)) abort();
  *slot = NULL;
}

static void call_properties(struct world* world) {
  void* ctx = context(world);
  const int dev = (int8_t)take(world);
  int ndev = 0;
  void* props = struct_take(world, ARFUSION_PROPERTIES_V1_SIZE);
  check(plugin->devices(ctx, &ndev));
  check(plugin->getProperties(ctx, dev, props));
  free(props);
}

/* ---------------------------------------------------------------- bootstraps */

static void call_bootstrap(struct world* world) {
  void* ctx = context(world);
  const int nranks = (int8_t)take(world), rank = (int8_t)take(world);
  if (take(world) & 1) check(plugin->getUniqueId(ctx, &world->id));
  if (world->bootstrap.size || (nranks > 1 && rank >= 0 && rank < nranks)) return; /* would wait for the others */
  arfusionBootstrap_t made = {.size = sizeof made};
  if (check(plugin->bootstrapUniqueId(ctx, &world->id, nranks, rank, &made)) != arfusionSuccess) return;
  world->bootstrap = made;
  world->bootstrap_ctx = ctx;
}

static void bootstrap_end(struct world* world) {
  if (!world->bootstrap.size) return;
  if (plugin->bootstrapDestroy(world->bootstrap_ctx, &world->bootstrap) != arfusionSuccess) abort();
  if (world->bootstrap.allGather) abort();
  memset(&world->bootstrap, 0, sizeof world->bootstrap);
}

static void call_bootstrap_abort(struct world* world) {
  if (world->bootstrap.size) check(plugin->bootstrapAbort(world->bootstrap_ctx, &world->bootstrap));
}

/* ---------------------------------------------------------------- communicators */

static void group_end(struct group* group) {
  for (int r = 0; r < group->nranks; ++r) {
    if (plugin->commFinalize(group->comms[r]) != arfusionSuccess) abort();
  }
  memset(group, 0, sizeof *group);
}

static void call_init_all(struct world* world) {
  void* ctx = context(world);
  struct group* made = group(world);
  int devs[NRANKS], nranks = (int8_t)take(world);
  const uint8_t how = take(world);
  arfusionConfig_t right = {.size = sizeof right, .maxTokens = TOKENS, .hidden = HIDDEN, .dataType = arfusionFloat32};
  void* config = how & 1 ? struct_take(world, ARFUSION_CONFIG_V1_SIZE) : NULL;
  if (nranks > NRANKS) nranks = 1 + nranks % NRANKS;
  for (int r = 0; r < NRANKS; ++r) devs[r] = how & 2 ? (int8_t)take(world) : 0;
  if (!made->nranks) {
    if (check(plugin->commInitAll(ctx, nranks, devs, config ? config : &right, made->comms)) == arfusionSuccess) {
      made->ctx = ctx;
      made->nranks = nranks;
    }
  }
  free(config);
}

static void call_comm_init(struct world* world) {
  void* ctx = context(world);
  struct group* made = group(world);
  arfusionBootstrap_t any = {.size = sizeof any};
  const uint8_t how = take(world);
  if (made->nranks) return;
  if (how & 1) { /* nobody to talk to */
    any.rank = (int8_t)take(world);
    any.nranks = (int8_t)take(world);
    any.nhosts = (int8_t)take(world);
    any.reserved = (int8_t)take(world);
  } else if (world->bootstrap.size) {
    any = world->bootstrap;
  }
  if (check(plugin->commInit(ctx, (int8_t)take(world), NULL, &any, &made->comms[0])) != arfusionSuccess) return;
  made->ctx = ctx;
  made->nranks = 1;
}

/* ---------------------------------------------------------------- operations */

struct operation {
  void* comm;
  float input[TOKENS * HIDDEN], gamma[HIDDEN], out[TOKENS * HIDDEN];
  arfusionResult_t result;
  arfusionRoute_t route;
};

static void* operation_run(void* argument) {
  struct operation* op = argument;
  const arfusionRequest_t request = {.size = sizeof request,
                                     .pattern = arfusionPatternResidualRmsNorm,
                                     .dataType = arfusionFloat32,
                                     .gammaDataType = arfusionFloat32,
                                     .tokens = TOKENS,
                                     .hidden = HIDDEN,
                                     .input = op->input,
                                     .gamma = op->gamma,
                                     .normOut = op->out};
  op->route.size = sizeof op->route;
  op->result = check(plugin->enqueue(op->comm, &request, NULL, &op->route));
  return NULL;
}

static void call_enqueue(struct world* world) {
  static struct operation ops[NRANKS];
  const struct group* used = group(world);
  pthread_t threads[NRANKS];
  for (int r = 0; r < used->nranks; ++r) {
    memset(&ops[r], 0, sizeof ops[r]);
    ops[r].comm = used->comms[r];
    if (pthread_create(&threads[r], NULL, operation_run, &ops[r])) abort();
  }
  for (int r = 0; r < used->nranks; ++r) pthread_join(threads[r], NULL);
  for (int r = 0; r < used->nranks; ++r) {
    const int done = ops[r].result == arfusionSuccess && ops[r].route.algorithm > arfusionAlgoEmpty;
    if (used->aborted && done) abort();
    if (ops[r].result == arfusionSuccess && ops[r].route.algorithm != ops[0].route.algorithm) abort();
  }
}

/* A request whose pointers are any bytes: only asked about. */
static void call_route(struct world* world) {
  const struct group* used = group(world);
  void* request = struct_take(world, ARFUSION_REQUEST_V1_SIZE);
  void* route = struct_take(world, ARFUSION_ROUTE_V1_SIZE);
  check(plugin->route(used->comms[0], request, route));
  free(request);
  free(route);
}

static void call_abort(struct world* world) {
  struct group* used = group(world);
  const int rank = take(world) % NRANKS;
  if (check(plugin->commAbort(used->comms[rank])) == arfusionSuccess) used->aborted = 1;
}

static void call_async_error(struct world* world) {
  const struct group* used = group(world);
  const size_t bytes = take(world);
  void* comm = used->comms[take(world) % NRANKS];
  char* text = malloc(bytes + 1);
  arfusionResult_t result;
  if (!text) abort();
  text[bytes] = 'x';
  if (check(plugin->commGetAsyncError(comm, &result, bytes % 5 ? text : NULL, bytes)) == arfusionSuccess) check(result);
  if (text[bytes] != 'x' || (comm && bytes % 5 && !memchr(text, '\0', bytes))) abort();
  free(text);
}

static void call_reports(struct world* world) {
  const struct group* used = group(world);
  void* comm = used->comms[take(world) % NRANKS];
  void* capacity = struct_take(world, ARFUSION_CAPACITY_V1_SIZE);
  void* stats = struct_take(world, ARFUSION_STATS_V1_SIZE);
  void* workspace = struct_take(world, ARFUSION_WORKSPACE_V1_SIZE);
  check(plugin->commGetCapacity(comm, capacity));
  check(plugin->commGetStats(comm, stats));
  check(plugin->commGetWorkspace(comm, workspace));
  free(capacity);
  free(stats);
  free(workspace);
}

/* ---------------------------------------------------------------- NULL where it may not be */

static void call_nulls(struct world* world) {
  void* ctx = context(world);
  void* comm = group(world)->comms[0];
  const struct group* other = group(world);
  check_fails(plugin->init(NULL, no_logger));
  check_fails(plugin->devices(ctx, NULL));
  check_fails(plugin->getProperties(ctx, 0, NULL));
  check_fails(plugin->getUniqueId(ctx, NULL));
  check_fails(plugin->bootstrapUniqueId(ctx, NULL, 1, 0, NULL));
  check_fails(plugin->bootstrapEnvironment(ctx, NULL, NULL));
  check_fails(plugin->bootstrapDestroy(ctx, NULL));
  check_fails(plugin->bootstrapAbort(ctx, NULL));
  check_fails(plugin->commInit(ctx, 0, NULL, NULL, NULL));
  check_fails(plugin->commInitAll(ctx, 1, NULL, NULL, NULL));
  check_fails(plugin->route(comm, NULL, NULL));
  if (!other->aborted) check_fails(plugin->enqueue(comm, NULL, NULL, NULL));
  check_fails(plugin->epilogue(comm, NULL, NULL));
  check_fails(plugin->commGetAsyncError(comm, NULL, NULL, 0));
  check_fails(plugin->commGetCapacity(comm, NULL));
  check_fails(plugin->commGetStats(comm, NULL));
  check_fails(plugin->commGetWorkspace(comm, NULL));
  check_fails(plugin->commFinalize(NULL));
  check_fails(plugin->commAbort(NULL));
  if (!plugin->reasonString((arfusionReason_t)(int8_t)take(world))[0]) abort();
}

static void call(struct world* world) {
  switch (take(world) % 16) {
    case 0: call_init(world); break;
    case 1: call_finalize(world); break;
    case 2: call_properties(world); break;
    case 3: call_bootstrap(world); break;
    case 4: bootstrap_end(world); break;
    case 5: call_bootstrap_abort(world); break;
    case 6:
    case 7: call_init_all(world); break;
    case 8: call_comm_init(world); break;
    case 9:
    case 10: call_enqueue(world); break;
    case 11: call_route(world); break;
    case 12: call_abort(world); break;
    case 13: call_async_error(world); break;
    case 14: call_reports(world); break;
    default: call_nulls(world); group_end(group(world));
  }
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  struct world world = {.data = data, .bytes = bytes};
  setenv("ARFUSION_DEVICE", "host", 1);
  setenv("ARFUSION_TIMEOUT", "5", 1);
  setenv("ARFUSION_INIT_TIMEOUT", "2", 1);
  setenv("ARFUSION_WORKSPACE_LIMIT", "4M", 1);
  call_init(&world);
  for (int i = 0; i < MOST_CALLS && world.bytes > 0; ++i) call(&world);
  for (int g = 0; g < GROUPS; ++g) group_end(&world.groups[g]);
  bootstrap_end(&world);
  for (int c = 0; c < CONTEXTS; ++c) {
    if (world.contexts[c] && plugin->finalize(world.contexts[c]) != arfusionSuccess) abort();
  }
  return 0;
}
