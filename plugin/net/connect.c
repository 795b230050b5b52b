/* SPDX-License-Identifier: Apache-2.0
 *
 * connect.c: the connecting end; see endpoint.h. Attempts under way are kept in a list and found by a key in the
 * caller's copy of the handle, so that a handle with anything else there leads nowhere.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plugin/core/log.h"
#include "plugin/net/endpoint_internal.h"
#include "plugin/net/nccl_net.h"

enum attempt_state { ATTEMPT_LOCAL, ATTEMPT_LOCAL_ANSWER, ATTEMPT_TCP, ATTEMPT_TCP_ANSWER };

struct attempt {
  uint64_t key;
  int busy; /* a thread is at it */
  struct attempt* next;
  enum attempt_state state;
  int64_t deadline, timeout_s;
  struct endpoint_handle handle;
  union interface_address address;
  struct endpoint_hello hello;
  struct endpoint_answer answer;
  size_t answer_got;
  int said[1 + LINK_LANES_MAX]; /* which connections have said hello */
  struct link_parts parts;      /* fds of -1: none yet */
};

static pthread_mutex_t attempts_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct attempt* attempts;

static void attempt_close(struct attempt* attempt) {
  for (int i = 0; i <= LINK_LANES_MAX; i++) {
    if (attempt->parts.fds[i] >= 0) close(attempt->parts.fds[i]);
    attempt->parts.fds[i] = -1;
    attempt->said[i] = 0;
  }
  if (attempt->parts.memory != NULL) link_memory_unmap(attempt->parts.memory);
  attempt->parts.memory = NULL;
  attempt->answer_got = 0;
}

static void attempt_free(struct attempt* attempt) {
  attempt_close(attempt);
  free(attempt);
}

/* Ends those that nobody is at, if their time is over, or all of them. */
static void attempts_end(int all) {
  int64_t now = net_now();

  for (struct attempt** at = &attempts; *at != NULL;) {
    struct attempt* attempt = *at;
    if (attempt->busy || (!all && now <= attempt->deadline + NET_SECOND)) { /* its owner tells, if it still asks */
      at = &attempt->next;
      continue;
    }
    *at = attempt->next;
    attempt_free(attempt);
  }
}

void endpoint_connects_end(void) {
  pthread_mutex_lock(&attempts_mutex);
  attempts_end(1);
  pthread_mutex_unlock(&attempts_mutex);
}

/* ---------------------------------------------------------------- beginning */

static void address_fill(struct attempt* attempt, const struct interface* interface) {
  const struct endpoint_handle* handle = &attempt->handle;
  union interface_address* address = &attempt->address;

  if (handle->family == 4) {
    address->in.sin_family = AF_INET;
    address->in.sin_port = handle->port;
    memcpy(&address->in.sin_addr, handle->address, 4);
    return;
  }
  address->in6.sin6_family = AF_INET6;
  address->in6.sin6_port = handle->port;
  memcpy(&address->in6.sin6_addr, handle->address, 16);
  /* The scope of an address that only means something on a link is this end's name for that link. */
  if (IN6_IS_ADDR_LINKLOCAL(&address->in6.sin6_addr)) address->in6.sin6_scope_id = interface->index;
}

static arfusionResult_t attempt_begin(const struct endpoint_handle* handle, const struct interface* interface,
                                      const struct endpoint_options* options, int rank, struct attempt** made) {
  struct attempt* attempt;
  int error;

  if (handle->magic != ENDPOINT_MAGIC || handle->check != endpoint_handle_check(handle) || handle->nlanes < 1 ||
      handle->nlanes > LINK_LANES_MAX || (handle->family != 4 && handle->family != 6) || handle->attempt != 0) {
    return error_set(arfusionInvalidArgument, "NET/arfusion: handle is not one that this network's listen wrote");
  }
  if (handle->version != ENDPOINT_VERSION) {
    return error_set(arfusionInvalidArgument, "NET/arfusion: the other end speaks version %u, this one %d",
                     handle->version, ENDPOINT_VERSION);
  }
  attempt = calloc(1, sizeof(*attempt));
  if (attempt == NULL) return error_set(arfusionSystemError, "NET/arfusion: out of memory for a connection");
  attempt->handle = *handle;
  attempt->timeout_s = options->timeout_s;
  attempt->deadline = net_deadline(options->timeout_s);
  attempt->state = options->shared && handle->shared ? ATTEMPT_LOCAL : ATTEMPT_TCP;
  attempt->hello = (struct endpoint_hello){.magic = ENDPOINT_MAGIC,
                                           .version = ENDPOINT_VERSION,
                                           .nlanes = handle->nlanes,
                                           .secret = handle->secret[0],
                                           .rank = rank};
  attempt->parts.sending = 1;
  attempt->parts.nlanes = handle->nlanes;
  for (int i = 0; i <= LINK_LANES_MAX; i++) attempt->parts.fds[i] = -1;
  address_fill(attempt, interface);
  interface_address_text(&attempt->address, attempt->parts.peer);
  error = net_random(&attempt->hello.id, sizeof(attempt->hello.id));
  if (error == 0) error = net_random(&attempt->key, sizeof(attempt->key));
  if (error != 0) {
    free(attempt);
    return error_set(arfusionSystemError, "NET/arfusion: no random bytes: %s", strerror(-error));
  }
  attempt->hello.id |= 1; /* 0 stands for none */
  attempt->key |= 1;
  *made = attempt;
  return arfusionSuccess;
}

