/* SPDX-License-Identifier: Apache-2.0
 *
 * hwloc_compat.h: every difference between hwloc's versions that this project knows of. hwloc 2.5 and up.
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
#define COMPAT_HWLOC_IS_NETWORK(type) ((type) == HWLOC_OBJ_OSDEV_NETWORK || (type) == HWLOC_OBJ_OSDEV_OPENFABRICS)
#else
#define COMPAT_HWLOC_SONAME "libhwloc.so" /* whose version is checked as every other one's is */
#define COMPAT_HWLOC_BANDWIDTH (HWLOC_DISTANCES_KIND_FROM_USER | HWLOC_DISTANCES_KIND_VALUE_BANDWIDTH)
#define COMPAT_HWLOC_IS_NETWORK(type) (((type) & (HWLOC_OBJ_OSDEV_NETWORK | HWLOC_OBJ_OSDEV_OPENFABRICS)) != 0)
#endif

/* Its structs are those that we were compiled with. */
#define COMPAT_HWLOC_SAME_ABI(version) ((version) >> 16 == HWLOC_API_VERSION >> 16)

#endif
