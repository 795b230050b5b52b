/* SPDX-License-Identifier: Apache-2.0
 *
 * test_emu_kernels.c: the CUDA kernels on emulated GPUs (emu.h), 2 to 16 ranks. A schedule is a batch of small
 * operations on all ranks, or a failure, with everything drawn from its seed; results must be the reference's to the
 * bit.
 *
 *   test_emu_kernels                 the schedules of `make test`
 *   test_emu_kernels SECONDS [SEED]  schedules from SEED on (else from the clock) for that long
 *   test_emu_kernels replay SEED     one of them again
 */
#include <inttypes.h>

#include "kernels/cuda/cuda_internal.h"
#include "test/emu/emu.h"
#include "test/emu/quant_quotient.h"
#include "test/gpu/plan.h"
#include "test/gpu/world.h"

#include "test/gpu/expect.h" /* last: its names would be shadowed */

#define ARENA_BYTES ((size_t)512 << 10)
#define BATCH 12 /* operations */
#define SLOT_BYTES ((int64_t)1 << 16)
#define TIMEOUT_NS (4ull * 1000 * 1000 * 1000) /* of the emulated clock */
#define PEER_TEST_NS (2ull * 1000 * 1000 * 1000)
#define WORK 1024 /* packs of an operation, of all ranks together, about */
#if defined(__SANITIZE_ADDRESS__)
#define ROUNDS 15
#else
#define ROUNDS 60 /* of the schedules of `make test`: some 30 s */
#endif
#define COUNTS 15 /* numbers of ranks: schedule s has s % COUNTS + 2 */

static struct world world;
static struct plan plan;
static arfusionAlgorithm_t chosen[BATCH];         /* for plan.planned[k] */
static unsigned char* device[ARFUSION_MAX_RANKS]; /* arenas in the GPUs' memory */
static uint32_t (*peer_failed)[ARFUSION_MAX_RANKS]; /* [rank]: what cuda_peer_test tells; host memory */
static uint64_t seed;
static int in_schedule;
static int checked, counted; /* in this schedule, ranks compare their calls first, and count NaNs */
static uint64_t operations;

static uint32_t draw(uint32_t below) { return plan_draw(&plan, below); }

static void report_seed(void) {
  if (in_schedule) printf("seed %" PRIu64 " failed; again: test_emu_kernels replay %" PRIu64 "\n", seed, seed);
}

/* ---------------------------------------------------------------- the world */

static const char* record_check(void* argument) {
  const struct kernel_failure* record = (const struct kernel_failure*)argument;
  const int whole = record->algorithm != 0xeeeeeeeeu && record->rank != 0xeeeeeeeeu && record->peer != 0xeeeeeeeeu &&
                    record->epoch != 0xeeeeeeeeeeeeeeeeu && (uint64_t)record->token != 0xeeeeeeeeeeeeeeeeu;
  return whole ? NULL : "the host sees a failure before all of its record";
}

/* As cuda_workspace_reset leaves it, which in the emulator takes long. */
static void world_restore(void) {
  for (int r = 0; r < world.nranks; ++r) {
    const struct cuda_layout* layout = &world.comm[r].layout;
    uint32_t* words = (uint32_t*)((unsigned char*)world.comm[r].workspace[r] + layout->lamport);
    for (size_t i = 0; i < (layout->total - layout->lamport) / 4; ++i) words[i] = KERNEL_SENTINEL;
  }
}

static void world_remake(int nranks) {
  emu_begin(0);
  emu_memory_free_all();
  world.nranks = nranks;
  for (int r = 0; r < nranks; ++r) world_rank_make(&world, r, nranks, nranks, SLOT_BYTES, 4, TIMEOUT_NS);
  for (int r = 0; r < nranks; ++r) {
    for (int p = 0; p < nranks; ++p) world.comm[r].workspace[p] = world.comm[p].workspace[p];
  }
  if (nranks == 2) world_reset(&world);
  else world_restore();
  plan_make(&plan, nranks, ARENA_BYTES, BATCH, 1);
  CHECK(cudaHostAlloc((void**)&peer_failed, ARFUSION_MAX_RANKS * sizeof *peer_failed, cudaHostAllocMapped));
  for (int r = 0; r < nranks; ++r) {
    struct cuda_comm* comm = &world.comm[r];
    CHECK(cudaSetDevice(r));
    CHECK(cudaMalloc((void**)&device[r], ARENA_BYTES));
    emu_memory_guard((unsigned char*)comm->workspace[r] + comm->layout.lamport,
                     comm->layout.total - comm->layout.lamport);
    emu_memory_watch(&comm->failure->kind, record_check, comm->failure);
  }
}

