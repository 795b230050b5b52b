/* SPDX-License-Identifier: Apache-2.0
 *
 * ring.c: see ring.h. Whoever waits says so in a word next to the position that the other end moves; all these accesses
 * are sequentially consistent, so either the wait sees the new position, or the other end sees the waiter and wakes it.
 */
#include "plugin/net/ring.h"

#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define RING_PIECE 65536u /* told to the other end at once, so that both copy at the same time */

static void futex_wake(_Atomic uint32_t* word) { syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0); }

static void futex_wait(_Atomic uint32_t* word, uint32_t value, int64_t nanoseconds) {
  struct timespec limit = {.tv_sec = nanoseconds / 1000000000, .tv_nsec = nanoseconds % 1000000000};
  syscall(SYS_futex, word, FUTEX_WAIT, value, &limit, NULL, 0);
}

static void tell(_Atomic uint32_t* position, uint32_t value, _Atomic uint32_t* waits) {
  atomic_store(position, value);
  if (atomic_load(waits) != 0) futex_wake(position);
}

int64_t ring_write(struct ring* ring, const void* data, size_t bytes) {
  size_t done = 0;

  while (done < bytes) {
    uint32_t used = ring->position - atomic_load_explicit(&ring->memory->read, memory_order_acquire);
    uint32_t at = ring->position & (ring->bytes - 1), piece = RING_PIECE;
    if (used > ring->bytes) return RING_SPOILED;
    if (piece > ring->bytes - used) piece = ring->bytes - used;
    if (piece > ring->bytes - at) piece = ring->bytes - at;
    if (piece > bytes - done) piece = (uint32_t)(bytes - done);
    if (piece == 0) break;
    memcpy(ring->memory->data + at, (const char*)data + done, piece);
    done += piece;
    ring->position += piece;
    tell(&ring->memory->written, ring->position, &ring->memory->reader_waits);
  }
  return (int64_t)done;
}

int64_t ring_read(struct ring* ring, void* data, size_t bytes) {
  size_t done = 0;

  while (done < bytes) {
    uint32_t used = atomic_load_explicit(&ring->memory->written, memory_order_acquire) - ring->position;
    uint32_t at = ring->position & (ring->bytes - 1), piece = RING_PIECE;
    if (used > ring->bytes) return RING_SPOILED;
    if (piece > used) piece = used;
    if (piece > ring->bytes - at) piece = ring->bytes - at;
    if (piece > bytes - done) piece = (uint32_t)(bytes - done);
    if (piece == 0) break;
    memcpy((char*)data + done, ring->memory->data + at, piece);
    done += piece;
    ring->position += piece;
    tell(&ring->memory->read, ring->position, &ring->memory->writer_waits);
  }
  return (int64_t)done;
}

void ring_wait_write(struct ring* ring, int64_t nanoseconds) {
  uint32_t full = ring->position - ring->bytes; /* `read`, when there is no room */

  atomic_store(&ring->memory->writer_waits, 1);
  if (atomic_load(&ring->memory->read) == full) futex_wait(&ring->memory->read, full, nanoseconds);
  atomic_store(&ring->memory->writer_waits, 0);
}

void ring_wait_read(struct ring* ring, int64_t nanoseconds) {
  atomic_store(&ring->memory->reader_waits, 1);
  if (atomic_load(&ring->memory->written) == ring->position) {
    futex_wait(&ring->memory->written, ring->position, nanoseconds);
  }
  atomic_store(&ring->memory->reader_waits, 0);
}

void ring_wake(struct ring* ring) {
  futex_wake(&ring->memory->written);
  futex_wake(&ring->memory->read);
}
