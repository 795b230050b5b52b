/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_kernels.c: the CUDA kernels against a scalar reference, bit by bit, on one or two GPUs. Each rank has an
 * arena on its GPU and the same arena on the host; all operations of a batch read and write places in the arenas; then
 * every byte of every arena must be as the reference left it. With each algorithm, then with all in random order.
 *
 *   test_cuda_kernels [operations [seed]]
 */
#include <unistd.h>

#include "test/gpu/reference.h"
#include "test/gpu/world.h"

#include "test/gpu/expect.h" /* last: its names would be shadowed */

#define ARENA_BYTES ((size_t)24 << 20)
#define BATCH 40
#define SLOT_BYTES ((int64_t)1 << 20)
#define TIMEOUT_NS (20ull * 1000 * 1000 * 1000)

/* ---------------------------------------------------------------- arenas */

struct arena {
  unsigned char *host, *device;
  size_t used;
};

/* An operation of one rank, with pointers into the host arena. */
struct planned {
  struct kernel_op op;
  arfusionAlgorithm_t algorithm;
};

static struct arena arenas[ARFUSION_MAX_RANKS];
static struct planned plan[BATCH][ARFUSION_MAX_RANKS];
static int planned_count;

static void arenas_make(const struct world* w) {
  for (int r = 0; r < w->nranks; ++r) {
    CHECK(cudaSetDevice(w->device[r]));
    CHECK(cudaMalloc((void**)&arenas[r].device, ARENA_BYTES));
    arenas[r].host = malloc(ARENA_BYTES);
    if (!arenas[r].host) exit(1);
  }
}

static void arenas_free(const struct world* w) {
  for (int r = 0; r < w->nranks; ++r) {
    CHECK(cudaFree(arenas[r].device));
    free(arenas[r].host);
  }
}

static void arenas_clear(const struct world* w) {
  planned_count = 0;
  for (int r = 0; r < w->nranks; ++r) {
    arenas[r].used = 0;
    memset(arenas[r].host, 0xa5, ARENA_BYTES);
  }
}

static void arenas_upload(const struct world* w) {
  for (int r = 0; r < w->nranks; ++r)
    CHECK(cudaMemcpy(arenas[r].device, arenas[r].host, ARENA_BYTES, cudaMemcpyDefault));
  for (int r = 0; r < w->nranks; ++r) {
    CHECK(cudaSetDevice(w->device[r]));
    CHECK(cudaDeviceSynchronize());
  }
}

static const void* to_device(int rank, const void* host) {
  return host ? arenas[rank].device + ((const unsigned char*)host - arenas[rank].host) : NULL;
}

static struct kernel_op device_op(int rank, const struct kernel_op* host) {
  struct kernel_op op = *host;
  op.input = to_device(rank, op.input);
  op.residual_in = to_device(rank, op.residual_in);
  op.gamma = to_device(rank, op.gamma);
  op.allreduce_out = (void*)to_device(rank, op.allreduce_out);
  op.residual_out = (void*)to_device(rank, op.residual_out);
  op.norm_out = (void*)to_device(rank, op.norm_out);
  return op;
}

/* Compares with the reference; the first difference of each rank is printed. */
static int arenas_equal(const struct world* w) {
  static unsigned char seen[ARENA_BYTES];
  int equal = 1;
  for (int r = 0; r < w->nranks; ++r) {
    CHECK(cudaMemcpy(seen, arenas[r].device, ARENA_BYTES, cudaMemcpyDefault));
    if (memcmp(seen, arenas[r].host, ARENA_BYTES) == 0) continue;
    size_t i = 0, wrong = 0;
    while (seen[i] == arenas[r].host[i]) ++i;
    for (size_t k = i; k < ARENA_BYTES; ++k) wrong += seen[k] != arenas[r].host[k];
    printf("rank %d: %zu bytes differ from byte %zu on\n", r, wrong, i);
    for (int k = 0; k < planned_count; ++k) {
      const struct kernel_op* op = &plan[k][r].op;
      const unsigned char* at = arenas[r].host + i;
      const int64_t bytes = op->tokens * op->hidden * 2;
      const unsigned char* outs[] = {op->allreduce_out, op->residual_out, op->norm_out};
      for (int o = 0; o < 3; ++o) {
        if (outs[o] && at >= outs[o] && at < outs[o] + bytes) {
          printf("  op %d algorithm %d output %d: pattern %d dtype %d gamma %d %lld x %lld residual %d in place %d "
                 "flags %u\n",
                 k, (int)plan[k][r].algorithm, o, (int)op->pattern, (int)op->dtype, (int)op->gamma_dtype,
                 (long long)op->tokens, (long long)op->hidden, op->residual_in != NULL, op->norm_out == op->input,
                 op->flags);
        }
      }
    }
    equal = 0;
  }
  return equal;
}

