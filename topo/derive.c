/* SPDX-License-Identifier: Apache-2.0
 *
 * derive.c: what follows from what was read: the order of the GPUs, where their links end, and the pairs.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topo/model.h"

/* ---------------------------------------------------------------- the order of the GPUs */

static int by_bus_id(const void* a, const void* b) {
  const char* left = ((const struct topo_gpu*)a)->bus_id;
  const char* right = ((const struct topo_gpu*)b)->bus_id;
  const size_t left_length = strlen(left), right_length = strlen(right);
  if (left_length != right_length) return left_length < right_length ? -1 : 1; /* domains of more digits */
  return strcmp(left, right);
}

static void order_gpus(struct topo* topo) {
  if (topo->ngpus > 1) qsort(topo->gpus, (size_t)topo->ngpus, sizeof *topo->gpus, by_bus_id);
  for (int g = 0; g < topo->ngpus; ++g) {
    if (topo->gpus[g].device >= 0) topo->devices[topo->gpus[g].device].index = g;
  }
}

/* ---------------------------------------------------------------- where links end */

static int gpu_find(const struct topo* topo, const char* bus_id) {
  struct topo_gpu key;
  TOPO_COPY(key.bus_id, bus_id);
  const struct topo_gpu* found =
      topo->ngpus ? bsearch(&key, topo->gpus, (size_t)topo->ngpus, sizeof key, by_bus_id) : NULL;
  return found ? (int)(found - topo->gpus) : -1;
}

static void resolve_link(struct topo_builder* builder, int g, struct topo_nvlink* link) {
  struct topo* topo = builder->topo;
  if (link->target[0] == '\0') return;
  if (link->remote == TOPO_REMOTE_SWITCH) {
    link->target_switch = topo_switch_find(topo, link->target);
    if (link->target_switch < 0) {
      const int device = topo_device_find(topo, link->target);
      link->target_switch = topo_add_switch(builder, link->target, device, link->source);
    }
    return;
  }
  link->target_gpu = gpu_find(topo, link->target);
  if (link->target_gpu == g) {
    link->remote = TOPO_REMOTE_GPU;
    link->target_gpu = -1;
    topo_find(builder, "nvlink.self", TOPO_FAIL, 0, "", "GPU %s has %d NVLinks to itself: they join no pair",
              topo->gpus[g].bus_id, link->count);
  } else if (link->target_gpu >= 0) {
    link->remote = TOPO_REMOTE_GPU;
  } else if (link->remote != TOPO_REMOTE_CPU) {
    topo_find(builder, "nvlink.target", TOPO_FAIL, 0, "", "GPU %s has %d NVLinks to %s, which is not there",
              topo->gpus[g].bus_id, link->count, link->target);
  }
}

/* Facts about one GPU's links. A reader that knows the links has set nvlink_active's state, if only to 0 of them. */
static void count_links(struct topo_gpu* gpu) {
  int active = 0, inactive = 0;
  for (int i = 0; i < gpu->nlinks; ++i) {
    active += gpu->links[i].count;
    inactive += gpu->links[i].inactive;
  }
  if (gpu->nvlink_active.state == TOPO_NOT_OBSERVABLE) return;
  const uint16_t source = gpu->nvlink_active.source;
  gpu->nvlink_active = topo_known(active, source);
  gpu->nvlink_present = topo_known(active + inactive, source);
}

/* What a reader did not say but the architecture does. */
static void add_arch(struct topo_builder* builder, struct topo_gpu* gpu) {
  const struct topo_arch* arch = gpu->sm.state == TOPO_OK ? topo_arch_of_sm(gpu->sm.value) : NULL;
  if (!arch || !arch->nvlink_version) return;
  const uint16_t source = topo_add_source(builder, "NVLink of sm_%d", arch->sm);
  if (gpu->nvlink_version.state == TOPO_NOT_OBSERVABLE) gpu->nvlink_version = topo_known(arch->nvlink_version, source);
  if (gpu->nvlink_speed.state == TOPO_NOT_OBSERVABLE) gpu->nvlink_speed = topo_known(arch->raw, source);
  gpu->nvlink_effective = topo_known(arch->effective, topo_add_source(builder, "NCCL's figure for sm_%d", arch->sm));
}

static int links_to_gpu(const struct topo_gpu* gpu, int target) {
  int count = 0;
  for (int i = 0; i < gpu->nlinks; ++i) {
    if (gpu->links[i].remote == TOPO_REMOTE_GPU && gpu->links[i].target_gpu == target) count += gpu->links[i].count;
  }
  return count;
}

enum end { END_SWITCH, END_HIDDEN }; /* hidden: nothing shows what is there */

static int links_to(const struct topo_gpu* gpu, enum end end) {
  int count = 0;
  for (int i = 0; i < gpu->nlinks; ++i) {
    const struct topo_nvlink* link = &gpu->links[i];
    const int hidden = link->remote != TOPO_REMOTE_GPU && link->remote != TOPO_REMOTE_CPU && link->target[0] == '\0';
    if (end == END_HIDDEN ? hidden : link->target_switch >= 0) count += link->count;
  }
  return count;
}

static int lesser(int a, int b) { return a < b ? a : b; }

/* Switches that one GPU has links to are seen to be one fabric. */
static void join_by_gpus(struct topo* topo) {
  for (int g = 0; g < topo->ngpus; ++g) {
    int first = -1;
    for (int i = 0; i < topo->gpus[g].nlinks; ++i) {
      const int at = topo->gpus[g].links[i].target_switch;
      if (at < 0) continue;
      if (first < 0) first = at;
      if (topo->switches[at].group != topo->switches[first].group) topo_join_switches(topo, first, at);
    }
  }
}

/* ---------------------------------------------------------------- PCIe paths */

