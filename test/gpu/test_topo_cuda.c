/* SPDX-License-Identifier: Apache-2.0
 *
 * test_topo_cuda.c: what topo says of the GPUs that are here, how long that takes, and that the plugin acts on it: a
 * write test that fails and NCCL_P2P_DISABLE turn every request down. Prints the facts, to be compared with
 * nvidia-smi topo -m.
 */
#include "plugin/core/peers.h"
#include "test/gpu/ranks.h"
#include "topo/topo.h"

extern const arfusionPlugin_v1_t arfusionPlugin_v1;
static const arfusionPlugin_v1_t* const plugin = &arfusionPlugin_v1;

static void print_facts(const struct topo* topo) {
  printf("driver %s, hwloc %s, %d GPUs, %d NUMA nodes, %d findings\n", topo->driver, topo->hwloc, topo->ngpus,
         topo->nnumas, topo->nfindings);
  for (int i = 0; i < topo->nfindings; ++i) printf("  %s: %s\n", topo->findings[i].id, topo->findings[i].text);
  for (int g = 0; g < topo->ngpus; ++g) {
    const struct topo_gpu* gpu = &topo->gpus[g];
    printf("%s %s cuda %d nvml %d sm %d numa %d links %d of %d at %d MB/s, fabric %d (%s)", gpu->bus_id, gpu->name,
           gpu->cuda.value, gpu->nvml.value, gpu->sm.value, gpu->numa >= 0 ? topo->numas[gpu->numa].id : -1,
           gpu->nvlink_active.value, gpu->nvlink_present.value, gpu->nvlink_speed.value, gpu->fabric.value,
           topo_state_name((enum topo_state)gpu->fabric.state));
    for (int to = 0; to < topo->ngpus; ++to) {
      char cell[8];
      topo_pair_cell(topo, g, to, cell);
      printf(" %s", cell);
    }
    printf("\n");
  }
}

static void test_facts(void) {
  struct topo* topo;
  struct topo_error error;
  struct topo_verdict verdict;
  double start = seconds();
  expect(!topo_discover_live(TOPO_USE_NVML | TOPO_USE_CUDA, &topo, &error), "NVML and CUDA");
  topo_verdict(topo, NULL, 0, TOPO_LEVEL_SYS, &verdict);
  printf("the verdict took %.3f s: NVLink %s %s; P2P %s %s\n", seconds() - start, topo_state_name(verdict.nvlink.state),
         verdict.nvlink.why, topo_state_name(verdict.p2p.state), verdict.p2p.why);
  expect(seconds() - start < 0.3, "the verdict takes less than 0.3 s");
  topo_free(topo);
  start = seconds();
  expect(!topo_discover_live(TOPO_USE_ALL, &topo, &error), "with hwloc");
  printf("with hwloc %.3f s\n", seconds() - start);
  print_facts(topo);
  int complete = topo->ngpus >= RANKS, agree = 1;
  for (int a = 0; a < topo->ngpus; ++a) {
    complete &= topo->gpus[a].cuda.state == TOPO_OK && topo->gpus[a].nvml.state == TOPO_OK;
    complete &= topo->gpus[a].sm.state == TOPO_OK && topo->gpus[a].nvlink_active.state == TOPO_OK;
    for (int b = 0; b < topo->ngpus; ++b) {
      const struct topo_pair* pair = topo_pair(topo, a, b);
      if (a == b) continue;
      complete &= pair->p2p_write.state != TOPO_NOT_OBSERVABLE && pair->access.state != TOPO_NOT_OBSERVABLE;
      agree &= pair->p2p_write.state == pair->access.state;
    }
  }
  expect(complete, "CUDA and NVML know every GPU and pair");
  expect(agree, "CUDA and NVML agree on P2P");
  topo_free(topo);
}

/* How two ranks on two GPUs turn a request down. */
static arfusionReason_t reason_with(const char* name, const char* value, arfusionRoute_t* route) {
  void *ctx, *comms[RANKS];
  arfusionRequest_t request = {.size = sizeof request, .dataType = arfusionBfloat16, .tokens = 1, .hidden = 4096};
  if (name) setenv(name, value, 1);
  expect(!plugin->init(&ctx, NULL), "init");
  if (name) unsetenv(name);
  const double start = seconds();
  const int result = plugin->commInitAll(ctx, RANKS, NULL, NULL, comms);
  printf("commInitAll took %.3f s\n", seconds() - start);
  if (result) {
    printf("%s\n", plugin->getLastError());
    return (arfusionReason_t)-1;
  }
  for (int r = RANKS - 1; r >= 0; --r) {
    *route = (arfusionRoute_t){.size = sizeof *route};
    expect(!plugin->route(comms[r], &request, route), "route");
  }
  for (int r = 0; r < RANKS; ++r) plugin->commFinalize(comms[r]);
  plugin->finalize(ctx);
  return route->reason;
}

static void test_plugin_acts(void) {
  arfusionRoute_t route;
  expect(reason_with(NULL, NULL, &route) == arfusionReasonNone, "two GPUs are served");
  expect(reason_with("NCCL_P2P_DISABLE", "1", &route) == arfusionReasonDisabled, "NCCL_P2P_DISABLE is respected");
  peers_lost = (struct peers_lost){1, 0};
  const double start = seconds();
  expect(reason_with("ARFUSION_INIT_TIMEOUT", "4", &route) == arfusionReasonPeerWriteTest, "lost writes are found");
  expect(route.value == 1 && route.limit == 0, "the pair is named");
  expect(seconds() - start < 8, "in time");
  peers_lost = (struct peers_lost){-1, -1};
  expect(reason_with(NULL, NULL, &route) == arfusionReasonNone, "afterwards all is well");
}

int main(void) {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count < RANKS) {
    printf("two GPUs are needed\n");
    return 77;
  }
  test_facts();
  test_plugin_acts();
  return finish();
}
