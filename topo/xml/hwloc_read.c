/* SPDX-License-Identifier: Apache-2.0
 *
 * hwloc_read.c: hwloc's XML, of all its versions: NUMA nodes, the PCI tree, what OS devices say of GPUs, and the
 * matrix of NVLinks. Read without hwloc, so that no file can bring that down and errors have a line.
 */
#include "topo/xml/hwloc_read.h"

#include <stdlib.h>
#include <string.h>

enum type { TYPE_OTHER, TYPE_MACHINE, TYPE_CPU, TYPE_NUMA, TYPE_PCI, TYPE_OSDEV, TYPE_NOT_OBJECT };
enum { CLASS_BRIDGE = 0x0604, CLASS_SWITCH = 0x0680, VENDOR_NVIDIA = 0x10de, MOST_NAMED = 1 << 16 };

struct hwloc_reader {
  struct xml_reader xml; /* first */
  struct hwloc_matrix matrix;
  struct hwloc_named* named;
  int nnamed, named_capacity;
  int matrix_text; /* in <indexes>: 1, in <u64values>: 2 */
  int links_known; /* our own infos name the links: the matrix is not needed */
  char arch[24], vendor[24];
  int family, model;
  char unnumbered[TOPO_MOST_NUMAS]; /* nodes whose number was made up */
  struct {
    enum type type;
    int device; /* the PCI device it is or is in; -1 */
    int numa;   /* of its place: number of the system; -1 */
    char osdev[32];
  } at[TOPO_MOST_XML_DEPTH + 1];
};

static void named_add(struct hwloc_reader* reader, const char** attributes, int kind, int index) {
  int64_t gp_index;
  if (xml_integer(&reader->xml, attributes, "gp_index", 0, INT64_MAX, &gp_index) || reader->nnamed >= MOST_NAMED)
    return;
  if (reader->nnamed == reader->named_capacity) {
    const int capacity = reader->named_capacity * 2 + 64;
    struct hwloc_named* more = realloc(reader->named, (size_t)capacity * sizeof *more);
    if (!more) {
      reader->xml.builder.out_of_memory = 1;
      return;
    }
    reader->named = more;
    reader->named_capacity = capacity;
  }
  reader->named[reader->nnamed++] = (struct hwloc_named){.gp_index = (uint64_t)gp_index, .kind = kind, .index = index};
}

static void named_add_device(struct hwloc_reader* reader, const char** attributes, int device) {
  const struct topo_device* of = &reader->xml.builder.topo->devices[device];
  if (of->kind == TOPO_DEVICE_GPU) named_add(reader, attributes, HWLOC_NAMED_GPU, of->index);
  if (of->kind == TOPO_DEVICE_SWITCH) named_add(reader, attributes, HWLOC_NAMED_SWITCH, of->index);
}

/* ---------------------------------------------------------------- objects */

static enum type type_of(const char* text) {
  static const struct {
    const char* text;
    enum type type;
  } types[] = {{"Machine", TYPE_MACHINE}, {"System", TYPE_MACHINE}, {"Package", TYPE_CPU},  {"Socket", TYPE_CPU},
               {"NUMANode", TYPE_NUMA},   {"Bridge", TYPE_PCI},     {"PCIDev", TYPE_PCI},   {"OSDev", TYPE_OSDEV}};
  for (unsigned i = 0; i < sizeof types / sizeof types[0]; ++i) {
    if (strcmp(types[i].text, text) == 0) return types[i].type;
  }
  return TYPE_OTHER;
}

static void start_numa(struct hwloc_reader* reader, const char** attributes) {
  struct topo* topo = reader->xml.builder.topo;
  int64_t id = -1;
  if (topo->nnumas >= TOPO_MOST_NUMAS) {
    xml_fail(&reader->xml, "more than %d NUMA nodes", TOPO_MOST_NUMAS);
    return;
  }
  xml_integer(&reader->xml, attributes, "os_index", 0, 1 << 20, &id);
  for (int i = 0; i < topo->nnumas; ++i) {
    if (id >= 0 && topo->numas[i].id == id)
      xml_find(&reader->xml, "xml.duplicate", "NUMA node %d stands here again", (int)id);
  }
  const int at = topo_add_numa(&reader->xml.builder, (int)id, reader->xml.source);
  if (at < 0) return;
  struct topo_numa* numa = &topo->numas[at];
  numa->cpus = xml_set(&reader->xml, attributes, "cpuset");
  TOPO_COPY(numa->vendor, reader->vendor);
  numa->family = reader->family;
  numa->model = reader->model;
}

