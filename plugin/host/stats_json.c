/* SPDX-License-Identifier: Apache-2.0
 *
 * stats_json.c: a communicator's counters as JSON. The plugin may be newer than this library: what it counts under
 * numbers that have no name here is named by its number.
 */
#include <stdio.h>
#include <string.h>

#include "plugin/core/log.h"
#include "plugin/core/names.h"
#include "plugin/host/library.h"

enum { TEXT_BYTES = 8192 }; /* all counters at their largest take less than 5000 */

static void counters_append(char* text, const char* title, const uint64_t* counters, int count, int first,
                            const char* (*name_of)(int)) {
  const char* separator = "";
  size_t used = strlen(text);
  used += (size_t)snprintf(text + used, TEXT_BYTES - used, ", \"%s\": {", title);
  for (int i = first; i < count; ++i) {
    if (counters[i] == 0) continue;
    const char* name = name_of(i);
    const int known = strncmp(name, "unknown", 7) != 0;
    used += (size_t)(known ? snprintf(text + used, TEXT_BYTES - used, "%s\"%s\": %llu", separator, name,
                                      (unsigned long long)counters[i])
                           : snprintf(text + used, TEXT_BYTES - used, "%s\"%d\": %llu", separator, i,
                                      (unsigned long long)counters[i]));
    separator = ", ";
  }
  snprintf(text + used, TEXT_BYTES - used, "}");
}

static const char* algorithm_name(int algorithm) { return name_of_algorithm((arfusionAlgorithm_t)algorithm); }
static const char* reason_name(int reason) { return key_of_reason((arfusionReason_t)reason); }

arfusionResult_t arfusionCommGetStatsJson(arfusionComm_t comm, char* text, size_t bytes) {
  arfusionStats_t stats = {.size = sizeof stats};
  char own[TEXT_BYTES];
  if (!comm) return error_set(arfusionInvalidArgument, "comm is NULL");
  if (!text) return error_set(arfusionInvalidArgument, "text is NULL");
  FORWARD_PLUGIN(comm->library, commGetStats(comm->plugin_comm, &stats));
  snprintf(own, sizeof own, "{\"requests\": %llu, \"errors\": %llu, \"launches\": %llu, \"bytes\": %llu",
           (unsigned long long)stats.requests, (unsigned long long)stats.errors, (unsigned long long)stats.launches,
           (unsigned long long)stats.bytes);
  enum { ALGORITHMS = sizeof stats.byAlgorithm / sizeof stats.byAlgorithm[0] };
  enum { REASONS = sizeof stats.byReason / sizeof stats.byReason[0] };
  counters_append(own, "by_algorithm", stats.byAlgorithm, ALGORITHMS, 0, algorithm_name);
  counters_append(own, "by_reason", stats.byReason, REASONS, arfusionReasonNone + 1, reason_name);
  const size_t used = strlen(own);
  snprintf(own + used, sizeof own - used, ", \"nan_inputs\": %llu, \"nan_residuals\": %llu, \"nan_outputs\": %llu}",
           (unsigned long long)stats.nanInputs, (unsigned long long)stats.nanResiduals,
           (unsigned long long)stats.nanOutputs);
  if (strlen(own) >= bytes) {
    return error_set(arfusionInvalidArgument, "bytes is %zu, %zu are needed", bytes, strlen(own) + 1);
  }
  strcpy(text, own);
  return arfusionSuccess;
}
