/* SPDX-License-Identifier: Apache-2.0
 *
 * check.h: the doctor's checks. Each looks at one thing, has an id that never changes, and ends as OK, WARN (it works,
 * but worse or at more risk than it could), FAIL, or NOT OBSERVABLE: never as a guess.
 */
#ifndef ARFUSION_TOPO_CHECK_H_
#define ARFUSION_TOPO_CHECK_H_

#include "plugin/tools/topo/decide.h"

enum check_status { CHECK_OK, CHECK_WARN, CHECK_FAIL, CHECK_NOT_OBSERVABLE };

struct check {
  const char* id;
  enum check_status status;
  char evidence[768]; /* which call or file said what */
  char meaning[512];  /* what that means here; "" if it goes without saying */
  char remedy[384];   /* the command or step that mends it; "" if there is nothing to mend */
};

/* What a check looks at. */
struct check_input {
  const struct topo* topo;
  const struct host* host; /* NULL: the machine is not here */
  const struct decision* decision;
};

typedef void (*check_fn)(const struct check_input* in, struct check* check);

/* Set a check's parts. Evidence may be set in several steps. */
void check_say(struct check* check, enum check_status status, const char* fmt, ...)
    __attribute__((format(printf, 3, 4)));
void check_mean(struct check* check, const char* fmt, ...) __attribute__((format(printf, 2, 3)));
void check_mend(struct check* check, const char* fmt, ...) __attribute__((format(printf, 2, 3)));

/* Ends a check that only a live machine can answer. Returns 1 if this one is not here. */
int check_needs_live(const struct check_input* in, struct check* check);
/* The same for checks that need `gpus` GPUs. */
int check_needs_gpus(const struct check_input* in, int gpus, struct check* check);

/* check_gpu.c: drivers and GPUs */
void check_driver_version(const struct check_input* in, struct check* check);
void check_cuda_version(const struct check_input* in, struct check* check);
void check_cuda_start(const struct check_input* in, struct check* check);
void check_nccl_version(const struct check_input* in, struct check* check);
void check_gpu_visible(const struct check_input* in, struct check* check);
void check_gpu_order(const struct check_input* in, struct check* check);
void check_gpu_arch(const struct check_input* in, struct check* check);
void check_gpu_mig(const struct check_input* in, struct check* check);

/* check_nvlink.c: NVLink and its fabric */
void check_nvlink_links(const struct check_input* in, struct check* check);
void check_nvlink_targets(const struct check_input* in, struct check* check);
void check_nvlink_symmetry(const struct check_input* in, struct check* check);
void check_nvlink_all_to_all(const struct check_input* in, struct check* check);
void check_nvlink_multicast(const struct check_input* in, struct check* check);
void check_fabric_state(const struct check_input* in, struct check* check);

/* check_p2p.c: peer access */
void check_p2p_access(const struct check_input* in, struct check* check);
void check_p2p_nvlink(const struct check_input* in, struct check* check);
void check_p2p_atomics(const struct check_input* in, struct check* check);
void check_p2p_functional(const struct check_input* in, struct check* check);

/* check_host.c: PCIe, CPUs, memory, settings */
void check_pci_acs(const struct check_input* in, struct check* check);
void check_pci_width(const struct check_input* in, struct check* check);
void check_pci_tree(const struct check_input* in, struct check* check);
void check_numa_affinity(const struct check_input* in, struct check* check);
void check_iommu_type(const struct check_input* in, struct check* check);
void check_shm_size(const struct check_input* in, struct check* check);
void check_env_nccl(const struct check_input* in, struct check* check);
void check_env_arfusion(const struct check_input* in, struct check* check);

#endif
