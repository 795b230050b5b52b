/* SPDX-License-Identifier: Apache-2.0
 *
 * launch.cu: the C interface of the CUDA kernels.
 */
#include <string.h>

#include "kernels/cuda/cuda_internal.h"
#include "kernels/cuda/check.cuh"
#include "kernels/cuda/nan.cuh"
#include "kernels/cuda/peer_test.cuh"

#define MIN_SLOT_BYTES (64 << 10)
#define SLOT_ALIGNMENT 1024 /* two halves of whole ranges, see twoshot.cuh */
#define LAMPORT_BUFFERS 2
#define SYNC_HALVES 2
#define SYNC_SHARE 20 /* a half is this part of the limit: 256 MiB at TP2 within 288 still take two one-shot launches */
#define LARGEST_GRID 65536 /* blocks of kernels that wait for nobody */
#define FEW_ROUNDS 4       /* tokens of a block up to which max_blocks_of_few_tokens holds */
#define TICKET_ROUNDS 8    /* tokens of a block from which taking them by ticket pays */
#define FILL_BLOCKS 1024
#define NAN_BLOCKS 1024
#define FILL_THREADS 256
#define NVFP4_BLOCK 16 /* elements of a scale */

struct fill_args {
  unsigned char* start;
  uint64_t vectors;
};

static_assert(offsetof(struct cuda_control, staged) == 256, "two cache lines");
static_assert(PEER_TEST_SLOT_WORDS * 4 <= MIN_SLOT_BYTES && ARFUSION_MAX_RANKS * PEER_TEST_WORDS * 4 <= MIN_SLOT_BYTES,
              "the test of peer memory fits the smallest slots");

/* ---------------------------------------------------------------- workspace */

/* The slot for requests of `wanted` bytes where there is room for `room`, or the smallest. */
static int64_t slot_fit(int64_t wanted, int64_t room) {
  const int64_t whole = (wanted + SLOT_ALIGNMENT - 1) / SLOT_ALIGNMENT * SLOT_ALIGNMENT;
  const int64_t fit = room / SLOT_ALIGNMENT * SLOT_ALIGNMENT;
  const int64_t slot = whole < fit ? whole : fit;
  return slot < MIN_SLOT_BYTES ? MIN_SLOT_BYTES : slot;
}

void cuda_layout_compute(struct cuda_layout* layout, int nranks, int64_t max_request_bytes, int64_t limit_bytes) {
  const int64_t slots = LAMPORT_BUFFERS * (nranks - 1);
  const int64_t sync_slot = slot_fit(max_request_bytes, limit_bytes / SYNC_SHARE);
  const int64_t left = limit_bytes - (int64_t)sizeof(struct cuda_control) - SYNC_HALVES * sync_slot;
  const int64_t lamport_slot = slot_fit(max_request_bytes, left / slots);
  layout->nranks = nranks;
  layout->control = 0;
  layout->lamport = sizeof(struct cuda_control);
  layout->lamport_slot = (size_t)lamport_slot;
  layout->stage = layout->lamport + (size_t)(slots * lamport_slot);
  layout->sync_slot = (size_t)sync_slot;
  layout->total = layout->stage + (size_t)(SYNC_HALVES * sync_slot);
}

size_t cuda_layout_launch_bytes(const struct cuda_layout* layout, arfusionAlgorithm_t algorithm) {
  switch (algorithm) {
    case arfusionAlgoOneshotLamport: return layout->lamport_slot;
    case arfusionAlgoOneshotSync: return layout->sync_slot;
    case arfusionAlgoTwoshot: return layout->lamport_slot / 2 * (size_t)layout->nranks;
    default: return 0;
  }
}

/* `vectors` of 16 bytes at p become sentinels. */
static KERNEL(FILL_THREADS) workspace_fill(KERNEL_ARGUMENT(struct fill_args) a) {
  struct vec sentinel = {{KERNEL_SENTINEL, KERNEL_SENTINEL, KERNEL_SENTINEL, KERNEL_SENTINEL}};
  const uint64_t step = (uint64_t)device_blocks() * device_threads();
  for (uint64_t i = (uint64_t)device_block() * device_threads() + device_thread(); i < a.vectors; i += step) {
    device_store(a.start + i * CUDA_VECTOR, sentinel);
  }
}

static KERNEL(1) failure_tell(KERNEL_ARGUMENT(struct exchange_args) a) {
  struct exchange x;
  exchange_read(a, &x);
  exchange_record(a, x, KERNEL_FAILURE_ABORT, a.rank, 0);
}

