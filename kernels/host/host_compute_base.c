/* SPDX-License-Identifier: Apache-2.0
 *
 * host_compute_base.c: the vector functions for any processor, and the choice between them and better ones.
 */
#define COMPUTE_TABLE host_compute_base
#define COMPUTE_LINKAGE
#include "kernels/host/host_compute.inc"

const struct host_compute* host_compute_select(arfusionDataType_t dtype) {
  const struct host_compute* compute = host_compute_avx2(dtype);
  return compute ? compute : host_compute_base(dtype);
}
