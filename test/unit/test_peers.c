/* SPDX-License-Identifier: Apache-2.0
 *
 * test_peers.c: the test of peer memory before first use: it finds every way in which writes can go wrong, leaves
 * the workspace as it was, and a machine whose writes are lost makes every rank turn requests down, in time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "kernels/host/host_internal.h"
#include "kernels/peer_test.h"
#include "plugin/core/peers.h"
#include "test/unit/support.h"

/* ---------------------------------------------------------------- one rank, whose peers are memory */

enum { RANKS = 3, SELF = 1, PEER = 2, LIMIT_NS = 20000000 };

static struct host_comm* comm_make(void) {
  struct host_comm* comm = aligned_alloc(64, (sizeof *comm + 63) / 64 * 64);
  assert_non_null(comm);
  memset(comm, 0, sizeof *comm);
  comm->nranks = RANKS;
  host_layout_compute(&comm->layout, RANKS, 1, 1 << 20);
  for (comm->rank = RANKS - 1; comm->rank >= 0; --comm->rank) {
    comm->workspace[comm->rank] = aligned_alloc(4096, comm->layout.total);
    assert_non_null(comm->workspace[comm->rank]);
    memset(comm->workspace[comm->rank], 0, comm->layout.total);
    host_comm_reset(comm);
  }
  comm->rank = SELF;
  return comm;
}

static void comm_free(struct host_comm* comm) {
  for (int r = 0; r < RANKS; ++r) free(comm->workspace[r]);
  free(comm);
}

static uint32_t* slot_of(const struct host_comm* comm, int reader, int sender) {
  unsigned char* first = comm->workspace[reader] + comm->layout.lamport;
  return (uint32_t*)(void*)(first + (size_t)(sender < reader ? sender : sender - 1) * comm->layout.lamport_slot);
}

static uint32_t* stage_of(const struct host_comm* comm, int writer, int reader) {
  return (uint32_t*)(void*)(comm->workspace[writer] + comm->layout.stage) + (size_t)reader * PEER_TEST_WORDS;
}

/* What rank `from` does of the test, as far as SELF sees it. */
static void arrive(const struct host_comm* comm, int from) {
  uint32_t* slot = slot_of(comm, SELF, from);
  for (int i = 0; i < PEER_TEST_WORDS; ++i) {
    slot[i] = PEER_TEST_WORD(from, SELF, PEER_TEST_LAMPORT, i);
    stage_of(comm, from, SELF)[i] = PEER_TEST_WORD(from, SELF, PEER_TEST_STAGE, i);
    for (int round = 0; round < PEER_TEST_ROUNDS; ++round) {
      slot[PEER_TEST_DATA(round) + i] = PEER_TEST_WORD(from, SELF, round, i);
    }
  }
  for (int round = 0; round < PEER_TEST_ROUNDS; ++round) {
    const uint64_t flag = PEER_TEST_ARRIVED;
    memcpy(slot + PEER_TEST_FLAG(round), &flag, sizeof flag);
  }
}

/* The outcome when all arrives but for one word in the slot or the stage of PEER. */
static int outcome_without(int word, uint32_t instead, int in_stage) {
  struct host_comm* comm = comm_make();
  for (int r = 0; r < RANKS; ++r) {
    if (r != SELF) arrive(comm, r);
  }
  uint32_t* where = (in_stage ? stage_of(comm, PEER, SELF) : slot_of(comm, SELF, PEER)) + word;
  assert_int_not_equal(*where, instead);
  *where = instead;
  const int failed = host_peer_test(comm, 0, LIMIT_NS);
  comm_free(comm);
  return failed;
}

static void test_all_arrives(void** state) {
  (void)state;
  struct host_comm* comm = comm_make();
  for (int r = 0; r < RANKS; ++r) {
    if (r != SELF) arrive(comm, r);
  }
  assert_int_equal(host_peer_test(comm, 1u << 0, LIMIT_NS), -1);
  const uint32_t* own = (const uint32_t*)(const void*)(comm->workspace[SELF] + comm->layout.lamport);
  for (size_t i = 0; i < (comm->layout.stage - comm->layout.lamport) / 4; ++i)
    assert_int_equal(own[i], KERNEL_SENTINEL);
  assert_int_equal(slot_of(comm, 0, SELF)[0], KERNEL_SENTINEL); /* lost */
  const uint32_t* sent = slot_of(comm, PEER, SELF);
  assert_int_equal(sent[7], PEER_TEST_WORD(SELF, PEER, PEER_TEST_LAMPORT, 7));
  assert_int_equal(sent[PEER_TEST_DATA(3) + 7], PEER_TEST_WORD(SELF, PEER, 3, 7));
  comm_free(comm);
}