/* "0302 [10de:1db8] [10de:131d] a1" */
static int pci_type_parse(const char* text, unsigned field[5]) {
  static const char* const separators[] = {" [", ":", "] [", ":", "]"};
  char* end;
  for (int i = 0; i < 5; ++i) {
    if (strspn(text, "0123456789abcdefABCDEF") != 4) return -1;
    field[i] = (unsigned)strtoul(text, &end, 16);
    if (strncmp(end, separators[i], strlen(separators[i])) != 0) return -1;
    text = end + strlen(separators[i]);
  }
  return 0;
}

/* A switch that only NVML has seen has no class and no ids. */
static enum topo_device_kind kind_of(int is_bridge, const char* subtype, unsigned class_id, unsigned vendor) {
  if (is_bridge) return TOPO_DEVICE_BRIDGE;
  if (subtype && strcmp(subtype, "NVSwitch") == 0) return TOPO_DEVICE_SWITCH;
  if (vendor == VENDOR_NVIDIA && class_id >> 8 == 0x03) return TOPO_DEVICE_GPU;
  if (vendor == VENDOR_NVIDIA && class_id == CLASS_SWITCH) return TOPO_DEVICE_SWITCH;
  if (class_id >> 8 == 0x02) return TOPO_DEVICE_NIC;
  return class_id == CLASS_BRIDGE ? TOPO_DEVICE_BRIDGE : TOPO_DEVICE_OTHER;
}

static void describe_device(struct hwloc_reader* reader, int at, const unsigned field[5]) {
  struct topo_builder* builder = &reader->xml.builder;
  struct topo* topo = builder->topo;
  struct topo_device* device = &topo->devices[at];
  int index = -1;
  device->class_id = field[0] << 8;
  device->vendor = (uint16_t)field[1];
  device->device = (uint16_t)field[2];
  device->subsystem_vendor = (uint16_t)field[3];
  device->subsystem_device = (uint16_t)field[4];
  if (device->kind == TOPO_DEVICE_SWITCH) index = topo_add_switch(builder, device->bus_id, at, reader->xml.source);
  if (device->kind == TOPO_DEVICE_NIC) index = topo_add_nic(builder, device->bus_id, at);
  if (device->kind == TOPO_DEVICE_GPU) {
    if (topo->ngpus >= TOPO_MOST_GPUS) {
      xml_fail(&reader->xml, "more than %d GPUs", TOPO_MOST_GPUS);
      return;
    }
    index = topo_add_gpu(builder, device->bus_id, at);
    const int sm = topo_sm_of_device(device->device);
    if (index >= 0) {
      if (sm)
        topo->gpus[index].sm = topo_known(sm, topo_add_source(builder, "PCI device id in %.200s", reader->xml.name));
      topo->gpus[index].nvlink_active = topo_unknown(reader->xml.source);
    }
  }
  topo->devices[at].index = index;
}

static void start_pci(struct hwloc_reader* reader, const char** attributes, int is_bridge) {
  struct topo* topo = reader->xml.builder.topo;
  const int depth = reader->xml.depth, parent = reader->at[depth].device;
  const char* text = xml_attribute(attributes, "pci_busid");
  const char* type = xml_attribute(attributes, "pci_type");
  unsigned field[5] = {0};
  char bus_id[TOPO_BUS_ID_BYTES] = "";
  const char* bridge = xml_attribute(attributes, "bridge_type");
  const int host_bridge = is_bridge && bridge && strcmp(bridge, "0-1") == 0;
  if (!host_bridge && (!text || topo_bus_id_parse(text, bus_id))) {
    xml_fail(&reader->xml, "pci_busid=\"%.40s\" is not a PCI bus id", text ? text : "");
    return;
  }
  if (type && pci_type_parse(type, field)) {
    xml_find(&reader->xml, "xml.value", "pci_type=\"%.60s\" is not a class and ids: it is left out", type);
    memset(field, 0, sizeof field);
  }
  if (!host_bridge && topo_device_find(topo, bus_id) >= 0) {
    xml_find(&reader->xml, "xml.duplicate", "PCI device %s stands here again: it is left out", bus_id);
    return;
  }
  if (topo->ndevices >= TOPO_MOST_DEVICES) {
    xml_fail(&reader->xml, "more than %d PCI devices", TOPO_MOST_DEVICES);
    return;
  }
  const enum topo_device_kind kind = kind_of(is_bridge, xml_attribute(attributes, "subtype"), field[0], field[1]);
  if (kind == TOPO_DEVICE_OTHER) return;
  /* The number of the NUMA node becomes its index when all of them are known. */
  const int numa = reader->at[depth].numa;
  const int at = topo_add_device(&reader->xml.builder, bus_id, kind, parent, numa, reader->xml.source);
  if (at < 0) return;
  topo->devices[at].link_speed = topo->devices[at].link_width = topo_unknown(reader->xml.source);
  reader->at[depth].device = at;
  if (!host_bridge) describe_device(reader, at, field);
  if (!reader->xml.failed && topo->devices[at].index >= 0) named_add_device(reader, attributes, at);
}

