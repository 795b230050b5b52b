/* SPDX-License-Identifier: Apache-2.0
 *
 * arfusion_plugin.h: the plugin ABI, version 1.
 *
 * A plugin is a shared object that exports one data symbol, `arfusionPlugin_v1`, of type arfusionPlugin_v1_t: a table
 * of C functions. This header needs no other project's header and compiles as C11 and as C++17. Result codes, data
 * types and the reduction operation have NCCL's values.
 *
 * Order of calls
 *   init, devices, getProperties                         once a process, in this order
 *   getUniqueId, bootstrap...                            if the host has no all-gather of its own
 *   commInit (every rank) or commInitAll                 a communicator
 *   route, enqueue, epilogue                             any number of times
 *   commFinalize, bootstrapDestroy, finalize             in this order
 *
 * What is done: for each token (row) of `hidden` elements
 *   s = x_0 + x_1 + ... + x_{N-1}            the ranks' inputs, in rank order, fp32, rounded to the data type once
 *   y = s + residual_in                      -> residual_out
 *   n = y / sqrt(mean(y^2) + eps) * (weight_bias + gamma)          -> norm_out
 *   n quantized, if asked for                                      -> quantOut, scaleOut
 * with the same bits on every rank, with every algorithm, on GPUs and on the host.
 *
 * Structs. Each begins with its own `size`, which the caller sets to sizeof. A struct smaller than this plugin's is
 * read with its missing fields as 0; one that is larger is accepted if all bytes the plugin does not know are 0; one
 * smaller than version 1's (ARFUSION_*_V1_SIZE) is an error. Outputs are written up to the caller's size.
 *
 * Versions. As long as the symbol is arfusionPlugin_v1, later releases of this header
 *   - add fields and functions at the end of structs and of the table, values at the end of enums, and nothing else:
 *     what is there keeps its place, its number and its meaning, and a new input field that is 0 means what was done
 *     before it;
 *   - so a program and a plugin of different releases work together, each using what both have. A program looks at the
 *     table's `size` before it calls a function that is not in the first ARFUSION_PLUGIN_V1_SIZE bytes, and takes
 *     reasons and algorithms that it does not know for what their route says: turned down, or done.
 * Anything else is a new table with a symbol of its own (arfusionPlugin_v2), which a plugin may export beside this one.
 * libarfusion.so.1 follows the same rules: functions are added, none changes.
 *
 * Decisions are the same on every rank. A request's fields are either *agreed* or *local*:
 *
 *   agreed (must be equal on all ranks)              local (may differ)
 *   ------------------------------------             -----------------------------------------
 *   pattern, operation, dataType, gammaDataType      all pointers, and which outputs are NULL
 *   quantization, scaleLayout, groupSize             whether there is a residual
 *   tokens, hidden                                   alignment, row strides
 *   algorithmHint                                    eps, weightBias, flags, stream, capture
 *
 * Only agreed fields, and the configuration that all ranks agreed on at commInit, decide where a request goes. A local
 * field can make a call slower, or an error on that rank before anything is enqueued; it never changes the route. (eps
 * and weightBias are local because the normalisation is; ranks that differ in them get different norm_out.)
 *
 * Ranks whose agreed fields differ, or that call a different number of times, are wrong, and nobody looks for that:
 * results are undefined until a wait ends at ARFUSION_TIMEOUT. With ARFUSION_CHECK=1 on all ranks each request that is
 * taken is compared with the other ranks' before it begins; if they differ, it writes nothing and the communicator
 * fails on all of them with arfusionInvalidUsage, and with a text (commGetAsyncError) that names the ranks, the fields
 * and their values.
 *
 * Thread-safety. Functions without a communicator may be called from any thread. One thread at a time per communicator,
 * except commAbort and commGetAsyncError, which any thread may call at any time. The calling thread's current CUDA
 * device and capture mode are as before when a function returns.
 */
