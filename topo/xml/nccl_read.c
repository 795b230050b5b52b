/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_read.c: NCCL's topology XML, as NCCL_TOPO_DUMP_FILE writes it and as people write it by hand. What
 * contradicts itself is a finding and left out; what is no topology at all is an error.
 */
#include <stdlib.h>
#include <string.h>

#include "topo/xml/parse.h"

enum place { PLACE_NONE, PLACE_SYSTEM, PLACE_CPU, PLACE_PCI, PLACE_GPU, PLACE_NIC, PLACE_SKIP };

enum { CLASS_SWITCH = 0x068000, CLASS_POWER_CPU = 0x068001 };

struct nccl_reader {
  struct xml_reader xml; /* first */
  uint64_t host;         /* host_hash of the first <cpu> that has one */
  int host_line;         /* where that is; 0: none yet */
  int hosts_told;        /* that there are others */
  struct {
    enum place place;
    int index; /* numa, device, GPU; of a NIC its device, -1: none */
  } at[TOPO_MOST_XML_DEPTH + 1];
};

static void place(struct nccl_reader* reader, enum place where, int index) {
  reader->at[reader->xml.depth].place = where;
  reader->at[reader->xml.depth].index = index;
}

static enum place parent_place(const struct nccl_reader* reader) { return reader->at[reader->xml.depth - 1].place; }
static int parent_index(const struct nccl_reader* reader) { return reader->at[reader->xml.depth - 1].index; }

static struct topo_fact integer_fact(struct nccl_reader* reader, const char** attributes, const char* name, int64_t min,
                                     int64_t max) {
  int64_t value;
  if (xml_integer(&reader->xml, attributes, name, min, max, &value)) return topo_unknown(reader->xml.source);
  return topo_known((int32_t)value, reader->xml.source);
}

/* ---------------------------------------------------------------- elements */

static void start_system(struct nccl_reader* reader, const char** attributes) {
  const char* version = xml_attribute(attributes, "version");
  if (version && strcmp(version, "1") != 0) {
    xml_fail(&reader->xml, "version=\"%.40s\": version 1 is read", version);
  }
  place(reader, PLACE_SYSTEM, -1);
}

/* Dumps of hosts that NVLink joins hold all of them, and their bus ids are the same. The hash itself stays out of what
 * is said: it names a host. */
static int is_other_host(struct nccl_reader* reader, const char** attributes) {
  const char* text = xml_attribute(attributes, "host_hash");
  const int line = xml_line(&reader->xml);
  char* end;
  if (!text) return 0;
  const uint64_t host = strtoull(text, &end, 16);
  if (end == text || *end != '\0') {
    xml_find(&reader->xml, "xml.value", "host_hash is not a number in hexadecimal: it is left out");
    return 0;
  }
  if (!reader->host_line) {
    reader->host = host;
    reader->host_line = line;
  }
  if (host == reader->host) return 0;
  if (!reader->hosts_told++) {
    topo_find(&reader->xml.builder, "xml.hosts", TOPO_NOT_OBSERVABLE, line, "cpu",
              "the file holds several hosts: the first, from line %d on, is shown; the one from line %d on, with "
              "another host_hash, and any more are left out",
              reader->host_line, line);
  }
  return 1;
}

static void start_cpu(struct nccl_reader* reader, const char** attributes) {
  struct topo* topo = reader->xml.builder.topo;
  int64_t id = -1, value;
  place(reader, PLACE_SKIP, -1);
  if (is_other_host(reader, attributes)) return;
  if (topo->nnumas >= TOPO_MOST_NUMAS) {
    xml_fail(&reader->xml, "more than %d NUMA nodes", TOPO_MOST_NUMAS);
    return;
  }
  xml_integer(&reader->xml, attributes, "numaid", -1, 1 << 20, &id);
  for (int i = 0; i < topo->nnumas; ++i) {
    if (id >= 0 && topo->numas[i].id == id)
      xml_find(&reader->xml, "xml.duplicate", "NUMA node %d stands here again", (int)id);
  }
  const int at = topo_add_numa(&reader->xml.builder, (int)id, reader->xml.source);
  place(reader, PLACE_CPU, at);
  if (at < 0) return;
  struct topo_numa* numa = &topo->numas[at];
  numa->cpus = xml_set(&reader->xml, attributes, "affinity"); /* NCCL writes it empty where it found none */
  TOPO_COPY(numa->arch, xml_attribute(attributes, "arch"));
  TOPO_COPY(numa->vendor, xml_attribute(attributes, "vendor"));
  if (!xml_integer(&reader->xml, attributes, "familyid", -1, 1 << 30, &value)) numa->family = (int)value;
  if (!xml_integer(&reader->xml, attributes, "modelid", -1, 1 << 30, &value)) numa->model = (int)value;
}

