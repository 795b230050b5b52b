/* SPDX-License-Identifier: Apache-2.0
 *
 * test_host_kernels.c: the host kernels, ranks as threads, against the scalar reference of host_problem.h; then what
 * happens when a rank is missing or aborts.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "kernels/host/host_internal.h"
#include "test/unit/host_problem.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

static const arfusionAlgorithm_t algorithms[] = {arfusionAlgoOneshotLamport, arfusionAlgoOneshotSync,
                                                 arfusionAlgoTwoshot};
static const arfusionDataType_t dtypes[] = {arfusionFloat16, arfusionBfloat16, arfusionFloat32};

/* ---------------------------------------------------------------- ranks */

struct step {
  const struct problem* problem;
  arfusionAlgorithm_t algorithm;
  unsigned variant; /* mixed with the rank */
};

struct world {
  int nranks;
  struct host_comm comm[ARFUSION_MAX_RANKS];
};

struct rank_run {
  struct host_comm* comm;
  const struct step* steps;
  int count, strange_mode;
  int failed; /* steps */
};

static void world_make(struct world* w, int nranks, int64_t request_bytes) {
  struct host_layout layout;
  unsigned char* workspace[ARFUSION_MAX_RANKS];
  host_layout_compute(&layout, nranks, request_bytes, INT64_MAX);
  w->nranks = nranks;
  for (int r = 0; r < nranks; r++) workspace[r] = aligned_alloc(4096, layout.total);
  for (int r = 0; r < nranks; r++) {
    struct host_comm* comm = &w->comm[r];
    memset(comm, 0, sizeof(*comm));
    comm->rank = r;
    comm->nranks = nranks;
    comm->yield = 1; /* whatever else this machine does */
    comm->timeout_ns = 60000000000u;
    comm->layout = layout;
    memcpy(comm->workspace, workspace, sizeof(workspace[0]) * (size_t)nranks);
    host_comm_reset(comm);
  }
}

static void world_free(struct world* w) {
  for (int r = 0; r < w->nranks; r++) free(w->comm[0].workspace[r]);
}

/* Flush-to-zero, denormals-are-zero and rounding towards minus infinity, where that can be set. */
static unsigned mode_swap(unsigned mode) {
#if defined(__x86_64__)
  unsigned old = _mm_getcsr();
  _mm_setcsr(mode);
  return old;
#else
  return mode;
#endif
}
#define STRANGE_MODE 0xbfc0u

static void* rank_main(void* arg) {
  struct rank_run* run = arg;
  int rank = run->comm->rank;
  for (int i = 0; i < run->count; i++) {
    const struct step* step = &run->steps[i];
    struct rank_memory m;
    rank_memory_make(&m, step->problem, rank, (unsigned)mix(step->variant + (unsigned)rank));
    unsigned mode = run->strange_mode ? mode_swap(STRANGE_MODE) : 0;
    int result = host_run(run->comm, step->algorithm, &m.op);
    if (run->strange_mode && (mode_swap(mode) & 0xffc0u) != STRANGE_MODE) result = -2;
    int64_t differ = result ? 0 : rank_memory_compare(&m);
    if (result || differ) {
      fprintf(stderr,
              "rank %d of %d step %d: algorithm %d dtype %d pattern %d kind %d %ld x %ld: result %d differ %ld\n", rank,
              run->comm->nranks, i, (int)step->algorithm, (int)step->problem->dtype, (int)step->problem->pattern,
              (int)step->problem->kind, (long)step->problem->tokens, (long)step->problem->hidden, result, (long)differ);
      run->failed++;
    }
    rank_memory_free(&m);
    if (result) break;
  }
  return NULL;
}

