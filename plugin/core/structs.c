/* SPDX-License-Identifier: Apache-2.0
 *
 * structs.c: see structs.h.
 */
#include "plugin/core/structs.h"

#include <string.h>

#include "plugin/core/log.h"

enum { LARGEST_PLAUSIBLE_SIZE = 1 << 16 }; /* an uninitialised size must not make us read far beyond the struct */

arfusionResult_t struct_check_output(const void* callers, size_t v1_size, const char* name) {
  if (!callers) return error_set(arfusionInvalidArgument, "%s is NULL", name);
  const size_t size = *(const size_t*)callers;
  if (size < v1_size) {
    return error_set(arfusionInvalidArgument, "%s.size is %zu, at least version 1's %zu is needed", name, size,
                     v1_size);
  }
  if (size > LARGEST_PLAUSIBLE_SIZE) {
    return error_set(arfusionInvalidArgument, "%s.size is %zu, at most %d makes sense", name, size,
                     LARGEST_PLAUSIBLE_SIZE);
  }
  return arfusionSuccess;
}

arfusionResult_t struct_read(void* own, size_t own_size, const void* callers, size_t v1_size, const char* name) {
  FORWARD_IF_ERROR(struct_check_output(callers, v1_size, name));
  const size_t size = *(const size_t*)callers;
  const unsigned char* bytes = callers;
  for (size_t i = own_size; i < size; ++i) {
    if (bytes[i]) {
      return error_set(
          arfusionInvalidArgument,
          "%s: byte %zu of %zu is not 0, but this plugin knows only the first %zu: the caller uses a field of "
          "a later version",
          name, i, size, own_size);
    }
  }
  const size_t known = size < own_size ? size : own_size;
  memcpy(own, callers, known);
  memset((unsigned char*)own + known, 0, own_size - known);
  *(size_t*)own = own_size;
  return arfusionSuccess;
}

void struct_write(void* callers, const void* own, size_t own_size) {
  const size_t size = *(const size_t*)callers;
  memcpy(callers, own, size < own_size ? size : own_size);
  *(size_t*)callers = size;
}
