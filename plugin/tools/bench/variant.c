/* SPDX-License-Identifier: Apache-2.0
 *
 * variant.c: the forms of a request; see variant.h.
 */
#include "plugin/tools/bench/variant.h"

const struct variant variants[] = {
    {.name = "plain"},
    {.name = "in place", .in_place = 1},
    {.name = "residual_out in place of input", .sum_in_input = 1},
    {.name = "padded rows", .padding = 8},
    {.name = "rows padded by single elements", .padding = 1},
    {.name = "pointers off by one element", .offset = 1},
    {.name = "without residual_out", .left_out = 1u << OUTPUT_RESIDUAL},
    {.name = "without norm_out", .left_out = 1u << OUTPUT_NORM},
    {.name = "without residual_out and norm_out", .left_out = 1u << OUTPUT_RESIDUAL | 1u << OUTPUT_NORM},
    {.name = "gamma in fp32", .gamma_fp32 = 1},
};
const int variant_count = sizeof(variants) / sizeof(variants[0]);

int variant_applies(const struct variant* variant, const struct bench_case* c) {
  if (c->pattern == arfusionPatternAllReduce) {
    return variant->padding == 0 && variant->left_out == 0 && !variant->gamma_fp32 && !variant->sum_in_input;
  }
  if (variant->gamma_fp32) return c->gamma_dtype != arfusionFloat32;
  unsigned left = 0; /* what is still written */
  for (int i = 0; i < OUTPUTS; i++) left |= c->digest[i][0] == '\0' ? 0 : 1u << i;
  return (left & ~variant->left_out) != 0;
}