static void world_run(struct world* w, const struct step* steps, int count, int strange_mode) {
  struct rank_run run[ARFUSION_MAX_RANKS];
  pthread_t thread[ARFUSION_MAX_RANKS];
  for (int r = 0; r < w->nranks; r++) {
    run[r] = (struct rank_run){.comm = &w->comm[r], .steps = steps, .count = count, .strange_mode = strange_mode};
    assert_int_equal(pthread_create(&thread[r], NULL, rank_main, &run[r]), 0);
  }
  for (int r = 0; r < w->nranks; r++) pthread_join(thread[r], NULL);
  for (int r = 0; r < w->nranks; r++) assert_int_equal(run[r].failed, 0);
}

/* ---------------------------------------------------------------- bits */

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))
#define MAX_PROBLEMS 160

/* Every problem with every algorithm, in an order that mixes them, back to back. */
static void solve_everywhere(int nranks, struct problem* problems, int count, int repeat, int64_t request_bytes,
                             int strange_mode) {
  int steps = count * COUNT(algorithms) * repeat;
  struct step* step = calloc((size_t)steps, sizeof(*step));
  struct world w;
  for (int i = 0; i < steps; i++) {
    int k = i % (count * COUNT(algorithms));
    step[i] = (struct step){&problems[k % count], algorithms[k / count], (unsigned)mix((uint64_t)i)};
  }
  for (int i = steps - 1; i > 0; i--) {
    int j = (int)(mix((uint64_t)i * 977) % (uint64_t)(i + 1));
    struct step swap = step[i];
    step[i] = step[j];
    step[j] = swap;
  }
  world_make(&w, nranks, request_bytes);
  world_run(&w, step, steps, strange_mode);
  world_free(&w);
  free(step);
  for (int i = 0; i < count; i++) problem_free(&problems[i]);
}

static void test_rows(void** state) {
  (void)state;
  static const int64_t hiddens[] = {4, 8, 12, 20, 64, 248, 256, 264, 1028, 2880};
  for (int nranks = 2; nranks <= ARFUSION_MAX_RANKS; nranks++) {
    struct problem problems[MAX_PROBLEMS];
    int count = 0;
    for (int d = 0; d < COUNT(dtypes); d++)
      for (int h = 0; h < COUNT(hiddens); h++) {
        int64_t hidden = dtypes[d] == arfusionFloat32 ? hiddens[h] : hiddens[h] / 4 * 8;
        uint64_t seed = (uint64_t)(nranks * 1000 + count);
        int64_t tokens = 1 + (int64_t)(mix(seed + 7) % (hidden > 300 ? 2 : 6));
        problems[count] = problem_rows(dtypes[d], nranks, tokens, hidden, (enum kind)(count % KINDS), seed);
        count++;
      }
    solve_everywhere(nranks, problems, count, 1, 65536, 0);
  }
}

static void test_large_rows(void** state) {
  (void)state;
  static const int64_t shapes[][2] = {{2, 7168}, {3, 4096}, {1, 8200}, {2, 16384}, {1, 65536}, {33, 1024}, {70, 2048}};
  static const int ranks[] = {2, 3, 5};
  for (int n = 0; n < COUNT(ranks); n++) {
    struct problem problems[MAX_PROBLEMS];
    int count = 0;
    for (int d = 0; d < COUNT(dtypes); d++)
      for (int s = 0; s < COUNT(shapes); s++, count++)
        problems[count] = problem_rows(dtypes[d], ranks[n], shapes[s][0], shapes[s][1], (enum kind)(count % KINDS),
                                       (uint64_t)(count + 50000));
    solve_everywhere(ranks[n], problems, count, 1, 1 << 20, 0);
  }
}

static void test_flat(void** state) {
  (void)state;
  static const int64_t counts[] = {1, 2, 3, 7, 8, 9, 31, 64, 65, 255, 256, 257, 511, 4099, 8195};
  for (int nranks = 2; nranks <= ARFUSION_MAX_RANKS; nranks++) {
    struct problem problems[MAX_PROBLEMS];
    int count = 0;
    for (int d = 0; d < COUNT(dtypes); d++)
      for (int c = 0; c < COUNT(counts); c++, count++)
        problems[count] = problem_flat(dtypes[d], nranks, counts[c], (enum kind)((count + nranks) % KINDS),
                                       (uint64_t)(nranks * 1000 + count));
    if (nranks == 2) problems[count++] = problem_flat(arfusionFloat32, nranks, 100003, MIXED, 4711);
    solve_everywhere(nranks, problems, count, 1, 400064, 0);
  }
}

