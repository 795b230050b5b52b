/* SPDX-License-Identifier: Apache-2.0
 *
 * fake_nvml.h: an NVML that answers as the machine that `machine` describes: at first two H200s of a virtual machine.
 */
#ifndef ARFUSION_TEST_FAKE_NVML_H_
#define ARFUSION_TEST_FAKE_NVML_H_

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "topo/nvml_library.h"

enum { MOST = 4, GPU_IS_LOST = 15 };

static struct {
  int ngpus, links; /* of each GPU */
  int sleeping;     /* how many of them sleep */
  int fewer;        /* links that the last GPU lacks */
  int remote;       /* nvmlIntNvLinkDeviceType_t */
  const char* target;
  const char* tail; /* of all texts */
  int write_status[MOST][MOST], nvlink_status;
  int fabric_state, fabric_status;
  int sm, mig, init, names_fail;
} machine;

static void machine_reset(void) {
  memset(&machine, 0, sizeof machine);
  machine.ngpus = 2;
  machine.links = 18;
  machine.remote = 2;
  machine.target = "FFFFFFFF:FF:FF.0";
  machine.tail = "";
  machine.fabric_state = 3;
  machine.sm = 90;
}

static int index_of(nvmlDevice_t device) { return (int)(intptr_t)device - 1; }
static int links_of(nvmlDevice_t device) {
  return machine.links - (index_of(device) == machine.ngpus - 1 ? machine.fewer : 0);
}

static int fake_init(void) { return machine.init; }
static int fake_shutdown(void) { return NVML_OK; }
static const char* fake_error(int result) { return result == GPU_IS_LOST ? "GPU is lost" : "an error"; }
static int fake_count(unsigned* count) {
  *count = (unsigned)machine.ngpus;
  return NVML_OK;
}
static int fake_handle(unsigned index, nvmlDevice_t* device) {
  *device = (nvmlDevice_t)(intptr_t)(index + 1);
  return NVML_OK;
}
static int fake_pci(nvmlDevice_t device, struct nvml_pci* pci) { /* the second of the bus comes first */
  snprintf(pci->bus_id, sizeof pci->bus_id, "00000000:00:%02X.0", 6 + machine.ngpus - 1 - index_of(device));
  return NVML_OK;
}
static int fake_link_state(nvmlDevice_t device, unsigned link, unsigned* active) {
  if (link >= 18) return NVML_INVALID_ARGUMENT;
  if ((int)link >= links_of(device)) return NVML_NOT_SUPPORTED;
  *active = 1;
  return NVML_OK;
}
static int fake_driver(char* text, unsigned bytes) {
  snprintf(text, bytes, "580.159.04%s", machine.tail);
  return NVML_OK;
}
static int fake_name(nvmlDevice_t device, char* text, unsigned bytes) {
  (void)device;
  snprintf(text, bytes, "NVIDIA H200%s", machine.tail);
  return NVML_OK;
}
static int fake_uuid(nvmlDevice_t device, char* text, unsigned bytes) {
  snprintf(text, bytes, "GPU-%d%s", index_of(device), machine.tail);
  return NVML_OK;
}
static int fake_sm(nvmlDevice_t device, int* major, int* minor) {
  (void)device;
  if (machine.names_fail) return GPU_IS_LOST;
  *major = machine.sm / 10;
  *minor = machine.sm % 10;
  return NVML_OK;
}
static int fake_mig(nvmlDevice_t device, unsigned* current, unsigned* pending) {
  (void)device;
  *current = *pending = (unsigned)machine.mig;
  return NVML_OK;
}
static int fake_fabric(nvmlDevice_t device, struct nvml_fabric* fabric) {
  (void)device;
  if (fabric->version != 0x2000024) return NVML_INVALID_ARGUMENT;
  fabric->state = (unsigned char)machine.fabric_state;
  fabric->status = machine.fabric_status;
  fabric->clique = 7;
  return NVML_OK;
}
static int fake_fields(nvmlDevice_t device, int count, struct nvml_field* fields) {
  for (int i = 0; i < count; ++i) {
    const int there = (int)fields[i].scope < links_of(device);
    fields[i].result = there ? NVML_OK : NVML_NOT_SUPPORTED;
    fields[i].type = 1;
    if (fields[i].field == NVML_FIELD_LINK_SPEED) fields[i].value.u32 = 26562;
    if (fields[i].field == NVML_FIELD_LINK_STATE) {
      fields[i].value.u32 = (int)fields[i].scope < machine.sleeping ? NVML_LINK_SLEEPING : NVML_LINK_ACTIVE;
    }
  }
  return NVML_OK;
}
static int fake_link_version(nvmlDevice_t device, unsigned link, unsigned* version) {
  (void)device, (void)link;
  *version = 6;
  return NVML_OK;
}
static int fake_remote_pci(nvmlDevice_t device, unsigned link, struct nvml_pci* pci) {
  (void)device, (void)link;
  if (!machine.target) return NVML_NOT_SUPPORTED;
  snprintf(pci->bus_id, sizeof pci->bus_id, "%s", machine.target);
  return NVML_OK;
}
static int fake_remote_type(nvmlDevice_t device, unsigned link, int* type) {
  (void)device, (void)link;
  *type = machine.remote;
  return NVML_OK;
}
static int fake_p2p(nvmlDevice_t from, nvmlDevice_t to, int what, int* status) {
  *status = what == NVML_P2P_WRITE     ? machine.write_status[index_of(from)][index_of(to)]
            : what == NVML_P2P_NVLINK ? machine.nvlink_status
                                      : 0;
  return NVML_OK;
}
static int fake_ancestor(nvmlDevice_t from, nvmlDevice_t to, int* level) {
  (void)from, (void)to;
  *level = 30;
  return NVML_OK;
}

#endif
