/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_live_cuda.c: see cuda_live.h.
 */
#include "topo/cuda_live.h"

#include <cuda_runtime_api.h>
#include <string.h>

static int answered(struct topo_builder* builder, cudaError_t error, const char* call, int ordinal) {
  if (error == cudaSuccess) return 1;
  cudaGetLastError();
  topo_find(builder, "cuda.call", TOPO_NOT_OBSERVABLE, 0, "", "%s of device %d: %s (%d)", call, ordinal,
            cudaGetErrorString(error), error);
  return 0;
}

static void read_gpu(struct topo_builder* builder, int ordinal) {
  struct topo* topo = builder->topo;
  char text[32], bus_id[TOPO_BUS_ID_BYTES];
  int major = 0, minor = 0;
  if (!answered(builder, cudaDeviceGetPCIBusId(text, sizeof text, ordinal), "cudaDeviceGetPCIBusId", ordinal)) return;
  if (topo_bus_id_parse(text, bus_id)) return;
  int g = topo_gpu_by_bus_id(topo, bus_id);
  if (g < 0) g = topo_add_gpu(builder, bus_id, topo_device_find(topo, bus_id));
  if (g < 0) return;
  struct topo_gpu* gpu = &topo->gpus[g];
  gpu->cuda = topo_known(ordinal, topo_add_source(builder, "cudaDeviceGetPCIBusId"));
  if (answered(builder, cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, ordinal),
               "cudaDeviceGetAttribute", ordinal) &&
      answered(builder, cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, ordinal),
               "cudaDeviceGetAttribute", ordinal)) {
    gpu->sm = topo_known(major * 10 + minor, topo_add_source(builder, "cudaDeviceGetAttribute"));
  }
}

void cuda_read_gpus(struct topo_builder* builder) {
  struct topo* topo = builder->topo;
  int count = 0, driver = 0, runtime = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0) {
    topo->cuda_driver = topo_known(driver, topo_add_source(builder, "cudaDriverGetVersion"));
  }
  if (cudaRuntimeGetVersion(&runtime) == cudaSuccess) {
    topo->cuda_runtime = topo_known(runtime, topo_add_source(builder, "cudaRuntimeGetVersion"));
  }
  if (error != cudaSuccess) {
    cudaGetLastError();
    topo_find(builder, "cuda.open", TOPO_NOT_OBSERVABLE, 0, "", "cudaGetDeviceCount: %s (%d)",
              cudaGetErrorString(error), error);
    return;
  }
  for (int i = 0; i < count && i < TOPO_MOST_GPUS; ++i) read_gpu(builder, i);
}

void cuda_read_pairs(struct topo_builder* builder) {
  struct topo* topo = builder->topo;
  const uint16_t access_source = topo_add_source(builder, "cudaDeviceCanAccessPeer");
  const uint16_t atomics_source = topo_add_source(builder, "cudaDeviceGetP2PAttribute(NativeAtomicSupported)");
  for (int a = 0; a < topo->ngpus && topo->pairs; ++a) {
    for (int b = 0; b < topo->ngpus; ++b) {
      struct topo_pair* pair = &topo->pairs[(size_t)a * (size_t)topo->ngpus + (size_t)b];
      const struct topo_fact from = topo->gpus[a].cuda, to = topo->gpus[b].cuda;
      int access = 0, atomics = 0;
      pair->access = topo_unknown(access_source);
      if (a == b || from.state != TOPO_OK || to.state != TOPO_OK) continue;
      if (answered(builder, cudaDeviceCanAccessPeer(&access, from.value, to.value), "cudaDeviceCanAccessPeer",
                   from.value)) {
        pair->access = access ? topo_known(1, access_source) : topo_failed(0, access_source);
      }
      if (pair->p2p_atomics.state == TOPO_NOT_OBSERVABLE &&
          cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, from.value, to.value) ==
              cudaSuccess) {
        pair->p2p_atomics =
            atomics ? topo_known(TOPO_P2P_OK, atomics_source) : topo_failed(TOPO_P2P_NOT_SUPPORTED, atomics_source);
      }
    }
  }
  cudaGetLastError();
}
