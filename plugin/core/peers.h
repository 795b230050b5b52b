/* SPDX-License-Identifier: Apache-2.0
 *
 * peers.h: whether the ranks of a communicator can use each other's memory: first what the machine says of their GPUs,
 * then, once the workspaces are mapped, whether what they write there arrives. Known once, it is known for the process.
 */
#ifndef ARFUSION_CORE_PEERS_H_
#define ARFUSION_CORE_PEERS_H_

#include "plugin/core/device.h"

enum { PEERS_ALL = -1, PEERS_DISABLED = -2 };

/* From facts (topo/): the lowest rank whose GPU this rank's cannot reach, with the reason in the log; PEERS_ALL,
 * also where nobody can tell; PEERS_DISABLED if NCCL_P2P_DISABLE or NCCL_P2P_LEVEL allows no peer access at all. */
int peers_unreachable(const struct device_setup* setup);

/* The same from a given machine; NULL: nothing is known. */
int peers_judge(const struct topo* topo, const struct device_setup* setup);

/* The write test, by all ranks together, after device->create: sets route->reason to arfusionReasonPeerWriteTest
 * with the first pair (writer, reader) that failed. It takes 10 s at most, and at most half of
 * ARFUSION_INIT_TIMEOUT. */
arfusionResult_t peers_test(const struct device_ops* device, struct device_comm* comm, const struct device_setup* setup,
                            struct route_facts* route);

/* One log line about where ranks of the host device run, on machines with several NUMA nodes. */
void peers_log_place(int rank);

/* For tests of what cannot be had otherwise: what rank `from` writes to rank `to` is lost, in the write tests of this
 * process. from -1: nothing is. */
struct peers_lost {
  int from, to;
};
extern struct peers_lost peers_lost;

#endif
