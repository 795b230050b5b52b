/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_live.h: what CUDA says of this process's GPUs. Only in builds with CUDA.
 */
#ifndef ARFUSION_TOPO_CUDA_LIVE_H_
#define ARFUSION_TOPO_CUDA_LIVE_H_

#include "topo/model.h"

/* The GPUs, before topo_derive; the pairs, after it. No context is made, and no error is left behind for the caller. */
void cuda_read_gpus(struct topo_builder* builder);
void cuda_read_pairs(struct topo_builder* builder);

#endif