#ifndef ARFUSION_PLUGIN_H_
#define ARFUSION_PLUGIN_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define ARFUSION_PLUGIN_ABI_VERSION 1
#define ARFUSION_PLUGIN_SYMBOL "arfusionPlugin_v1"

#define ARFUSION_MAX_RANKS 16      /* of one communicator */
#define ARFUSION_MAX_HIDDEN 65536  /* elements of a row, pattern residual_rmsnorm */

/* ---------------------------------------------------------------- enums */

/* NCCL's result codes (ncclResult_t). */
typedef enum {
  arfusionSuccess = 0,
  arfusionUnhandledCudaError = 1, /* a CUDA call failed; getLastError says which */
  arfusionSystemError = 2,        /* the operating system: memory, sockets, files */
  arfusionInternalError = 3,      /* a bug in the plugin */
  arfusionInvalidArgument = 4,    /* getLastError names the argument and the limit */
  arfusionInvalidUsage = 5,       /* calls in the wrong order, ranks that disagree */
  arfusionRemoteError = 6,        /* another rank failed, left, or did not answer in time */
  arfusionInProgress = 7          /* never returned by version 1 */
} arfusionResult_t;

/* NCCL's data types (ncclDataType_t). The others of NCCL are known, and turned down. */
typedef enum {
  arfusionInt8 = 0,
  arfusionUint8 = 1,
  arfusionInt32 = 2,
  arfusionUint32 = 3,
  arfusionInt64 = 4,
  arfusionUint64 = 5,
  arfusionFloat16 = 6,  /* supported */
  arfusionFloat32 = 7,  /* supported */
  arfusionFloat64 = 8,
  arfusionBfloat16 = 9, /* supported */
  arfusionFloat8e4m3 = 10,
  arfusionFloat8e5m2 = 11
} arfusionDataType_t;

/* NCCL's reduction operations (ncclRedOp_t). */
typedef enum {
  arfusionSum = 0, /* supported */
  arfusionProd = 1,
  arfusionMax = 2,
  arfusionMin = 3,
  arfusionAvg = 4
} arfusionRedOp_t;

typedef enum {
  /* Flat: allreduceOut = sum of the inputs, tokens * hidden elements (any count, any element alignment, no strides). */
  arfusionPatternAllReduce = 0,
  /* Rows: sum, residual, RMSNorm, and quantization if asked for. */
  arfusionPatternResidualRmsNorm = 1
} arfusionPattern_t;

/* What is made of norm_out's values, with normOut or without. Element formats and scales are those of the serving
 * stacks:
 *   fp8        quantOut = e4m3(n / *fp8Scale), one byte an element; there is no scaleOut
 *   fp8_token  quantOut = e4m3(n / scale), with one fp32 scale a token, max(|n|) / 448, in scaleOut
 *   fp8_group  the same with a scale for each groupSize elements (a multiple of 8 that divides hidden), rounded up to a
 *              power of two. scaleOut has its exponent byte (ue8m0), four groups to a 32-bit word; words are
 *              column-major, the token count rounded up to 4 apart
 *   nvfp4      quantOut = e2m1 codes, two to a byte, the first one in the low half; in scaleOut one e4m3 scale for each
 *              16 elements (hidden is a multiple of 16; not from fp32), max(|n|) / 6 * *nvfp4GlobalScale
 * e4m3 and e2m1 saturate; a NaN is 0x7f or 7. Bytes of scaleOut that its layout leaves unused are written as 0. */
typedef enum {
  arfusionQuantNone = 0,
  arfusionQuantFp8 = 1,
  arfusionQuantFp8Token = 2,
  arfusionQuantFp8Group = 3,
  arfusionQuantNvfp4 = 4
} arfusionQuant_t;

/* Where nvfp4's scale of a token and a block of 16 elements is. Linear: row-major. 128x4: in tiles of 128 tokens by 4
 * blocks, 512 bytes each, row-major; in a tile at token % 32 * 16 + token % 128 / 32 * 4 + block % 4. */
