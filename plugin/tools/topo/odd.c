/* SPDX-License-Identifier: Apache-2.0
 *
 * odd.c: which GPU is not like the others; see odd.h.
 */
#include "plugin/tools/topo/odd.h"

#include <stdlib.h>
#include <string.h>

#include "plugin/tools/topo/decide.h"

/* The number of active links that most GPUs have; of several such numbers the larger one. */
static int usual_count(const struct topo* topo) {
  int usual = 0, most = 0;
  for (int i = 0; i < topo->ngpus; i++) {
    const struct topo_fact* active = &topo->gpus[i].nvlink_active;
    int same = 0;
    if (active->state != TOPO_OK) continue;
    for (int k = 0; k < topo->ngpus; k++) {
      same += topo->gpus[k].nvlink_active.state == TOPO_OK && topo->gpus[k].nvlink_active.value == active->value;
    }
    if (same < most || (same == most && active->value < usual)) continue;
    most = same;
    usual = active->value;
  }
  return usual;
}

static int compare_ints(const void* left, const void* right) {
  int a = *(const int*)left, b = *(const int*)right;
  return (a > b) - (a < b);
}

/* The switches that a GPU has links to, each once, in order. Returns how many. */
static int switches_of(const struct topo_gpu* gpu, int* set) {
  int count = 0, unique = 0;
  for (int i = 0; i < gpu->nlinks; i++) {
    if (gpu->links[i].target_switch >= 0) set[count++] = gpu->links[i].target_switch;
  }
  qsort(set, (size_t)count, sizeof(*set), compare_ints);
  for (int i = 0; i < count; i++) {
    if (i == 0 || set[i] != set[i - 1]) set[unique++] = set[i];
  }
  return unique;
}

static int mark_targets(const struct topo* topo, unsigned char* odd) {
  size_t total = 1;
  int agreed = 0;
  for (int i = 0; i < topo->ngpus; i++) total += (size_t)topo->gpus[i].nlinks;
  int* sets = malloc(total * sizeof(*sets));
  struct {
    int *first, count, shared;
  }* of = calloc((size_t)topo->ngpus + 1, sizeof(*of));
  if (sets == NULL || of == NULL) {
    free(sets);
    free(of);
    return -1;
  }
  int* at = sets;
  for (int i = 0; i < topo->ngpus; i++) {
    of[i].first = at;
    of[i].count = switches_of(&topo->gpus[i], at);
    at += of[i].count;
  }
  for (int i = 0; i < topo->ngpus; i++) {
    for (int k = 0; k < topo->ngpus && !of[i].shared; k++) {
      of[i].shared = i != k && of[i].count == of[k].count &&
                     memcmp(of[i].first, of[k].first, (size_t)of[i].count * sizeof(int)) == 0;
    }
    agreed |= of[i].shared && of[i].count > 0;
  }
  for (int i = 0; i < topo->ngpus && agreed; i++) {
    if (!of[i].shared) odd[i] |= ODD_LINK_TARGETS;
  }
  free(sets);
  free(of);
  return 0;
}

unsigned char* odd_find(const struct topo* topo, int* usual) {
  int count = usual_count(topo);
  unsigned char* odd = calloc((size_t)topo->ngpus + 1, 1);
  if (odd == NULL || mark_targets(topo, odd) != 0) {
    free(odd);
    return NULL;
  }
  for (int i = 0; i < topo->ngpus; i++) {
    const struct topo_gpu* gpu = &topo->gpus[i];
    if (gpu->nvlink_active.state == TOPO_OK && (gpu->nvlink_active.value != count || gpu_inactive_links(gpu) > 0)) {
      odd[i] |= ODD_LINK_COUNT;
    }
    for (int k = 0; k < gpu->nlinks; k++) {
      const struct topo_nvlink* link = &gpu->links[k];
      int lost = link->target[0] != '\0' && link->target_gpu < 0 && link->target_switch < 0;
      if (lost && link->remote != TOPO_REMOTE_CPU) odd[i] |= ODD_LINK_LOST;
    }
  }
  if (usual != NULL) *usual = count;
  return odd;
}

void odd_targets_text(const struct topo* topo, int gpu, char* text, size_t bytes) {
  const struct topo_gpu* of = &topo->gpus[gpu];
  for (int i = 0; i < of->nlinks; i++) {
    const struct topo_nvlink* link = &of->links[i];
    tool_append(text, bytes, "%s%d to ", i > 0 ? ", " : "", link->count);
    if (link->target_gpu >= 0) {
      tool_append(text, bytes, "GPU%d", link->target_gpu);
    } else if (link->target[0] != '\0') {
      tool_append(text, bytes, "%s", link->target);
    } else {
      tool_append(text, bytes, link->remote == TOPO_REMOTE_CPU ? "the CPU" : "something that is not shown");
    }
  }
}
