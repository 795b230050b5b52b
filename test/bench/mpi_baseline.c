/* SPDX-License-Identifier: Apache-2.0
 *
 * mpi_baseline.c: the plugin on the host against what a C program has today: MPI_Allreduce, then residual and RMSNorm
 * in plain C. Two MPI ranks, fp32, both ways alternating in the same two processes.
 *
 *   ARFUSION_PLUGIN=build/libarfusion-plugin.so mpirun -n 2 build/test/bench/mpi_baseline
 *
 * The plugin is found as every host program finds it, and its ranks talk through MPI_Allgather during set-up.
 */
#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/host/plugin_choice.h"
#include "plugin/host/plugin_load.h"

#define EPS 1e-5f
#define ROUNDS 101
#define SAMPLE_US 2e3 /* a sample is as many operations as take about so long */

static const struct { int64_t tokens, hidden; } sizes[] = {{1, 4096}, {8, 4096}, {64, 4096}, {1, 7168}};
#define SIZES ((int)(sizeof(sizes) / sizeof(sizes[0])))

struct baseline {
  const arfusionPlugin_v1_t* plugin;
  void* comm;
  int64_t tokens, hidden;
  float *input, *residual, *gamma, *sum, *residual_out, *norm_out;
};

/* For what is wrong on all ranks alike: one line, and the exit code. */
static int give_up(int rank, const char* why) {
  if (rank == 0) fprintf(stderr, "mpi_baseline: %s\n", why);
  MPI_Finalize();
  return 2;
}

/* For what may be wrong on one: ends all. */
static void fail(const char* what, const char* why) {
  fprintf(stderr, "mpi_baseline: %s: %s\n", what, why);
  MPI_Abort(MPI_COMM_WORLD, 2);
}

static arfusionResult_t all_gather(void* opaque, const void* send, void* recv, size_t bytes) {
  (void)opaque;
  int failed = MPI_Allgather(send, (int)bytes, MPI_BYTE, recv, (int)bytes, MPI_BYTE, MPI_COMM_WORLD) != MPI_SUCCESS;
  return failed ? arfusionSystemError : arfusionSuccess;
}

/* ---------------------------------------------------------------- the two ways */

static void run_plugin(struct baseline* b) {
  arfusionRequest_t request = {.size = sizeof(request),
                               .pattern = arfusionPatternResidualRmsNorm,
                               .operation = arfusionSum,
                               .dataType = arfusionFloat32,
                               .gammaDataType = arfusionFloat32,
                               .tokens = b->tokens,
                               .hidden = b->hidden,
                               .eps = EPS,
                               .input = b->input,
                               .residualIn = b->residual,
                               .gamma = b->gamma,
                               .residualOut = b->residual_out,
                               .normOut = b->norm_out};
  if (b->plugin->enqueue(b->comm, &request, NULL, NULL) != arfusionSuccess) fail("enqueue", b->plugin->getLastError());
}