/* ---------------------------------------------------------------- making operations */

enum values { VALUES_PLAIN, VALUES_MIXED, VALUES_WILD, VALUES_KINDS };

static void fill_values(void* p, int64_t count, arfusionDataType_t dtype, enum values values) {
  for (int64_t i = 0; i < count; ++i) {
    float f = (float)draw(65536) / 32768.0f - 1.0f;
    const uint32_t pick = values == VALUES_PLAIN ? 99 : draw(16);
    if (pick == 0) f = -0.0f;
    if (pick == 1) f = 0.0f;
    if (pick == 2) f *= dtype == arfusionFloat16 ? 0x1p-15f : 0x1p-130f;
    ref_store(p, i, f, dtype);
    if (values == VALUES_WILD && draw(4096) == 0) { /* any bits: NaN, infinity, the sentinel */
      const uint32_t bits = draw(4) == 0 ? KERNEL_SENTINEL : draw(0xffffffffu);
      memcpy((char*)p + i * kernel_element_size(dtype), &bits, (size_t)kernel_element_size(dtype));
    }
  }
}

/* `bytes` in a rank's arena, `skew` bytes off a multiple of 256. NULL: full. */
static void* place(int rank, int64_t bytes, int64_t skew) {
  struct arena* a = &arenas[rank];
  const size_t start = (a->used + 255) / 256 * 256;
  if (start + (size_t)(bytes + skew) > ARENA_BYTES) return NULL;
  a->used = start + (size_t)(bytes + skew);
  return a->host + start + skew;
}

struct shape {
  arfusionPattern_t pattern;
  arfusionDataType_t dtype;
  int64_t tokens, hidden;
};

/* Rows of a tensor of `shape`, filled if asked for. */
static void* place_rows(int rank, const struct shape* s, int64_t stride, int64_t skew, int filled, enum values values) {
  const int64_t size = kernel_element_size(s->dtype);
  char* p = place(rank, ((s->tokens - 1) * stride + s->hidden) * size, skew);
  for (int64_t t = 0; p && filled && t < s->tokens; ++t)
    fill_values(p + t * stride * size, s->hidden, s->dtype, values);
  return p;
}

static int64_t draw_stride(const struct shape* s) {
  return s->pattern == arfusionPatternAllReduce || draw(2) ? s->hidden : s->hidden + (int64_t)draw(20);
}

static int64_t draw_skew(const struct shape* s) {
  return draw(3) ? 0 : (int64_t)draw(16) * kernel_element_size(s->dtype);
}

/* Plans one operation on one rank, with everything local drawn. 0: the arena is full. */
static int plan_local(int rank, const struct shape* s, arfusionDataType_t gamma_dtype, enum values values) {
  struct kernel_op* op = &plan[planned_count][rank].op;
  memset(op, 0, sizeof *op);
  op->pattern = s->pattern;
  op->dtype = s->dtype;
  op->gamma_dtype = gamma_dtype;
  op->tokens = s->tokens;
  op->hidden = s->hidden;
  op->flags = draw(4); /* dependent launch, early trigger */
  op->input_stride = draw_stride(s);
  const struct kernel_op* before = planned_count ? &plan[planned_count - 1][rank].op : NULL;
  if (before && before->norm_out && before->dtype == s->dtype && s->pattern == arfusionPatternAllReduce &&
      before->norm_out_stride == before->hidden && before->tokens * before->hidden >= s->hidden && draw(2)) {
    op->input = before->norm_out; /* what the kernel before has written, while it may still be running */
  } else {
    op->input = place_rows(rank, s, op->input_stride, draw_skew(s), 1, values);
  }
  if (!op->input) return 0;
  if (s->pattern == arfusionPatternAllReduce) {
    op->allreduce_out = draw(2) ? (void*)op->input : place_rows(rank, s, s->hidden, draw_skew(s), 0, values);
    return op->allreduce_out != NULL;
  }
  op->eps = draw(2) ? 1e-5f : 1e-6f;
  op->weight_bias = (float)draw(2);
  if (draw(4)) {
    op->residual_in_stride = draw_stride(s);
    op->residual_in = place_rows(rank, s, op->residual_in_stride, draw_skew(s), 1, values);
    if (!op->residual_in) return 0;
  }
  const uint32_t outputs = 1 + draw(3);
  if (outputs & 1) {
    op->norm_out_stride = op->input_stride;
    op->norm_out = (void*)op->input;
    if (draw(3)) {
      op->norm_out_stride = draw_stride(s);
      op->norm_out = place_rows(rank, s, op->norm_out_stride, draw_skew(s), 0, values);
    }
    const int64_t gamma_size = kernel_element_size(gamma_dtype);
    void* gamma = place(rank, s->hidden * gamma_size, draw(3) ? 0 : (int64_t)draw(16) * gamma_size);
    if (!op->norm_out || !gamma) return 0;
    fill_values(gamma, s->hidden, gamma_dtype, VALUES_PLAIN);
    op->gamma = gamma;
  }
  if (outputs & 2) {
    op->residual_out_stride = op->residual_in_stride;
    op->residual_out = (void*)op->residual_in;
    if (!op->residual_in || draw(3)) {
      op->residual_out_stride = draw_stride(s);
      op->residual_out = place_rows(rank, s, op->residual_out_stride, draw_skew(s), 0, values);
    }
    if (!op->residual_out) return 0;
  }
  return 1;
}