/* ---------------------------------------------------------------- the kernels */

/* NULL: a data type that has none. */
static const struct cuda_rows_kernels* rows_kernels_of(arfusionDataType_t dtype, bool quantized) {
  switch (dtype) {
    case arfusionBfloat16: return quantized ? &cuda_quant_bf16 : &cuda_rows_bf16;
    case arfusionFloat16: return quantized ? &cuda_quant_fp16 : &cuda_rows_fp16;
    case arfusionFloat32: return quantized ? &cuda_quant_fp32 : &cuda_rows_fp32;
    default: return NULL;
  }
}

static const struct cuda_flat_kernels* flat_kernels_of(arfusionDataType_t dtype) {
  switch (dtype) {
    case arfusionBfloat16: return &cuda_flat_bf16;
    case arfusionFloat16: return &cuda_flat_fp16;
    case arfusionFloat32: return &cuda_flat_fp32;
    default: return NULL;
  }
}

static enum cuda_variant variant_of(int nranks, int aligned) {
  if (!aligned) return CUDA_UNALIGNED;
  return nranks == 2 ? CUDA_RANKS_2 : nranks == 4 ? CUDA_RANKS_4 : nranks == 8 ? CUDA_RANKS_8 : CUDA_RANKS_ANY;
}

/* Asking for a kernel's attributes loads it. */
static int kernel_load(const void* kernel, int threads) {
  struct cudaFuncAttributes attributes;
  const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
  if (error != cudaSuccess) return error;
  return attributes.maxThreadsPerBlock < threads ? cudaErrorLaunchOutOfResources : cudaSuccess;
}

static int rows_kernels_load(const struct cuda_rows_kernels* kernels, int nranks) {
  int error = 0;
  for (int aligned = 0; aligned < 2; ++aligned) {
    const enum cuda_variant variant = variant_of(nranks, aligned);
    for (int second = 0; second < 2; ++second) { /* of two tokens a block; of rows of several chunks */
      const void* few = kernels->lamport_short[variant][second];
      if (!error && few) error = kernel_load(few, CUDA_GROUP_PACKS);
      if (!error) error = kernel_load(kernels->lamport[variant][second], CUDA_GROUP_PACKS);
      if (!error) error = kernel_load(kernels->twoshot[variant][second], CUDA_GROUP_PACKS);
      if (!error) error = kernel_load(kernels->sync[aligned][second], CUDA_GROUP_PACKS);
      if (!error) error = kernel_load(kernels->epilogue[aligned][second], CUDA_GROUP_PACKS);
    }
  }
  return error;
}

static int flat_kernels_load(const struct cuda_flat_kernels* kernels, int nranks) {
  int error = 0;
  for (int aligned = 0; aligned < 2; ++aligned) {
    const enum cuda_variant variant = variant_of(nranks, aligned);
    if (!error) error = kernel_load(kernels->lamport[variant], CUDA_GROUP_PACKS);
    if (!error) error = kernel_load(kernels->twoshot[variant], CUDA_GROUP_PACKS);
    if (!error) error = kernel_load(kernels->sync[aligned], CUDA_GROUP_PACKS);
  }
  return error;
}

int cuda_kernels_load(int nranks) {
  static const arfusionDataType_t dtypes[] = {arfusionBfloat16, arfusionFloat16, arfusionFloat32};
  int error = kernel_load((const void*)workspace_fill, FILL_THREADS);
  if (!error) error = kernel_load((const void*)failure_tell, 1);
  if (!error) error = kernel_load((const void*)peer_test, PEER_TEST_THREADS);
  if (!error) error = kernel_load((const void*)check_calls, CHECK_THREADS);
  if (!error) error = kernel_load((const void*)nan_count, NAN_THREADS);
  for (int d = 0; d < 3; ++d) {
    if (!error) error = rows_kernels_load(rows_kernels_of(dtypes[d], false), nranks);
    if (!error) error = rows_kernels_load(rows_kernels_of(dtypes[d], true), nranks);
    if (!error) error = flat_kernels_load(flat_kernels_of(dtypes[d]), nranks);
  }
  return error;
}

/* ---------------------------------------------------------------- arguments */

static int is_aligned(const void* p, int64_t stride_bytes) {
  return p == NULL || ((uintptr_t)p | (uint64_t)stride_bytes) % CUDA_VECTOR == 0;
}