/* Buffers and halves are used again and again, by operations of very different size. */
static void test_back_to_back(void** state) {
  (void)state;
  for (int nranks = 2; nranks <= 4; nranks++) {
    struct problem problems[] = {
        problem_flat(arfusionBfloat16, nranks, 1, RAW, 1),
        problem_rows(arfusionBfloat16, nranks, 1, 512, MIXED, 2),
        problem_rows(arfusionFloat32, nranks, 16, 1024, MIXED, 3),
        problem_rows(arfusionFloat16, nranks, 3, 64, ZEROS, 4),
        problem_flat(arfusionFloat32, nranks, 5000, RAW, 5),
    };
    solve_everywhere(nranks, problems, COUNT(problems), 60, 65536, 0);
  }
}

static void test_caller_floating_point_mode(void** state) {
  (void)state;
#if !defined(__x86_64__)
  skip();
#endif
  struct problem problems[] = {
      problem_rows(arfusionBfloat16, 2, 3, 512, MIXED, 1),  problem_rows(arfusionFloat32, 2, 3, 512, RAW, 2),
      problem_rows(arfusionFloat16, 2, 3, 512, MIXED, 3),   problem_flat(arfusionFloat32, 2, 777, MIXED, 4),
      problem_rows(arfusionFloat32, 2, 3, 512, UNIFORM, 5),
  };
  solve_everywhere(2, problems, COUNT(problems), 1, 65536, 1);
}

static void test_epilogue(void** state) {
  (void)state;
  static const int64_t hiddens[] = {8, 72, 264, 2880, 12288};
  for (int i = 0; i < 600; i++) {
    arfusionDataType_t dtype = dtypes[i % 3];
    int64_t hidden = hiddens[i / 3 % COUNT(hiddens)];
    if (dtype == arfusionFloat32 && i & 1) hidden += 4;
    struct problem p = problem_rows(dtype, 2, hidden > 3000 ? 1 : 3, hidden, (enum kind)(i % KINDS), (uint64_t)i);
    struct rank_memory m;
    rank_memory_make(&m, &p, 0, (unsigned)mix((uint64_t)i));
    for (int64_t k = 0; k < p.tokens * p.hidden; k++)
      memcpy(image_at(&m.input, k), &p.sum[k], (size_t)m.input.element);
    unsigned mode = mode_swap(STRANGE_MODE);
    host_epilogue(&m.op);
    mode_swap(mode);
    assert_int_equal(rank_memory_compare(&m), 0);
    rank_memory_free(&m);
    problem_free(&p);
  }
}

/* All instruction sets must give the same bits, for any bits. The whole operations above use the set that this
 * processor picks; here the plain one is compared with it. */