/* Makes a GPU of a device, once. */
static int gpu_of_device(struct nccl_reader* reader, int device) {
  struct topo* topo = reader->xml.builder.topo;
  if (topo->devices[device].kind == TOPO_DEVICE_GPU) return topo->devices[device].index;
  if (topo->ngpus >= TOPO_MOST_GPUS) {
    xml_fail(&reader->xml, "more than %d GPUs", TOPO_MOST_GPUS);
    return -1;
  }
  const int gpu = topo_add_gpu(&reader->xml.builder, topo->devices[device].bus_id, device);
  if (gpu < 0) return -1;
  topo->devices[device].kind = TOPO_DEVICE_GPU;
  topo->devices[device].index = gpu;
  topo->gpus[gpu].nvlink_active = topo_unknown(reader->xml.source);
  return gpu;
}

static void read_pci_class(struct nccl_reader* reader, int device, uint32_t class_id, uint16_t vendor) {
  struct topo* topo = reader->xml.builder.topo;
  const char* bus_id = topo->devices[device].bus_id;
  enum topo_device_kind kind = TOPO_DEVICE_OTHER;
  int index = -1;
  if (class_id >> 8 == 0x0302 || (class_id >> 16 == 0x03 && vendor == 0x10de)) {
    gpu_of_device(reader, device);
    return;
  }
  if (class_id >> 8 == 0x0604) kind = TOPO_DEVICE_BRIDGE;
  if (class_id == CLASS_SWITCH) {
    kind = TOPO_DEVICE_SWITCH;
    index = topo_add_switch(&reader->xml.builder, bus_id, device, reader->xml.source);
  }
  if (class_id >> 16 == 0x02) {
    kind = TOPO_DEVICE_NIC;
    index = topo_add_nic(&reader->xml.builder, bus_id, device);
  }
  topo->devices[device].kind = kind;
  topo->devices[device].index = index;
}

static struct topo_fact link_speed_of(struct nccl_reader* reader, const char** attributes) {
  const char* text = xml_attribute(attributes, "link_speed");
  if (!text || text[0] == '\0') return topo_unknown(reader->xml.source); /* virtual machines write it empty */
  const int speed = topo_link_speed_parse(text);
  if (!speed && strncmp(text, "Unknown", 7) != 0) {
    xml_find(&reader->xml, "xml.value", "link_speed=\"%.40s\" is not a speed in GT/s: it is left out", text);
  }
  return speed ? topo_known(speed, reader->xml.source) : topo_unknown(reader->xml.source);
}

