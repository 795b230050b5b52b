/* SPDX-License-Identifier: Apache-2.0
 *
 * mock_group.c: the mock's groups, its errors, and its functions that are about nothing else.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "test/nccl/mock/mock_internal.h"

MOCK_API int ncclGroupStart(void);
MOCK_API int ncclGroupEnd(void);
MOCK_API int ncclGroupSimulateEnd(void* info);
MOCK_API const char* ncclGetErrorString(int result);
MOCK_API const char* ncclGetLastError(void* comm);
MOCK_API int ncclGetVersion(int* version);

static _Thread_local int depth, group_error, group_lasts;
static _Thread_local char last_error[256];

int mock_error(int result, const char* text) {
  snprintf(last_error, sizeof last_error, "%s", text);
  if (depth && !group_error) group_error = result;
  return result;
}

void mock_die(const char* text) {
  fprintf(stderr, "the mock libnccl: %s\n", text);
  fflush(stderr);
  abort();
}

int mock_group_is_open(void) { return depth > 0; }

void mock_group_lasts(void) { group_lasts = 1; }

int ncclGroupStart(void) {
  ++depth;
  return NCCL_SUCCESS;
}

int ncclGroupEnd(void) {
  if (depth == 0) return mock_error(NCCL_INVALID_USAGE, "ncclGroupEnd without ncclGroupStart");
  if (--depth > 0) return NCCL_SUCCESS;
  const int error = group_error;
  group_error = NCCL_SUCCESS;
  if (error) {
    mock_operations_forget();
    mock_comms_forget();
    return error;
  }
  const int result = mock_comms_finish(), lasts = group_lasts;
  group_lasts = 0;
  mock_operations_begin();
  return lasts ? NCCL_IN_PROGRESS : result;
}

int ncclGroupSimulateEnd(void* info) {
  (void)info;
  if (depth == 0) return mock_error(NCCL_INVALID_USAGE, "ncclGroupSimulateEnd without ncclGroupStart");
  if (--depth == 0) {
    mock_operations_forget();
    mock_comms_forget();
  }
  return NCCL_SUCCESS;
}

const char* ncclGetErrorString(int result) {
  static const char* const texts[] = {"no error",         "unhandled cuda error", "unhandled system error",
                                      "internal error",   "invalid argument",     "invalid usage",
                                      "remote error",
                                      "NCCL operation in progress"};
  return result >= 0 && result <= NCCL_IN_PROGRESS ? texts[result] : "unknown result code";
}

const char* ncclGetLastError(void* comm) {
  (void)comm;
  return last_error;
}

int ncclGetVersion(int* version) {
  if (!version) return mock_error(NCCL_INVALID_ARGUMENT, "version is NULL");
  *version = 22809;
  return NCCL_SUCCESS;
}

struct mock_wide ncclTeamCft(MOCK_WIDE_PARAMETERS) {
  return (struct mock_wide){{a, b, c, d, e, f, g, h, i, j}, {p, q, r, s, t, u, v, w, x}};
}
