/* SPDX-License-Identifier: Apache-2.0
 *
 * draw.c: the picture of a machine; see draw.h.
 *
 * Of the PCI tree only those bridges are drawn at which it branches on the way to GPUs and network cards.
 */
#include "plugin/tools/topo/draw.h"

#include <stdlib.h>
#include <string.h>

#include "plugin/tools/topo/odd.h"
#include "plugin/tools/topo/text.h"

/* From here on NVSwitches that are linked to each other are drawn as one: the lines would hide everything. */
#define MOST_SWITCH_LINES 256

static const char nvlink_color[] = "#4c9a00", pcie_color[] = "#8a8a8a", odd_color[] = "#d00000";

struct drawing {
  const struct topo* topo;
  FILE* out;
  const unsigned char* odd; /* of each GPU */
  const int* branches;      /* of each device: how many of the subtrees below it have a GPU or a network card */
  int grouped;              /* switches are drawn by group */
};

/* A text inside of quotes; at its end a line ends. */
static void write_escaped(FILE* out, const char* text) {
  for (; *text != '\0'; text++) {
    if (*text == '"' || *text == '\\') fputc('\\', out);
    if ((unsigned char)*text >= 0x20) fputc(*text, out);
  }
}

/* ---------------------------------------------------------------- nodes */

/* " (4+5+5+4)": lines to switches cross too much to have their numbers beside them. */
static void link_counts(const struct topo_gpu* gpu, char* text, size_t bytes) {
  int listed = 0;
  for (int i = 0; i < gpu->nlinks; i++) {
    if (gpu->links[i].target_switch < 0 || gpu->links[i].count == 0) continue;
    tool_append(text, bytes, "%s%d", listed++ == 0 ? " (" : "+", gpu->links[i].count);
  }
  if (listed > 0) tool_append(text, bytes, ")");
}

static void draw_gpu(const struct drawing* drawing, int index) {
  const struct topo_gpu* gpu = &drawing->topo->gpus[index];
  const unsigned odd = drawing->odd[index];
  char links[512] = "NVLinks: ?";
  if (gpu->nvlink_active.state == TOPO_OK) snprintf(links, sizeof(links), "%d NVLinks", gpu->nvlink_active.value);
  link_counts(gpu, links, sizeof(links));
  if (gpu_inactive_links(gpu) > 0) tool_append(links, sizeof(links), ", %d down", gpu_inactive_links(gpu));
  fprintf(drawing->out, "    gpu%d [label=\"GPU%d\\n", index, index);
  if (gpu->name[0] != '\0') {
    write_escaped(drawing->out, gpu->name);
    fprintf(drawing->out, "\\n");
  }
  fprintf(drawing->out, "%s\\n%s", gpu->bus_id, links);
  if (odd & ODD_LINK_COUNT) fprintf(drawing->out, "\\nnot as many as the others");
  if (odd & (ODD_LINK_TARGETS | ODD_LINK_LOST)) fprintf(drawing->out, "\\nend elsewhere than the others'");
  fprintf(drawing->out, "\", fillcolor=\"%s\"%s];\n",
          odd != 0                              ? "#ffd0d0"
          : gpu->nvlink_active.state == TOPO_OK ? "#e6f4d7"
                                                : "#f0f0f0",
          odd != 0 ? ", color=\"#d00000\", penwidth=3" : "");
}

static void draw_numa(const struct drawing* drawing, int index) {
  const struct topo* topo = drawing->topo;
  const struct topo_numa* numa = &topo->numas[index];
  fprintf(drawing->out, "  subgraph cluster_numa%d {\n    label=\"", index);
  if (numa->id >= 0) {
    fprintf(drawing->out, "NUMA node %d", numa->id);
  } else {
    fprintf(drawing->out, "NUMA node: ?");
  }
  fprintf(drawing->out, "\"; style=rounded; color=\"#b0b0b0\";\n    cpu%d [label=\"CPU", index);
  if (numa->cpus != NULL) fprintf(drawing->out, "s %s", numa->cpus);
  fprintf(drawing->out, "\", fillcolor=\"#dfe8f5\"];\n");
  for (int d = 0; d < topo->ndevices; d++) {
    const struct topo_device* device = &topo->devices[d];
    if (device->numa != index) continue;
    if (device->kind == TOPO_DEVICE_BRIDGE && drawing->branches[d] > 1 && device->bus_id[0] != '\0') {
      fprintf(drawing->out, "    dev%d [label=\"PCIe\\n%s\", fillcolor=\"#eeeeee\", fontsize=9];\n", d, device->bus_id);
    } else if (device->kind == TOPO_DEVICE_NIC) {
      const char* name = device->index >= 0 ? topo->nics[device->index].name : "";
      fprintf(drawing->out, "    dev%d [label=\"NIC ", d);
      write_escaped(drawing->out, name);
      fprintf(drawing->out, "\\n%s\", fillcolor=\"#fdf3d0\", fontsize=9];\n", device->bus_id);
    }
  }
  for (int g = 0; g < topo->ngpus; g++) {
    if (topo->gpus[g].numa == index) draw_gpu(drawing, g);
  }
  fprintf(drawing->out, "  }\n");
}

