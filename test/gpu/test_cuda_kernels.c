/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_kernels.c: the CUDA kernels against a scalar reference, bit by bit, on one or two GPUs. Each rank has an
 * arena on its GPU and the same arena on the host; all operations of a batch read and write places in the arenas; then
 * every byte of every arena must be as the reference left it. With each algorithm, then with all in random order.
 *
 *   test_cuda_kernels [operations [seed]]
 */
#include <unistd.h>

#include "kernels/cuda/cuda_internal.h"
#include "test/gpu/plan.h"
#include "test/gpu/world.h"

#include "test/gpu/expect.h" /* last: its names would be shadowed */

#define ARENA_BYTES ((size_t)24 << 20)
#define BATCH 40
#define SLOT_BYTES ((int64_t)1 << 20)
#define TIMEOUT_NS (20ull * 1000 * 1000 * 1000)

static struct plan plan;
static arfusionAlgorithm_t chosen[BATCH]; /* for plan.planned[k] */
static unsigned char* device[ARFUSION_MAX_RANKS]; /* arenas on the GPUs */

/* ---------------------------------------------------------------- arenas */

static void arenas_make(const struct world* w, uint32_t random) {
  plan_make(&plan, w->nranks, ARENA_BYTES, BATCH, random);
  for (int r = 0; r < w->nranks; ++r) {
    CHECK(cudaSetDevice(w->device[r]));
    CHECK(cudaMalloc((void**)&device[r], ARENA_BYTES));
  }
}

static void arenas_free(const struct world* w) {
  for (int r = 0; r < w->nranks; ++r) CHECK(cudaFree(device[r]));
  plan_free(&plan);
}

static void arenas_upload(const struct world* w) {
  for (int r = 0; r < w->nranks; ++r) CHECK(cudaMemcpy(device[r], plan.arena[r], ARENA_BYTES, cudaMemcpyDefault));
  for (int r = 0; r < w->nranks; ++r) {
    CHECK(cudaSetDevice(w->device[r]));
    CHECK(cudaDeviceSynchronize());
  }
}

static struct kernel_op device_op(int rank, int k) {
  return plan_op(&plan.planned[k].op[rank], plan.arena[rank], device[rank]);
}

/* Compares with the reference; the first difference of each rank is printed, and whose it is. */
static int arenas_equal(const struct world* w) {
  static unsigned char seen[ARENA_BYTES];
  int equal = 1;
  for (int r = 0; r < w->nranks; ++r) {
    CHECK(cudaMemcpy(seen, device[r], ARENA_BYTES, cudaMemcpyDefault));
    if (memcmp(seen, plan.arena[r], ARENA_BYTES) == 0) continue;
    size_t i = 0, wrong = 0;
    while (seen[i] == plan.arena[r][i]) ++i;
    for (size_t k = i; k < ARENA_BYTES; ++k) wrong += seen[k] != plan.arena[r][k];
    printf("rank %d: %zu bytes differ from byte %zu on\n", r, wrong, i);
    for (int k = 0; k < plan.count; ++k) {
      const struct kernel_op* op = &plan.planned[k].op[r];
      const unsigned char* at = plan.arena[r] + i;
      const int64_t bytes = op->tokens * op->hidden * kernel_element_size(op->dtype);
      const unsigned char* outs[] = {op->allreduce_out, op->residual_out, op->norm_out, op->quant_out, op->scale_out};
      for (int o = 0; o < 5; ++o) {
        if (!outs[o] || at < outs[o] || at >= outs[o] + bytes) continue;
        printf("  operation %d, algorithm %d: ", k, (int)chosen[k]);
        plan_print(op, plan.arena[r]);
      }
    }
    equal = 0;
  }
  return equal;
}

/* ---------------------------------------------------------------- running operations */

static int add(const struct world* w, const struct plan_shape* s) {
  const arfusionAlgorithm_t which =
      algorithm ? algorithm : (arfusionAlgorithm_t)(arfusionAlgoOneshotLamport + (int)plan_draw(&plan, 3));
  if (kernel_slot_bytes(s->tokens, s->hidden, s->dtype) >
      (int64_t)cuda_layout_launch_bytes(&w->comm[0].layout, which)) return 0;
  if (!plan_add(&plan, s)) return 0;
  chosen[plan.count - 1] = which;
  return 1;
}

static void launch(struct world* w, int rank, int k) {
  const struct kernel_op op = device_op(rank, k);
  world_launch(w, rank, chosen[k], &op);
}

