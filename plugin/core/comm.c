/* SPDX-License-Identifier: Apache-2.0
 *
 * comm.c: the life of a communicator after it was made.
 */
#include <stdlib.h>

#include "plugin/core/comm.h"
#include "plugin/core/failure.h"
#include "plugin/core/log.h"

static void log_nans(struct comm* comm) {
  uint64_t nans[KERNEL_NAN_PLACES] = {0};
  comm->device->nan_counts(comm->device_comm, 1, nans);
  const unsigned long long inputs = nans[KERNEL_NAN_INPUT], residuals = nans[KERNEL_NAN_RESIDUAL];
  const unsigned long long outputs = nans[KERNEL_NAN_OUTPUT];
#define NANS_TEXT "rank %d of %d: %llu NaNs in inputs, %llu in residuals, %llu in outputs of %llu requests"
  if (inputs || residuals || outputs) {
    LOG_WARN(NANS_TEXT, comm->rank, comm->nranks, inputs, residuals, outputs, (unsigned long long)comm->stats.requests);
  } else {
    LOG_INFO(ARFUSION_LOG_COLL, NANS_TEXT, comm->rank, comm->nranks, inputs, residuals, outputs,
             (unsigned long long)comm->stats.requests);
  }
}

arfusionResult_t comm_finalize(struct comm* comm) {
  if (comm->device_comm && comm->count_nan) log_nans(comm);
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
  if (failure.kind == KERNEL_FAILURE_NONE) { /* before any operation met the abort */
    failure = (struct kernel_failure){
        .kind = KERNEL_FAILURE_ABORT, .rank = (uint32_t)comm->rank, .peer = (uint32_t)comm->rank};
  }
  failure_text(&failure, text, bytes);
  return failure_result(&failure);
}

/* ---------------------------------------------------------------- counters */

void comm_stats(struct comm* comm, arfusionStats_t* stats) {
  uint64_t nans[KERNEL_NAN_PLACES] = {0};
  *stats = comm->stats;
  if (comm->device_comm && comm->count_nan) comm->device->nan_counts(comm->device_comm, 0, nans);
  stats->nanInputs = nans[KERNEL_NAN_INPUT];
  stats->nanResiduals = nans[KERNEL_NAN_RESIDUAL];
  stats->nanOutputs = nans[KERNEL_NAN_OUTPUT];
}
