/* SPDX-License-Identifier: Apache-2.0
 *
 * op.h: one operation as a kernel sees it. Plain pointers and sizes, already checked and made dense or strided by
 * plugin/core; shared by the host kernels and the CUDA launchers. What is computed, to the bit, is the numerics
 * contract:
 *
 *   A *pack* is 8 consecutive elements of a row, a *segment* 32 packs, a *group* 32 segments. The last pack of a row
 *   may be short (elements past the end of the row count as +0.0).
 */
#ifndef ARFUSION_KERNELS_OP_H_
#define ARFUSION_KERNELS_OP_H_

#include "arfusion_plugin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KERNEL_PACK 8                  /* elements */
#define KERNEL_SENTINEL 0x80000000u    /* a 32-bit word of a Lamport slot that has not arrived; compared as bits */

struct kernel_op {
  arfusionPattern_t pattern;
  arfusionDataType_t dtype;       /* arfusionFloat16, arfusionBfloat16 or arfusionFloat32 */
  arfusionDataType_t gamma_dtype; /* dtype or arfusionFloat32 */
  uint32_t flags;                 /* ARFUSION_FLAG_* */
  int64_t tokens;                 /* 1 or more; pattern allreduce: 1 */
  int64_t hidden;                 /* elements of a row; pattern allreduce: all elements, any number from 1 */
  /* Elements from row to row. A pointer is aligned to its element, and to nothing more. */
  int64_t input_stride, residual_in_stride, residual_out_stride, norm_out_stride;
  const void* input;
  const void* residual_in; /* NULL: none */
  const void* gamma;       /* NULL only if norm_out and quant_out are */
  void* allreduce_out;     /* pattern allreduce: the output */
  /* pattern residual_rmsnorm: may be NULL, may be residual_in, may be input if norm_out is not */
  void* residual_out;
  void* norm_out;          /* pattern residual_rmsnorm: may be NULL, may be input */
  float eps, weight_bias;
  /* Quantization of norm_out's values, whether there is a norm_out or not. quant_out is NULL exactly if there is
   * none. */
  arfusionQuant_t quantization;
  arfusionScaleLayout_t scale_layout; /* nvfp4 */
  int group_size;                     /* fp8_group: a multiple of KERNEL_PACK that divides hidden */
  const float* quant_scale;           /* fp8: what is divided by; nvfp4: the global scale */
  void* quant_out;                    /* dense */
  /* Scales stand in one array of the request of which the op may be a part: they are those of its tokens first_token to
   * first_token + tokens - 1, of all_tokens. */
  void* scale_out;
  int64_t first_token, all_tokens;
};

/* What all ranks must have been asked for alike, as they compare it before an operation (ARFUSION_CHECK). What does not
 * matter to the operation is 0. */
struct kernel_call {
  uint32_t pattern, dtype, gamma_dtype, quantization, scale_layout, group_size;
  uint32_t hint, algorithm; /* what was asked for, and what was chosen */
  int64_t tokens, hidden;
};

/* Why an operation did not end. Written once, by the first thread that gives up; kept by the communicator. */
enum kernel_failure_kind {
  KERNEL_FAILURE_NONE = 0,
  KERNEL_FAILURE_TIMEOUT = 1, /* a wait was longer than the time-out */
  KERNEL_FAILURE_ABORT = 2,   /* commAbort on this rank */
  KERNEL_FAILURE_REMOTE = 3,  /* rank `peer` failed first */
  KERNEL_FAILURE_OVERLAP = 4, /* it found another operation of the same communicator running on this rank */
  KERNEL_FAILURE_DISAGREE = 5 /* rank `peer` was asked for something else: `own` and `theirs` */
};

#define KERNEL_TOKEN_CHECK \
  (-1) /* of a failure: before the operation, where the ranks compare what they were asked for */

struct kernel_failure {
  uint32_t kind;      /* enum kernel_failure_kind */
  uint32_t algorithm; /* arfusionAlgorithm_t */
  uint32_t rank;      /* who waited */
  uint32_t peer;      /* for whom */
  uint64_t epoch;     /* of which operation */
  int64_t token;      /* for which row (pattern allreduce: for which pack); KERNEL_TOKEN_CHECK */
  struct kernel_call own, theirs; /* of a disagreement */
};

/* Where NaNs are counted (ARFUSION_COUNT_NAN). */
enum kernel_nan_place { KERNEL_NAN_INPUT, KERNEL_NAN_RESIDUAL, KERNEL_NAN_OUTPUT, KERNEL_NAN_PLACES };

static inline int64_t kernel_packs(int64_t hidden) { return (hidden + KERNEL_PACK - 1) / KERNEL_PACK; }
static inline int kernel_element_size(arfusionDataType_t dtype) { return dtype == arfusionFloat32 ? 4 : 2; }

/* Bytes that `rows` rows take in a workspace slot: rows are padded to whole packs. */
static inline int64_t kernel_slot_bytes(int64_t rows, int64_t hidden, arfusionDataType_t dtype) {
  return rows * kernel_packs(hidden) * KERNEL_PACK * kernel_element_size(dtype);
}

#ifdef __cplusplus
}
#endif
#endif
