/* SPDX-License-Identifier: Apache-2.0
 *
 * interface.c: see interface.h.
 */
#include "plugin/net/interface.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What is tried, one after the other, when the user names none. */
static const char* const usual_lists[] = {"ib", "^docker,lo,virbr", "docker", "lo", "virbr"};

int interface_matches(const char* list, const char* name) {
  int exclude = list[0] == '^', exact, found = 0, entries = 0;

  if (exclude) list++;
  exact = list[0] == '=';
  if (exact) list++;
  while (*list != '\0') {
    size_t entry = strcspn(list, ","), length = strcspn(list, ",:");
    if (length > 0) {
      entries++;
      found |= strncmp(list, name, length) == 0 && (!exact || name[length] == '\0');
    }
    list += entry;
    if (*list == ',') list++;
  }
  return (found || entries == 0) != exclude;
}

socklen_t interface_address_bytes(const union interface_address* address) {
  return address->any.sa_family == AF_INET ? sizeof(address->in) : sizeof(address->in6);
}

void interface_address_text(const union interface_address* address, char text[INTERFACE_TEXT_BYTES]) {
  char host[INET6_ADDRSTRLEN] = "?";

  if (address->any.sa_family == AF_INET) {
    inet_ntop(AF_INET, &address->in.sin_addr, host, sizeof(host));
    snprintf(text, INTERFACE_TEXT_BYTES, "%s:%d", host, ntohs(address->in.sin_port));
  } else {
    inet_ntop(AF_INET6, &address->in6.sin6_addr, host, sizeof(host));
    snprintf(text, INTERFACE_TEXT_BYTES, "[%s]:%d", host, ntohs(address->in6.sin6_port));
  }
}

static int speed_read(const char* name) {
  char path[64 + IF_NAMESIZE];
  int speed = 0;
  FILE* file;

  snprintf(path, sizeof(path), "/sys/class/net/%s/speed", name);
  file = fopen(path, "re");
  if (file != NULL) {
    if (fscanf(file, "%d", &speed) != 1) speed = 0; /* reading fails, or says -1, where there is no link speed */
    fclose(file);
  }
  return speed > 0 ? speed : INTERFACE_DEFAULT_SPEED;
}

static void interface_fill(struct interface* interface, const struct ifaddrs* entry) {
  char path[64 + IF_NAMESIZE];

  memset(interface, 0, sizeof(*interface));
  snprintf(interface->name, sizeof(interface->name), "%s", entry->ifa_name);
  memcpy(&interface->address, entry->ifa_addr,
         entry->ifa_addr->sa_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6));
  interface->index = if_nametoindex(entry->ifa_name);
  interface->speed = speed_read(interface->name);
  snprintf(path, sizeof(path), "/sys/class/net/%s/device", interface->name);
  if (realpath(path, interface->pci_path) == NULL) interface->pci_path[0] = '\0';
}

static int entry_usable(const struct ifaddrs* entry, int family) {
  if (entry->ifa_addr == NULL || (entry->ifa_flags & IFF_RUNNING) == 0) return 0;
  if (entry->ifa_addr->sa_family != AF_INET && entry->ifa_addr->sa_family != AF_INET6) return 0;
  if (family != AF_UNSPEC && entry->ifa_addr->sa_family != family) return 0;
  return entry->ifa_addr->sa_family == AF_INET ||
         !IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6*)(const void*)entry->ifa_addr)->sin6_addr);
}

static int interfaces_choose(const struct ifaddrs* entries, const char* list, int family,
                             struct interface* interfaces) {
  int count = 0;

  for (const struct ifaddrs* entry = entries; entry != NULL && count < INTERFACE_MOST; entry = entry->ifa_next) {
    int known = 0;
    if (!entry_usable(entry, family) || !interface_matches(list, entry->ifa_name)) continue;
    for (int i = 0; i < count; i++) known |= strcmp(interfaces[i].name, entry->ifa_name) == 0;
    if (!known) interface_fill(&interfaces[count++], entry);
  }
  return count;
}

int interface_find(const char* names, const char* family, struct interface* interfaces) {
  int wanted = strcmp(family, "AF_INET") == 0 ? AF_INET : strcmp(family, "AF_INET6") == 0 ? AF_INET6 : AF_UNSPEC;
  struct ifaddrs* entries;
  int count = 0;

  if (getifaddrs(&entries) != 0) return -errno;
  if (strlen(names) > 1) {
    count = interfaces_choose(entries, names, wanted, interfaces);
  } else {
    for (size_t i = 0; i < sizeof(usual_lists) / sizeof(usual_lists[0]) && count == 0; i++) {
      count = interfaces_choose(entries, usual_lists[i], wanted, interfaces);
    }
  }
  freeifaddrs(entries);
  return count;
}
