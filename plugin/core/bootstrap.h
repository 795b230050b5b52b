/* SPDX-License-Identifier: Apache-2.0
 *
 * bootstrap.h: how the ranks of a communicator find each other and talk during set-up, on one host. Each bootstrap
 * fills in an arfusionBootstrap_t, whose allGather is then all that the rest of the plugin uses.
 *
 * Processes meet on a Unix socket in the abstract namespace: rank 0 listens, the others connect, so no file is left
 * over. Both ends check the other's credentials (same user) and a secret.
 */
#ifndef ARFUSION_CORE_BOOTSTRAP_H_
#define ARFUSION_CORE_BOOTSTRAP_H_

#include "arfusion_plugin.h"

/* timeout_s: how long to wait for the others, in all of these. */

arfusionResult_t bootstrap_unique_id(arfusionUniqueId_t* id);
arfusionResult_t bootstrap_from_unique_id(const arfusionUniqueId_t* id, int nranks, int rank, int64_t timeout_s,
                                          arfusionBootstrap_t* bootstrap);
arfusionResult_t bootstrap_from_environment(int64_t timeout_s, arfusionBootstrap_t* bootstrap, int* local_rank);

/* Threads of this process: fills in bootstraps[0 .. nranks - 1]; each thread uses its own. */
arfusionResult_t bootstrap_from_threads(int nranks, int64_t timeout_s, arfusionBootstrap_t* bootstraps);

/* Frees what one of the above made (also a member of bootstrap_from_threads; the last one frees the group). */
void bootstrap_destroy(arfusionBootstrap_t* bootstrap);

/* Ends its all-gathers, running and later ones; the others' too, when they come to one. Any thread. Nothing happens to
 * threads' bootstraps and to the host's own. */
void bootstrap_abort(const arfusionBootstrap_t* bootstrap);

/* allGather with the length checked (bytes <= 1 MiB) and its errors recorded. */
arfusionResult_t bootstrap_all_gather(const arfusionBootstrap_t* bootstrap, const void* send, void* recv, size_t bytes);

/* Every rank has a result; all return the same one: success if all succeeded, else the code of the lowest rank that
 * failed (by itself, if there is one: not with arfusionRemoteError), with a last error that names that rank and repeats
 * its last error's text. Call it after each step that may fail on one rank. */
arfusionResult_t bootstrap_vote(const arfusionBootstrap_t* bootstrap, arfusionResult_t mine);

/* Every rank hands in one descriptor (its own stays open) and receives everybody's in rank order, close-on-exec, to be
 * closed by the caller; fds[rank] is -1. Only between processes that see each other's abstract Unix sockets. */
arfusionResult_t bootstrap_exchange_fds(const arfusionBootstrap_t* bootstrap, int fd, int* fds, int64_t timeout_s);

/* A 64-bit hash of what makes this host this host (NCCL_HOSTID if `hostid` is not "", else host name and boot id). */
uint64_t bootstrap_host_hash(const char* hostid);

#endif
