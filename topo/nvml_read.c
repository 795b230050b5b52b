/* SPDX-License-Identifier: Apache-2.0
 *
 * nvml_read.c: what NVML says of each GPU, its links and each pair. A call that fails leaves its fact not
 * observable; when it failed for another reason than that the GPU does not have such a thing, that is a finding.
 */
#include <stdio.h>
#include <string.h>

#include "topo/nvml_library.h"
#include "topo/one_line.h"

/* The numbers of sources, once for all GPUs. */
struct reader {
  struct topo_builder* builder;
  const struct nvml_library* nvml;
};

static uint16_t source_of(struct reader* reader, const char* call) {
  return topo_add_source(reader->builder, "%s", call);
}

/* Whether a call gave something. */
static int answered(struct reader* reader, int result, const char* call, const char* bus_id) {
  if (result == NVML_OK) return 1;
  if (result != NVML_NOT_SUPPORTED && result != NVML_INVALID_ARGUMENT) {
    topo_find(reader->builder, "nvml.call", TOPO_NOT_OBSERVABLE, 0, "", "%s of GPU %s: %s (%d)", call, bus_id,
              reader->nvml->ErrorString(result), result);
  }
  return 0;
}

/* ---------------------------------------------------------------- one GPU */

static void read_identity(struct reader* reader, struct topo_gpu* gpu, nvmlDevice_t device) {
  const struct nvml_library* nvml = reader->nvml;
  int major = 0, minor = 0;
  unsigned mig = 0, pending = 0;
  if (nvml->DeviceGetName) nvml->DeviceGetName(device, gpu->name, sizeof gpu->name);
  if (nvml->DeviceGetUUID) nvml->DeviceGetUUID(device, gpu->uuid, sizeof gpu->uuid);
  if (nvml->DeviceGetSerial) nvml->DeviceGetSerial(device, gpu->serial, sizeof gpu->serial);
  text_one_line(gpu->name);
  text_one_line(gpu->uuid);
  text_one_line(gpu->serial);
  const char* call = "nvmlDeviceGetCudaComputeCapability";
  if (nvml->DeviceGetCudaComputeCapability &&
      answered(reader, nvml->DeviceGetCudaComputeCapability(device, &major, &minor), call, gpu->bus_id)) {
    gpu->sm = topo_known(major * 10 + minor, source_of(reader, call));
  }
  call = "nvmlDeviceGetMigMode";
  gpu->mig = topo_unknown(source_of(reader, call));
  if (nvml->DeviceGetMigMode && answered(reader, nvml->DeviceGetMigMode(device, &mig, &pending), call, gpu->bus_id)) {
    gpu->mig.value = mig != 0;
    gpu->mig.state = mig ? TOPO_FAIL : TOPO_OK;
  }
}

enum { FABRIC_COMPLETED = 3 };

static void read_fabric(struct reader* reader, struct topo_gpu* gpu, nvmlDevice_t device) {
  static const char call[] = "nvmlDeviceGetGpuFabricInfoV";
  const uint16_t source = source_of(reader, call);
  struct nvml_fabric fabric = {.version = NVML_FABRIC_VERSION};
  gpu->fabric = gpu->fabric_status = gpu->fabric_health = gpu->clique = topo_unknown(source);
  if (!reader->nvml->DeviceGetGpuFabricInfoV ||
      !answered(reader, reader->nvml->DeviceGetGpuFabricInfoV(device, &fabric), call, gpu->bus_id)) {
    return;
  }
  const int good = fabric.state == 0 || (fabric.state == FABRIC_COMPLETED && fabric.status == NVML_OK);
  gpu->fabric = (struct topo_fact){.value = fabric.state, .source = source, .state = good ? TOPO_OK : TOPO_FAIL};
  if (fabric.state != FABRIC_COMPLETED) return; /* nothing else is valid before */
  gpu->fabric_status = good ? topo_known(0, source) : topo_failed(fabric.status, source);
  gpu->fabric_health = topo_known((int32_t)fabric.health, source);
  gpu->clique = topo_known((int32_t)fabric.clique, source);
  for (int i = 0; i < 16; ++i) snprintf(gpu->cluster + 2 * i, 3, "%02x", fabric.cluster[i]);
}

