/* SPDX-License-Identifier: Apache-2.0
 *
 * decide.h: which path arfusion takes on a machine, and why: the first thing that the tool says.
 */
#ifndef ARFUSION_TOPO_DECIDE_H_
#define ARFUSION_TOPO_DECIDE_H_

#include "plugin/tools/topo/host.h"
#include "plugin/tools/topo/tool.h"

/* The oldest architecture that the kernels are built for. */
#define DECIDE_FIRST_SM 80

struct decision {
  enum tool_status status;
  char path[160];        /* "arfusion's kernels over NVLink" */
  char why[768];         /* what decides besides the verdict's two answers, in sentences; "" */
  enum topo_level level; /* that NCCL_P2P_DISABLE and NCCL_P2P_LEVEL leave */
  struct topo_verdict verdict;
};

/* host: NULL for a machine that is not here: its settings are not known. */
void decide(const struct topo* topo, const struct host* host, struct decision* decision);

/* The name of the setting that keeps arfusion off the GPUs, whatever they can do; NULL: none does. */
const char* decide_ruling_setting(const struct host* host);

/* Whether there are GPUs, and a CUDA that was asked for them and does not start. */
int decide_cuda_fails(const struct topo* topo);

/* How many NVLinks of a GPU are there and not active. */
int gpu_inactive_links(const struct topo_gpu* gpu);

#endif
