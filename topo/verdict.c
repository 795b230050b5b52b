/* SPDX-License-Identifier: Apache-2.0
 *
 * verdict.c: what the facts about all pairs of a set of GPUs come to. The first thing that is known to be broken
 * decides; only then does what nobody could say; never a guess.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "topo/model.h"

struct question {
  const struct topo* topo;
  const int* gpus; /* NULL: all */
  int n;
};

static int gpu_of(const struct question* question, int i) { return question->gpus ? question->gpus[i] : i; }

/* The first answer of each kind is kept; FAIL replaces NOT OBSERVABLE. */
static void answer(struct topo_answer* out, enum topo_state state, int from, int to, uint16_t source, const char* fmt,
                   ...) __attribute__((format(printf, 6, 7)));
static void answer(struct topo_answer* out, enum topo_state state, int from, int to, uint16_t source, const char* fmt,
                   ...) {
  va_list args;
  if (out->state == TOPO_FAIL || (out->state == TOPO_NOT_OBSERVABLE && state != TOPO_FAIL)) return;
  out->state = state;
  out->from = from;
  out->to = to;
  out->source = source;
  va_start(args, fmt);
  vsnprintf(out->why, sizeof out->why, fmt, args);
  va_end(args);
}

/* ---------------------------------------------------------------- NVLink */

static void ask_link(const struct question* question, int a, int b, struct topo_verdict* verdict) {
  const struct topo* topo = question->topo;
  const struct topo_pair* pair = topo_pair(topo, a, b);
  const char *from = topo->gpus[a].bus_id, *to = topo->gpus[b].bus_id;
  struct topo_answer* out = &verdict->nvlink;
  const struct topo_fact count = pair->nvlink_count;
  if (count.state == TOPO_NOT_OBSERVABLE) {
    answer(out, TOPO_NOT_OBSERVABLE, a, b, count.source, "nothing says what NVLinks GPU %s or GPU %s has", from, to);
    return;
  }
  if (count.value == 0) {
    answer(out, TOPO_FAIL, a, b, count.source, "no NVLink from GPU %s to GPU %s", from, to);
    return;
  }
  const struct topo_fact statuses[] = {pair->p2p_nvlink, pair->p2p_read, pair->p2p_write};
  static const char* const names[] = {"NVLink", "read", "write"};
  for (int i = 0; i < 3; ++i) {
    if (statuses[i].state == TOPO_FAIL) {
      answer(out, TOPO_FAIL, a, b, statuses[i].source, "P2P %s from GPU %s to GPU %s: %s", names[i], from, to,
             topo_p2p_name((enum topo_p2p)statuses[i].value));
    } else if (statuses[i].state == TOPO_NOT_OBSERVABLE && topo->origin == TOPO_FROM_LIVE) {
      answer(out, TOPO_NOT_OBSERVABLE, a, b, statuses[i].source, "P2P %s from GPU %s to GPU %s is not known", names[i],
             from, to);
    }
  }
}

/* Whether the switches of all these GPUs are seen to be one fabric. */
static int one_group(const struct question* question) {
  const struct topo* topo = question->topo;
  int group = -1;
  for (int i = 0; i < question->n; ++i) {
    const struct topo_gpu* gpu = &topo->gpus[gpu_of(question, i)];
    for (int l = 0; l < gpu->nlinks; ++l) {
      if (gpu->links[l].target_switch < 0) continue;
      const int theirs = topo->switches[gpu->links[l].target_switch].group;
      if (group >= 0 && theirs != group) return 0;
      group = theirs;
    }
  }
  return 1;
}

static int through_switches(const struct topo_pair* pair) {
  return pair->via == TOPO_VIA_SWITCH || pair->via == TOPO_VIA_HIDDEN_SWITCH;
}

