/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor.c: the list of checks and how they are printed; see doctor.h.
 */
#include "plugin/tools/topo/doctor.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/tools/topo/json.h"
#include "plugin/tools/topo/text.h"

static const struct {
  const char* id; /* part of the interface: documented in SCHEMA.md */
  check_fn run;
} checks[] = {{"driver.version", check_driver_version},
              {"cuda.version", check_cuda_version},
              {"cuda.start", check_cuda_start},
              {"nccl.version", check_nccl_version},
              {"gpu.visible", check_gpu_visible},
              {"gpu.order", check_gpu_order},
              {"gpu.arch", check_gpu_arch},
              {"gpu.mig", check_gpu_mig},
              {"nvlink.links", check_nvlink_links},
              {"nvlink.targets", check_nvlink_targets},
              {"nvlink.symmetry", check_nvlink_symmetry},
              {"nvlink.all_to_all", check_nvlink_all_to_all},
              {"nvlink.multicast", check_nvlink_multicast},
              {"fabric.state", check_fabric_state},
              {"p2p.access", check_p2p_access},
              {"p2p.nvlink", check_p2p_nvlink},
              {"p2p.atomics", check_p2p_atomics},
              {"p2p.functional", check_p2p_functional},
              {"pci.acs", check_pci_acs},
              {"pci.width", check_pci_width},
              {"pci.tree", check_pci_tree},
              {"numa.affinity", check_numa_affinity},
              {"iommu.type", check_iommu_type},
              {"shm.size", check_shm_size},
              {"env.nccl", check_env_nccl},
              {"env.arfusion", check_env_arfusion}};
#define CHECKS (sizeof(checks) / sizeof(checks[0]))

static const char* const status_names[] = {"OK", "WARN", "FAIL", "NOT OBSERVABLE"};

/* ---------------------------------------------------------------- what checks are made of */

#define APPEND(text, fmt)                                        \
  do {                                                           \
    va_list args_;                                               \
    size_t used_ = strlen(text);                                 \
    va_start(args_, fmt);                                        \
    vsnprintf((text) + used_, sizeof(text) - used_, fmt, args_); \
    va_end(args_);                                               \
  } while (0)

void check_say(struct check* check, enum check_status status, const char* fmt, ...) {
  check->status = status;
  APPEND(check->evidence, fmt);
}
void check_mean(struct check* check, const char* fmt, ...) { APPEND(check->meaning, fmt); }
void check_mend(struct check* check, const char* fmt, ...) { APPEND(check->remedy, fmt); }

int check_needs_live(const struct check_input* in, struct check* check) {
  if (in->host != NULL) return 0;
  check_say(check, CHECK_NOT_OBSERVABLE, "a topology file does not tell");
  return 1;
}

int check_needs_gpus(const struct check_input* in, int gpus, struct check* check) {
  if (in->topo->ngpus >= gpus) return 0;
  check_say(check, CHECK_NOT_OBSERVABLE, in->topo->ngpus == 0 ? "no GPU is seen" : "only one GPU is seen");
  return 1;
}

/* ---------------------------------------------------------------- running and printing */

/* What was found while reading the machine or the file is a check too, under its own id, unless a check has it as its
 * evidence. */
static int finding_is_check(const struct topo_finding* finding) {
  static const char* const taken[] = {"gpu.hidden", "cuda.open", "nvlink.target", "nvlink.lopsided"};
  for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
    if (strcmp(finding->id, taken[i]) == 0) return 0;
  }
  return 1;
}

/* Of several with one id the first. Returns 0 for the others. */
static int finding_check(const struct topo* topo, const struct topo_finding* finding, struct check* check) {
  int count;
  if (!finding_is_check(finding) || tool_finding(topo, finding->id, &count) != finding) return 0;
  memset(check, 0, sizeof(*check));
  check->id = finding->id;
  check_say(check, finding->state == TOPO_FAIL ? CHECK_FAIL : CHECK_NOT_OBSERVABLE, "%s", finding->text);
  if (count > 1) check_say(check, check->status, " (and %d more like it)", count - 1);
  return 1;
}

static void check_run(size_t index, const struct check_input* in, struct check* check) {
  memset(check, 0, sizeof(*check));
  check->id = checks[index].id;
  checks[index].run(in, check);
}

static void check_print(const struct check* check) {
  char head[64];
  snprintf(head, sizeof(head), "%-14s  %-17s  ", status_names[check->status], check->id);
  text_wrapped(head, 35, check->evidence);
  if (check->meaning[0] != '\0') text_wrapped("                means:             ", 35, check->meaning);
  if (check->remedy[0] != '\0') text_wrapped("                mend:              ", 35, check->remedy);
}

static json_t* check_value(const struct check* check) {
  return json_pack("{s:s, s:s, s:o, s:o, s:o}", "id", check->id, "status", status_names[check->status], "evidence",
                   json_text(check->evidence), "meaning", json_text(check->meaning), "remedy",
                   json_text(check->remedy));
}

/* All checks, in an array to be freed; NULL: out of memory. */
static struct check* checks_run(const struct check_input* in, int* count) {
  struct check* all = malloc((CHECKS + (size_t)in->topo->nfindings) * sizeof(*all));
  *count = 0;
  for (size_t i = 0; all != NULL && i < CHECKS; i++) check_run(i, in, &all[(*count)++]);
  for (int i = 0; all != NULL && i < in->topo->nfindings; i++) {
    *count += finding_check(in->topo, &in->topo->findings[i], &all[*count]);
  }
  return all;
}

static int print_json(const struct check_input* in, const struct check* all, int count, enum tool_status status) {
  struct json_document document;
  json_begin(&document, "doctor");
  json_decision(&document, in->topo, in->decision);
  json_machine(&document, in->topo);
  json_array_begin(&document, "checks");
  for (int i = 0; i < count; i++) json_array_element(&document, check_value(&all[i]));
  json_array_finish(&document);
  return json_end(&document, status);
}

/* What is worst comes first. */
static int print_text(const struct check_input* in, const struct check* all, int count, const int counts[4],
                      enum tool_status status) {
  static const enum check_status order[] = {CHECK_FAIL, CHECK_WARN, CHECK_OK, CHECK_NOT_OBSERVABLE};
  text_verdict(in->topo, in->decision);
  for (size_t k = 0; k < sizeof(order) / sizeof(order[0]); k++) {
    if (counts[order[k]] > 0) printf("\n");
    for (int i = 0; i < count; i++) {
      if (all[i].status == order[k]) check_print(&all[i]);
    }
  }
  printf("\n%d FAIL, %d WARN, %d OK, %d NOT OBSERVABLE: %s\n", counts[CHECK_FAIL], counts[CHECK_WARN], counts[CHECK_OK],
         counts[CHECK_NOT_OBSERVABLE], tool_status_name(status));
  return status;
}

int doctor_run(const struct check_input* in, int json) {
  enum tool_status status = in->decision->status;
  int counts[4] = {0}, count;
  struct check* all = checks_run(in, &count);
  if (all == NULL) return tool_fail("out of memory");
  for (int i = 0; i < count; i++) counts[all[i].status]++;
  if (status == TOOL_GOOD && counts[CHECK_FAIL] + counts[CHECK_WARN] > 0) status = TOOL_DEGRADED;
  int code = json ? print_json(in, all, count, status) : print_text(in, all, count, counts, status);
  free(all);
  return code;
}
