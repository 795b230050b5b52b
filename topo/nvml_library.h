/* SPDX-License-Identifier: Apache-2.0
 *
 * nvml_library.h: NVML's functions that are used, with declarations of our own: its header is not needed to build and
 * libnvidia-ml.so.1 is opened when first needed.
 */
#ifndef ARFUSION_TOPO_NVML_LIBRARY_H_
#define ARFUSION_TOPO_NVML_LIBRARY_H_

#include "topo/model.h"

typedef struct nvmlDevice_st* nvmlDevice_t;

enum nvml_return { NVML_OK = 0, NVML_INVALID_ARGUMENT = 2, NVML_NOT_SUPPORTED = 3 };

struct nvml_pci {
  char legacy_bus_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};

union nvml_value {
  double real;
  unsigned u32;
  unsigned long ulong;
  unsigned long long u64;
  long long s64;
  int s32;
  unsigned short u16;
};

struct nvml_field {
  unsigned field, scope;
  long long timestamp, latency;
  unsigned type;
  int result; /* enum nvml_return of this field */
  union nvml_value value;
};

struct nvml_fabric {
  unsigned version;
  unsigned char cluster[16];
  int status;
  unsigned clique;
  unsigned char state;
  unsigned health;
};
#define NVML_FABRIC_VERSION ((unsigned)sizeof(struct nvml_fabric) | 2u << 24)

enum { NVML_FIELD_LINK_SPEED = 164, NVML_FIELD_LINK_STATE = 165 };
enum { NVML_LINK_INACTIVE = 0, NVML_LINK_ACTIVE = 1, NVML_LINK_SLEEPING = 2 };
enum { NVML_P2P_READ = 0, NVML_P2P_WRITE = 1, NVML_P2P_NVLINK = 2, NVML_P2P_ATOMICS = 3 };
enum { NVML_MOST_LINKS = 36 };

/* A function that an older driver does not have is NULL, all but the first seven. */
struct nvml_library {
  int (*Init)(void);
  int (*Shutdown)(void);
  const char* (*ErrorString)(int);
  int (*DeviceGetCount)(unsigned*);
  int (*DeviceGetHandleByIndex)(unsigned, nvmlDevice_t*);
  int (*DeviceGetPciInfo)(nvmlDevice_t, struct nvml_pci*);
  int (*DeviceGetNvLinkState)(nvmlDevice_t, unsigned, unsigned*);
  int (*SystemGetDriverVersion)(char*, unsigned);
  int (*DeviceGetName)(nvmlDevice_t, char*, unsigned);
  int (*DeviceGetUUID)(nvmlDevice_t, char*, unsigned);
  int (*DeviceGetSerial)(nvmlDevice_t, char*, unsigned);
  int (*DeviceGetCudaComputeCapability)(nvmlDevice_t, int*, int*);
  int (*DeviceGetMigMode)(nvmlDevice_t, unsigned*, unsigned*);
  int (*DeviceGetGpuFabricInfoV)(nvmlDevice_t, struct nvml_fabric*);
  int (*DeviceGetFieldValues)(nvmlDevice_t, int, struct nvml_field*);
  int (*DeviceGetNvLinkVersion)(nvmlDevice_t, unsigned, unsigned*);
  int (*DeviceGetNvLinkRemotePciInfo)(nvmlDevice_t, unsigned, struct nvml_pci*);
  int (*DeviceGetNvLinkRemoteDeviceType)(nvmlDevice_t, unsigned, int*);
  int (*DeviceGetP2PStatus)(nvmlDevice_t, nvmlDevice_t, int, int*);
  int (*DeviceGetTopologyCommonAncestor)(nvmlDevice_t, nvmlDevice_t, int*);
};

/* The table, or NULL with *why a static text. Thread-safe. */
const struct nvml_library* nvml_library_get(const char** why);

/* What is kept between the two halves of reading. */
struct nvml_session {
  const struct nvml_library* nvml; /* NULL: there is none, and the model says so */
  nvmlDevice_t handles[TOPO_MOST_GPUS];
};

/* The GPUs and their links, before topo_derive; the pairs, after it; then the end of the session. `nvml` NULL: none,
 * for the reason `why`. */
void nvml_read_gpus(struct topo_builder* builder, const struct nvml_library* nvml, const char* why,
                    struct nvml_session* session);
void nvml_read_pairs(struct topo_builder* builder, struct nvml_session* session);

#endif
