/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_hwloc.c: the reader of hwloc XML under libFuzzer.
 */
#include "test/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  return fuzz_one(data, bytes, topo_read_hwloc_xml_buffer);
}
