/* SPDX-License-Identifier: Apache-2.0
 *
 * host.c: what this host does to its GPUs; see host.h.
 */
#include "plugin/tools/topo/host.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "plugin/core/conf.h"
#include "plugin/tools/topo/redact.h"

#define MOST_SETTINGS 1000

/* One line of a small file, without its end. 0, or -1. */
static int line_read(const char* root, const char* path, char* line, size_t bytes) {
  char full[4200];
  snprintf(full, sizeof(full), "%s%s", root, path);
  FILE* file = fopen(full, "re");
  int found = file != NULL && fgets(line, (int)bytes, file) != NULL;
  if (file != NULL) fclose(file);
  if (!found) return -1;
  line[strcspn(line, "\n")] = '\0';
  return 0;
}

/* What follows `key` and spaces or colons in the first line that begins with it. 0, or -1. */
static int entry_read(const char* root, const char* path, const char* key, char* value, size_t bytes) {
  char full[4200];
  char* line = NULL;
  size_t capacity = 0;
  int found = 0;
  snprintf(full, sizeof(full), "%s%s", root, path);
  FILE* file = fopen(full, "re");
  while (file != NULL && !found && getline(&line, &capacity, file) >= 0) {
    if (strncmp(line, key, strlen(key)) != 0) continue;
    const char* at = line + strlen(key);
    at += strspn(at, " \t:");
    snprintf(value, bytes, "%.*s", (int)strcspn(at, "\n"), at);
    found = 1;
  }
  free(line);
  if (file != NULL) fclose(file);
  return found ? 0 : -1;
}

/* ---------------------------------------------------------------- settings */

static int setting_wanted(const char* name) {
  return strncmp(name, "NCCL_", 5) == 0 || strncmp(name, "ARFUSION_", 9) == 0 ||
         strcmp(name, "CUDA_VISIBLE_DEVICES") == 0 || strcmp(name, "CUDA_DEVICE_ORDER") == 0;
}

/* To CUDA a list of nothing is one, that hides every GPU. */
static int counts_when_empty(const char* name) { return strcmp(name, "CUDA_VISIBLE_DEVICES") == 0; }

static arfusionResult_t setting_take(void* arg, const char* name, const char* value, const char* where) {
  struct host* host = arg;
  if (!setting_wanted(name) || value == NULL || (value[0] == '\0' && !counts_when_empty(name)) ||
      host->nsettings == MOST_SETTINGS || host_setting_get(host, name, NULL) != NULL) {
    return arfusionSuccess;
  }
  struct host_setting* grown = realloc(host->settings, (size_t)(host->nsettings + 1) * sizeof(*grown));
  if (grown == NULL) return arfusionSystemError;
  host->settings = grown;
  struct host_setting* setting = &grown[host->nsettings++];
  snprintf(setting->name, sizeof(setting->name), "%s", name);
  snprintf(setting->value, sizeof(setting->value), "%s", value);
  snprintf(setting->where, sizeof(setting->where), "%s", where);
  return arfusionSuccess;
}

static arfusionResult_t settings_read(struct host* host) {
  arfusionResult_t result = arfusionSuccess;
  int unread;
  for (char** entry = environ; entry != NULL && *entry != NULL && result == arfusionSuccess; entry++) {
    const char* equals = strchr(*entry, '=');
    char name[sizeof(host->settings->name)];
    if (equals == NULL || equals - *entry >= (ptrdiff_t)sizeof(name)) continue;
    snprintf(name, sizeof(name), "%.*s", (int)(equals - *entry), *entry);
    result = setting_take(host, name, equals + 1, "environment");
  }
  if (result != arfusionSuccess) return result;
  result = conf_read(setting_take, host, &unread);
  if (unread != 0) {
    snprintf(host->conf_error, sizeof(host->conf_error), "%.200s: %s", getenv("NCCL_CONF_FILE"), strerror(unread));
  }
  return result;
}

const char* host_setting_get(const struct host* host, const char* name, const char** where) {
  for (int i = 0; i < host->nsettings; i++) {
    if (strcmp(host->settings[i].name, name) != 0) continue;
    if (where != NULL) *where = host->settings[i].where;
    return host->settings[i].value;
  }
  return NULL;
}

void host_redact(struct host* host) {
  for (int i = 0; i < host->nsettings; i++) {
    struct host_setting* setting = &host->settings[i];
    redact_uuids(setting->value);
    if (strcmp(setting->name, "NCCL_HOSTID") == 0) snprintf(setting->value, sizeof(setting->value), "redacted");
  }
}

/* ---------------------------------------------------------------- PCI */

/* A bridge's ACS control register, from its extended configuration space, which only root may read. -1: cannot be
 * read, or there is none. */
static int acs_control(const char* root, const char* bus_id) {
  char path[4200];
  unsigned char config[4096];
  snprintf(path, sizeof(path), "%s/sys/bus/pci/devices/%s/config", root, bus_id);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t bytes = fd >= 0 ? pread(fd, config, sizeof(config), 0) : -1;
  if (fd >= 0) close(fd);
  /* A list of capabilities from 0x100 on: 16 bits of id, 4 of version, 12 of where the next one is. */
  for (int at = 0x100, steps = 0; at >= 0x100 && at + 8 <= bytes && steps < 1024; steps++) {
    unsigned header = (unsigned)config[at] | (unsigned)config[at + 1] << 8 | (unsigned)config[at + 2] << 16 |
                      (unsigned)config[at + 3] << 24;
    if ((header & 0xffff) == 0x000d) return config[at + 6] | config[at + 7] << 8;
    at = (int)(header >> 20);
  }
  return -1;
}

