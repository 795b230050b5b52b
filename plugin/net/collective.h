/* SPDX-License-Identifier: Apache-2.0
 *
 * collective.h: collective operations of several ranks on host memory, over links between all of them. A thread of each
 * rank does them, one after the other, in the order in which they are handed over, which must be the same on all ranks.
 *
 * Sums are in rank order, so all ranks have the same bits. Large operations go block by block: each rank reduces its
 * share of a block and hands the result to all. Small ones go from everybody to everybody and are reduced by each rank.
 */
#ifndef ARFUSION_NET_COLLECTIVE_H_
#define ARFUSION_NET_COLLECTIVE_H_

#include "plugin/net/endpoint.h"
#include "plugin/net/nccl_net.h"

#define COLLECTIVE_RANKS_MAX 4096
#define COLLECTIVE_PARTS_MAX 16

struct collective;
struct collective_request;

/* handles[nranks]: what the ranks' listeners have written; handles[rank] and `listener` are this rank's. Waits for all
 * ranks, at most options->timeout_s. The listener stays the caller's. */
arfusionResult_t collective_create(void* const* handles, int nranks, int rank, struct listener* listener,
                                   const struct endpoint_options* options, struct collective** made);

/* Operations that are not done yet are given up; the other ranks' fail. */
void collective_close(struct collective* collective);

/* An operation. A window is a range of bytes of the ranks' shares, laid one after the other. */
enum collective_kind { COLLECTIVE_ALLREDUCE, COLLECTIVE_ALLGATHER, COLLECTIVE_REDUCESCATTER };

struct collective_op {
  enum collective_kind kind;
  arfusionDataType_t type;
  arfusionRedOp_t op;
  size_t count;     /* allreduce: elements */
  const void* send; /* allreduce, all-gather: where this rank's share and the window meet */
  void* recv;       /* allreduce (may be send), reduce-scatter: where this rank's share and the window meet */
  int nparts;       /* the window: the result of an all-gather, the input of a reduce-scatter */
  struct nccl_net_part parts[COLLECTIVE_PARTS_MAX];
  size_t bytes_per_rank, window_offset, window_bytes;
};

/* *request is NULL if NCCL_NET_REQUESTS are outstanding. */
arfusionResult_t collective_start(struct collective* collective, const struct collective_op* op,
                                  struct collective_request** request);

/* When *done is 1, the request is no more; *size (may be NULL) is then the bytes of the result, at most INT_MAX. */
arfusionResult_t collective_test(struct collective_request* request, int* done, int* size);

#endif
