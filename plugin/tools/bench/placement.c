/* SPDX-License-Identifier: Apache-2.0
 *
 * placement.c: tensors in guarded buffers; see placement.h.
 */
#include "plugin/tools/bench/placement.h"

#include <string.h>

#define PATTERN 0xa5

static size_t tensor_start(const struct placement* p) { return PLACEMENT_GUARD + p->offset; }

/* The last row's padding is part of the guard behind. */
size_t placement_bytes(const struct placement* p) {
  return tensor_start(p) + p->rows * p->stride_bytes + PLACEMENT_GUARD;
}

void* placement_data(const struct placement* p) { return p->buffer->data + tensor_start(p); }

int placement_write(struct bench_device* device, const struct placement* p, const void* dense) {
  unsigned char* image = p->buffer->image;
  size_t bytes = placement_bytes(p);
  memset(image, PATTERN, bytes);
  for (size_t row = 0; dense != NULL && row < p->rows; row++) {
    memcpy(image + tensor_start(p) + row * p->stride_bytes, (const unsigned char*)dense + row * p->row_bytes,
           p->row_bytes);
  }
  return device->upload(device, p->buffer, bytes);
}

int placement_read(struct bench_device* device, const struct placement* p) {
  return device->download(device, p->buffer, placement_bytes(p));
}

/* The first byte of [start, end) of the image that is not the pattern; `end` if all are. */
static size_t find_written(const struct placement* p, size_t start, size_t end) {
  const unsigned char* image = p->buffer->image;
  while (start < end && image[start] == PATTERN) start++;
  return start;
}

enum placement_verdict placement_compare(const struct placement* p, const void* dense, int64_t* where) {
  const unsigned char* image = p->buffer->image;
  size_t gap = 0; /* start of what lies between the last row and this one */
  for (size_t row = 0; row < p->rows; row++) {
    size_t start = tensor_start(p) + row * p->stride_bytes;
    size_t written = find_written(p, gap, start);
    if (written < start) {
      *where = (int64_t)written - (int64_t)tensor_start(p);
      return PLACEMENT_OUTSIDE;
    }
    const unsigned char* expected = (const unsigned char*)dense + row * p->row_bytes;
    if (memcmp(image + start, expected, p->row_bytes) != 0) {
      size_t i = 0;
      while (image[start + i] == expected[i]) i++;
      *where = (int64_t)(row * p->row_bytes + i);
      return PLACEMENT_DIFFERS;
    }
    gap = start + p->row_bytes;
  }
  size_t written = find_written(p, gap, placement_bytes(p));
  *where = (int64_t)written - (int64_t)tensor_start(p);
  return written < placement_bytes(p) ? PLACEMENT_OUTSIDE : PLACEMENT_EQUAL;
}

void placement_pack(const struct placement* p, void* dense) {
  for (size_t row = 0; row < p->rows; row++) {
    memcpy((unsigned char*)dense + row * p->row_bytes, p->buffer->image + tensor_start(p) + row * p->stride_bytes,
           p->row_bytes);
  }
}
