/* SPDX-License-Identifier: Apache-2.0
 *
 * arch.c: NVLinks of NVIDIA's architectures, and which architecture a PCI device id is.
 */
#include "topo/model.h"

/* raw: what `nvidia-smi nvlink -s` prints; effective: what NCCL reckons with. */
static const struct topo_arch archs[] = {
    {60, 1, 20000, 18000},  {70, 2, 25781, 20000}, {75, 2, 25781, 20000}, {80, 3, 25000, 20000},
    {86, 3, 14062, 12000},  {89, 0, 0, 0},         {90, 4, 26562, 20600}, {100, 5, 53125, 40100},
    {103, 5, 53125, 40100}, {120, 0, 0, 0},
};

const struct topo_arch* topo_arch_of_sm(int sm) {
  for (unsigned i = 0; i < sizeof archs / sizeof archs[0]; ++i) {
    if (archs[i].sm == sm) return &archs[i];
  }
  return NULL;
}

int topo_sm_of_device(uint16_t pci_device) {
  static const struct {
    uint16_t first, last;
    int sm;
  } ranges[] = {{0x15f0, 0x15ff, 60},  {0x1d80, 0x1dff, 70},  {0x1e00, 0x21ff, 75}, {0x2200, 0x25ff, 86},
                {0x2600, 0x28ff, 89},  {0x2300, 0x23ff, 90},  {0x2900, 0x29ff, 100}, {0x2b00, 0x2dff, 120},
                {0x3180, 0x31ff, 103}, {0x2080, 0x20ff, 80}};
  int sm = 0;
  unsigned narrowest = 0x10000;
  for (unsigned i = 0; i < sizeof ranges / sizeof ranges[0]; ++i) {
    const unsigned width = (unsigned)(ranges[i].last - ranges[i].first);
    if (pci_device >= ranges[i].first && pci_device <= ranges[i].last && width < narrowest) {
      sm = ranges[i].sm;
      narrowest = width;
    }
  }
  return sm;
}
