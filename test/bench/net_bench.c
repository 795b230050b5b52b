/* SPDX-License-Identifier: Apache-2.0
 *
 * net_bench.c: latency and bandwidth of the network for NCCL between two processes of this host, driven as NCCL's proxy
 * threads drive it: messages of 512 KiB, eight of them outstanding, one thread a process. Beside it the same over
 * plain TCP connections, one for each direction, that this thread alone serves: what NCCL's own Socket network does by
 * default, but for the length that it sends before each message.
 *
 * Figures are medians over windows (of 100 round trips, of 32 MiB) and, for machines that others use too, the best
 * window.
 *
 *   net_bench [both]       both: each process sends and receives at the same time
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "plugin/net/nccl_net.h"

enum { LATENCIES = 4, CHUNK = 512 << 10, STEPS = 8, ROUND_TRIPS = 100, CHUNKS = 64, WINDOWS = 65, WARM_UP = 5 };

static const size_t latency_bytes[LATENCIES] = {8, 4 << 10, 16 << 10, 64 << 10};

struct side {
  int rank;
  const struct nccl_net* net; /* NULL: the plain socket */
  void *send, *recv;          /* comms */
  int out, in; /* the plain sockets */
  char* memory; /* STEPS chunks to send, STEPS to receive */
};

struct request {
  void* made;
  char* data;
  size_t size, done;
  int sending;
};

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void check(int right, const char* what) {
  if (right) return;
  fprintf(stderr, "net_bench: %s failed (%s)\n", what, strerror(errno));
  exit(1);
}

/* ---------------------------------------------------------------- one request, on either */

static int start(struct side* side, struct request* request, char* data, size_t size, int sending) {
  int tag = 7;
  void* list[1] = {data};
  *request = (struct request){.data = data, .size = size, .sending = sending};
  if (side->net == NULL) return 1;
  check((sending ? side->net->isend(side->send, data, size, tag, NULL, NULL, &request->made)
                 : side->net->irecv(side->recv, 1, list, &size, &tag, NULL, NULL, &request->made)) == arfusionSuccess,
        sending ? "isend" : "irecv");
  return request->made != NULL;
}

static int finished(struct side* side, struct request* request) {
  ssize_t moved;
  int done = 0;
  if (side->net != NULL) {
    check(side->net->test(request->made, &done, NULL) == arfusionSuccess, "test");
    return done;
  }
  char* at = request->data + request->done;
  moved = request->sending ? send(side->out, at, request->size - request->done, MSG_DONTWAIT | MSG_NOSIGNAL)
                           : recv(side->in, at, request->size - request->done, MSG_DONTWAIT);
  check(moved > 0 || (moved < 0 && errno == EAGAIN), "the plain socket");
  if (moved > 0) request->done += (size_t)moved;
  return request->done == request->size;
}

/* ---------------------------------------------------------------- measurements */

/* Seconds of a message. */
static double latency(struct side* side, size_t bytes) {
  double begin = now();
  for (int i = 0; i < ROUND_TRIPS; i++) {
    for (int half = 0; half < 2; half++) {
      struct request request;
      int sending = half == side->rank;
      while (!start(side, &request, side->memory + (sending ? 0 : STEPS * CHUNK), bytes, sending)) continue;
      while (!finished(side, &request)) continue;
    }
  }
  return (now() - begin) / ROUND_TRIPS / 2;
}

/* Chunks on their way in one direction. */
struct way {
  struct request request[STEPS];
  size_t started, ended, chunks;
};

/* One look. */

static void way_look(struct side* side, struct way* way, int sending) {
  if (way->started < way->chunks && way->started < way->ended + STEPS) {
    size_t slot = way->started % STEPS;
    char* data = side->memory + (slot + (sending ? 0 : STEPS)) * CHUNK;
    way->started += (size_t)start(side, &way->request[slot], data, CHUNK, sending);
  }
  if (way->ended < way->started) way->ended += (size_t)finished(side, &way->request[way->ended % STEPS]);
}

/* Seconds of all windows. The receiver's clock counts: the sender is done when all is on its way. */
static void bandwidth(struct side* side, int both, double seconds[WINDOWS]) {
  struct way out = {.chunks = both || side->rank == 0 ? (size_t)CHUNKS * WINDOWS : 0};
  struct way in = {.chunks = both || side->rank == 1 ? (size_t)CHUNKS * WINDOWS : 0};
  size_t counted = 0;
  double begin = now();
  while (out.ended < out.chunks || in.ended < in.chunks) {
    way_look(side, &out, 1);
    way_look(side, &in, 0);
    if (in.ended < (counted + 1) * CHUNKS) continue;
    seconds[counted++] = now() - begin;
    begin = now();
  }
}

static int compare(const void* a, const void* b) {
  double x = *(const double*)a, y = *(const double*)b;
  return (x > y) - (x < y);
}

/* ---------------------------------------------------------------- connecting */

static void exchange(int fd, const void* mine, void* theirs, size_t bytes) {
  check(write(fd, mine, bytes) == (ssize_t)bytes, "write");
  check(read(fd, theirs, bytes) == (ssize_t)bytes, "read");
}

