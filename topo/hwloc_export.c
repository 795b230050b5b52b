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

static hwloc_obj_t object_of(const struct hwloc_library* hwloc, hwloc_topology_t tree, const char* bus_id) {
  char text[TOPO_BUS_ID_BYTES];
  hwloc_obj_t object;
  for (unsigned i = 0; (object = hwloc->get_obj_by_depth(tree, HWLOC_TYPE_DEPTH_PCI_DEVICE, i)); ++i) {
    const struct hwloc_pcidev_attr_s* pci = &object->attr->pcidev;
    snprintf(text, sizeof text, "%04x:%02x:%02x.%x", (unsigned)pci->domain, pci->bus, pci->dev, pci->func);
    if (strcmp(text, bus_id) == 0) return object;
  }
  return NULL;
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

/* Of the GPUs that have a place in the tree; hwloc takes no matrix of fewer than two objects. */
static int add_matrix(const struct hwloc_library* hwloc, hwloc_topology_t tree, const struct topo* topo) {
  const size_t most = (size_t)topo->ngpus + 1;
  hwloc_obj_t* objects = calloc(most, sizeof *objects);
  int* gpus = calloc(most, sizeof *gpus);
  hwloc_uint64_t* values = calloc(most * most, sizeof *values);
  unsigned n = 0;
  int result = objects && gpus && values ? 0 : -1;
  for (int g = 0; g < topo->ngpus && !result; ++g) {
    objects[n] = object_of(hwloc, tree, topo->gpus[g].bus_id);
    if (!objects[n]) continue;
    gpus[n] = g;
    result = add_infos(hwloc, objects[n++], &topo->gpus[g]);
  }
  for (unsigned a = 0; a < n && !result; ++a) {
    for (unsigned b = 0; b < n; ++b) {
      values[a * n + b] = a == b ? DIAGONAL : (hwloc_uint64_t)topo_pair(topo, gpus[a], gpus[b])->nvlink_raw.value;
    }
  }
  if (!result && n > 1) {
    void* handle = hwloc->distances_add_create(tree, TOPO_DISTANCES_NAME, COMPAT_HWLOC_BANDWIDTH, 0);
    result = handle && !hwloc->distances_add_values(tree, handle, n, objects, values, 0) &&
                     !hwloc->distances_add_commit(tree, handle, 0)
                 ? 0
                 : -1;
  }
  free(values);
  free(gpus);
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
  int result = 0;
  if (add_matrix(hwloc, tree, topo)) result = topo_fail(error, "hwloc does not take the matrix of NVLinks");
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
