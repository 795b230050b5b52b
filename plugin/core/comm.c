/* SPDX-License-Identifier: Apache-2.0
 *
 * comm.c: the life of a communicator after it was made.
 */
#include <stdio.h>
#include <stdlib.h>

#include "plugin/core/comm.h"
#include "plugin/core/log.h"
#include "plugin/core/names.h"

arfusionResult_t comm_finalize(struct comm* comm) {
  if (comm->device_comm) comm->device->destroy(comm->device_comm);
  free(comm);
  return arfusionSuccess;
}

arfusionResult_t comm_abort(struct comm* comm) {
  atomic_store(&comm->aborted, 1);
  if (comm->device_comm) comm->device->abort(comm->device_comm);
  LOG_INFO(ARFUSION_LOG_COLL, "rank %d of %d aborts", comm->rank, comm->nranks);
  return arfusionSuccess;
}

arfusionResult_t comm_async_error(struct comm* comm, char* text, size_t bytes) {
  struct kernel_failure failure = {0};
  if (comm->device_comm) comm->device->failure(comm->device_comm, &failure);
  if (failure.kind == KERNEL_FAILURE_NONE && !atomic_load(&comm->aborted)) {
    if (bytes) text[0] = '\0';
    return arfusionSuccess;
  }
  const char* algorithm = name_of_algorithm((arfusionAlgorithm_t)failure.algorithm);
  if (failure.kind == KERNEL_FAILURE_NONE || (failure.kind == KERNEL_FAILURE_ABORT && failure.peer == failure.rank)) {
    snprintf(text, bytes, "rank %d aborted", comm->rank);
  } else if (failure.kind == KERNEL_FAILURE_REMOTE) {
    snprintf(text, bytes, "rank %u: rank %u failed first (noticed in %s, operation %llu, token %lld)", failure.rank,
             failure.peer, algorithm, (unsigned long long)failure.epoch, (long long)failure.token);
  } else if (failure.kind == KERNEL_FAILURE_OVERLAP) {
    snprintf(text, bytes,
             "rank %u: %s, operation %llu, ran beside another operation of this communicator; a graph and what runs outside "
             "it must be ordered by the caller", failure.rank, algorithm, (unsigned long long)failure.epoch);
  } else {
    snprintf(text, bytes, "rank %u waited for rank %u%s (%s, operation %llu, token %lld)", failure.rank, failure.peer,
             failure.kind == KERNEL_FAILURE_ABORT ? " when it was aborted" : " until the time-out (ARFUSION_TIMEOUT)",
             algorithm, (unsigned long long)failure.epoch, (long long)failure.token);
  }
  return failure.kind == KERNEL_FAILURE_REMOTE || failure.kind == KERNEL_FAILURE_TIMEOUT ? arfusionRemoteError
                                                                                         : arfusionInvalidUsage;
}