static int plan_add(const struct world* w, const struct shape* s) {
  const arfusionDataType_t gamma_dtype = draw(3) ? s->dtype : arfusionFloat32;
  const enum values values = (enum values)draw(VALUES_KINDS);
  const arfusionAlgorithm_t chosen =
      algorithm ? algorithm : (arfusionAlgorithm_t)(arfusionAlgoOneshotLamport + (int)draw(3));
  if (planned_count == BATCH || kernel_slot_bytes(s->tokens, s->hidden, s->dtype) >
                                    (int64_t)cuda_layout_launch_bytes(&w->comm[0].layout, chosen))
    return 0;
  for (int r = 0; r < w->nranks; ++r) {
    plan[planned_count][r].algorithm = chosen;
    if (!plan_local(r, s, gamma_dtype, values)) return 0;
  }
  ++planned_count;
  return 1;
}

static struct shape draw_shape(void) {
  static const arfusionDataType_t dtypes[] = {arfusionBfloat16, arfusionFloat16, arfusionFloat32};
  static const int64_t usual[] = {2880, 4096, 5120, 7168, 8192, 16384, 12288};
  struct shape s;
  s.pattern = draw(3) ? arfusionPatternResidualRmsNorm : arfusionPatternAllReduce;
  s.dtype = dtypes[draw(3)];
  s.tokens = 1;
  if (s.pattern == arfusionPatternAllReduce) {
    s.hidden = 1 + (int64_t)(draw(2) ? draw(300) : draw(4) ? draw(20000) : draw(250000));
    return s;
  }
  const int64_t step = 16 / kernel_element_size(s.dtype);
  s.hidden = draw(2)   ? usual[draw(7)]
             : draw(3) ? step * (1 + (int64_t)draw(400))
                       : step * (1 + (int64_t)draw(65536 / (uint32_t)step));
  const int64_t most = (s.hidden > 16384 ? 100000 : 40000) / s.hidden;
  s.tokens = 1 + (int64_t)draw((uint32_t)(most < 600 ? most + 1 : 600));
  return s;
}

/* ---------------------------------------------------------------- running them */

static void reference_run(const struct world* w, int k) {
  const struct kernel_op* first = &plan[k][0].op;
  const void* inputs[ARFUSION_MAX_RANKS];
  float* sums = malloc((size_t)(first->tokens * first->hidden) * sizeof *sums);
  if (!sums) exit(1);
  for (int r = 0; r < w->nranks; ++r) inputs[r] = plan[k][r].op.input;
  for (int64_t t = 0; t < first->tokens; ++t) {
    for (int64_t i = 0; i < first->hidden; ++i) {
      int64_t index[ARFUSION_MAX_RANKS];
      for (int r = 0; r < w->nranks; ++r) index[r] = t * plan[k][r].op.input_stride + i;
      sums[t * first->hidden + i] = ref_sum(inputs, index, w->nranks, first->dtype);
    }
  }
  float* row = malloc((size_t)first->hidden * sizeof *row);
  if (!row) exit(1);
  for (int r = 0; r < w->nranks; ++r) {
    const struct kernel_op* op = &plan[k][r].op;
    for (int64_t t = 0; t < op->tokens; ++t) {
      memcpy(row, sums + t * op->hidden, (size_t)op->hidden * sizeof *row);
      if (op->pattern == arfusionPatternAllReduce) {
        for (int64_t i = 0; i < op->hidden; ++i) ref_store(op->allreduce_out, i, row[i], op->dtype);
      } else {
        ref_epilogue_row(op, t, row);
      }
    }
  }
  free(row);
  free(sums);
}

