/* SPDX-License-Identifier: Apache-2.0
 *
 * gather_host.h: set-up's messages for a libnccl whose buffers are host memory, as the tests have one. Such a libnccl
 * says so by exporting
 *
 *   int arfusionHostNcclDone(void* comm);   whether all that was enqueued for `comm` on the NULL stream has ended
 */
#ifndef ARFUSION_NCCL_GATHER_HOST_H_
#define ARFUSION_NCCL_GATHER_HOST_H_

#include "plugin/host/nccl_gather.h"

/* NULL: the real libnccl is not of that kind. */
const struct nccl_gather_memory* gather_host(void);

#endif
