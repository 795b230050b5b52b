/* SPDX-License-Identifier: Apache-2.0
 *
 * nvml_library.c: see nvml_library.h.
 */
#include "topo/nvml_library.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static struct nvml_library table;
static char missing[160];
static pthread_once_t once = PTHREAD_ONCE_INIT;

#define ENTRY(name, suffix) {"nvml" #name suffix, offsetof(struct nvml_library, name)}
static const struct {
  const char* symbol;
  size_t offset;
} entries[] = {
    ENTRY(Init, "_v2"),
    ENTRY(Shutdown, ""),
    ENTRY(ErrorString, ""),
    ENTRY(DeviceGetCount, "_v2"),
    ENTRY(DeviceGetHandleByIndex, "_v2"),
    ENTRY(DeviceGetPciInfo, "_v3"),
    ENTRY(DeviceGetNvLinkState, ""),
    ENTRY(SystemGetDriverVersion, ""),
    ENTRY(DeviceGetName, ""),
    ENTRY(DeviceGetUUID, ""),
    ENTRY(DeviceGetSerial, ""),
    ENTRY(DeviceGetCudaComputeCapability, ""),
    ENTRY(DeviceGetMigMode, ""),
    ENTRY(DeviceGetGpuFabricInfoV, ""),
    ENTRY(DeviceGetFieldValues, ""),
    ENTRY(DeviceGetNvLinkVersion, ""),
    ENTRY(DeviceGetNvLinkRemotePciInfo, "_v2"),
    ENTRY(DeviceGetNvLinkRemoteDeviceType, ""),
    ENTRY(DeviceGetP2PStatus, ""),
    ENTRY(DeviceGetTopologyCommonAncestor, ""),
};
enum { NEEDED = 7 };

static void look_up(void) {
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    snprintf(missing, sizeof missing,
             "libnvidia-ml.so.1 cannot be opened: no NVIDIA driver, or a container without it");
    return;
  }
  for (size_t i = 0; i < sizeof entries / sizeof entries[0]; ++i) {
    void* function = dlsym(library, entries[i].symbol);
    if (!function && i < NEEDED) {
      snprintf(missing, sizeof missing, "libnvidia-ml.so.1 has no %s: the driver is too old", entries[i].symbol);
      return;
    }
    memcpy((unsigned char*)&table + entries[i].offset, &function, sizeof function);
  }
}

const struct nvml_library* nvml_library_get(const char** why) {
  pthread_once(&once, look_up);
  *why = missing;
  return missing[0] ? NULL : &table;
}
