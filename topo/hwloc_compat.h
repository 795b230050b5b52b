/* SPDX-License-Identifier: Apache-2.0
 *
 * hwloc_compat.h: every difference between hwloc's versions that matters here. hwloc 2.5 and up; compiles with the
 * headers of 2.5, 2.9, 2.10 and 3.0.
 *
 * libhwloc is opened when it is first needed, as NVML is: a program that loads the plugin starts on a machine
 * without it, Debian's static libhwloc.a cannot go into a shared object (it is not position-independent) and would
 * bring libudev along, and one build serves all of hwloc 2, whose soname and structs are the same.
 */
#ifndef ARFUSION_TOPO_HWLOC_COMPAT_H_
#define ARFUSION_TOPO_HWLOC_COMPAT_H_

#include <hwloc.h>

#if HWLOC_API_VERSION < 0x00020500
#error "hwloc 2.5 or newer is needed"
#elif HWLOC_API_VERSION < 0x00030000
#define COMPAT_HWLOC_SONAME "libhwloc.so.15"
#define COMPAT_HWLOC_BANDWIDTH (HWLOC_DISTANCES_KIND_FROM_USER | HWLOC_DISTANCES_KIND_MEANS_BANDWIDTH)
#define COMPAT_HWLOC_IS_NETWORK(object)                     \
  ((object)->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK || \
   (object)->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS)
#define COMPAT_HWLOC_INFOS(object) ((object)->infos)
#define COMPAT_HWLOC_INFO_COUNT(object) ((object)->infos_count)
#define COMPAT_HWLOC_ADD_INFO "hwloc_obj_add_info"
typedef int (*compat_hwloc_add_info)(hwloc_obj_t, const char*, const char*);
static inline int compat_hwloc_info(compat_hwloc_add_info add, hwloc_obj_t object, const char* name,
                                    const char* value) {
  return add(object, name, value);
}
#else
#define COMPAT_HWLOC_SONAME "libhwloc.so" /* whose version is checked as every other one's is */
#define COMPAT_HWLOC_BANDWIDTH (HWLOC_DISTANCES_KIND_FROM_USER | HWLOC_DISTANCES_KIND_VALUE_BANDWIDTH)
#define COMPAT_HWLOC_IS_NETWORK(object) \
  (((object)->attr->osdev.types & (HWLOC_OBJ_OSDEV_NETWORK | HWLOC_OBJ_OSDEV_OPENFABRICS)) != 0)
#define COMPAT_HWLOC_INFOS(object) ((object)->infos.array)
#define COMPAT_HWLOC_INFO_COUNT(object) ((object)->infos.count)
#define COMPAT_HWLOC_ADD_INFO "hwloc_modify_infos" /* hwloc_obj_add_info is inline */
typedef int (*compat_hwloc_add_info)(struct hwloc_infos_s*, unsigned long, const char*, const char*);
static inline int compat_hwloc_info(compat_hwloc_add_info add, hwloc_obj_t object, const char* name,
                                    const char* value) {
  return add(&object->infos, HWLOC_MODIFY_INFOS_OP_ADD, name, value) < 0;
}
#endif

/* Its structs are those that we were compiled with. */
#define COMPAT_HWLOC_SAME_ABI(version) ((version) >> 16 == HWLOC_API_VERSION >> 16)

#endif