typedef enum {
  arfusionScaleLinear = 0,
  arfusionScaleSwizzled128x4 = 1 /* nvfp4 only */
} arfusionScaleLayout_t;

typedef enum {
  arfusionAlgoAuto = 0,  /* as a hint: the plugin chooses */
  arfusionAlgoNone = 1,  /* as a route: turned down, nothing was done, see `reason` */
  arfusionAlgoEmpty = 2, /* as a route: no tokens, nothing to do, done */
  arfusionAlgoOneshotLamport = 3,
  arfusionAlgoOneshotSync = 4,
  arfusionAlgoTwoshot = 5
} arfusionAlgorithm_t;
#define ARFUSION_NUM_ALGORITHMS 6

/* Why a request was turned down. reasonString gives a sentence for each. `value` and `limit` of the route hold the two
 * numbers named in the comment. */
typedef enum {
  arfusionReasonNone = 0,
  arfusionReasonDataType = 1,         /* value: the data type */
  arfusionReasonOperation = 2,        /* value: the operation */
  arfusionReasonRankCount = 3,        /* value: ranks; limit: ARFUSION_MAX_RANKS */
  arfusionReasonHiddenAlignment = 4,  /* value: bytes of a row (nvfp4: hidden); limit: 16 */
  arfusionReasonHiddenTooLarge = 5,   /* value: hidden; limit: ARFUSION_MAX_HIDDEN */
  arfusionReasonWorkspace = 6,        /* value: bytes of the request (or of a row); limit: bytes that fit */
  arfusionReasonSeveralHosts = 7,     /* value: hosts; limit: 1 */
  arfusionReasonNoPeerAccess = 8,     /* value, limit: the first pair of ranks without it */
  arfusionReasonPeerWriteTest = 9,    /* value, limit: the first pair of ranks that failed */
  arfusionReasonQuantDataType = 10,   /* value: the quantization; limit: the data type */
  arfusionReasonGroupSize = 11,       /* value: groupSize; limit: hidden */
  arfusionReasonQuantUnsupported = 12,/* value: the quantization; this plugin does not have it */
  arfusionReasonAlgorithm = 13,       /* value: the one that was asked for; this device or size does not have it */
  arfusionReasonDisabled = 14,        /* turned off by configuration */
  arfusionReasonSlower = 15,          /* the alternative is faster (ARFUSION_PREFER=speed) */
  arfusionReasonNotReady = 16,        /* not set up yet */
  arfusionReasonDriver = 17,          /* the driver or GPU is too old; value: what it has; limit: what is needed */
  arfusionReasonGammaDataType = 18,   /* value: gammaDataType; limit: the data type */
  arfusionReasonSharedGpu = 19        /* several ranks on one GPU and ARFUSION_SHARED_GPU is not 1; value: the rank */
} arfusionReason_t;
#define ARFUSION_NUM_REASONS 20

/* Local launch flags. */
#define ARFUSION_FLAG_DEPENDENT_LAUNCH 1u /* may start before its predecessor on the stream has ended (sm_90 and up) */
#define ARFUSION_FLAG_EARLY_TRIGGER 2u    /* lets its successor start before its own epilogue has ended */

/* NCCL's log levels and subsystems (ncclDebugLogLevel, ncclDebugLogSubSys), as its logger takes them. */
typedef enum {
  arfusionLogNone = 0,
  arfusionLogVersion = 1,
  arfusionLogWarn = 2,
  arfusionLogInfo = 3,
  arfusionLogAbort = 4,
  arfusionLogTrace = 5
} arfusionLogLevel_t;
#define ARFUSION_LOG_INIT 0x1ul
#define ARFUSION_LOG_COLL 0x2ul
#define ARFUSION_LOG_P2P 0x4ul
#define ARFUSION_LOG_SHM 0x8ul
#define ARFUSION_LOG_GRAPH 0x20ul
#define ARFUSION_LOG_TUNING 0x40ul
#define ARFUSION_LOG_ENV 0x80ul
#define ARFUSION_LOG_BOOTSTRAP 0x1000ul

