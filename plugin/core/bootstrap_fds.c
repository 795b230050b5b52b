/* SPDX-License-Identifier: Apache-2.0
 *
 * bootstrap_fds.c: every rank gives every other one a descriptor. Each listens at a random name that the all-gather
 * tells the others, connects to each of them and sends its descriptor; connections stay open until the rank has all it
 * needs, so that the end of a rank is seen at once. One poll drives it all, so nobody waits for an order.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "plugin/core/bootstrap_internal.h"
#include "plugin/core/log.h"

#define FDS_MAGIC 0x7364664672412121ull
#define FDS_STRANGERS 64 /* connections that are kept besides the ranks' own */
#define FDS_RETRY (5 * NET_MILLISECOND)

/* What a rank tells the others before. */
struct fds_record {
  int32_t result; /* not success: it has nothing to exchange */
  uint32_t reserved;
  uint64_t name[2];
  uint64_t secret;
};

/* What comes with a descriptor. */
struct fds_header {
  uint64_t magic;
  uint64_t secret; /* the receiver's */
  int32_t rank;    /* the sender's */
  uint32_t reserved;
};

struct fds_link {
  int fd;
  int known; /* its descriptor has come */
};

struct fds_exchange {
  int rank, nranks, fd;
  int* fds; /* the caller's */
  int listener;
  int64_t timeout_s;
  struct fds_record* records;
  int* out;               /* [nranks] connections to the others; -1: not yet */
  unsigned char* sent;    /* [nranks] */
  unsigned char* present; /* [nranks] whose descriptor is here */
  int no_room;            /* a descriptor came and this process may open no more */
  int links, capacity;
  struct fds_link* link; /* connections from others */
  struct pollfd* polls;  /* listener, links, out */
};

static void exchange_name(const struct fds_record* record, char name[NET_NAME_BYTES]) {
  snprintf(name, NET_NAME_BYTES, "arfusion-fds-%016llx%016llx", (unsigned long long)record->name[0],
           (unsigned long long)record->name[1]);
}

static arfusionResult_t exchange_listen(struct fds_exchange* exchange, struct fds_record* record) {
  char name[NET_NAME_BYTES];
  int error;

  if (fcntl(exchange->fd, F_GETFD) < 0) {
    return error_set(arfusionInvalidArgument, "bootstrap: descriptor %d of rank %d is not open", exchange->fd,
                     exchange->rank);
  }
  error = net_random(record->name, sizeof(record->name));
  if (error == 0) error = net_random(&record->secret, sizeof(record->secret));
  if (error != 0) return error_set(arfusionSystemError, "bootstrap: no random bytes: %s", strerror(-error));
  exchange_name(record, name);
  exchange->listener = net_listen(name);
  if (exchange->listener >= 0) return arfusionSuccess;
  return error_set(arfusionSystemError, "bootstrap: rank %d cannot listen at @%s: %s", exchange->rank, name,
                   strerror(-exchange->listener));
}

/* Sends this rank's descriptor to rank r. Success without sent[r]: its queue is full, try again. */
static arfusionResult_t exchange_send(struct fds_exchange* exchange, int r) {
  struct fds_header header = {.magic = FDS_MAGIC, .secret = exchange->records[r].secret, .rank = exchange->rank};
  char name[NET_NAME_BYTES];
  struct net_peer peer;
  int error;

  exchange_name(&exchange->records[r], name);
  exchange->out[r] = net_connect(name, &peer);
  if (exchange->out[r] == -EAGAIN) return arfusionSuccess;
  if (exchange->out[r] == -ECONNREFUSED) {
    return error_set(arfusionRemoteError, "bootstrap: rank %d of %d has left", r, exchange->nranks);
  }
  if (exchange->out[r] < 0) {
    return error_set(arfusionSystemError, "bootstrap: cannot connect to rank %d: %s", r, strerror(-exchange->out[r]));
  }
  if (peer.uid != geteuid()) {
    return error_set(arfusionSystemError, "bootstrap: rank %d's socket is held by pid %d of uid %u, this is uid %u", r,
                     (int)peer.pid, (unsigned)peer.uid, (unsigned)geteuid());
  }
  error = net_send_fd(exchange->out[r], &header, sizeof(header), exchange->fd);
  if (error == -EPIPE || error == -ECONNRESET) {
    return error_set(arfusionRemoteError, "bootstrap: rank %d of %d has left", r, exchange->nranks);
  }
  if (error != 0) {
    return error_set(arfusionSystemError, "bootstrap: cannot send a descriptor to rank %d: %s", r, strerror(-error));
  }
  exchange->sent[r] = 1;
  return arfusionSuccess;
}

