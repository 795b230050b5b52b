/* SPDX-License-Identifier: Apache-2.0
 *
 * nccl_cuda.c: NCCL opened at run time, for the unfused path on GPUs; see unfused.h. Built only where CUDA is; without
 * nccl.h it says that there is none.
 */
#include <stdio.h>

#include "plugin/tools/bench/unfused.h"

#if ARFUSION_HAVE_NCCL_H

#include <dlfcn.h>
#include <nccl.h>
#include <stdlib.h>
#include <string.h>

struct nccl {
  ncclComm_t comm;
  __typeof__(ncclGetUniqueId)* get_unique_id;
  __typeof__(ncclCommInitRank)* comm_init_rank;
  __typeof__(ncclAllReduce)* all_reduce;
  __typeof__(ncclCommDestroy)* comm_destroy;
  __typeof__(ncclGetErrorString)* error_string;
};

/* The types are NCCL's own values, which the ABI shares. */
_Static_assert((int)arfusionBfloat16 == (int)ncclBfloat16 && (int)arfusionFloat16 == (int)ncclFloat16 &&
                   (int)arfusionFloat32 == (int)ncclFloat32,
               "data types have NCCL's values");

static int nccl_load(struct nccl* nccl, char* why, size_t why_bytes) {
  const struct {
    const char* name;
    void* slot;
  } symbols[] = {{"ncclGetUniqueId", &nccl->get_unique_id},
                 {"ncclCommInitRank", &nccl->comm_init_rank},
                 {"ncclAllReduce", &nccl->all_reduce},
                 {"ncclCommDestroy", &nccl->comm_destroy},
                 {"ncclGetErrorString", &nccl->error_string}};
  void* library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    snprintf(why, why_bytes, "NCCL: %s", dlerror());
    return -1;
  }
  for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
    void* symbol = dlsym(library, symbols[i].name);
    if (symbol == NULL) {
      snprintf(why, why_bytes, "NCCL: no symbol %s", symbols[i].name);
      return -1;
    }
    memcpy(symbols[i].slot, &symbol, sizeof(symbol));
  }
  return 0;
}

int nccl_open(struct team_rank* team, struct nccl** opened, char* why, size_t why_bytes) {
  ncclUniqueId ids[ARFUSION_MAX_RANKS] = {{{0}}}, own = {{0}}; /* rank 0's is the one that is used */
  ncclResult_t result = ncclSuccess;
  *opened = NULL;
  struct nccl* nccl = calloc(1, sizeof(*nccl));
  if (nccl == NULL) return team_fail(team, "out of memory");
  if (nccl_load(nccl, why, why_bytes) != 0) {
    nccl_close(nccl);
    return 0;
  }
  if (team->rank == 0) result = nccl->get_unique_id(&own);
  if (result == ncclSuccess) {
    team_all_gather(team, &own, ids, sizeof(own));
    result = nccl->comm_init_rank(&nccl->comm, team->nranks, ids[0], team->rank);
  }
  if (result != ncclSuccess) {
    team_fail(team, "NCCL: %s", nccl->error_string(result));
    nccl_close(nccl);
    return -1;
  }
  *opened = nccl;
  return 0;
}

void nccl_close(struct nccl* nccl) {
  if (nccl->comm != NULL) nccl->comm_destroy(nccl->comm);
  free(nccl); /* the library stays open: NCCL's own threads may still be in it */
}

int nccl_all_reduce(struct nccl* nccl, const void* input, void* output, size_t count, arfusionDataType_t dtype,
                    void* stream) {
  ncclResult_t result =
      nccl->all_reduce(input, output, count, (ncclDataType_t)dtype, ncclSum, nccl->comm, (cudaStream_t)stream);
  return result == ncclSuccess ? 0 : bench_device_fail("ncclAllReduce: %s", nccl->error_string(result));
}

#else

int nccl_open(struct team_rank* team, struct nccl** nccl, char* why, size_t why_bytes) {
  (void)team;
  *nccl = NULL;
  snprintf(why, why_bytes, "this program was built without nccl.h");
  return 0;
}

void nccl_close(struct nccl* nccl) { (void)nccl; }

int nccl_all_reduce(struct nccl* nccl, const void* input, void* output, size_t count, arfusionDataType_t dtype,
                    void* stream) {
  (void)nccl;
  (void)input;
  (void)output;
  (void)count;
  (void)dtype;
  (void)stream;
  return bench_device_fail("this program was built without nccl.h");
}

#endif
