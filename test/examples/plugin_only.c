/* SPDX-License-Identifier: Apache-2.0
 *
 * plugin_only.c: a C program that opens the plugin by hand, as an engine that links nothing would. Two ranks are
 * threads; on the host device the calls are synchronous, so each rank has a thread of its own.
 *
 *   cc plugin_only.c -ldl -lpthread && ARFUSION_DEVICE=host ARFUSION_PLUGIN=/path/to/libarfusion-plugin.so ./a.out
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <arfusion_plugin.h>

enum { RANKS = 2, TOKENS = 3, HIDDEN = 4096 };

static const arfusionPlugin_v1_t* plugin;

struct rank {
  void* comm;
  float input[TOKENS * HIDDEN], residual[TOKENS * HIDDEN], norm[TOKENS * HIDDEN];
  arfusionResult_t result;
  arfusionRoute_t route;
};
static struct rank ranks[RANKS];
static float gamma_weights[HIDDEN];

static void* run(void* argument) {
  struct rank* self = argument;
  arfusionRequest_t request = {.size = sizeof request};
  request.pattern = arfusionPatternResidualRmsNorm;
  request.dataType = request.gammaDataType = arfusionFloat32;
  request.tokens = TOKENS;
  request.hidden = HIDDEN;
  request.eps = 1e-5f;
  request.input = self->input;
  request.residualIn = request.residualOut = self->residual; /* updated in place */
  request.gamma = gamma_weights;
  request.normOut = self->norm;
  self->route.size = sizeof self->route;
  self->result = plugin->enqueue(self->comm, &request, NULL, &self->route);
  if (self->result != arfusionSuccess) fprintf(stderr, "enqueue: %s\n", plugin->getLastError());
  return NULL;
}

int main(void) {
  const char* name = getenv("ARFUSION_PLUGIN");
  void* library = dlopen(name ? name : "libarfusion-plugin.so", RTLD_NOW | RTLD_LOCAL);
  if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
  plugin = dlsym(library, ARFUSION_PLUGIN_SYMBOL);
  if (!plugin) return fprintf(stderr, "%s\n", dlerror()), 1;

  void *ctx, *comms[RANKS];
  if (plugin->init(&ctx, NULL)) return fprintf(stderr, "init: %s\n", plugin->getLastError()), 1;
  arfusionProperties_t device = {.size = sizeof device};
  if (plugin->getProperties(ctx, 0, &device)) return fprintf(stderr, "%s\n", plugin->getLastError()), 1;
  if (!device.isHost) return fprintf(stderr, "this example uses host memory: set ARFUSION_DEVICE=host\n"), 77;
  if (plugin->commInitAll(ctx, RANKS, NULL, NULL, comms)) {
    return fprintf(stderr, "commInitAll: %s\n", plugin->getLastError()), 1;
  }

  pthread_t threads[RANKS];
  for (int i = 0; i < HIDDEN; ++i) gamma_weights[i] = 1;
  for (int r = 0; r < RANKS; ++r) {
    ranks[r].comm = comms[r];
    for (int i = 0; i < TOKENS * HIDDEN; ++i) {
      ranks[r].input[i] = (float)(r + 1);
      ranks[r].residual[i] = 1;
    }
    pthread_create(&threads[r], NULL, run, &ranks[r]);
  }
  for (int r = 0; r < RANKS; ++r) pthread_join(threads[r], NULL);
  for (int r = 0; r < RANKS; ++r) plugin->commFinalize(comms[r]);
  plugin->finalize(ctx);
  dlclose(library);

  for (int r = 0; r < RANKS; ++r) {
    if (ranks[r].result != arfusionSuccess || ranks[r].route.algorithm == arfusionAlgoNone) return 1;
    for (int i = 0; i < TOKENS * HIDDEN; ++i) { /* 1 + 2 + 1, and its norm */
      if (ranks[r].residual[i] != 4 || ranks[r].norm[i] < 0.9999f || ranks[r].norm[i] > 1) return 1;
    }
  }
  printf("%d ranks: sum + residual = %g, norm = %g\n", RANKS, ranks[0].residual[0], ranks[0].norm[0]);
  return 0;
}
