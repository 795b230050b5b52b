/* SPDX-License-Identifier: Apache-2.0
 *
 * collective_run.c: what collective operations do.
 */
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/core/log.h"
#include "plugin/net/collective_internal.h"
#include "plugin/net/reduce.h"

#define TAG 0
#define IDLE_YIELDS 200 /* rounds that found nothing, before the thread begins to sleep in between */
#define IDLE_SLEEP (30 * NET_MILLISECOND / 1000)

/* ---------------------------------------------------------------- between the ranks */

static arfusionResult_t piece_send(struct collective* collective, int peer, int* left) {
  struct collective_piece* piece = &collective->out[peer];
  int done = 0;

  if (piece->bytes == 0) return arfusionSuccess;
  if (collective->sending[peer] == NULL) {
    FORWARD_IF_ERROR(link_send(collective->to[peer], piece->data, piece->bytes, TAG, &collective->sending[peer]));
    if (collective->sending[peer] == NULL) return arfusionSuccess;
  }
  FORWARD_IF_ERROR(link_test(collective->sending[peer], &done, NULL));
  if (!done) return arfusionSuccess;
  collective->sending[peer] = NULL;
  piece->bytes = 0;
  (*left)--;
  return arfusionSuccess;
}

/* What cannot be posted now is posted later. */
static arfusionResult_t piece_post(struct collective* collective, int peer) {
  struct collective_piece* piece = &collective->in[peer];
  int tag = TAG;

  if (piece->bytes == 0 || collective->receiving[peer] != NULL) return arfusionSuccess;
  return link_receive(collective->from[peer], 1, (void* const*)&piece->data, &piece->bytes, &tag,
                      &collective->receiving[peer]);
}

static arfusionResult_t piece_receive(struct collective* collective, int peer, int* left) {
  struct collective_piece* piece = &collective->in[peer];
  int done = 0, size = 0;

  FORWARD_IF_ERROR(piece_post(collective, peer));
  if (collective->receiving[peer] == NULL) return arfusionSuccess;
  FORWARD_IF_ERROR(link_test(collective->receiving[peer], &done, &size));
  if (!done) return arfusionSuccess;
  collective->receiving[peer] = NULL;
  if ((size_t)size != piece->bytes) {
    return error_set(arfusionInvalidUsage, "NET/arfusion: rank %d sent %d bytes where rank %d expects %zu", peer, size,
                     collective->rank, piece->bytes);
  }
  piece->bytes = 0;
  (*left)--;
  return arfusionSuccess;
}

/* Sends out[] and receives in[]; both are spent after that. What has no bytes is left out. */
static arfusionResult_t exchange(struct collective* collective) {
  int left = 0, idle = 0;

  for (int peer = 0; peer < collective->nranks; peer++) {
    struct collective_piece* in = &collective->in[peer];
    if (peer == collective->rank) collective->out[peer].bytes = in->bytes = 0;
    left += (collective->out[peer].bytes > 0) + (in->bytes > 0);
    FORWARD_IF_ERROR(piece_post(collective, peer));
  }
  while (left > 0) {
    int before = left;
    for (int peer = 0; peer < collective->nranks; peer++) {
      FORWARD_IF_ERROR(piece_send(collective, peer, &left));
      FORWARD_IF_ERROR(piece_receive(collective, peer, &left));
    }
    if (atomic_load(&collective->stop)) {
      return error_set(arfusionInvalidUsage, "NET/arfusion: closed during an operation");
    }
    idle = left < before ? 0 : idle + 1;
    if (idle > IDLE_YIELDS) {
      net_sleep(IDLE_SLEEP);
    } else if (idle > 0) {
      sched_yield();
    }
  }
  return arfusionSuccess;
}

/* ---------------------------------------------------------------- shares */

/* Where the share of a rank lies in what the operation is about, in bytes. */
struct share {
  size_t begin, end;
};

static struct share share_of_count(const struct collective* collective, size_t count, size_t element, int rank) {
  size_t each = (count + (size_t)collective->nranks - 1) / (size_t)collective->nranks;
  struct share share = {(size_t)rank * each, ((size_t)rank + 1) * each};
  if (share.begin > count) share.begin = count;
  if (share.end > count) share.end = count;
  return (struct share){share.begin * element, share.end * element};
}