static int number_behind(const char* name, const char* prefix) {
  const size_t length = strlen(prefix);
  if (strncmp(name, prefix, length) != 0) return -1;
  const char* digits = name + length;
  const size_t n = strspn(digits, "0123456789");
  return n > 0 && n < 6 && digits[n] == '\0' ? atoi(digits) : -1;
}

static void start_osdev(struct hwloc_reader* reader, const char** attributes) {
  struct topo* topo = reader->xml.builder.topo;
  const int depth = reader->xml.depth, device = reader->at[depth].device;
  const char* name = xml_attribute(attributes, "name");
  if (device < 0 || !name) return;
  const struct topo_device* of = &topo->devices[device];
  TOPO_COPY(reader->at[depth].osdev, name);
  named_add_device(reader, attributes, device);
  if (of->kind == TOPO_DEVICE_GPU && of->index >= 0) {
    struct topo_gpu* gpu = &topo->gpus[of->index];
    const int nvml = number_behind(name, "nvml"), cuda = number_behind(name, "cuda");
    if (nvml >= 0) gpu->nvml = topo_known(nvml, reader->xml.source);
    if (cuda >= 0) gpu->cuda = topo_known(cuda, reader->xml.source);
  }
  if (of->kind == TOPO_DEVICE_NIC && of->index >= 0 && topo->nics[of->index].name[0] == '\0') {
    TOPO_COPY(topo->nics[of->index].name, name);
  }
}

/* What one processor does not say is not known of it, whatever the one before said. */
static void reset_cpu(struct hwloc_reader* reader) {
  reader->vendor[0] = '\0';
  reader->family = reader->model = -1;
}

static void start_object(struct hwloc_reader* reader, const char** attributes) {
  const int depth = reader->xml.depth;
  const char* text = xml_attribute(attributes, "type");
  if (!text) {
    xml_fail(&reader->xml, "an object without a type");
    return;
  }
  const enum type type = type_of(text);
  reader->at[depth].type = type;
  if (xml_attribute(attributes, "nodeset")) {
    reader->at[depth].numa = xml_only_bit(&reader->xml, attributes, "nodeset");
  }
  if (type == TYPE_CPU) reset_cpu(reader);
  if (type == TYPE_NUMA) start_numa(reader, attributes);
  if (type == TYPE_CPU || type == TYPE_NUMA) named_add(reader, attributes, HWLOC_NAMED_CPU, -1);
  if (type == TYPE_PCI) start_pci(reader, attributes, strcmp(text, "Bridge") == 0);
  if (type == TYPE_OSDEV) start_osdev(reader, attributes);
}

/* ---------------------------------------------------------------- infos */

/* "18 switch 0000:c3:00.0": our own note on a GPU of what its links end at. */
static void read_links(struct hwloc_reader* reader, int g, const char* text) {
  static const enum topo_remote remotes[] = {TOPO_REMOTE_GPU, TOPO_REMOTE_CPU, TOPO_REMOTE_SWITCH, TOPO_REMOTE_UNKNOWN};
  struct topo_gpu* gpu = &reader->xml.builder.topo->gpus[g];
  char* end;
  char target[TOPO_BUS_ID_BYTES] = "";
  const long count = strtol(text, &end, 10);
  int sum = 0;
  for (int i = 0; i < gpu->nlinks; ++i) sum += gpu->links[i].count;
  for (int r = 0; r < 4 && end != text && *end == ' '; ++r) {
    const char* name = topo_remote_name(remotes[r]);
    const size_t length = strlen(name);
    if (strncmp(end + 1, name, length) != 0) continue;
    const char* rest = end + 1 + length;
    if (*rest != '\0' && (*rest != ' ' || topo_bus_id_parse(rest + 1, target))) break;
    if (count < 1 || count > TOPO_MOST_LINKS - sum || strcmp(target, gpu->bus_id) == 0) break;
    gpu->nvlink_active = topo_known(0, reader->xml.source);
    reader->links_known = 1;
    topo_add_links(&reader->xml.builder, g, remotes[r], target, (int)count, 0, reader->xml.source);
    return;
  }
  xml_find(&reader->xml, "xml.value", "%s=\"%.60s\" does not say where links end: it is left out", TOPO_LINKS_INFO,
           text);
}