static void start_pci(struct nccl_reader* reader, const char** attributes) {
  struct topo* topo = reader->xml.builder.topo;
  const char* text = xml_attribute(attributes, "busid");
  char bus_id[TOPO_BUS_ID_BYTES];
  int64_t class_id = 0, vendor = 0, value;
  place(reader, PLACE_SKIP, -1);
  if (!text || topo_bus_id_parse(text, bus_id)) {
    xml_fail(&reader->xml, "busid=\"%.40s\" is not a PCI bus id", text ? text : "");
    return;
  }
  if (topo_device_find(topo, bus_id) >= 0) {
    xml_find(&reader->xml, "xml.duplicate", "PCI device %s stands here again: it and what is in it is left out",
             bus_id);
    return;
  }
  if (topo->ndevices >= TOPO_MOST_DEVICES) {
    xml_fail(&reader->xml, "more than %d PCI devices", TOPO_MOST_DEVICES);
    return;
  }
  const int in_pci = parent_place(reader) == PLACE_PCI;
  const int numa = in_pci ? topo->devices[parent_index(reader)].numa : parent_index(reader);
  const int at = topo_add_device(&reader->xml.builder, bus_id, TOPO_DEVICE_OTHER, in_pci ? parent_index(reader) : -1,
                                 numa, reader->xml.source);
  if (at < 0) return;
  place(reader, PLACE_PCI, at);
  xml_integer(&reader->xml, attributes, "class", 0, 0xffffff, &class_id);
  xml_integer(&reader->xml, attributes, "vendor", 0, 0xffff, &vendor);
  struct topo_device* device = &topo->devices[at];
  device->class_id = (uint32_t)class_id;
  device->vendor = (uint16_t)vendor;
  if (!xml_integer(&reader->xml, attributes, "device", 0, 0xffff, &value)) device->device = (uint16_t)value;
  if (!xml_integer(&reader->xml, attributes, "subsystem_vendor", 0, 0xffff, &value)) {
    device->subsystem_vendor = (uint16_t)value;
  }
  if (!xml_integer(&reader->xml, attributes, "subsystem_device", 0, 0xffff, &value)) {
    device->subsystem_device = (uint16_t)value;
  }
  device->link_speed = link_speed_of(reader, attributes);
  device->link_width = integer_fact(reader, attributes, "link_width", 0, 64);
  if (device->link_width.value == 0) device->link_width = topo_unknown(reader->xml.source); /* NCCL could not read it */
  read_pci_class(reader, at, (uint32_t)class_id, (uint16_t)vendor);
}

static void start_gpu(struct nccl_reader* reader, const char** attributes) {
  struct topo* topo = reader->xml.builder.topo;
  const int g = gpu_of_device(reader, parent_index(reader));
  place(reader, PLACE_SKIP, -1);
  if (g < 0) return;
  struct topo_gpu* gpu = &topo->gpus[g];
  if (gpu->nvlink_active.state != TOPO_NOT_OBSERVABLE) {
    xml_find(&reader->xml, "xml.duplicate", "a second <gpu> in %s: it is left out", gpu->bus_id);
    return;
  }
  place(reader, PLACE_GPU, g);
  gpu->nvml = integer_fact(reader, attributes, "dev", 0, 1 << 20);
  gpu->sm = integer_fact(reader, attributes, "sm", 10, 999);
  gpu->rank = integer_fact(reader, attributes, "rank", -1, 1 << 20);
  gpu->gdr = integer_fact(reader, attributes, "gdr", 0, 1);
  gpu->nvlink_active = topo_known(0, reader->xml.source); /* its links follow; a file with <gpu> has them all */
}

static int links_of(const struct topo_gpu* gpu) {
  int count = 0;
  for (int i = 0; i < gpu->nlinks; ++i) count += gpu->links[i].count;
  return count;
}

static void start_nvlink(struct nccl_reader* reader, const char** attributes) {
  struct topo* topo = reader->xml.builder.topo;
  const int g = parent_index(reader);
  const struct topo_gpu* gpu = &topo->gpus[g];
  const char* text = xml_attribute(attributes, "target");
  const char* count_text = xml_attribute(attributes, "count");
  char target[TOPO_BUS_ID_BYTES];
  int64_t count = 0, class_id = 0;
  place(reader, PLACE_NONE, -1);
  if (!text || topo_bus_id_parse(text, target)) {
    xml_find(&reader->xml, "xml.value", "target=\"%.40s\" is not a PCI bus id: the links are left out",
             text ? text : "");
    return;
  }
  xml_integer(&reader->xml, attributes, "tclass", 0, 0xffffff, &class_id);
  if (xml_integer(&reader->xml, attributes, "count", INT32_MIN, INT32_MAX, &count) || count < 1 ||
      count > TOPO_MOST_LINKS - links_of(gpu)) {
    xml_find(&reader->xml, "nvlink.count", "GPU %s has count=\"%.40s\" NVLinks to %s, 1 to %d in all can be: left out",
             gpu->bus_id, count_text ? count_text : "", target, TOPO_MOST_LINKS);
    return;
  }
  if (strcmp(target, gpu->bus_id) == 0) {
    xml_find(&reader->xml, "nvlink.self", "GPU %s has %d NVLinks to itself: they are left out", gpu->bus_id,
             (int)count);
    return;
  }
  if (topo_bus_id_hidden(target)) target[0] = '\0';
  const enum topo_remote remote = class_id == CLASS_SWITCH      ? TOPO_REMOTE_SWITCH
                                  : class_id == CLASS_POWER_CPU ? TOPO_REMOTE_CPU
                                  : class_id >> 16 == 0x03      ? TOPO_REMOTE_GPU
                                                                : TOPO_REMOTE_UNKNOWN;
  /* A GPU whose bus id is hidden could be anything. */
  topo_add_links(&reader->xml.builder, g, remote == TOPO_REMOTE_GPU && !target[0] ? TOPO_REMOTE_UNKNOWN : remote,
                 target, (int)count, 0, reader->xml.source);
}