static void world_leave(void) {
  if (world.nranks) plan_free(&plan);
  world.nranks = 0;
}

static void wrong_at(int rank, const char* what, size_t byte) { printf("rank %d: %s at byte %zu\n", rank, what, byte); }

/* What must hold between operations. */
static int world_clean(uint64_t epoch) {
  int clean = 1;
  for (int r = 0; r < world.nranks; ++r) {
    const struct cuda_layout* layout = &world.comm[r].layout;
    const unsigned char* base = world.comm[r].workspace[r];
    const struct cuda_control* control = (const struct cuda_control*)base;
    const uint32_t* slots = (const uint32_t*)(base + layout->lamport);
    for (size_t i = 0; i < (layout->stage - layout->lamport) / 4 && clean; ++i) {
      clean = slots[i] == KERNEL_SENTINEL;
      if (!clean) wrong_at(r, "a slot that has not been cleared", i * 4);
    }
    if (control->epoch != epoch * CUDA_EPOCH) {
      printf("rank %d: epoch %" PRIu64 " and not %" PRIu64 "\n", r,
             (uint64_t)(control->epoch / CUDA_EPOCH), epoch);
      clean = 0;
    }
  }
  return clean;
}

/* The control words as they are after `epoch` operations that staged nothing. */
static void world_prepare(uint64_t epoch) {
  static const int blocks[] = {1, 1, 2, 3, 5, 8};
  const int most = blocks[draw(6)], more = draw(2) ? most : most + (int)draw(6);
  for (int r = 0; r < world.nranks; ++r) {
    struct cuda_comm* comm = &world.comm[r];
    memset(comm->workspace[r], 0, sizeof(struct cuda_control));
    ((struct cuda_control*)comm->workspace[r])->epoch = epoch * CUDA_EPOCH;
    memset(comm->failure, 0xee, sizeof *comm->failure);
    comm->failure->kind = KERNEL_FAILURE_NONE;
    *world.abort[r] = 0;
    comm->timeout_ns = TIMEOUT_NS;
    comm->max_blocks = most;
    comm->max_blocks_of_few_tokens = more;
  }
}

static uint64_t draw_epoch(void) {
  static const uint64_t around[] = {0, 0, 1, 2, UINT32_MAX - 6ull, 0x7ffffffdull, (uint64_t)1 << 40,
                                    (uint64_t)1 << 40};
  return around[draw(8)] + draw(8);
}

/* ---------------------------------------------------------------- operations */

static struct plan_shape draw_shape(void) {
  static const arfusionDataType_t dtypes[] = {arfusionBfloat16, arfusionFloat16, arfusionFloat32};
  const uint32_t nranks = (uint32_t)world.nranks, size = draw(16);
  struct plan_shape s;
  s.pattern = draw(3) ? arfusionPatternResidualRmsNorm : arfusionPatternAllReduce;
  s.dtype = dtypes[draw(3)];
  s.tokens = 1;
  if (s.pattern == arfusionPatternAllReduce) {
    s.hidden = 1 + (int64_t)draw(size < 8 ? 300 : WORK * 8 / nranks);
    return s;
  }
  const int64_t step = 16 / kernel_element_size(s.dtype);
  s.hidden = step * (1 + (int64_t)draw((size < 12 ? 512 : 4096) / (uint32_t)step));
  if ((size == 13 || size == 14) && nranks <= 4) { /* enough tokens for tickets */
    s.hidden = step * (1 + (int64_t)draw(256 / (uint32_t)step));
    s.tokens = 16 + (int64_t)draw(25);
    return s;
  }
  if (size == 15 && draw(nranks) < 2) { /* several chunks */
    s.hidden = 8192 + step * (1 + (int64_t)draw(9000 / (uint32_t)step));
  }
  const uint32_t packs = (uint32_t)(s.hidden + 255) / 256 * 32, most = WORK / nranks / packs;
  s.tokens = 1 + (int64_t)draw(most > 40 ? 40 : most + 1);
  return s;
}