/* Returns whether all pointers and strides are aligned to CUDA_VECTOR. */
static int rows_fill(struct rows_args* rows, const struct kernel_op* op) {
  const int64_t size = kernel_element_size(op->dtype), packs = kernel_packs(op->hidden);
  rows->input = (const unsigned char*)op->input;
  rows->residual_in = (const unsigned char*)op->residual_in;
  rows->gamma = (const unsigned char*)op->gamma;
  rows->residual_out = (unsigned char*)op->residual_out;
  rows->norm_out = (unsigned char*)op->norm_out;
  rows->input_stride = op->input_stride * size;
  rows->residual_in_stride = op->residual_in_stride * size;
  rows->residual_out_stride = op->residual_out_stride * size;
  rows->norm_out_stride = op->norm_out_stride * size;
  rows->tokens = op->tokens;
  rows->vectors = (uint32_t)(op->hidden * size / CUDA_VECTOR);
  rows->slot_vectors = (uint32_t)(packs * KERNEL_PACK * size / CUDA_VECTOR);
  rows->chunks = (uint32_t)((packs + CUDA_GROUP_PACKS - 1) / CUDA_GROUP_PACKS);
  rows->inv_hidden = 1.0f / (float)op->hidden;
  rows->eps = op->eps;
  rows->weight_bias = op->weight_bias;
  rows->gamma_fp32 = op->gamma_dtype == arfusionFloat32;
  return is_aligned(op->input, rows->input_stride) && is_aligned(op->residual_in, rows->residual_in_stride) &&
         is_aligned(op->gamma, 0) && is_aligned(op->residual_out, rows->residual_out_stride) &&
         is_aligned(op->norm_out, rows->norm_out_stride);
}

/* Completes what rows_fill has begun. Returns whether the outputs are aligned to what is stored at a time. */
static int quant_fill(struct quant_args* quant, const struct kernel_op* op, const struct rows_args* rows) {
  const uint32_t per_vector = CUDA_VECTOR / kernel_element_size(op->dtype);
  *quant = (struct quant_args){};
  quant->kind = op->quantization;
  if (!op->quant_out) return 1;
  quant->tiles = op->scale_layout == arfusionScaleSwizzled128x4;
  quant->group_vectors = op->quantization == arfusionQuantFp8         ? 1
                         : op->quantization == arfusionQuantFp8Token ? rows->vectors
                         : op->quantization == arfusionQuantFp8Group ? (uint32_t)op->group_size / per_vector
                                                                     : NVFP4_BLOCK / per_vector;
  const uint32_t vectors = quant->group_vectors;
  quant->groups = rows->vectors / vectors;
  quant->group_factor = vectors == 1 ? 0 : (uint32_t)(((uint64_t)1 << 32) / vectors + 1);
  quant->lanes =
      (vectors & (vectors - 1)) == 0 && vectors <= 32 && op->quantization != arfusionQuantFp8Token ? vectors : 0;
  quant->scale = (const unsigned char*)op->quant_scale;
  quant->codes = (unsigned char*)op->quant_out;
  quant->scales = (unsigned char*)op->scale_out;
  quant->first_token = op->first_token;
  quant->all_tokens = op->all_tokens;
  return (uintptr_t)op->quant_out % 8 == 0 && (uintptr_t)op->scale_out % 4 == 0;
}

/* Threads of a block that works on rows: one for each pack, in whole warps. */
static uint32_t rows_threads(int64_t hidden) {
  const int64_t packs = (kernel_packs(hidden) + 31) / 32 * 32;
  return (uint32_t)(packs < CUDA_GROUP_PACKS ? packs : CUDA_GROUP_PACKS);
}

static struct cuda_control* control_of(const struct cuda_comm* comm, int rank) {
  return (struct cuda_control*)((unsigned char*)comm->workspace[rank] + comm->layout.control);
}

