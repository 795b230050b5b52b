/* SPDX-License-Identifier: Apache-2.0
 *
 * test_chains_cuda.c: dependent launch and early trigger. Chains of operations and of other kernels that read what an
 * operation has written, or write what it reads, just before or after it; each with and without programmatic
 * serialization on either side; eagerly, and as a graph; with every algorithm, and the epilogue alone. Through the
 * plugin's table.
 *
 *   test_chains_cuda [SEED]
 *
 * A chain works on buffers of one arena. Its first kernel writes one of several variants of the data, each run another
 * one, so that what is left of an earlier run is never right; its last compares the whole arena with what a simulation
 * on the CPU has left there.
 */
#include <pthread.h>

#include "test/gpu/limit.h"
#include "test/gpu/random.h"
#include "test/gpu/ranks.h"
#include "test/gpu/reference.h"
#include "test/gpu/support.h"

enum {
  STEPS = 14,
  BUFFERS = 2 * STEPS,
  VARIANTS = 3,
  EAGER_RUNS = 40,
  GRAPH_RUNS = 200,
  STRUCTURES = 2, /* chains of a shape */
  LIMIT_SECONDS = 280
};

extern const arfusionPlugin_v1_t arfusionPlugin_v1;
static const arfusionPlugin_v1_t* const plugin = &arfusionPlugin_v1;
static void* ctx;
static void* comms[RANKS];

struct shape {
  arfusionDataType_t dtype;
  int64_t tokens, hidden;
};

enum kind { KIND_OTHER, KIND_SUM, KIND_ROWS, KIND_EPILOGUE };
static const char* const kinds[] = {"other kernel", "allreduce", "rows", "epilogue"};

/* Buffers by number. The same on all ranks. */
struct step {
  enum kind kind;
  arfusionAlgorithm_t algorithm;
  int in, out; /* in -1: the variant's data */
  int residual_in, residual_out; /* -1: none */
  uint32_t shift, key;
};

/* How a rank launches a step. */
struct manner {
  uint32_t flags;                   /* of an operation */
  int dependent, trigger, delay_ns; /* of another kernel */
};

enum style { STYLE_PLAIN, STYLE_DEPENDENT, STYLE_TRIGGER, STYLE_RANDOM, STYLES };
static const char* const styles[] = {"one after the other", "dependent launch", "dependent launch and early trigger",
                                     "at random"};

/* Where a chain's tensors are: on a GPU, or in host memory. */
struct place {
  unsigned char *arena, *data, *gamma; /* data: [VARIANTS], for its first kernel */
};

struct chain {
  struct shape shape;
  int64_t count, bytes; /* of a buffer: elements, bytes */
  struct step steps[STEPS];
  struct place host[RANKS]; /* arena: [VARIANTS], as the simulation leaves them */
  struct place device[RANKS];
  unsigned char* expected[RANKS]; /* host[].arena on the GPU */
  uint32_t* variant[RANKS];       /* device: of the running chain */
  struct support_found* found[RANKS];
};

static cudaStream_t streams[RANKS];
static uint32_t state;

static uint32_t draw(uint32_t below) { return random_draw(&state, below); }

/* ---------------------------------------------------------------- making a chain */

static void steps_draw(struct chain* chain) {
  int written[BUFFERS], nwritten = 0, sums = 0, newest = -1, read_by_last = -1;
  for (int k = 0; k < STEPS; ++k) {
    struct step* s = &chain->steps[k];
    *s = (struct step){.kind = k == 0 ? KIND_OTHER : (enum kind)draw(4), .in = newest, .out = 2 * k,
                       .residual_in = -1, .residual_out = -1, .key = draw(0x7fffffff), .shift = 16 * draw(1000)};
    if (s->kind == KIND_SUM && ++sums > 3) s->kind = KIND_ROWS; /* each doubles the values */
    s->algorithm = (arfusionAlgorithm_t)(arfusionAlgoOneshotLamport + (int)draw(3));
    if (s->kind == KIND_OTHER && read_by_last >= 0 && read_by_last != newest && draw(2)) s->out = read_by_last;
    if (s->kind == KIND_SUM && draw(3) == 0) s->out = s->in;
    if (s->kind == KIND_ROWS && draw(4) == 0) s->out = s->in;
    if (s->kind == KIND_ROWS || s->kind == KIND_EPILOGUE) {
      s->residual_in = nwritten && draw(4) ? written[draw((uint32_t)nwritten)] : -1;
      if (s->residual_in == s->in) s->residual_in = -1;
      if (draw(3)) s->residual_out = s->residual_in >= 0 && draw(2) ? s->residual_in : 2 * k + 1;
    }
    read_by_last = s->kind == KIND_OTHER ? -1 : s->in;
    newest = s->residual_out >= 0 && draw(3) == 0 ? s->residual_out : s->out;
    if (nwritten == 0 || s->out == 2 * k) written[nwritten++] = s->out;
    if (s->residual_out == 2 * k + 1) written[nwritten++] = s->residual_out;
  }
}

