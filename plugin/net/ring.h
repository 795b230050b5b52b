/* SPDX-License-Identifier: Apache-2.0
 *
 * ring.h: a stream of bytes from one process to another through memory that both have mapped. One writer, one reader,
 * each a single thread. Each end keeps its own position to itself, so that a peer that spoils the shared words can make
 * this end fail, but not read or write elsewhere.
 */
#ifndef ARFUSION_NET_RING_H_
#define ARFUSION_NET_RING_H_

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

struct ring_memory {
  _Alignas(64) _Atomic uint32_t written; /* bytes since the beginning, modulo 2^32 */
  _Atomic uint32_t reader_waits;
  _Alignas(64) _Atomic uint32_t read;
  _Atomic uint32_t writer_waits;
  _Alignas(64) unsigned char data[];
};

struct ring {
  struct ring_memory* memory; /* NULL: there is none */
  uint32_t bytes;             /* of data; a power of 2 */
  uint32_t position;          /* of this end */
};

#define RING_SPOILED (-1)

/* Memory for a ring of `bytes`: begins as zeros. */
static inline size_t ring_memory_bytes(uint32_t bytes) { return sizeof(struct ring_memory) + bytes; }

/* What fits of `bytes` is written, what is there of `bytes` is read: how much that was, or RING_SPOILED. */
int64_t ring_write(struct ring* ring, const void* data, size_t bytes);
int64_t ring_read(struct ring* ring, void* data, size_t bytes);

/* Waits until there is room to write, or something to read, or a wake, or `nanoseconds` have passed. */
void ring_wait_write(struct ring* ring, int64_t nanoseconds);
void ring_wait_read(struct ring* ring, int64_t nanoseconds);

/* Wakes whoever waits at either end. */
void ring_wake(struct ring* ring);

#endif