static void connect_net(struct side* side, int other) {
  char mine[NCCL_NET_HANDLE_BYTES], theirs[NCCL_NET_HANDLE_BYTES];
  void *ctx, *listening;
  int ndev = 0;
  check(side->net->init(&ctx, 1, NULL, NULL, NULL) == arfusionSuccess, "init");
  check(side->net->devices(&ndev) == arfusionSuccess && ndev > 0, "finding a device");
  check(side->net->listen(ctx, 0, mine, &listening) == arfusionSuccess, "listen");
  exchange(other, mine, theirs, sizeof mine);
  while (side->send == NULL || side->recv == NULL) {
    if (side->send == NULL) check(side->net->connect(ctx, 0, theirs, &side->send, NULL) == arfusionSuccess, "connect");
    if (side->recv == NULL) check(side->net->accept(listening, &side->recv, NULL) == arfusionSuccess, "accept");
  }
  side->net->closeListen(listening);
}

/* A connection, from rank 0 to rank 1. */
static int connect_plain(int rank, int other) {
  struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, theirs;
  socklen_t bytes = sizeof address;
  int listening = socket(AF_INET, SOCK_STREAM, 0), on = 1, fd;
  check(bind(listening, (struct sockaddr*)&address, bytes) == 0 && listen(listening, 1) == 0, "listen");
  getsockname(listening, (struct sockaddr*)&address, &bytes);
  exchange(other, &address, &theirs, sizeof address);
  if (rank == 0) {
    fd = socket(AF_INET, SOCK_STREAM, 0);
    check(connect(fd, (struct sockaddr*)&theirs, sizeof theirs) == 0, "connect");
  } else {
    fd = accept(listening, NULL, NULL);
    check(fd >= 0, "accept");
  }
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  close(listening);
  return fd;
}

static void run(int rank, int other, const char* what, int both) {
  struct side side = {.rank = rank};
  double round[LATENCIES][WINDOWS], window[WINDOWS];
  const int counted = WINDOWS - WARM_UP;
  char byte = 0;
  side.memory = mmap(NULL, 2 * STEPS * CHUNK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memset(side.memory, rank, 2 * STEPS * CHUNK);
  setenv("ARFUSION_NET_TRANSPORT", strcmp(what, "arfusion, TCP") == 0 ? "tcp" : "auto", 1);
  if (strcmp(what, "plain sockets") != 0) side.net = &ncclNetPlugin_v12;
  if (side.net != NULL) {
    connect_net(&side, other);
  } else {
    int first = connect_plain(rank, other), second = connect_plain(rank, other);
    side.out = rank == 0 ? first : second;
    side.in = rank == 0 ? second : first;
  }
  for (int k = 0; k < LATENCIES; k++) {
    for (int i = 0; i < WINDOWS; i++) round[k][i] = latency(&side, latency_bytes[k]);
    qsort(round[k] + WARM_UP, (size_t)counted, sizeof **round, compare);
  }
  bandwidth(&side, both, window);
  qsort(window + WARM_UP, (size_t)counted, sizeof *window, compare);
  if (rank == 1) { /* the receiver */
    printf("%-18s", what);
    for (int k = 0; k < LATENCIES; k++) {
      printf(" %8.2f %8.2f", 1e6 * round[k][WARM_UP + counted / 2], 1e6 * round[k][WARM_UP]);
    }
    printf(" %8.2f %8.2f\n", 1e-9 * CHUNK * CHUNKS / window[WARM_UP + counted / 2],
           1e-9 * CHUNK * CHUNKS / window[WARM_UP]);
  }
  fflush(stdout);
  exchange(other, &byte, &byte, 1); /* nobody leaves before the other is done */
}

int main(int argc, char** argv) {
  static const char* const all[] = {"plain sockets", "arfusion, TCP", "arfusion, memory"};
  int both = argc > 1 && strcmp(argv[1], "both") == 0, status = 0;

  if (argc > 2 || (argc > 1 && !both)) return fprintf(stderr, "usage: net_bench [both]\n"), 2;
  setenv("NCCL_NET", "arfusion", 1);
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  printf("%-18s", "");
  for (int k = 0; k < LATENCIES; k++) printf(" %9zu bytes, us", latency_bytes[k]);
  printf(" %17s\n%-18s", both ? "GB/s each way" : "GB/s", "");
  for (int k = 0; k <= LATENCIES; k++) printf(" %8s %8s", "median", "best");
  printf("\n");
  fflush(stdout);
  for (int i = 0; i < 3 && status == 0; i++) { /* processes of their own: settings are read once in each */
    int pair[2], ended;
    check(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0, "socketpair");
    for (int rank = 0; rank < 2; rank++) {
      if (fork() != 0) continue;
      close(pair[1 - rank]);
      run(rank, pair[rank], all[i], both);
      exit(0);
    }
    close(pair[0]);
    close(pair[1]);
    while (wait(&ended) > 0) status |= ended;
  }
  return status != 0;
}
