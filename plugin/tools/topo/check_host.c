/* SPDX-License-Identifier: Apache-2.0
 *
 * check_host.c: checks of what surrounds the GPUs: PCIe, CPUs, memory, settings; see check.h.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plugin/core/settings.h"
#include "plugin/tools/topo/check.h"

#define MIB ((uint64_t)1 << 20)
#define SHM_SCARCE (512 * MIB) /* NCCL takes some MiB a channel and peer */
#define SHM_NONE (32 * MIB)
#define CPUS_MAX 4096

/* Whether some pair of GPUs can only be served over PCIe, as far as is known. */
static int pcie_carries(const struct topo* topo) {
  for (int from = 0; from < topo->ngpus; from++) {
    for (int to = 0; to < topo->ngpus; to++) {
      const struct topo_fact* count = &topo_pair(topo, from, to)->nvlink_count;
      if (from != to && count->state == TOPO_OK && count->value == 0) return 1;
    }
  }
  return 0;
}

/* ---------------------------------------------------------------- PCIe */

void check_pci_acs(const struct check_input* in, struct check* check) {
  if (check_needs_live(in, check) || check_needs_gpus(in, 1, check)) return;
  const struct host_acs* acs = &in->host->acs;
  if (acs->redirects > 0) {
    int carries = pcie_carries(in->topo);
    check_say(check, carries ? CHECK_FAIL : CHECK_WARN,
              "%d of %d bridges above GPUs redirect peer requests (ReqRedir+), first %s: ACS control register 0x%04x",
              acs->redirects, acs->bridges, acs->example, acs->control);
    check_mean(check, carries ? "Peer access over PCIe goes through the CPU: slow, and with an IOMMU often lost."
                              : "NVLink is not affected; peer access over PCIe (network cards) goes through the CPU.");
    check_mend(
        check,
        "as root: setpci -s %s ECAP_ACS+0x6.w=0000 (for each such bridge, after every start), or turn ACS off in "
        "the firmware",
        acs->example);
  } else if (acs->bridges == 0) {
    check_say(check, CHECK_NOT_OBSERVABLE, "no PCIe bridge above a GPU is shown, as in virtual machines");
  } else if (acs->unreadable > 0) {
    check_say(check, CHECK_NOT_OBSERVABLE,
              "the ACS registers of %d of %d bridges above GPUs cannot be read (/sys/bus/pci/devices/*/config)",
              acs->unreadable, acs->bridges);
    if (geteuid() != 0) check_mend(check, "sudo arfusion-topo doctor");
  } else {
    check_say(check, CHECK_OK, "none of the %d bridges above GPUs redirects peer requests: ACS control registers",
              acs->bridges);
  }
}

void check_pci_width(const struct check_input* in, struct check* check) {
  const struct topo* topo = in->topo;
  int known = 0, narrow = -1, wide = -1;
  if (check_needs_gpus(in, 1, check)) return;
  for (int i = 0; i < topo->ngpus; i++) {
    const struct topo_device* device = topo->gpus[i].device >= 0 ? &topo->devices[topo->gpus[i].device] : NULL;
    if (device == NULL || device->link_width.state != TOPO_OK) continue;
    known++;
    int width = device->link_width.value;
    if (narrow < 0 || width < topo->devices[topo->gpus[narrow].device].link_width.value) narrow = i;
    if (wide < 0 || width > topo->devices[topo->gpus[wide].device].link_width.value) wide = i;
  }
  if (known == 0) {
    check_say(check, CHECK_NOT_OBSERVABLE, "nothing says how wide the GPUs' PCIe links are");
    return;
  }
  const struct topo_fact* least = &topo->devices[topo->gpus[narrow].device].link_width;
  const struct topo_fact* most = &topo->devices[topo->gpus[wide].device].link_width;
  if (least->value == most->value) {
    check_say(check, CHECK_OK, "x%d for %d of %d GPUs: %s", most->value, known, topo->ngpus,
              topo_source(topo, most->source));
    check_mean(check, "Speeds are not judged: idle GPUs train their links down.");
    return;
  }
  check_say(check, CHECK_WARN, "GPU%d (%s) has x%d, GPU%d (%s) has x%d: %s", narrow, topo->gpus[narrow].bus_id,
            least->value, wide, topo->gpus[wide].bus_id, most->value, topo_source(topo, least->source));
  check_mean(check, "One GPU has fewer PCIe lanes than another: a slot, a riser or a contact.");
  check_mend(check,
             "nvidia-smi -i %s --query-gpu=pcie.link.width.current,pcie.link.width.max --format=csv; reseat the board",
             topo->gpus[narrow].bus_id);
}

