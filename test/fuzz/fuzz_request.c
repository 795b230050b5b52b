/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_request.c: requests under libFuzzer: any bytes, as a struct of any size. Its route is an error with a text or
 * an answer that is the same on both ranks. What is taken then runs on both, with buffers that are as large as the
 * request says and no larger: both give the same bits, or the same error.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "arfusion_plugin.h"
#include "test/fuzz/fuzz_logger.h"

extern const arfusionPlugin_v1_t arfusionPlugin_v1;
static const arfusionPlugin_v1_t* const plugin = &arfusionPlugin_v1;

enum { NRANKS = 2, STRIDE_SURPLUS = 65, OUTPUTS = 5 };
static void *ctx, *comms[NRANKS];

static void comms_make(void) {
  const arfusionConfig_t config = {.size = sizeof config, .maxTokens = 16, .hidden = 256, .dataType = arfusionFloat32};
  setenv("ARFUSION_DEVICE", "host", 1);
  setenv("ARFUSION_TIMEOUT", "5", 1);
  if (plugin->init(&ctx, no_logger) != arfusionSuccess) abort();
  if (plugin->commInitAll(ctx, NRANKS, NULL, &config, comms) != arfusionSuccess) abort();
}

static void check(arfusionResult_t result) {
  if (result < arfusionSuccess || result >= arfusionInProgress) abort();
  if (result != arfusionSuccess && plugin->getLastError()[0] == '\0') abort();
}

/* ---------------------------------------------------------------- buffers */

struct rank {
  arfusionRequest_t request;
  void *input, *residual, *gamma, *out[OUTPUTS];
  size_t bytes[OUTPUTS];
  int index;
  arfusionResult_t result;
};

static float one = 1.0f;

static int64_t element_bytes(arfusionDataType_t type) { return type == arfusionFloat32 ? 4 : 2; }

static void* filled(int64_t bytes, unsigned seed) {
  unsigned char* data = malloc(bytes > 0 ? (size_t)bytes : 1);
  if (!data) abort();
  for (int64_t i = 0; i < bytes; ++i) data[i] = (unsigned char)((seed = seed * 1103515245u + 12345u) >> 16);
  return data;
}

/* A stride that is too small stays so; one that is large becomes one that there is memory for. */
static void stride_bound(int64_t* stride, int64_t hidden) {
  if (*stride > hidden) *stride = hidden + *stride % STRIDE_SURPLUS;
}

static int64_t tensor_bytes(const arfusionRequest_t* request, int64_t stride) {
  if (request->tokens == 0) return 0;
  if (stride < request->hidden) stride = request->hidden;
  return ((request->tokens - 1) * stride + request->hidden) * element_bytes(request->dataType);
}

static void* output(struct rank* rank, int i, int wanted, int64_t bytes) {
  if (!wanted) return NULL;
  rank->bytes[i] = (size_t)bytes;
  return rank->out[i] = filled(bytes, 7);
}

/* The request with pointers: which there are, and which are the same, says `choice`. */
static void rank_make(struct rank* rank, int index, const arfusionRequest_t* request, unsigned choice) {
  arfusionRequest_t* own = &rank->request;
  memset(rank, 0, sizeof *rank);
  rank->index = index;
  *own = *request;
  stride_bound(&own->inputStride, own->hidden);
  stride_bound(&own->residualInStride, own->hidden);
  stride_bound(&own->residualOutStride, own->hidden);
  stride_bound(&own->normOutStride, own->hidden);
  const int64_t in_bytes = tensor_bytes(own, own->inputStride);
  const int64_t gamma_bytes = own->tokens ? own->hidden * element_bytes(own->gammaDataType) : 0;
  own->input = rank->input = filled(in_bytes, (unsigned)index + 1);
  own->residualIn = choice & 1 ? rank->residual = filled(tensor_bytes(own, own->residualInStride), 11) : NULL;
  own->gamma = choice & 2 ? NULL : (rank->gamma = filled(gamma_bytes, 13));
  own->fp8Scale = choice & 4 ? NULL : &one;
  own->nvfp4GlobalScale = choice & 8 ? NULL : &one;
  own->allreduceOut = output(rank, 0, own->pattern == arfusionPatternAllReduce, tensor_bytes(own, 0));
  own->residualOut = output(rank, 1, choice & 16, tensor_bytes(own, own->residualOutStride));
  own->normOut = output(rank, 2, choice & 32, tensor_bytes(own, own->normOutStride));
  own->quantOut = output(rank, 3, choice & 64, arfusionQuantOutBytes(own));
  own->scaleOut = output(rank, 4, choice & 128, arfusionScaleOutBytes(own));
  if ((choice & 256) && own->allreduceOut) own->allreduceOut = rank->input; /* in place */
  if ((choice & 256) && own->normOut && own->normOutStride == own->inputStride) own->normOut = rank->input;
  if ((choice & 512) && own->residualOut && own->residualIn && own->residualOutStride == own->residualInStride)
    own->residualOut = rank->residual;
}

