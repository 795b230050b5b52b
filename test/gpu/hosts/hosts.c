/* SPDX-License-Identifier: Apache-2.0
 *
 * hosts.c: a library to preload, with which NCCL takes each process for a host of its own. NCCL refuses two ranks on
 * one GPU of a host; so they can share one, connected by NCCL's network. Everybody but NCCL is told the real name.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

static int is_nccl(const void* address) {
  Dl_info object;
  if (!dladdr(address, &object) || !object.dli_fname) return 0;
  const char* slash = strrchr(object.dli_fname, '/');
  return !strncmp(slash ? slash + 1 : object.dli_fname, "libnccl.so", strlen("libnccl.so"));
}

__attribute__((visibility("default"))) int gethostname(char* name, size_t bytes) {
  struct utsname system;
  if (uname(&system)) return -1;
  if (is_nccl(__builtin_return_address(0))) {
    snprintf(name, bytes, "process-%d", (int)getpid());
  } else {
    snprintf(name, bytes, "%s", system.nodename);
  }
  return 0;
}
