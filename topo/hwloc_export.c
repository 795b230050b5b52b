/* SPDX-License-Identifier: Apache-2.0
 *
 * hwloc_export.c: the matrix of NVLinks as distances in an hwloc topology: this machine's own, or one made from the
 * model.
 */
#include <stdlib.h>
#include <string.h>

#include "topo/hwloc_library.h"
#include "topo/hwloc_write.h"

enum { DIAGONAL = 1000000 }; /* as in hwloc's own matrices: as fast as it gets */

static hwloc_obj_t object_of(const struct hwloc_library* hwloc, hwloc_topology_t tree, int depth, const char* bus_id) {
  unsigned domain, bus, slot, function;
  hwloc_obj_t object;
  if (sscanf(bus_id, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4) return NULL;
  for (unsigned i = 0; (object = hwloc->get_obj_by_depth(tree, depth, i)); ++i) {
    const struct hwloc_pcidev_attr_s* pci =
        depth == HWLOC_TYPE_DEPTH_BRIDGE ? &object->attr->bridge.upstream.pci : &object->attr->pcidev;
    if (pci->domain == domain && pci->bus == bus && pci->dev == slot && pci->func == function) break;
  }
  return object;
}

static int lose(const char* kind, const char* bus_id, struct topo_error* error) {
  return topo_fail(error, "hwloc XML would be without %s %s%s", kind, bus_id,
                   strtoul(bus_id, NULL, 16) > 0xffff ? ": libhwloc takes PCI domains up to ffff" : "");
}

/* libhwloc leaves out what it cannot hold, without an error: the file would be of another machine. A bridge counts if
 * something below it does. */
static int nothing_is_lost(const struct hwloc_library* hwloc, hwloc_topology_t tree, const struct topo* topo,
                           struct topo_error* error) {
  static const char* const kinds[] = {"bridge", "GPU", "NVSwitch", "network card", "bridge"};
  char* counts = calloc((size_t)topo->ndevices + 1, 1);
  int result = counts ? 0 : topo_fail(error, "out of memory for a topology's text");
  for (int i = topo->ndevices - 1; i >= 0 && !result; --i) { /* children before their parents */
    const struct topo_device* device = &topo->devices[i];
    const int bridge = device->kind == TOPO_DEVICE_BRIDGE || device->kind == TOPO_DEVICE_OTHER;
    counts[i] |= !bridge;
    if (counts[i] && device->parent >= 0) counts[device->parent] = 1;
    if (!counts[i] || !device->bus_id[0] || object_of(hwloc, tree, HWLOC_TYPE_DEPTH_PCI_DEVICE, device->bus_id) ||
        (bridge && object_of(hwloc, tree, HWLOC_TYPE_DEPTH_BRIDGE, device->bus_id))) {
      continue;
    }
    result = lose(kinds[device->kind], device->bus_id, error);
  }
  for (int g = 0; g < topo->ngpus && !result; ++g) {
    const char* bus_id = topo->gpus[g].bus_id;
    if (!object_of(hwloc, tree, HWLOC_TYPE_DEPTH_PCI_DEVICE, bus_id)) result = lose("GPU", bus_id, error);
  }
  free(counts);
  return result;
}

static int add_infos(const struct hwloc_library* hwloc, hwloc_obj_t object, const struct topo_gpu* gpu) {
  char text[64];
  for (int i = 0; i < gpu->nlinks; ++i) {
    const struct topo_nvlink* link = &gpu->links[i];
    if (link->count < 1) continue;
    snprintf(text, sizeof text, "%d %s%s%s", link->count, topo_remote_name(link->remote), link->target[0] ? " " : "",
             link->target);
    if (compat_hwloc_info(hwloc->add_info, object, TOPO_LINKS_INFO, text)) return -1;
  }
  return 0;
}

/* Of GPUs that are all in the tree; hwloc takes no matrix of fewer than two objects. */
static int add_matrix(const struct hwloc_library* hwloc, hwloc_topology_t tree, const struct topo* topo) {
  const size_t n = (size_t)topo->ngpus;
  hwloc_obj_t* objects = calloc(n + 1, sizeof *objects);
  hwloc_uint64_t* values = calloc(n * n + 1, sizeof *values);
  int result = objects && values ? 0 : -1;
  for (int g = 0; g < topo->ngpus && !result; ++g) {
    objects[g] = object_of(hwloc, tree, HWLOC_TYPE_DEPTH_PCI_DEVICE, topo->gpus[g].bus_id);
    result = add_infos(hwloc, objects[g], &topo->gpus[g]);
    for (int to = 0; to < topo->ngpus; ++to) {
      values[(size_t)g * n + (size_t)to] =
          g == to ? DIAGONAL : (hwloc_uint64_t)topo_pair(topo, g, to)->nvlink_raw.value;
    }
  }
  if (!result && n > 1) {
    void* handle = hwloc->distances_add_create(tree, TOPO_DISTANCES_NAME, COMPAT_HWLOC_BANDWIDTH, 0);
    result = handle && !hwloc->distances_add_values(tree, handle, (unsigned)n, objects, values, 0) &&
                     !hwloc->distances_add_commit(tree, handle, 0)
                 ? 0
                 : -1;
  }
  free(values);
  free(objects);
  return result;
}

static int every_gpu_has_a_place(const struct topo* topo) {
  for (int g = 0; g < topo->ngpus; ++g) {
    if (topo->gpus[g].device < 0) return 0;
  }
  return 1;
}

static int tree_of_model(const struct hwloc_library* hwloc, const struct topo* topo, hwloc_topology_t* tree,
                         struct topo_error* error) {
  char* text;
  size_t bytes;
  if (hwloc_write_model(topo, &text, &bytes, error)) return -1;
  int result = hwloc->topology_init(tree);
  if (!result) {
    hwloc->topology_set_io_types_filter(*tree, HWLOC_TYPE_FILTER_KEEP_ALL);
    result = hwloc->topology_set_xmlbuffer(*tree, text, (int)bytes + 1) || hwloc->topology_load(*tree);
    if (result) hwloc->topology_destroy(*tree);
  }
  free(text);
  return result
             ? topo_fail(error, "hwloc does not take this machine: its processors or NUMA nodes contradict each other")
             : 0;
}

int topo_write_hwloc_xml(const struct topo* topo, char** text, size_t* bytes, struct topo_error* error) {
  const char* why;
  const struct hwloc_library* hwloc = hwloc_library_get(&why);
  hwloc_topology_t tree;
  char* exported = NULL;
  int length = 0;
  if (!hwloc) return topo_fail(error, "no hwloc XML can be written: %s", why);
  if (topo->tree && every_gpu_has_a_place(topo)) {
    if (hwloc->topology_dup(&tree, topo->tree)) return topo_fail(error, "hwloc_topology_dup failed");
  } else if (tree_of_model(hwloc, topo, &tree, error)) {
    return -1;
  }
  int result = nothing_is_lost(hwloc, tree, topo, error);
  if (!result && add_matrix(hwloc, tree, topo)) result = topo_fail(error, "hwloc does not take the matrix of NVLinks");
  if (!result && hwloc->topology_export_xmlbuffer(tree, &exported, &length, 0)) {
    result = topo_fail(error, "hwloc_topology_export_xmlbuffer failed");
  }
  if (!result) {
    char* copy = malloc((size_t)length + 1); /* hwloc's buffer is only for hwloc to free */
    if (copy) {
      memcpy(copy, exported, (size_t)length);
      copy[length] = '\0';
      *text = copy;
      *bytes = strlen(copy); /* hwloc counts its own NUL */
    } else {
      result = topo_fail(error, "out of memory for a topology's text");
    }
    hwloc->free_xmlbuffer(tree, exported);
  }
  hwloc->topology_destroy(tree);
  return result;
}