/* Reads from a connection. 1: keep it. */
static int exchange_receive(struct fds_exchange* exchange, struct fds_link* link) {
  struct fds_header header;
  int fd = -1, count, lost, from_rank;
  ssize_t received = net_receive_fd(link->fd, &header, sizeof(header), &fd, &count, &lost);

  if (received < 0) return received == -EAGAIN;
  from_rank = received == (ssize_t)sizeof(header) && header.magic == FDS_MAGIC &&
              header.secret == exchange->records[exchange->rank].secret && header.rank >= 0 &&
              header.rank < exchange->nranks && !exchange->present[header.rank];
  if (from_rank && count == 0 && lost) exchange->no_room = 1;
  if (from_rank && count == 1 && !lost) {
    exchange->fds[header.rank] = fd;
    exchange->present[header.rank] = 1;
    link->known = 1;
    return 1;
  }
  if (count > 0) close(fd);
  return 0;
}

static void exchange_drop(struct fds_exchange* exchange, int l) {
  close(exchange->link[l].fd);
  exchange->links--;
  memmove(&exchange->link[l], &exchange->link[l + 1], (size_t)(exchange->links - l) * sizeof(exchange->link[0]));
}

static arfusionResult_t exchange_accept(struct fds_exchange* exchange) {
  struct net_peer peer;
  int fd = -EAGAIN;

  for (int i = 0; i < exchange->capacity && (fd = net_accept(exchange->listener, &peer)) >= 0; i++) {
    if (exchange->links == exchange->capacity) {
      int oldest = 0; /* there is a stranger: the ranks do not fill the table */
      while (exchange->link[oldest].known) oldest++;
      exchange_drop(exchange, oldest);
    }
    exchange->link[exchange->links++] = (struct fds_link){.fd = fd};
  }
  if (fd >= 0 || fd == -EAGAIN) return arfusionSuccess;
  return error_set(arfusionSystemError, "bootstrap: rank %d cannot accept a connection: %s", exchange->rank,
                   strerror(-fd));
}

/* Waits for something to happen, at the longest until `until`. */
static int exchange_poll(struct fds_exchange* exchange, int64_t until) {
  struct pollfd* polls = exchange->polls;
  size_t count = 0;

  polls[count++] = (struct pollfd){.fd = exchange->listener, .events = POLLIN};
  for (int r = 0; r < exchange->nranks; r++) {
    int fd = exchange->present[r] ? -1 : exchange->out[r];
    polls[count++] = (struct pollfd){.fd = fd, .events = POLLRDHUP};
  }
  for (int l = 0; l < exchange->links; l++) {
    if (!exchange->link[l].known) polls[count++] = (struct pollfd){.fd = exchange->link[l].fd, .events = POLLIN};
  }
  return net_poll(polls, count, until);
}

static arfusionResult_t exchange_step(struct fds_exchange* exchange, int64_t deadline) {
  int blocked = 0, ready;
  char missing[256];

  for (int r = 0; r < exchange->nranks; r++) {
    if (exchange->sent[r]) continue;
    FORWARD_IF_ERROR(exchange_send(exchange, r));
    blocked |= !exchange->sent[r];
  }
  ready = exchange_poll(exchange, blocked && net_now() + FDS_RETRY < deadline ? net_now() + FDS_RETRY : deadline);
  if (ready < 0) return error_set(arfusionSystemError, "bootstrap: poll: %s", strerror(errno));
  FORWARD_IF_ERROR(exchange_accept(exchange));
  for (int l = exchange->links - 1; l >= 0; l--) { /* downwards, as some are taken out */
    if (!exchange->link[l].known && !exchange_receive(exchange, &exchange->link[l])) exchange_drop(exchange, l);
  }
  if (exchange->no_room) {
    return error_set(arfusionSystemError, "bootstrap: rank %d cannot take a descriptor: %s", exchange->rank,
                     strerror(EMFILE));
  }
  for (int r = 0; r < exchange->nranks && ready > 0; r++) { /* what it sent before it closed has been read above */
    if (exchange->polls[1 + r].revents == 0 || exchange->present[r]) continue;
    return error_set(arfusionRemoteError, "bootstrap: rank %d of %d has left", r, exchange->nranks);
  }
  if (net_now() < deadline) return arfusionSuccess;
  bootstrap_missing_text(exchange->present, exchange->nranks, missing, sizeof(missing));
  return error_set(arfusionRemoteError, "bootstrap: the descriptors of %s of %d did not come within %lld s", missing,
                   exchange->nranks, (long long)exchange->timeout_s);
}

