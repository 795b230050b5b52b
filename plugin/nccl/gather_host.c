/* SPDX-License-Identifier: Apache-2.0
 *
 * gather_host.c: see gather_host.h.
 */
#include "plugin/nccl/gather_host.h"

#include <stdlib.h>
#include <string.h>

#include "plugin/core/log.h"
#include "plugin/nccl/real.h"

static int (*done_of)(void*);

static arfusionResult_t nothing(struct nccl_gather* gather) {
  (void)gather;
  return arfusionSuccess;
}

static void leave(struct nccl_gather* gather) { (void)gather; }

static arfusionResult_t put(struct nccl_gather* gather, const void* send, size_t bytes) {
  gather->memory = malloc(bytes * ((size_t)gather->nranks + 1));
  if (!gather->memory) return error_set(arfusionSystemError, "out of memory for an all-gather of %zu bytes", bytes);
  memcpy(gather->memory, send, bytes);
  return arfusionSuccess;
}

static arfusionResult_t query(struct nccl_gather* gather, int* done) {
  *done = done_of(gather->comm);
  return arfusionSuccess;
}

static arfusionResult_t get(struct nccl_gather* gather, void* recv, size_t bytes) {
  memcpy(recv, gather->memory + bytes, bytes * (size_t)gather->nranks);
  return arfusionSuccess;
}

static void drop(struct nccl_gather* gather) {
  free(gather->memory);
  gather->memory = NULL;
}

static const struct nccl_gather_memory host_memory = {
    .open = nothing,
    .put = put,
    .query = query,
    .get = get,
    .drop = drop,
    .close = leave,
    .enter = nothing,
    .leave = leave,
};

const struct nccl_gather_memory* gather_host(void) {
  void* symbol = real_extra("arfusionHostNcclDone");
  if (!symbol) return NULL;
  memcpy(&done_of, &symbol, sizeof done_of);
  return &host_memory;
}
