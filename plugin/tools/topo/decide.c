/* SPDX-License-Identifier: Apache-2.0
 *
 * decide.c: the path that arfusion takes; see decide.h.
 */
#include "plugin/tools/topo/decide.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "arfusion_plugin.h"

int gpu_inactive_links(const struct topo_gpu* gpu) {
  int inactive = 0;
  for (int i = 0; i < gpu->nlinks; i++) inactive += gpu->links[i].inactive;
  return inactive;
}

static void conclude(struct decision* decision, enum tool_status status, const char* path) {
  decision->status = status;
  snprintf(decision->path, sizeof(decision->path), "%s", path);
}

/* A sentence more. */
#define because(decision, ...)                                                                  \
  do {                                                                                          \
    if ((decision)->why[0] != '\0') tool_append((decision)->why, sizeof((decision)->why), " "); \
    tool_append((decision)->why, sizeof((decision)->why), __VA_ARGS__);                         \
  } while (0)

static const char turned_down[] = "arfusion turns everything down; the caller's own path (NCCL) is taken";

/* ---------------------------------------------------------------- what rules arfusion out before any link counts */

static enum topo_level level_of(const struct host* host) {
  enum topo_level level = TOPO_LEVEL_SYS;
  if (host != NULL) {
    topo_level_of_settings(host_setting_get(host, "NCCL_P2P_DISABLE", NULL),
                           host_setting_get(host, "NCCL_P2P_LEVEL", NULL), &level);
  }
  return level;
}

static const struct {
  const char *name, *value, *path;
} rules[] = {{"ARFUSION_PLUGIN", "none", "no plugin is loaded; the caller's own path (NCCL) is taken"},
             {"ARFUSION_DEVICE", "host", "arfusion's host device: not the GPUs"},
             {"ARFUSION_ALGO", "none", turned_down}};
#define RULES (sizeof(rules) / sizeof(rules[0]))

/* The first rule that a setting meets; RULES if none does. */
static size_t rule_find(const struct host* host) {
  for (size_t i = 0; i < RULES; i++) {
    const char* value = host_setting_get(host, rules[i].name, NULL);
    if (value != NULL && strcasecmp(value, rules[i].value) == 0) return i;
  }
  return RULES;
}

const char* decide_ruling_setting(const struct host* host) {
  size_t rule = rule_find(host);
  return rule < RULES ? rules[rule].name : NULL;
}

static int ruled_out_by_setting(const struct host* host, struct decision* decision) {
  const char* where = "";
  size_t rule = rule_find(host);
  if (rule == RULES) return 0;
  host_setting_get(host, rules[rule].name, &where);
  conclude(decision, TOOL_UNUSABLE, rules[rule].path);
  because(decision, "%s=%s is set (%s).", rules[rule].name, rules[rule].value, where);
  return 1;
}

int decide_cuda_fails(const struct topo* topo) {
  return topo->ngpus > 0 && topo->cuda_runtime.state == TOPO_OK && tool_finding(topo, "cuda.open", NULL) != NULL;
}

static int ruled_out_by_cuda(const struct topo* topo, struct decision* decision) {
  if (!decide_cuda_fails(topo)) return 0;
  conclude(decision, TOOL_UNUSABLE, turned_down);
  because(decision, "CUDA does not start: %s.", tool_finding(topo, "cuda.open", NULL)->text);
  return 1;
}

static int ruled_out_by_gpu(const struct topo* topo, struct decision* decision) {
  for (int i = 0; i < topo->ngpus; i++) {
    const struct topo_gpu* gpu = &topo->gpus[i];
    if (gpu->sm.state == TOPO_OK && gpu->sm.value < DECIDE_FIRST_SM) {
      conclude(decision, TOOL_UNUSABLE, turned_down);
      because(decision, "GPU%d is sm_%d, and the kernels need sm_%d or later.", i, gpu->sm.value, DECIDE_FIRST_SM);
      return 1;
    }
    if (gpu->mig.value != 0) {
      conclude(decision, TOOL_UNUSABLE, turned_down);
      because(decision, "GPU%d is in MIG mode, which has no peer access.", i);
      return 1;
    }
  }
  return 0;
}