static void compare_sets(arfusionDataType_t dtype, int n, uint64_t seed) {
  const struct host_compute* set[2] = {host_compute_base(dtype), host_compute_select(dtype)};
  uint32_t source[3][HOST_SEGMENT], out[2][2][HOST_SEGMENT];
  alignas(64) uint32_t slot[2][HOST_SEGMENT];
  alignas(64) float acc[2][HOST_SEGMENT];
  float squares[2];
  const void* sources[3] = {source[0], source[1], source[2]};
  size_t packed = (size_t)kernel_packs(n) * KERNEL_PACK;
  for (int i = 0; i < 3 * HOST_SEGMENT; i++) {
    uint64_t h = mix(seed * 1000 + (uint64_t)i);
    source[i / HOST_SEGMENT][i % HOST_SEGMENT] = (uint32_t)h & (h >> 40 & 1 ? 0xffffffffu : 0xbfff3fffu);
  }
  memset(out, 0, sizeof(out));
  for (int s = 0; s < 2; s++) {
    set[s]->sum(acc[s], sources, 2 + (int)(seed & 1), n, 1);
    set[s]->send(slot[s], source[2], n);
    for (size_t w = 0; w < packed * (size_t)kernel_element_size(dtype) / 4; w++)
      assert_int_not_equal(slot[s][w], KERNEL_SENTINEL);
    assert_true(set[s]->receive(acc[s], slot[s], 0, n, 0) >= n);
    for (size_t w = 0; w < packed * (size_t)kernel_element_size(dtype) / 4; w++)
      assert_int_equal(slot[s][w], KERNEL_SENTINEL);
    set[s]->store(out[s][0], acc[s], n);
    squares[s] = set[s]->finish(out[s][1], acc[s], seed & 2 ? source[1] : NULL, n);
  }
  assert_memory_equal(out[0], out[1], sizeof(out[0]));
  assert_true(isnan(squares[0]) ? isnan(squares[1]) : bits_of(squares[0]) == bits_of(squares[1]));
  for (int s = 0; s < 2; s++) {
    set[s]->norm(out[s][0], source[0], source[1], n, 0.37f, 1.0f);
    set[s]->norm_gamma_fp32(out[s][1], source[0], source[1], n, 1.37f, 0.0f);
  }
  assert_memory_equal(out[0], out[1], sizeof(out[0]));
}

static void test_instruction_sets(void** state) {
  (void)state;
  for (int d = 0; d < COUNT(dtypes); d++)
    for (int n = 1; n <= HOST_SEGMENT; n++)
      for (uint64_t seed = 0; seed < 10; seed++) compare_sets(dtypes[d], n, seed);
}

/* Every fp32 that lies next to a rounding boundary of a 16-bit type, or is special. */
static void test_rounding(void** state) {
  (void)state;
  for (int d = 0; d < 2; d++)
    for (int s = 0; s < 2; s++) {
      const struct host_compute* set = s ? host_compute_select(dtypes[d]) : host_compute_base(dtypes[d]);
      for (uint32_t high = 0; high < 0x10000u; high++) {
        alignas(32) float acc[8];
        uint16_t got[8];
        for (uint32_t k = 0; k < 8; k++) acc[k] = float_of(high << 16 | (k * 0x1000u + (high & 7 ? 0 : k - 4)));
        for (int half = 0; half < 2; half++) {
          set->store(got, acc, 8);
          for (int k = 0; k < 8; k++) assert_int_equal(got[k], ref_round(dtypes[d], acc[k]));
          for (int k = 0; k < 8; k++) acc[k] = float_of(bits_of(acc[k]) ^ 0x8000u);
        }
      }
    }
}

/* ---------------------------------------------------------------- layout, failures */

static void test_layout(void** state) {
  (void)state;
  struct host_layout l;
  host_layout_compute(&l, 2, 1, INT64_MAX);
  assert_int_equal(l.lamport_slot, 65536);
  assert_int_equal(l.sync_slot, 65536);
  for (int n = 2; n <= ARFUSION_MAX_RANKS; n++) {
    host_layout_compute(&l, n, 100000000, INT64_MAX);
    assert_true(host_layout_launch_bytes(&l, arfusionAlgoOneshotLamport) >= 100000000);
    assert_true(host_layout_launch_bytes(&l, arfusionAlgoTwoshot) >= 100000000);
    host_layout_compute(&l, n, 100000000, 64 << 20);
    assert_true(l.total <= 64 << 20 && l.lamport_slot >= 65536 && l.sync_slot >= 65536);
    assert_true(l.lamport >= sizeof(struct host_control));
    assert_int_equal(l.stage, l.lamport + 2 * (size_t)(n - 1) * l.lamport_slot);
    assert_int_equal(l.sums, l.stage + 2 * l.sync_slot);
    assert_int_equal(l.total, l.sums + 2 * l.sync_slot);
    host_layout_compute(&l, n, INT64_C(1) << 50, INT64_C(1) << 45); /* larger than 32 bits throughout */
    assert_true(l.total <= (size_t)1 << 45 && l.lamport_slot > (size_t)1 << 36);
  }
}

