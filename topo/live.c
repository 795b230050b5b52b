/* SPDX-License-Identifier: Apache-2.0
 *
 * live.c: this machine, from hwloc, NVML and CUDA, put together by bus id.
 */
#include <stdlib.h>
#include <unistd.h>

#include "topo/cuda_live.h"
#include "topo/hwloc_library.h"
#include "topo/nvml_library.h"

int topo_discover_live(unsigned use, struct topo** out, struct topo_error* error) {
  struct topo_builder builder;
  const char* why;
  struct nvml_session* session = calloc(1, sizeof *session);
  if (!session) return topo_fail(error, "out of memory for a topology");
  if (topo_begin(&builder, TOPO_FROM_LIVE, NULL, error)) {
    free(session);
    return -1;
  }
  if (gethostname(builder.topo->host, sizeof builder.topo->host - 1)) builder.topo->host[0] = '\0';
  if (use & TOPO_USE_HWLOC) hwloc_read_live(&builder);
  if (use & TOPO_USE_NVML) {
    const struct nvml_library* nvml = nvml_library_get(&why);
    nvml_read_gpus(&builder, nvml, why, session);
  }
#ifdef ARFUSION_HAVE_CUDA
  if (use & TOPO_USE_CUDA) cuda_read_gpus(&builder);
#else
  if (use & TOPO_USE_CUDA) {
    topo_find(&builder, "cuda.open", TOPO_NOT_OBSERVABLE, 0, "", "this program was built without CUDA");
  }
#endif
  topo_derive(&builder);
  nvml_read_pairs(&builder, session);
#ifdef ARFUSION_HAVE_CUDA
  if (use & TOPO_USE_CUDA) cuda_read_pairs(&builder);
#endif
  free(session);
  return topo_finish(&builder, out, error);
}