/* 0: there is no room, in the slots or in the arenas. */
static int add(const struct plan_shape* s) {
  const arfusionAlgorithm_t which =
      algorithm ? algorithm : (arfusionAlgorithm_t)(arfusionAlgoOneshotLamport + (int)draw(3));
  const int64_t room = (int64_t)cuda_layout_launch_bytes(&world.comm[0].layout, which);
  if (kernel_slot_bytes(s->tokens, s->hidden, s->dtype) > room || !plan_add(&plan, s)) return 0;
  chosen[plan.count - 1] = which;
  return 1;
}

static void arenas_upload(void) {
  for (int r = 0; r < plan.nranks; ++r) memcpy(device[r], plan.arena[r], ARENA_BYTES);
}

/* Compares with the reference; the first difference of each rank is printed. */
static int arenas_equal(void) {
  int equal = 1;
  for (int r = 0; r < plan.nranks; ++r) {
    size_t i = 0;
    if (memcmp(device[r], plan.arena[r], ARENA_BYTES) == 0) continue;
    while (device[r][i] == plan.arena[r][i]) ++i;
    wrong_at(r, "the arena is wrong", i);
    for (int k = 0; k < plan.count; ++k) {
      printf("  operation %d, algorithm %d: ", k, (int)chosen[k]);
      plan_print(&plan.planned[k].op[r], plan.arena[r]);
    }
    equal = 0;
  }
  return equal;
}

/* That of the operation before, so that this one may take its outputs for inputs; often another one. */
static struct plan_shape draw_next_shape(void) {
  if (plan.count == 0 || (!plan.chained && draw(3))) return draw_shape();
  const struct kernel_op* before = &plan.planned[plan.count - 1].op[0];
  return (struct plan_shape){before->pattern, before->dtype, before->tokens, before->hidden};
}

/* `count` operations, or as many as there is room for; at least 1. */
static void operations_draw(int count) {
  algorithm = (arfusionAlgorithm_t)(arfusionAlgoOneshotLamport + (int)draw(4));
  if (algorithm > arfusionAlgoTwoshot) algorithm = arfusionAlgoAuto; /* any */
  plan_clear(&plan);
  plan.chained = draw(4) == 0;
  for (int i = 0; i < count; ++i) {
    const struct plan_shape s = draw_next_shape();
    if (!add(&s)) break;
  }
  const struct plan_shape small = {arfusionPatternResidualRmsNorm, arfusionBfloat16, 2, 64};
  if (plan.count == 0) {
    plan_clear(&plan);
    if (!add(&small)) exit(1);
  }
  operations += (uint64_t)plan.count;
  arenas_upload();
}

/* What rank r says it was asked for in operation k. */
static struct kernel_call call_of(int k, int r) {
  const struct kernel_op* op = &plan.planned[k].op[r];
  return (struct kernel_call){.pattern = op->pattern, .dtype = op->dtype, .gamma_dtype = op->gamma_dtype,
                              .algorithm = chosen[k], .tokens = op->tokens, .hidden = op->hidden};
}

static void check_launch(int r, int k, const struct kernel_call* call) {
  CHECK(cuda_launch_check(&world.comm[r], chosen[k], call, world.stream[r]));
}

