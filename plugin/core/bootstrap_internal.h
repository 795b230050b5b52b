/* SPDX-License-Identifier: Apache-2.0
 *
 * bootstrap_internal.h: what the kinds of bootstrap share with each other and with nobody else.
 */
#ifndef ARFUSION_CORE_BOOTSTRAP_INTERNAL_H_
#define ARFUSION_CORE_BOOTSTRAP_INTERNAL_H_

#include "plugin/core/bootstrap.h"
#include "plugin/core/bootstrap_net.h"

#define BOOTSTRAP_MAX_RANKS (1 << 16)         /* of a world; communicators of more than 16 are turned down later */
#define BOOTSTRAP_MAX_BYTES ((size_t)1 << 20) /* of one rank in one all-gather */
#define BOOTSTRAP_TEXT_BYTES 896              /* of a failure that is told to others */

/* Where the ranks of one communicator meet, and how they know each other: the ones that connect show secret[0], rank 0
 * answers with secret[1], so that whoever took rank 0's place learns nothing that helps. */
struct bootstrap_meeting {
  char name[NET_NAME_BYTES];
  uint64_t secret[2];
};

/* bootstrap_socket.c: the star over Unix sockets. */
arfusionResult_t bootstrap_socket_create(const struct bootstrap_meeting* meeting, int nranks, int rank,
                                         int64_t timeout_s, arfusionBootstrap_t* bootstrap);
arfusionResult_t bootstrap_socket_all_gather(void* opaque, const void* send, void* recv, size_t bytes);
void bootstrap_socket_abort(void* opaque);
void bootstrap_socket_destroy(void* opaque);

/* bootstrap_threads.c */
arfusionResult_t bootstrap_threads_all_gather(void* opaque, const void* send, void* recv, size_t bytes);
void bootstrap_threads_destroy(void* opaque);

/* bootstrap.c */
uint64_t bootstrap_hash(uint64_t seed, const void* data, size_t bytes);
arfusionResult_t bootstrap_check_ranks(int nranks, int rank);

/* "rank 3" or "ranks 1, 2, 5": those with present[r] == 0. Long lists end with how many there are. */
void bootstrap_missing_text(const unsigned char* present, int nranks, char* text, size_t bytes);

#endif
