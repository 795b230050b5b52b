/* SPDX-License-Identifier: Apache-2.0
 *
 * tuning_builtin.c: the routing tables that are built in, and the times behind them.
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
 *   one-shot sync     8 KiB 5.2 µs, 128 MiB 544 µs:     5.2 µs + bytes / 249 GB/s
 * One-shot sync has the bytes of one-shot Lamport at a higher latency and a lower rate, so it is never taken. The
 * latency is taken to be the same with every link and rank count; the rates rise with the link's.
 *
 * The alternative is never faster by it: NCCL's rings send the bytes of two-shot, no faster, and the epilogue is one
 * kernel more. Multicast (NVLink SHARP) is in no measurement yet; `arfusion-bench tune` on the machine itself tells.
 */
#include "plugin/core/tuning.h"

static const double oneshot_latency_us = 2.7, oneshot_gb_per_s = 365;
static const double sync_latency_us = 5.2, sync_gb_per_s = 249;
static const double twoshot_latency_us = 5.4, twoshot_gb_per_s = 342;

/* What an operation stands in place of, two H200, hidden 4096 (the last point: 8192), h200x2.json: ncclAllReduce with
 * the epilogue kernel behind it, less that kernel alone; and that kernel. */
static const struct {
  double bytes, nccl_us, epilogue_us;
} unfused[] = {
    {8 << 10, 6.64, 1.75},    {128 << 10, 7.40, 1.80}, {512 << 10, 10.17, 1.90}, {1 << 20, 13.94, 2.05},
    {2 << 20, 26.96, 2.57},   {4 << 20, 32.26, 4.50},  {8 << 20, 47.86, 7.13},   {16 << 20, 79.25, 13.03},
    {32 << 20, 132.79, 35.2}, {64 << 20, 242.88, 67.6}, {128 << 20, 461.74, 166.3},
};
enum { UNFUSED = sizeof unfused / sizeof unfused[0] };

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

static int link_row(int arch) {
  int row = 0;
  while (row + 1 < LINKS && links[row + 1].arch <= arch) ++row;
  return row;
}

/* The link's rate against the measured one. */
static double link_scale(int arch) { return links[link_row(arch)].gb_per_s / links[MEASURED_LINK].gb_per_s; }

/* The size up to which one-shot is the faster one: where the two lines meet. */
static int64_t oneshot_up_to(double scale, int nranks) {
  const double peers = nranks - 1;
  /* µs a byte: 1 GB/s is 1000 bytes a µs. */
  const double oneshot = peers / (oneshot_gb_per_s * scale * 1000);
  const double twoshot = 2 * peers / nranks / (twoshot_gb_per_s * scale * 1000);
  if (oneshot <= twoshot) return INT64_MAX;
  return (int64_t)((twoshot_latency_us - oneshot_latency_us) / (oneshot - twoshot));
}

const char* tuning_builtin(int compute_major, int compute_minor, int nranks, struct route_table* table) {
  const int arch = compute_major * 10 + compute_minor;
  *table = (struct route_table){.slower_from_bytes = INT64_MAX};
  table->automatic[0].algorithm = arfusionAlgoOneshotLamport;
  table->automatic[1].up_to_bytes = INT64_MAX;
  if (compute_major == 0) {
    /* Equal up to here, then one-shot sync is the fastest up to 8 MiB and more. */
    table->automatic[0].up_to_bytes = 4 << 10;
    table->automatic[1].algorithm = arfusionAlgoOneshotSync;
    return nranks == MEASURED_RANKS ? "measured" : "measured with 2 ranks";
  }
  table->automatic[0].up_to_bytes = oneshot_up_to(link_scale(arch), nranks);
  table->automatic[1].algorithm = arfusionAlgoTwoshot;
  return arch == links[MEASURED_LINK].arch && nranks == MEASURED_RANKS ? "measured" : "from a model";
}

/* The segment of unfused[] whose line stands for `bytes`: the first and the last one reach beyond their ends. */
static int unfused_segment(double bytes) {
  int i = 0;
  while (i + 2 < UNFUSED && bytes > unfused[i + 1].bytes) ++i;
  return i;
}

static double line(double x, double x0, double y0, double x1, double y1) {
  return y0 + (x - x0) * (y1 - y0) / (x1 - x0);
}

static double nccl_us(double bytes) {
  const int i = unfused_segment(bytes);
  return line(bytes, unfused[i].bytes, unfused[i].nccl_us, unfused[i + 1].bytes, unfused[i + 1].nccl_us);
}

static double epilogue_us(double bytes) {
  const int i = unfused_segment(bytes);
  return line(bytes, unfused[i].bytes, unfused[i].epilogue_us, unfused[i + 1].bytes, unfused[i + 1].epilogue_us);
}

static double operation_us(arfusionAlgorithm_t algorithm, double oneshot_bytes, double ring_bytes) {
  switch (algorithm) { /* 1 GB/s is 1000 bytes a µs */
    case arfusionAlgoOneshotLamport: return oneshot_latency_us + oneshot_bytes / (oneshot_gb_per_s * 1000);
    case arfusionAlgoOneshotSync: return sync_latency_us + oneshot_bytes / (sync_gb_per_s * 1000);
    default: return twoshot_latency_us + ring_bytes / (twoshot_gb_per_s * 1000);
  }
}

const char* tuning_estimate(int compute_major, int compute_minor, int nranks, arfusionAlgorithm_t algorithm,
                            int64_t bytes, struct tuning_times* times) {
  const int arch = compute_major * 10 + compute_minor;
  if (compute_major == 0) return NULL;
  const double peers = nranks - 1, scale = link_scale(arch);
  const double oneshot_bytes = peers * (double)bytes / scale, ring_bytes = 2 * peers / nranks * (double)bytes / scale;
  times->operation_us = operation_us(algorithm, oneshot_bytes, ring_bytes);
  times->nccl_us = nccl_us(ring_bytes);
  times->epilogue_us = epilogue_us((double)bytes);
  if (arch == links[MEASURED_LINK].arch && nranks == MEASURED_RANKS) {
    return "lines through measurements of two H200 in CUDA graphs, NCCL 2.28.3 without multicast";
  }
  return "a model: measurements of two H200 in CUDA graphs (NCCL 2.28.3 without multicast), scaled by the bytes that a "
         "rank "
         "sends and by the published rate of the links; nobody has measured it here";
}