static struct kernel_op step_op(const struct chain* chain, const struct step* s, const struct place* place) {
  const int64_t hidden = chain->shape.hidden;
  unsigned char* arena = place->arena;
  struct kernel_op op = {.dtype = chain->shape.dtype, .gamma_dtype = chain->shape.dtype, .tokens = chain->shape.tokens,
                         .hidden = hidden, .input = arena + s->in * chain->bytes, .eps = 1e-5f};
  if (s->kind == KIND_SUM) {
    op.allreduce_out = arena + s->out * chain->bytes;
    return op;
  }
  op.pattern = arfusionPatternResidualRmsNorm;
  op.input_stride = op.residual_in_stride = op.residual_out_stride = op.norm_out_stride = hidden;
  op.norm_out = arena + s->out * chain->bytes;
  op.gamma = place->gamma;
  if (s->residual_in >= 0) op.residual_in = arena + s->residual_in * chain->bytes;
  if (s->residual_out >= 0) op.residual_out = arena + s->residual_out * chain->bytes;
  return op;
}

static struct support_mix step_mix(const struct chain* chain, const struct step* s, const struct place* place) {
  const uint64_t words = (uint64_t)chain->bytes / 2;
  return (struct support_mix){.to = (uint16_t*)(place->arena + s->out * chain->bytes), .count = words, .key = s->key,
                              .from = (const uint16_t*)(s->in < 0 ? place->data : place->arena + s->in * chain->bytes),
                              .shift = s->shift % words, .variant_words = s->in < 0 ? words : 0};
}

/* ---------------------------------------------------------------- the simulation */

static void simulate_step(const struct chain* chain, const struct step* s, const struct place* places, int variant) {
  const struct shape* shape = &chain->shape;
  if (s->kind == KIND_OTHER) {
    for (int r = 0; r < RANKS; ++r) {
      const struct support_mix mix = step_mix(chain, s, &places[r]);
      const uint16_t* from = mix.from + (uint64_t)variant * mix.variant_words;
      for (uint64_t i = 0; i < mix.count; ++i)
        mix.to[i] = from[(i + mix.shift) % mix.count] ^ support_mix_bits(i, mix.key);
    }
    return;
  }
  struct kernel_op ops[RANKS];
  const void* inputs[RANKS];
  for (int r = 0; r < RANKS; ++r) {
    ops[r] = step_op(chain, s, &places[r]);
    inputs[r] = ops[r].input;
  }
  for (int64_t t = 0; t < shape->tokens; ++t) {
    float* sums[RANKS];
    for (int r = 0; r < RANKS; ++r) {
      sums[r] = malloc((size_t)shape->hidden * sizeof **sums);
      CHECK(sums[r] == NULL);
      for (int64_t i = 0; i < shape->hidden; ++i) {
        const int64_t at = t * shape->hidden + i, index[RANKS] = {at, at};
        sums[r][i] = s->kind == KIND_EPILOGUE ? ref_load(inputs[r], at, shape->dtype)
                                              : ref_sum(inputs, index, RANKS, shape->dtype);
      }
    }
    for (int r = 0; r < RANKS; ++r) {
      if (s->kind == KIND_SUM) {
        for (int64_t i = 0; i < shape->hidden; ++i)
          ref_store(ops[r].allreduce_out, t * shape->hidden + i, sums[r][i], shape->dtype);
      } else {
        ref_epilogue_row(&ops[r], t, sums[r]);
      }
      free(sums[r]);
    }
  }
}

struct simulation {
  const struct chain* chain;
  int variant;
};

