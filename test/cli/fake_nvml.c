/* SPDX-License-Identifier: Apache-2.0
 *
 * fake_nvml.c: the fake NVML as a libnvidia-ml.so.1. FAKE_NVML="NAME=NUMBER ..." changes the machine.
 */
#include <stdlib.h>

#include "test/unit/fake_nvml.h"

int nvmlInit_v2(void) {
  const struct {
    const char* name;
    int* value;
  } fields[] = {{"gpus", &machine.ngpus},
                {"links", &machine.links},
                {"fewer", &machine.fewer},
                {"fabric", &machine.fabric_state},
                {"sm", &machine.sm},
                {"mig", &machine.mig},
                {"nvlink", &machine.nvlink_status},
                {"write", &machine.write_status[0][1]}};
  machine_reset();
  for (const char* at = getenv("FAKE_NVML"); at != NULL && *at != '\0'; at += strcspn(at, " "), at += *at == ' ') {
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
      size_t length = strlen(fields[i].name);
      if (strncmp(at, fields[i].name, length) == 0 && at[length] == '=') *fields[i].value = atoi(at + length + 1);
    }
  }
  return fake_init();
}

const char* nvmlErrorString(int result) { return fake_error(result); }
int nvmlShutdown(void) { return fake_shutdown(); }
int nvmlDeviceGetCount_v2(unsigned* count) { return fake_count(count); }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t* device) { return fake_handle(index, device); }
int nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, struct nvml_pci* pci) { return fake_pci(device, pci); }
int nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned link, unsigned* active) {
  return fake_link_state(device, link, active);
}
int nvmlSystemGetDriverVersion(char* text, unsigned bytes) { return fake_driver(text, bytes); }
int nvmlDeviceGetName(nvmlDevice_t device, char* text, unsigned bytes) { return fake_name(device, text, bytes); }
int nvmlDeviceGetUUID(nvmlDevice_t device, char* text, unsigned bytes) { return fake_uuid(device, text, bytes); }
int nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int* major, int* minor) {
  return fake_sm(device, major, minor);
}
int nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned* now, unsigned* next) { return fake_mig(device, now, next); }
int nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, struct nvml_fabric* fabric) { return fake_fabric(device, fabric); }
int nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, struct nvml_field* fields) {
  return fake_fields(device, count, fields);
}
int nvmlDeviceGetNvLinkVersion(nvmlDevice_t device, unsigned link, unsigned* version) {
  return fake_link_version(device, link, version);
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned link, struct nvml_pci* pci) {
  return fake_remote_pci(device, link, pci);
}
int nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned link, int* type) {
  return fake_remote_type(device, link, type);
}
int nvmlDeviceGetP2PStatus(nvmlDevice_t from, nvmlDevice_t to, int what, int* status) {
  return fake_p2p(from, to, what, status);
}
int nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t from, nvmlDevice_t to, int* level) {
  return fake_ancestor(from, to, level);
}
