/* SPDX-License-Identifier: Apache-2.0
 *
 * placement.h: a dense tensor laid into a device buffer with a row stride and an offset, the bytes around it and
 * between its rows holding a pattern, so that a write outside it is seen.
 */
#ifndef ARFUSION_BENCH_PLACEMENT_H_
#define ARFUSION_BENCH_PLACEMENT_H_

#include <stdint.h>

#include "plugin/tools/bench/device.h"

#define PLACEMENT_GUARD 256 /* bytes before and after */

struct placement {
  struct bench_buffer* buffer;
  size_t offset; /* bytes, beyond the guard */
  size_t rows, row_bytes, stride_bytes;
};

enum placement_verdict { PLACEMENT_EQUAL, PLACEMENT_DIFFERS, PLACEMENT_OUTSIDE };

/* Bytes of a buffer that holds it. */
size_t placement_bytes(const struct placement* p);

/* What a request's pointer is. */
void* placement_data(const struct placement* p);

/* Writes `dense` and the pattern around it; dense NULL: the pattern everywhere. 0, or -1 with bench_device_error(). */
int placement_write(struct bench_device* device, const struct placement* p, const void* dense);

/* Brings it back into the buffer's image. 0, or -1 with bench_device_error(). */
int placement_read(struct bench_device* device, const struct placement* p);

/* Compares what was read with `dense` and the pattern. *where: the first byte that differs, counted in the dense tensor
 * (PLACEMENT_DIFFERS), or from the tensor's start, maybe negative (PLACEMENT_OUTSIDE). */
enum placement_verdict placement_compare(const struct placement* p, const void* dense, int64_t* where);

/* Copies what was read into a dense tensor. */
void placement_pack(const struct placement* p, void* dense);

#endif
