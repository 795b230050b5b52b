/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_case.c: the reader of case files under libFuzzer: one line that says what is wrong, or cases that can be run.
 */
#include <string.h>

#include "plugin/tools/bench/case.h"
#include "test/fuzz/fuzz_file.h"

static void check_case(const struct bench_case* c) {
  int digests = 0;
  if (!memchr(c->id, '\0', sizeof c->id) || c->nranks < 1 || c->tokens < 0 || c->hidden < 1) abort();
  for (int output = 0; output < OUTPUTS; ++output) {
    const size_t bytes = case_output_bytes(c, output), length = strnlen(c->digest[output], sizeof c->digest[output]);
    if (length != 0 && length != DIGEST_LENGTH) abort();
    if (length != 0 && bytes == 0 && c->tokens != 0) abort();
    if (bytes > (size_t)1 << 48) abort();
    digests += length != 0;
  }
  if (digests == 0) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  char error[512] = "";
  struct case_list list;
  if (case_list_load(fuzz_file(data, bytes), &list, error, sizeof error)) {
    if (!error[0] || strchr(error, '\n')) abort();
    return 0;
  }
  for (int i = 0; i < list.count; ++i) check_case(&list.cases[i]);
  case_list_free(&list);
  return 0;
}
