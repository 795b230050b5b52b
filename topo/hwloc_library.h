/* SPDX-License-Identifier: Apache-2.0
 *
 * hwloc_library.h: hwloc's functions that are used, looked up in libhwloc when first needed, and what is made of this
 * machine with them.
 */
#ifndef ARFUSION_TOPO_HWLOC_LIBRARY_H_
#define ARFUSION_TOPO_HWLOC_LIBRARY_H_

#include "topo/hwloc_compat.h"
#include "topo/model.h"

struct hwloc_library {
  unsigned (*get_api_version)(void);
  int (*topology_init)(hwloc_topology_t*);
  int (*topology_load)(hwloc_topology_t);
  void (*topology_destroy)(hwloc_topology_t);
  int (*topology_set_flags)(hwloc_topology_t, unsigned long);
  int (*topology_set_io_types_filter)(hwloc_topology_t, enum hwloc_type_filter_e);
  int (*topology_set_components)(hwloc_topology_t, unsigned long, const char*);
  int (*topology_set_xmlbuffer)(hwloc_topology_t, const char*, int);
  int (*topology_export_xmlbuffer)(hwloc_topology_t, char**, int*, unsigned long);
  void (*free_xmlbuffer)(hwloc_topology_t, char*);
  int (*topology_dup)(hwloc_topology_t*, hwloc_topology_t);
  hwloc_obj_t (*get_obj_by_depth)(hwloc_topology_t, int, unsigned);
  compat_hwloc_add_info add_info;
  int (*bitmap_next)(hwloc_const_bitmap_t, int);
  void* (*distances_add_create)(hwloc_topology_t, const char*, unsigned long, unsigned long);
  int (*distances_add_values)(hwloc_topology_t, void*, unsigned, hwloc_obj_t*, hwloc_uint64_t*, unsigned long);
  int (*distances_add_commit)(hwloc_topology_t, void*, unsigned long);
};

/* The table, or NULL with *why a static text that says what is missing. Thread-safe. */
const struct hwloc_library* hwloc_library_get(const char** why);

/* This machine's NUMA nodes and PCI tree, which the model then keeps. */
void hwloc_read_live(struct topo_builder* builder);

void hwloc_tree_free(void* tree);

#endif