/* Enqueues the whole plan on all ranks, one rank sometimes late. */
static void plan_launch(struct world* w) {
  for (int k = 0; k < plan.count; ++k) {
    const int start = (int)plan_draw(&plan, (uint32_t)w->nranks);
    for (int i = 0; i < w->nranks; ++i) {
      if (plan_draw(&plan, 16) == 0) usleep(plan_draw(&plan, 200));
      launch(w, (start + i) % w->nranks, k);
    }
  }
}

static int world_healthy(const struct world* w) {
  int healthy = 1;
  for (int r = 0; r < w->nranks; ++r) healthy &= world_rank_healthy(w, r);
  return healthy;
}

static int plan_run(struct world* w) {
  arenas_upload(w);
  plan_launch(w);
  for (int k = 0; k < plan.count; ++k) plan_reference(&plan, k);
  world_sync(w);
  return arenas_equal(w) & world_healthy(w);
}

static void set_epochs(struct world* w, uint64_t epoch) {
  const uint64_t word = epoch * CUDA_EPOCH;
  for (int r = 0; r < w->nranks; ++r)
    CHECK(cudaMemcpy(w->comm[r].workspace[r], &word, sizeof word, cudaMemcpyDefault));
}

/* ---------------------------------------------------------------- tests */

static void test_shapes(struct world* w) {
  static const struct plan_shape shapes[] = {
      {arfusionPatternResidualRmsNorm, arfusionBfloat16, 1, 8},
      {arfusionPatternResidualRmsNorm, arfusionFloat32, 2, 4},
      {arfusionPatternResidualRmsNorm, arfusionFloat32, 3, 12},
      {arfusionPatternResidualRmsNorm, arfusionFloat16, 5, 2880},
      {arfusionPatternResidualRmsNorm, arfusionBfloat16, 1, 8192},
      {arfusionPatternResidualRmsNorm, arfusionBfloat16, 2, 8200},
      {arfusionPatternResidualRmsNorm, arfusionFloat32, 2, 8196},
      {arfusionPatternResidualRmsNorm, arfusionFloat16, 2, 16384},
      {arfusionPatternResidualRmsNorm, arfusionFloat32, 1, 65536},
      {arfusionPatternResidualRmsNorm, arfusionBfloat16, 3, 65536},
      {arfusionPatternResidualRmsNorm, arfusionFloat16, 700, 64},
      {arfusionPatternResidualRmsNorm, arfusionBfloat16, 150, 1024},
      {arfusionPatternResidualRmsNorm, arfusionBfloat16, 2500, 64},
      {arfusionPatternResidualRmsNorm, arfusionFloat32, 1200, 96},
      {arfusionPatternResidualRmsNorm, arfusionFloat32, 20, 7168},
      {arfusionPatternAllReduce, arfusionBfloat16, 1, 1},
      {arfusionPatternAllReduce, arfusionFloat32, 1, 3},
      {arfusionPatternAllReduce, arfusionFloat16, 1, 4097},
      {arfusionPatternAllReduce, arfusionBfloat16, 1, 300001},
  };
  int ok = 1;
  for (int round = 0; round < 2; ++round) {
    plan_clear(&plan);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; ++i) add(w, &shapes[i]);
    ok &= plan_run(w);
  }
  expect(ok, "fixed shapes");
}

/* As much as one launch takes: of the flat pattern, and in rows of one vector. */
static void test_largest(struct world* w) {
  const int64_t bytes = (int64_t)cuda_layout_launch_bytes(&w->comm[0].layout, algorithm);
  const struct plan_shape flat = {arfusionPatternAllReduce, arfusionBfloat16, 1, bytes / 2};
  const int64_t tokens = bytes / 16 < 40000 ? bytes / 16 : 40000;
  const struct plan_shape rows = {arfusionPatternResidualRmsNorm, arfusionFloat16, tokens, 8};
  plan_clear(&plan);
  expect(add(w, &flat) && plan_run(w), "the largest launch");
  plan_clear(&plan);
  expect(add(w, &rows) && plan_run(w), "many short rows");
}

static void test_random(struct world* w, int operations) {
  int ok = 1;
  for (int done = 0; done < operations && ok;) {
    plan_clear(&plan);
    for (;;) {
      const struct plan_shape s = plan_draw_shape(&plan);
      if (!add(w, &s)) break;
    }
    ok &= plan_run(w);
    done += plan.count;
  }
  expect(ok, "random operations, back to back");
}

