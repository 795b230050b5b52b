/* SPDX-License-Identifier: Apache-2.0
 *
 * link_memory.c: see link_memory.h. The memory is a memfd that nobody can make smaller, so that no access to it can
 * fail because of what the peer does.
 */
#include "plugin/net/link_memory.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define CONTROL_BYTES (128u << 10) /* messages, from sender to receiver */
#define POSTS_BYTES (16u << 10)    /* from receiver to sender */
#define LANE_BYTES (1u << 20)
#define PAGE 4096u
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

struct link_memory {
  int nlanes;
  size_t bytes;
  unsigned char* base;
};

static size_t paged(size_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

static size_t posts_offset(void) { return paged(ring_memory_bytes(CONTROL_BYTES)); }

static size_t lane_offset(int lane) {
  return posts_offset() + paged(ring_memory_bytes(POSTS_BYTES)) + (size_t)lane * paged(ring_memory_bytes(LANE_BYTES));
}

struct link_memory* link_memory_map(int fd, int nlanes) {
  struct link_memory* memory;
  const int seals = fcntl(fd, F_GET_SEALS); /* -1: a file that knows none */
  struct stat status;

  if (fstat(fd, &status) != 0) return NULL;
  if (seals < 0 || (seals & SEALS) != SEALS || (size_t)status.st_size != lane_offset(nlanes)) {
    errno = EBADMSG;
    return NULL;
  }
  memory = malloc(sizeof(*memory));
  if (memory == NULL) return NULL;
  memory->nlanes = nlanes;
  memory->bytes = lane_offset(nlanes);
  memory->base = mmap(NULL, memory->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory->base == MAP_FAILED) {
    free(memory);
    return NULL;
  }
  return memory;
}

struct link_memory* link_memory_create(int nlanes, int* fd) {
  struct link_memory* memory = NULL;
  int made = memfd_create("arfusion-net", MFD_CLOEXEC | MFD_ALLOW_SEALING);

  if (made < 0) return NULL;
  if (ftruncate(made, (off_t)lane_offset(nlanes)) == 0 && fcntl(made, F_ADD_SEALS, SEALS) == 0) {
    memory = link_memory_map(made, nlanes);
  }
  if (memory == NULL) {
    close(made);
    return NULL;
  }
  *fd = made;
  return memory;
}

void link_memory_unmap(struct link_memory* memory) {
  munmap(memory->base, memory->bytes);
  free(memory);
}

static void ring_at(const struct link_memory* memory, size_t offset, uint32_t bytes, struct ring* ring) {
  ring->memory = (struct ring_memory*)(void*)(memory->base + offset);
  ring->bytes = bytes;
  ring->position = 0;
}

void link_memory_control(const struct link_memory* memory, int sending, struct stream* stream) {
  ring_at(memory, 0, CONTROL_BYTES, sending ? &stream->out : &stream->in);
  ring_at(memory, posts_offset(), POSTS_BYTES, sending ? &stream->in : &stream->out);
}

void link_memory_lane(const struct link_memory* memory, int lane, int sending, struct stream* stream) {
  ring_at(memory, lane_offset(lane), LANE_BYTES, sending ? &stream->out : &stream->in);
}