/* Switches that reach each other stand in one frame, or are one node. */
static void draw_switches(const struct drawing* drawing) {
  const struct topo* topo = drawing->topo;
  for (int group = 0; group < topo->nswitches; group++) {
    int members = 0;
    for (int s = 0; s < topo->nswitches; s++) members += topo->switches[s].group == group;
    if (members == 0) continue;
    if (drawing->grouped) {
      fprintf(drawing->out, "  sw%d [label=\"%d NVSwitches\", shape=hexagon, fillcolor=\"#cdebb0\"];\n", group,
              members);
      continue;
    }
    fprintf(
        drawing->out,
        "  subgraph cluster_switches%d {\n    label=\"NVSwitch fabric\"; labelloc=b; style=rounded; color=\"%s\";\n",
        group, nvlink_color);
    for (int s = 0; s < topo->nswitches; s++) {
      if (topo->switches[s].group != group) continue;
      fprintf(drawing->out, "    sw%d [label=\"NVSwitch\\n%s\", shape=hexagon, fillcolor=\"#cdebb0\", fontsize=9];\n",
              s, topo->switches[s].bus_id);
    }
    fprintf(drawing->out, "  }\n");
  }
}

/* ---------------------------------------------------------------- lines */

/* attributes: more of them, each after ", ". */
static void draw_line(const struct drawing* drawing, const char* from, const char* to, int count, int odd,
                      const char* attributes) {
  fprintf(drawing->out, "  %s -- %s [color=\"%s\", penwidth=%.1f%s];\n", from, to, odd ? odd_color : nvlink_color,
          count > 24 ? 6.0 : 0.8 + 0.2 * count, attributes);
}

/* One with its number, between ends that stand at the same height if `level`. */
static void draw_numbered(const struct drawing* drawing, const char* from, const char* to, int count, int odd,
                          int level) {
  char attributes[96];
  snprintf(attributes, sizeof(attributes), ", label=\"%d\", fontcolor=\"%s\"%s", count, odd ? odd_color : "black",
           level ? ", constraint=false" : "");
  draw_line(drawing, from, to, count, odd, attributes);
}

/* Links of one GPU. Between two GPUs they are drawn by the first one, which is what both say unless they contradict
 * each other: then the larger number is drawn, in red. */
static void draw_links(const struct drawing* drawing, int from, int* hidden) {
  const struct topo* topo = drawing->topo;
  const struct topo_gpu* gpu = &topo->gpus[from];
  const int odd = drawing->odd[from] != 0;
  char us[32], them[64];
  snprintf(us, sizeof(us), "gpu%d", from);
  for (int s = 0; s < topo->nswitches; s++) {
    int count = 0;
    if (drawing->grouped && topo->switches[s].group != s) continue;
    for (int i = 0; i < gpu->nlinks; i++) {
      int target = gpu->links[i].target_switch;
      if (target < 0) continue;
      count += (drawing->grouped ? topo->switches[target].group : target) == s ? gpu->links[i].count : 0;
    }
    snprintf(them, sizeof(them), "sw%d", s);
    if (count > 0) draw_line(drawing, us, them, count, odd, ", tailport=s, headport=n");
  }
  for (int i = 0; i < gpu->nlinks; i++) {
    const struct topo_nvlink* link = &gpu->links[i];
    if (link->count == 0 || link->target_switch >= 0 || link->target_gpu >= 0) continue;
    if (link->remote == TOPO_REMOTE_CPU && gpu->numa >= 0) {
      snprintf(them, sizeof(them), "cpu%d", gpu->numa);
    } else if (link->target[0] == '\0') {
      snprintf(them, sizeof(them), "hidden");
      *hidden = 1;
    } else {
      snprintf(them, sizeof(them), "\"not there: %s\"", link->target);
    }
    draw_numbered(drawing, us, them, link->count, odd, 0);
  }
  for (int to = from + 1; to < topo->ngpus; to++) {
    int there = 0, back = 0;
    for (int i = 0; i < gpu->nlinks; i++) there += gpu->links[i].target_gpu == to ? gpu->links[i].count : 0;
    for (int i = 0; i < topo->gpus[to].nlinks; i++) {
      back += topo->gpus[to].links[i].target_gpu == from ? topo->gpus[to].links[i].count : 0;
    }
    snprintf(them, sizeof(them), "gpu%d", to);
    if (there + back > 0) draw_numbered(drawing, us, them, there > back ? there : back, odd || there != back, 1);
  }
}