/* ---------------------------------------------------------------- steps; *again: the state has changed, go on */

static arfusionResult_t attempt_fail(const struct attempt* attempt, const char* what, int error) {
  int remote = error == ECONNREFUSED || error == ECONNRESET || error == EPIPE;

  return error_set(remote ? arfusionRemoteError : arfusionSystemError,
                   "NET/arfusion: to %s: %s: %s", attempt->parts.peer, what, strerror(error));
}

/* Whatever is in the way of shared memory leads to TCP. */
static void step_local(struct attempt* attempt, int* again) {
  char name[NET_NAME_BYTES];
  struct net_peer peer = {0};
  int fd, memory_fd = -1, error;

  endpoint_socket_name(&attempt->handle, name);
  fd = net_connect(name, &peer);
  if (fd == -EAGAIN) return; /* its queue is full */
  *again = 1;
  attempt->state = ATTEMPT_TCP;
  if (fd < 0) return;
  attempt->parts.fds[0] = fd;
  if (peer.uid == geteuid()) attempt->parts.memory = link_memory_create(attempt->parts.nlanes, &memory_fd);
  if (attempt->parts.memory == NULL) {
    attempt_close(attempt);
    return;
  }
  error = net_send_fd(fd, &attempt->hello, sizeof(attempt->hello), memory_fd);
  close(memory_fd);
  if (error != 0) {
    attempt_close(attempt);
    return;
  }
  attempt->state = ATTEMPT_LOCAL_ANSWER;
}

static arfusionResult_t step_answer(struct attempt* attempt, int* again, int* ready) {
  enum net_status status = net_receive_some(attempt->parts.fds[0], &attempt->answer, sizeof(attempt->answer),
                                            &attempt->answer_got);

  if (status == NET_CLOSED) {
    return error_set(arfusionRemoteError, "NET/arfusion: %s closed the connection before it was accepted",
                     attempt->parts.peer);
  }
  if (status == NET_ERROR) return attempt_fail(attempt, "no answer", errno);
  if (attempt->answer_got < sizeof(attempt->answer)) return arfusionSuccess;
  if (attempt->answer.magic != ENDPOINT_MAGIC || attempt->answer.secret != attempt->handle.secret[1]) {
    return error_set(arfusionRemoteError, "NET/arfusion: somebody else answers at %s", attempt->parts.peer);
  }
  if (attempt->state == ATTEMPT_LOCAL_ANSWER && attempt->answer.verdict != ENDPOINT_ACCEPTED) {
    attempt_close(attempt);
    attempt->state = ATTEMPT_TCP;
    *again = 1;
    return arfusionSuccess;
  }
  *ready = 1;
  return arfusionSuccess;
}

