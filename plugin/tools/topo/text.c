/* SPDX-License-Identifier: Apache-2.0
 *
 * text.c: the overview on a terminal; see text.h.
 */
#include "plugin/tools/topo/text.h"

#include <stdio.h>
#include <string.h>

#include "topo/one_line.h"

#define COLUMNS 100

void text_wrapped(const char* head, int indent, const char* text) {
  int column = printf("%s", head);
  int first = 1;
  char line[1024]; /* more than any text here has */
  snprintf(line, sizeof(line), "%s", text);
  text_one_line(line);
  text = line;
  while (*text != '\0') {
    int word = (int)strcspn(text, " ");
    if (!first && column + 1 + word > COLUMNS) {
      printf("\n%*s", indent, "");
      column = indent;
    } else if (!first) {
      column += printf(" ");
    }
    column += printf("%.*s", word, text);
    first = 0;
    text += word;
    text += strspn(text, " ");
  }
  printf("\n");
}

void text_gb_s(char* text, size_t bytes, int mb_s) {
  snprintf(text, bytes, "%d.%03d", mb_s / 1000, mb_s % 1000);
  for (size_t end = strlen(text); text[end - 1] == '0' || text[end - 1] == '.'; end--) {
    int point = text[end - 1] == '.';
    text[end - 1] = '\0';
    if (point) break;
  }
}

void text_cuda_version(char* text, size_t bytes, int version) {
  snprintf(text, bytes, "%d.%d", version / 1000, version % 1000 / 10);
}

/* ---------------------------------------------------------------- the verdict */

static void source_line(const struct topo* topo) {
  char text[640] = "", version[16];
  int nodes = 0;
  for (int i = 0; i < topo->nnumas; i++) nodes += topo_numa_known(topo, i);
  if (topo->origin == TOPO_FROM_LIVE) {
    tool_append(text, sizeof(text), "this machine%s%s", topo->host[0] != '\0' ? " " : "", topo->host);
  } else {
    tool_append(text, sizeof(text), "%s (%s)", topo->file,
                topo->origin == TOPO_FROM_HWLOC_XML ? "hwloc XML" : "NCCL topology XML");
  }
  if (topo->driver[0] != '\0') tool_append(text, sizeof(text), ", driver %s", topo->driver);
  if (topo->cuda_driver.state == TOPO_OK) {
    text_cuda_version(version, sizeof(version), topo->cuda_driver.value);
    tool_append(text, sizeof(text), ", CUDA %s", version);
  }
  tool_append(text, sizeof(text), ", %d GPU%s, %d NVSwitch%s, %d NUMA node%s", topo->ngpus, topo->ngpus == 1 ? "" : "s",
              topo->nswitches, topo->nswitches == 1 ? "" : "es", nodes, nodes == 1 ? "" : "s");
  text_wrapped("Machine: ", 9, text);
}

static const char* answer_word(const struct topo_answer* answer) {
  static const char* const words[] = {"not observable", "yes", "no"};
  return words[answer->state];
}

static void answer_lines(const struct topo_verdict* verdict) {
  char text[640];
  snprintf(text, sizeof(text), "all to all: %s", answer_word(&verdict->nvlink));
  if (verdict->nvlink_count > 0) {
    tool_append(text, sizeof(text), ", %d link%s a pair", verdict->nvlink_count, verdict->nvlink_count == 1 ? "" : "s");
  }
  if (verdict->nvlink.why[0] != '\0') tool_append(text, sizeof(text), "; %s", verdict->nvlink.why);
  text_wrapped("NVLink:  ", 9, text);
  snprintf(text, sizeof(text), "all to all: %s", answer_word(&verdict->p2p));
  if (verdict->p2p.why[0] != '\0') tool_append(text, sizeof(text), "; %s", verdict->p2p.why);
  text_wrapped("P2P:     ", 9, text);
}

void text_verdict(const struct topo* topo, const struct decision* decision) {
  char headline[256];
  snprintf(headline, sizeof(headline), "%s. Path: %s.", tool_status_name(decision->status), decision->path);
  text_wrapped("Verdict: ", 9, headline);
  if (decision->why[0] != '\0') text_wrapped("         ", 9, decision->why);
  if (topo->ngpus > 1) answer_lines(&decision->verdict);
  source_line(topo);
}

/* ---------------------------------------------------------------- the matrix */

/* nvidia-smi's words for its cells. */
static const struct {
  const char *cell, *meaning;
} legend[] = {{"X", "Self"},
              {"NV#", "# NVLinks that the pair can use; a GPU's links are one budget for all its peers"},
              {"PIX", "At most one PCIe switch"},
              {"PXB", "Several PCIe switches, no host bridge"},
              {"PHB", "A PCIe host bridge (typically the CPU)"},
              {"NODE", "PCIe host bridges within a NUMA node"},
              {"SYS", "PCIe, and the link between NUMA nodes"},
              {"?", "Not observable"}};
#define LEGEND (sizeof(legend) / sizeof(legend[0]))

