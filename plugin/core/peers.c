/* SPDX-License-Identifier: Apache-2.0
 *
 * peers.c: see peers.h.
 */
#include "plugin/core/peers.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/core/bootstrap.h"
#include "plugin/core/log.h"
#include "topo/topo.h"

enum { TEST_SECONDS = 10, REMEMBERED = 64, UNKNOWN = -2 };

struct peers_lost peers_lost = {-1, -1};

/* ---------------------------------------------------------------- what the machine says */

/* One for the GPUs, one for the processors. */
static struct known_topology {
  unsigned use;
  struct topo* topo;
  int asked;
} topologies[] = {{.use = TOPO_USE_NVML | TOPO_USE_CUDA}, {.use = TOPO_USE_HWLOC}};
static pthread_mutex_t topologies_lock = PTHREAD_MUTEX_INITIALIZER;

/* Kept until the process ends; NULL if there is none. */
static const struct topo* topology_get(struct known_topology* known) {
  struct topo_error error;
  pthread_mutex_lock(&topologies_lock);
  if (!known->asked && topo_discover_live(known->use, &known->topo, &error)) {
    LOG_INFO(ARFUSION_LOG_INIT, "this machine's topology is not known: %s", error.text);
  }
  known->asked = 1;
  pthread_mutex_unlock(&topologies_lock);
  return known->topo;
}

static enum topo_level level_get(const struct settings* settings) {
  const char* text = settings->text[SETTING_P2P_LEVEL];
  enum topo_level level;
  if (topo_level_of_settings(settings->text[SETTING_P2P_DISABLE], text, &level)) {
    LOG_WARN("NCCL_P2P_LEVEL=%s is none of LOC, NVL, PIX, PXB, PHB, SYS: nothing is done with it", text);
  }
  return level;
}

/* What the GPUs of all ranks are to each other, as one line of rank 0. */
static void log_verdict(const struct topo* topo, const struct device_setup* setup, enum topo_level level) {
  int gpus[ARFUSION_MAX_RANKS], n = 0;
  struct topo_verdict verdict;
  for (int r = 0; r < setup->nranks; ++r) {
    const int gpu = topo_gpu_by_bus_id(topo, setup->facts[r].bus_id);
    int seen = gpu < 0;
    for (int i = 0; i < n && !seen; ++i) seen = gpus[i] == gpu;
    if (!seen) gpus[n++] = gpu;
  }
  if (n < 2) return;
  topo_verdict(topo, gpus, n, level, &verdict);
  LOG_INFO(ARFUSION_LOG_INIT, "%d GPUs of %d ranks: P2P %s%s%s; NVLink all to all %s, %d links a pair%s%s", n,
           setup->nranks, topo_state_name(verdict.p2p.state), verdict.p2p.why[0] ? ", " : "", verdict.p2p.why,
           topo_state_name(verdict.nvlink.state), verdict.nvlink_count, verdict.nvlink.why[0] ? ", " : "",
           verdict.nvlink.why);
}

int peers_judge(const struct topo* topo, const struct device_setup* setup) {
  const enum topo_level level = level_get(setup->settings);
  const struct device_facts* own = &setup->facts[setup->rank];
  if (level == TOPO_LEVEL_LOC) return PEERS_DISABLED;
  if (topo && setup->rank == 0) log_verdict(topo, setup, level);
  for (int r = 0; topo && r < setup->nranks; ++r) {
    const struct device_facts* theirs = &setup->facts[r];
    const int pair[] = {topo_gpu_by_bus_id(topo, own->bus_id), topo_gpu_by_bus_id(topo, theirs->bus_id)};
    struct topo_verdict verdict;
    if (own->unique == theirs->unique || pair[0] < 0 || pair[1] < 0) continue;
    if (pair[0] == pair[1]) {
      LOG_INFO(ARFUSION_LOG_INIT, "rank %d cannot reach rank %d: both are MIG instances of GPU %s", setup->rank, r,
               own->bus_id);
      return r;
    }
    topo_verdict(topo, pair, 2, level, &verdict);
    if (verdict.p2p.state != TOPO_FAIL) continue;
    LOG_INFO(ARFUSION_LOG_INIT, "rank %d cannot reach rank %d: %s (%s)", setup->rank, r, verdict.p2p.why,
             topo_source(topo, verdict.p2p.source));
    return r;
  }
  return PEERS_ALL;
}

int peers_unreachable(const struct device_setup* setup) { return peers_judge(topology_get(&topologies[0]), setup); }

/* ---------------------------------------------------------------- the write test */