static void* simulate(void* argument) {
  const struct simulation* simulation = argument;
  const struct chain* chain = simulation->chain;
  struct place places[RANKS];
  for (int r = 0; r < RANKS; ++r) {
    places[r] = chain->host[r];
    places[r].arena += simulation->variant * BUFFERS * chain->bytes;
    memset(places[r].arena, 0xee, (size_t)(BUFFERS * chain->bytes));
  }
  for (int k = 0; k < STEPS; ++k) simulate_step(chain, &chain->steps[k], places, simulation->variant);
  return NULL;
}

/* ---------------------------------------------------------------- a chain's memory */

static void fill(unsigned char* p, int64_t count, arfusionDataType_t dtype) {
  for (int64_t i = 0; i < count; ++i) ref_store(p, i, (float)draw(65536) / 65536.0f - 0.5f, dtype);
}

static void chain_make(struct chain* chain, struct shape shape) {
  *chain = (struct chain){.shape = shape, .count = shape.tokens * shape.hidden};
  const int64_t size = kernel_element_size(shape.dtype);
  chain->bytes = chain->count * size;
  const size_t arena = (size_t)(BUFFERS * chain->bytes), data = (size_t)(VARIANTS * chain->bytes);
  const size_t gamma = (size_t)(shape.hidden * size);
  steps_draw(chain);
  for (int r = 0; r < RANKS; ++r) {
    struct place *host = &chain->host[r], *device = &chain->device[r];
    host->arena = malloc(VARIANTS * arena);
    host->data = malloc(data);
    host->gamma = malloc(gamma);
    CHECK(!host->arena || !host->data || !host->gamma);
    fill(host->data, VARIANTS * chain->count, shape.dtype);
    fill(host->gamma, shape.hidden, shape.dtype);
    rank_use(r);
    CHECK(cudaMalloc((void**)&device->arena, arena));
    CHECK(cudaMalloc((void**)&device->data, data));
    CHECK(cudaMalloc((void**)&device->gamma, gamma));
    CHECK(cudaMalloc((void**)&chain->expected[r], VARIANTS * arena));
    CHECK(cudaMalloc((void**)&chain->variant[r], sizeof *chain->variant[r]));
    CHECK(cudaMalloc((void**)&chain->found[r], sizeof *chain->found[r]));
    CHECK(cudaMemcpy(device->data, host->data, data, cudaMemcpyHostToDevice));
    CHECK(cudaMemcpy(device->gamma, host->gamma, gamma, cudaMemcpyHostToDevice));
  }
  pthread_t threads[VARIANTS];
  struct simulation simulations[VARIANTS];
  for (int v = 0; v < VARIANTS; ++v) {
    simulations[v] = (struct simulation){.chain = chain, .variant = v};
    CHECK(pthread_create(&threads[v], NULL, simulate, &simulations[v]));
  }
  for (int v = 0; v < VARIANTS; ++v) CHECK(pthread_join(threads[v], NULL));
  for (int r = 0; r < RANKS; ++r)
    CHECK(cudaMemcpy(chain->expected[r], chain->host[r].arena, VARIANTS * arena, cudaMemcpyHostToDevice));
}

static void chain_free(struct chain* chain) {
  for (int r = 0; r < RANKS; ++r) {
    const struct place *host = &chain->host[r], *device = &chain->device[r];
    free(host->arena);
    free(host->data);
    free(host->gamma);
    rank_use(r);
    void* const allocations[] = {device->arena,      device->data,      device->gamma,
                                 chain->expected[r], chain->variant[r], chain->found[r]};
    for (int i = 0; i < 6; ++i) CHECK(cudaFree(allocations[i]));
  }
}

/* ---------------------------------------------------------------- running it */

static struct manner manner_draw(enum style style) {
  const struct manner manners[] = {
      [STYLE_PLAIN] = {0},
      [STYLE_DEPENDENT] = {.flags = ARFUSION_FLAG_DEPENDENT_LAUNCH, .dependent = 1},
      [STYLE_TRIGGER] = {.flags = ARFUSION_FLAG_DEPENDENT_LAUNCH | ARFUSION_FLAG_EARLY_TRIGGER, .dependent = 1,
                         .trigger = 1, .delay_ns = 2000},
      [STYLE_RANDOM] = {.flags = draw(4), .dependent = (int)draw(2), .trigger = (int)draw(2),
                        .delay_ns = draw(2) ? (int)draw(20000) : 0},
  };
  return manners[style];
}