static void test_what_does_not_arrive(void** state) {
  (void)state;
  assert_int_equal(outcome_without(0, KERNEL_SENTINEL, 0), PEER);
  assert_int_equal(outcome_without(PEER_TEST_WORDS - 1, KERNEL_SENTINEL, 0), PEER);
  assert_int_equal(outcome_without(5, 12345, 0), PEER); /* arrives, but wrong */
  for (int round = 0; round < PEER_TEST_ROUNDS; ++round) {
    assert_int_equal(outcome_without(PEER_TEST_FLAG(round), KERNEL_SENTINEL, 0), PEER);
    assert_int_equal(outcome_without(PEER_TEST_DATA(round) + 9, KERNEL_SENTINEL, 0), PEER); /* the flag came first */
  }
  assert_int_equal(outcome_without(PEER_TEST_WORDS - 1, 0, 1), PEER);
}

static void test_words_differ(void** state) {
  (void)state;
  for (int from = 0; from < ARFUSION_MAX_RANKS; ++from) {
    for (int i = 0; i < PEER_TEST_WORDS; ++i) {
      const uint32_t word = PEER_TEST_WORD(from, 3, 0, i);
      assert_int_not_equal(word, KERNEL_SENTINEL);
      assert_int_not_equal(word, PEER_TEST_WORD(3, from + 16, 0, i));
      assert_int_not_equal(word, PEER_TEST_WORD(from, 3, 1, i));
      assert_int_not_equal(word, PEER_TEST_WORD(from, 3, 0, i + 1));
    }
  }
}

/* ---------------------------------------------------------------- facts */

/* What rank `rank` of four finds, each on a GPU of a machine with two pairs of GPUs that NVLink joins; the pairs are at
 * different CPUs. */
static int judge(int rank, const char* disable, const char* level) {
  struct topo* topo = NULL;
  struct topo_error error;
  struct device_facts facts[4] = {0};
  struct settings* settings = calloc(1, sizeof *settings);
  assert_non_null(settings);
  if (topo_read_hwloc_xml("test/data/topologies/hwloc-power8-4gpu.xml", &topo, &error)) fail_msg("%s", error.text);
  for (int r = 0; r < 4; ++r) {
    facts[r].unique = (uint64_t)r + 1;
    strcpy(facts[r].bus_id, topo->gpus[r].bus_id);
  }
  strcpy(settings->text[SETTING_P2P_DISABLE], disable);
  strcpy(settings->text[SETTING_P2P_LEVEL], level);
  const struct device_setup setup = {.rank = rank, .nranks = 4, .settings = settings, .facts = facts};
  const int peer = peers_judge(topo, &setup);
  assert_int_equal(peers_judge(NULL, &setup), peer == PEERS_DISABLED ? PEERS_DISABLED : PEERS_ALL);
  topo_free(topo);
  free(settings);
  return peer;
}

static void test_nccl_settings(void** state) {
  (void)state;
  assert_int_equal(judge(0, "", ""), PEERS_ALL); /* nobody can tell from this file: the write test will */
  assert_int_equal(judge(0, "0", ""), PEERS_ALL);
  assert_int_equal(judge(0, "1", ""), PEERS_DISABLED);
  assert_int_equal(judge(0, "1", "SYS"), PEERS_DISABLED); /* as in NCCL, it goes first */
  assert_int_equal(judge(0, "", "LOC"), PEERS_DISABLED);
  assert_int_equal(judge(0, "", "NVL"), 2);
  assert_int_equal(judge(1, "", "PHB"), 2);
  assert_int_equal(judge(3, "", "PHB"), 0);
  assert_int_equal(judge(0, "", "SYS"), PEERS_ALL);
  assert_int_equal(judge(0, "", "5"), PEERS_ALL);
  assert_int_equal(judge(0, "", "far"), PEERS_ALL); /* with a warning */
}

static void test_instances_of_one_gpu(void** state) {
  struct topo* topo = NULL;
  struct topo_error error;
  struct device_facts facts[2] = {{.unique = 1, .bus_id = "0000:83:00.0"}, {.unique = 2, .bus_id = "0000:83:00.0"}};
  struct settings* settings = calloc(1, sizeof *settings);
  const struct device_setup setup = {.rank = 0, .nranks = 2, .settings = settings, .facts = facts};
  (void)state;
  assert_non_null(settings);
  if (topo_read_nccl_xml("test/data/topologies/nccl-hgx-h200-8.xml", &topo, &error)) fail_msg("%s", error.text);
  assert_int_equal(peers_judge(topo, &setup), 1); /* MIG */
  facts[1].unique = 1;
  assert_int_equal(peers_judge(topo, &setup), PEERS_ALL); /* two ranks on one GPU */
  topo_free(topo);
  free(settings);
}

