/* SPDX-License-Identifier: Apache-2.0
 *
 * hwloc_write.c: a machine that is not this one, as hwloc 2 XML: what the model knows of it, in the shape that hwloc
 * takes. NUMA nodes are packages, and what has no host bridge gets one of its own.
 */
#include "topo/hwloc_write.h"

#include <stdlib.h>
#include <string.h>

#include "topo/write_text.h"

struct writer {
  const struct topo* topo;
  FILE* stream;
  unsigned gp_index;
  char* nodes; /* the numbers of all of them */
};

static void start(struct writer* writer, int depth, const char* type) {
  fprintf(writer->stream, "%*s<object type=\"%s\" gp_index=\"%u\"", 2 * depth, "", type, ++writer->gp_index);
}

static void end(struct writer* writer, int depth) { fprintf(writer->stream, "%*s</object>\n", 2 * depth, ""); }

static void info(struct writer* writer, int depth, const char* name, const char* value) {
  if (!value[0]) return;
  fprintf(writer->stream, "%*s<info name=\"%s\"", 2 * depth, "", name);
  write_attribute(writer->stream, "value", value);
  fputs("/>\n", writer->stream);
}

static void info_number(struct writer* writer, int depth, const char* name, int value) {
  char text[16];
  snprintf(text, sizeof text, "%d", value);
  if (value >= 0) info(writer, depth, name, text);
}

/* Every node has a number here; those whose own is not known get what is free above the others. */
static int number_of(const struct topo* topo, int node) {
  int highest = -1;
  if (topo->nnumas && topo->numas[node].id >= 0) return topo->numas[node].id;
  for (int i = 0; i < topo->nnumas; ++i) highest = topo->numas[i].id > highest ? topo->numas[i].id : highest;
  return highest + 1 + node;
}

/* cpus NULL: none. node -1: all. */
static void sets(struct writer* writer, const char* cpus, int node, int is_root) {
  static const char* const prefixes[] = {"", "complete_", "allowed_"};
  char number[16];
  if (node >= 0) snprintf(number, sizeof number, "%d", number_of(writer->topo, node));
  for (int i = 0; i < (is_root ? 3 : 2); ++i) {
    fprintf(writer->stream, " %scpuset=\"", prefixes[i]);
    if (!cpus || !write_set(writer->stream, cpus, "0x")) fputs("0x0", writer->stream);
    fprintf(writer->stream, "\" %snodeset=\"", prefixes[i]);
    write_set(writer->stream, node < 0 ? writer->nodes : number, "0x");
    fputs("\"", writer->stream);
  }
}

/* ---------------------------------------------------------------- devices */

static double gigabytes(const struct topo_device* device) {
  if (device->link_speed.state != TOPO_OK || device->link_width.state != TOPO_OK) return 0;
  const int encoded = device->link_speed.value >= 8000; /* 128 of 130 bits, before 8 of 10 */
  return device->link_speed.value / 8000.0 * device->link_width.value * (encoded ? 128.0 / 130 : 0.8);
}

static void write_osdevs(struct writer* writer, int at, int depth) {
  const struct topo* topo = writer->topo;
  const struct topo_device* device = &topo->devices[at];
  if (device->kind == TOPO_DEVICE_NIC && topo->nics[device->index].name[0]) {
    const char* name = topo->nics[device->index].name;
    start(writer, depth, "OSDev");
    write_attribute(writer->stream, "name", name);
    fprintf(writer->stream, " osdev_type=\"%d\"/>\n", strncmp(name, "mlx", 3) == 0 ? 3 : 2);
  }
  if (device->kind != TOPO_DEVICE_GPU || device->index < 0) return;
  const struct topo_gpu* gpu = &topo->gpus[device->index];
  if (gpu->nvml.state == TOPO_OK) {
    start(writer, depth, "OSDev");
    fprintf(writer->stream, " name=\"nvml%d\" subtype=\"NVML\" osdev_type=\"1\">\n", gpu->nvml.value);
    info(writer, depth + 1, "Backend", "NVML");
    info(writer, depth + 1, "GPUVendor", "NVIDIA Corporation");
    info(writer, depth + 1, "GPUModel", gpu->name);
    info(writer, depth + 1, "NVIDIASerial", gpu->serial);
    info(writer, depth + 1, "NVIDIAUUID", gpu->uuid);
    end(writer, depth);
  }
  if (gpu->cuda.state == TOPO_OK) {
    start(writer, depth, "OSDev");
    fprintf(writer->stream, " name=\"cuda%d\" subtype=\"CUDA\" osdev_type=\"5\">\n", gpu->cuda.value);
    info(writer, depth + 1, "Backend", "CUDA");
    info(writer, depth + 1, "GPUModel", gpu->name);
    end(writer, depth);
  }
}

