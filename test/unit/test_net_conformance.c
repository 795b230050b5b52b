/* SPDX-License-Identifier: Apache-2.0
 *
 * test_net_conformance.c: the network for NCCL through the symbols that NCCL finds, in the order of NCCL's calls,
 * between two processes: over loopback, through shared memory and over TCP, and between two network namespaces (as
 * root; otherwise that part is skipped). Random traffic both ways, slow readers, every order of closing, a peer that is
 * killed.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "test/unit/support.h"
#include "test/unit/support_net.h"

#define LIMIT 25. /* s; a rank is killed after 30 */

enum place { LOOPBACK_MEMORY, LOOPBACK_TCP, NAMESPACES, NAMESPACES_IPV6 };

struct scene {
  enum place place;
  int version;     /* of the table */
  int groups, slow_ms;
  int close_order; /* of send, recv and listen comm: 0 to 5; the other rank takes the next one */
  int killed;      /* 1: rank 1 dies in the middle */
  uint64_t seed;
  int pair[2];     /* between the ranks, for handles */
};

#define CHECK(condition)                                                        \
  if (!(condition)) {                                                           \
    fprintf(stderr, "rank %d, line %d: %s is not so\n", rank, __LINE__, #condition); \
    return arfusionInternalError;                                               \
  }

static int exchange(int fd, const void* mine, void* theirs, size_t bytes) {
  return write(fd, mine, bytes) == (ssize_t)bytes && read(fd, theirs, bytes) == (ssize_t)bytes;
}

/* ---------------------------------------------------------------- places */

static int command(const char* format, ...) __attribute__((format(printf, 1, 2)));

static int command(const char* format, ...) {
  char text[256];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return system(text) == 0;
}

/* The system takes a moment to find out that the other end is up too. */
static int wire_runs(int rank) {
  struct interface found[INTERFACE_MOST];
  double limit = support_now() + 10;
  while (interface_find(rank == 0 ? "=veth0" : "=veth1", "", found) != 1) {
    if (support_now() > limit) return 0;
    support_sleep(0.02);
  }
  return 1;
}

/* Rank 0's namespace gets a wire whose other end is in rank 1's. */
static int namespaces_make(const struct scene* scene, int rank) {
  int mine = (int)getpid(), theirs = 0, fd = scene->pair[rank];
  if (unshare(CLONE_NEWNET) != 0 || !exchange(fd, &mine, &theirs, sizeof mine)) return 0;
  if (rank == 0 && !command("ip link add veth0 type veth peer name veth1 netns %d", theirs)) return 0;
  if (!exchange(fd, &mine, &theirs, sizeof mine)) return 0;
  if (!command("ip addr add 10.213.97.%d/24 dev veth%d && ip addr add fd6a::%d/64 dev veth%d nodad &&"
               " ip link set veth%d up",
               rank + 1, rank, rank + 1, rank, rank))
    return 0;
  /* With the end of either process the wire would be gone. */
  return exchange(fd, &mine, &theirs, sizeof mine) && wire_runs(rank) && exchange(fd, &mine, &theirs, sizeof mine);
}

static int place_enter(const struct scene* scene, int rank) {
  int apart = scene->place >= NAMESPACES;
  if (apart && !namespaces_make(scene, rank)) return 0;
  support_setting("NCCL_NET", "ArFusion");
  support_setting("NCCL_CONF_FILE", "/dev/null");
  support_setting("NCCL_SOCKET_IFNAME", apart ? "=veth0,veth1" : "lo");
  support_setting("NCCL_SOCKET_FAMILY", scene->place == NAMESPACES_IPV6 ? "AF_INET6" : NULL);
  support_setting("ARFUSION_NET_TRANSPORT", scene->place == LOOPBACK_TCP ? "tcp" : NULL);
  return 1;
}

/* ---------------------------------------------------------------- a rank */

static int properties_right(const struct nccl_net* net, int version, int apart) {
  union {
    struct nccl_net_properties_v11 v11;
    struct nccl_net_properties_v12 v12;
  } props;
  memset(&props, 0x77, sizeof props);
  if (net->getProperties(0, &props) != arfusionSuccess) return 0;
  if (net->getProperties(1000, &props) != arfusionInvalidArgument) return 0;
  if (version == 12 && (props.v12.railId != -1 || props.v12.planeId != -1 || props.v12.vProps.ndevs != 1)) return 0;
  size_t most = version == 12 ? props.v12.maxP2pBytes : props.v11.maxP2pBytes;
  return strncmp(props.v11.name, apart ? "veth" : "lo", 2) == 0 && props.v11.ptrSupport == NCCL_PTR_HOST &&
         props.v11.speed > 0 && props.v11.maxRecvs == LINK_GROUP && most == (size_t)1 << 31;
}

/* Both flows have ended, or the other rank has; they are to be freed after the comms have been closed. */
static arfusionResult_t rank_talk(struct scene* scene, int rank, const struct nccl_net* net, void* send, void* recv,
                                  struct support_flow* flows[2]) {
  const struct support_traffic out = {
      .seed = scene->seed + (uint64_t)rank, .groups = scene->groups, .size_max = 2 << 20, .pause_ms = 3};
  const struct support_traffic in = {
      .seed = scene->seed + (uint64_t)(1 - rank), .groups = scene->groups, .size_max = 2 << 20,
      .slow_ms = scene->slow_ms};
  struct support_flow* sending = flows[0] = support_flow_begin(net, send, 1, &out);
  struct support_flow* receiving = flows[1] = support_flow_begin(net, recv, 0, &in);
  arfusionResult_t result = arfusionSuccess;
  int sent = 0, received = 0, steps = 0;
  double limit = support_now() + LIMIT;
  while (result == arfusionSuccess && !(sent && received)) {
    if (!sent) result = support_flow_step(sending, &sent);
    if (result == arfusionSuccess && !received) result = support_flow_step(receiving, &received);
    if (scene->killed && rank == 1 && ++steps == 100) raise(SIGKILL);
    CHECK(support_now() < limit);
  }
  if (scene->killed) { /* the other direction says so too */
    arfusionResult_t other = arfusionSuccess;
    CHECK(result == arfusionRemoteError);
    while (other == arfusionSuccess && !sent) {
      other = support_flow_step(sending, &sent);
      CHECK(support_now() < limit);
    }
    CHECK(sent || other == arfusionRemoteError);
    for (other = arfusionSuccess; other == arfusionSuccess && !received;) {
      other = support_flow_step(receiving, &received);
      CHECK(support_now() < limit);
    }
    CHECK(received || other == arfusionRemoteError);
    return arfusionSuccess;
  }
  CHECK(result == arfusionSuccess);
  return arfusionSuccess;
}

static void close_all(const struct nccl_net* net, int order, void* send, void* recv, void* listening) {
  static const char orders[6][4] = {"srl", "slr", "rsl", "rls", "lsr", "lrs"};
  for (const char* at = orders[order % 6]; *at; at++) {
    if (*at == 's') net->closeSend(send);
    if (*at == 'r') net->closeRecv(recv);
    if (*at == 'l') net->closeListen(listening);
  }
}

static arfusionResult_t rank_run(int rank, void* argument, struct support_outcome* outcome) {
  struct scene* scene = argument;
  const int fd = scene->pair[rank], apart = scene->place >= NAMESPACES;
  void *library, *ctx = NULL, *listening = NULL, *send = NULL, *recv = NULL, *mhandle = NULL;
  char mine[NCCL_NET_HANDLE_BYTES], theirs[NCCL_NET_HANDLE_BYTES], memory[64];
  struct support_flow* flows[2];
  uint64_t random = scene->seed + (uint64_t)rank;
  double limit = support_now() + LIMIT;
  int ndev = 0;

  (void)outcome;
  close(scene->pair[1 - rank]); /* so that the end of the other rank is seen */
  CHECK(place_enter(scene, rank));
  library = dlopen(getenv("ARFUSION_PLUGIN"), RTLD_NOW | RTLD_LOCAL);
  CHECK(library != NULL);
  const struct nccl_net* net = dlsym(library, scene->version == 12 ? "ncclNetPlugin_v12" : "ncclNetPlugin_v11");
  CHECK(net != NULL);
  CHECK(net->init(&ctx, 1, NULL, support_logger, NULL) == arfusionSuccess && ctx != NULL);
  CHECK(net->devices(&ndev) == arfusionSuccess && ndev >= 1);
  CHECK(properties_right(net, scene->version, apart));
  CHECK(net->listen(ctx, ndev, mine, &listening) == arfusionInvalidArgument);
  CHECK(net->listen(ctx, 0, mine, &listening) == arfusionSuccess);
  CHECK(exchange(fd, mine, theirs, sizeof mine));
  while (!send || !recv) {
    CHECK(support_now() < limit);
    if (!send && support_random(&random, 2)) CHECK(net->connect(ctx, 0, theirs, &send, NULL) == arfusionSuccess);
    if (!recv && support_random(&random, 2)) CHECK(net->accept(listening, &recv, NULL) == arfusionSuccess);
  }
  CHECK((support_mappings("arfusion-net") > 0) == (scene->place == LOOPBACK_MEMORY));
  CHECK(net->regMr(send, memory, sizeof memory, 2, &mhandle) == arfusionInvalidArgument); /* CUDA */
  CHECK(net->regMr(send, memory, sizeof memory, NCCL_PTR_HOST, &mhandle) == arfusionSuccess);
  CHECK(net->deregMr(send, mhandle) == arfusionSuccess);
  arfusionResult_t result = rank_talk(scene, rank, net, send, recv, flows);
  if (result != arfusionSuccess) return result;
  close_all(net, scene->close_order + rank, send, recv, listening);
  for (int i = 0; i < 2; i++) support_flow_end(flows[i]);
  CHECK(support_mappings("arfusion-net") == 0);
  CHECK(net->finalize(ctx) == arfusionSuccess);
  return arfusionSuccess;
}

static void play(struct scene scene) {
  struct support_outcome outcomes[2];
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, scene.pair), 0);
  support_processes(2, rank_run, &scene, outcomes);
  for (int rank = 0; rank < 2; rank++) {
    if (scene.killed && rank == 1) {
      assert_int_equal(outcomes[1].ended, 0);
      continue;
    }
    if (!outcomes[rank].ended || outcomes[rank].result != arfusionSuccess)
      fail_msg("seed %llu: rank %d %s", (unsigned long long)scene.seed, rank,
               outcomes[rank].ended ? "failed" : "died or hung");
  }
  close(scene.pair[0]);
  close(scene.pair[1]);
}