/* Of the window, counted from its beginning. */
static struct share share_of_window(const struct collective_op* op, int rank) {
  size_t begin = (size_t)rank * op->bytes_per_rank, end = begin + op->bytes_per_rank;
  size_t window_end = op->window_offset + op->window_bytes;
  if (begin < op->window_offset) begin = op->window_offset;
  if (end > window_end) end = window_end;
  if (begin > end) begin = end = op->window_offset;
  return (struct share){begin - op->window_offset, end - op->window_offset};
}

/* Block number `block` of a share. */
static struct share share_block(struct share share, size_t block) {
  size_t begin = share.begin + block * COLLECTIVE_BLOCK;
  if (begin >= share.end) return (struct share){share.end, share.end};
  return (struct share){begin, share.end - begin < COLLECTIVE_BLOCK ? share.end : begin + COLLECTIVE_BLOCK};
}

/* Copies between the window's parts and `memory`: a range of the window. */
static void window_copy(const struct collective_op* op, struct share range, char* memory, int to_window) {
  size_t at = 0;

  for (int i = 0; i < op->nparts && at < range.end; at += op->parts[i++].size) {
    size_t begin = range.begin > at ? range.begin : at, end = at + op->parts[i].size;
    char* part = (char*)op->parts[i].address;
    if (end > range.end) end = range.end;
    if (begin >= end) continue;
    if (to_window) {
      memmove(part + (begin - at), memory + (begin - range.begin), end - begin);
    } else {
      memcpy(memory + (begin - range.begin), part + (begin - at), end - begin);
    }
  }
}

/* Where a range of the window is, if it is all in one part. */
static char* window_at(const struct collective_op* op, struct share range) {
  size_t at = 0;

  for (int i = 0; i < op->nparts; at += op->parts[i++].size) {
    if (range.begin < at || range.end > at + op->parts[i].size) continue;
    return (char*)op->parts[i].address + (range.begin - at);
  }
  return NULL;
}

/* ---------------------------------------------------------------- operations */

static char* scratch_of(const struct collective* collective, int rank) {
  return collective->scratch + (size_t)rank * COLLECTIVE_BLOCK;
}

static void reduce_inputs(struct collective* collective, const struct collective_op* op, const void* mine, void* to,
                          size_t bytes) {
  for (int peer = 0; peer < collective->nranks; peer++) {
    collective->inputs[peer] = peer == collective->rank ? mine : scratch_of(collective, peer);
  }
  reduce_run(op->type, op->op, to, collective->inputs, collective->nranks, bytes / reduce_type_bytes(op->type));
}

static arfusionResult_t allreduce_small(struct collective* collective, const struct collective_op* op, size_t bytes) {
  for (int peer = 0; peer < collective->nranks; peer++) {
    collective->out[peer] = (struct collective_piece){(char*)(uintptr_t)op->send, bytes};
    collective->in[peer] = (struct collective_piece){scratch_of(collective, peer), bytes};
  }
  FORWARD_IF_ERROR(exchange(collective));
  reduce_inputs(collective, op, op->send, op->recv, bytes);
  return arfusionSuccess;
}

static arfusionResult_t allreduce_block(struct collective* collective, const struct collective_op* op, size_t block) {
  const size_t element = reduce_type_bytes(op->type);
  struct share mine = share_block(share_of_count(collective, op->count, element, collective->rank), block);
  const size_t bytes = mine.end - mine.begin;

  for (int peer = 0; peer < collective->nranks; peer++) {
    struct share theirs = share_block(share_of_count(collective, op->count, element, peer), block);
    collective->out[peer].data = (char*)(uintptr_t)op->send + theirs.begin;
    collective->out[peer].bytes = theirs.end - theirs.begin;
    collective->in[peer] = (struct collective_piece){scratch_of(collective, peer), bytes};
  }
  FORWARD_IF_ERROR(exchange(collective));
  reduce_inputs(collective, op, (const char*)op->send + mine.begin, (char*)op->recv + mine.begin, bytes);
  for (int peer = 0; peer < collective->nranks; peer++) {
    struct share theirs = share_block(share_of_count(collective, op->count, element, peer), block);
    collective->out[peer] = (struct collective_piece){(char*)op->recv + mine.begin, bytes};
    collective->in[peer].data = (char*)op->recv + theirs.begin;
    collective->in[peer].bytes = theirs.end - theirs.begin;
  }
  return exchange(collective);
}

