/* SPDX-License-Identifier: Apache-2.0
 *
 * hwloc_live.c: NUMA nodes and the PCI tree of this machine, from hwloc.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

#include "topo/hwloc_library.h"

/* hwloc's own look at GPUs would open OpenCL, X and CUDA in the caller's process. */
static const char* const blacklist[] = {"cuda", "nvml", "opencl", "gl", "rsmi", "levelzero"};

enum { CLASS_BRIDGE = 0x0604, CLASS_SWITCH = 0x0680, VENDOR_NVIDIA = 0x10de };

struct reader {
  struct topo_builder* builder;
  const struct hwloc_library* hwloc;
  hwloc_topology_t tree;
  uint16_t source;
};

static char* list_of_bitmap(const struct hwloc_library* hwloc, hwloc_const_bitmap_t set) {
  enum { MOST = 1 << 16 };
  unsigned char bits[MOST / 8] = {0};
  for (int bit = hwloc->bitmap_next(set, -1); bit >= 0 && bit < MOST; bit = hwloc->bitmap_next(set, bit)) {
    bits[bit / 8] |= (unsigned char)(1 << bit % 8);
  }
  return topo_list_of_bits(bits, sizeof bits);
}

static const char* info_of(hwloc_obj_t object, const char* name) {
  for (unsigned i = 0; object && i < COMPAT_HWLOC_INFO_COUNT(object); ++i) {
    if (strcmp(COMPAT_HWLOC_INFOS(object)[i].name, name) == 0) return COMPAT_HWLOC_INFOS(object)[i].value;
  }
  return NULL;
}

/* Of the object or of what it is in. */
static const char* info_above(hwloc_obj_t object, const char* name) {
  const char* value = NULL;
  for (; object && !value; object = object->parent) value = info_of(object, name);
  return value;
}

static void read_numas(struct reader* reader) {
  const struct hwloc_library* hwloc = reader->hwloc;
  hwloc_obj_t root = hwloc->get_obj_by_depth(reader->tree, 0, 0);
  const char* value;
  struct utsname name;
  const int named = !uname(&name);
  if ((value = info_of(root, "hwlocVersion"))) TOPO_COPY(reader->builder->topo->hwloc, value);
  for (unsigned i = 0;; ++i) {
    hwloc_obj_t object = hwloc->get_obj_by_depth(reader->tree, HWLOC_TYPE_DEPTH_NUMANODE, i);
    if (!object || i >= TOPO_MOST_NUMAS) return;
    const int at = topo_add_numa(reader->builder, (int)object->os_index, reader->source);
    if (at < 0) return;
    struct topo_numa* numa = &reader->builder->topo->numas[at];
    numa->cpus = list_of_bitmap(hwloc, object->cpuset);
    if (named) TOPO_COPY(numa->arch, name.machine);
    if ((value = info_above(object, "CPUVendor"))) TOPO_COPY(numa->vendor, value);
    if ((value = info_above(object, "CPUFamilyNumber"))) numa->family = atoi(value);
    if ((value = info_above(object, "CPUModelNumber"))) numa->model = atoi(value);
  }
}

/* The NUMA node of an object's place, if that place has just one. */
static int numa_of(const struct reader* reader, hwloc_obj_t object) {
  const struct topo* topo = reader->builder->topo;
  while (object && !object->nodeset) object = object->parent; /* I/O objects have none */
  if (!object) return -1;
  const int node = reader->hwloc->bitmap_next(object->nodeset, -1);
  if (node < 0 || reader->hwloc->bitmap_next(object->nodeset, node) >= 0) return -1;
  for (int i = 0; i < topo->nnumas; ++i) {
    if (topo->numas[i].id == node) return i;
  }
  return -1;
}

static enum topo_device_kind kind_of(unsigned class_id, unsigned vendor) {
  if (vendor == VENDOR_NVIDIA && class_id >> 8 == 0x03) return TOPO_DEVICE_GPU;
  if (vendor == VENDOR_NVIDIA && class_id == CLASS_SWITCH) return TOPO_DEVICE_SWITCH;
  if (class_id >> 8 == 0x02) return TOPO_DEVICE_NIC;
  return class_id == CLASS_BRIDGE ? TOPO_DEVICE_BRIDGE : TOPO_DEVICE_OTHER;
}

static void read_network(struct reader* reader, hwloc_obj_t object, int device) {
  struct topo* topo = reader->builder->topo;
  if (device < 0 || topo->devices[device].kind != TOPO_DEVICE_NIC ||
      !COMPAT_HWLOC_IS_NETWORK(object)) {
    return;
  }
  struct topo_nic* nic = &topo->nics[topo->devices[device].index];
  if (nic->name[0] == '\0' && object->name) TOPO_COPY(nic->name, object->name);
}

/* hwloc has the product of speed and width only. */
static void read_link(struct reader* reader, struct topo_device* device) {
  static const char folder[] = "/sys/bus/pci/devices";
  char path[128], text[64];
  device->link_speed = device->link_width = topo_unknown(topo_add_source(reader->builder, "%s", folder));
  for (int i = 0; i < 2; ++i) {
    snprintf(path, sizeof path, "%s/%s/current_link_%s", folder, device->bus_id, i ? "width" : "speed");
    FILE* file = fopen(path, "re");
    if (!file) continue;
    const char* line = fgets(text, sizeof text, file);
    fclose(file);
    const int value = !line ? 0 : i ? atoi(line) : topo_link_speed_parse(line);
    if (value > 0) *(i ? &device->link_width : &device->link_speed) = topo_known(value, device->link_speed.source);
  }
}