/* Enqueues the whole plan on all ranks, one rank sometimes late. */
static void plan_launch(struct world* w, int delays) {
  for (int k = 0; k < planned_count; ++k) {
    const int start = (int)draw((uint32_t)w->nranks);
    for (int i = 0; i < w->nranks; ++i) {
      const int r = (start + i) % w->nranks;
      const struct kernel_op op = device_op(r, &plan[k][r].op);
      if (delays && draw(16) == 0) usleep(draw(200));
      world_launch(w, r, plan[k][r].algorithm, &op);
    }
  }
}

static int world_healthy(const struct world* w) {
  for (int r = 0; r < w->nranks; ++r) {
    const struct kernel_failure* f = w->comm[r].failure;
    if (f->kind != KERNEL_FAILURE_NONE) {
      printf("rank %d failed: kind %u, waited for rank %u, epoch %llu, token %lld\n", r, f->kind, f->peer,
             (unsigned long long)f->epoch, (long long)f->token);
      return 0;
    }
  }
  return 1;
}

static int plan_run(struct world* w) {
  arenas_upload(w);
  plan_launch(w, 1);
  for (int k = 0; k < planned_count; ++k) reference_run(w, k);
  world_sync(w);
  return arenas_equal(w) & world_healthy(w);
}

static void set_epochs(struct world* w, uint64_t epoch) {
  for (int r = 0; r < w->nranks; ++r)
    CHECK(cudaMemcpy(w->comm[r].workspace[r], &epoch, sizeof epoch, cudaMemcpyDefault));
}

/* ---------------------------------------------------------------- tests */

static void test_shapes(struct world* w) {
  static const struct shape shapes[] = {
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
    arenas_clear(w);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; ++i) plan_add(w, &shapes[i]);
    ok &= plan_run(w);
  }
  expect(ok, "fixed shapes");
}

/* As much as one launch takes: of the flat pattern, and in rows of one vector. */
static void test_largest(struct world* w) {
  const int64_t bytes = (int64_t)cuda_layout_launch_bytes(&w->comm[0].layout, algorithm);
  const struct shape flat = {arfusionPatternAllReduce, arfusionBfloat16, 1, bytes / 2};
  const int64_t tokens = bytes / 16 < 40000 ? bytes / 16 : 40000;
  const struct shape rows = {arfusionPatternResidualRmsNorm, arfusionFloat16, tokens, 8};
  arenas_clear(w);
  expect(plan_add(w, &flat) && plan_run(w), "the largest launch");
  arenas_clear(w);
  expect(plan_add(w, &rows) && plan_run(w), "many short rows");
}

static void test_random(struct world* w, int operations) {
  int ok = 1;
  for (int done = 0; done < operations && ok;) {
    arenas_clear(w);
    for (;;) {
      const struct shape s = draw_shape();
      if (!plan_add(w, &s)) break;
    }
    ok &= plan_run(w);
    done += planned_count;
  }
  expect(ok, "random operations, back to back");
}

static void test_wrap(struct world* w) {
  world_reset(w);
  set_epochs(w, 0xfffffffdull);
  arenas_clear(w);
  for (int k = 0; k < 12; ++k) {
    const struct shape s = {arfusionPatternResidualRmsNorm, arfusionBfloat16, 1 + k % 5, 2880};
    plan_add(w, &s);
  }
  expect(plan_run(w), "epochs across 2^32");
  uint64_t epoch;
  CHECK(cudaMemcpy(&epoch, w->comm[0].workspace[0], sizeof epoch, cudaMemcpyDefault));
  expect(epoch == 0xfffffffdull + (uint64_t)planned_count, "each operation advances the epoch by one");
}

static void test_graph(struct world* w) {
  cudaGraphExec_t exec[ARFUSION_MAX_RANKS];
  arenas_clear(w);
  for (int k = 0; k < 8; ++k) {
    const struct shape s = {k % 3 ? arfusionPatternResidualRmsNorm : arfusionPatternAllReduce, arfusionBfloat16, 1,
                            4096};
    plan_add(w, &s);
  }
  for (int r = 0; r < w->nranks; ++r) {
    cudaGraph_t graph;
    CHECK(cudaSetDevice(w->device[r]));
    CHECK(cudaStreamBeginCapture(w->stream[r], cudaStreamCaptureModeRelaxed));
    for (int k = 0; k < planned_count; ++k) {
      const struct kernel_op op = device_op(r, &plan[k][r].op);
      world_launch(w, r, plan[k][r].algorithm, &op);
    }
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
    for (int k = 0; k < planned_count; ++k) reference_run(w, k);
  }
  world_sync(w);
  expect(arenas_equal(w) & world_healthy(w), "graph replays");
  for (int r = 0; r < w->nranks; ++r) CHECK(cudaGraphExecDestroy(exec[r]));
}