/* Operation k on all ranks but those of `without` (a bit for each), in any order, some of them later than others. */
static void operation_launch(int k, uint32_t without) {
  const int start = (int)draw((uint32_t)world.nranks);
  for (int i = 0; i < world.nranks; ++i) {
    const int r = (start + i) % world.nranks;
    const struct kernel_op op = plan_op(&plan.planned[k].op[r], plan.arena[r], device[r]);
    if (without >> r & 1) continue;
    const struct kernel_call call = call_of(k, r);
    if (draw(16) == 0) emu_run_for(draw(3000));
    if (checked) check_launch(r, k, &call);
    if (checked && draw(16) == 0) emu_run_for(draw(3000));
    if (counted) CHECK(cuda_launch_nan_count(&world.comm[r], &op, 0, world.stream[r]));
    world_launch(&world, r, chosen[k], &op);
    if (counted) CHECK(cuda_launch_nan_count(&world.comm[r], &op, 1, world.stream[r]));
  }
}

static int healthy(void) {
  int ok = 1;
  for (int r = 0; r < world.nranks; ++r) ok &= world_rank_healthy(&world, r);
  return ok;
}

/* ---------------------------------------------------------------- schedules */

static void flag_clear(uint32_t flag) {
  for (int k = 0; k < plan.count; ++k) {
    for (int r = 0; r < plan.nranks; ++r) plan.planned[k].op[r].flags &= ~flag;
  }
}

static uint64_t nans_in(const void* first, int64_t stride, const struct kernel_op* op, arfusionDataType_t dtype) {
  uint64_t nans = 0;
  if (!first) return 0;
  for (int64_t t = 0; t < op->tokens; ++t) {
    for (int64_t i = 0; i < op->hidden; ++i) {
      nans += dtype == arfusionFloat8e4m3 ? (((const unsigned char*)first)[t * stride + i] & 0x7f) == 0x7f
                                          : isnan(ref_load(first, t * stride + i, dtype)) != 0;
    }
  }
  return nans;
}

/* The reference of all operations, and the NaNs that each rank has met. */
static void references_run(uint64_t (*nans)[KERNEL_NAN_PLACES]) {
  memset(nans, 0, ARFUSION_MAX_RANKS * sizeof *nans);
  for (int k = 0; k < plan.count; ++k) {
    for (int r = 0; r < world.nranks; ++r) {
      const struct kernel_op* op = &plan.planned[k].op[r];
      nans[r][KERNEL_NAN_INPUT] += nans_in(op->input, op->input_stride, op, op->dtype);
      nans[r][KERNEL_NAN_RESIDUAL] += nans_in(op->residual_in, op->residual_in_stride, op, op->dtype);
    }
    plan_reference(&plan, k);
    for (int r = 0; r < world.nranks; ++r) {
      const struct kernel_op* op = &plan.planned[k].op[r];
      nans[r][KERNEL_NAN_OUTPUT] += nans_in(op->allreduce_out, op->hidden, op, op->dtype) +
                                    nans_in(op->residual_out, op->residual_out_stride, op, op->dtype) +
                                    nans_in(op->norm_out, op->norm_out_stride, op, op->dtype);
      if (op->quantization != arfusionQuantNvfp4)
        nans[r][KERNEL_NAN_OUTPUT] += nans_in(op->quant_out, op->hidden, op, arfusionFloat8e4m3);
    }
  }
}

static int nans_right(uint64_t (*nans)[KERNEL_NAN_PLACES]) {
  for (int r = 0; r < world.nranks; ++r) {
    if (memcmp(cuda_nan_counts(&world.comm[r]), nans[r], sizeof *nans) != 0) return 0;
  }
  return 1;
}

static void schedule_operations(void) {
  const uint64_t epoch = draw_epoch(), triggers = emu_counts.triggers;
  uint64_t nans[ARFUSION_MAX_RANKS][KERNEL_NAN_PLACES];
  checked = draw(4) == 0;
  counted = draw(8) == 0;
  world_prepare(epoch);
  operations_draw(1 + (int)draw(BATCH));
  const int none_early = draw(8) == 0;
  if (none_early) flag_clear(ARFUSION_FLAG_EARLY_TRIGGER);
  for (int k = 0; k < plan.count; ++k) operation_launch(k, 0);
  world_sync(&world);
  references_run(nans);
  expect(!counted || nans_right(nans), "the numbers of NaNs");
  expect(healthy() && arenas_equal() && world_clean(epoch + (uint64_t)plan.count), "operations");
  expect(!none_early || emu_counts.triggers == triggers, "no early trigger unless asked for");
}

