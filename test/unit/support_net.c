/* SPDX-License-Identifier: Apache-2.0
 *
 * support_net.c: see support_net.h.
 */
#include "test/unit/support_net.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/net/linger.h"
#include "test/unit/support.h"

enum { TAGS = 5, MESSAGES_MOST = 8192 };

struct message {
  int tag, group, entry;
  size_t size, room;
  char* data;
  void* request;
  int started, done;
};

struct support_flow {
  const struct nccl_net* net;
  void* comm;
  int sending;
  struct support_traffic traffic;
  uint64_t random;
  int messages, ended;
  int first[MESSAGES_MOST + 1]; /* message of a group; one more for the end */
  void* requests[MESSAGES_MOST]; /* of groups */
  int posted;
  struct message message[MESSAGES_MOST];
};

uint32_t support_random(uint64_t* state, uint32_t below) {
  *state += 0x9e3779b97f4a7c15ull;
  uint64_t z = *state;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ z >> 27) * 0x94d049bb133111ebull;
  return (uint32_t)((z ^ z >> 31) >> 32) % below;
}

static size_t random_size(uint64_t* random, size_t size_max) {
  static const size_t around[] = {0, 8, 1024, 4096, 16384, 32768, 65536, 131072, 262144};
  size_t size = around[support_random(random, sizeof around / sizeof around[0])];
  size_t off = support_random(random, 5);
  if (support_random(random, 40) == 0) return support_random(random, (uint32_t)size_max + 1);
  size = size + off >= 2 ? size + off - 2 : 0;
  return size > size_max ? size_max : size;
}

/* Random bytes, of which each piece of each message is another stretch. */
enum { PIECE = 65536 };
static char noise[2 * PIECE];

static const char* pattern(uint64_t seed, int message, size_t at) {
  return noise + (seed * 7919 + (uint64_t)message * 131 + at / PIECE * 17) % PIECE;
}

static void pattern_fill(uint64_t seed, int message, char* data, size_t size) {
  for (size_t at = 0; at < size; at += PIECE)
    memcpy(data + at, pattern(seed, message, at), size - at < PIECE ? size - at : PIECE);
}

static int pattern_right(uint64_t seed, int message, const char* data, size_t size) {
  for (size_t at = 0; at < size; at += PIECE)
    if (memcmp(data + at, pattern(seed, message, at), size - at < PIECE ? size - at : PIECE)) return 0;
  return 1;
}

struct support_flow* support_flow_begin(const struct nccl_net* net, void* comm, int sending,
                                        const struct support_traffic* traffic) {
  struct support_flow* flow = calloc(1, sizeof *flow);
  uint64_t plan = traffic->seed, fixed = 1;
  for (size_t i = 0; i < sizeof noise && noise[sizeof noise - 1] == 0; i++)
    noise[i] = (char)(support_random(&fixed, 255) + 1);
  flow->net = net;
  flow->comm = comm;
  flow->sending = sending;
  flow->traffic = *traffic;
  flow->random = traffic->seed + (sending ? 1000003u : 2000003u);
  for (int g = 0; g < traffic->groups; g++) {
    int n = 1 + (int)support_random(&plan, LINK_GROUP);
    flow->first[g] = flow->messages;
    for (int i = 0; i < n; i++) {
      struct message* message = &flow->message[flow->messages++];
      message->group = g;
      message->entry = i;
      message->tag = (int)support_random(&plan, TAGS) * 1000003 - 7;
      message->size = random_size(&plan, traffic->size_max);
      message->room = message->size + support_random(&plan, 3) * 100;
    }
  }
  flow->first[traffic->groups] = flow->messages;
  return flow;
}

void support_flow_end(struct support_flow* flow) {
  for (int m = 0; m < flow->messages; m++) free(flow->message[m].data);
  free(flow);
}

static int message_right(const struct support_flow* flow, int m) {
  const struct message* message = &flow->message[m];
  if (!pattern_right(flow->traffic.seed, m, message->data, message->size)) return 0;
  for (size_t at = message->size; at < message->room; at++)
    if (message->data[at] != 0x55) return 0; /* beyond the message nothing is written */
  return 1;
}

/* ---------------------------------------------------------------- the sender */

/* The first message of each tag that has not been sent may go next. */
static arfusionResult_t send_some(struct support_flow* flow) {
  int tag_seen[TAGS] = {0}, looked = 0;
  for (int m = flow->ended; m < flow->messages && looked < 200; m++, looked++) {
    struct message* message = &flow->message[m];
    int tag = (message->tag + 7) / 1000003;
    if (message->started || tag_seen[tag]) continue;
    tag_seen[tag] = 1;
    if (support_random(&flow->random, 3) == 0) continue;
    if (message->data == NULL) {
      message->data = malloc(message->size + 1);
      pattern_fill(flow->traffic.seed, m, message->data, message->size);
    }
    arfusionResult_t result = flow->net->isend(flow->comm, message->data, message->size, message->tag, NULL, NULL,
                                               &message->request);
    if (result != arfusionSuccess) return result;
    message->started = message->request != NULL;
  }
  return arfusionSuccess;
}

static arfusionResult_t send_test(struct support_flow* flow) {
  for (int m = flow->ended; m < flow->messages && m < flow->ended + 200; m++) {
    struct message* message = &flow->message[m];
    int size = -1;
    if (!message->started || message->done || support_random(&flow->random, 2) == 0) continue;
    arfusionResult_t result = flow->net->test(message->request, &message->done, &size);
    if (result != arfusionSuccess) return result;
    if (!message->done) continue;
    if (size != (int)message->size) return arfusionInternalError;
    free(message->data);
    message->data = NULL;
  }
  while (flow->ended < flow->messages && flow->message[flow->ended].done) flow->ended++;
  return arfusionSuccess;
}

