/* SPDX-License-Identifier: Apache-2.0
 *
 * allocator.c: a preloaded allocator, as tcmalloc and jemalloc are: memory of one object's malloc must not reach
 * another one's free, which a library opened with RTLD_DEEPBIND would bring about. Blocks begin with a mark, and free
 * ends the process where it is missing.
 */
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void* __libc_malloc(size_t bytes);
void __libc_free(void* block);

enum { HEAD = 64 };
static const uint64_t mark = 0x6d616c6c6f636564;

/* The block, and where it truly begins. */
static void* block_make(size_t alignment, size_t bytes) {
  if (bytes > SIZE_MAX - HEAD - alignment) return NULL;
  unsigned char* begin = __libc_malloc(bytes + HEAD + alignment);
  if (!begin) return NULL;
  unsigned char* block = begin + HEAD;
  block += (alignment - (uintptr_t)block % alignment) % alignment;
  memcpy(block - 8, &mark, 8);
  memcpy(block - 16, &begin, 8);
  memcpy(block - 24, &bytes, 8);
  return block;
}

void free(void* block) {
  static const char text[] = "allocator: free of a block that is not its own\n";
  uint64_t found;
  void* begin;
  if (!block) return;
  memcpy(&found, (unsigned char*)block - 8, 8);
  if (found != mark) {
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0) _exit(4);
    _exit(3);
  }
  memset((unsigned char*)block - 8, 0, 8);
  memcpy(&begin, (unsigned char*)block - 16, 8);
  __libc_free(begin);
}

void* malloc(size_t bytes) { return block_make(16, bytes); }

void* calloc(size_t count, size_t bytes) {
  void* block = bytes && count > SIZE_MAX / bytes ? NULL : block_make(16, count * bytes);
  return block ? memset(block, 0, count * bytes) : NULL;
}

void* realloc(void* block, size_t bytes) {
  size_t old = 0;
  if (block) memcpy(&old, (unsigned char*)block - 24, 8);
  void* moved = block_make(16, bytes);
  if (!moved || !block) return moved;
  memcpy(moved, block, old < bytes ? old : bytes);
  free(block);
  return moved;
}

void* memalign(size_t alignment, size_t bytes) { return block_make(alignment < 16 ? 16 : alignment, bytes); }
void* aligned_alloc(size_t alignment, size_t bytes) { return memalign(alignment, bytes); }
int posix_memalign(void** block, size_t alignment, size_t bytes) {
  return (*block = memalign(alignment, bytes)) ? 0 : 12;
}