/* The stand-alone epilogue: an arena's input is the sum of one rank. */
static void schedule_epilogue(void) {
  const int nranks = plan.nranks;
  world_prepare(0);
  plan.nranks = 1;
  plan_clear(&plan);
  for (struct plan_shape s = draw_shape(); plan.count < BATCH; s = draw_shape()) {
    if (s.pattern == arfusionPatternResidualRmsNorm && !plan_add(&plan, &s)) break;
  }
  arenas_upload();
  for (int k = 0; k < plan.count; ++k) {
    const struct kernel_op op = plan_op(&plan.planned[k].op[0], plan.arena[0], device[0]);
    CHECK(cuda_launch_epilogue(&op, world.comm[0].compute_major, world.stream[0]));
  }
  world_sync(&world);
  for (int k = 0; k < plan.count; ++k) plan_reference_epilogue(&plan, k);
  expect(arenas_equal(), "the epilogue alone");
  plan.nranks = nranks;
}

/* The test of peer memory: of what may be lost between two ranks the reader learns, and nobody else. */
static void schedule_peer_test(void) {
  const int from = (int)draw((uint32_t)world.nranks), lost = draw(2) != 0;
  const int to = (from + 1 + (int)draw((uint32_t)world.nranks - 1)) % world.nranks;
  int ok = 1;
  world_prepare(0);
  emu_all_resident();
  if (lost) emu_allow_races(); /* the reader goes on at last */
  memset(peer_failed, 0, ARFUSION_MAX_RANKS * sizeof *peer_failed);
  for (int r = 0; r < world.nranks; ++r) {
    const uint32_t mask = lost && r == from ? 1u << to : 0;
    CHECK(cuda_peer_test(&world.comm[r], mask, PEER_TEST_NS, peer_failed[r], world.stream[r]));
  }
  world_sync(&world);
  for (int r = 0; r < world.nranks; ++r) {
    for (int p = 0; p < world.nranks; ++p) ok &= peer_failed[r][p] == (lost && r == to && p == from);
  }
  expect(ok && world_clean(0), "the test of peer memory");
}

static const struct kernel_failure* record_of(int rank) { return world.comm[rank].failure; }

/* Whether the record tells that the rank heard of another's failure, of this kind. */
static int heard_of(int rank, uint32_t kind) {
  const struct kernel_failure* record = record_of(rank);
  return record->kind == KERNEL_FAILURE_REMOTE && record->rank == (uint32_t)rank &&
         record->peer < (uint32_t)world.nranks && record_of((int)record->peer)->kind == kind;
}

/* Whether the record tells that the rank waited in vain, for the missing one: or for a peer that waits itself, in a
 * block that must end before the one that is waited for can begin (never if `resident`, never for row or pack 0, which
 * is of the first block), or, in two-shot, as the owner of a sum. */
static int timed_out(int rank, int missing, int resident, int k, uint64_t epoch) {
  if (checked) {
    const struct kernel_failure* f = record_of(rank);
    return f->kind == KERNEL_FAILURE_TIMEOUT && f->rank == (uint32_t)rank && f->peer == (uint32_t)missing &&
           f->epoch == epoch && f->algorithm == (uint32_t)chosen[k] && f->token == KERNEL_TOKEN_CHECK;
  }
  const struct kernel_failure* record = record_of(rank);
  const struct kernel_op* op = &plan.planned[k].op[rank];
  const int64_t tokens = op->pattern == arfusionPatternAllReduce ? kernel_packs(op->hidden) : op->tokens;
  const int others = chosen[k] == arfusionAlgoTwoshot || (!resident && record->token != 0);
  const int peer = record->peer < (uint32_t)world.nranks && record->peer != (uint32_t)rank &&
                   (record->peer == (uint32_t)missing || others);
  return record->kind == KERNEL_FAILURE_TIMEOUT && record->rank == (uint32_t)rank && peer && record->epoch == epoch &&
         record->algorithm == (uint32_t)chosen[k] && record->token >= 0 && record->token < tokens;
}