/* ---------------------------------------------------------------- its links */

static unsigned field_number(const struct nvml_field* field) {
  switch (field->type) {
    case 0: return (unsigned)field->value.real;
    case 2: return (unsigned)field->value.ulong;
    case 3:
    case 4: return (unsigned)field->value.u64;
    case 6: return field->value.u16;
    default: return field->value.u32;
  }
}

/* Of each link: NVML_LINK_..., or -1 where there is none. From sm_90 on a link can also sleep. Returns whether anything
 * answered; the call that did in *call. */
static int read_states(const struct reader* reader, const struct topo_gpu* gpu, nvmlDevice_t device, int* states,
                       const char** call) {
  const struct nvml_library* nvml = reader->nvml;
  struct nvml_field fields[NVML_MOST_LINKS];
  int seen = 0;
  for (int l = 0; l < NVML_MOST_LINKS; ++l) states[l] = -1;
  if (gpu->sm.value >= 90 && nvml->DeviceGetFieldValues) {
    memset(fields, 0, sizeof fields);
    for (unsigned l = 0; l < NVML_MOST_LINKS; ++l) {
      fields[l].field = NVML_FIELD_LINK_STATE;
      fields[l].scope = l;
    }
    *call = "nvmlDeviceGetFieldValues(NVLINK_GET_STATE)";
    const int result = nvml->DeviceGetFieldValues(device, NVML_MOST_LINKS, fields);
    for (int l = 0; result == NVML_OK && l < NVML_MOST_LINKS; ++l) {
      if (fields[l].result != NVML_OK) continue;
      states[l] = (int)field_number(&fields[l]);
      ++seen;
    }
    if (seen) return 1;
  }
  *call = "nvmlDeviceGetNvLinkState";
  for (unsigned l = 0; l < NVML_MOST_LINKS; ++l) {
    unsigned active = 0;
    const int result = nvml->DeviceGetNvLinkState(device, l, &active);
    if (result == NVML_OK) {
      states[l] = active ? NVML_LINK_ACTIVE : NVML_LINK_INACTIVE;
      seen = 1;
    } else if (result == NVML_NOT_SUPPORTED || result == NVML_INVALID_ARGUMENT) {
      seen = 1; /* there is no such link: that is an answer */
    }
  }
  return seen;
}

static enum topo_remote remote_of(const struct reader* reader, nvmlDevice_t device, unsigned link) {
  int type = 255;
  if (!reader->nvml->DeviceGetNvLinkRemoteDeviceType ||
      reader->nvml->DeviceGetNvLinkRemoteDeviceType(device, link, &type) != NVML_OK) {
    return TOPO_REMOTE_UNKNOWN;
  }
  return type == 0   ? TOPO_REMOTE_GPU
         : type == 1 ? TOPO_REMOTE_CPU
         : type == 2 ? TOPO_REMOTE_SWITCH
                     : TOPO_REMOTE_UNKNOWN;
}

/* Where a link ends: a bus id in key form, or "" where nothing shows it. Virtual machines give all ones. */
static void target_of(const struct reader* reader, nvmlDevice_t device, unsigned link, char target[TOPO_BUS_ID_BYTES]) {
  struct nvml_pci pci = {0};
  target[0] = '\0';
  if (!reader->nvml->DeviceGetNvLinkRemotePciInfo ||
      reader->nvml->DeviceGetNvLinkRemotePciInfo(device, link, &pci) != NVML_OK) {
    return;
  }
  if (pci.bus_id[0] == '\0' || topo_bus_id_parse(pci.bus_id, target) || topo_bus_id_hidden(target)) target[0] = '\0';
}