typedef void (*arfusionDebugLogger_t)(arfusionLogLevel_t level, unsigned long flags, const char* file, int line,
                                      const char* fmt, ...);

/* ---------------------------------------------------------------- structs */

typedef struct {
  size_t size;
  char name[64];      /* "NVIDIA H200", "host" */
  char pciBusId[20];  /* "0000:00:06.0"; "" for the host device */
  int isHost;         /* 1: memory is host memory, `stream` is ignored and calls are synchronous */
  int deviceOrdinal;  /* the CUDA ordinal; -1 for the host device */
  int computeMajor, computeMinor;
  int multiprocessors; /* of the GPU; processors available to this process on the host device */
  size_t memoryBytes;
} arfusionProperties_t;
#define ARFUSION_PROPERTIES_V1_SIZE 120

/* What a communicator is sized for. All fields are agreed. maxTokens * hidden elements of dataType is the largest
 * request, in bytes, that it serves, whatever that request's own shape; 0 in all three takes the default (16,384 x
 * 8,192 bf16). */
typedef struct {
  size_t size;
  int64_t maxTokens;
  int64_t hidden;
  arfusionDataType_t dataType;
  int reserved; /* 0 */
} arfusionConfig_t;
#define ARFUSION_CONFIG_V1_SIZE 32

/* Set-up talk between the ranks. The host fills this in, or a bootstrap... function does. `allGather` blocks until
 * every rank has called it with the same `bytes`: `recv` (nranks * bytes) then holds every rank's `send`, in rank
 * order. It returns arfusionSuccess or an error, alike on all ranks as far as it can. The plugin calls it from within
 * commInit only: a bootstrap may be destroyed once commInit has returned, or used on by the host. */
typedef struct {
  size_t size;
  int rank;
  int nranks;
  int nhosts; /* 0: not known, the plugin finds out. More than 1: allGather may be NULL; everything is turned down. */
  int reserved; /* 0 */
  void* opaque; /* handed to allGather */
  arfusionResult_t (*allGather)(void* opaque, const void* send, void* recv, size_t bytes);
} arfusionBootstrap_t;
#define ARFUSION_BOOTSTRAP_V1_SIZE 40

/* Made by one rank (getUniqueId), handed to all by any means, used for one communicator. Contains a secret. */
typedef struct {
  char internal[128];
} arfusionUniqueId_t;

/* One operation. Zero it, set `size`, then set what is needed. Memory is the device's (host memory on the host device)
 * and stays the caller's; it must stay valid until the operation has ended on the stream. Shapes are [tokens, hidden],
 * row-major. Pointers are aligned to their element; 16-byte alignment of pointers and strides is fastest. No output may
 * overlap another output or an input, except that normOut, residualOut or allreduceOut may be exactly `input`, and
 * residualOut exactly `residualIn` (same stride). */
typedef struct {
  size_t size;
  /* agreed */
  arfusionPattern_t pattern;
  arfusionRedOp_t operation;
  arfusionDataType_t dataType;      /* of input, residualIn, residualOut, normOut, allreduceOut */
  arfusionDataType_t gammaDataType; /* dataType or arfusionFloat32; ignored by pattern allreduce */
  arfusionQuant_t quantization;
  arfusionScaleLayout_t scaleLayout;
  arfusionAlgorithm_t algorithmHint; /* named: obeyed or turned down, never replaced */
  int groupSize;                     /* elements, fp8_group only */
  int64_t tokens;                    /* 0: arfusionAlgoEmpty */
  int64_t hidden;
  /* local */
  uint32_t flags; /* ARFUSION_FLAG_* */
  float eps;
  float weightBias; /* 0 for RMSNorm, 1 for Gemma's form */
  uint32_t reserved;
  /* Elements from one row to the next; 0: hidden. Quantized outputs are dense. All 0 for pattern allreduce. */
  int64_t inputStride;
  int64_t residualInStride;
  int64_t residualOutStride;
  int64_t normOutStride;
  const void* input;
  const void* residualIn;        /* NULL: none */
  const void* gamma;             /* [hidden]; not needed when neither normOut nor quantOut is asked for */
  const float* fp8Scale;         /* device pointer; n is DIVIDED by it (quantization fp8) */
  /* device pointer; block scales are MULTIPLIED by it (quantization nvfp4); positive, finite */
  const float* nvfp4GlobalScale;
  /* Outputs. residualOut and normOut may be NULL, but not both without a quantization. A quantization needs quantOut,
   * and scaleOut too unless it is fp8. */
  void* allreduceOut; /* pattern allreduce, and only that */
  void* residualOut;
  void* normOut;
  void* quantOut;
  void* scaleOut;
} arfusionRequest_t;
#define ARFUSION_REQUEST_V1_SIZE 184