static void run_mpi(struct baseline* b) {
  MPI_Allreduce(b->input, b->sum, (int)(b->tokens * b->hidden), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
  for (int64_t t = 0; t < b->tokens; t++) {
    const float* sum = b->sum + t * b->hidden;
    const float* residual = b->residual + t * b->hidden;
    float* y = b->residual_out + t * b->hidden;
    float* norm = b->norm_out + t * b->hidden;
    float partial[8] = {0}, squares = 0;
    for (int64_t i = 0; i < b->hidden; i += 8) { /* eight sums, which a compiler can keep in one register */
      for (int64_t j = 0; j < 8; j++) {
        y[i + j] = sum[i + j] + residual[i + j];
        partial[j] += y[i + j] * y[i + j];
      }
    }
    for (int j = 0; j < 8; j++) squares += partial[j];
    float scale = 1.0f / sqrtf(squares / (float)b->hidden + EPS);
    for (int64_t i = 0; i < b->hidden; i++) norm[i] = y[i] * scale * b->gamma[i];
  }
}

/* ---------------------------------------------------------------- measuring */

/* µs an operation on this rank; the smallest of the ranks' counts. */
static double sample(struct baseline* b, void (*run)(struct baseline*), int count) {
  double smallest;
  MPI_Barrier(MPI_COMM_WORLD);
  double start = MPI_Wtime();
  for (int i = 0; i < count; i++) run(b);
  double elapsed = (MPI_Wtime() - start) * 1e6 / count;
  MPI_Allreduce(&elapsed, &smallest, 1, MPI_DOUBLE, MPI_MIN, MPI_COMM_WORLD);
  return smallest;
}

static int compare_doubles(const void* left, const void* right) {
  double a = *(const double*)left, b = *(const double*)right;
  return (a > b) - (a < b);
}

static int calls(double us) { return us < SAMPLE_US ? (int)(SAMPLE_US / us) : 1; }

static void measure(struct baseline* b, int rank) {
  double plugin_us[ROUNDS], mpi_us[ROUNDS];
  sample(b, run_plugin, 10);
  sample(b, run_mpi, 10);
  int plugin_calls = calls(sample(b, run_plugin, 10)), mpi_calls = calls(sample(b, run_mpi, 10));
  for (int i = 0; i < ROUNDS; i++) {
    plugin_us[i] = sample(b, run_plugin, plugin_calls);
    mpi_us[i] = sample(b, run_mpi, mpi_calls);
  }
  qsort(plugin_us, ROUNDS, sizeof(double), compare_doubles);
  qsort(mpi_us, ROUNDS, sizeof(double), compare_doubles);
  if (rank != 0) return;
  char size[32];
  snprintf(size, sizeof(size), "%lld x %lld", (long long)b->tokens, (long long)b->hidden);
  printf("%15s %12.2f %12.2f %10.2f\n", size, plugin_us[ROUNDS / 2], mpi_us[ROUNDS / 2],
         mpi_us[ROUNDS / 2] / plugin_us[ROUNDS / 2]);
  fflush(stdout);
}

static float* make_tensor(int64_t count, unsigned seed) {
  float* data = aligned_alloc(64, (size_t)(count * (int64_t)sizeof(float) + 63) / 64 * 64);
  if (data == NULL) fail("tensors", "out of memory");
  for (int64_t i = 0; i < count; i++) {
    seed = seed * 1664525u + 1013904223u;
    data[i] = (float)(seed >> 16) / 32768.0f - 1.0f;
  }
  return data;
}

int main(int argc, char** argv) {
  struct plugin_library library;
  struct baseline b = {0};
  char error[2048];
  int rank, nranks;
  int64_t most = 0, widest = 0;
  void* ctx;
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &nranks);
  if (nranks != 2) return give_up(rank, "run it with mpirun -n 2");

  setenv("ARFUSION_DEVICE", "host", 1);
  struct plugin_choice choice;
  if (plugin_choice_read(&choice, error, sizeof(error)) != 0 ||
      plugin_load(choice.name, &library, error, sizeof(error)) != PLUGIN_LOAD_OK) {
    return give_up(rank, error);
  }
  b.plugin = &library.table;
  arfusionBootstrap_t bootstrap = {
      .size = sizeof(bootstrap), .rank = rank, .nranks = nranks, .nhosts = 1, .allGather = all_gather};
  if (b.plugin->init(&ctx, NULL) != arfusionSuccess) fail("init", b.plugin->getLastError());
  if (b.plugin->commInit(ctx, 0, NULL, &bootstrap, &b.comm) != arfusionSuccess) {
    fail("commInit", b.plugin->getLastError());
  }

  for (int i = 0; i < SIZES; i++) {
    if (sizes[i].tokens * sizes[i].hidden > most) most = sizes[i].tokens * sizes[i].hidden;
    if (sizes[i].hidden > widest) widest = sizes[i].hidden;
  }
  b.input = make_tensor(most, 1 + (unsigned)rank);
  b.residual = make_tensor(most, 11);
  b.gamma = make_tensor(widest, 12);
  b.sum = make_tensor(most, 13);
  b.residual_out = make_tensor(most, 14);
  b.norm_out = make_tensor(most, 15);
  if (rank == 0) printf("%15s %12s %12s %10s\n", "tokens x hidden", "plugin us", "MPI us", "MPI/plugin");
  for (int i = 0; i < SIZES; i++) {
    b.tokens = sizes[i].tokens;
    b.hidden = sizes[i].hidden;
    measure(&b, rank);
  }

  float* tensors[] = {b.input, b.residual, b.gamma, b.sum, b.residual_out, b.norm_out};
  for (size_t i = 0; i < sizeof(tensors) / sizeof(tensors[0]); i++) free(tensors[i]);
  b.plugin->commFinalize(b.comm);
  b.plugin->finalize(ctx);
  plugin_unload(&library);
  MPI_Finalize();
  return 0;
}
