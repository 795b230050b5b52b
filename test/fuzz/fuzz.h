/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz.h: what both fuzzers of topology readers do with a file: read it, and if it is taken, ask everything of it and
 * write it in both formats.
 */
#ifndef ARFUSION_TEST_FUZZ_H_
#define ARFUSION_TEST_FUZZ_H_

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "topo/topo.h"

typedef int (*fuzz_reader)(const char* data, size_t bytes, const char* name, struct topo** out,
                           struct topo_error* error);
typedef int (*fuzz_writer)(const struct topo* topo, char** text, size_t* bytes, struct topo_error* error);

/* What we write we can read, and it has as many GPUs. */
static inline void fuzz_write(const struct topo* topo, fuzz_writer write, fuzz_reader read, int must) {
  struct topo_error error;
  struct topo* again;
  char* text;
  size_t bytes;
  if (write(topo, &text, &bytes, &error)) {
    if (must) abort();
    return;
  }
  if (read(text, bytes, "again.xml", &again, &error)) abort();
  if (must && again->ngpus != topo->ngpus) abort();
  topo_free(again);
  free(text);
}

static inline int fuzz_one(const uint8_t* data, size_t bytes, fuzz_reader read) {
  struct topo_error error;
  struct topo_verdict verdict;
  struct topo* topo;
  char cell[8];
  if (read((const char*)data, bytes, "fuzz.xml", &topo, &error)) {
    if (error.text[0] == '\0' || strchr(error.text, '\n')) abort();
    return 0;
  }
  for (int i = 0; i < topo->nfindings; ++i) {
    if (!topo->findings[i].text || strchr(topo->findings[i].text, '\n')) abort();
  }
  for (int a = 0; a < topo->ngpus; ++a) {
    for (int b = 0; b < topo->ngpus; ++b) topo_pair_cell(topo, a, b, cell);
  }
  topo_verdict(topo, NULL, 0, TOPO_LEVEL_PXB, &verdict);
  fuzz_write(topo, topo_write_nccl_xml, topo_read_nccl_xml_buffer, 1);
  fuzz_write(topo, topo_write_hwloc_xml, topo_read_hwloc_xml_buffer, 0); /* hwloc may refuse what contradicts itself */
  topo_redact(topo);
  topo_free(topo);
  return 0;
}

#endif
