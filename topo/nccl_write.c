/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_write.c: the model as NCCL topology XML (NCCL_TOPO_FILE). A <gpu> is written only where its NVLinks are
 * known, for one without <nvlink> says that there are none.
 */
#include <stdlib.h>
#include <string.h>

#include "topo/write_text.h"

struct writer {
  const struct topo* topo;
  FILE* stream;
  int* parent; /* of each device in the file; -1: the CPU */
  char* kept;  /* each device: whether it is written */
};

/* In NCCL's files one bridge is a whole PCIe switch: its upstream port. The port in between and root ports are left
 * out. */
static int parent_in_file(const struct topo* topo, int device) {
  const int parent = topo->devices[device].parent;
  if (topo->origin == TOPO_FROM_NCCL_XML || parent < 0) return parent;
  const int above = topo->devices[parent].parent;
  return above >= 0 && topo->devices[above].bus_id[0] ? above : -1;
}

static void choose(struct writer* writer) {
  const struct topo* topo = writer->topo;
  for (int i = 0; i < topo->ndevices; ++i) writer->parent[i] = parent_in_file(topo, i);
  for (int i = 0; i < topo->ndevices; ++i) {
    const struct topo_device* device = &topo->devices[i];
    if ((device->kind != TOPO_DEVICE_GPU && device->kind != TOPO_DEVICE_NIC) || device->index < 0) continue;
    for (int at = i; at >= 0 && !writer->kept[at]; at = writer->parent[at]) writer->kept[at] = 1;
  }
}

static void indent(struct writer* writer, int depth) { fprintf(writer->stream, "%*s", 2 * depth, ""); }

static void write_number(struct writer* writer, const char* name, struct topo_fact fact) {
  if (fact.state != TOPO_NOT_OBSERVABLE) fprintf(writer->stream, " %s=\"%d\"", name, fact.value);
}

static void write_nvlink(struct writer* writer, const struct topo_nvlink* link, int depth) {
  const int hidden = link->target[0] == '\0';
  const char* class_id = link->remote == TOPO_REMOTE_CPU   ? "0x068001"
                         : link->remote == TOPO_REMOTE_GPU ? "0x030200"
                         : link->remote == TOPO_REMOTE_SWITCH || hidden
                             ? "0x068000" /* as NCCL takes what it cannot see */
                             : NULL;
  if (link->count < 1) return;
  indent(writer, depth);
  fprintf(writer->stream, "<nvlink target=\"%s\" count=\"%d\"", hidden ? "fffffff:ff:ff.0" : link->target, link->count);
  write_attribute(writer->stream, "tclass", class_id);
  fputs("/>\n", writer->stream);
}

static void write_gpu(struct writer* writer, int g, int depth) {
  const struct topo_gpu* gpu = &writer->topo->gpus[g];
  if (gpu->nvlink_active.state == TOPO_NOT_OBSERVABLE) return;
  indent(writer, depth);
  fputs("<gpu", writer->stream);
  write_number(writer, "dev", gpu->nvml);
  write_number(writer, "sm", gpu->sm);
  write_number(writer, "rank", gpu->rank);
  write_number(writer, "gdr", gpu->gdr);
  fputs(gpu->nlinks ? ">\n" : "/>\n", writer->stream);
  for (int i = 0; i < gpu->nlinks; ++i) write_nvlink(writer, &gpu->links[i], depth + 1);
  if (!gpu->nlinks) return;
  indent(writer, depth);
  fputs("</gpu>\n", writer->stream);
}

static void write_nic(struct writer* writer, int device, int depth) {
  const struct topo* topo = writer->topo;
  for (int i = 0; i < topo->nnics; ++i) {
    const struct topo_nic* nic = &topo->nics[i];
    if (nic->device != device || !nic->name[0]) continue;
    indent(writer, depth);
    fputs("<nic>\n", writer->stream);
    indent(writer, depth + 1);
    fputs("<net", writer->stream);
    write_attribute(writer->stream, "name", nic->name);
    write_number(writer, "speed", nic->speed);
    write_number(writer, "gdr", nic->gdr);
    fputs("/>\n", writer->stream);
    indent(writer, depth);
    fputs("</nic>\n", writer->stream);
  }
}