static int exchange_complete(const struct fds_exchange* exchange) {
  for (int r = 0; r < exchange->nranks; r++) {
    if (!exchange->present[r] || !exchange->sent[r]) return 0;
  }
  return 1;
}

static arfusionResult_t exchange_run(struct fds_exchange* exchange, const arfusionBootstrap_t* bootstrap) {
  struct fds_record record = {.result = arfusionSuccess};
  arfusionResult_t mine = exchange_listen(exchange, &record);
  int64_t deadline;

  record.result = mine;
  if (mine != arfusionSuccess) { /* the others must not wait for it */
    char text[BOOTSTRAP_TEXT_BYTES];
    snprintf(text, sizeof(text), "%s", error_last());
    if (bootstrap_all_gather(bootstrap, &record, exchange->records, sizeof(record)) == arfusionSuccess) return mine;
    return error_keep(mine, text);
  }
  FORWARD_IF_ERROR(bootstrap_all_gather(bootstrap, &record, exchange->records, sizeof(record)));
  for (int r = 0; r < exchange->nranks; r++) {
    if (exchange->records[r].result == arfusionSuccess) continue;
    return error_set(arfusionRemoteError, "bootstrap: rank %d of %d has no descriptor to exchange", r,
                     exchange->nranks);
  }
  deadline = net_deadline(exchange->timeout_s);
  while (!exchange_complete(exchange)) FORWARD_IF_ERROR(exchange_step(exchange, deadline));
  return arfusionSuccess;
}

static int exchange_allocate(struct fds_exchange* exchange) {
  size_t nranks = (size_t)exchange->nranks;

  exchange->capacity = exchange->nranks + FDS_STRANGERS;
  exchange->records = calloc(nranks, sizeof(exchange->records[0]));
  exchange->out = malloc(nranks * sizeof(exchange->out[0]));
  exchange->sent = calloc(nranks, 1);
  exchange->present = calloc(nranks, 1);
  exchange->link = calloc((size_t)exchange->capacity, sizeof(exchange->link[0]));
  exchange->polls = calloc(1 + nranks + (size_t)exchange->capacity, sizeof(exchange->polls[0]));
  for (size_t r = 0; exchange->out != NULL && r < nranks; r++) exchange->out[r] = -1;
  return exchange->records != NULL && exchange->out != NULL && exchange->sent != NULL && exchange->present != NULL &&
         exchange->link != NULL && exchange->polls != NULL;
}

static void exchange_free(struct fds_exchange* exchange) {
  for (int l = 0; l < exchange->links; l++) close(exchange->link[l].fd);
  for (int r = 0; exchange->out != NULL && r < exchange->nranks; r++) {
    if (exchange->out[r] >= 0) close(exchange->out[r]);
  }
  if (exchange->listener >= 0) close(exchange->listener);
  free(exchange->records);
  free(exchange->out);
  free(exchange->sent);
  free(exchange->present);
  free(exchange->link);
  free(exchange->polls);
}

arfusionResult_t bootstrap_exchange_fds(const arfusionBootstrap_t* bootstrap, int fd, int* fds, int64_t timeout_s) {
  struct fds_exchange exchange = {.rank = bootstrap->rank,
                                  .nranks = bootstrap->nranks,
                                  .fd = fd,
                                  .fds = fds,
                                  .listener = -1,
                                  .timeout_s = timeout_s};
  arfusionResult_t result;

  for (int r = 0; r < exchange.nranks; r++) fds[r] = -1;
  if (!exchange_allocate(&exchange)) {
    exchange_free(&exchange);
    return error_set(arfusionSystemError, "bootstrap: no memory to exchange descriptors of %d ranks", exchange.nranks);
  }
  exchange.sent[exchange.rank] = exchange.present[exchange.rank] = 1;
  result = exchange_run(&exchange, bootstrap);
  exchange_free(&exchange);
  for (int r = 0; r < exchange.nranks && result != arfusionSuccess; r++) {
    if (fds[r] >= 0) close(fds[r]);
    fds[r] = -1;
  }
  return result;
}
