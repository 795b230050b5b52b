/* SPDX-License-Identifier: Apache-2.0
 *
 * failure.c: see failure.h.
 */
#include "plugin/core/failure.h"

#include <stdarg.h>
#include <stdio.h>

#include "plugin/core/names.h"

arfusionResult_t failure_result(const struct kernel_failure* failure) {
  return failure->kind == KERNEL_FAILURE_REMOTE || failure->kind == KERNEL_FAILURE_TIMEOUT ? arfusionRemoteError
                                                                                           : arfusionInvalidUsage;
}

/* ---------------------------------------------------------------- ranks that disagree */

struct kernel_call failure_call(const arfusionRequest_t* request, arfusionAlgorithm_t algorithm) {
  const int rows = request->pattern == arfusionPatternResidualRmsNorm;
  return (struct kernel_call){
      .pattern = request->pattern,
      .dtype = request->dataType,
      .gamma_dtype = rows ? (uint32_t)request->gammaDataType : 0,
      .quantization = request->quantization,
      .scale_layout = request->quantization == arfusionQuantNvfp4 ? (uint32_t)request->scaleLayout : 0,
      .group_size = request->quantization == arfusionQuantFp8Group ? (uint32_t)request->groupSize : 0,
      .hint = request->algorithmHint,
      .algorithm = algorithm,
      .tokens = request->tokens,
      .hidden = request->hidden,
  };
}

struct text {
  char* at;
  size_t bytes, used; /* used: may exceed bytes */
};

static void text_add(struct text* text, const char* format, ...) __attribute__((format(printf, 2, 3)));

static void text_add(struct text* text, const char* format, ...) {
  const size_t room = text->used < text->bytes ? text->bytes - text->used : 0;
  va_list args;
  va_start(args, format);
  const int added = vsnprintf(room ? text->at + text->used : NULL, room, format, args);
  va_end(args);
  if (added > 0) text->used += (size_t)added;
}

/* A field by its name in arfusionRequest_t, if it differs. */
static void add_number(struct text* text, const struct kernel_failure* f, const char* name, int64_t own,
                       int64_t theirs) {
  if (own == theirs) return;
  text_add(text, "; %s is %lld on rank %u, %lld on rank %u", name, (long long)own, f->rank, (long long)theirs, f->peer);
}

static void add_algorithm(struct text* text, const struct kernel_failure* f, const char* name, uint32_t own,
                          uint32_t theirs) {
  if (own == theirs) return;
  text_add(text, "; %s is %s on rank %u, %s on rank %u", name, name_of_algorithm((arfusionAlgorithm_t)own), f->rank,
           name_of_algorithm((arfusionAlgorithm_t)theirs), f->peer);
}

static void add_difference(struct text* text, const struct kernel_failure* f) {
  const struct kernel_call *own = &f->own, *theirs = &f->theirs;
  text_add(text, "ranks %u and %u were asked for different things (ARFUSION_CHECK, operation %llu)", f->rank, f->peer,
           (unsigned long long)f->epoch);
  add_number(text, f, "pattern", own->pattern, theirs->pattern);
  add_number(text, f, "tokens", own->tokens, theirs->tokens);
  add_number(text, f, "hidden", own->hidden, theirs->hidden);
  add_number(text, f, "dataType", own->dtype, theirs->dtype);
  add_number(text, f, "gammaDataType", own->gamma_dtype, theirs->gamma_dtype);
  add_number(text, f, "quantization", own->quantization, theirs->quantization);
  add_number(text, f, "scaleLayout", own->scale_layout, theirs->scale_layout);
  add_number(text, f, "groupSize", own->group_size, theirs->group_size);
  add_algorithm(text, f, "algorithmHint", own->hint, theirs->hint);
  add_algorithm(text, f, "the algorithm", own->algorithm, theirs->algorithm);
}

/* ---------------------------------------------------------------- all failures */

/* What was being done: an algorithm's row of an operation, or the comparison before it. */
static void add_place(struct text* text, const struct kernel_failure* f) {
  text_add(text, "%s, operation %llu, ", name_of_algorithm((arfusionAlgorithm_t)f->algorithm),
           (unsigned long long)f->epoch);
  if (f->token == KERNEL_TOKEN_CHECK) {
    text_add(text, "what it was asked for");
  } else {
    text_add(text, "token %lld", (long long)f->token);
  }
}

void failure_text(const struct kernel_failure* failure, char* buffer, size_t bytes) {
  struct text text = {.at = buffer, .bytes = bytes};
  switch ((enum kernel_failure_kind)failure->kind) {
    case KERNEL_FAILURE_NONE: break;
    case KERNEL_FAILURE_DISAGREE: add_difference(&text, failure); break;
    case KERNEL_FAILURE_REMOTE:
      text_add(&text, "rank %u: rank %u failed first (noticed in ", failure->rank, failure->peer);
      add_place(&text, failure);
      text_add(&text, ")");
      break;
    case KERNEL_FAILURE_OVERLAP:
      text_add(&text, "rank %u: ", failure->rank);
      add_place(&text, failure);
      text_add(&text,
               ", ran beside another operation of this communicator; a graph and what runs outside it must be ordered "
               "by the caller");
      break;
    case KERNEL_FAILURE_ABORT:
      if (failure->peer == failure->rank) {
        text_add(&text, "rank %u aborted", failure->rank);
        break;
      }
      text_add(&text, "rank %u waited for rank %u when it was aborted (", failure->rank, failure->peer);
      add_place(&text, failure);
      text_add(&text, ")");
      break;
    case KERNEL_FAILURE_TIMEOUT:
      text_add(&text, "rank %u waited for rank %u until the time-out (ARFUSION_TIMEOUT) (", failure->rank,
               failure->peer);
      add_place(&text, failure);
      text_add(&text, "): it has died, hangs, or was asked for something else%s",
               failure->token == KERNEL_TOKEN_CHECK ? " or less often" : " (ARFUSION_CHECK=1 compares)");
      break;
  }
}
