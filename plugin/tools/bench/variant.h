/* SPDX-License-Identifier: Apache-2.0
 *
 * variant.h: the forms that one request can take without a change of its results.
 */
#ifndef ARFUSION_BENCH_VARIANT_H_
#define ARFUSION_BENCH_VARIANT_H_

#include "plugin/tools/bench/case.h"

#define VARIANT_MAX_PADDING 32 /* elements a row */

struct variant {
  const char* name;
  int in_place;      /* norm_out or allreduce_out is input, residual_out is residual_in */
  int sum_in_input;  /* residual_out is input */
  int padding;       /* elements; the strides are hidden + 1, 2, 3 and 4 times that */
  int offset;        /* elements that each pointer lies behind a 16-byte boundary */
  unsigned left_out; /* outputs that are NULL: 1u << enum case_output */
  int gamma_fp32;    /* gamma widened */
};

extern const struct variant variants[];
extern const int variant_count;

/* Whether the case has this form, and it is another than the plain one. The first variant is the plain one. */
int variant_applies(const struct variant* variant, const struct bench_case* c);

#endif