static void acs_read(const char* root, const struct topo_device* bridge, struct host_acs* acs) {
  int control = acs_control(root, bridge->bus_id);
  acs->bridges++;
  if (control < 0) {
    acs->unreadable++;
  } else if (control & 0x4) { /* P2P request redirect */
    if (acs->redirects++ == 0) {
      memcpy(acs->example, bridge->bus_id, sizeof(acs->example));
      acs->control = (unsigned)control;
    }
  }
}

static void iommu_read(const char* root, const char* bus_id, struct host* host) {
  char path[4200], target[512], type[64];
  snprintf(path, sizeof(path), "%s/sys/bus/pci/devices/%s/iommu_group", root, bus_id);
  ssize_t length = readlink(path, target, sizeof(target) - 1);
  if (length < 0) return;
  target[length] = '\0';
  const char* group = strrchr(target, '/') != NULL ? strrchr(target, '/') + 1 : target;
  snprintf(path, sizeof(path), "/sys/kernel/iommu_groups/%.32s/type", group);
  if (line_read(root, path, type, sizeof(type)) != 0) return;
  host->iommu_groups++;
  if (strcmp(type, "identity") != 0 && host->iommu_translated++ == 0) {
    snprintf(host->iommu_example, sizeof(host->iommu_example), "%.24s of group %.24s", type, group);
  }
}

/* Of every GPU and every bridge above one. */
static int pci_read(const struct topo* topo, const char* root, struct host* host) {
  char path[4200];
  char* seen = calloc((size_t)topo->ndevices + 1, 1);
  if (seen == NULL) return -1;
  snprintf(path, sizeof(path), "%s/sys/kernel/iommu_groups", root);
  host->iommu_groups = access(path, R_OK) == 0 ? 0 : -1;
  for (int i = 0; i < topo->ngpus; i++) {
    for (int d = topo->gpus[i].device; d >= 0 && !seen[d]; d = topo->devices[d].parent) {
      const struct topo_device* device = &topo->devices[d];
      seen[d] = 1;
      if (device->bus_id[0] == '\0') continue;
      if (host->iommu_groups >= 0) iommu_read(root, device->bus_id, host);
      if (device->kind == TOPO_DEVICE_BRIDGE) acs_read(root, device, &host->acs);
    }
  }
  free(seen);
  return 0;
}

/* ---------------------------------------------------------------- the rest */

static void shm_read(const char* root, struct host* host) {
  char path[4200];
  struct statvfs fs;
  snprintf(path, sizeof(path), "%s/dev/shm", root);
  if (statvfs(path, &fs) != 0) {
    host->shm_error = errno;
    return;
  }
  host->shm_bytes = (uint64_t)fs.f_blocks * fs.f_frsize;
  host->shm_free = (uint64_t)fs.f_bavail * fs.f_frsize;
}

static void virtualization_read(const char* root, struct host* host) {
  char flags[8192];
  host->hypervisor = -1;
  if (entry_read(root, "/proc/cpuinfo", "flags", flags, sizeof(flags)) == 0) {
    host->hypervisor = strstr(flags, " hypervisor") != NULL;
  }
  if (line_read(root, "/sys/class/dmi/id/product_name", host->product, sizeof(host->product)) != 0) {
    host->product[0] = '\0';
  }
}

static void nccl_read(struct host* host) {
  int (*get_version)(int*);
  const char* named = host_setting_get(host, "ARFUSION_NCCL_LIB", NULL);
  const char* file = named != NULL ? named : "libnccl.so.2";
  void* library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    snprintf(host->nccl, sizeof(host->nccl), "dlopen: %s", dlerror());
    return;
  }
  *(void**)&get_version = dlsym(library, "ncclGetVersion");
  if (get_version == NULL || get_version(&host->nccl_version) != 0) {
    host->nccl_version = 0;
    snprintf(host->nccl, sizeof(host->nccl), "%.100s has no ncclGetVersion that answers", file);
  } else {
    snprintf(host->nccl, sizeof(host->nccl), "ncclGetVersion of %.100s: %d", file, host->nccl_version);
  }
  /* Never closed: closing a library that has started threads of its own is not safe. */
}

int host_read_settings(struct host* host) {
  memset(host, 0, sizeof(*host));
  if (settings_read(host) == arfusionSuccess) return 0;
  host_free(host);
  return -1;
}

int host_read(const struct topo* topo, const char* root, struct host* host) {
  if (host_read_settings(host) != 0) return -1;
  if (pci_read(topo, root, host) != 0) {
    host_free(host);
    return -1;
  }
  shm_read(root, host);
  virtualization_read(root, host);
  nccl_read(host);
  if (entry_read(root, "/proc/self/status", "Cpus_allowed_list", host->cpus, sizeof(host->cpus)) != 0) {
    host->cpus[0] = '\0';
  }
  return 0;
}

void host_free(struct host* host) {
  free(host->settings);
  memset(host, 0, sizeof(*host));
}