static arfusionResult_t connection_start(struct attempt* attempt, int stream) {
  int fd = socket(attempt->address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

  if (fd < 0) return attempt_fail(attempt, "no socket", errno);
  attempt->parts.fds[stream] = fd;
  endpoint_socket_options(fd);
  if (connect(fd, &attempt->address.any, interface_address_bytes(&attempt->address)) != 0 && errno != EINPROGRESS &&
      errno != EINTR) {
    return attempt_fail(attempt, "cannot connect", errno);
  }
  return arfusionSuccess;
}

static arfusionResult_t step_tcp(struct attempt* attempt, int* again) {
  int said = 0;

  for (int i = 0; i <= attempt->parts.nlanes; i++) {
    struct pollfd entry = {.events = POLLOUT};
    int error = 0;
    socklen_t bytes = sizeof(error);
    size_t done = 0;
    if (attempt->parts.fds[i] < 0) FORWARD_IF_ERROR(connection_start(attempt, i));
    said += attempt->said[i];
    if (attempt->said[i]) continue;
    entry.fd = attempt->parts.fds[i];
    if (poll(&entry, 1, 0) <= 0) continue;
    if (getsockopt(entry.fd, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) error = errno;
    if (error != 0) return attempt_fail(attempt, "cannot connect", error);
    attempt->hello.stream = (uint8_t)i;
    if (net_send_some(entry.fd, &attempt->hello, sizeof(attempt->hello), &done) != NET_OK ||
        done < sizeof(attempt->hello)) {
      return attempt_fail(attempt, "cannot say hello", errno);
    }
    attempt->said[i] = 1;
    said++;
  }
  if (said == 1 + attempt->parts.nlanes) {
    attempt->state = ATTEMPT_TCP_ANSWER;
    *again = 1;
  }
  return arfusionSuccess;
}

static arfusionResult_t attempt_step(struct attempt* attempt, int* ready) {
  int again;

  do {
    again = 0;
    switch (attempt->state) {
      case ATTEMPT_LOCAL: step_local(attempt, &again); break;
      case ATTEMPT_TCP: FORWARD_IF_ERROR(step_tcp(attempt, &again)); break;
      case ATTEMPT_LOCAL_ANSWER:
      case ATTEMPT_TCP_ANSWER: FORWARD_IF_ERROR(step_answer(attempt, &again, ready)); break;
    }
  } while (again);
  if (*ready || net_now() <= attempt->deadline) return arfusionSuccess;
  return error_set(arfusionRemoteError,
                   "NET/arfusion: %s did not accept the connection within %lld s (ARFUSION_INIT_TIMEOUT)",
                   attempt->parts.peer, (long long)attempt->timeout_s);
}

/* Finds the attempt of a handle and marks it busy, or begins one. */
static arfusionResult_t attempt_get(struct endpoint_handle* handle, const struct interface* interface,
                                    const struct endpoint_options* options, int rank, struct attempt** found) {
  struct attempt* attempt = NULL;
  arfusionResult_t result = arfusionSuccess;

  pthread_mutex_lock(&attempts_mutex);
  if (handle->attempt != 0) {
    for (attempt = attempts; attempt != NULL && attempt->key != handle->attempt;) attempt = attempt->next;
  }
  if (attempt == NULL) {
    attempts_end(0);
    result = attempt_begin(handle, interface, options, rank, &attempt);
    if (result == arfusionSuccess) {
      attempt->next = attempts;
      attempts = attempt;
      handle->attempt = attempt->key;
    }
  }
  if (result == arfusionSuccess) attempt->busy = 1;
  pthread_mutex_unlock(&attempts_mutex);
  *found = attempt;
  return result;
}

arfusionResult_t endpoint_connect(void* handle, const struct interface* interface,
                                  const struct endpoint_options* options, int rank, struct link** link) {
  struct endpoint_handle own;
  struct attempt* attempt;
  arfusionResult_t result;
  int ready = 0;

  *link = NULL;
  memcpy(&own, handle, sizeof(own));
  FORWARD_IF_ERROR(attempt_get(&own, interface, options, rank, &attempt));
  memcpy(handle, &own, sizeof(own));
  result = attempt_step(attempt, &ready);
  pthread_mutex_lock(&attempts_mutex);
  attempt->busy = 0;
  if (result != arfusionSuccess || ready) {
    struct attempt** at = &attempts;
    while (*at != attempt) at = &(*at)->next;
    *at = attempt->next;
  }
  pthread_mutex_unlock(&attempts_mutex);
  if (result != arfusionSuccess) {
    attempt_free(attempt);
    return result;
  }
  if (!ready) return arfusionSuccess;
  LOG_INFO(NCCL_LOG_NET, "NET/arfusion: connected to %s %s", attempt->parts.peer,
           attempt->parts.memory != NULL ? "through shared memory" : "over TCP");
  *link = link_create(&attempt->parts); /* which owns the parts from now on */
  free(attempt);
  if (*link == NULL) return error_set(arfusionSystemError, "NET/arfusion: out of memory for a connection");
  return arfusionSuccess;
}
