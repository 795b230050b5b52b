/* SPDX-License-Identifier: Apache-2.0
 *
 * support_net.h: traffic for the tests of the network for NCCL. A plan of messages comes from a seed, so that both ends
 * know it; sizes, tags, groups, the order of calls and the pauses are random. Also pairs of links within this process.
 */
#ifndef ARFUSION_TEST_SUPPORT_NET_H_
#define ARFUSION_TEST_SUPPORT_NET_H_

#include "plugin/net/endpoint.h"
#include "plugin/net/nccl_net.h"

struct support_traffic {
  uint64_t seed;
  int groups;      /* receives of 1 to 8 buffers each */
  size_t size_max; /* most are around the sizes at which a message takes another way, a few larger, up to this */
  int slow_ms;     /* the receiver rests for this long now and then */
  int pause_ms;    /* so does the sender */
};

/* One end of the traffic. All of it: until *ended; returns the first error of a call, or arfusionInternalError if a
 * message is not what the plan says. */
struct support_flow;
struct support_flow* support_flow_begin(const struct nccl_net* net, void* comm, int sending,
                                        const struct support_traffic* traffic);
arfusionResult_t support_flow_step(struct support_flow* flow, int* ended);
void support_flow_end(struct support_flow* flow); /* after the comm has been closed, if the flow has not ended */

/* Both ends of a connection of this process over the interface lo (::1 if `six`). */
struct support_pair {
  struct link *send, *recv;
};
struct interface support_loopback(int six);
struct support_pair support_pair_make(const struct endpoint_options* options, int six);

/* Steps both flows until both have ended, or one has failed: its result. */
arfusionResult_t support_pair_run(struct support_pair pair, const struct support_traffic* traffic);

/* An entry of cmocka's list, for a test after which there must be no descriptor and no shared memory that was not there
 * before. */
struct support_checked {
  void (*test)(void** state);
};
void support_checked_run(void** state);
#define SUPPORT_CHECKED(test) {#test, support_checked_run, NULL, NULL, &(struct support_checked){test}}

/* A number from 0 to below - 1; the state may begin as any number. */
uint32_t support_random(uint64_t* state, uint32_t below);

#endif
