/* SPDX-License-Identifier: Apache-2.0
 *
 * listener.c: the listening end; see endpoint.h.
 */
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plugin/core/bootstrap_internal.h"
#include "plugin/core/log.h"
#include "plugin/net/endpoint_internal.h"
#include "plugin/net/nccl_net.h"

#define ARRIVALS 128 /* connections that have not said all yet */
#define ARRIVAL_LIMIT (10 * NET_SECOND)
#define ARRIVAL_LEAST NET_SECOND /* that each has, also where there are many */

struct arrival {
  int fd, local; /* local: over the Unix socket */
  int64_t came;
  size_t got;
  struct endpoint_hello hello;
  int memory_fd; /* -1: none */
  char peer[LINK_NAME_BYTES];
};

/* The connections of one link. Who has shown the secret is not turned away, however many there are. */
struct gathering {
  struct gathering* next;
  uint64_t id;
  int rank, present;
  int64_t deadline;
  struct link_parts parts;
};

struct listener {
  int tcp, local;
  struct endpoint_handle handle;
  const struct interface* interface;
  int64_t timeout_s;
  int arrivals;
  struct arrival arrival[ARRIVALS];
  struct gathering* gatherings; /* oldest first */
};

/* ---------------------------------------------------------------- listening */

uint64_t endpoint_handle_check(const struct endpoint_handle* handle) {
  return bootstrap_hash(3, handle, offsetof(struct endpoint_handle, check));
}

void endpoint_socket_name(const struct endpoint_handle* handle, char name[NET_NAME_BYTES]) {
  snprintf(name, NET_NAME_BYTES, "arfusion-net-%016llx%016llx", (unsigned long long)handle->name[0],
           (unsigned long long)handle->name[1]);
}

void endpoint_socket_options(int fd) {
  int on = 1, idle = 30, interval = 10, count = 6; /* s: a host that is gone is noticed within two minutes */

  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof(count));
}

static arfusionResult_t handle_fill(struct endpoint_handle* handle, const union interface_address* address,
                                    const struct endpoint_options* options) {
  int error;

  memset(handle, 0, sizeof(*handle));
  handle->magic = ENDPOINT_MAGIC;
  handle->version = ENDPOINT_VERSION;
  handle->nlanes = (uint8_t)options->nlanes;
  handle->shared = (uint16_t)(options->shared != 0);
  if (address->any.sa_family == AF_INET) {
    handle->family = 4;
    handle->port = address->in.sin_port;
    memcpy(handle->address, &address->in.sin_addr, 4);
  } else {
    handle->family = 6;
    handle->port = address->in6.sin6_port;
    handle->scope = address->in6.sin6_scope_id;
    memcpy(handle->address, &address->in6.sin6_addr, 16);
  }
  error = net_random(handle->secret, sizeof(handle->secret));
  if (error == 0) error = net_random(handle->name, sizeof(handle->name));
  if (error != 0) return error_set(arfusionSystemError, "NET/arfusion: no random bytes: %s", strerror(-error));
  handle->check = endpoint_handle_check(handle);
  return arfusionSuccess;
}

/* Listens at a port of the interface that is free; *address gets the port. -errno, or the descriptor. */
static int tcp_listen(union interface_address* address) {
  socklen_t bytes = interface_address_bytes(address);
  int fd = socket(address->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), error;

  if (fd < 0) return -errno;
  if (bind(fd, &address->any, bytes) == 0 && listen(fd, SOMAXCONN) == 0 &&
      getsockname(fd, &address->any, &bytes) == 0) {
    return fd;
  }
  error = errno;
  close(fd);
  return -error;
}

arfusionResult_t listener_create(const struct interface* interface, const struct endpoint_options* options,
                                 void* handle, struct listener** listener) {
  union interface_address address = interface->address;
  struct listener* made = calloc(1, sizeof(*made));
  char text[INTERFACE_TEXT_BYTES], name[NET_NAME_BYTES];
  arfusionResult_t result;

  if (made == NULL) return error_set(arfusionSystemError, "NET/arfusion: out of memory for a listener");
  made->local = -1;
  made->interface = interface;
  made->timeout_s = options->timeout_s;
  made->tcp = tcp_listen(&address);
  if (made->tcp < 0) {
    interface_address_text(&address, text);
    result = error_set(arfusionSystemError, "NET/arfusion: cannot listen at %s (%s): %s", text, interface->name,
                       strerror(-made->tcp));
    free(made);
    return result;
  }
  result = handle_fill(&made->handle, &address, options);
  if (result != arfusionSuccess) {
    listener_close(made);
    return result;
  }
  if (made->handle.shared) {
    endpoint_socket_name(&made->handle, name);
    made->local = net_listen(name); /* without it, links run over TCP */
  }
  memset(handle, 0, ENDPOINT_HANDLE_BYTES);
  memcpy(handle, &made->handle, sizeof(made->handle));
  *listener = made;
  return arfusionSuccess;
}