static int step_enqueue(const struct chain* chain, const struct step* s, int r, const struct manner* manner) {
  if (s->kind == KIND_OTHER) {
    struct support_mix mix = step_mix(chain, s, &chain->device[r]);
    mix.variant = mix.variant_words ? chain->variant[r] : NULL;
    mix.trigger = (uint32_t)manner->trigger;
    mix.delay_ns = (uint32_t)manner->delay_ns;
    return support_mix(&mix, manner->dependent, streams[r]) == 0;
  }
  const struct kernel_op op = step_op(chain, s, &chain->device[r]);
  arfusionRoute_t route = {.size = sizeof route};
  arfusionRequest_t request = {.size = sizeof request, .pattern = op.pattern, .dataType = op.dtype,
                               .gammaDataType = op.gamma_dtype, .algorithmHint = s->algorithm, .tokens = op.tokens,
                               .hidden = op.hidden, .flags = manner->flags, .eps = op.eps, .input = op.input,
                               .residualIn = op.residual_in, .gamma = op.gamma, .allreduceOut = op.allreduce_out,
                               .residualOut = op.residual_out, .normOut = op.norm_out};
  const arfusionResult_t result = s->kind == KIND_EPILOGUE
                                      ? plugin->epilogue(comms[r], &request, streams[r])
                                      : plugin->enqueue(comms[r], &request, streams[r], &route);
  if (result == arfusionSuccess && (s->kind == KIND_EPILOGUE || route.algorithm == s->algorithm)) return 1;
  printf("%s, algorithm %d: %s, reason %d\n", kinds[s->kind], (int)s->algorithm, plugin->getLastError(),
         (int)route.reason);
  return 0;
}

/* The steps, the comparison, and on to the next variant. */
static int chain_enqueue(const struct chain* chain, int r, enum style style) {
  int ok = 1;
  rank_use(r);
  for (int k = 0; k < STEPS; ++k) {
    const struct manner manner = manner_draw(style);
    ok &= step_enqueue(chain, &chain->steps[k], r, &manner);
  }
  const uint64_t bytes = BUFFERS * (uint64_t)chain->bytes;
  struct support_ranges ranges = {.count = 1, .variant = chain->variant[r]};
  ranges.range[0] = (struct support_range){
      .to = chain->device[r].arena, .from = chain->expected[r], .bytes = bytes, .variant_bytes = bytes};
  CHECK(support_compare(&ranges, chain->found[r], style != STYLE_PLAIN, streams[r]));
  CHECK(support_advance(chain->variant[r], VARIANTS, streams[r]));
  return ok;
}

static void chain_reset(const struct chain* chain) {
  for (int r = 0; r < RANKS; ++r) {
    rank_use(r);
    CHECK(cudaMemset(chain->device[r].arena, 0xee, (size_t)(BUFFERS * chain->bytes)));
    CHECK(cudaMemset(chain->variant[r], 0, sizeof *chain->variant[r]));
    CHECK(cudaMemset(chain->found[r], 0, sizeof *chain->found[r]));
    CHECK(cudaDeviceSynchronize());
  }
}

/* All runs went right, and there were as many as there should have been. */
static int chain_right(const struct chain* chain, int runs) {
  int right = 1;
  for (int r = 0; r < RANKS; ++r) {
    struct support_found found;
    uint32_t variant;
    arfusionResult_t async = arfusionSuccess;
    char text[256];
    CHECK(cudaStreamSynchronize(streams[r]));
    CHECK(cudaMemcpy(&found, chain->found[r], sizeof found, cudaMemcpyDeviceToHost));
    CHECK(cudaMemcpy(&variant, chain->variant[r], sizeof variant, cudaMemcpyDeviceToHost));
    if (found.vectors != 0) {
      const int buffer = (int)(~found.first * (int64_t)16 / chain->bytes);
      printf("rank %d: %u vectors of 16 bytes differ, the first in buffer %d\n", r, found.vectors, buffer);
    }
    if (variant != (uint32_t)(runs % VARIANTS)) printf("rank %d: variant %u after %d runs\n", r, variant, runs);
    CHECK(plugin->commGetAsyncError(comms[r], &async, text, sizeof text));
    if (async != arfusionSuccess) printf("rank %d: %s\n", r, text);
    right &= found.vectors == 0 && variant == (uint32_t)(runs % VARIANTS) && async == arfusionSuccess;
  }
  return right;
}

