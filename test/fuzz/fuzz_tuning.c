/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_tuning.c: the reader of tuning files under libFuzzer. A table that it finds is one that routing can use;
 * without one, nothing is touched.
 */
#include <string.h>

#include "plugin/core/log.h"
#include "plugin/core/tuning.h"
#include "test/fuzz/fuzz_file.h"

static void check_table(const struct route_table* table) {
  char text[TUNING_TEXT_BYTES];
  int64_t before = 0;
  int i = 0;
  for (; i < ROUTE_MAX_SEGMENTS; ++i) {
    if (table->automatic[i].up_to_bytes <= before) abort();
    before = table->automatic[i].up_to_bytes;
    if (table->automatic[i].algorithm < arfusionAlgoOneshotLamport) abort();
    if (table->automatic[i].algorithm >= ARFUSION_NUM_ALGORITHMS) abort();
    if (before == INT64_MAX) break;
  }
  if (i == ROUTE_MAX_SEGMENTS || table->slower_from_bytes <= 0) abort();
  tuning_text(table, text);
  if (strlen(text) >= sizeof text || !tuning_equal(table, table)) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  static const struct tuning_target targets[] = {{"host", 0, 0, 2}, {"NVIDIA H200", 9, 0, 8}};
  log_configure(NULL, arfusionLogNone);
  for (int t = 0; t < 2; ++t) {
    struct route_table table, untouched;
    memset(&table, 0xa5, sizeof table);
    untouched = table;
    int found = 0;
    const arfusionResult_t result = tuning_read(fuzz_file(data, bytes), &targets[t], &found, &table);
    if (result == arfusionSuccess && found) {
      check_table(&table);
    } else if (memcmp(&table, &untouched, sizeof table)) {
      abort();
    }
    if (result == arfusionSuccess) continue;
    if (result != arfusionInvalidArgument || !error_last()[0] || strchr(error_last(), '\n')) abort();
  }
  return 0;
}