static void start_nic(struct nccl_reader* reader) {
  const int device = parent_place(reader) == PLACE_PCI ? parent_index(reader) : -1;
  place(reader, PLACE_NIC, device);
}

static void start_net(struct nccl_reader* reader, const char** attributes) {
  struct topo* topo = reader->xml.builder.topo;
  const int device = parent_index(reader);
  int at = device >= 0 && topo->devices[device].kind == TOPO_DEVICE_NIC ? topo->devices[device].index : -1;
  place(reader, PLACE_NONE, -1);
  if (at < 0 || topo->nics[at].name[0] != '\0') { /* another port, or a network interface without a PCI device */
    if (topo->nnics >= TOPO_MOST_DEVICES) return;
    at = topo_add_nic(&reader->xml.builder, device >= 0 ? topo->devices[device].bus_id : "", device);
  }
  if (at < 0) return;
  struct topo_nic* nic = &topo->nics[at];
  TOPO_COPY(nic->name, xml_attribute(attributes, "name"));
  nic->speed = integer_fact(reader, attributes, "speed", 0, 100000000);
  nic->gdr = integer_fact(reader, attributes, "gdr", 0, 1);
}

static void start(struct xml_reader* xml, const char* element, const char** attributes) {
  struct nccl_reader* reader = (struct nccl_reader*)xml;
  const enum place in = xml->depth > 1 ? parent_place(reader) : PLACE_NONE;
  if (xml->depth == 1 && strcmp(element, "system") != 0) {
    xml_fail(xml, "an NCCL topology begins with <system>");
  } else if (xml->depth == 1) {
    start_system(reader, attributes);
  } else if (in == PLACE_SYSTEM && strcmp(element, "cpu") == 0) {
    start_cpu(reader, attributes);
  } else if ((in == PLACE_CPU || in == PLACE_PCI) && strcmp(element, "pci") == 0) {
    start_pci(reader, attributes);
  } else if (in == PLACE_PCI && strcmp(element, "gpu") == 0) {
    start_gpu(reader, attributes);
  } else if (in == PLACE_GPU && strcmp(element, "nvlink") == 0) {
    start_nvlink(reader, attributes);
  } else if ((in == PLACE_PCI || in == PLACE_CPU) && strcmp(element, "nic") == 0) {
    start_nic(reader);
  } else if (in == PLACE_NIC && strcmp(element, "net") == 0) {
    start_net(reader, attributes);
  } else {
    place(reader, PLACE_SKIP, -1);
    if (in != PLACE_SKIP && in != PLACE_NONE && strcmp(element, "c2c") != 0) {
      xml_find(xml, "xml.element", "<%.40s> in <%.40s> is not known here: it is left out", element,
               xml->elements[xml->depth - 1]);
    }
  }
}

static void complete(struct xml_reader* xml) { topo_derive(&xml->builder); }

static const struct xml_format format = {.origin = TOPO_FROM_NCCL_XML,
                                         .reader_bytes = sizeof(struct nccl_reader),
                                         .start = start,
                                         .complete = complete};

int topo_read_nccl_xml_buffer(const char* data, size_t bytes, const char* name, struct topo** out,
                              struct topo_error* error) {
  return xml_read_buffer(&format, data, bytes, name, out, error);
}

int topo_read_nccl_xml(const char* path, struct topo** out, struct topo_error* error) {
  return xml_read_file(&format, path, out, error);
}