static void plan_one(struct world* w) {
  const struct shape s = {arfusionPatternResidualRmsNorm, arfusionBfloat16, 3, 4096};
  arenas_clear(w);
  plan_add(w, &s);
  arenas_upload(w);
}

static void launch_one(struct world* w, int rank) {
  const struct kernel_op op = device_op(rank, &plan[0][rank].op);
  world_launch(w, rank, plan[0][rank].algorithm, &op);
}

/* Rank 0 alone; then what its peers find. */
static void test_timeout(struct world* w) {
  world_reset(w);
  const double start = world_seconds();
  for (int r = 0; r < w->nranks; ++r) w->comm[r].timeout_ns = 50 * 1000 * 1000;
  plan_one(w);
  launch_one(w, 0);
  world_sync(w);
  const struct kernel_failure* f = w->comm[0].failure;
  expect(f->kind == KERNEL_FAILURE_TIMEOUT && f->rank == 0 && f->peer > 0 && f->peer < (uint32_t)w->nranks &&
             (f->peer == 1 || algorithm != arfusionAlgoOneshotLamport) && f->epoch == 0 &&
             f->algorithm == (uint32_t)algorithm && f->token >= 0 && f->token < 3,
         "a missing peer is a time-out");
  expect(world_seconds() - start > 0.04 && world_seconds() - start < 5.0, "after the time that was set");
  for (int r = 0; r < w->nranks; ++r) w->comm[r].timeout_ns = 0; /* whoever waited now would never end */
  for (int k = 0; k < 3; ++k) {
    for (int r = 0; r < w->nranks; ++r) launch_one(w, r);
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
  for (int r = 0; r < w->nranks - 1; ++r) launch_one(w, r);
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
  for (int r = 0; r < idle; ++r) launch_one(w, r);
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
  one.nranks = 1;
  for (int batch = 0; batch < 6; ++batch) {
    arenas_clear(&one);
    const struct shape many = {arfusionPatternResidualRmsNorm, arfusionBfloat16, 66000, 8};
    if (batch == 0 && !plan_local(0, &many, arfusionBfloat16, VALUES_MIXED)) exit(1);
    planned_count = batch == 0;
    while (planned_count < BATCH) {
      struct shape s = draw_shape();
      if (s.pattern == arfusionPatternAllReduce) continue;
      if (!plan_local(0, &s, draw(2) ? s.dtype : arfusionFloat32, (enum values)draw(VALUES_KINDS))) break;
      ++planned_count;
    }
    arenas_upload(&one);
    CHECK(cudaSetDevice(w->device[0]));
    for (int k = 0; k < planned_count; ++k) {
      const struct kernel_op op = device_op(0, &plan[k][0].op);
      CHECK(cuda_launch_epilogue(&op, w->comm[0].compute_major, w->stream[0]));
    }
    world_sync(&one);
    for (int k = 0; k < planned_count; ++k) {
      const struct kernel_op* op = &plan[k][0].op;
      float* row = malloc((size_t)op->hidden * sizeof *row);
      if (!row) exit(1);
      for (int64_t t = 0; t < op->tokens; ++t) {
        for (int64_t i = 0; i < op->hidden; ++i) row[i] = ref_load(op->input, t * op->input_stride + i, op->dtype);
        ref_epilogue_row(op, t, row);
      }
      free(row);
    }
    ok &= arenas_equal(&one);
  }
  expect(ok, "the epilogue alone");
}

static void test_ranks(int nranks, int gpus, int operations) {
  struct world w;
  int multiprocessors;
  CHECK(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0));
  const int sharing = (nranks + gpus - 1) / gpus;
  const int usable = multiprocessors - multiprocessors / 8;
  world_make(&w, nranks, gpus, SLOT_BYTES,
             sharing == 1            ? usable
             : usable / sharing < 12 ? usable / sharing
                                     : 12,
             TIMEOUT_NS);
  arenas_make(&w);
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
  if (argc > 2) state = (uint32_t)strtoul(argv[2], NULL, 0) | 1;
  world_enable_peers(gpus);
  for (int nranks = 2; nranks <= ARFUSION_MAX_RANKS; ++nranks)
    test_ranks(nranks, gpus, nranks == 2 ? 10 * operations : operations);
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