/* Bytes that a request writes to quantOut and to scaleOut, from its agreed fields; 0 if it has no such output. Unused
 * bytes between and behind the scales are part of it. scaleOut is aligned to 4 bytes; with nvfp4 to nothing. */
static inline int64_t arfusionQuantOutBytes(const arfusionRequest_t* request) {
  if (request->quantization == arfusionQuantNone) return 0;
  const int64_t elements = request->tokens * request->hidden;
  return request->quantization == arfusionQuantNvfp4 ? elements / 2 : elements;
}

static inline int64_t arfusionScaleOutBytes(const arfusionRequest_t* request) {
  const int64_t tokens = request->tokens, blocks = request->hidden / 16;
  if (tokens <= 0) return 0;
  switch (request->quantization) {
    case arfusionQuantFp8Token: return tokens * 4;
    case arfusionQuantFp8Group: {
      if (request->groupSize <= 0) return 0;
      const int64_t words = (request->hidden / request->groupSize + 3) / 4;
      return ((words - 1) * ((tokens + 3) / 4 * 4) + tokens) * 4;
    }
    case arfusionQuantNvfp4:
      if (request->scaleLayout == arfusionScaleLinear) return tokens * blocks;
      return (tokens + 127) / 128 * ((blocks + 3) / 4) * 512;
    default: return 0;
  }
}

/* Where a request goes. */
typedef struct {
  size_t size;
  arfusionAlgorithm_t algorithm;
  arfusionReason_t reason; /* arfusionReasonNone unless algorithm is arfusionAlgoNone */
  int64_t value, limit;    /* see arfusionReason_t */
  int launches;            /* kernels: more than 1 when the request is larger than a buffer */
  int reserved;
} arfusionRoute_t;
#define ARFUSION_ROUTE_V1_SIZE 40

typedef struct {
  size_t size;
  int64_t maxRequestBytes; /* tokens * hidden * element: larger is turned down (arfusionReasonWorkspace) */
  int64_t maxLaunchBytes;  /* what one launch takes; larger requests go out as several */
  int64_t workspaceBytes;  /* device memory this rank holds */
  int64_t maxRowBytes;     /* hidden * element: larger is turned down */
} arfusionCapacity_t;
#define ARFUSION_CAPACITY_V1_SIZE 40

/* Where the ranks' workspaces are, as mapped into this process: device memory (host memory on the host device) that
 * stays the communicator's and must not be written. Valid until commFinalize. For interfaces that hand out such
 * addresses. */
typedef struct {
  size_t size;
  int nranks;            /* entries of `address` that are set; 0: nothing is mapped, all is turned down */
  int reserved;          /* 0 */
  int64_t bytes;         /* of each rank's */
  int64_t flagsOffset;   /* in each: what ranks wait for */
  int64_t lamportOffset; /* the Lamport slots */
  int64_t stageOffset;   /* what ranks stage for each other */
  void* address[ARFUSION_MAX_RANKS]; /* of each rank's; the own one too */
} arfusionWorkspace_t;
#define ARFUSION_WORKSPACE_V1_SIZE 176