static arfusionResult_t allreduce(struct collective* collective, const struct collective_op* op) {
  const size_t element = reduce_type_bytes(op->type), bytes = op->count * element;
  struct share largest = share_of_count(collective, op->count, element, 0);

  if (bytes <= COLLECTIVE_SMALL) return allreduce_small(collective, op, bytes);
  for (size_t block = 0; block * COLLECTIVE_BLOCK < largest.end; block++) {
    FORWARD_IF_ERROR(allreduce_block(collective, op, block));
  }
  return arfusionSuccess;
}

static size_t window_blocks(const struct collective* collective, const struct collective_op* op) {
  size_t most = 0;

  for (int rank = 0; rank < collective->nranks; rank++) {
    struct share share = share_of_window(op, rank);
    if (share.end - share.begin > most) most = share.end - share.begin;
  }
  return (most + COLLECTIVE_BLOCK - 1) / COLLECTIVE_BLOCK;
}

static arfusionResult_t allgather_block(struct collective* collective, const struct collective_op* op, size_t block) {
  struct share all = share_of_window(op, collective->rank), mine = share_block(all, block);
  char* own = (char*)(uintptr_t)op->send + (mine.begin - all.begin);

  for (int peer = 0; peer < collective->nranks; peer++) {
    struct share theirs = share_block(share_of_window(op, peer), block);
    char* at = window_at(op, theirs);
    collective->out[peer] = (struct collective_piece){own, mine.end - mine.begin};
    collective->in[peer].data = at != NULL ? at : scratch_of(collective, peer);
    collective->in[peer].bytes = theirs.end - theirs.begin;
  }
  window_copy(op, mine, own, 1);
  FORWARD_IF_ERROR(exchange(collective));
  for (int peer = 0; peer < collective->nranks; peer++) {
    struct share theirs = share_block(share_of_window(op, peer), block);
    if (peer != collective->rank && window_at(op, theirs) == NULL) {
      window_copy(op, theirs, scratch_of(collective, peer), 1);
    }
  }
  return arfusionSuccess;
}

/* Scratch has room for each rank's values and, behind them, for what is sent from several parts. */
static arfusionResult_t reducescatter_block(struct collective* collective, const struct collective_op* op,
                                            size_t block) {
  struct share all = share_of_window(op, collective->rank), mine = share_block(all, block);
  const size_t bytes = mine.end - mine.begin;
  const void* input = NULL;

  for (int peer = 0; peer < collective->nranks; peer++) {
    struct share theirs = share_block(share_of_window(op, peer), block);
    char* at = window_at(op, theirs);
    if (at == NULL) {
      at = scratch_of(collective, collective->nranks + peer);
      window_copy(op, theirs, at, 0);
    }
    if (peer == collective->rank) input = at;
    collective->out[peer] = (struct collective_piece){at, theirs.end - theirs.begin};
    collective->in[peer] = (struct collective_piece){scratch_of(collective, peer), bytes};
  }
  FORWARD_IF_ERROR(exchange(collective));
  reduce_inputs(collective, op, input, (char*)op->recv + (mine.begin - all.begin), bytes);
  return arfusionSuccess;
}

arfusionResult_t collective_run(struct collective* collective, const struct collective_op* op) {
  size_t blocks = op->kind == COLLECTIVE_ALLREDUCE ? 0 : window_blocks(collective, op);

  if (collective->scratch == NULL) { /* pages that are not touched cost nothing */
    collective->scratch = malloc(2 * (size_t)collective->nranks * COLLECTIVE_BLOCK);
    if (collective->scratch == NULL) {
      return error_set(arfusionSystemError, "NET/arfusion: out of memory for an operation");
    }
  }
  if (op->kind == COLLECTIVE_ALLREDUCE) return allreduce(collective, op);
  for (size_t block = 0; block < blocks; block++) {
    FORWARD_IF_ERROR(op->kind == COLLECTIVE_ALLGATHER ? allgather_block(collective, op, block)
                                                      : reducescatter_block(collective, op, block));
  }
  return arfusionSuccess;
}