static void print_matrix(const struct topo* topo) {
  int used[LEGEND] = {0}, unknown_links = 0, affinity = 12;
  for (int i = 0; i < topo->ngpus; i++) {
    const char* cpus = topo->gpus[i].numa >= 0 ? topo->numas[topo->gpus[i].numa].cpus : NULL;
    if (cpus != NULL && (int)strlen(cpus) > affinity) affinity = (int)strlen(cpus);
  }
  printf("\n%-8s", "");
  for (int i = 0; i < topo->ngpus; i++) printf("GPU%-5d", i);
  printf("%-*s  NUMA Affinity\n", affinity, "CPU Affinity");
  for (int from = 0; from < topo->ngpus; from++) {
    const struct topo_gpu* gpu = &topo->gpus[from];
    const struct topo_numa* numa = gpu->numa >= 0 ? &topo->numas[gpu->numa] : NULL;
    printf("GPU%-5d", from);
    for (int to = 0; to < topo->ngpus; to++) {
      char cell[8];
      topo_pair_cell(topo, from, to, cell);
      printf(" %-7s", cell);
      for (size_t i = 0; i < LEGEND; i++) {
        used[i] |= strcmp(cell, legend[i].cell) == 0 || (i == 1 && strncmp(cell, "NV", 2) == 0);
      }
      unknown_links |= from != to && topo_pair(topo, from, to)->nvlink_count.state == TOPO_NOT_OBSERVABLE;
    }
    printf("%-*s  ", affinity, numa != NULL && numa->cpus != NULL ? numa->cpus : "?");
    if (numa != NULL && numa->id >= 0) {
      printf("%d\n", numa->id);
    } else {
      printf("?\n");
    }
  }
  printf("\nLegend:\n");
  for (size_t i = 0; i < LEGEND; i++) {
    if (used[i]) printf("  %-5s %s\n", legend[i].cell, legend[i].meaning);
  }
  if (unknown_links) {
    printf("NVLink: not observable %s; the cells above are PCIe paths, and there may be NVLinks beside them.\n",
           topo->origin == TOPO_FROM_LIVE ? "here" : "from this file");
  }
}

/* ---------------------------------------------------------------- the GPUs */

static void number_cell(const struct topo_fact* fact, const char* prefix, char* cell, size_t bytes) {
  if (fact->state == TOPO_NOT_OBSERVABLE) {
    snprintf(cell, bytes, "?");
  } else {
    snprintf(cell, bytes, "%s%d", prefix, fact->value);
  }
}

static void links_cell(const struct topo_gpu* gpu, char* cell, size_t bytes) {
  char speed[16];
  if (gpu->nvlink_active.state == TOPO_NOT_OBSERVABLE) {
    snprintf(cell, bytes, "?");
    return;
  }
  snprintf(cell, bytes, "%d", gpu->nvlink_active.value);
  if (gpu->nvlink_active.value > 0 && gpu->nvlink_speed.state == TOPO_OK) {
    text_gb_s(speed, sizeof(speed), gpu->nvlink_speed.value);
    tool_append(cell, bytes, " x %s GB/s raw", speed);
  }
  if (gpu->nvlink_active.value > 0 && gpu->nvlink_effective.state == TOPO_OK) {
    text_gb_s(speed, sizeof(speed), gpu->nvlink_effective.value);
    tool_append(cell, bytes, gpu->nvlink_speed.state == TOPO_OK ? ", %s effective" : " x %s GB/s effective", speed);
  }
  int inactive = gpu_inactive_links(gpu);
  if (inactive > 0) tool_append(cell, bytes, ", %d not active", inactive);
}

static void print_gpus(const struct topo* topo) {
  int names = 4, links = 7;
  char cell[96];
  for (int i = 0; i < topo->ngpus; i++) {
    links_cell(&topo->gpus[i], cell, sizeof(cell));
    if ((int)strlen(cell) > links) links = (int)strlen(cell);
    if ((int)strlen(topo->gpus[i].name) > names) names = (int)strlen(topo->gpus[i].name);
  }
  printf("\n%-7s %-13s %-5s %-5s %-6s %-*s  %-*s  %s\n", "GPU", "bus id", "CUDA", "NVML", "arch", names, "name", links,
         "NVLinks", "UUID");
  for (int i = 0; i < topo->ngpus; i++) {
    const struct topo_gpu* gpu = &topo->gpus[i];
    char cuda[16], nvml[16], sm[16];
    number_cell(&gpu->cuda, "", cuda, sizeof(cuda));
    number_cell(&gpu->nvml, "", nvml, sizeof(nvml));
    number_cell(&gpu->sm, "sm_", sm, sizeof(sm));
    links_cell(gpu, cell, sizeof(cell));
    printf("GPU%-4d %-13s %-5s %-5s %-6s %-*s  %-*s  %s\n", i, gpu->bus_id, cuda, nvml, sm, names,
           gpu->name[0] != '\0' ? gpu->name : "?", links, cell, gpu->uuid[0] != '\0' ? gpu->uuid : "?");
  }
}

/* Each kind of finding once, with how many more there are of it. */
static void print_findings(const struct topo* topo) {
  if (topo->nfindings > 0) printf("\nFound while reading:\n");
  for (int i = 0; i < topo->nfindings; i++) {
    const struct topo_finding* finding = &topo->findings[i];
    char head[64], text[640];
    int count;
    if (tool_finding(topo, finding->id, &count) != finding) continue;
    snprintf(head, sizeof(head), "  %-14s  %s: ", topo_state_name(finding->state), finding->id);
    snprintf(text, sizeof(text), "%.560s", finding->text);
    if (count > 1) tool_append(text, sizeof(text), " (and %d more like it)", count - 1);
    text_wrapped(head, 18, text);
  }
}

void text_overview(const struct topo* topo, const struct decision* decision) {
  text_verdict(topo, decision);
  if (topo->ngpus > 0) {
    print_matrix(topo);
    print_gpus(topo);
  }
  print_findings(topo);
}