static void gpu_info(struct hwloc_reader* reader, int g, const char* name, const char* value) {
  struct topo_gpu* gpu = &reader->xml.builder.topo->gpus[g];
  if (strcmp(name, "NVIDIAUUID") == 0) TOPO_COPY(gpu->uuid, value);
  if (strcmp(name, "NVIDIASerial") == 0) TOPO_COPY(gpu->serial, value);
  if (strcmp(name, "GPUModel") == 0) TOPO_COPY(gpu->name, value);
  if (strcmp(name, TOPO_LINKS_INFO) == 0) read_links(reader, g, value);
}

static void machine_info(struct hwloc_reader* reader, const char* name, const char* value) {
  struct topo* topo = reader->xml.builder.topo;
  if (strcmp(name, "HostName") == 0) TOPO_COPY(topo->host, value);
  if (strcmp(name, "Architecture") == 0) TOPO_COPY(reader->arch, value);
  if (strcmp(name, "hwlocVersion") == 0) TOPO_COPY(topo->hwloc, value);
}

static void cpu_number(struct hwloc_reader* reader, const char* name, const char* value, int* number) {
  *number = number_behind(value, "");
  if (*number < 0) {
    xml_find(&reader->xml, "xml.value", "%s=\"%.40s\" is not a number of up to 5 digits: it is left out", name, value);
  }
}

static void cpu_info(struct hwloc_reader* reader, const char* name, const char* value) {
  if (strcmp(name, "CPUVendor") == 0) TOPO_COPY(reader->vendor, value);
  if (strcmp(name, "CPUFamilyNumber") == 0) cpu_number(reader, name, value, &reader->family);
  if (strcmp(name, "CPUModelNumber") == 0) cpu_number(reader, name, value, &reader->model);
}

/* Our own note on where a host bridge is, which counts before its place in the tree. */
static void node_info(struct hwloc_reader* reader, int depth, const char* value) {
  const int device = reader->at[depth].device, number = number_behind(value, "");
  if (number < 0 && strcmp(value, "unknown") != 0) {
    xml_find(&reader->xml, "xml.value", "%s=\"%.40s\" is not a NUMA node: it is left out", TOPO_NODE_INFO, value);
    return;
  }
  reader->at[depth].numa = number;
  if (device >= 0) reader->xml.builder.topo->devices[device].numa = number;
}

/* Our own note on what was made up for hwloc. */
static void unknown_info(struct hwloc_reader* reader, const char* value) {
  struct topo* topo = reader->xml.builder.topo;
  if (!topo->nnumas) return;
  struct topo_numa* numa = &topo->numas[topo->nnumas - 1]; /* a node's infos stand before anything in it */
  if (strstr(value, "number")) reader->unnumbered[topo->nnumas - 1] = 1;
  if (!strstr(value, "processors")) return;
  free(numa->cpus);
  numa->cpus = NULL;
}

static void start_info(struct hwloc_reader* reader, const char** attributes) {
  const int parent = reader->xml.depth - 1, device = reader->at[parent].device;
  const struct topo* topo = reader->xml.builder.topo;
  const char *name = xml_attribute(attributes, "name"), *value = xml_attribute(attributes, "value");
  if (!name || !value) return;
  if (reader->at[parent].type == TYPE_MACHINE) machine_info(reader, name, value);
  if (reader->at[parent].type == TYPE_CPU) cpu_info(reader, name, value);
  if (reader->at[parent].type == TYPE_PCI && strcmp(name, TOPO_NODE_INFO) == 0) node_info(reader, parent, value);
  if (reader->at[parent].type == TYPE_NUMA && strcmp(name, TOPO_UNKNOWN_INFO) == 0) unknown_info(reader, value);
  if (device >= 0 && topo->devices[device].kind == TOPO_DEVICE_GPU && topo->devices[device].index >= 0) {
    gpu_info(reader, topo->devices[device].index, name, value);
  }
}

