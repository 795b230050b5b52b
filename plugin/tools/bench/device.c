/* SPDX-License-Identifier: Apache-2.0
 *
 * device.c: which device, and its errors; see device.h.
 */
#include "plugin/tools/bench/device.h"

#include <stdarg.h>
#include <stdio.h>

static _Thread_local char last_error[256];

const char* bench_device_error(void) { return last_error; }

int bench_device_fail(const char* fmt, ...) {
  va_list args;
  va_start(args, fmt);
  vsnprintf(last_error, sizeof(last_error), fmt, args);
  va_end(args);
  return -1;
}

int bench_device_open(enum bench_device_kind kind, int ordinal, struct bench_device** device) {
  if (kind == BENCH_DEVICE_HOST) return bench_device_open_host(device);
#if ARFUSION_HAVE_CUDA
  return bench_device_open_cuda(ordinal, device);
#else
  return bench_device_fail("device %d: this program was built without CUDA", ordinal);
#endif
}