static struct known_test {
  uint64_t ranks; /* a hash of who they are, in order, and of the own rank; 0: empty */
  int peer;       /* the lowest one whose writes did not arrive; PEERS_ALL */
} known_tests[REMEMBERED];
static int tests_known;
static pthread_mutex_t tests_lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t hash_of_ranks(const struct device_setup* setup) {
  uint64_t hash = 0xcbf29ce484222325u ^ (uint64_t)setup->rank;
  for (int r = 0; r < setup->nranks; ++r) hash = (hash ^ setup->facts[r].unique) * 0x100000001b3u + 1;
  return hash ? hash : 1;
}

static int test_recall(uint64_t ranks) {
  int peer = UNKNOWN;
  pthread_mutex_lock(&tests_lock);
  for (int i = 0; i < REMEMBERED && peers_lost.from < 0; ++i) {
    if (known_tests[i].ranks == ranks) peer = known_tests[i].peer;
  }
  pthread_mutex_unlock(&tests_lock);
  return peer;
}

static void test_remember(uint64_t ranks, int peer) {
  pthread_mutex_lock(&tests_lock);
  if (peers_lost.from < 0) known_tests[tests_known++ % REMEMBERED] = (struct known_test){ranks, peer};
  pthread_mutex_unlock(&tests_lock);
}

static uint64_t test_limit_ns(const struct settings* settings) {
  const uint64_t half = (uint64_t)settings->value[SETTING_INIT_TIMEOUT] * 500000000u;
  const uint64_t most = (uint64_t)TEST_SECONDS * 1000000000u;
  return half < most ? half : most; /* so that those who wait for the outcome still get it */
}

/* The ranks must do the same: they test unless all of them know. */
arfusionResult_t peers_test(const struct device_ops* device, struct device_comm* comm, const struct device_setup* setup,
                            struct route_facts* route) {
  int32_t all[ARFUSION_MAX_RANKS];
  const uint64_t ranks = hash_of_ranks(setup), limit_ns = test_limit_ns(setup->settings);
  int mine = test_recall(ranks), unknown = 0;
  FORWARD_IF_ERROR(bootstrap_all_gather(setup->bootstrap, &mine, all, sizeof mine));
  for (int r = 0; r < setup->nranks; ++r) unknown |= all[r] == UNKNOWN;
  if (unknown) {
    const uint32_t lost = peers_lost.from == setup->rank ? 1u << peers_lost.to : 0;
    mine = PEERS_ALL;
    const arfusionResult_t result = device->test_peers(comm, lost, limit_ns, &mine);
    FORWARD_IF_ERROR(bootstrap_vote(setup->bootstrap, result));
    FORWARD_IF_ERROR(bootstrap_all_gather(setup->bootstrap, &mine, all, sizeof mine));
    test_remember(ranks, mine);
    if (mine != PEERS_ALL) {
      LOG_WARN(
          "rank %d of %d: what rank %d writes to its memory does not arrive within %.1f s, or arrives wrong or out of "
          "order, although peer access is reported: IOMMU or PCIe access control services (ACS) may be why",
          setup->rank, setup->nranks, mine, (double)limit_ns / 1e9);
    }
  }
  for (int r = 0; r < setup->nranks; ++r) {
    if (all[r] < 0) continue;
    route->reason = arfusionReasonPeerWriteTest;
    route->reason_value = all[r];
    route->reason_limit = r;
    return arfusionSuccess;
  }
  return arfusionSuccess;
}

/* ---------------------------------------------------------------- NUMA nodes */

/* Finding out takes some 50 ms, and most machines have one node. */
static int has_several_nodes(void) {
  char text[16] = "";
  FILE* file = fopen("/sys/devices/system/node/online", "re");
  if (!file) return 0;
  const int several = fgets(text, sizeof text, file) && text[strspn(text, "0123456789")] != '\n';
  fclose(file);
  return several;
}

void peers_log_place(int rank) {
  cpu_set_t set;
  int nodes = 0, last = -1;
  if (!has_several_nodes() || sched_getaffinity(0, sizeof set, &set)) return;
  const struct topo* topo = topology_get(&topologies[1]);
  if (!topo || topo->nnumas < 2) return;
  for (int n = 0; n < topo->nnumas; ++n) {
    int any = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE && !any; ++cpu)
      any = CPU_ISSET(cpu, &set) && topo_numa_has_cpu(&topo->numas[n], cpu);
    nodes += any;
    if (any) last = n;
  }
  if (nodes == 1) {
    LOG_INFO(ARFUSION_LOG_INIT, "rank %d runs on NUMA node %d, processors %s", rank, topo->numas[last].id,
             topo->numas[last].cpus);
  } else if (nodes > 1) {
    const int id = topo->numas[rank % topo->nnumas].id;
    LOG_INFO(ARFUSION_LOG_INIT,
             "rank %d may run on the processors of %d NUMA nodes; on one it stays close to its memory: numactl "
             "--cpunodebind=%d --membind=%d",
             rank, nodes, id, id);
  }
}