static void read_link_speed(struct reader* reader, struct topo_gpu* gpu, nvmlDevice_t device, unsigned link) {
  const struct nvml_library* nvml = reader->nvml;
  struct nvml_field field = {.field = NVML_FIELD_LINK_SPEED, .scope = link};
  unsigned version = 0;
  if (nvml->DeviceGetFieldValues && nvml->DeviceGetFieldValues(device, 1, &field) == NVML_OK &&
      field.result == NVML_OK && field_number(&field) > 0) {
    gpu->nvlink_speed = topo_known((int32_t)field_number(&field),
                                   source_of(reader, "nvmlDeviceGetFieldValues(NVLINK_GET_SPEED)"));
  }
  static const int marketing[] = {0, 1, 2, 2, 3, 3, 4, 5, 6}; /* NVML counts 2.2 and 3.1 as versions of their own */
  if (nvml->DeviceGetNvLinkVersion && nvml->DeviceGetNvLinkVersion(device, link, &version) == NVML_OK &&
      version < sizeof marketing / sizeof marketing[0] && version > 0) {
    gpu->nvlink_version = topo_known(marketing[version], source_of(reader, "nvmlDeviceGetNvLinkVersion"));
  }
}

static void read_links(struct reader* reader, int g, nvmlDevice_t device) {
  struct topo* topo = reader->builder->topo;
  int states[NVML_MOST_LINKS], first = 1;
  const char* call;
  const int seen = read_states(reader, &topo->gpus[g], device, states, &call);
  const uint16_t source = source_of(reader, call);
  topo->gpus[g].nvlink_active = seen ? topo_known(0, source) : topo_unknown(source);
  const uint16_t remote_source = source_of(reader, "nvmlDeviceGetNvLinkRemotePciInfo_v2");
  for (unsigned l = 0; l < NVML_MOST_LINKS; ++l) {
    char target[TOPO_BUS_ID_BYTES] = "";
    if (states[l] < 0) continue;
    const int up = states[l] != NVML_LINK_INACTIVE; /* a sleeping one wakes up when it is used */
    enum topo_remote remote = TOPO_REMOTE_UNKNOWN;
    if (up) {
      remote = remote_of(reader, device, l);
      target_of(reader, device, l, target);
      if (first) read_link_speed(reader, &topo->gpus[g], device, l);
      first = 0;
    }
    topo_add_links(reader->builder, g, remote, target, up, !up, remote_source);
  }
}

/* ---------------------------------------------------------------- all GPUs */

/* GPUs of the PCI tree that NVML does not show belong to somebody else: they stay in the tree and are no GPUs of
 * ours. */
static void drop_hidden(struct topo_builder* builder) {
  struct topo* topo = builder->topo;
  int kept = 0;
  for (int g = 0; g < topo->ngpus; ++g) {
    struct topo_gpu* gpu = &topo->gpus[g];
    if (gpu->nvml.state == TOPO_OK) {
      if (gpu->device >= 0) topo->devices[gpu->device].index = kept;
      topo->gpus[kept++] = *gpu;
      continue;
    }
    topo->devices[gpu->device].index = -1;
    topo_find(builder, "gpu.hidden", TOPO_NOT_OBSERVABLE, 0, "",
              "GPU %s is in the PCI tree, but NVML does not show it: it is not for this container or user",
              gpu->bus_id);
  }
  topo->ngpus = kept;
}

static void read_gpu(struct reader* reader, unsigned index) {
  struct topo* topo = reader->builder->topo;
  nvmlDevice_t device;
  struct nvml_pci pci = {0};
  char bus_id[TOPO_BUS_ID_BYTES], name[24];
  snprintf(name, sizeof name, "number %u", index);
  if (!answered(reader, reader->nvml->DeviceGetHandleByIndex(index, &device), "nvmlDeviceGetHandleByIndex", name))
    return;
  if (!answered(reader, reader->nvml->DeviceGetPciInfo(device, &pci), "nvmlDeviceGetPciInfo", name)) return;
  if (topo_bus_id_parse(pci.bus_id, bus_id)) return;
  int g = topo_gpu_by_bus_id(topo, bus_id);
  if (g < 0) g = topo_add_gpu(reader->builder, bus_id, -1);
  if (g < 0) return;
  struct topo_gpu* gpu = &topo->gpus[g];
  gpu->nvml = topo_known((int32_t)index, source_of(reader, "nvmlDeviceGetHandleByIndex"));
  read_identity(reader, gpu, device);
  read_fabric(reader, gpu, device);
  read_links(reader, g, device);
}