static void rank_free(struct rank* rank) {
  free(rank->input);
  free(rank->residual);
  free(rank->gamma);
  for (int i = 0; i < OUTPUTS; ++i) free(rank->out[i]);
}

static void* rank_enqueue(void* argument) {
  struct rank* rank = argument;
  arfusionRoute_t route = {.size = sizeof route};
  rank->result = plugin->enqueue(comms[rank->index], &rank->request, NULL, &route);
  check(rank->result);
  if (rank->result == arfusionSuccess && route.algorithm == arfusionAlgoNone) abort(); /* route() said otherwise */
  return NULL;
}

static void run(const arfusionRequest_t* request, unsigned choice) {
  struct rank ranks[NRANKS];
  pthread_t thread;
  arfusionResult_t failed;
  for (int r = 0; r < NRANKS; ++r) rank_make(&ranks[r], r, request, choice);
  if (pthread_create(&thread, NULL, rank_enqueue, &ranks[1])) abort();
  rank_enqueue(&ranks[0]);
  pthread_join(thread, NULL);
  if (ranks[0].result != ranks[1].result) abort();
  if (plugin->commGetAsyncError(comms[0], &failed, NULL, 0) != arfusionSuccess || failed != arfusionSuccess) abort();
  for (int i = 0; i < OUTPUTS; ++i) {
    if (ranks[0].bytes[i] && memcmp(ranks[0].out[i], ranks[1].out[i], ranks[0].bytes[i])) abort();
  }
  check(plugin->epilogue(comms[0], &ranks[0].request, NULL));
  for (int r = 0; r < NRANKS; ++r) rank_free(&ranks[r]);
}

/* ---------------------------------------------------------------- any bytes */

static void check_route(const arfusionRoute_t* route) {
  if (route->algorithm <= arfusionAlgoAuto || route->algorithm >= ARFUSION_NUM_ALGORITHMS) abort();
  if ((route->algorithm == arfusionAlgoNone) != (route->reason != arfusionReasonNone)) abort();
  if (route->reason < 0 || route->reason >= ARFUSION_NUM_REASONS || route->launches < 0) abort();
}

/* What the plugin makes of a struct of `bytes` bytes; 1 if it is taken. */
static int route_any(const uint8_t* data, size_t bytes) {
  arfusionRoute_t routes[NRANKS] = {{.size = sizeof routes[0]}, {.size = sizeof routes[1]}};
  arfusionResult_t results[NRANKS];
  void* request = malloc(bytes); /* not a byte may be read beyond it */
  if (!request) abort();
  memcpy(request, data, bytes);
  memcpy(request, &bytes, sizeof bytes);
  for (int r = 0; r < NRANKS; ++r) {
    results[r] = plugin->route(comms[r], request, &routes[r]);
    check(results[r]);
  }
  if (results[0] != results[1] || (results[0] == arfusionSuccess && memcmp(&routes[0], &routes[1], sizeof routes[0])))
    abort();
  if (results[0] == arfusionSuccess) check_route(&routes[0]);
  const int taken = results[0] == arfusionSuccess && routes[0].algorithm != arfusionAlgoNone;
  if (!taken) { /* whatever its pointers are, nothing is touched */
    const arfusionResult_t result = plugin->enqueue(comms[0], request, NULL, &routes[0]);
    check(result);
    if (result == arfusionSuccess && routes[0].algorithm != arfusionAlgoNone) abort();
  }
  free(request);
  return taken;
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t bytes) {
  arfusionRequest_t request = {.size = sizeof request};
  if (bytes < 2 + sizeof(size_t) || bytes > 4096) return -1;
  if (!comms[0]) comms_make();
  const unsigned choice = data[0] | (unsigned)data[1] << 8;
  data += 2;
  bytes -= 2;
  if (!route_any(data, bytes)) return 0;
  memcpy(&request, data, bytes < sizeof request ? bytes : sizeof request);
  request.size = sizeof request;
  run(&request, choice);
  return 0;
}