/* ---------------------------------------------------------------- tests */

static void play_at(enum place place) {
  play((struct scene){.place = place, .version = 11, .groups = 100, .seed = 20 + place});
  play((struct scene){
      .place = place, .version = 12, .groups = 60, .slow_ms = 20, .close_order = 3, .seed = 30 + place});
  play((struct scene){.place = place, .version = 12, .groups = 1000, .killed = 1, .seed = 40 + place});
}

static void test_memory(void** state) {
  (void)state;
  play_at(LOOPBACK_MEMORY);
}

static void test_tcp(void** state) {
  (void)state;
  play_at(LOOPBACK_TCP);
}

static void test_orders_of_closing(void** state) {
  (void)state;
  for (int order = 0; order < 6; order++) {
    for (enum place place = LOOPBACK_MEMORY; place <= LOOPBACK_TCP; place++)
      play((struct scene){
          .place = place, .version = 12, .groups = 3, .close_order = order, .seed = 50 + (uint64_t)order});
  }
}

/* Whether processes of this user may have namespaces, and wires between them. */
static arfusionResult_t namespaces_try(int rank, void* argument, struct support_outcome* outcome) {
  (void)outcome;
  close(((struct scene*)argument)->pair[1 - rank]);
  return namespaces_make(argument, rank) ? arfusionSuccess : arfusionSystemError;
}

static void test_namespaces(void** state) {
  struct scene scene = {.place = NAMESPACES};
  struct support_outcome outcomes[2];
  (void)state;
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, scene.pair), 0);
  support_processes(2, namespaces_try, &scene, outcomes);
  close(scene.pair[0]);
  close(scene.pair[1]);
  if (outcomes[0].result != arfusionSuccess || outcomes[1].result != arfusionSuccess) {
    print_message("skipped: no network namespaces here (root and ip are needed)\n");
    skip();
  }
  play_at(NAMESPACES);
  play((struct scene){.place = NAMESPACES_IPV6, .version = 12, .groups = 30, .seed = 60});
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_memory),
      cmocka_unit_test(test_tcp),
      cmocka_unit_test(test_orders_of_closing),
      cmocka_unit_test(test_namespaces),
  };
  support_use_plugin();
  signal(SIGPIPE, SIG_IGN);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