/* What is not observable of the link is empty, as NCCL itself writes it in virtual machines. */
static void write_pci_start(struct writer* writer, const char* bus_id, const struct topo_device* device, int depth) {
  indent(writer, depth);
  fprintf(writer->stream, "<pci busid=\"%s\" class=\"0x%06x\"", bus_id, class_of(device));
  if (device->vendor) {
    fprintf(writer->stream,
            " vendor=\"0x%04x\" device=\"0x%04x\" subsystem_vendor=\"0x%04x\" subsystem_device=\"0x%04x\"",
            device->vendor, device->device, device->subsystem_vendor, device->subsystem_device);
  }
  if (device->link_speed.state == TOPO_OK) {
    fprintf(writer->stream, " link_speed=\"%.1f GT/s PCIe\"", device->link_speed.value / 1000.0);
  } else {
    fputs(" link_speed=\"\"", writer->stream);
  }
  if (device->link_width.state == TOPO_OK) {
    fprintf(writer->stream, " link_width=\"%d\">\n", device->link_width.value);
  } else {
    fputs(" link_width=\"\">\n", writer->stream);
  }
}

static void write_pci(struct writer* writer, int at, int depth) {
  const struct topo* topo = writer->topo;
  const struct topo_device* device = &topo->devices[at];
  write_pci_start(writer, device->bus_id, device, depth);
  if (device->kind == TOPO_DEVICE_GPU && device->index >= 0) write_gpu(writer, device->index, depth + 1);
  if (device->kind == TOPO_DEVICE_NIC) write_nic(writer, at, depth + 1);
  for (int i = at + 1; i < topo->ndevices; ++i) { /* parents stand before their children */
    if (writer->parent[i] == at && writer->kept[i]) write_pci(writer, i, depth + 1);
  }
  indent(writer, depth);
  fputs("</pci>\n", writer->stream);
}

/* Whether it stands at the top there. */
static int is_at(const struct writer* writer, int device, int numa) {
  return writer->kept[device] && writer->parent[device] < 0 && writer->topo->devices[device].numa == numa;
}
static int is_unseen_at(const struct topo* topo, int gpu, int numa) {
  return topo->gpus[gpu].device < 0 && topo->gpus[gpu].numa == numa;
}

static int anything_nowhere(const struct writer* writer) {
  int any = 0;
  for (int i = 0; i < writer->topo->ndevices; ++i) any |= is_at(writer, i, -1);
  for (int g = 0; g < writer->topo->ngpus; ++g) any |= is_unseen_at(writer->topo, g, -1);
  return any;
}

/* `numa` -1: what is at no known node. NCCL's own form for that is a <cpu> of number -1; what is left away in it NCCL
 * looks up on the machine that reads it, where a node of that number gives no processors. */
static void write_cpu(struct writer* writer, int numa) {
  const struct topo* topo = writer->topo;
  FILE* stream = writer->stream;
  fprintf(stream, "  <cpu numaid=\"%d\"", numa >= 0 ? topo->numas[numa].id : -1);
  if (numa >= 0) {
    const struct topo_numa* node = &topo->numas[numa];
    if (node->cpus && node->cpus[0]) {
      fputs(" affinity=\"", stream);
      write_set(stream, node->cpus, "");
      fputs("\"", stream);
    }
    write_attribute(stream, "arch", node->arch);
    write_attribute(stream, "vendor", node->vendor);
    if (node->family >= 0) fprintf(stream, " familyid=\"%d\"", node->family);
    if (node->model >= 0) fprintf(stream, " modelid=\"%d\"", node->model);
  }
  fputs(">\n", stream);
  for (int i = 0; i < topo->ndevices; ++i) {
    if (is_at(writer, i, numa)) write_pci(writer, i, 2);
  }
  for (int g = 0; g < topo->ngpus; ++g) {
    const struct topo_device unseen = {.kind = TOPO_DEVICE_GPU};
    if (!is_unseen_at(topo, g, numa)) continue;
    write_pci_start(writer, topo->gpus[g].bus_id, &unseen, 2);
    write_gpu(writer, g, 3);
    fputs("    </pci>\n", stream);
  }
  fputs("  </cpu>\n", stream);
}

int topo_write_nccl_xml(const struct topo* topo, char** text, size_t* bytes, struct topo_error* error) {
  char* written = NULL;
  size_t length = 0;
  const size_t n = (size_t)topo->ndevices + 1;
  struct writer writer = {.topo = topo, .parent = calloc(n, sizeof(int)), .kept = calloc(n, 1)};
  int result = -1;
  if (!writer.parent || !writer.kept) {
    topo_fail(error, "out of memory for a topology's text");
  } else if ((writer.stream = begin_text(&written, &length, error))) {
    choose(&writer);
    fputs("<system version=\"1\">\n", writer.stream);
    for (int i = 0; i < topo->nnumas; ++i) write_cpu(&writer, i);
    if (!topo->nnumas || anything_nowhere(&writer)) write_cpu(&writer, -1);
    fputs("</system>\n", writer.stream);
    result = end_text(writer.stream, &written, error);
  }
  free(writer.parent);
  free(writer.kept);
  if (result) return -1;
  *text = written;
  *bytes = length;
  return 0;
}
