/* SPDX-License-Identifier: Apache-2.0
 *
 * session.c: the plugin and its communicators; see session.h.
 */
#include "plugin/tools/bench/session.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/host/plugin_choice.h"
#include "plugin/tools/bench/bench.h"

#define PROBE_SILENCE_S 60
#define OPERATION_TIMEOUT "60" /* s, unless a setting says otherwise: a rank that waits in vain says for whom */

struct probe {
  int ndev;
  arfusionProperties_t properties;
};

/* A context with this program's defaults. 0, or -1 after team_fail. */
static int context_open(struct team_rank* team, const arfusionPlugin_v1_t* plugin, void** ctx) {
  if (plugin->init(ctx, NULL) != arfusionSuccess) return team_fail(team, "init: %s", plugin->getLastError());
  if (plugin->setDefault == NULL) return 0; /* a plugin from before there were defaults has its own */
  if (plugin->setDefault(*ctx, "ARFUSION_TIMEOUT", OPERATION_TIMEOUT) == arfusionSuccess) return 0;
  return team_fail(team, "setDefault: %s", plugin->getLastError());
}

/* The only rank of a team: what devices there are. */
static int probe_run(struct team_rank* self, void* arg) {
  const arfusionPlugin_v1_t* plugin = &((struct bench_session*)arg)->library.table;
  struct probe probe = {.properties.size = sizeof(probe.properties)};
  void* ctx = NULL;
  if (context_open(self, plugin, &ctx) != 0) return -1;
  if (plugin->devices(ctx, &probe.ndev) != arfusionSuccess) {
    return team_fail(self, "devices: %s", plugin->getLastError());
  }
  if (probe.ndev < 1) return team_fail(self, "the plugin has no device");
  if (plugin->getProperties(ctx, 0, &probe.properties) != arfusionSuccess) {
    return team_fail(self, "getProperties: %s", plugin->getLastError());
  }
  team_send(self, &probe, sizeof(probe));
  plugin->finalize(ctx);
  return 0;
}

static int probe_message(void* arg, int rank, const void* message) {
  (void)rank;
  struct bench_session* session = arg;
  const struct probe* probe = message;
  session->ndev = probe->ndev;
  session->properties = probe->properties;
  session->kind = probe->properties.isHost ? BENCH_DEVICE_HOST : BENCH_DEVICE_CUDA;
  return 0;
}

int bench_session_open(const char* device, struct bench_session* session) {
  char error[2048];
  struct plugin_choice choice;
  memset(session, 0, sizeof(*session));
  if (device != NULL) setenv("ARFUSION_DEVICE", device, 1);
  setenv("NCCL_NVLS_ENABLE", "0", 1); /* multicast is never used here: a machine may list it and not have it */
  if (plugin_choice_read(&choice, error, sizeof(error)) != 0) {
    bench_fail("%s", error);
    return -1;
  }
  if (!choice.debug_is_set) setenv("ARFUSION_DEBUG", "none", 1); /* errors are this program's to print, once */
  if (plugin_load(choice.name, &session->library, error, sizeof(error)) != PLUGIN_LOAD_OK) {
    bench_fail("%s", error);
    return -1;
  }
  struct team team = {.nranks = 1,
                      .silence_s = PROBE_SILENCE_S,
                      .run_rank = probe_run,
                      .rank_arg = session,
                      .on_message = probe_message,
                      .message_bytes = sizeof(struct probe),
                      .message_arg = session};
  if (team_run(&team) != 0) goto err_close;
  if (device != NULL && strcmp(device, "cuda") == 0 && session->kind != BENCH_DEVICE_CUDA) {
    bench_fail("no CUDA device");
    goto err_close;
  }
  return 0;

err_close:
  bench_session_close(session);
  return -1;
}

void bench_session_close(struct bench_session* session) { plugin_unload(&session->library); }

void bench_session_prepare(const struct bench_session* session, int nranks) {
  if (session->kind != BENCH_DEVICE_CUDA || nranks <= session->ndev) return;
  setenv("ARFUSION_SHARED_GPU", "1", 1);
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 1);
}

int bench_rank_open(struct team_rank* team, const struct bench_session* session, const arfusionConfig_t* config,
                    struct bench_rank* rank) {
  const arfusionPlugin_v1_t* plugin = &session->library.table;
  int dev = team->rank % session->ndev;
  *rank = (struct bench_rank){.team = team, .plugin = plugin};
  if (bench_device_open(session->kind, dev, &rank->device) != 0) return team_fail(team, "%s", bench_device_error());
  if (context_open(team, plugin, &rank->ctx) != 0) return -1;

  arfusionUniqueId_t ids[ARFUSION_MAX_RANKS] = {{{0}}}; /* rank 0's is the one that is used */
  if (team->rank == 0 && plugin->getUniqueId(rank->ctx, &ids[0]) != arfusionSuccess) {
    return team_fail(team, "getUniqueId: %s", plugin->getLastError());
  }
  arfusionUniqueId_t own = ids[0];
  team_all_gather(team, &own, ids, sizeof(own));
  arfusionBootstrap_t bootstrap = {.size = sizeof(bootstrap)};
  if (plugin->bootstrapUniqueId(rank->ctx, &ids[0], team->nranks, team->rank, &bootstrap) != arfusionSuccess) {
    return team_fail(team, "bootstrapUniqueId: %s", plugin->getLastError());
  }
  int failed = 0;
  if (plugin->commInit(rank->ctx, dev, config, &bootstrap, &rank->comm) != arfusionSuccess) {
    failed = team_fail(team, "commInit: %s", plugin->getLastError());
  }
  plugin->bootstrapDestroy(rank->ctx, &bootstrap);
  return failed;
}

int bench_rank_close(struct bench_rank* rank) {
  int failed = 0;
  if (rank->comm != NULL && rank->plugin->commFinalize(rank->comm) != arfusionSuccess) {
    failed = team_fail(rank->team, "commFinalize: %s", rank->plugin->getLastError());
  }
  if (rank->ctx != NULL && rank->plugin->finalize(rank->ctx) != arfusionSuccess) {
    failed = team_fail(rank->team, "finalize: %s", rank->plugin->getLastError());
  }
  if (rank->device != NULL) rank->device->close(rank->device);
  *rank = (struct bench_rank){0};
  return failed;
}

arfusionRequest_t bench_request(void) { return (arfusionRequest_t){.size = sizeof(arfusionRequest_t)}; }