static void exchange_fill(struct exchange_args* exchange, const struct cuda_comm* comm, arfusionAlgorithm_t algorithm) {
  const struct cuda_layout* layout = &comm->layout;
  const int n = comm->nranks, rank = comm->rank;
  unsigned char* own = (unsigned char*)comm->workspace[rank];
  exchange->control = control_of(comm, rank);
  exchange->receive = own + layout->lamport;
  exchange->slot = layout->lamport_slot;
  exchange->buffer = layout->lamport_slot * (uint64_t)(n - 1);
  for (int k = 0; k < n - 1; ++k) {
    const int peer = rank + 1 + k < n ? rank + 1 + k : rank + 1 + k - n;
    unsigned char* base = (unsigned char*)comm->workspace[peer];
    exchange->peer_control[k] = control_of(comm, peer);
    exchange->send[k] = base + layout->lamport + (size_t)(rank < peer ? rank : rank - 1) * layout->lamport_slot;
  }
  const uint64_t units = (comm->timeout_ns + CUDA_CLOCK_NS - 1) / CUDA_CLOCK_NS;
  exchange->timeout = units < UINT32_MAX ? (uint32_t)units : UINT32_MAX;
  exchange->abort = comm->abort;
  exchange->failure = comm->failure;
  exchange->rank = rank;
  exchange->nranks = n;
  exchange->algorithm = (uint32_t)algorithm;
  exchange->divide_shift = n <= 2 ? 0 : n <= 4 ? 1 : n <= 8 ? 2 : 3;
  exchange->divide_factor = (uint32_t)(((uint64_t)1 << (32 + exchange->divide_shift)) / (uint32_t)n + 1);
}

static void stage_fill(struct sync_stage* stage, const struct cuda_comm* comm) {
  for (int r = 0; r < comm->nranks; ++r) stage->of[r] = (unsigned char*)comm->workspace[r] + comm->layout.stage;
  stage->half = comm->layout.sync_slot;
}

/* The largest grid of blocks of any size. Equal on all ranks. */
static int most_blocks(const struct cuda_comm* comm, arfusionAlgorithm_t algorithm) {
  const bool flagged = algorithm == arfusionAlgoOneshotSync && comm->max_blocks > CUDA_SYNC_BLOCKS;
  return flagged ? CUDA_SYNC_BLOCKS : comm->max_blocks;
}

/* Blocks of a kernel that works on rows. Equal on all ranks. The limits are meant for the largest blocks: of half their
 * size, two are resident at once and have as many bytes under way. (One-shot sync only loses by it. On a shared GPU the
 * blocks of 16 ranks would be on every multiprocessor, and not all kernels can be beside those of others.) */
static uint32_t rows_blocks(const struct cuda_comm* comm, arfusionAlgorithm_t algorithm, int64_t tokens,
                            uint32_t threads) {
  const bool doubled = algorithm != arfusionAlgoOneshotSync && threads <= CUDA_GROUP_PACKS / 2 && !comm->shared_gpu;
  const int64_t times = doubled ? 2 : 1;
  const int64_t usual = most_blocks(comm, algorithm) * times, few = comm->max_blocks_of_few_tokens * times;
  if (algorithm == arfusionAlgoOneshotLamport) {
    const int64_t rounds = (tokens + few - 1) / few;
    if (rounds == 1) return (uint32_t)tokens;
    if (rounds <= FEW_ROUNDS && rounds < (tokens + usual - 1) / usual) return (uint32_t)few;
  }
  return (uint32_t)(tokens < usual ? tokens : usual);
}

/* ---------------------------------------------------------------- launches */

static int launch(const void* kernel, uint32_t blocks, uint32_t threads, int dependent, void* argument, void* stream) {
  cudaLaunchAttribute attribute;
  cudaLaunchConfig_t config = {};
  void* arguments[] = {argument};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  config.gridDim.x = blocks;
  config.gridDim.y = config.gridDim.z = 1;
  config.blockDim.x = threads;
  config.blockDim.y = config.blockDim.z = 1;
  config.stream = (cudaStream_t)stream;
  config.attrs = &attribute;
  config.numAttrs = dependent ? 1 : 0;
  return cudaLaunchKernelExC(&config, kernel, arguments);
}

int cuda_workspace_reset(const struct cuda_comm* comm, void* stream) {
  const struct cuda_layout* layout = &comm->layout;
  unsigned char* base = (unsigned char*)comm->workspace[comm->rank];
  struct fill_args args = {base + layout->lamport, (layout->total - layout->lamport) / CUDA_VECTOR};
  const cudaError_t error =
      cudaMemsetAsync(base + layout->control, 0, sizeof(struct cuda_control), (cudaStream_t)stream);
  return error ? error : launch((const void*)workspace_fill, FILL_BLOCKS, FILL_THREADS, 0, &args, stream);
}

static unsigned char* slot_of(const struct cuda_comm* comm, int reader, int sender) {
  unsigned char* first = (unsigned char*)comm->workspace[reader] + comm->layout.lamport;
  return first + (size_t)(sender < reader ? sender : sender - 1) * comm->layout.lamport_slot;
}