void check_pci_tree(const struct check_input* in, struct check* check) {
  static const char mend[] =
      "arfusion-topo export --format nccl-xml -o topo.xml; put the <pci> elements below the right <cpu> and bridge; "
      "NCCL_TOPO_FILE=topo.xml";
  const struct topo* topo = in->topo;
  int bridged = 0, placed = 0, shown = 0;
  if (check_needs_gpus(in, 1, check)) return;
  for (int i = 0; i < topo->ngpus; i++) {
    const struct topo_gpu* gpu = &topo->gpus[i];
    int parent = gpu->device >= 0 ? topo->devices[gpu->device].parent : -1;
    shown += gpu->device >= 0;
    bridged += parent >= 0 && topo->devices[parent].bus_id[0] != '\0';
    placed += gpu->numa >= 0 && topo->numas[gpu->numa].id >= 0;
  }
  int virtual = in->host != NULL && in->host->hypervisor == 1;
  check_say(check, bridged > 0 && placed == topo->ngpus ? CHECK_OK : CHECK_NOT_OBSERVABLE,
            "of %d GPUs %d are in the PCI tree, %d below a bridge, and the NUMA node of %d is known", topo->ngpus,
            shown, bridged, placed);
  if (virtual) {
    check_say(check, check->status, "; a virtual machine (/proc/cpuinfo: hypervisor%s%s)",
              in->host->product[0] != '\0' ? ", " : "", in->host->product);
  }
  if (check->status == CHECK_OK) return;
  check_mean(check, "%s hides which GPUs share a PCIe switch. NVLink does not care; NCCL guesses PCIe paths wrong.",
             virtual ? "The hypervisor" : "Something");
  check_mend(check, "%s", mend);
}

/* ---------------------------------------------------------------- CPUs */

static int cpus_meet(const struct topo_numa* left, const struct topo_numa* right) {
  for (int cpu = 0; cpu < CPUS_MAX; cpu++) {
    if (topo_numa_has_cpu(left, cpu) && topo_numa_has_cpu(right, cpu)) return 1;
  }
  return 0;
}

void check_numa_affinity(const struct check_input* in, struct check* check) {
  const struct topo* topo = in->topo;
  struct topo_numa ours = {.cpus = in->host != NULL ? (char*)in->host->cpus : NULL};
  int known = 0;
  if (check_needs_gpus(in, 1, check)) return;
  for (int i = 0; i < topo->ngpus; i++) {
    const struct topo_gpu* gpu = &topo->gpus[i];
    const struct topo_numa* numa = gpu->numa >= 0 ? &topo->numas[gpu->numa] : NULL;
    if (numa == NULL || numa->cpus == NULL) continue;
    known++;
    if (in->host == NULL || in->host->cpus[0] == '\0' || cpus_meet(numa, &ours)) continue;
    check_say(check, CHECK_WARN, "this process may only run on CPUs %s (/proc/self/status), and GPU%d's are %s: %s",
              in->host->cpus, i, numa->cpus, topo_source(topo, numa->source));
    check_mean(check, "Launches and copies from and to this GPU cross NUMA nodes.");
    check_mend(check, "taskset -c %s COMMAND, or numactl --cpunodebind=%d COMMAND", numa->cpus, numa->id);
    return;
  }
  check_say(check, known == topo->ngpus ? CHECK_OK : CHECK_NOT_OBSERVABLE, "the CPUs near %d of %d GPUs are known%s",
            known, topo->ngpus, known > 0 && in->host != NULL ? ", and this process may run there" : "");
}

/* ---------------------------------------------------------------- memory */

void check_iommu_type(const struct check_input* in, struct check* check) {
  if (check_needs_live(in, check)) return;
  const struct host* host = in->host;
  if (host->iommu_groups < 0) {
    check_say(check, CHECK_NOT_OBSERVABLE, "/sys/kernel/iommu_groups cannot be read");
  } else if (check_needs_gpus(in, 1, check)) {
    return;
  } else if (host->iommu_translated > 0) {
    check_say(check, CHECK_WARN,
              "%d of %d IOMMU groups of GPUs and bridges translate, first %s: /sys/kernel/iommu_groups/*/type",
              host->iommu_translated, host->iommu_groups, host->iommu_example);
    check_mean(check,
               "Peer access over PCIe goes through the IOMMU: slow, or writes are lost. NVLink is not affected.");
    check_mend(check,
               "add iommu=pt to the kernel's command line (GRUB_CMDLINE_LINUX), update-grub, restart; or turn VT-d or "
               "AMD-Vi off in the firmware");
  } else {
    check_say(check, CHECK_OK,
              host->iommu_groups > 0
                  ? "%d IOMMU groups of GPUs and bridges, all identity: /sys/kernel/iommu_groups/*/type"
                  : "no GPU is in an IOMMU group (%d): /sys/kernel/iommu_groups",
              host->iommu_groups);
  }
}

void check_shm_size(const struct check_input* in, struct check* check) {
  if (check_needs_live(in, check)) return;
  const struct host* host = in->host;
  if (host->shm_error != 0) {
    check_say(check, CHECK_FAIL, "statvfs(/dev/shm): %s", strerror(host->shm_error));
  } else {
    check_say(check,
              host->shm_free < SHM_NONE     ? CHECK_FAIL
              : host->shm_free < SHM_SCARCE ? CHECK_WARN
                                            : CHECK_OK,
              "statvfs(/dev/shm): %llu MiB free of %llu", (unsigned long long)(host->shm_free / MIB),
              (unsigned long long)(host->shm_bytes / MIB));
  }
  if (check->status == CHECK_OK) return;
  check_mean(
      check,
      "NCCL and data loaders need more (containers begin with 64 MiB): bus errors, or 'no space left on device'. "
      "arfusion itself does not use it.");
  check_mend(check, "docker run --shm-size=16g ..., or --ipc=host; otherwise: mount -o remount,size=16g /dev/shm");
}