static void chain_print(const struct chain* chain) {
  for (int k = 0; k < STEPS; ++k) {
    const struct step* s = &chain->steps[k];
    printf("  step %d: %s, algorithm %d, in %d out %d residual in %d out %d\n", k, kinds[s->kind], (int)s->algorithm,
           s->in, s->out, s->residual_in, s->residual_out);
  }
}

static void report(const struct chain* chain, int ok, enum style style, const char* how) {
  char what[160];
  snprintf(what, sizeof what, "a chain of %lld x %lld, data type %d, %s, %s", (long long)chain->shape.tokens,
           (long long)chain->shape.hidden, (int)chain->shape.dtype, styles[style], how);
  expect(ok, what);
  if (!ok) chain_print(chain);
}

static void test_eager(const struct chain* chain, enum style style) {
  int ok = 1;
  chain_reset(chain);
  for (int run = 0; run < EAGER_RUNS; ++run) {
    for (int i = 0; i < RANKS; ++i) ok &= chain_enqueue(chain, (run + i) % RANKS, style);
  }
  report(chain, ok & chain_right(chain, EAGER_RUNS), style, "eagerly");
}

static void test_graph(const struct chain* chain, enum style style) {
  cudaGraphExec_t exec[RANKS];
  int ok = 1;
  chain_reset(chain);
  for (int r = 0; r < RANKS; ++r) {
    cudaGraph_t graph;
    rank_use(r);
    CHECK(cudaStreamBeginCapture(streams[r], cudaStreamCaptureModeThreadLocal));
    ok &= chain_enqueue(chain, r, style);
    CHECK(cudaStreamEndCapture(streams[r], &graph));
    CHECK(cudaGraphInstantiate(&exec[r], graph, 0));
    CHECK(cudaGraphDestroy(graph));
  }
  for (int run = 0; run < GRAPH_RUNS; ++run) {
    for (int i = 0; i < RANKS; ++i) {
      const int r = (run + i) % RANKS;
      rank_use(r);
      CHECK(cudaGraphLaunch(exec[r], streams[r]));
    }
  }
  report(chain, ok & chain_right(chain, GRAPH_RUNS), style, "in a graph");
  for (int r = 0; r < RANKS; ++r) CHECK(cudaGraphExecDestroy(exec[r]));
}

int main(int argc, char** argv) {
  /* One token a block and several, two a block, tokens by ticket, rows of several chunks, 4-byte elements. */
  static const struct shape shapes[] = {{arfusionBfloat16, 1, 4096},   {arfusionBfloat16, 24, 7168},
                                        {arfusionFloat16, 180, 1024},  {arfusionFloat16, 400, 512},
                                        {arfusionBfloat16, 1100, 256}, {arfusionBfloat16, 3, 16384},
                                        {arfusionFloat32, 20, 2880}};
  const uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
  if (ranks_find_gpus() == 0) {
    printf("no GPU\n");
    return 77;
  }
  limit_start(LIMIT_SECONDS);
  setenv("ARFUSION_TIMEOUT", "30", 1);
  CHECK(plugin->init(&ctx, NULL));
  CHECK(plugin->commInitAll(ctx, RANKS, NULL, NULL, comms));
  for (int r = 0; r < RANKS; ++r) {
    rank_use(r);
    CHECK(support_load());
    CHECK(cudaStreamCreateWithFlags(&streams[r], cudaStreamNonBlocking));
  }
  state = random_seed(seed, 0);
  printf("seed %llu, %d GPUs\n", (unsigned long long)seed, gpus);
  for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; ++i) {
    for (int structure = 0; structure < STRUCTURES; ++structure) {
      struct chain chain;
      chain_make(&chain, shapes[i]);
      for (int style = 0; style < STYLES; ++style) {
        test_eager(&chain, (enum style)style);
        test_graph(&chain, (enum style)style);
      }
      chain_free(&chain);
    }
  }
  for (int r = 0; r < RANKS; ++r) CHECK(plugin->commFinalize(comms[r]));
  CHECK(plugin->finalize(ctx));
  return finish();
}
