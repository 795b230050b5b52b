/* SPDX-License-Identifier: Apache-2.0
 *
 * hwloc_library.c: see hwloc_library.h.
 */
#include "topo/hwloc_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static struct hwloc_library table;
static char missing[160];
static pthread_once_t once = PTHREAD_ONCE_INIT;

#define ENTRY(name) {"hwloc_" #name, offsetof(struct hwloc_library, name)}
static const struct {
  const char* symbol;
  size_t offset;
} entries[] = {
    ENTRY(get_api_version),          ENTRY(topology_init),
    ENTRY(topology_load),            ENTRY(topology_destroy),
    ENTRY(topology_set_flags),       ENTRY(topology_set_io_types_filter),
    ENTRY(topology_set_components),  ENTRY(topology_set_xmlbuffer),
    ENTRY(topology_export_xmlbuffer), ENTRY(free_xmlbuffer),
    ENTRY(topology_dup),             ENTRY(get_obj_by_depth),
    {COMPAT_HWLOC_ADD_INFO, offsetof(struct hwloc_library, add_info)},
    ENTRY(bitmap_next),
    ENTRY(distances_add_create),     ENTRY(distances_add_values),
    ENTRY(distances_add_commit),
};

static void look_up(void) {
  void* library = dlopen(COMPAT_HWLOC_SONAME, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    snprintf(missing, sizeof missing, COMPAT_HWLOC_SONAME " cannot be opened: install hwloc (Debian: libhwloc15)");
    return;
  }
  for (size_t i = 0; i < sizeof entries / sizeof entries[0]; ++i) {
    void* function = dlsym(library, entries[i].symbol);
    if (!function) {
      snprintf(missing, sizeof missing, COMPAT_HWLOC_SONAME " has no %s: hwloc 2.5 or newer is needed",
               entries[i].symbol);
      return;
    }
    memcpy((unsigned char*)&table + entries[i].offset, &function, sizeof function);
  }
  if (!COMPAT_HWLOC_SAME_ABI(table.get_api_version())) {
    snprintf(missing, sizeof missing, COMPAT_HWLOC_SONAME " is of version %x, this program was built for %x",
             table.get_api_version(), HWLOC_API_VERSION);
  }
}

const struct hwloc_library* hwloc_library_get(const char** why) {
  pthread_once(&once, look_up);
  *why = missing;
  return missing[0] ? NULL : &table;
}

void hwloc_tree_free(void* tree) {
  const char* why;
  const struct hwloc_library* hwloc = hwloc_library_get(&why);
  if (hwloc) hwloc->topology_destroy(tree);
}
