/* SPDX-License-Identifier: Apache-2.0
 *
 * case.h: case files: a JSON list of objects, each one request with the digests that its outputs must have.
 *
 *   id, nranks, dtype, tokens, hidden, pattern, seed, digests    required
 *   gamma_dtype (dtype), residual (true), quant ("none"), eps (1e-5), weight_bias (0), scale (1), group (128),
 *   layout ("linear"), inputs ("uniform")                        may be left out: the value in brackets
 *
 * Anything else in an object is an error, so that a misspelt field is not taken for its default.
 */
#ifndef ARFUSION_BENCH_CASE_H_
#define ARFUSION_BENCH_CASE_H_

#include "plugin/tools/bench/digest.h"
#include "plugin/tools/bench/generator.h"

#define NVFP4_BLOCK 16 /* elements of a scale; a row is whole blocks */

enum case_output { OUTPUT_ALLREDUCE, OUTPUT_RESIDUAL, OUTPUT_NORM, OUTPUT_QUANT, OUTPUT_SCALE, OUTPUTS };

struct bench_case {
  char id[96];
  int nranks;
  arfusionPattern_t pattern;
  arfusionDataType_t dtype, gamma_dtype;
  arfusionQuant_t quantization;
  arfusionScaleLayout_t layout;
  int group;
  int residual; /* 0: there is none */
  int64_t tokens, hidden;
  float eps, weight_bias, scale;
  enum generator_kind inputs;
  uint32_t seed;
  char digest[OUTPUTS][DIGEST_LENGTH + 1]; /* "" for outputs that the case does not have */
};

struct case_list {
  struct bench_case* cases;
  int count;
};

/* Reads a file. 0, or -1 with one line in `error`, which names the file and, where it can, the case and the field. */
int case_list_load(const char* path, struct case_list* list, char* error, size_t error_bytes);
void case_list_free(struct case_list* list);

/* "norm_out" and so on. */
const char* case_output_name(enum case_output output);

/* Bytes of a dense output; 0 if the case does not have it. */
size_t case_output_bytes(const struct bench_case* c, enum case_output output);

#endif