static void records_print(void) {
  for (int r = 0; r < world.nranks; ++r) {
    const struct kernel_failure* record = record_of(r);
    printf("rank %d: kind %u, rank %u, peer %u, epoch %" PRIu64 ", algorithm %u, token %" PRId64 "\n", r, record->kind,
           record->rank, record->peer, record->epoch, record->algorithm, record->token);
  }
}

/* One rank never comes to operation k; the others have enqueued that and more. Then it comes after all. */
static void schedule_missing(void) {
  const uint64_t epoch = draw_epoch();
  const int missing = (int)draw((uint32_t)world.nranks), resident = (int)draw(2);
  checked = draw(3) == 0;
  world_prepare(epoch);
  emu_allow_races();
  if (resident) emu_all_resident();
  operations_draw(1 + (int)draw(4));
  const int late = (int)draw((uint32_t)plan.count);
  for (int k = 0; k < plan.count; ++k) operation_launch(k, k < late ? 0 : 1u << missing);
  world_sync(&world);
  int ok = record_of(missing)->kind == KERNEL_FAILURE_NONE, first = 0;
  for (int r = 0; r < world.nranks; ++r) {
    if (r == missing) continue;
    const int expired = timed_out(r, missing, resident, late, epoch + (uint64_t)late);
    first |= expired;
    ok &= expired || heard_of(r, KERNEL_FAILURE_TIMEOUT);
  }
  for (int r = 0; r < world.nranks; ++r) world.comm[r].timeout_ns = 0; /* whoever waited now would never end */
  for (int k = late; k < plan.count; ++k) operation_launch(k, ~(1u << missing));
  world_sync(&world);
  ok &= first && heard_of(missing, KERNEL_FAILURE_TIMEOUT);
  if (!ok) records_print();
  expect(ok, "a rank is missing");
  world_restore();
}

/* One rank does not come, and there is no time-out: another one aborts, or the idle one tells the others. */
static void schedule_abort(void) {
  const int idle = (int)draw((uint32_t)world.nranks), told = draw(2) != 0;
  const int by = told ? idle : (idle + 1 + (int)draw((uint32_t)world.nranks - 1)) % world.nranks;
  checked = draw(3) == 0;
  world_prepare(draw_epoch());
  emu_allow_races();
  operations_draw(1 + (int)draw(2));
  for (int r = 0; r < world.nranks; ++r) world.comm[r].timeout_ns = 0;
  for (int k = 0; k < plan.count; ++k) operation_launch(k, 1u << idle);
  emu_run_for(draw(4) ? draw(200) : draw(100000));
  if (told) CHECK(cuda_comm_tell_peers(&world.comm[by], world.stream[by]));
  else *world.abort[by] = 1;
  world_sync(&world);
  int ok = record_of(by)->kind == KERNEL_FAILURE_ABORT && record_of(by)->rank == (uint32_t)by;
  for (int r = 0; r < world.nranks; ++r) {
    if (r == by) continue;
    ok &= r == idle ? record_of(r)->kind == KERNEL_FAILURE_NONE : heard_of(r, KERNEL_FAILURE_ABORT);
  }
  if (!ok) records_print();
  expect(ok, told ? "an idle rank tells its peers" : "a rank aborts");
  world_restore();
}

/* After some operations, one rank was asked for something else than the others: all of them say so, and what is
 * enqueued after it, graph replays for instance, waits for nobody and writes nothing. */
