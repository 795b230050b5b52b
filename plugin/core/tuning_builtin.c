/* SPDX-License-Identifier: Apache-2.0
 *
 * tuning_builtin.c: the routing tables that are built in.
 *
 *   device          ranks     the table is
 *   host            2         measured: two processes on two cores of an AMD EPYC; other rank counts take the same
 *   sm_90           2         measured: two H200 SXM, test/bench/results/h200x2.md and h200x2.json: one-shot
 *                             Lamport is the fastest at every size from 5,760 bytes to 128 MiB, NCCL never is
 *   sm_90           3 to 16   from the model below
 *   sm_80, sm_100   2 to 16   from the model below, with that generation's link
 *   others          2 to 16   from the model below, with the row of the nearest older architecture (links[])
 *
 * The model: an operation takes a latency and the time of the bytes that a rank sends over its link. One-shot sends its
 * `bytes` to each of n - 1 peers; two-shot sends 2 (n - 1) / n of them, and waits for one exchange more. Latencies and
 * rates are those of lines through measured points at two ranks (h200x2.md), where both send `bytes` once:
 *   one-shot Lamport  1 MiB 5.54 µs, 112 MiB 324.5 µs:  2.7 µs + bytes / 365 GB/s
 *   two-shot          7 MiB 26.9 µs, 112 MiB 348.8 µs:  5.4 µs + bytes / 342 GB/s
 * One-shot sync has the bytes of one-shot Lamport at a higher latency and a lower rate, so it is never taken. The
 * latency is taken to be the same with every link and rank count; the rates rise with the link's.
 *
 * The alternative is never faster by it: NCCL's rings send the bytes of two-shot, no faster, and the epilogue is one
 * kernel more. Multicast (NVLink SHARP) is in no measurement yet; `arfusion-bench tune` on the machine itself tells.
 */
#include "plugin/core/tuning.h"

static const double oneshot_latency_us = 2.7, oneshot_gb_per_s = 365;
static const double twoshot_latency_us = 5.4, twoshot_gb_per_s = 342;

/* GB/s of all links of a GPU in one direction, as published; the highest architecture that is not above the GPU's
 * counts. sm_86 and sm_89 (workstation GPUs, L40S) and sm_120 have PCI Express alone. */
static const struct {
  int arch;
  double gb_per_s;
} links[] = {
    {80, 300},  /* NVLink 3, 12 links */
    {86, 31.5}, /* PCI Express 4.0 x16 */
    {90, 450},  /* NVLink 4, 18 links */
    {100, 900}, /* NVLink 5, 18 links */
    {120, 63},  /* PCI Express 5.0 x16 */
};
enum { LINKS = sizeof links / sizeof links[0], MEASURED_LINK = 2, MEASURED_RANKS = 2 };

/* The size up to which one-shot is the faster one: where the two lines meet. */
static int64_t oneshot_up_to(double link, int nranks) {
  const double scale = link / links[MEASURED_LINK].gb_per_s;
  const double peers = nranks - 1;
  /* µs a byte: 1 GB/s is 1000 bytes a µs. */
  const double oneshot = peers / (oneshot_gb_per_s * scale * 1000);
  const double twoshot = 2 * peers / nranks / (twoshot_gb_per_s * scale * 1000);
  if (oneshot <= twoshot) return INT64_MAX;
  return (int64_t)((twoshot_latency_us - oneshot_latency_us) / (oneshot - twoshot));
}

const char* tuning_builtin(int compute_major, int compute_minor, int nranks, struct route_table* table) {
  const int arch = compute_major * 10 + compute_minor;
  int row = 0;
  *table = (struct route_table){.slower_from_bytes = INT64_MAX};
  table->automatic[0].algorithm = arfusionAlgoOneshotLamport;
  table->automatic[1].up_to_bytes = INT64_MAX;
  if (compute_major == 0) {
    /* Equal up to here, then one-shot sync is the fastest up to 8 MiB and more. */
    table->automatic[0].up_to_bytes = 4 << 10;
    table->automatic[1].algorithm = arfusionAlgoOneshotSync;
    return nranks == MEASURED_RANKS ? "measured" : "measured with 2 ranks";
  }
  while (row + 1 < LINKS && links[row + 1].arch <= arch) ++row;
  table->automatic[0].up_to_bytes = oneshot_up_to(links[row].gb_per_s, nranks);
  table->automatic[1].algorithm = arfusionAlgoTwoshot;
  return arch == links[MEASURED_LINK].arch && nranks == MEASURED_RANKS ? "measured" : "from a model";
}