static void test_wrap(struct world* w) {
  world_reset(w);
  set_epochs(w, 0xfffffffdull);
  plan_clear(&plan);
  for (int k = 0; k < 12; ++k) {
    const struct plan_shape s = {arfusionPatternResidualRmsNorm, arfusionBfloat16, 1 + k % 5, 2880};
    add(w, &s);
  }
  expect(plan_run(w), "epochs across 2^32");
  uint64_t epoch;
  CHECK(cudaMemcpy(&epoch, w->comm[0].workspace[0], sizeof epoch, cudaMemcpyDefault));
  expect(epoch == (0xfffffffdull + (uint64_t)plan.count) * CUDA_EPOCH, "each operation advances the epoch by one");
}

static void test_graph(struct world* w) {
  cudaGraphExec_t exec[ARFUSION_MAX_RANKS];
  plan_clear(&plan);
  for (int k = 0; k < 8; ++k) {
    const struct plan_shape s = {k % 3 ? arfusionPatternResidualRmsNorm : arfusionPatternAllReduce, arfusionBfloat16,
                                 1, 4096};
    add(w, &s);
  }
  for (int r = 0; r < w->nranks; ++r) {
    cudaGraph_t graph;
    CHECK(cudaSetDevice(w->device[r]));
    CHECK(cudaStreamBeginCapture(w->stream[r], cudaStreamCaptureModeRelaxed));
    for (int k = 0; k < plan.count; ++k) launch(w, r, k);
    CHECK(cudaStreamEndCapture(w->stream[r], &graph));
    CHECK(cudaGraphInstantiate(&exec[r], graph, 0));
    CHECK(cudaGraphDestroy(graph));
  }
  arenas_upload(w);
  for (int replay = 0; replay < 5; ++replay) { /* operations in place go on from what they left */
    for (int r = 0; r < w->nranks; ++r) {
      CHECK(cudaSetDevice(w->device[r]));
      CHECK(cudaGraphLaunch(exec[r], w->stream[r]));
    }
    for (int k = 0; k < plan.count; ++k) plan_reference(&plan, k);
  }
  world_sync(w);
  expect(arenas_equal(w) & world_healthy(w), "graph replays");
  for (int r = 0; r < w->nranks; ++r) CHECK(cudaGraphExecDestroy(exec[r]));
}

static void plan_one(struct world* w) {
  const struct plan_shape s = {arfusionPatternResidualRmsNorm, arfusionBfloat16, 3, 4096};
  plan_clear(&plan);
  add(w, &s);
  arenas_upload(w);
}

/* Rank 0 alone; then what its peers find. */
static void test_timeout(struct world* w) {
  world_reset(w);
  const double start = world_seconds();
  for (int r = 0; r < w->nranks; ++r) w->comm[r].timeout_ns = 50 * 1000 * 1000;
  plan_one(w);
  launch(w, 0, 0);
  world_sync(w);
  const struct kernel_failure* f = w->comm[0].failure;
  expect(f->kind == KERNEL_FAILURE_TIMEOUT && f->rank == 0 && f->peer > 0 && f->peer < (uint32_t)w->nranks &&
             (f->peer == 1 || algorithm != arfusionAlgoOneshotLamport) && f->epoch == 0 &&
             f->algorithm == (uint32_t)algorithm && f->token >= 0 && f->token < 3,
         "a missing peer is a time-out");
  expect(world_seconds() - start > 0.04 && world_seconds() - start < 5.0, "after the time that was set");
  for (int r = 0; r < w->nranks; ++r) w->comm[r].timeout_ns = 0; /* whoever waited now would never end */
  for (int k = 0; k < 3; ++k) {
    for (int r = 0; r < w->nranks; ++r) launch(w, r, 0);
  }
  world_sync(w);
  int remote = 1;
  for (int r = 1; r < w->nranks; ++r) {
    remote &= w->comm[r].failure->kind == KERNEL_FAILURE_REMOTE && w->comm[r].failure->peer == 0;
  }
  expect(remote, "the peers learn of it, and nobody waits again");
  expect(w->comm[0].failure->kind == KERNEL_FAILURE_TIMEOUT, "the record stays");
  for (int r = 0; r < w->nranks; ++r) w->comm[r].timeout_ns = TIMEOUT_NS;
  world_reset(w);
}

