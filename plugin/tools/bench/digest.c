/* SPDX-License-Identifier: Apache-2.0
 *
 * digest.c: digests of outputs; see digest.h.
 */
#include "plugin/tools/bench/digest.h"

#include <sha2.h>
#include <stdint.h>
#include <stdio.h>

void digest_compute(const void* data, size_t bytes, char digest[DIGEST_LENGTH + 1]) {
  SHA2_CTX context;
  uint8_t hash[SHA256_DIGEST_LENGTH];
  SHA256Init(&context);
  SHA256Update(&context, data, bytes);
  SHA256Final(hash, &context);
  for (int i = 0; i < DIGEST_LENGTH / 2; i++) snprintf(digest + 2 * i, 3, "%02x", hash[i]);
}