const struct interface* listener_interface(const struct listener* listener) { return listener->interface; }

/* Ends *at, the rest of which is the caller's. */
static struct link_parts gathering_take(struct gathering** at) {
  struct gathering* gathering = *at;
  struct link_parts parts = gathering->parts;

  *at = gathering->next;
  free(gathering);
  return parts;
}

static void gathering_end(struct gathering** at) {
  struct link_parts parts = gathering_take(at);

  for (int i = 0; i <= LINK_LANES_MAX; i++) {
    if (parts.fds[i] >= 0) close(parts.fds[i]);
  }
  if (parts.memory != NULL) link_memory_unmap(parts.memory);
}

void listener_close(struct listener* listener) {
  for (int i = 0; i < listener->arrivals; i++) {
    close(listener->arrival[i].fd);
    if (listener->arrival[i].memory_fd >= 0) close(listener->arrival[i].memory_fd);
  }
  while (listener->gatherings != NULL) gathering_end(&listener->gatherings);
  if (listener->local >= 0) close(listener->local);
  if (listener->tcp >= 0) close(listener->tcp);
  free(listener);
}

/* ---------------------------------------------------------------- arrivals */

/* The descriptor of the next connection, or below 0. */
static int arrival_next(const struct listener* listener, int local, char peer[LINK_NAME_BYTES]) {
  union interface_address address;
  socklen_t bytes = sizeof(address);
  struct net_peer process;
  int fd;

  if (local) {
    if (listener->local < 0) return -EAGAIN;
    fd = net_accept(listener->local, &process); /* drops other users */
    if (fd >= 0) snprintf(peer, LINK_NAME_BYTES, "pid %d on this host", (int)process.pid);
    return fd;
  }
  do {
    fd = accept4(listener->tcp, &address.any, &bytes, SOCK_CLOEXEC | SOCK_NONBLOCK);
  } while (fd < 0 && (errno == EINTR || errno == ECONNABORTED));
  if (fd < 0) return -errno;
  endpoint_socket_options(fd);
  interface_address_text(&address, peer);
  return fd;
}

static void arrival_drop(struct listener* listener, int index, const char* why) {
  struct arrival* arrival = &listener->arrival[index];

  LOG_INFO(NCCL_LOG_NET, "NET/arfusion: dropped a connection from %s: %s", arrival->peer, why);
  close(arrival->fd);
  if (arrival->memory_fd >= 0) close(arrival->memory_fd);
  *arrival = listener->arrival[--listener->arrivals];
}

/* 1: the hello is here. 0: not yet. -1: nothing will come. */
static int hello_read(struct arrival* arrival) {
  unsigned char* to = (unsigned char*)&arrival->hello + arrival->got;
  size_t left = sizeof(arrival->hello) - arrival->got;

  if (arrival->local && arrival->memory_fd < 0) {
    int fd = -1, count = 0, lost = 0;
    ssize_t got = net_receive_fd(arrival->fd, to, left, &fd, &count, &lost);
    if (got == -EAGAIN) return 0;
    if (got >= 0 && count > 0) arrival->memory_fd = fd;
    if (got <= 0 || (count == 0 && !lost)) return -1;
    arrival->got += (size_t)got;
  } else if (net_receive_some(arrival->fd, &arrival->hello, sizeof(arrival->hello), &arrival->got) != NET_OK) {
    return -1;
  }
  return arrival->got == sizeof(arrival->hello);
}

static const char* hello_wrong(const struct listener* listener, const struct arrival* arrival) {
  const struct endpoint_hello* hello = &arrival->hello;

  if (hello->magic != ENDPOINT_MAGIC) return "it speaks another protocol";
  if (hello->secret != listener->handle.secret[0]) return "it does not know the secret";
  if (hello->version != ENDPOINT_VERSION || hello->nlanes != listener->handle.nlanes) return "its version differs";
  if (hello->id == 0 || hello->stream > hello->nlanes || (arrival->local && hello->stream != 0)) return "a wrong hello";
  return NULL;
}

/* Where the gathering of this arrival is, or NULL: out of memory for a new one. */
static struct gathering** gathering_find(struct listener* listener, const struct arrival* arrival) {
  struct gathering** at = &listener->gatherings;

  while (*at != NULL && (*at)->id != arrival->hello.id) at = &(*at)->next;
  if (*at != NULL) return at;
  *at = calloc(1, sizeof(**at));
  if (*at == NULL) return NULL;
  (*at)->id = arrival->hello.id;
  (*at)->rank = arrival->hello.rank;
  (*at)->deadline = net_deadline(listener->timeout_s);
  (*at)->parts.nlanes = listener->handle.nlanes;
  for (int i = 0; i <= LINK_LANES_MAX; i++) (*at)->parts.fds[i] = -1;
  return at;
}

