/* SPDX-License-Identifier: Apache-2.0
 *
 * host_layout.c: where things are in a workspace, and how one begins.
 */
#include <string.h>

#include "kernels/host/host_internal.h"

#define PAGE 4096
#define MIN_SLOT 65536
#define SYNC_SLOTS 4 /* two halves each of stage and sums */

static size_t size_min(size_t a, size_t b) { return a < b ? a : b; }
static size_t size_round_up(size_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

/* The largest slot, `wanted` or less, of which `count` fit in `bytes`. */
static size_t slot_fit(size_t wanted, size_t bytes, size_t count) {
  size_t fit = bytes / count / PAGE * PAGE;
  size_t slot = size_min(wanted, fit);
  return slot < MIN_SLOT ? MIN_SLOT : slot;
}

/* Under a tight limit the synchronised slots, which the large requests use, get up to half of it first: they need four
 * slots whatever the rank count, Lamport two for each peer. */
void host_layout_compute(struct host_layout* layout, int nranks, int64_t max_request_bytes, int64_t limit_bytes) {
  size_t control = size_round_up(sizeof(struct host_control));
  size_t wanted = size_round_up(max_request_bytes < MIN_SLOT ? MIN_SLOT : (size_t)max_request_bytes);
  size_t limit = limit_bytes > (int64_t)control ? (size_t)limit_bytes - control : 0;
  size_t lamport_slots = 2 * ((size_t)nranks - 1);

  if (wanted <= limit / (SYNC_SLOTS + lamport_slots)) {
    layout->sync_slot = wanted;
    layout->lamport_slot = wanted;
  } else {
    layout->sync_slot = slot_fit(wanted, limit / 2, SYNC_SLOTS);
    size_t used = SYNC_SLOTS * layout->sync_slot;
    layout->lamport_slot = slot_fit(wanted, limit > used ? limit - used : 0, lamport_slots);
  }
  layout->lamport = control;
  layout->stage = layout->lamport + lamport_slots * layout->lamport_slot;
  layout->sums = layout->stage + 2 * layout->sync_slot;
  layout->total = layout->sums + 2 * layout->sync_slot;
}

size_t host_layout_launch_bytes(const struct host_layout* layout, arfusionAlgorithm_t algorithm) {
  return algorithm == arfusionAlgoOneshotLamport ? layout->lamport_slot : layout->sync_slot;
}

void host_comm_reset(struct host_comm* comm) {
  unsigned char* workspace = comm->workspace[comm->rank];
  uint32_t* words = (uint32_t*)(void*)(workspace + comm->layout.lamport);
  size_t count = (comm->layout.stage - comm->layout.lamport) / sizeof(uint32_t);

  memset(workspace, 0, sizeof(struct host_control));
  for (size_t i = 0; i < count; i++) words[i] = KERNEL_SENTINEL;
  memset(&comm->failure, 0, sizeof(comm->failure));
  comm->lamport_epoch = 0;
  comm->sync_epoch = 0;
  comm->checked = 0;
}
