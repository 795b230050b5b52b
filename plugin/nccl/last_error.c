/* SPDX-License-Identifier: Apache-2.0
 *
 * last_error.c: see last_error.h.
 */
#include "plugin/nccl/last_error.h"

#include "plugin/core/log.h"

static _Thread_local int is_ours;

int last_error_keep(int result, const char* text) {
  is_ours = 1;
  return text ? (int)error_keep((arfusionResult_t)result, text) : result;
}

const char* last_error_text(void) { return is_ours ? error_last() : (const char*)0; }

int last_error_is_nccls(int result) {
  if (result) is_ours = 0;
  return result;
}