static void answer_send(const struct listener* listener, int fd, enum endpoint_verdict verdict) {
  struct endpoint_answer answer = {.magic = ENDPOINT_MAGIC, .verdict = verdict, .secret = listener->handle.secret[1]};
  size_t done = 0;
  net_send_some(fd, &answer, sizeof(answer), &done); /* a new connection has room; if it broke, the link will notice */
}

/* A connection that has said who it is becomes part of a link. NULL, or why it does not. */
static const char* arrival_place(struct listener* listener, struct arrival* arrival) {
  struct gathering** at = gathering_find(listener, arrival);
  struct gathering* gathering = at != NULL ? *at : NULL;
  struct link_memory* memory = NULL;

  if (gathering == NULL) return "out of memory";
  if (gathering->parts.fds[arrival->hello.stream] >= 0 || gathering->parts.memory != NULL ||
      (arrival->local && gathering->present > 0)) {
    return "its link has no place for it";
  }
  if (arrival->local) {
    if (arrival->memory_fd >= 0) memory = link_memory_map(arrival->memory_fd, listener->handle.nlanes);
    if (memory == NULL) {
      gathering_end(at);
      answer_send(listener, arrival->fd, ENDPOINT_NO_MEMORY);
      return "its memory cannot be mapped";
    }
    close(arrival->memory_fd);
    gathering->parts.memory = memory;
  }
  if (arrival->hello.stream == 0) {
    memcpy(gathering->parts.peer, arrival->peer, sizeof(gathering->parts.peer));
    answer_send(listener, arrival->fd, ENDPOINT_ACCEPTED);
  }
  gathering->parts.fds[arrival->hello.stream] = arrival->fd;
  gathering->present++;
  *arrival = listener->arrival[--listener->arrivals];
  return NULL;
}

static void arrivals_read(struct listener* listener) {
  for (int i = listener->arrivals - 1; i >= 0; i--) { /* a dropped one is replaced by the last */
    int read = hello_read(&listener->arrival[i]);
    const char* why = NULL;
    if (read > 0) {
      why = hello_wrong(listener, &listener->arrival[i]);
      if (why == NULL) why = arrival_place(listener, &listener->arrival[i]);
    } else if (read < 0) {
      why = "it closed before it said who it is";
    } else if (net_now() > listener->arrival[i].came + ARRIVAL_LIMIT) {
      why = "it did not say who it is";
    }
    if (why != NULL) arrival_drop(listener, i, why);
  }
}

/* Whether there is room for another one. Who has said who it is makes some, and then the oldest, but not before it has
 * had time to: until then the others wait in the system's queue. */
static int arrivals_room(struct listener* listener) {
  int oldest = 0;

  if (listener->arrivals < ARRIVALS) return 1;
  arrivals_read(listener);
  if (listener->arrivals < ARRIVALS) return 1;
  for (int i = 1; i < ARRIVALS; i++) {
    if (listener->arrival[i].came < listener->arrival[oldest].came) oldest = i;
  }
  if (net_now() < listener->arrival[oldest].came + ARRIVAL_LEAST) return 0;
  arrival_drop(listener, oldest, "too many that have not said who they are");
  return 1;
}

static void arrivals_take(struct listener* listener, int local) {
  /* No more at once, so that strangers cannot keep this end busy. */
  for (int i = 0; i < ARRIVALS && arrivals_room(listener); i++) {
    struct arrival arrival = {.local = local, .memory_fd = -1, .came = net_now()};
    arrival.fd = arrival_next(listener, local, arrival.peer);
    if (arrival.fd < 0) return;
    listener->arrival[listener->arrivals++] = arrival;
  }
}

arfusionResult_t listener_accept(struct listener* listener, struct link** link, int* rank) {
  *link = NULL;
  arrivals_take(listener, 0);
  arrivals_take(listener, 1);
  arrivals_read(listener);
  for (struct gathering** at = &listener->gatherings; *at != NULL;) {
    struct gathering* gathering = *at;
    if (gathering->parts.memory != NULL || gathering->present == 1 + gathering->parts.nlanes) {
      int from = gathering->rank;
      struct link_parts parts = gathering_take(at);
      *link = link_create(&parts);
      if (*link == NULL) return error_set(arfusionSystemError, "NET/arfusion: out of memory for a connection");
      if (rank != NULL) *rank = from;
      return arfusionSuccess;
    }
    if (net_now() > gathering->deadline) {
      LOG_INFO(NCCL_LOG_NET, "NET/arfusion: %d of %d connections of a link came in time: dropped", gathering->present,
               1 + gathering->parts.nlanes);
      gathering_end(at);
    } else {
      at = &gathering->next;
    }
  }
  return arfusionSuccess;
}
