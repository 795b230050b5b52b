/* SPDX-License-Identifier: Apache-2.0
 *
 * interface.h: the network interfaces that connections may use, chosen as NCCL's own Socket network chooses them
 * (source: its src/misc/socket.cc and src/os/linux.cc). NCCL_COMM_ID is not looked at.
 */
#ifndef ARFUSION_NET_INTERFACE_H_
#define ARFUSION_NET_INTERFACE_H_

#include <limits.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#define INTERFACE_MOST 16
#define INTERFACE_DEFAULT_SPEED 10000 /* Mbit/s, where the system does not say */

union interface_address {
  struct sockaddr any;
  struct sockaddr_in in;
  struct sockaddr_in6 in6;
};

struct interface {
  char name[IF_NAMESIZE];
  union interface_address address;
  unsigned index;          /* the system's */
  int speed;               /* Mbit/s */
  char pci_path[PATH_MAX]; /* in /sys; "": it is no PCI device */
};

/* Fills in up to INTERFACE_MOST running interfaces and returns how many there are, or -errno.
 *
 * names: NCCL_SOCKET_IFNAME's list of beginnings of names ("eth,ib0"; ^ in front: all others; =: whole names; a port
 * behind a colon is ignored); "" or a single character chooses InfiniBand's, else all but Docker's, loopback and
 * virtual bridges, else Docker's, else loopback, else virtual bridges. family: NCCL_SOCKET_FAMILY's AF_INET or
 * AF_INET6; anything else: for each interface the first address that it has. */
int interface_find(const char* names, const char* family, struct interface* interfaces);

/* Whether `name` is one that the list chooses. */
int interface_matches(const char* list, const char* name);

/* "10.0.0.2:4242", "[fe80::1]:4242". */
#define INTERFACE_TEXT_BYTES 80
void interface_address_text(const union interface_address* address, char text[INTERFACE_TEXT_BYTES]);
socklen_t interface_address_bytes(const union interface_address* address);

#endif
