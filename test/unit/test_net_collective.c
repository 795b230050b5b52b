/* SPDX-License-Identifier: Apache-2.0
 *
 * test_net_collective.c: the collective network for NCCL, through its table: every data type and operation against a
 * plain reference, on 1 to 5 ranks, in place or not; windows and parts of all-gather and reduce-scatter; several
 * operations at once; ranks that leave, are killed or never come. Ranks are threads, the killed one a process.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "plugin/core/log.h"
#include "plugin/net/collective.h"
#include "plugin/net/reduce.h"
#include "test/unit/support.h"
#include "test/unit/support_net.h"

enum { MOST = 5 };
#define LIMIT 25.

static const struct nccl_collnet* const collnet = &ncclCollNetPlugin_v12;

/* What the ranks of a test share; in memory that processes share too. */
struct world {
  int nranks;
  _Atomic int listening, left;
  char handles[MOST][NCCL_NET_HANDLE_BYTES];
  arfusionResult_t (*play)(struct world* world, int rank, void* comm);
  uint64_t seed;
};

#define CHECK(condition)                                                              \
  if (!(condition)) {                                                                 \
    fprintf(stderr, "rank %d, line %d: %s is not so\n", rank, __LINE__, #condition);  \
    return arfusionInternalError;                                                     \
  }

static arfusionResult_t rank_run(int rank, void* argument, struct support_outcome* outcome) {
  struct world* world = argument;
  void *ctx, *listening, *comm, *handles[MOST];
  struct nccl_net_properties_v12 props;
  double limit = support_now() + LIMIT;
  int ndev = 0;

  (void)outcome;
  CHECK(collnet->init(&ctx, 1, support_logger) == arfusionSuccess && ctx);
  CHECK(collnet->devices(&ndev) == arfusionSuccess && ndev == 1);
  CHECK(collnet->getProperties(0, &props) == arfusionSuccess && strcmp(props.name, "lo") == 0);
  CHECK(collnet->listen(ctx, 0, world->handles[rank], &listening) == arfusionSuccess);
  atomic_fetch_add(&world->listening, 1);
  while (atomic_load(&world->listening) < world->nranks) {
    CHECK(support_now() < limit);
    support_sleep(0.001);
  }
  for (int r = 0; r < world->nranks; r++) handles[r] = world->handles[r];
  CHECK(collnet->connect(handles, world->nranks, rank, listening, &comm) == arfusionSuccess);
  CHECK(collnet->closeListen(listening) == arfusionSuccess);
  arfusionResult_t result = world->play(world, rank, comm);
  atomic_fetch_add(&world->left, 1);
  CHECK(collnet->closeColl(comm) == arfusionSuccess);
  CHECK(collnet->finalize(ctx) == arfusionSuccess);
  return result;
}

static void play(int nranks, arfusionResult_t (*function)(struct world* world, int rank, void* comm), uint64_t seed) {
  struct world world = {.nranks = nranks, .play = function, .seed = seed};
  struct support_outcome outcomes[MOST];
  support_threads(nranks, rank_run, &world, outcomes);
  for (int r = 0; r < nranks; r++) assert_int_equal(outcomes[r].result, arfusionSuccess);
}

static arfusionResult_t wait_for(void* request, int* size) {
  arfusionResult_t result = arfusionSuccess;
  int done = 0;
  double limit = support_now() + LIMIT;
  while (result == arfusionSuccess && !done) {
    result = collnet->test(request, &done, size);
    if (!done) support_sleep(0.0002);
    if (support_now() > limit) return arfusionInProgress;
  }
  return result;
}

/* ---------------------------------------------------------------- types, plainly */

static uint16_t bf16_from(float value) {
  uint32_t bits;
  memcpy(&bits, &value, 4);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float bf16_to(uint16_t value) {
  uint32_t bits = (uint32_t)value << 16;
  float wide;
  memcpy(&wide, &bits, 4);
  return wide;
}

/* Element i of an array of a type: read and written as a double, which holds all values that are used here. */
static void put(arfusionDataType_t type, void* data, size_t i, double value) {
  switch ((int)type) {
    case arfusionInt8: ((int8_t*)data)[i] = (int8_t)(int64_t)value; break;
    case arfusionUint8: ((uint8_t*)data)[i] = (uint8_t)(int64_t)value; break;
    case arfusionInt32: ((int32_t*)data)[i] = (int32_t)(int64_t)value; break;
    case arfusionUint32: ((uint32_t*)data)[i] = (uint32_t)(int64_t)value; break;
    case arfusionInt64: ((int64_t*)data)[i] = (int64_t)value; break;
    case arfusionUint64: ((uint64_t*)data)[i] = (uint64_t)(int64_t)value; break;
    case arfusionFloat16: ((_Float16*)data)[i] = (_Float16)(float)value; break;
    case arfusionBfloat16: ((uint16_t*)data)[i] = bf16_from((float)value); break;
    case arfusionFloat32: ((float*)data)[i] = (float)value; break;
    case arfusionFloat64: ((double*)data)[i] = value; break;
  }
}

/* The input of a rank: small whole numbers, whose sums and products all types hold, wrapped where they are integers. */
static double input(uint64_t seed, int rank, size_t i, arfusionDataType_t type) {
  static const double values[] = {1, 2, 3, 1, 2, 1, 1, 4};
  uint64_t state = seed * 1000 + (uint64_t)rank * 77 + i * 7;
  double value = values[support_random(&state, 8)];
  int is_signed = type != arfusionUint8 && type != arfusionUint32 && type != arfusionUint64;
  return is_signed && support_random(&state, 2) ? -value : value;
}

static double combine(arfusionRedOp_t op, double a, double b) {
  switch ((int)op) {
    case arfusionSum: return a + b;
    case arfusionProd: return a * b;
    case arfusionMin: return a < b ? a : b;
    default: return a > b ? a : b;
  }
}

/* ---------------------------------------------------------------- allreduce */

static arfusionResult_t allreduce(struct world* world, int rank, void* comm, arfusionDataType_t type,
                                  arfusionRedOp_t op, size_t count, int in_place) {
  size_t bytes = reduce_type_bytes(type);
  char *send = malloc(count * bytes + 1), *recv = in_place ? send : calloc(1, count * bytes + 1);
  char* expected = malloc(count * bytes + 1);
  void* request = NULL;
  int size = -1;
  for (size_t i = 0; i < count; i++) {
    double result = input(world->seed, 0, i, type);
    for (int r = 1; r < world->nranks; r++) result = combine(op, result, input(world->seed, r, i, type));
    put(type, send, i, input(world->seed, rank, i, type));
    put(type, expected, i, result);
  }
  CHECK(collnet->iallreduce(comm, send, recv, count, type, op, NULL, NULL, &request) == arfusionSuccess && request);
  CHECK(wait_for(request, &size) == arfusionSuccess);
  CHECK(size == (int)(count * bytes));
  CHECK(memcmp(recv, expected, count * bytes) == 0);
  if (!in_place) free(recv);
  free(send);
  free(expected);
  return arfusionSuccess;
}

static arfusionResult_t play_types(struct world* world, int rank, void* comm) {
  for (int type = arfusionInt8; type <= arfusionBfloat16; type++) {
    for (int op = arfusionSum; op <= arfusionMin; op++) {
      int supported = 0;
      CHECK(collnet->reduceSupport((arfusionDataType_t)type, (arfusionRedOp_t)op, &supported) == arfusionSuccess);
      CHECK(supported == 1);
      FORWARD_IF_ERROR(allreduce(world, rank, comm, (arfusionDataType_t)type, (arfusionRedOp_t)op, 1003, op % 2));
      FORWARD_IF_ERROR(allreduce(world, rank, comm, (arfusionDataType_t)type, (arfusionRedOp_t)op, 20011, type % 2));
    }
  }
  return arfusionSuccess;
}

static void test_types(void** state) {
  (void)state;
  for (int nranks = 1; nranks <= 3; nranks++) play(nranks, play_types, (uint64_t)nranks);
}

static arfusionResult_t play_counts(struct world* world, int rank, void* comm) {
  static const size_t counts[] = {0, 1, 2, 3, 4, 5, 7, 2047, 2048, 2049, 131072, 131073, 700001, 1400003};
  for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
    FORWARD_IF_ERROR(allreduce(world, rank, comm, arfusionFloat32, arfusionSum, counts[i], i % 2));
  }
  return arfusionSuccess;
}

static void test_counts(void** state) {
  (void)state;
  play(2, play_counts, 5);
  play(5, play_counts, 6);
}

/* Random values of all sizes: rank order can be seen in the bits, and 16-bit types are rounded once. */
static arfusionResult_t play_order(struct world* world, int rank, void* comm) {
  enum { COUNT = 5000 };
  float own[COUNT], got[COUNT];
  uint16_t own16[COUNT], got16[COUNT];
  void* request;
  for (int bf16 = 0; bf16 < 2; bf16++) {
    for (int i = 0; i < COUNT; i++) {
      uint64_t state = world->seed + (uint64_t)rank * COUNT + (uint64_t)i;
      own[i] = ldexpf((float)support_random(&state, 1 << 23) - (1 << 22), (int)support_random(&state, 20) - 10);
      own16[i] = bf16_from(own[i]);
    }
    CHECK((bf16 ? collnet->iallreduce(comm, own16, got16, COUNT, arfusionBfloat16, arfusionSum, NULL, NULL, &request)
                : collnet->iallreduce(comm, own, got, COUNT, arfusionFloat32, arfusionSum, NULL, NULL, &request)) ==
          arfusionSuccess);
    CHECK(wait_for(request, NULL) == arfusionSuccess);
    for (int i = 0; i < COUNT; i++) {
      float sum = 0;
      for (int r = 0; r < world->nranks; r++) {
        uint64_t state = world->seed + (uint64_t)r * COUNT + (uint64_t)i;
        float value = ldexpf((float)support_random(&state, 1 << 23) - (1 << 22), (int)support_random(&state, 20) - 10);
        sum += bf16 ? bf16_to(bf16_from(value)) : value;
      }
      CHECK(bf16 ? got16[i] == bf16_from(sum) : got[i] == sum);
    }
  }
  return arfusionSuccess;
}

static void test_order(void** state) {
  (void)state;
  play(2, play_order, 7);
  play(5, play_order, 8);
}

/* A number goes before a NaN; NaNs of all ranks stay. */
static void test_nan(void** state) {
  const float a[] = {NAN, 1, NAN, -2}, b[] = {1, NAN, NAN, -3};
  const void* src[] = {a, b};
  float to[4];
  (void)state;
  reduce_run(arfusionFloat32, arfusionMax, to, src, 2, 4);
  assert_true(to[0] == 1 && to[1] == 1 && isnan(to[2]) && to[3] == -2);
  reduce_run(arfusionFloat32, arfusionMin, to, src, 2, 4);
  assert_true(to[0] == 1 && to[1] == 1 && isnan(to[2]) && to[3] == -3);
  reduce_run(arfusionFloat32, arfusionSum, to, src, 2, 4);
  assert_true(isnan(to[0]) && isnan(to[1]) && isnan(to[2]) && to[3] == -5);
}

/* ---------------------------------------------------------------- windows */

/* Cuts `bytes` bytes at `at` into parts, some of them empty, at multiples of `element`. */
static int cut(uint64_t* random, char* at, size_t bytes, size_t element, struct nccl_net_part* parts) {
  int n = 1 + (int)support_random(random, 5);
  for (int i = 0; i < n; i++) {
    size_t size = i == n - 1 ? bytes : support_random(random, (uint32_t)(bytes / element) + 1) * element;
    parts[i] = (struct nccl_net_part){NULL, at, size};
    at += size;
    bytes -= size;
  }
  return n;
}

static arfusionResult_t play_windows(struct world* world, int rank, void* comm) {
  uint64_t shared = world->seed, own = world->seed + 100 + (uint64_t)rank;
  for (int round = 0; round < 40; round++) {
    const size_t each = (1 + support_random(&shared, round % 4 == 0 ? 300000 : 3000)) * 4;
    const size_t total = each * (size_t)world->nranks;
    const size_t begin = support_random(&shared, (uint32_t)total / 4) * 4;
    const size_t bytes =
        round % 5 == 0 ? total - begin : support_random(&shared, (uint32_t)(total - begin) / 4 + 1) * 4;
    const size_t mine = each * (size_t)rank; /* where this rank's share and the window meet */
    const size_t from = mine > begin ? mine : begin;
    const size_t to = mine + each < begin + bytes ? mine + each : begin + bytes;
    struct nccl_net_part parts[COLLECTIVE_PARTS_MAX];
    int32_t *all = malloc(total), *window = malloc(bytes + 4), *share = malloc(each);
    void* request;
    int n, size = -1;

    for (size_t i = 0; i < total / 4; i++) all[i] = (int32_t)(i * 2654435761u + (uint32_t)round);
    if (from < to) memcpy(share, (char*)all + from, to - from);
    memset(window, 0x55, bytes + 4);
    n = cut(&own, (char*)window, bytes, 1, parts);
    CHECK(collnet->iallgather(comm, share, n, parts, each, begin, bytes, NULL, &request) == arfusionSuccess);
    CHECK(wait_for(request, &size) == arfusionSuccess && size == (int)bytes);
    CHECK(memcmp(window, (char*)all + begin, bytes) == 0 && window[bytes / 4] == 0x55555555);

    for (size_t i = 0; i < bytes / 4; i++) window[i] = (int32_t)(i * 40503u + (uint32_t)rank * 7);
    memset(share, 0x55, each);
    n = cut(&own, (char*)window, bytes, 4, parts);
    CHECK(collnet->ireducescatter(comm, n, parts, share, each, begin, bytes, arfusionInt32, arfusionSum, NULL,
                                  &request) == arfusionSuccess);
    CHECK(wait_for(request, &size) == arfusionSuccess);
    for (size_t i = from; i < to; i += 4) {
      uint32_t sum = 0;
      for (int r = 0; r < world->nranks; r++) sum += (uint32_t)((i - begin) / 4) * 40503u + (uint32_t)r * 7;
      CHECK(share[(i - from) / 4] == (int32_t)sum);
    }
    if (from < to && to - from < each) CHECK(share[(to - from) / 4] == 0x55555555);
    free(all);
    free(window);
    free(share);
  }
  return arfusionSuccess;
}

/* A window of nothing has no parts, and may be anywhere. */
static arfusionResult_t play_nothing(struct world* world, int rank, void* comm) {
  void* request;
  int size = -1;
  (void)world;
  CHECK(collnet->iallgather(comm, NULL, 0, NULL, 8, 8, 0, NULL, &request) == arfusionSuccess);
  CHECK(wait_for(request, &size) == arfusionSuccess && size == 0);
  CHECK(collnet->ireducescatter(comm, 0, NULL, NULL, 8, 8, 0, arfusionInt32, arfusionSum, NULL, &request) ==
        arfusionSuccess);
  CHECK(wait_for(request, &size) == arfusionSuccess && size == 0);
  return arfusionSuccess;
}

static void test_windows(void** state) {
  (void)state;
  for (int nranks = 1; nranks <= 4; nranks++) play(nranks, play_windows, 50 + (uint64_t)nranks);
  play(2, play_nothing, 0);
}

/* ---------------------------------------------------------------- many at once, and what is wrong */

static arfusionResult_t play_many(struct world* world, int rank, void* comm) {
  enum { COUNT = 3000 };
  static int32_t send[MOST][NCCL_NET_REQUESTS][COUNT], recv[MOST][NCCL_NET_REQUESTS][COUNT];
  void *requests[NCCL_NET_REQUESTS], *another;
  for (int k = 0; k < NCCL_NET_REQUESTS; k++) {
    for (int i = 0; i < COUNT; i++) send[rank][k][i] = i * (rank + 1) + k;
    CHECK(collnet->iallreduce(comm, send[rank][k], recv[rank][k], k % 3 ? COUNT : 10, arfusionInt32, arfusionSum, NULL,
                              NULL, &requests[k]) == arfusionSuccess && requests[k]);
  }
  CHECK(collnet->iallreduce(comm, send, recv, 1, arfusionInt32, arfusionSum, NULL, NULL, &another) == arfusionSuccess);
  CHECK(another == NULL);
  for (int k = NCCL_NET_REQUESTS - 1; k >= 0; k--) CHECK(wait_for(requests[k], NULL) == arfusionSuccess);
  for (int k = 0; k < NCCL_NET_REQUESTS; k++) {
    for (int i = 0; i < (k % 3 ? COUNT : 10); i++) {
      int32_t sum = 0;
      for (int r = 0; r < world->nranks; r++) sum += i * (r + 1) + k;
      CHECK(recv[rank][k][i] == sum);
    }
  }
  return arfusionSuccess;
}

static void test_many(void** state) {
  (void)state;
  play(3, play_many, 0);
}

static arfusionResult_t play_wrong(struct world* world, int rank, void* comm) {
  struct nccl_net_part parts[COLLECTIVE_PARTS_MAX + 1] = {{NULL, NULL, 0}};
  char data[64] = {0};
  void *request = NULL, *mhandle;
  int supported = 1;
  (void)world;
  CHECK(collnet->reduceSupport(arfusionFloat32, arfusionAvg, &supported) == arfusionSuccess && supported == 0);
  supported = 1;
  CHECK(collnet->reduceSupport(arfusionFloat8e4m3, arfusionSum, &supported) == arfusionSuccess && supported == 0);
  supported = 1;
  CHECK(collnet->reduceSupport((arfusionDataType_t)99, arfusionSum, &supported) == arfusionSuccess && supported == 0);
  CHECK(collnet->iallreduce(comm, data, data, 4, arfusionFloat32, arfusionAvg, NULL, NULL, &request) ==
        arfusionInvalidArgument);
  CHECK(collnet->iallreduce(comm, data, data, 4, arfusionFloat8e5m2, arfusionSum, NULL, NULL, &request) ==
        arfusionInvalidArgument);
  parts[0] = (struct nccl_net_part){NULL, data, 8};
  CHECK(collnet->iallgather(comm, data, 1, parts, 8, 0, 16, NULL, &request) == arfusionInvalidArgument);
  CHECK(support_text_has(error_last(), "8 bytes|16"));
  CHECK(collnet->iallgather(comm, data, COLLECTIVE_PARTS_MAX + 1, parts, 8, 0, 8, NULL, &request) ==
        arfusionInvalidArgument);
  CHECK(collnet->iallgather(comm, data, 1, parts, 2, 0, 8, NULL, &request) == arfusionInvalidArgument);
  CHECK(collnet->ireducescatter(comm, 1, parts, data, 8, 2, 8, arfusionInt32, arfusionSum, NULL, &request) ==
        arfusionInvalidArgument);
  CHECK(collnet->regMr(comm, data, sizeof data, 2, &mhandle) == arfusionInvalidArgument);
  CHECK(collnet->regMr(comm, data, sizeof data, NCCL_PTR_HOST, &mhandle) == arfusionSuccess);
  CHECK(collnet->deregMr(comm, mhandle) == arfusionSuccess);
  request = data;
  CHECK(collnet->iflush(comm, data, 4, mhandle, &request) == arfusionSuccess && request == NULL);
  return arfusionSuccess;
}

static void test_wrong(void** state) {
  (void)state;
  play(2, play_wrong, 0);
}

/* Rank 1 leaves after one operation; the others' next one fails, and so does everything after it. */
static arfusionResult_t play_leaving(struct world* world, int rank, void* comm) {
  char data[4096] = {0};
  void *first, *second, *third;
  FORWARD_IF_ERROR(allreduce(world, rank, comm, arfusionInt32, arfusionSum, 100, 0));
  if (rank == 1) return arfusionSuccess;
  CHECK(collnet->iallreduce(comm, data, data, 1024, arfusionInt32, arfusionSum, NULL, NULL, &first) == arfusionSuccess);
  collnet->iallreduce(comm, data, data, 10, arfusionInt32, arfusionSum, NULL, NULL, &second);
  CHECK(wait_for(first, NULL) == arfusionRemoteError);
  CHECK(support_text_has(error_last(), "closed"));
  if (second) CHECK(wait_for(second, NULL) == arfusionRemoteError);
  CHECK(collnet->iallreduce(comm, data, data, 10, arfusionInt32, arfusionSum, NULL, NULL, &third) ==
        arfusionRemoteError);
  return arfusionSuccess;
}

static void test_leaving(void** state) {
  (void)state;
  play(2, play_leaving, 9);
  play(4, play_leaving, 9);
}

static arfusionResult_t play_killed(struct world* world, int rank, void* comm) {
  enum { COUNT = 1 << 20 };
  int32_t* data = calloc(COUNT, 4);
  arfusionResult_t result = arfusionSuccess;
  void* request;
  double limit = support_now() + LIMIT;
  for (int k = 0; result == arfusionSuccess && support_now() < limit; k++) {
    result = collnet->iallreduce(comm, data, data, COUNT, arfusionInt32, arfusionSum, NULL, NULL, &request);
    if (result == arfusionSuccess && k == 3 && rank == world->nranks - 1) raise(SIGKILL);
    if (result == arfusionSuccess) result = wait_for(request, NULL);
  }
  CHECK(result == arfusionRemoteError);
  free(data);
  return arfusionSuccess;
}

static void test_killed(void** state) {
  struct world* world = mmap(NULL, sizeof *world, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  struct support_outcome outcomes[MOST];
  (void)state;
  *world = (struct world){.nranks = 3, .play = play_killed};
  support_processes(3, rank_run, world, outcomes);
  assert_int_equal(outcomes[2].ended, 0);
  for (int r = 0; r < 2; r++) {
    assert_int_equal(outcomes[r].ended, 1);
    assert_int_equal(outcomes[r].result, arfusionSuccess);
  }
  munmap(world, sizeof *world);
}

static void test_missing_rank(void** state) {
  const struct endpoint_options options = {.nlanes = 2, .shared = 1, .timeout_s = 1};
  struct interface interface = support_loopback(0);
  char handles[2][NCCL_NET_HANDLE_BYTES];
  void* list[2] = {handles[0], handles[1]};
  struct listener* listeners[2];
  struct collective* made;
  (void)state;
  for (int r = 0; r < 2; r++)
    assert_int_equal(listener_create(&interface, &options, handles[r], &listeners[r]), arfusionSuccess);
  double began = support_now();
  assert_int_equal(collective_create(list, 2, 0, listeners[0], &options, &made), arfusionRemoteError);
  assert_true(support_now() - began < 15);
  assert_int_equal(collective_create(list, 2, 2, listeners[0], &options, &made), arfusionInvalidArgument);
  assert_int_equal(collective_create(list, 0, 0, listeners[0], &options, &made), arfusionInvalidArgument);
  for (int r = 0; r < 2; r++) listener_close(listeners[r]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_killed), /* first: it forks */
      cmocka_unit_test(test_types),   cmocka_unit_test(test_counts), cmocka_unit_test(test_order),
      cmocka_unit_test(test_nan),     cmocka_unit_test(test_windows), cmocka_unit_test(test_many),
      cmocka_unit_test(test_wrong),   cmocka_unit_test(test_leaving), cmocka_unit_test(test_missing_rank),
  };
  support_setting("NCCL_NET", "arfusion");
  support_setting("NCCL_CONF_FILE", "/dev/null");
  support_setting("NCCL_SOCKET_IFNAME", "lo");
  signal(SIGPIPE, SIG_IGN);
  log_configure(support_logger, arfusionLogTrace);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