/* By its place in the tree alone what has no node would be at the only one, and what has one at none where libhwloc
 * counts a node without processors as everybody's. */
static void info_node(struct writer* writer, int numa, int depth) {
  if (numa >= 0) {
    info_number(writer, depth, TOPO_NODE_INFO, number_of(writer->topo, numa));
  } else {
    info(writer, depth, TOPO_NODE_INFO, "unknown");
  }
}

/* `levels`: bridges above it. */
static void write_device(struct writer* writer, int at, int depth, int levels) {
  const struct topo* topo = writer->topo;
  const struct topo_device* device = &topo->devices[at];
  int bridge = device->kind == TOPO_DEVICE_BRIDGE;
  for (int i = at + 1; i < topo->ndevices && !bridge; ++i) bridge = topo->devices[i].parent == at;
  const unsigned domain = (unsigned)strtoul(device->bus_id, NULL, 16);
  const uint32_t class_id = device->kind == TOPO_DEVICE_OTHER ? device->class_id : class_of(device);
  if (device->bus_id[0] == '\0') {
    start(writer, depth, "Bridge");
    fprintf(writer->stream, " bridge_type=\"0-1\" depth=\"%d\" bridge_pci=\"0000:[00-ff]\">\n", levels);
    info_node(writer, device->numa, depth + 1);
  } else {
    /* What NVLink and the PCI class call a GPU is one, whoever made the file without its vendor. */
    const int vendor = device->vendor || device->kind != TOPO_DEVICE_GPU ? device->vendor : 0x10de;
    start(writer, depth, bridge ? "Bridge" : "PCIDev");
    if (bridge) {
      fprintf(writer->stream, " bridge_type=\"1-1\" depth=\"%d\" bridge_pci=\"%04x:[00-ff]\"", levels, domain);
    }
    fprintf(writer->stream, " pci_busid=\"%s\" pci_type=\"%04x [%04x:%04x] [%04x:%04x] 00\" pci_link_speed=\"%f\">\n",
            device->bus_id, class_id >> 8, vendor, device->device, device->subsystem_vendor,
            device->subsystem_device, gigabytes(device));
  }
  if (!bridge) write_osdevs(writer, at, depth + 1);
  for (int i = at + 1; i < topo->ndevices; ++i) {
    if (topo->devices[i].parent == at) write_device(writer, i, depth + 1, levels + 1);
  }
  end(writer, depth);
}

static void host_bridge_start(struct writer* writer, int depth, const char* bus_id, int numa) {
  start(writer, depth, "Bridge");
  fprintf(writer->stream, " bridge_type=\"0-1\" depth=\"0\" bridge_pci=\"%04lx:[00-ff]\">\n",
          strtoul(bus_id, NULL, 16));
  info_node(writer, numa, depth + 1);
}

static void write_devices(struct writer* writer, int numa, int depth) {
  const struct topo* topo = writer->topo;
  for (int i = 0; i < topo->ndevices; ++i) {
    const struct topo_device* device = &topo->devices[i];
    if (device->parent >= 0 || device->numa != numa) continue;
    const int bare = device->bus_id[0] != '\0';
    if (bare) host_bridge_start(writer, depth, device->bus_id, numa);
    write_device(writer, i, depth + bare, bare);
    if (bare) end(writer, depth);
  }
  for (int g = 0; g < topo->ngpus; ++g) {
    const struct topo_gpu* gpu = &topo->gpus[g];
    if (gpu->device >= 0 || gpu->numa != numa) continue;
    host_bridge_start(writer, depth, gpu->bus_id, numa);
    start(writer, depth + 1, "PCIDev");
    fprintf(writer->stream, " pci_busid=\"%s\" pci_type=\"0302 [10de:0000] [0000:0000] 00\"/>\n", gpu->bus_id);
    end(writer, depth);
  }
}

/* ---------------------------------------------------------------- processors and memory */

struct pu_writer {
  struct writer* writer;
  int node, depth;
};

static void write_pu(void* opaque, int number) {
  const struct pu_writer* to = opaque;
  char cpu[16];
  snprintf(cpu, sizeof cpu, "%d", number);
  start(to->writer, to->depth, "PU");
  fprintf(to->writer->stream, " os_index=\"%d\"", number);
  sets(to->writer, cpu, to->node, 0);
  fputs("/>\n", to->writer->stream);
}

static int has_cpus(const struct topo_numa* numa) { return numa->cpus && numa->cpus[0]; }

