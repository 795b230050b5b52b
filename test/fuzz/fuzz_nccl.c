/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_nccl.c: the reader of NCCL topology XML under libFuzzer.
 */
#include "test/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  return fuzz_one(data, bytes, topo_read_nccl_xml_buffer);
}