/* A fabric of switches: all links go there, everybody has as many, and it is one that has been set up. */
static void ask_fabric(const struct question* question, struct topo_verdict* verdict) {
  const struct topo* topo = question->topo;
  const int first_index = gpu_of(question, 0);
  const struct topo_gpu* first = &topo->gpus[first_index];
  struct topo_answer* out = &verdict->nvlink;
  for (int i = 0; i < question->n; ++i) {
    const int g = gpu_of(question, i);
    const struct topo_gpu* gpu = &topo->gpus[g];
    const struct topo_fact active = gpu->nvlink_active, fabric = gpu->fabric;
    for (int l = 0; l < gpu->nlinks; ++l) {
      const enum topo_remote remote = gpu->links[l].remote;
      if (gpu->links[l].count == 0 || (remote != TOPO_REMOTE_GPU && remote != TOPO_REMOTE_CPU)) continue;
      answer(out, TOPO_FAIL, g, -1, gpu->links[l].source, "GPU %s has %d NVLinks that do not end at a switch",
             gpu->bus_id, gpu->links[l].count);
    }
    if (active.state == TOPO_OK && first->nvlink_active.state == TOPO_OK &&
        active.value != first->nvlink_active.value) {
      answer(out, TOPO_FAIL, first_index, g, active.source, "GPU %s has %d active NVLinks, GPU %s has %d",
             first->bus_id, first->nvlink_active.value, gpu->bus_id, active.value);
    }
    if (fabric.state == TOPO_FAIL) {
      answer(out, TOPO_FAIL, g, -1, fabric.source, "the NVLink fabric of GPU %s is not up: state %d, status %d",
             gpu->bus_id, fabric.value, gpu->fabric_status.value);
    }
    if (strcmp(gpu->cluster, first->cluster) != 0 ||
        (gpu->clique.state == TOPO_OK && first->clique.state == TOPO_OK && gpu->clique.value != first->clique.value)) {
      answer(out, TOPO_FAIL, first_index, g, gpu->clique.source, "GPUs %s and %s are in different NVLink fabrics",
             first->bus_id, gpu->bus_id);
    }
  }
}

static void ask_nvlink(const struct question* question, struct topo_verdict* verdict) {
  const struct topo* topo = question->topo;
  int switched = 0, hidden = 0, equal = 1, count = 0;
  for (int i = 0; i < question->n; ++i) {
    for (int k = 0; k < question->n; ++k) {
      const int a = gpu_of(question, i), b = gpu_of(question, k);
      const struct topo_pair* pair = topo_pair(topo, a, b);
      if (i == k) continue;
      ask_link(question, a, b, verdict);
      switched |= through_switches(pair);
      hidden |= pair->via == TOPO_VIA_HIDDEN_SWITCH;
      if (!count) count = pair->nvlink_count.value;
      equal &= count == pair->nvlink_count.value;
    }
  }
  if (switched) ask_fabric(question, verdict);
  if (verdict->nvlink.state != TOPO_OK) return;
  verdict->nvlink_count = equal ? count : 0;
  const int split = switched && !one_group(question);
  verdict->assumed = hidden || split;
  if (verdict->assumed) {
    snprintf(verdict->nvlink.why, sizeof verdict->nvlink.why, "%s",
             hidden ? "assumed: nothing shows the NVSwitches that the links end at"
                    : "assumed: nothing shows how the NVSwitches are linked to each other");
  }
}

/* ---------------------------------------------------------------- peer access */

static enum topo_level level_of_pcie(enum topo_pcie pcie) {
  switch (pcie) {
    case TOPO_PCIE_SELF: return TOPO_LEVEL_LOC;
    case TOPO_PCIE_PIX: return TOPO_LEVEL_PIX;
    case TOPO_PCIE_PXB: return TOPO_LEVEL_PXB;
    case TOPO_PCIE_PHB:
    case TOPO_PCIE_NODE: return TOPO_LEVEL_PHB;
    case TOPO_PCIE_SYS: break;
  }
  return TOPO_LEVEL_SYS;
}

static const char* level_name(enum topo_level level) {
  static const char* const names[] = {"LOC", "NVL", "PIX", "PXB", "PHB", "SYS"};
  return names[level];
}

