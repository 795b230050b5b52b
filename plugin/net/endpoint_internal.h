/* SPDX-License-Identifier: Apache-2.0
 *
 * endpoint_internal.h: what a handle is, and what the two ends say to each other before there is a link.
 */
#ifndef ARFUSION_NET_ENDPOINT_INTERNAL_H_
#define ARFUSION_NET_ENDPOINT_INTERNAL_H_

#include "plugin/core/bootstrap_net.h"
#include "plugin/net/endpoint.h"

#define ENDPOINT_MAGIC 0x41724e74u
#define ENDPOINT_VERSION 3

struct endpoint_handle {
  uint32_t magic;
  uint16_t version;
  uint8_t nlanes;
  uint8_t family; /* 4 or 6 */
  uint8_t address[16];
  uint16_t port; /* in network order */
  uint16_t shared;
  uint32_t scope;
  uint64_t secret[2]; /* shown by the connecting end, and by the listening one */
  uint64_t name[2];   /* of the Unix socket */
  uint64_t check;     /* of all above */
  uint64_t attempt;   /* of the connecting end: 0, or its key */
};
_Static_assert(sizeof(struct endpoint_handle) <= ENDPOINT_HANDLE_BYTES, "a handle has 128 bytes");

/* The first bytes on every connection. With the one of shared memory comes its descriptor. */
struct endpoint_hello {
  uint32_t magic;
  uint16_t version;
  uint8_t nlanes;
  uint8_t stream; /* 0: control; then the lanes */
  uint64_t secret;
  uint64_t id;    /* of the link, random */
  int32_t rank;
  uint32_t reserved;
};

/* What the listening end says on the control connection. */
struct endpoint_answer {
  uint32_t magic;
  uint32_t verdict;
  uint64_t secret;
};

enum endpoint_verdict { ENDPOINT_ACCEPTED = 1, ENDPOINT_NO_MEMORY = 2 /* come again over TCP */ };

uint64_t endpoint_handle_check(const struct endpoint_handle* handle);
void endpoint_socket_name(const struct endpoint_handle* handle, char name[NET_NAME_BYTES]);

/* Of a TCP connection. */
void endpoint_socket_options(int fd);

#endif