static void test_abort(struct world* w) {
  for (int r = 0; r < w->nranks; ++r) w->comm[r].timeout_ns = 0;
  plan_one(w);
  for (int r = 0; r < w->nranks - 1; ++r) launch(w, r, 0);
  usleep(30000);
  *w->abort[0] = 1;
  world_sync(w);
  int kinds = w->comm[0].failure->kind == KERNEL_FAILURE_ABORT;
  for (int r = 1; r < w->nranks - 1; ++r) kinds &= w->comm[r].failure->kind == KERNEL_FAILURE_REMOTE;
  expect(kinds, "an abort on one rank ends the waits of all");
  for (int r = 0; r < w->nranks; ++r) w->comm[r].timeout_ns = TIMEOUT_NS;
  world_reset(w);
  plan_one(w);
  expect(plan_run(w), "a workspace that was reset works again");
}

static void test_tell_peers(struct world* w) {
  const int idle = w->nranks - 1;
  for (int r = 0; r < w->nranks; ++r) w->comm[r].timeout_ns = 0;
  plan_one(w);
  for (int r = 0; r < idle; ++r) launch(w, r, 0);
  usleep(10000);
  CHECK(cudaSetDevice(w->device[idle]));
  CHECK(cuda_comm_tell_peers(&w->comm[idle], w->stream[idle]));
  world_sync(w);
  const struct kernel_failure* f = w->comm[idle].failure;
  int told = f->kind == KERNEL_FAILURE_ABORT && (int)f->rank == idle;
  for (int r = 0; r < idle; ++r) {
    told &= w->comm[r].failure->kind == KERNEL_FAILURE_REMOTE && (int)w->comm[r].failure->peer == idle;
  }
  expect(told, "a rank that is idle can end the waits of its peers");
  for (int r = 0; r < w->nranks; ++r) w->comm[r].timeout_ns = TIMEOUT_NS;
  world_reset(w);
}

/* The stand-alone epilogue, on rank 0's plan: its input is the sum. */
static void test_epilogue(struct world* w) {
  struct world one = *w;
  int ok = 1;
  one.nranks = plan.nranks = 1;
  for (int batch = 0; batch < 6; ++batch) {
    plan_clear(&plan);
    const struct plan_shape many = {arfusionPatternResidualRmsNorm, arfusionBfloat16, 66000, 8};
    if (batch == 0 && !plan_add(&plan, &many)) exit(1);
    for (;;) {
      const struct plan_shape s = plan_draw_shape(&plan);
      if (s.pattern != arfusionPatternAllReduce && !plan_add(&plan, &s)) break;
    }
    arenas_upload(&one);
    CHECK(cudaSetDevice(w->device[0]));
    for (int k = 0; k < plan.count; ++k) {
      const struct kernel_op op = device_op(0, k);
      CHECK(cuda_launch_epilogue(&op, w->comm[0].compute_major, w->stream[0]));
    }
    world_sync(&one);
    for (int k = 0; k < plan.count; ++k) plan_reference_epilogue(&plan, k);
    ok &= arenas_equal(&one);
  }
  plan.nranks = w->nranks;
  expect(ok, "the epilogue alone");
}

static void test_ranks(int nranks, int gpus, int operations, uint32_t random) {
  struct world w;
  world_make(&w, nranks, gpus, SLOT_BYTES, world_max_blocks(nranks, gpus), TIMEOUT_NS);
  arenas_make(&w, random);
  const int failed_before = failed;
  for (int a = arfusionAlgoOneshotLamport; a <= arfusionAlgoTwoshot; ++a) {
    algorithm = (arfusionAlgorithm_t)a;
    test_shapes(&w);
    test_largest(&w);
    test_random(&w, operations);
    test_timeout(&w);
    test_abort(&w);
    test_tell_peers(&w);
  }
  algorithm = arfusionAlgoAuto;
  test_shapes(&w);
  test_random(&w, 2 * operations);
  test_wrap(&w);
  test_graph(&w);
  if (nranks == 2) test_epilogue(&w);
  printf("%d ranks on %d GPUs: %s\n", nranks, nranks < gpus ? nranks : gpus, failed == failed_before ? "ok" : "FAILED");
  arenas_free(&w);
  world_free(&w);
}

int main(int argc, char** argv) {
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  const int gpus = world_gpus();
  if (gpus == 0) {
    printf("no GPU\n");
    return 77;
  }
  const int operations = argc > 1 ? atoi(argv[1]) : 200;
  const uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
  world_enable_peers(gpus);
  for (int nranks = 2; nranks <= ARFUSION_MAX_RANKS; ++nranks)
    test_ranks(nranks, gpus, nranks == 2 ? 10 * operations : operations, random_seed(seed, (uint32_t)nranks));
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