/* ---------------------------------------------------------------- communicators */

static arfusionResult_t rank_init(int rank, void* argument, struct support_outcome* outcome) {
  arfusionBootstrap_t bootstrap = {.size = sizeof bootstrap};
  arfusionRoute_t route = {.size = sizeof route};
  struct support_tensors tensors;
  void *ctx = support_context(), *comm = NULL;
  if (!ctx) return arfusionInternalError;
  const double start = support_now();
  arfusionResult_t result = arfusionPlugin_v1.bootstrapUniqueId(ctx, argument, RANKS, rank, &bootstrap);
  if (result == arfusionSuccess) result = arfusionPlugin_v1.commInit(ctx, 0, NULL, &bootstrap, &comm);
  outcome->seconds = support_now() - start;
  if (result != arfusionSuccess) return result;
  const arfusionRequest_t request = support_request(&tensors, rank);
  result = arfusionPlugin_v1.enqueue(comm, &request, NULL, &route);
  outcome->value[0] = route.reason;
  outcome->value[1] = route.value;
  outcome->value[2] = route.limit;
  outcome->value[3] = support_mappings("arfusion-workspace");
  arfusionPlugin_v1.commFinalize(comm);
  arfusionPlugin_v1.bootstrapDestroy(ctx, &bootstrap);
  arfusionPlugin_v1.finalize(ctx);
  return result;
}

static arfusionUniqueId_t id_make(void) {
  arfusionUniqueId_t id;
  void* ctx = support_context();
  assert_non_null(ctx);
  assert_int_equal(arfusionPlugin_v1.getUniqueId(ctx, &id), arfusionSuccess);
  arfusionPlugin_v1.finalize(ctx);
  return id;
}

static void expect_lost_writes(void (*run)(int, support_function, void*, struct support_outcome*)) {
  struct support_outcome outcomes[RANKS];
  arfusionUniqueId_t id = id_make();
  peers_lost = (struct peers_lost){0, 2};
  run(RANKS, rank_init, &id, outcomes);
  peers_lost = (struct peers_lost){-1, -1};
  for (int r = 0; r < RANKS; ++r) {
    assert_true(outcomes[r].ended);
    assert_int_equal(outcomes[r].result, arfusionSuccess);
    assert_int_equal(outcomes[r].value[0], arfusionReasonPeerWriteTest);
    assert_int_equal(outcomes[r].value[1], 0); /* who wrote */
    assert_int_equal(outcomes[r].value[2], 2); /* where it did not arrive */
    /* No workspace is kept; threads also see those of the others. */
    if (run == support_processes) assert_int_equal(outcomes[r].value[3], 0);
    assert_true(outcomes[r].seconds < 4);
  }
}

static void test_lost_writes_between_processes(void** state) {
  (void)state;
  expect_lost_writes(support_processes);
}

static void test_lost_writes_between_threads(void** state) {
  (void)state;
  expect_lost_writes(support_threads);
}

/* Afterwards, and for a second time with what is then known. */
static void test_nothing_is_lost(void** state) {
  struct support_outcome outcomes[RANKS];
  (void)state;
  for (int i = 0; i < 2; ++i) {
    arfusionUniqueId_t id = id_make();
    support_threads(RANKS, rank_init, &id, outcomes);
    for (int r = 0; r < RANKS; ++r) {
      assert_int_equal(outcomes[r].result, arfusionSuccess);
      assert_int_equal(outcomes[r].value[0], arfusionReasonNone);
    }
  }
}

static int settings(void** state) {
  (void)state;
  support_setting("ARFUSION_DEVICE", "host");
  support_setting("ARFUSION_INIT_TIMEOUT", "4"); /* so the test has 2 s */
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_all_arrives),
      cmocka_unit_test(test_what_does_not_arrive),
      cmocka_unit_test(test_words_differ),
      cmocka_unit_test(test_nccl_settings),
      cmocka_unit_test(test_instances_of_one_gpu),
      cmocka_unit_test(test_lost_writes_between_processes),
      cmocka_unit_test(test_lost_writes_between_threads),
      cmocka_unit_test(test_nothing_is_lost),
  };
  return cmocka_run_group_tests(tests, settings, NULL);
}