static int depth_of(const struct topo* topo, int device) {
  int depth = 0;
  for (; topo->devices[device].parent >= 0; device = topo->devices[device].parent) ++depth;
  return depth;
}

/* In NCCL's files a bridge stands for a whole PCIe switch; in hwloc's and sysfs's tree a switch is an upstream port
 * with downstream ports below it, so two steps down are still the same one. */
static struct topo_fact pcie_of(const struct topo* topo, int from, int to, uint16_t source) {
  int a = topo->gpus[from].device, b = topo->gpus[to].device, steps = 0;
  const int steps_of_switch = topo->origin == TOPO_FROM_NCCL_XML ? 1 : 2;
  if (a < 0 || b < 0) return topo_unknown(source);
  for (int da = depth_of(topo, a), db = depth_of(topo, b); a >= 0 && a != b;) {
    const int up_a = da >= db, up_b = db >= da;
    if (up_a) a = topo->devices[a].parent, --da;
    if (up_b) b = topo->devices[b].parent, --db;
    ++steps;
  }
  if (a >= 0) {
    if (topo->devices[a].bus_id[0] == '\0') return topo_known(TOPO_PCIE_PHB, source);
    return topo_known(steps <= steps_of_switch ? TOPO_PCIE_PIX : TOPO_PCIE_PXB, source);
  }
  const int numa_a = topo->gpus[from].numa, numa_b = topo->gpus[to].numa;
  if (!topo_numa_known(topo, numa_a) || !topo_numa_known(topo, numa_b)) return topo_unknown(source);
  return topo_known(numa_a == numa_b ? TOPO_PCIE_NODE : TOPO_PCIE_SYS, source);
}

/* ---------------------------------------------------------------- pairs */

static void pair_nvlink(const struct topo* topo, int from, int to, struct topo_pair* pair) {
  const struct topo_gpu* a = &topo->gpus[from];
  const struct topo_gpu* b = &topo->gpus[to];
  if (a->nvlink_active.state == TOPO_NOT_OBSERVABLE || b->nvlink_active.state == TOPO_NOT_OBSERVABLE) {
    pair->via = TOPO_VIA_UNKNOWN;
    pair->nvlink_count = topo_unknown(a->nvlink_active.source);
    return;
  }
  const int direct = links_to_gpu(a, to);
  /* All switches of a machine are one fabric, as NCCL takes them: no GPU shows how they are linked to each other. The
   * verdict says so where it matters. */
  const int switched = lesser(links_to(a, END_SWITCH), links_to(b, END_SWITCH));
  const int hidden = lesser(links_to(a, END_HIDDEN), links_to(b, END_HIDDEN));
  const int count = direct + switched + hidden;
  pair->via = direct     ? TOPO_VIA_DIRECT
              : switched ? TOPO_VIA_SWITCH
              : hidden   ? TOPO_VIA_HIDDEN_SWITCH
                         : TOPO_VIA_NONE;
  pair->nvlink_count = topo_known(count, a->nvlink_active.source);
  if (!count) {
    pair->nvlink_raw = pair->nvlink_effective = topo_known(0, a->nvlink_active.source);
    return;
  }
  pair->nvlink_version = a->nvlink_version;
  const struct topo_fact raw = a->nvlink_speed, effective = a->nvlink_effective;
  if (raw.state == TOPO_OK) pair->nvlink_raw = topo_known(raw.value * count, raw.source);
  if (effective.state == TOPO_OK) pair->nvlink_effective = topo_known(effective.value * count, effective.source);
}

static void find_lopsided(struct topo_builder* builder) {
  const struct topo* topo = builder->topo;
  for (int a = 0; a < topo->ngpus; ++a) {
    for (int b = a + 1; b < topo->ngpus; ++b) {
      const int there = links_to_gpu(&topo->gpus[a], b), back = links_to_gpu(&topo->gpus[b], a);
      if (there == back || topo->gpus[a].nvlink_active.state == TOPO_NOT_OBSERVABLE ||
          topo->gpus[b].nvlink_active.state == TOPO_NOT_OBSERVABLE) {
        continue;
      }
      topo_find(builder, "nvlink.lopsided", TOPO_FAIL, 0, "", "GPU %s has %d NVLinks to GPU %s, which has %d back",
                topo->gpus[a].bus_id, there, topo->gpus[b].bus_id, back);
    }
  }
}

void topo_derive(struct topo_builder* builder) {
  struct topo* topo = builder->topo;
  const size_t n = (size_t)topo->ngpus;
  if (builder->out_of_memory) return;
  order_gpus(topo);
  for (int g = 0; g < topo->ngpus; ++g) {
    for (int i = 0; i < topo->gpus[g].nlinks; ++i) resolve_link(builder, g, &topo->gpus[g].links[i]);
  }
  join_by_gpus(topo);
  for (int g = 0; g < topo->ngpus; ++g) {
    count_links(&topo->gpus[g]);
    add_arch(builder, &topo->gpus[g]);
  }
  find_lopsided(builder);
  if (n && !(topo->pairs = calloc(n * n, sizeof *topo->pairs))) {
    builder->out_of_memory = 1;
    return;
  }
  const uint16_t tree = topo_add_source(builder, "%s", topo->file ? topo->file : "PCI tree");
  for (int a = 0; a < topo->ngpus; ++a) {
    for (int b = 0; b < topo->ngpus; ++b) {
      struct topo_pair* pair = &topo->pairs[(size_t)a * n + (size_t)b];
      if (a == b) {
        pair->pcie = topo_known(TOPO_PCIE_SELF, tree);
        continue;
      }
      pair_nvlink(topo, a, b, pair);
      pair->pcie = pcie_of(topo, a, b, tree);
    }
  }
}