static uint32_t* stage_of(const struct cuda_comm* comm, int writer, int reader) {
  return (uint32_t*)((unsigned char*)comm->workspace[writer] + comm->layout.stage) + (size_t)reader * PEER_TEST_WORDS;
}

int cuda_peer_test(const struct cuda_comm* comm, uint32_t lost, uint64_t limit_ns, uint32_t* failed, void* stream) {
  struct peer_test_args args = {};
  args.limit_ns = limit_ns;
  args.failed = failed;
  args.rank = (uint32_t)comm->rank;
  for (int k = 0; k < comm->nranks - 1; ++k) {
    const int peer = (comm->rank + 1 + k) % comm->nranks;
    struct peer_test_pair* pair = &args.pairs[k];
    pair->peer = (uint32_t)peer;
    pair->is_lost = lost >> peer & 1;
    pair->send = (uint32_t*)slot_of(comm, peer, comm->rank);
    pair->receive = (uint32_t*)slot_of(comm, comm->rank, peer);
    pair->stage_own = stage_of(comm, comm->rank, peer);
    pair->stage_peer = stage_of(comm, peer, comm->rank);
  }
  return launch((const void*)peer_test, (uint32_t)comm->nranks - 1, PEER_TEST_THREADS, 0, &args, stream);
}

int cuda_comm_tell_peers(const struct cuda_comm* comm, void* stream) {
  struct exchange_args args;
  exchange_fill(&args, comm, arfusionAlgoNone);
  return launch((const void*)failure_tell, 1, 1, 0, &args, stream);
}

int cuda_launch_check(const struct cuda_comm* comm, arfusionAlgorithm_t algorithm, const struct kernel_call* call,
                      void* stream) {
  struct check_args args;
  exchange_fill(&args.exchange, comm, algorithm);
  memcpy(args.words, call, sizeof args.words);
  return launch((const void*)check_calls, 1, CHECK_THREADS, 0, &args, stream);
}

const uint64_t* cuda_nan_counts(const struct cuda_comm* comm) { return control_of(comm, comm->rank)->nans; }

int cuda_launch_nan_count(const struct cuda_comm* comm, const struct kernel_op* op, int written, void* stream) {
  struct nan_args args = {};
  args.count = nan_tensors(op, written, args.tensors);
  args.control = control_of(comm, comm->rank);
  if (args.count == 0) return cudaSuccess;
  const int64_t rows = args.tensors[0].rows;
  return launch((const void*)nan_count, (uint32_t)(rows < NAN_BLOCKS ? rows : NAN_BLOCKS), NAN_THREADS, 0, &args,
                stream);
}

/* The kernel for one-shot Lamport in a grid of `blocks`; completes `request`. */
static const void* lamport_choose(const struct cuda_comm* comm, const struct cuda_rows_kernels* kernels,
                                  const struct kernel_op* op, int aligned, uint32_t blocks,
                                  struct lamport_rows_args* request) {
  const int chunked = request->rows.chunks > 1;
  const enum cuda_variant variant = variant_of(comm->nranks, aligned);
  const uint64_t vectors = LAMPORT_BUFFERS * request->exchange.buffer / CUDA_VECTOR;
  /* Which block does which token depends on nothing that only one rank knows. */
  request->by_ticket = !chunked && op->tokens >= (int64_t)TICKET_ROUNDS * blocks &&
                       (comm->nranks == 2 || comm->nranks == 4) && op->dtype != arfusionFloat32;
  if (!chunked && op->tokens <= 2 * (int64_t)blocks && vectors <= UINT32_MAX) { /* lamport_short counts in 32 bits */
    const void* few = kernels->lamport_short[variant][op->tokens > blocks];
    if (few) return few;
  }
  return kernels->lamport[variant][chunked];
}

