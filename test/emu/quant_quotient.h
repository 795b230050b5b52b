/* SPDX-License-Identifier: Apache-2.0
 *
 * quant_quotient.h: the division of fp8_token as the kernels do it, against one that is correctly rounded.
 */
#ifndef ARFUSION_TEST_EMU_QUANT_QUOTIENT_H_
#define ARFUSION_TEST_EMU_QUANT_QUOTIENT_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How many numbers of a 16-bit type get another code: of all that can stand in a token, with its scale, for every
 * largest magnitude that has one of some exponents, the extremes among them. In between nothing changes but
 * exponents. */
uint64_t quant_quotient_wrong_bf16(void);
uint64_t quant_quotient_wrong_fp16(void);

/* And how many largest magnitudes get another scale of fp8_group than that by division. */
uint64_t quant_group_scale_wrong(void);

#ifdef __cplusplus
}
#endif

#endif