/* ---------------------------------------------------------------- the document */

static void start(struct xml_reader* xml, const char* element, const char** attributes) {
  struct hwloc_reader* reader = (struct hwloc_reader*)xml;
  const int depth = xml->depth;
  if (depth == 1 && strcmp(element, "topology") != 0 && strcmp(element, "root") != 0) {
    xml_fail(xml, "an hwloc topology begins with <topology>");
    return;
  }
  reader->at[depth] = reader->at[depth - 1];
  reader->at[depth].type = TYPE_NOT_OBJECT;
  if (strcmp(element, "object") == 0) start_object(reader, attributes);
  if (strcmp(element, "info") == 0 && depth > 1) start_info(reader, attributes);
  if (strcmp(element, "distances2") == 0 || strcmp(element, "distances2hetero") == 0) {
    hwloc_matrix_start(xml, &reader->matrix, attributes);
  }
  if (strcmp(element, "indexes") == 0) reader->matrix_text = 1;
  if (strcmp(element, "u64values") == 0) reader->matrix_text = 2;
}

static void text(struct xml_reader* xml, const char* characters, int bytes) {
  struct hwloc_reader* reader = (struct hwloc_reader*)xml;
  if (reader->matrix_text) hwloc_matrix_text(xml, &reader->matrix, reader->matrix_text == 2, characters, bytes);
}

static void end(struct xml_reader* xml, const char* element) {
  struct hwloc_reader* reader = (struct hwloc_reader*)xml;
  if (reader->matrix_text) {
    hwloc_matrix_text(xml, &reader->matrix, reader->matrix_text == 2, "", 0);
    reader->matrix_text = 0;
  }
  if (strncmp(element, "distances2", 10) == 0 && !xml->failed) hwloc_matrix_end(xml, &reader->matrix);
}

/* NUMA nodes may stand behind what is close to them. */
static void resolve_numas(struct hwloc_reader* reader) {
  struct topo* topo = reader->xml.builder.topo;
  for (int i = 0; i < topo->ndevices; ++i) {
    int found = -1;
    for (int n = 0; n < topo->nnumas && found < 0; ++n) {
      if (topo->numas[n].id >= 0 && topo->numas[n].id == topo->devices[i].numa) found = n;
    }
    topo->devices[i].numa = found;
  }
  for (int g = 0; g < topo->ngpus; ++g) topo->gpus[g].numa = topo->devices[topo->gpus[g].device].numa;
  for (int n = 0; n < topo->nnumas; ++n) {
    TOPO_COPY(topo->numas[n].arch, reader->arch);
    if (reader->unnumbered[n]) topo->numas[n].id = -1;
  }
}

static void begin(struct xml_reader* xml) {
  struct hwloc_reader* reader = (struct hwloc_reader*)xml;
  reset_cpu(reader);
  reader->at[0].device = reader->at[0].numa = -1;
}

static void complete(struct xml_reader* xml) {
  struct hwloc_reader* reader = (struct hwloc_reader*)xml;
  resolve_numas(reader);
  if (!reader->links_known && reader->matrix.n) {
    hwloc_matrix_apply(&xml->builder, &reader->matrix, reader->named, reader->nnamed, reader->xml.source);
  }
  topo_derive(&xml->builder);
}

static void release(struct xml_reader* xml) {
  struct hwloc_reader* reader = (struct hwloc_reader*)xml;
  hwloc_matrix_free(&reader->matrix);
  free(reader->named);
}

static const struct xml_format format = {.origin = TOPO_FROM_HWLOC_XML,
                                         .reader_bytes = sizeof(struct hwloc_reader),
                                         .begin = begin,
                                         .start = start,
                                         .end = end,
                                         .text = text,
                                         .complete = complete,
                                         .release = release};

int topo_read_hwloc_xml_buffer(const char* data, size_t bytes, const char* name, struct topo** out,
                               struct topo_error* error) {
  return xml_read_buffer(&format, data, bytes, name, out, error);
}

int topo_read_hwloc_xml(const char* path, struct topo** out, struct topo_error* error) {
  return xml_read_file(&format, path, out, error);
}