static int launch_rows(const struct cuda_comm* comm, arfusionAlgorithm_t algorithm, const struct kernel_op* op,
                       uint32_t flags, void* stream) {
  const struct cuda_rows_kernels* kernels = rows_kernels_of(op->dtype, op->quant_out != NULL);
  struct sync_rows_args args;
  exchange_fill(&args.request.exchange, comm, algorithm);
  stage_fill(&args.stage, comm);
  args.request.by_ticket = 0;
  const int rows_aligned = rows_fill(&args.request.rows, op), chunked = args.request.rows.chunks > 1;
  const int aligned = quant_fill(&args.request.quant, op, &args.request.rows) && rows_aligned;
  /* Rows that wait in the workspace for their second pass keep it busy until the end. */
  const bool spares = chunked && op->quant_out && !op->residual_out && !op->norm_out;
  args.request.early_trigger = (flags & ARFUSION_FLAG_EARLY_TRIGGER) && !spares;
  const uint32_t threads = rows_threads(op->hidden), blocks = rows_blocks(comm, algorithm, op->tokens, threads);
  const void* kernel = algorithm == arfusionAlgoOneshotLamport
                           ? lamport_choose(comm, kernels, op, aligned, blocks, &args.request)
                       : algorithm == arfusionAlgoTwoshot
                           ? kernels->twoshot[variant_of(comm->nranks, aligned)][chunked]
                           : kernels->sync[aligned][chunked];
  return launch(kernel, blocks, threads, (flags & ARFUSION_FLAG_DEPENDENT_LAUNCH) != 0, &args, stream);
}

static int launch_flat(const struct cuda_comm* comm, arfusionAlgorithm_t algorithm, const struct kernel_op* op,
                       uint32_t flags, void* stream) {
  const struct cuda_flat_kernels* kernels = flat_kernels_of(op->dtype);
  struct sync_flat_args args;
  exchange_fill(&args.request.exchange, comm, algorithm);
  stage_fill(&args.stage, comm);
  args.request.input = (const unsigned char*)op->input;
  args.request.output = (unsigned char*)op->allreduce_out;
  args.request.count = op->hidden;
  const int aligned = is_aligned(op->input, 0) && is_aligned(op->allreduce_out, 0);
  /* Few vectors: small blocks on many multiprocessors. Many: blocks as large as they can be. */
  const int64_t per_vector = CUDA_VECTOR / kernel_element_size(op->dtype);
  const int64_t vectors = (op->hidden + per_vector - 1) / per_vector;
  const int most = most_blocks(comm, algorithm);
  const int64_t share = (vectors + most - 1) / most;
  const int64_t threads = share <= 128 ? 128 : share >= CUDA_GROUP_PACKS ? CUDA_GROUP_PACKS : (share + 31) / 32 * 32;
  const int64_t needed = (vectors + threads - 1) / threads;
  const enum cuda_variant variant = variant_of(comm->nranks, aligned);
  const void* kernel = algorithm == arfusionAlgoOneshotSync ? kernels->sync[aligned]
                       : algorithm == arfusionAlgoTwoshot   ? kernels->twoshot[variant]
                                                            : kernels->lamport[variant];
  return launch(kernel, (uint32_t)(needed < most ? needed : most), (uint32_t)threads,
                (flags & ARFUSION_FLAG_DEPENDENT_LAUNCH) != 0, &args, stream);
}

int cuda_launch(const struct cuda_comm* comm, arfusionAlgorithm_t algorithm, const struct kernel_op* op, void* stream) {
  const uint32_t flags = comm->compute_major < 9 || comm->shared_gpu ? 0 : op->flags;
  const size_t bytes = cuda_layout_launch_bytes(&comm->layout, algorithm);
  if (!flat_kernels_of(op->dtype) || op->tokens > INT32_MAX) return cudaErrorInvalidValue;
  if ((uint64_t)kernel_slot_bytes(op->tokens, op->hidden, op->dtype) > bytes) return cudaErrorInvalidValue;
  return op->pattern == arfusionPatternAllReduce ? launch_flat(comm, algorithm, op, flags, stream)
                                                 : launch_rows(comm, algorithm, op, flags, stream);
}

int cuda_launch_epilogue(const struct kernel_op* op, int compute_major, void* stream) {
  const struct cuda_rows_kernels* kernels = rows_kernels_of(op->dtype, op->quant_out != NULL);
  struct epilogue_args args;
  if (!kernels) return cudaErrorInvalidValue;
  const int rows_aligned = rows_fill(&args.rows, op);
  const int aligned = quant_fill(&args.quant, op, &args.rows) && rows_aligned;
  return launch(kernels->epilogue[aligned][args.rows.chunks > 1],
                (uint32_t)(op->tokens < LARGEST_GRID ? op->tokens : LARGEST_GRID), rows_threads(op->hidden),
                compute_major >= 9 && (op->flags & ARFUSION_FLAG_DEPENDENT_LAUNCH), &args, stream);
}
