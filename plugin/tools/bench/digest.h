/* SPDX-License-Identifier: Apache-2.0
 *
 * digest.h: what a case file keeps of an output: the first 32 hex digits of the SHA-256 of its bytes.
 */
#ifndef ARFUSION_BENCH_DIGEST_H_
#define ARFUSION_BENCH_DIGEST_H_

#include <stddef.h>

#define DIGEST_LENGTH 32 /* characters */

void digest_compute(const void* data, size_t bytes, char digest[DIGEST_LENGTH + 1]);

#endif
