/* SPDX-License-Identifier: Apache-2.0
 *
 * endpoint.h: how links come about. The receiving end listens, hands out a handle, and accepts; the sending end
 * connects to the handle. Nothing here blocks: accepting and connecting are to be called until there is a link.
 *
 * A listener listens at a TCP port and at an abstract Unix socket. Whoever can connect to the latter is on the same
 * host and offers shared memory there; otherwise, or if the memory cannot be mapped, the link runs over TCP
 * connections. Both ends show the half of a secret that only the handle tells. Who does not, or says nothing for a
 * while, is dropped.
 */
#ifndef ARFUSION_NET_ENDPOINT_H_
#define ARFUSION_NET_ENDPOINT_H_

#include "plugin/net/interface.h"
#include "plugin/net/link.h"

#define ENDPOINT_HANDLE_BYTES 128

struct endpoint_options {
  int nlanes;        /* 1 to LINK_LANES_MAX */
  int shared;        /* 0: TCP alone */
  int64_t timeout_s; /* of connecting */
};

struct listener;

/* Writes ENDPOINT_HANDLE_BYTES bytes to `handle`. The interface must stay as long as the listener. */
arfusionResult_t listener_create(const struct interface* interface, const struct endpoint_options* options,
                                 void* handle, struct listener** listener);

/* *link is NULL if nobody is there yet. *rank (may be NULL): what the other end gave to endpoint_connect. */
arfusionResult_t listener_accept(struct listener* listener, struct link** link, int* rank);
const struct interface* listener_interface(const struct listener* listener);
void listener_close(struct listener* listener);

/* *link is NULL if it takes longer: to be called again with the same handle, in which the state is noted. An attempt
 * that is given up without that ends with endpoint_connects_end, or when its time is over and another one is made. */
arfusionResult_t endpoint_connect(void* handle, const struct interface* interface,
                                  const struct endpoint_options* options, int rank, struct link** link);

/* Ends all attempts of this process. */
void endpoint_connects_end(void);

#endif