void nvml_read_gpus(struct topo_builder* builder, const struct nvml_library* nvml, const char* why,
                    struct nvml_session* session) {
  struct reader reader = {builder, nvml};
  struct topo* topo = builder->topo;
  unsigned count = 0;
  session->nvml = NULL;
  if (!nvml) {
    topo_find(builder, "nvml.open", TOPO_NOT_OBSERVABLE, 0, "", "%s", why);
    return;
  }
  const int result = nvml->Init();
  if (result != NVML_OK) {
    topo_find(builder, "nvml.open", TOPO_NOT_OBSERVABLE, 0, "", "nvmlInit: %s (%d)", nvml->ErrorString(result), result);
    return;
  }
  session->nvml = nvml;
  if (nvml->SystemGetDriverVersion) nvml->SystemGetDriverVersion(topo->driver, sizeof topo->driver);
  text_one_line(topo->driver);
  if (!answered(&reader, nvml->DeviceGetCount(&count), "nvmlDeviceGetCount", "-")) return;
  for (unsigned i = 0; i < count && i < TOPO_MOST_GPUS; ++i) read_gpu(&reader, i);
  drop_hidden(builder);
}

/* ---------------------------------------------------------------- pairs */

static struct topo_fact read_p2p(struct reader* reader, nvmlDevice_t from, nvmlDevice_t to, int what, uint16_t source) {
  int status = TOPO_P2P_UNKNOWN;
  if (!reader->nvml->DeviceGetP2PStatus || reader->nvml->DeviceGetP2PStatus(from, to, what, &status) != NVML_OK ||
      status >= TOPO_P2P_UNKNOWN || status < 0) {
    return topo_unknown(source);
  }
  return status == TOPO_P2P_OK ? topo_known(status, source) : topo_failed(status, source);
}

static void read_pair(struct reader* reader, nvmlDevice_t from, nvmlDevice_t to, struct topo_pair* pair) {
  const uint16_t p2p = source_of(reader, "nvmlDeviceGetP2PStatus");
  pair->p2p_read = read_p2p(reader, from, to, NVML_P2P_READ, p2p);
  pair->p2p_write = read_p2p(reader, from, to, NVML_P2P_WRITE, p2p);
  pair->p2p_nvlink = read_p2p(reader, from, to, NVML_P2P_NVLINK, p2p);
  pair->p2p_atomics = read_p2p(reader, from, to, NVML_P2P_ATOMICS, p2p);
  int level = 0;
  if (!reader->nvml->DeviceGetTopologyCommonAncestor ||
      reader->nvml->DeviceGetTopologyCommonAncestor(from, to, &level) != NVML_OK || level < 0 || level > 50) {
    return;
  }
  pair->pcie = topo_known(level / 10, source_of(reader, "nvmlDeviceGetTopologyCommonAncestor"));
}

void nvml_read_pairs(struct topo_builder* builder, struct nvml_session* session) {
  struct reader reader = {builder, session->nvml};
  struct topo* topo = builder->topo;
  if (!session->nvml) return;
  for (int g = 0; g < topo->ngpus; ++g) {
    session->handles[g] = NULL;
    if (topo->gpus[g].nvml.state == TOPO_OK) {
      session->nvml->DeviceGetHandleByIndex((unsigned)topo->gpus[g].nvml.value, &session->handles[g]);
    }
  }
  for (int a = 0; a < topo->ngpus && topo->pairs; ++a) {
    for (int b = 0; b < topo->ngpus; ++b) {
      if (a == b || !session->handles[a] || !session->handles[b]) continue;
      read_pair(&reader, session->handles[a], session->handles[b], &topo->pairs[a * topo->ngpus + b]);
    }
  }
  session->nvml->Shutdown();
  session->nvml = NULL;
}