struct caller {
  struct host_comm* comm;
  arfusionAlgorithm_t algorithm;
  const struct kernel_op* op;
  int result;
};

static void* caller_main(void* arg) {
  struct caller* caller = arg;
  caller->result = host_run(caller->comm, caller->algorithm, caller->op);
  return NULL;
}

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void assert_failure(const struct host_comm* comm, enum kernel_failure_kind kind, int peer) {
  assert_int_equal(comm->failure.kind, kind);
  assert_int_equal(comm->failure.rank, comm->rank);
  assert_int_equal(comm->failure.peer, peer);
}

/* Three ranks; rank 2 never comes. Rank 0 gives up (by its time-out or by an abort), rank 1 learns of it, and rank 2
 * too when it does come. */
static void fail_one(arfusionAlgorithm_t algorithm, int yield, int by_abort) {
  struct problem p = problem_rows(arfusionBfloat16, 3, 2, 512, UNIFORM, 1);
  struct step step = {&p, algorithm, 0};
  struct rank_memory m[3];
  struct caller caller[2];
  pthread_t thread[2];
  struct world w;
  world_make(&w, 3, 65536);
  world_run(&w, &step, 1, 0);
  for (int r = 0; r < 3; r++) {
    rank_memory_make(&m[r], &p, r, 0);
    w.comm[r].yield = yield;
    w.comm[r].timeout_ns = r || by_abort ? 0 : 100000000;
  }
  double start = seconds();
  for (int r = 0; r < 2; r++) {
    caller[r] = (struct caller){&w.comm[r], algorithm, &m[r].op, 0};
    assert_int_equal(pthread_create(&thread[r], NULL, caller_main, &caller[r]), 0);
  }
  if (by_abort) {
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    host_comm_abort(&w.comm[0]);
  }
  for (int r = 0; r < 2; r++) pthread_join(thread[r], NULL);
  double spent = seconds() - start;
  assert_true(spent >= (by_abort ? 0.02 : 0.1) && spent < 5);
  assert_int_equal(caller[0].result, -1);
  assert_int_equal(caller[1].result, -1);
  assert_failure(&w.comm[0], by_abort ? KERNEL_FAILURE_ABORT : KERNEL_FAILURE_TIMEOUT, 2);
  assert_int_equal(w.comm[0].failure.algorithm, algorithm);
  assert_int_equal(w.comm[0].failure.epoch, 1);
  assert_int_equal(w.comm[0].failure.token, 0);
  assert_failure(&w.comm[1], KERNEL_FAILURE_REMOTE, 0);
  assert_int_equal(host_run(&w.comm[2], algorithm, &m[2].op), -1);
  assert_failure(&w.comm[2], KERNEL_FAILURE_REMOTE, 0);
  for (int r = 0; r < 3; r++) assert_int_equal(host_run(&w.comm[r], algorithms[0], &m[r].op), -1);
  for (int r = 0; r < 3; r++) rank_memory_free(&m[r]);
  world_free(&w);
  problem_free(&p);
}

static void test_missing_rank(void** state) {
  (void)state;
  for (int a = 0; a < COUNT(algorithms); a++)
    for (int yield = 0; yield < 2; yield++) fail_one(algorithms[a], yield, 0);
}

static void test_abort(void** state) {
  (void)state;
  for (int a = 0; a < COUNT(algorithms); a++)
    for (int yield = 0; yield < 2; yield++) fail_one(algorithms[a], yield, 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_layout),       cmocka_unit_test(test_rounding),
      cmocka_unit_test(test_instruction_sets), cmocka_unit_test(test_epilogue),
      cmocka_unit_test(test_rows),         cmocka_unit_test(test_large_rows),
      cmocka_unit_test(test_flat),         cmocka_unit_test(test_back_to_back),
      cmocka_unit_test(test_caller_floating_point_mode),
      cmocka_unit_test(test_missing_rank), cmocka_unit_test(test_abort),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