static void schedule_disagree(void) {
  const uint64_t epoch = draw_epoch();
  const int odd = (int)draw((uint32_t)world.nranks);
  uint64_t nans[ARFUSION_MAX_RANKS][KERNEL_NAN_PLACES];
  struct kernel_call call[ARFUSION_MAX_RANKS];
  int ok = 1;
  checked = 1;
  world_prepare(epoch);
  operations_draw(1 + (int)draw(4));
  const int last = plan.count - 1;
  for (int k = 0; k < last; ++k) operation_launch(k, 0);
  for (int r = 0; r < world.nranks; ++r) {
    const struct kernel_op op = plan_op(&plan.planned[last].op[r], plan.arena[r], device[r]);
    call[r] = call_of(last, r);
    if (r == odd) {
      unsigned char* byte = (unsigned char*)&call[r] + draw(sizeof call[r]);
      *byte ^= (unsigned char)(1 + draw(255));
    }
    if (draw(8) == 0) emu_run_for(draw(3000));
    world.comm[r].timeout_ns = 0; /* whoever waited would never end */
    check_launch(r, last, &call[r]);
    for (int i = 0; i < 2; ++i) world_launch(&world, r, chosen[last], &op);
  }
  world_sync(&world);
  --plan.count; /* the last operation was not done */
  references_run(nans);
  for (int r = 0; r < world.nranks; ++r) {
    const struct kernel_failure* f = record_of(r);
    ok &= f->kind == KERNEL_FAILURE_DISAGREE && f->rank == (uint32_t)r && f->token == KERNEL_TOKEN_CHECK &&
          f->epoch == epoch + (uint64_t)last && f->algorithm == (uint32_t)chosen[last] &&
          f->peer < (uint32_t)world.nranks && (r == odd ? f->peer != (uint32_t)odd : f->peer == (uint32_t)odd);
    ok = ok && memcmp(&f->own, &call[r], sizeof f->own) == 0 &&
         memcmp(&f->theirs, &call[f->peer], sizeof f->theirs) == 0;
  }
  if (!ok) records_print();
  expect(ok, "ranks disagree");
  expect(arenas_equal() && world_clean(epoch + (uint64_t)last), "an operation that was not begun");
}

static void schedule_run(uint64_t number) {
  const int nranks = (int)(number % COUNTS) + 2;
  if (world.nranks != nranks) {
    world_leave();
    world_remake(nranks);
  }
  seed = number;
  in_schedule = 1;
  checked = counted = 0;
  plan.random = random_seed(number, 0);
  emu_begin(number);
  const uint32_t kind = draw(64);
  const int failed_before = failed;
  if (kind == 0) schedule_epilogue();
  else if (kind < 6) schedule_missing();
  else if (kind < 9) schedule_abort();
  else if (kind == 9 && nranks <= 8) schedule_peer_test();
  else if (kind < 13) schedule_disagree();
  else schedule_operations();
  if (emu_error()) expect(0, emu_error());
  if (failed != failed_before) exit(1); /* report_seed says the rest */
  in_schedule = 0;
}

/* `rounds` of few ranks, fewer of many; ends early at `end`. */
static void schedules_run(uint64_t first, uint64_t rounds, double end) {
  for (uint64_t count = 0; count < COUNTS; ++count) {
    const uint64_t share = rounds * 4 / (count + 4);
    for (uint64_t i = 0; i < share && world_seconds() < end; ++i) schedule_run((first + i) * COUNTS + count);
  }
}

int main(int argc, char** argv) {
  const double start = world_seconds();
  atexit(report_seed);
  if (argc == 3 && strcmp(argv[1], "replay") == 0) {
    schedule_run(strtoull(argv[2], NULL, 10));
  } else if (argc > 1) {
    uint64_t round = argc > 2 ? strtoull(argv[2], NULL, 10) / COUNTS : (uint64_t)time(NULL) << 16;
    const double end = start + atof(argv[1]);
    for (; world_seconds() < end; round += 64) schedules_run(round, 64, end);
  } else {
    expect(quant_group_scale_wrong() == 0, "the scales of fp8_group");
    expect(quant_quotient_wrong_bf16() == 0 && quant_quotient_wrong_fp16() == 0, "the quotients of fp8_token");
    schedules_run(0, ROUNDS, INFINITY);
  }
  printf("%" PRIu64 " operations, %" PRIu64 " launches, %" PRIu64 " switches of threads, %" PRIu64 " stores, %" PRIu64
         " of them delayed, %" PRIu64 " reads of old values, %.1f s\n", operations, emu_counts.launches,
         emu_counts.switches, emu_counts.stores, emu_counts.delayed, emu_counts.stale, world_seconds() - start);
  printf("%d passed, %d failed\n", passed, failed);
  world_leave();
  return failed != 0;
}