/* Adds a PCI device or bridge; its index, or `parent` where it is nothing to keep. */
static int read_pci(struct reader* reader, hwloc_obj_t object, int parent) {
  struct topo_builder* builder = reader->builder;
  struct topo* topo = builder->topo;
  const int host_bridge = object->type == HWLOC_OBJ_BRIDGE &&
                          object->attr->bridge.upstream_type != HWLOC_OBJ_BRIDGE_PCI;
  const struct hwloc_pcidev_attr_s* pci =
      object->type == HWLOC_OBJ_BRIDGE ? &object->attr->bridge.upstream.pci : &object->attr->pcidev;
  char bus_id[TOPO_BUS_ID_BYTES] = "";
  const enum topo_device_kind kind =
      object->type == HWLOC_OBJ_BRIDGE ? TOPO_DEVICE_BRIDGE : kind_of(pci->class_id, pci->vendor_id);
  if (kind == TOPO_DEVICE_OTHER || topo->ndevices >= TOPO_MOST_DEVICES) return parent;
  if (kind == TOPO_DEVICE_GPU && topo->ngpus >= TOPO_MOST_GPUS) return parent;
  if (!host_bridge) {
    snprintf(bus_id, sizeof bus_id, "%04x:%02x:%02x.%x", (unsigned)pci->domain, pci->bus, pci->dev, pci->func);
  }
  const int at = topo_add_device(builder, bus_id, kind, parent, numa_of(reader, object), reader->source);
  if (at < 0) return parent;
  struct topo_device* device = &topo->devices[at];
  if (host_bridge) return at;
  read_link(reader, device);
  device->class_id = (uint32_t)pci->class_id << 8;
  device->vendor = pci->vendor_id;
  device->device = pci->device_id;
  device->subsystem_vendor = pci->subvendor_id;
  device->subsystem_device = pci->subdevice_id;
  int index = -1;
  if (kind == TOPO_DEVICE_GPU) index = topo_add_gpu(builder, bus_id, at);
  if (kind == TOPO_DEVICE_SWITCH) index = topo_add_switch(builder, bus_id, at, reader->source);
  if (kind == TOPO_DEVICE_NIC) index = topo_add_nic(builder, bus_id, at);
  topo->devices[at].index = index;
  if (kind == TOPO_DEVICE_GPU && index >= 0) {
    struct topo_gpu* gpu = &topo->gpus[index];
    const int sm = topo_sm_of_device(pci->device_id);
    if (sm) gpu->sm = topo_known(sm, topo_add_source(builder, "PCI device id"));
    gpu->nvlink_active = topo_unknown(reader->source);
  }
  return at;
}

static void read_io(struct reader* reader, hwloc_obj_t first, int parent) {
  for (hwloc_obj_t object = first; object && !reader->builder->out_of_memory; object = object->next_sibling) {
    if (object->type == HWLOC_OBJ_OS_DEVICE) {
      read_network(reader, object, parent);
      continue;
    }
    const int at = read_pci(reader, object, parent);
    read_io(reader, object->io_first_child, at);
  }
}

/* Host bridges hang below the CPU object that they are close to. */
static void read_all(struct reader* reader, hwloc_obj_t object) {
  read_io(reader, object->io_first_child, -1);
  for (unsigned i = 0; i < object->arity; ++i) read_all(reader, object->children[i]);
}

void hwloc_read_live(struct topo_builder* builder) {
  const char* why;
  struct reader reader = {.builder = builder, .hwloc = hwloc_library_get(&why)};
  const struct hwloc_library* hwloc = reader.hwloc;
  struct topo* topo = builder->topo;
  if (!hwloc) {
    topo_find(builder, "hwloc.open", TOPO_NOT_OBSERVABLE, 0, "", "no PCI tree and no NUMA nodes: %s", why);
    return;
  }
  if (hwloc->topology_init(&reader.tree)) {
    topo_find(builder, "hwloc.open", TOPO_NOT_OBSERVABLE, 0, "",
              "no PCI tree and no NUMA nodes: hwloc_topology_init failed");
    return;
  }
  reader.source = topo_add_source(builder, "hwloc");
  for (unsigned i = 0; i < sizeof blacklist / sizeof blacklist[0]; ++i) {
    hwloc->topology_set_components(reader.tree, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, blacklist[i]);
  }
  hwloc->topology_set_io_types_filter(reader.tree, HWLOC_TYPE_FILTER_KEEP_ALL);
  /* All processors of the machine, not only those that this process may use: what is asked is where a GPU sits. */
  hwloc->topology_set_flags(reader.tree, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED);
  if (hwloc->topology_load(reader.tree)) {
    topo_find(builder, "hwloc.open", TOPO_NOT_OBSERVABLE, 0, "",
              "no PCI tree and no NUMA nodes: hwloc_topology_load failed");
    hwloc->topology_destroy(reader.tree);
    return;
  }
  topo->tree = reader.tree;
  read_numas(&reader);
  read_all(&reader, hwloc->get_obj_by_depth(reader.tree, 0, 0));
}
