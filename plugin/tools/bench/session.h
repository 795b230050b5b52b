/* SPDX-License-Identifier: Apache-2.0
 *
 * session.h: the plugin as a host program meets it: found and opened once, then used by every rank through its table.
 */
#ifndef ARFUSION_BENCH_SESSION_H_
#define ARFUSION_BENCH_SESSION_H_

#include "plugin/host/plugin_load.h"
#include "plugin/tools/bench/device.h"
#include "plugin/tools/bench/team.h"

/* What the parent knows. */
struct bench_session {
  struct plugin_library library;
  enum bench_device_kind kind;
  int ndev;
  arfusionProperties_t properties; /* of device 0 */
};

/* Opens the plugin and asks it, in a child process, for its devices: this process never touches CUDA. `device` is
 * "host", "cuda" (an error where there is none) or NULL: as the plugin's own settings say. 0, or -1 after one line
 * about it. */
int bench_session_open(const char* device, struct bench_session* session);
void bench_session_close(struct bench_session* session);

/* Prepares the environment of ranks to be started: for more ranks than GPUs, what sharing them needs. */
void bench_session_prepare(const struct bench_session* session, int nranks);

/* What a rank has. */
struct bench_rank {
  struct team_rank* team;
  const arfusionPlugin_v1_t* plugin;
  void* ctx;
  void* comm;
  struct bench_device* device;
};

/* Makes the communicator of the team's ranks, rank r on device r modulo the devices. 0, or -1 after team_fail. */
int bench_rank_open(struct team_rank* team, const struct bench_session* session, const arfusionConfig_t* config,
                    struct bench_rank* rank);

/* Frees what it made; also after a failed open. 0, or -1 after team_fail. */
int bench_rank_close(struct bench_rank* rank);

/* A request with its size set and nothing else. */
arfusionRequest_t bench_request(void);

#endif