/* ---------------------------------------------------------------- the receiver */

static arfusionResult_t receive_post(struct support_flow* flow) {
  void* data[LINK_GROUP];
  size_t sizes[LINK_GROUP];
  int tags[LINK_GROUP], first = flow->first[flow->posted], n = flow->first[flow->posted + 1] - first;
  for (int i = 0; i < n; i++) {
    struct message* message = &flow->message[first + i];
    if (message->data == NULL) message->data = malloc(message->room + 1);
    memset(message->data, 0x55, message->room + 1);
    data[i] = message->data;
    sizes[i] = message->room;
    tags[i] = message->tag;
  }
  void* request = (void*)1; /* as NCCL may hand it in */
  arfusionResult_t result = flow->net->irecv(flow->comm, n, data, sizes, tags, NULL, NULL, &request);
  if (result != arfusionSuccess || request == NULL) return result;
  flow->requests[flow->posted++] = request;
  return arfusionSuccess;
}

static arfusionResult_t receive_test(struct support_flow* flow) {
  for (int g = flow->ended; g < flow->posted; g++) {
    int done = 0, sizes[LINK_GROUP] = {0}, first = flow->first[g];
    if (flow->requests[g] == NULL || support_random(&flow->random, 2) == 0) continue;
    arfusionResult_t result = flow->net->test(flow->requests[g], &done, sizes);
    if (result != arfusionSuccess) return result;
    if (!done) continue;
    void* flush = (void*)1;
    result = flow->net->iflush(flow->comm, 1, (void**)&flow->message[first].data, sizes, NULL, &flush);
    if (result != arfusionSuccess || flush != NULL) return arfusionInternalError;
    flow->requests[g] = NULL;
    for (int m = first; m < flow->first[g + 1]; m++) {
      if (sizes[m - first] != (int)flow->message[m].size || !message_right(flow, m)) {
        fprintf(stderr, "seed %llu: message %d of %zu bytes is wrong (%d bytes came)\n",
                (unsigned long long)flow->traffic.seed, m, flow->message[m].size, sizes[m - first]);
        return arfusionInternalError;
      }
      free(flow->message[m].data);
      flow->message[m].data = NULL;
    }
  }
  while (flow->ended < flow->posted && flow->requests[flow->ended] == NULL) flow->ended++;
  return arfusionSuccess;
}

arfusionResult_t support_flow_step(struct support_flow* flow, int* ended) {
  arfusionResult_t result = arfusionSuccess;
  int rest = flow->sending ? flow->traffic.pause_ms : flow->traffic.slow_ms;
  if (rest > 0 && support_random(&flow->random, 50) == 0)
    support_sleep(0.001 * support_random(&flow->random, (uint32_t)rest));
  if (flow->sending) {
    result = send_some(flow);
    if (result == arfusionSuccess) result = send_test(flow);
    *ended = flow->ended == flow->messages;
  } else {
    if (flow->posted < flow->traffic.groups) result = receive_post(flow);
    if (result == arfusionSuccess) result = receive_test(flow);
    *ended = flow->ended == flow->traffic.groups;
  }
  return result;
}

/* ---------------------------------------------------------------- pairs */

void support_checked_run(void** state) {
  const struct support_checked* checked = *state;
  int descriptors = support_descriptors();
  checked->test(state);
  endpoint_connects_end();
  linger_end();
  assert_int_equal(support_descriptors(), descriptors);
  assert_int_equal(support_mappings("arfusion-net"), 0);
}

struct interface support_loopback(int six) {
  struct interface interface = {.name = "lo", .index = 1};
  if (six) {
    interface.address.in6.sin6_family = AF_INET6;
    interface.address.in6.sin6_addr = in6addr_loopback;
  } else {
    interface.address.in.sin_family = AF_INET;
    interface.address.in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  }
  return interface;
}

struct support_pair support_pair_make(const struct endpoint_options* options, int six) {
  struct interface interface = support_loopback(six);
  struct support_pair pair = {0};
  struct listener* listener;
  char handle[ENDPOINT_HANDLE_BYTES];
  double limit = support_now() + 20;
  if (listener_create(&interface, options, handle, &listener) != arfusionSuccess) return pair;
  while ((!pair.send || !pair.recv) && support_now() < limit) {
    if (!pair.send && endpoint_connect(handle, &interface, options, 3, &pair.send) != arfusionSuccess) break;
    if (!pair.recv && listener_accept(listener, &pair.recv, NULL) != arfusionSuccess) break;
  }
  listener_close(listener);
  return pair;
}

arfusionResult_t support_pair_run(struct support_pair pair, const struct support_traffic* traffic) {
  struct support_flow* out = support_flow_begin(&ncclNetPlugin_v12, pair.send, 1, traffic);
  struct support_flow* in = support_flow_begin(&ncclNetPlugin_v12, pair.recv, 0, traffic);
  arfusionResult_t result = arfusionSuccess;
  int sent = 0, received = 0;
  double limit = support_now() + 120;
  while (result == arfusionSuccess && !(sent && received)) {
    if (!sent) result = support_flow_step(out, &sent);
    if (result == arfusionSuccess && !received) result = support_flow_step(in, &received);
    if (support_now() > limit) result = arfusionInProgress;
  }
  if (result == arfusionSuccess) {
    support_flow_end(out);
    support_flow_end(in);
  }
  return result;
}