/* ---------------------------------------------------------------- settings */

/* Lists what begins with `prefix` as evidence. Returns how many there are. */
static int list_settings(const struct host* host, const char* prefix, struct check* check) {
  int listed = 0;
  for (int i = 0; i < host->nsettings; i++) {
    const struct host_setting* setting = &host->settings[i];
    if (strncmp(setting->name, prefix, strlen(prefix)) != 0) continue;
    check_say(check, CHECK_OK, "%s%s=%s (%s)", listed++ > 0 ? ", " : "", setting->name, setting->value, setting->where);
  }
  return listed;
}

void check_env_nccl(const struct check_input* in, struct check* check) {
  enum topo_level level;
  if (check_needs_live(in, check)) return;
  if (list_settings(in->host, "NCCL_", check) == 0) {
    check_say(check, CHECK_OK, "no NCCL_ variable in the environment, ~/.nccl.conf or /etc/nccl.conf");
  }
  const char* disable = host_setting_get(in->host, "NCCL_P2P_DISABLE", NULL);
  const char* text = host_setting_get(in->host, "NCCL_P2P_LEVEL", NULL);
  const char* file = host_setting_get(in->host, "NCCL_TOPO_FILE", NULL);
  if (topo_level_of_settings(disable, text, &level) != 0) {
    check->status = CHECK_WARN;
    check_mean(check, "NCCL_P2P_LEVEL=%s is not a level, and is ignored.", text);
    check_mend(check, "unset NCCL_P2P_LEVEL; levels are LOC NVL PIX PXB PHB SYS");
  } else if (level == TOPO_LEVEL_LOC) {
    check->status = CHECK_FAIL;
    check_mean(check, "Peer access is turned off; arfusion respects that and turns everything down.");
    check_mend(check, "unset NCCL_P2P_DISABLE NCCL_P2P_LEVEL, or take the line out of the file");
  } else if (level != TOPO_LEVEL_SYS) {
    check->status = CHECK_WARN;
    check_mean(check, "NCCL_P2P_LEVEL limits peer access to near GPUs; arfusion respects that.");
    check_mend(check, "unset NCCL_P2P_LEVEL, or take the line out of the file, unless it is meant");
  } else if (file != NULL && access(file, R_OK) != 0) {
    check->status = CHECK_WARN;
    check_mean(check, "NCCL_TOPO_FILE names a file that cannot be read.");
    check_mend(check, "unset NCCL_TOPO_FILE, or arfusion-topo export --format nccl-xml -o %s", file);
  } else if (in->host->conf_error[0] != '\0') {
    check->status = CHECK_WARN;
    check_mean(check, "The file that NCCL_CONF_FILE names is not read: %s", in->host->conf_error);
    check_mend(check, "unset NCCL_CONF_FILE, or correct it");
  }
}

/* The first of arfusion's settings for which setting_check answers `verdict`; NULL: none. */
static const char* wrong_setting(const struct host* host, int verdict, char* allowed, size_t bytes) {
  for (int i = 0; i < host->nsettings; i++) {
    const struct host_setting* setting = &host->settings[i];
    if (strncmp(setting->name, "ARFUSION_", 9) != 0) continue;
    if (setting_check(setting->name, setting->value, allowed, bytes) == verdict) return setting->name;
  }
  return NULL;
}

void check_env_arfusion(const struct check_input* in, struct check* check) {
  if (check_needs_live(in, check)) return;
  if (list_settings(in->host, "ARFUSION_", check) == 0) {
    check_say(check, CHECK_OK, "no ARFUSION_ variable in the environment, ~/.nccl.conf or /etc/nccl.conf");
  }
  char allowed[160], unused[160];
  const char* invalid = wrong_setting(in->host, -1, allowed, sizeof(allowed));
  const char* ruling = decide_ruling_setting(in->host);
  const char* unknown = wrong_setting(in->host, 1, unused, sizeof(unused));
  if (invalid != NULL) {
    check->status = CHECK_FAIL;
    check_mean(check, "%s is not valid (%s), and the plugin does not start.", invalid, allowed);
    check_mend(check, "unset %s, or correct it", invalid);
  } else if (ruling != NULL) {
    check->status = CHECK_WARN;
    check_mean(check, "%s keeps arfusion's kernels from running on the GPUs.", ruling);
    check_mend(check, "unset %s", ruling);
  } else if (unknown != NULL) {
    check->status = CHECK_WARN;
    check_mean(check, "%s is not a setting: nothing is done with it.", unknown);
    check_mend(check, "unset %s, or correct it", unknown);
  }
}