static void ask_level(const struct topo* topo, int a, int b, enum topo_level level, struct topo_answer* out) {
  const struct topo_pair* pair = topo_pair(topo, a, b);
  const char *from = topo->gpus[a].bus_id, *to = topo->gpus[b].bus_id;
  if (level == TOPO_LEVEL_SYS) return;
  if (level == TOPO_LEVEL_LOC) {
    answer(out, TOPO_FAIL, a, b, 0, "NCCL_P2P_DISABLE or NCCL_P2P_LEVEL allows no peer access");
    return;
  }
  if (pair->nvlink_count.state == TOPO_OK && pair->nvlink_count.value > 0) return;
  if (pair->pcie.state == TOPO_NOT_OBSERVABLE) {
    answer(out, TOPO_NOT_OBSERVABLE, a, b, pair->pcie.source,
           "whether the path from GPU %s to GPU %s is within NCCL_P2P_LEVEL=%s is not known", from, to,
           level_name(level));
    return;
  }
  if (level == TOPO_LEVEL_NVL || level_of_pcie((enum topo_pcie)pair->pcie.value) > level) {
    const int unseen = pair->nvlink_count.state == TOPO_NOT_OBSERVABLE;
    answer(out, unseen ? TOPO_NOT_OBSERVABLE : TOPO_FAIL, a, b, pair->pcie.source,
           "the path from GPU %s to GPU %s is %s%s, NCCL_P2P_LEVEL=%s allows less", from, to,
           topo_pcie_smi_name((enum topo_pcie)pair->pcie.value), unseen ? " or NVLink" : "", level_name(level));
  }
}

static void ask_access(const struct topo* topo, int a, int b, struct topo_answer* out) {
  const struct topo_pair* pair = topo_pair(topo, a, b);
  const char *from = topo->gpus[a].bus_id, *to = topo->gpus[b].bus_id;
  const struct topo_fact statuses[] = {pair->p2p_write, pair->p2p_read};
  static const char* const names[] = {"write", "read"};
  if (pair->access.state == TOPO_FAIL) {
    answer(out, TOPO_FAIL, a, b, pair->access.source, "no peer access from GPU %s to GPU %s", from, to);
  }
  for (int i = 0; i < 2; ++i) {
    if (statuses[i].state == TOPO_FAIL) {
      answer(out, TOPO_FAIL, a, b, statuses[i].source, "P2P %s from GPU %s to GPU %s: %s", names[i], from, to,
             topo_p2p_name((enum topo_p2p)statuses[i].value));
    } else if (statuses[i].state == TOPO_NOT_OBSERVABLE && pair->access.state == TOPO_NOT_OBSERVABLE) {
      answer(out, TOPO_NOT_OBSERVABLE, a, b, statuses[i].source,
             "nothing says whether GPU %s can access the memory of GPU %s", from, to);
    }
  }
}

static void ask_p2p(const struct question* question, enum topo_level level, struct topo_verdict* verdict) {
  const struct topo* topo = question->topo;
  for (int i = 0; i < question->n; ++i) {
    for (int k = 0; k < question->n; ++k) {
      const int a = gpu_of(question, i), b = gpu_of(question, k);
      const struct topo_pair* pair = topo_pair(topo, a, b);
      if (a == b) continue;
      ask_level(topo, a, b, level, &verdict->p2p);
      ask_access(topo, a, b, &verdict->p2p);
      if (pair->pcie.state == TOPO_OK && pair->nvlink_count.value == 0 && pair->pcie.value > (int)verdict->worst_pcie) {
        verdict->worst_pcie = (enum topo_pcie)pair->pcie.value;
      }
    }
  }
}

void topo_verdict(const struct topo* topo, const int* gpus, int ngpus, enum topo_level level,
                  struct topo_verdict* verdict) {
  const struct question question = {topo, gpus, gpus ? ngpus : topo->ngpus};
  memset(verdict, 0, sizeof *verdict);
  verdict->nvlink = verdict->p2p = (struct topo_answer){.state = TOPO_OK, .from = -1, .to = -1};
  if (question.n < 2) {
    answer(&verdict->nvlink, TOPO_NOT_OBSERVABLE, -1, -1, 0, "%s", question.n ? "one GPU has no pairs" : "no GPU");
    verdict->p2p = verdict->nvlink;
    return;
  }
  ask_nvlink(&question, verdict);
  ask_p2p(&question, level, verdict);
}
