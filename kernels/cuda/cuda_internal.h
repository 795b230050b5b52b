/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_internal.h: what the launchers hand to the kernels, and the words at the start of a workspace.
 */
#ifndef ARFUSION_KERNELS_CUDA_INTERNAL_H_
#define ARFUSION_KERNELS_CUDA_INTERNAL_H_

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/nan.h"

#define CUDA_VECTOR 16        /* bytes of one access */
#define CUDA_GROUP_PACKS 1024 /* packs of a canonical group: one a thread */
#define CUDA_MAX_CHUNKS (ARFUSION_MAX_HIDDEN / KERNEL_PACK / CUDA_GROUP_PACKS)
#define CUDA_SYNC_BLOCKS 256  /* the largest grid of one-shot sync: each block has its flags */

/* An epoch is counted in the upper bits of its word: 48, which last for 8 years at a million operations a second. */
#define CUDA_EPOCH 0x10000ull

/* Waits are timed by a clock of 32 bits that counts some milliseconds and wraps after 52 days. */
#define CUDA_CLOCK_SHIFT 20
#define CUDA_CLOCK_NS (1ull << CUDA_CLOCK_SHIFT)

/* What a rank was asked for, as it tells its peers. */
#define CUDA_CALL_WORDS 12
struct cuda_call {
  uint64_t number; /* of the operation, from 1 on; stored last, with release */
  uint8_t unused[8];
  uint32_t words[CUDA_CALL_WORDS]; /* struct kernel_call */
};

/* At the start of a workspace. What peers write stands on a cache line of its own. */
struct cuda_control {
  /* Only the own kernels use these. */
  uint64_t epoch;     /* in CUDA_EPOCH: operations done so far; below: blocks of the running one that have read it */
  uint32_t recorded;  /* not 0: the failure has been written to the host's record */
  uint32_t tickets;   /* taken by blocks of the running operation; 0 between operations */
  uint64_t nans[KERNEL_NAN_PLACES]; /* counted so far */
  uint8_t line0[88];
  uint32_t fail; /* not 0: the communicator has failed; 1 + the rank that said so */
  uint8_t line1[124];
  /* Operations of which that rank's block has staged its input, the running one included, in CUDA_EPOCH; one-shot
   * sync. */
  uint64_t staged[CUDA_SYNC_BLOCKS][ARFUSION_MAX_RANKS];
  struct cuda_call calls[ARFUSION_MAX_RANKS]; /* by rank; with ARFUSION_CHECK */
};

/* One rank's view of an exchange with its peers. */
struct exchange_args {
  struct cuda_control* control;
  struct cuda_control* peer_control[ARFUSION_MAX_RANKS - 1]; /* from the next rank on, in a circle */
  unsigned char* send[ARFUSION_MAX_RANKS - 1];               /* own slot in the same peers' first buffer */
  unsigned char* receive;                                    /* own first buffer */
  uint64_t slot, buffer;                                     /* bytes from slot to slot, from buffer to buffer */
  uint32_t timeout; /* of one wait, in CUDA_CLOCK_NS, rounded up; 0: for ever */
  const uint32_t* abort;
  struct kernel_failure* failure;
  int rank, nranks;
  uint32_t algorithm; /* arfusionAlgorithm_t, for the record of a failure */
  uint32_t divide_factor, divide_shift; /* n / nranks, for n < 2^31, is (n * factor >> 32) >> shift */
};

/* Quantized outputs. A row's vectors are cut into `groups` that share a scale, group_vectors each. */
struct quant_args {
  uint32_t kind;  /* arfusionQuant_t */
  uint32_t tiles; /* nvfp4 scales in 128x4 tiles */
  uint32_t groups, group_vectors;
  uint32_t group_factor; /* n / group_vectors, for a vector's number n, is n * factor >> 32; 0: it is n */
  uint32_t lanes;        /* group_vectors where a group is that of so many neighbouring lanes, a power of two; else 0 */
  const unsigned char* scale; /* NULL: none is read */
  unsigned char *codes, *scales;
  int64_t first_token, all_tokens; /* as in struct kernel_op */
};

/* The rows of a request; strides in bytes. */
struct rows_args {
  const unsigned char *input, *residual_in, *gamma;
  unsigned char *residual_out, *norm_out;
  int64_t input_stride, residual_in_stride, residual_out_stride, norm_out_stride;
  int64_t tokens;
  uint32_t vectors;      /* in a row */
  uint32_t slot_vectors; /* of a row in a slot: whole packs */
  uint32_t chunks;       /* of CUDA_GROUP_PACKS packs in a row */
  float inv_hidden, eps, weight_bias;
  uint32_t gamma_fp32;
};

struct epilogue_args {
  struct rows_args rows;
  struct quant_args quant;
};

struct lamport_rows_args {
  struct exchange_args exchange;
  struct rows_args rows;
  uint32_t early_trigger;
  uint32_t by_ticket; /* blocks take further tokens when they are ready for them; needs more than two a block */
  struct quant_args quant;
};

struct lamport_flat_args {
  struct exchange_args exchange;
  const unsigned char* input;
  unsigned char* output;
  int64_t count; /* elements */
};

/* One-shot sync: where each rank stages its input; a second half follows after `half` bytes. */
struct sync_stage {
  unsigned char* of[ARFUSION_MAX_RANKS]; /* by rank, the own one too */
  uint64_t half;
};

struct check_args {
  struct exchange_args exchange;
  uint32_t words[CUDA_CALL_WORDS];
};

struct nan_args {
  struct nan_tensor tensors[NAN_TENSORS];
  int count;
  struct cuda_control* control;
};

/* These begin as the arguments of the other algorithms do, which are launched with them, too. */
struct sync_rows_args {
  struct lamport_rows_args request;
  struct sync_stage stage;
};

struct sync_flat_args {
  struct lamport_flat_args request;
  struct sync_stage stage;
};

/* Kernels are compiled for 2, 4 and 8 ranks, once for any number, and once more for pointers or strides that are not
 * aligned to CUDA_VECTOR. */
enum cuda_variant { CUDA_RANKS_2, CUDA_RANKS_4, CUDA_RANKS_8, CUDA_RANKS_ANY, CUDA_UNALIGNED, CUDA_VARIANTS };

/* The kernels of one data type for rows, for quantized requests or for others. [chunked]: rows of several chunks. */
struct cuda_rows_kernels {
  const void* lamport[CUDA_VARIANTS][2];
  const void* lamport_short[CUDA_VARIANTS][2]; /* [two tokens a block at most, else one]; NULL: there is none */
  const void* twoshot[CUDA_VARIANTS][2];
  const void* sync[2][2];     /* [aligned][chunked], for any number of ranks */
  const void* epilogue[2][2]; /* [aligned][chunked] */
};

/* And for flat requests. */
struct cuda_flat_kernels {
  const void* lamport[CUDA_VARIANTS];
  const void* twoshot[CUDA_VARIANTS];
  const void* sync[2]; /* [aligned] */
};

extern const struct cuda_rows_kernels cuda_rows_bf16, cuda_rows_fp16, cuda_rows_fp32;
extern const struct cuda_rows_kernels cuda_quant_bf16, cuda_quant_fp16, cuda_quant_fp32;
extern const struct cuda_flat_kernels cuda_flat_bf16, cuda_flat_fp16, cuda_flat_fp32;

#endif