static int too_few(const struct topo* topo, struct decision* decision) {
  if (topo->ngpus >= 2) return 0;
  if (topo->ngpus == 0) {
    conclude(decision, TOOL_CANNOT_TELL,
             topo->origin == TOPO_FROM_LIVE ? "arfusion's host device: memory that processes share" : "none");
    because(decision, topo->origin == TOPO_FROM_LIVE ? "No GPU is seen here." : "The file has no GPU in it.");
  } else {
    conclude(decision, TOOL_CANNOT_TELL, "none: one GPU has nobody to exchange with");
    because(decision, "Only one GPU is seen.");
  }
  return 1;
}

/* ---------------------------------------------------------------- the links */

static void weigh_links(const struct topo* topo, struct decision* decision) {
  const struct topo_verdict* verdict = &decision->verdict;
  int offline = topo->origin != TOPO_FROM_LIVE;
  if (verdict->p2p.state == TOPO_FAIL) {
    conclude(decision, TOOL_UNUSABLE, turned_down);
  } else if (verdict->nvlink.state == TOPO_OK) {
    conclude(decision, verdict->p2p.state == TOPO_OK || offline ? TOOL_GOOD : TOOL_CANNOT_TELL,
             "arfusion's kernels, over NVLink");
  } else if (verdict->p2p.state == TOPO_OK) {
    conclude(decision, TOOL_DEGRADED, "arfusion's kernels; NVLink does not join all GPUs equally");
  } else if (verdict->nvlink.state == TOPO_FAIL && offline) {
    conclude(decision, TOOL_DEGRADED,
             "arfusion's kernels, if peer access works; NVLink does not join all GPUs equally");
  } else {
    conclude(decision, TOOL_CANNOT_TELL,
             "arfusion's kernels, if every GPU reaches every other one: that is not observable");
  }
}

static void weigh_oddities(const struct topo* topo, struct decision* decision) {
  int found = 0;
  for (int i = 0; i < topo->ngpus; i++) {
    int inactive = gpu_inactive_links(&topo->gpus[i]);
    if (inactive == 0) continue;
    if (decision->status == TOOL_GOOD) decision->status = TOOL_DEGRADED;
    because(decision, "%d NVLink%s of GPU%d %s not active.", inactive, inactive == 1 ? "" : "s", i,
            inactive == 1 ? "is" : "are");
    break; /* the doctor lists them all */
  }
  for (int i = 0; i < topo->nfindings; i++) found += topo->findings[i].state == TOPO_FAIL;
  if (found > 0) {
    if (decision->status == TOOL_GOOD) decision->status = TOOL_DEGRADED;
    because(decision, "%d thing%s %s wrong with what was read (below).", found, found == 1 ? "" : "s",
            found == 1 ? "is" : "are");
  }
  if (topo->ngpus > ARFUSION_MAX_RANKS) {
    because(decision, "A communicator has at most %d ranks.", ARFUSION_MAX_RANKS);
  }
}

/* The GPUs that CUDA shows here, if it shows several; otherwise all: a rank may see its own only. */
static void ask_verdict(const struct topo* topo, struct decision* decision) {
  int shown[TOPO_MOST_GPUS], count = 0;
  for (int i = 0; i < topo->ngpus; i++) {
    if (topo->gpus[i].cuda.state == TOPO_OK) shown[count++] = i;
  }
  int some = topo->origin == TOPO_FROM_LIVE && count >= 2 && count < topo->ngpus;
  topo_verdict(topo, some ? shown : NULL, count, decision->level, &decision->verdict);
  if (some) because(decision, "Of %d GPUs, the %d that CUDA shows here are judged.", topo->ngpus, count);
}

void decide(const struct topo* topo, const struct host* host, struct decision* decision) {
  memset(decision, 0, sizeof(*decision));
  decision->level = level_of(host);
  ask_verdict(topo, decision);
  if (too_few(topo, decision)) return;
  if (host != NULL && ruled_out_by_setting(host, decision)) return;
  if (ruled_out_by_cuda(topo, decision) || ruled_out_by_gpu(topo, decision)) return;
  weigh_links(topo, decision);
  weigh_oddities(topo, decision);
}
