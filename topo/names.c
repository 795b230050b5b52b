/* SPDX-License-Identifier: Apache-2.0
 *
 * names.c: the model in words, and its look-ups.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "topo/model.h"

#define NAME_OF(table, value) \
  ((unsigned)(value) < sizeof(table) / sizeof(table)[0] ? (table)[(unsigned)(value)] : "unknown")

const char* topo_state_name(enum topo_state state) {
  static const char* const names[] = {"NOT OBSERVABLE", "OK", "FAIL"};
  return NAME_OF(names, state);
}

const char* topo_pcie_smi_name(enum topo_pcie pcie) {
  static const char* const names[] = {"X", "PIX", "PXB", "PHB", "NODE", "SYS"};
  return NAME_OF(names, pcie);
}

const char* topo_pcie_nccl_name(enum topo_pcie pcie) {
  static const char* const names[] = {"LOC", "PIX", "PXB", "PHB", "PHB", "SYS"};
  return NAME_OF(names, pcie);
}

const char* topo_p2p_name(enum topo_p2p p2p) {
  static const char* const names[] = {"OK",
                                      "not supported by the chipset",
                                      "not supported by the GPU",
                                      "not possible between these slots",
                                      "disabled by a registry key of the driver",
                                      "not supported",
                                      "unknown"};
  return NAME_OF(names, p2p);
}

const char* topo_remote_name(enum topo_remote remote) {
  static const char* const names[] = {"GPU", "CPU", "switch", "unknown"};
  return NAME_OF(names, remote);
}

const char* topo_via_name(enum topo_via via) {
  static const char* const names[] = {"none", "direct", "switch", "hidden switch", "unknown"};
  return NAME_OF(names, via);
}

const char* topo_source(const struct topo* topo, uint16_t source) {
  return source < topo->nsources ? topo->sources[source] : "";
}

int topo_gpu_by_bus_id(const struct topo* topo, const char* bus_id) {
  char key[TOPO_BUS_ID_BYTES];
  if (topo_bus_id_parse(bus_id, key)) return -1;
  for (int i = 0; i < topo->ngpus; ++i) {
    if (strcmp(topo->gpus[i].bus_id, key) == 0) return i;
  }
  return -1;
}

int topo_numa_has_cpu(const struct topo_numa* numa, int cpu) {
  for (const char* list = numa->cpus; list && *list;) { /* "0-95,192-287" */
    char* end;
    const long first = strtol(list, &end, 10);
    const long last = *end == '-' ? strtol(end + 1, &end, 10) : first;
    if (cpu >= first && cpu <= last) return 1;
    list = *end == ',' ? end + 1 : NULL;
  }
  return 0;
}

int topo_numa_known(const struct topo* topo, int numa) {
  if (numa < 0) return 0;
  const struct topo_numa* of = &topo->numas[numa];
  return of->id >= 0 || (of->cpus && of->cpus[0]);
}

int topo_device_find(const struct topo* topo, const char* bus_id) {
  for (int i = 0; i < topo->ndevices; ++i) {
    if (strcmp(topo->devices[i].bus_id, bus_id) == 0) return i;
  }
  return -1;
}

int topo_switch_find(const struct topo* topo, const char* bus_id) {
  for (int i = 0; i < topo->nswitches; ++i) {
    if (strcmp(topo->switches[i].bus_id, bus_id) == 0) return i;
  }
  return -1;
}

void topo_pair_cell(const struct topo* topo, int from, int to, char cell[8]) {
  const struct topo_pair* pair = topo_pair(topo, from, to);
  if (from == to) {
    snprintf(cell, 8, "X");
  } else if (pair->nvlink_count.state != TOPO_NOT_OBSERVABLE && pair->nvlink_count.value > 0) {
    snprintf(cell, 8, "NV%d", pair->nvlink_count.value % 10000);
  } else if (pair->pcie.state != TOPO_NOT_OBSERVABLE) {
    snprintf(cell, 8, "%s", topo_pcie_smi_name((enum topo_pcie)pair->pcie.value));
  } else {
    snprintf(cell, 8, "?");
  }
}

const char* topo_pair_nccl_path(const struct topo* topo, int from, int to) {
  const struct topo_pair* pair = topo_pair(topo, from, to);
  if (from == to) return "LOC";
  if (pair->nvlink_count.state != TOPO_NOT_OBSERVABLE && pair->nvlink_count.value > 0) return "NVL";
  return pair->pcie.state != TOPO_NOT_OBSERVABLE ? topo_pcie_nccl_name((enum topo_pcie)pair->pcie.value) : "DIS";
}

/* NVLink through a GPU and C2C are taken as NVLink, PXN and the like as PXB: the next closer one that a pair can
 * have. */
int topo_level_parse(const char* text, enum topo_level* level) {
  static const struct {
    const char* word;
    enum topo_level level;
  } words[] = {{"LOC", TOPO_LEVEL_LOC}, {"NVL", TOPO_LEVEL_NVL}, {"NVB", TOPO_LEVEL_NVL}, {"C2C", TOPO_LEVEL_NVL},
               {"PIX", TOPO_LEVEL_PIX}, {"PXB", TOPO_LEVEL_PXB}, {"P2C", TOPO_LEVEL_PXB}, {"PXN", TOPO_LEVEL_PXB},
               {"PHB", TOPO_LEVEL_PHB}, {"SYS", TOPO_LEVEL_SYS}};
  static const enum topo_level numbers[] = {TOPO_LEVEL_LOC, TOPO_LEVEL_PIX, TOPO_LEVEL_PXB, TOPO_LEVEL_PHB,
                                            TOPO_LEVEL_SYS};
  for (size_t i = 0; i < sizeof words / sizeof words[0]; ++i) {
    if (strcasecmp(text, words[i].word) == 0) {
      *level = words[i].level;
      return 0;
    }
  }
  const size_t digits = strspn(text, "0123456789");
  if (digits == 0 || digits > 9 || text[digits] != '\0') return -1;
  const int number = atoi(text);
  *level = number < 4 ? numbers[number] : TOPO_LEVEL_SYS;
  return 0;
}

int topo_level_of_settings(const char* disable, const char* text, enum topo_level* level) {
  *level = disable && atoi(disable) ? TOPO_LEVEL_LOC : TOPO_LEVEL_SYS;
  if (*level == TOPO_LEVEL_LOC || !text || text[0] == '\0') return 0;
  return topo_level_parse(text, level);
}
