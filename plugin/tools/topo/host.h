/* SPDX-License-Identifier: Apache-2.0
 *
 * host.h: what this host does to its GPUs beyond the topology: settings that name them, IOMMU, PCIe access control,
 * shared memory, virtualization. Facts only; the doctor judges them.
 */
#ifndef ARFUSION_TOPO_HOST_H_
#define ARFUSION_TOPO_HOST_H_

#include <stdint.h>

#include "topo/topo.h"

/* A variable that NCCL, CUDA or arfusion reads, from the first place that has it. */
struct host_setting {
  char name[64];
  char value[256];
  char where[420]; /* "environment", or "file NAME, line N" */
};

/* PCIe access control (ACS) of the bridges above GPUs. */
struct host_acs {
  int bridges;    /* above GPUs, each once */
  int unreadable; /* their ACS registers cannot be read: no right to, or not there in a virtual machine */
  int redirects;  /* peer requests are redirected to the host bridge */
  char example[TOPO_BUS_ID_BYTES]; /* one that redirects */
  unsigned control;                /* its ACS control register */
};

struct host {
  struct host_setting* settings; /* NCCL_*, ARFUSION_*, CUDA_VISIBLE_DEVICES, CUDA_DEVICE_ORDER */
  int nsettings;
  char conf_error[320]; /* NCCL_CONF_FILE cannot be read; "" */
  int shm_error;        /* errno of statvfs("/dev/shm"), or 0 */
  uint64_t shm_bytes, shm_free;
  int iommu_groups;       /* in which a GPU or a bridge above one is; -1: the kernel shows none at all */
  int iommu_translated;   /* of them, those whose type is not identity */
  char iommu_example[64]; /* "DMA-FQ of group 12" */
  struct host_acs acs;
  int hypervisor;   /* 1: a virtual machine; 0: none seen; -1: not observable */
  char product[96]; /* the machine's name by its firmware; "" */
  char nccl[192];   /* version of libnccl.so.2, or why there is none */
  int nccl_version; /* 22809; 0: not observable */
  char cpus[256];   /* that this process may run on: "0-95"; "" */
};

/* The settings alone; the rest of *host is 0. 0, or -1 when memory runs out. */
int host_read_settings(struct host* host);

/* Everything. Reads this host's, or that of a copy of its /sys, /dev and /proc below `root` ("" for this host).
 * Devices are those of `topo`. 0, or -1 when memory runs out. */
int host_read(const struct topo* topo, const char* root, struct host* host);
void host_free(struct host* host);

/* The value, or NULL. *where (may be NULL): where it is set. */
const char* host_setting_get(const struct host* host, const char* name, const char** where);

/* Takes UUIDs and host ids out of the settings' values. */
void host_redact(struct host* host);

#endif