/* `node` of a machine that has none: the one that hwloc wants. */
static void write_memory(struct writer* writer, int node, const char* cpus, int depth) {
  const struct topo* topo = writer->topo;
  const struct topo_numa* numa = topo->nnumas ? &topo->numas[node] : NULL;
  const int unknown = !numa || !has_cpus(numa); /* libhwloc gives it all that there are */
  start(writer, depth, "NUMANode");
  fprintf(writer->stream, " os_index=\"%d\" local_memory=\"0\"", number_of(topo, node));
  sets(writer, cpus, node, 0);
  fputs(">\n", writer->stream);
  if (!numa || numa->id < 0) {
    info(writer, depth + 1, TOPO_UNKNOWN_INFO, unknown ? "number processors" : "number");
  } else if (unknown) {
    info(writer, depth + 1, TOPO_UNKNOWN_INFO, "processors");
  }
  end(writer, depth);
}

/* A node without processors is memory alone, which hwloc hangs below the machine. */
static void write_package(struct writer* writer, int node) {
  const struct topo_numa* numa = &writer->topo->numas[node];
  struct pu_writer pus = {writer, node, 3};
  if (!has_cpus(numa)) return;
  start(writer, 2, "Package");
  fprintf(writer->stream, " os_index=\"%d\"", node);
  sets(writer, numa->cpus, node, 0);
  fputs(">\n", writer->stream);
  info(writer, 3, "CPUVendor", numa->vendor);
  info_number(writer, 3, "CPUFamilyNumber", numa->family);
  info_number(writer, 3, "CPUModelNumber", numa->model);
  write_memory(writer, node, numa->cpus, 3);
  list_for_each(numa->cpus, write_pu, &pus);
  write_devices(writer, node, 3);
  end(writer, 2);
}

static char* all_cpus(const struct topo* topo) {
  char* text = NULL;
  size_t bytes = 0;
  FILE* stream = open_memstream(&text, &bytes);
  int any = 0;
  if (!stream) return NULL;
  for (int i = 0; i < topo->nnumas; ++i) {
    if (has_cpus(&topo->numas[i])) fprintf(stream, "%s%s", any++ ? "," : "", topo->numas[i].cpus);
  }
  if (!any) fputs("0", stream); /* hwloc takes no machine without a processor */
  fclose(stream);
  return text;
}

static char* all_nodes(const struct topo* topo) {
  char* text = NULL;
  size_t bytes = 0;
  FILE* stream = open_memstream(&text, &bytes);
  if (!stream) return NULL;
  fprintf(stream, "%d", number_of(topo, 0));
  for (int i = 1; i < topo->nnumas; ++i) fprintf(stream, ",%d", number_of(topo, i));
  fclose(stream);
  return text;
}

static void write_machine(struct writer* writer, const char* cpus) {
  const struct topo* topo = writer->topo;
  struct pu_writer only = {writer, -1, 2};
  int any = 0;
  fputs("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<!DOCTYPE topology SYSTEM \"hwloc2.dtd\">\n"
        "<topology version=\"2.0\">\n",
        writer->stream);
  start(writer, 1, "Machine");
  fputs(" os_index=\"0\"", writer->stream);
  sets(writer, cpus, -1, 1);
  fputs(">\n", writer->stream);
  info(writer, 2, "HostName", topo->host);
  if (topo->nnumas) info(writer, 2, "Architecture", topo->numas[0].arch);
  for (int i = 0; i < topo->nnumas; ++i) any |= has_cpus(&topo->numas[i]);
  for (int i = 0; i < topo->nnumas; ++i) {
    if (!has_cpus(&topo->numas[i])) write_memory(writer, i, any ? NULL : cpus, 2);
  }
  if (!topo->nnumas) write_memory(writer, 0, cpus, 2);
  for (int i = 0; i < topo->nnumas; ++i) write_package(writer, i);
  if (!any) write_pu(&only, 0);
  for (int i = 0; i < topo->nnumas; ++i) {
    if (!has_cpus(&topo->numas[i])) write_devices(writer, i, 2);
  }
  write_devices(writer, -1, 2);
  end(writer, 1);
  fputs("</topology>\n", writer->stream);
}

int hwloc_write_model(const struct topo* topo, char** text, size_t* bytes, struct topo_error* error) {
  struct writer writer = {.topo = topo, .nodes = all_nodes(topo)};
  char* cpus = all_cpus(topo);
  int result = -1;
  if (!cpus || !writer.nodes) {
    topo_fail(error, "out of memory for a topology's text");
  } else if ((writer.stream = begin_text(text, bytes, error))) {
    write_machine(&writer, cpus);
    result = end_text(writer.stream, text, error);
  }
  free(cpus);
  free(writer.nodes);
  return result;
}