/* From a GPU or another device up to what is drawn above it. */
static void draw_pcie(const struct drawing* drawing, int device, const char* name) {
  const struct topo* topo = drawing->topo;
  const struct topo_device* of = &topo->devices[device];
  int up = of->parent;
  while (up >= 0 && (drawing->branches[up] < 2 || topo->devices[up].bus_id[0] == '\0')) up = topo->devices[up].parent;
  if (up < 0 && of->numa < 0) return;
  fprintf(drawing->out, up >= 0 ? "  dev%d -- %s" : "  cpu%d -- %s", up >= 0 ? up : of->numa, name);
  fprintf(drawing->out, " [color=\"%s\"", pcie_color);
  if (of->link_width.state == TOPO_OK && of->link_width.value > 0) {
    fprintf(drawing->out, ", label=\"x%d\", fontcolor=\"%s\"", of->link_width.value, pcie_color);
  }
  fprintf(drawing->out, "];\n");
}

static void draw_tree(const struct drawing* drawing) {
  const struct topo* topo = drawing->topo;
  char name[32];
  for (int d = 0; d < topo->ndevices; d++) {
    const struct topo_device* device = &topo->devices[d];
    int shown = device->kind == TOPO_DEVICE_NIC ||
                (device->kind == TOPO_DEVICE_BRIDGE && drawing->branches[d] > 1 && device->bus_id[0] != '\0');
    snprintf(name, sizeof(name), "dev%d", d);
    if (device->kind == TOPO_DEVICE_GPU && device->index >= 0) snprintf(name, sizeof(name), "gpu%d", device->index);
    if (shown || (device->kind == TOPO_DEVICE_GPU && device->index >= 0)) draw_pcie(drawing, d, name);
  }
}

/* ---------------------------------------------------------------- the whole */

/* Of each device, how many of its children lead to a GPU or a network card. To be freed; NULL: out of memory. */
static int* count_branches(const struct topo* topo) {
  int* branches = calloc((size_t)topo->ndevices + 1, sizeof(*branches));
  /* Parents stand before their children: backwards, a device is complete before it counts for its parent. */
  for (int d = topo->ndevices - 1; branches != NULL && d >= 0; d--) {
    const struct topo_device* device = &topo->devices[d];
    int leads = branches[d] > 0 || device->kind == TOPO_DEVICE_GPU || device->kind == TOPO_DEVICE_NIC;
    if (leads && device->parent >= 0) branches[device->parent]++;
  }
  return branches;
}

static void draw_all(const struct drawing* drawing, const struct decision* decision) {
  const struct topo* topo = drawing->topo;
  int hidden = 0;
  fprintf(drawing->out,
          "graph arfusion {\n"
          "  graph [fontname=\"Helvetica\", fontsize=12, splines=%s, ordering=out, nodesep=0.3, ranksep=%.1f, "
          "labelloc=t, label=\"%s: ",
          topo->nswitches > 0 ? "line" : "spline", topo->nswitches > 0 ? 1.1 : 0.6, tool_status_name(decision->status));
  write_escaped(drawing->out, decision->path);
  fprintf(drawing->out,
          "\\ngreen: NVLink, thicker with more links; grey: PCIe and its lanes; red: not like the others\"];\n"
          "  node [fontname=\"Helvetica\", fontsize=10, shape=box, style=filled];\n"
          "  edge [fontname=\"Helvetica\", fontsize=9];\n");
  for (int i = 0; i < topo->nnumas; i++) draw_numa(drawing, i);
  for (int g = 0; g < topo->ngpus; g++) {
    if (topo->gpus[g].numa < 0) draw_gpu(drawing, g);
  }
  draw_switches(drawing);
  draw_tree(drawing);
  for (int g = 0; g < topo->ngpus; g++) draw_links(drawing, g, &hidden);
  if (hidden) {
    fprintf(drawing->out,
            "  hidden [label=\"NVSwitches that\\nare not shown\", shape=hexagon, style=\"filled,dashed\", "
            "fillcolor=\"#f4f4f4\"];\n");
  }
  fprintf(drawing->out, "}\n");
}

int draw_dot(const struct topo* topo, const struct decision* decision, FILE* out) {
  struct drawing drawing = {.topo = topo, .out = out};
  unsigned char* odd = odd_find(topo, NULL);
  int* branches = count_branches(topo);
  int lines = 0, result = -1;
  for (int g = 0; g < topo->ngpus; g++) lines += topo->gpus[g].nlinks;
  drawing.odd = odd;
  drawing.branches = branches;
  drawing.grouped = topo->nswitches > 1 && lines > MOST_SWITCH_LINES;
  if (odd != NULL && branches != NULL) {
    draw_all(&drawing, decision);
    result = 0;
  }
  free(odd);
  free(branches);
  return result;
}