/* Counters since commInit, on this rank. */
typedef struct {
  size_t size;
  uint64_t requests;                   /* enqueue calls that did not end in an error */
  uint64_t byAlgorithm[16];            /* index: arfusionAlgorithm_t */
  uint64_t byReason[64];               /* index: arfusionReason_t */
  uint64_t launches;                   /* kernels */
  uint64_t bytes;                      /* of input taken */
  uint64_t errors;                     /* enqueue calls that ended in an error */
  /* With ARFUSION_COUNT_NAN=1, else 0: elements that were NaN, of requests that were taken; on GPUs, of operations that
   * have ended. Outputs are all that a request has, fp8 codes too. A sum is NaN where any rank's input is (see the
   * other ranks' counters), or where infinities cancel; norm_out is where its row has a NaN. */
  uint64_t nanInputs, nanResiduals, nanOutputs;
} arfusionStats_t;
#define ARFUSION_STATS_V1_SIZE 680

/* ---------------------------------------------------------------- the table */

/* All functions return arfusionSuccess, or an error whose text getLastError gives. After an error outputs are
 * untouched, unless stated. `comm` and `ctx` are opaque. */
typedef struct {
  size_t size;      /* of this table */
  const char* name; /* "arfusion" */

  /* Starts the plugin. `logger` takes log lines (NCCL's logger type); NULL: stderr, at the level of ARFUSION_DEBUG.
   * Settings are read here: the environment, then the file NCCL_CONF_FILE or ~/.nccl.conf, then /etc/nccl.conf. May be
   * called several times; each context needs its finalize. The process has one logger: that of the last call that
   * brought one. */
  arfusionResult_t (*init)(void** ctx, arfusionDebugLogger_t logger);

  /* Number of devices: the CUDA devices, or 1 (the host) with ARFUSION_DEVICE=host or where there is no GPU. */
  arfusionResult_t (*devices)(void* ctx, int* ndev);

  /* Properties of device `dev` (0 to ndev - 1; CUDA ordinals). props->size is the caller's. */
  arfusionResult_t (*getProperties)(void* ctx, int dev, arfusionProperties_t* props);

  /* A fresh unique id. */
  arfusionResult_t (*getUniqueId)(void* ctx, arfusionUniqueId_t* id);

  /* Bootstraps between processes or threads of one host that share an id. Blocks until all ranks are there, or fails on
   * all that are when ARFUSION_INIT_TIMEOUT seconds have passed. */
  arfusionResult_t (*bootstrapUniqueId)(void* ctx, const arfusionUniqueId_t* id, int nranks, int rank,
                                        arfusionBootstrap_t* bootstrap);

  /* The same from torchrun's RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT. The n-th call in a process
   * meets the n-th call of the others. Sets *localRank (NULL: not wanted) to LOCAL_RANK, which is the device to use. */
  arfusionResult_t (*bootstrapEnvironment)(void* ctx, arfusionBootstrap_t* bootstrap, int* localRank);

  /* Frees what one of the two functions above made. */
  arfusionResult_t (*bootstrapDestroy)(void* ctx, arfusionBootstrap_t* bootstrap);

  /* Makes this rank's communicator on device `dev`. Blocks until every rank is in it. Fails alike on all ranks, within
   * ARFUSION_INIT_TIMEOUT, for bad arguments, disagreement, a missing rank or lack of memory. What can never be served
   * (several hosts, 1 or more than 16 ranks, no peer access, an old driver) succeeds with a communicator that turns
   * everything down with that reason. `config` may be NULL. Never call it while a stream is being captured. */
  arfusionResult_t (*commInit)(void* ctx, int dev, const arfusionConfig_t* config, const arfusionBootstrap_t* bootstrap,
                               void** comm);

  /* All ranks of a communicator in this process: comms[r] on devs[r] (NULL: r modulo the number of devices). */
  arfusionResult_t (*commInitAll)(void* ctx, int nranks, const int* devs, const arfusionConfig_t* config, void** comms);

  /* Where `request` would go; does nothing. Pointers are not looked at. */
  arfusionResult_t (*route)(void* comm, const arfusionRequest_t* request, arfusionRoute_t* route);

  /* Enqueues `request` on `stream` (a cudaStream_t; ignored on the host device, where the call is synchronous). Success
   * with route->algorithm == arfusionAlgoNone is a normal outcome: nothing was enqueued, written or allocated, and the
   * caller does it its own way. `route` may be NULL only if the caller does not care: then a request that is turned
   * down is arfusionInvalidUsage. Errors: a bad field (arfusionInvalidArgument; nothing was done), a failed
   * communicator.
   *
   * Streams and graphs: a communicator runs one operation at a time. Calls on several streams, or on branches of one
   * capture, are put in the order of the calls. A graph's replay against anything outside that graph, on another
   * stream, is the caller's to order; if two operations do run at once the communicator fails. The stream of the last
   * call must live until the next call has returned. */
  arfusionResult_t (*enqueue)(void* comm, const arfusionRequest_t* request, void* stream, arfusionRoute_t* route);

  /* Only what follows the sum: `request->input` already holds it (as ncclAllReduce leaves it). Reads and writes no
   * other rank's memory. Same fields, same errors; pattern residual_rmsnorm only; the sum may also stand in
   * residualOut. What the plugin cannot do (a data type, a hidden, a quantization) is arfusionInvalidArgument; with
   * tokens 0 nothing else is checked and nothing done, so that a host can ask first. */
  arfusionResult_t (*epilogue)(void* comm, const arfusionRequest_t* request, void* stream);

  /* Frees the communicator once this rank's enqueued work has ended. Never waits for another rank. */
  arfusionResult_t (*commFinalize)(void* comm);

  /* Ends this rank's running operations and those of its peers that wait for it. Any thread. The communicator has
   * failed from then on; commFinalize is still due. */
  arfusionResult_t (*commAbort)(void* comm);

  /* *result: arfusionSuccess, or why the communicator has failed. `text` (may be NULL) gets up to `bytes` characters:
   * which rank waited for which, and for what. A peer's failure shows once an operation of this rank has met it. Any
   * thread. */
  arfusionResult_t (*commGetAsyncError)(void* comm, arfusionResult_t* result, char* text, size_t bytes);

  arfusionResult_t (*commGetCapacity)(void* comm, arfusionCapacity_t* capacity);
  arfusionResult_t (*commGetStats)(void* comm, arfusionStats_t* stats);

  /* Reserved for registered buffers; NULL in version 1. */
  arfusionResult_t (*regBuffer)(void* comm, void* data, size_t bytes, void** handle);
  arfusionResult_t (*deregBuffer)(void* comm, void* handle);

  /* Ends the context. Its communicators must have been finalized. */
  arfusionResult_t (*finalize)(void* ctx);

  /* One sentence for a reason; "unknown reason" for other values. Static memory. */
  const char* (*reasonString)(arfusionReason_t reason);

  /* The text of the calling thread's last error; "" if there was none. Valid until this thread's next call. */
  const char* (*getLastError)(void);

  arfusionResult_t (*commGetWorkspace)(void* comm, arfusionWorkspace_t* workspace);

  /* Ends the all-gathers, running and later ones, of a bootstrap that bootstrapUniqueId or bootstrapEnvironment made:
   * here at once, on the other ranks as soon as they come to one. Any thread, until bootstrapDestroy, which is still
   * due. */
  arfusionResult_t (*bootstrapAbort)(void* ctx, const arfusionBootstrap_t* bootstrap);

  /* A host's own default for a setting ("ARFUSION_TIMEOUT", "0"): counts unless the environment or a file has a value.
   * For communicators made afterwards, on all ranks alike. */
  arfusionResult_t (*setDefault)(void* ctx, const char* name, const char* value);
} arfusionPlugin_v1_t;
#define ARFUSION_PLUGIN_V1_SIZE 208

#ifdef __cplusplus
}
#endif
#endif
