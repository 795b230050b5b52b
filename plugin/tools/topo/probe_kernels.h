/* SPDX-License-Identifier: Apache-2.0
 *
 * probe_kernels.h: the kernels of the probe. Memory may be this GPU's or a peer's. `bytes` is a multiple of 16,
 * addresses are aligned to 16. Launchers enqueue on `stream` of the current device.
 */
#ifndef ARFUSION_TOPO_PROBE_KERNELS_H_
#define ARFUSION_TOPO_PROBE_KERNELS_H_

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Stores a pattern that depends on the position and on `seed`, 16 bytes a thread. */
cudaError_t probe_fill(void* data, size_t bytes, uint32_t seed, int blocks, cudaStream_t stream);

/* Loads it back and adds to *wrong (this GPU's memory) how many 16-byte words differ. */
cudaError_t probe_check(const void* data, size_t bytes, uint32_t seed, uint64_t* wrong, int blocks,
                        cudaStream_t stream);

/* One side of `rounds` round trips of a 4-byte flag between two GPUs, after as many as warm up. The side that is
 * `first` writes to *theirs and waits for the answer in *mine, the other one answers; both words start at 0.
 * *elapsed_ns (this GPU's memory): the time that the rounds took, or UINT64_MAX if limit_ns passed first. */
cudaError_t probe_ping(uint32_t* mine, uint32_t* theirs, int first, uint32_t rounds, uint64_t limit_ns,
                       uint64_t* elapsed_ns, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
