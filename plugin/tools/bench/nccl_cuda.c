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

/* Functions that are not in every NCCL are declared here, and not taken from its header, which may be as old. */
#define WINDOW_SYMMETRIC 1 /* NCCL_WIN_COLL_SYMMETRIC */

struct nccl {
  ncclComm_t comm;
  void* memory; /* of the window */
  void* window;
  __typeof__(ncclGetUniqueId)* get_unique_id;
  __typeof__(ncclCommInitRank)* comm_init_rank;
  __typeof__(ncclAllReduce)* all_reduce;
  __typeof__(ncclCommDestroy)* comm_destroy;
  __typeof__(ncclGetErrorString)* error_string;
  __typeof__(ncclGetVersion)* get_version;
  /* NULL where they are not there: */
  ncclResult_t (*mem_alloc)(void** memory, size_t bytes);
  ncclResult_t (*mem_free)(void* memory);
  ncclResult_t (*window_register)(ncclComm_t comm, void* memory, size_t bytes, void** window, int flags);
  ncclResult_t (*window_deregister)(ncclComm_t comm, void* window);
};

/* The types are NCCL's own values, which the ABI shares. */
_Static_assert((int)arfusionBfloat16 == (int)ncclBfloat16 && (int)arfusionFloat16 == (int)ncclFloat16 &&
                   (int)arfusionFloat32 == (int)ncclFloat32,
               "data types have NCCL's values");

static int nccl_load(struct nccl* nccl, char* why, size_t why_bytes) {
  const struct {
    const char* name;
    void* slot;
    int optional;
  } symbols[] = {{"ncclGetUniqueId", &nccl->get_unique_id, 0},
                 {"ncclCommInitRank", &nccl->comm_init_rank, 0},
                 {"ncclAllReduce", &nccl->all_reduce, 0},
                 {"ncclCommDestroy", &nccl->comm_destroy, 0},
                 {"ncclGetErrorString", &nccl->error_string, 0},
                 {"ncclGetVersion", &nccl->get_version, 0},
                 {"ncclMemAlloc", &nccl->mem_alloc, 1},
                 {"ncclMemFree", &nccl->mem_free, 1},
                 {"ncclCommWindowRegister", &nccl->window_register, 1},
                 {"ncclCommWindowDeregister", &nccl->window_deregister, 1}};
  void* library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) {
    snprintf(why, why_bytes, "NCCL: %s", dlerror());
    return -1;
  }
  for (size_t i = 0; i < sizeof(symbols) / sizeof(symbols[0]); i++) {
    void* symbol = dlsym(library, symbols[i].name);
    if (symbol == NULL && !symbols[i].optional) {
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
  if (nccl->window != NULL) nccl->window_deregister(nccl->comm, nccl->window);
  if (nccl->memory != NULL) nccl->mem_free(nccl->memory);
  if (nccl->comm != NULL) nccl->comm_destroy(nccl->comm);
  free(nccl); /* the library stays open: NCCL's own threads may still be in it */
}

int nccl_all_reduce(struct nccl* nccl, const void* input, void* output, size_t count, arfusionDataType_t dtype,
                    void* stream) {
  ncclResult_t result =
      nccl->all_reduce(input, output, count, (ncclDataType_t)dtype, ncclSum, nccl->comm, (cudaStream_t)stream);
  return result == ncclSuccess ? 0 : bench_device_fail("ncclAllReduce: %s", nccl->error_string(result));
}

int nccl_version(const struct nccl* nccl) {
  int version = 0;
  nccl->get_version(&version);
  return version;
}

/* What one rank came to. */
struct window_step {
  int failed;
  char why[128];
};

/* Whether no rank has failed; else the first one's reason. */
static int all_succeeded(struct team_rank* team, const struct window_step* own, char* why, size_t why_bytes) {
  struct window_step steps[ARFUSION_MAX_RANKS];
  team_all_gather(team, own, steps, sizeof(*own));
  for (int r = 0; r < team->nranks; r++) {
    if (!steps[r].failed) continue;
    snprintf(why, why_bytes, "%s", steps[r].why);
    return 0;
  }
  return 1;
}

void* nccl_open_window(struct nccl* nccl, struct team_rank* team, size_t bytes, char* why, size_t why_bytes) {
  struct window_step step = {0};
  ncclResult_t result = ncclSuccess;
  if (nccl->mem_alloc == NULL || nccl->mem_free == NULL || nccl->window_register == NULL ||
      nccl->window_deregister == NULL) {
    step.failed = 1;
    snprintf(step.why, sizeof(step.why), "NCCL %d has no ncclCommWindowRegister (2.27 and later)", nccl_version(nccl));
  } else if ((result = nccl->mem_alloc(&nccl->memory, bytes)) != ncclSuccess) {
    step.failed = 1;
    nccl->memory = NULL;
    snprintf(step.why, sizeof(step.why), "ncclMemAlloc of %zu bytes: %s", bytes, nccl->error_string(result));
  }
  if (!all_succeeded(team, &step, why, why_bytes)) return NULL;
  /* Registering is collective. A version that cannot do it may also return success and no window. */
  result = nccl->window_register(nccl->comm, nccl->memory, bytes, &nccl->window, WINDOW_SYMMETRIC);
  if (result != ncclSuccess || nccl->window == NULL) {
    step.failed = 1;
    nccl->window = NULL;
    snprintf(step.why, sizeof(step.why), "ncclCommWindowRegister: %s",
             result == ncclSuccess ? "no symmetric memory here" : nccl->error_string(result));
  }
  return all_succeeded(team, &step, why, why_bytes) ? nccl->memory : NULL;
}

#else

int nccl_open(struct team_rank* team, struct nccl** nccl, char* why, size_t why_bytes) {
  (void)team;
  *nccl = NULL;
  snprintf(why, why_bytes, "this program was built without nccl.h");
  return 0;
}

void nccl_close(struct nccl* nccl) { (void)nccl; }

int nccl_version(const struct nccl* nccl) {
  (void)nccl;
  return 0;
}

void* nccl_open_window(struct nccl* nccl, struct team_rank* team, size_t bytes, char* why, size_t why_bytes) {
  (void)nccl;
  (void)team;
  (void)bytes;
  snprintf(why, why_bytes, "this program was built without nccl.h");
  return NULL;
}

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
