/* SPDX-License-Identifier: Apache-2.0
 *
 * bootstrap.c: what all kinds of bootstrap have in common: the checked all-gather, the vote, the end; and the host's
 * hash.
 */
#include "plugin/core/bootstrap.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plugin/core/bootstrap_internal.h"
#include "plugin/core/log.h"

#define MISSING_NAMED 16 /* ranks that a message lists */
#define VOTE_TEXT_BYTES 508

struct vote {
  int32_t result;
  char text[VOTE_TEXT_BYTES];
};

/* FNV-1a, then a finalizer, so that all bits of the result depend on all bits of the data. */
uint64_t bootstrap_hash(uint64_t seed, const void* data, size_t bytes) {
  const unsigned char* at = data;
  uint64_t hash = seed ^ 0xcbf29ce484222325ull;

  for (size_t i = 0; i < bytes; i++) hash = (hash ^ at[i]) * 0x100000001b3ull;
  hash ^= hash >> 30;
  hash *= 0xbf58476d1ce4e5b9ull;
  hash ^= hash >> 27;
  hash *= 0x94d049bb133111ebull;
  return hash ^ (hash >> 31);
}

uint64_t bootstrap_host_hash(const char* hostid) {
  char text[512] = "";
  size_t length;
  ssize_t got;
  int fd;

  if (hostid != NULL && hostid[0] != '\0') return bootstrap_hash(1, hostid, strlen(hostid));
  if (gethostname(text, 256) != 0) text[0] = '\0';
  text[255] = '\0';
  length = strlen(text);
  fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
  if (fd >= 0) {
    got = read(fd, text + length, sizeof(text) - length);
    if (got > 0) length += (size_t)got;
    close(fd);
  }
  return bootstrap_hash(2, text, length);
}

arfusionResult_t bootstrap_check_ranks(int nranks, int rank) {
  if (nranks < 1 || nranks > BOOTSTRAP_MAX_RANKS) {
    return error_set(arfusionInvalidArgument, "bootstrap: nranks is %d, allowed are 1 to %d", nranks,
                     BOOTSTRAP_MAX_RANKS);
  }
  if (rank < 0 || rank >= nranks) {
    return error_set(arfusionInvalidArgument, "bootstrap: rank is %d, allowed are 0 to nranks - 1 = %d", rank,
                     nranks - 1);
  }
  return arfusionSuccess;
}

void bootstrap_missing_text(const unsigned char* present, int nranks, char* text, size_t bytes) {
  int missing = 0;
  size_t length;

  for (int r = 0; r < nranks; r++) missing += !present[r];
  length = (size_t)snprintf(text, bytes, missing == 1 ? "rank" : "ranks");
  for (int r = 0, named = 0; r < nranks && named < MISSING_NAMED && length < bytes; r++) {
    if (present[r]) continue;
    length += (size_t)snprintf(text + length, bytes - length, "%s %d", named > 0 ? "," : "", r);
    named++;
  }
  if (missing > MISSING_NAMED && length < bytes) snprintf(text + length, bytes - length, ", ... (%d of them)", missing);
}

void bootstrap_destroy(arfusionBootstrap_t* bootstrap) {
  if (bootstrap == NULL) return;
  if (bootstrap->allGather == bootstrap_socket_all_gather) {
    bootstrap_socket_destroy(bootstrap->opaque);
  } else if (bootstrap->allGather == bootstrap_threads_all_gather) {
    bootstrap_threads_destroy(bootstrap->opaque);
  } else {
    return; /* the host's own, or without talk */
  }
  bootstrap->opaque = NULL;
  bootstrap->allGather = NULL;
}

void bootstrap_abort(const arfusionBootstrap_t* bootstrap) {
  if (bootstrap->allGather == bootstrap_socket_all_gather) bootstrap_socket_abort(bootstrap->opaque);
}

arfusionResult_t bootstrap_all_gather(const arfusionBootstrap_t* bootstrap, const void* send, void* recv,
                                      size_t bytes) {
  arfusionResult_t result;

  if (bootstrap->allGather == NULL) return error_set(arfusionInvalidArgument, "bootstrap: allGather is NULL");
  if (bytes > BOOTSTRAP_MAX_BYTES) {
    return error_set(arfusionInvalidArgument, "bootstrap: an all-gather of %zu bytes, the limit is %zu", bytes,
                     BOOTSTRAP_MAX_BYTES);
  }
  result = bootstrap->allGather(bootstrap->opaque, send, recv, bytes);
  if (result == arfusionSuccess || bootstrap->allGather == bootstrap_socket_all_gather ||
      bootstrap->allGather == bootstrap_threads_all_gather) {
    return result;
  }
  return error_set(result, "bootstrap: the host's allGather returned %d", (int)result);
}

/* The rank whose failure all return: the first that failed by itself, else the first that failed because another one
 * did. */
static int vote_that_counts(const struct vote* votes, int nranks) {
  int first = -1;

  for (int r = 0; r < nranks; r++) {
    if (votes[r].result == arfusionSuccess) continue;
    if (votes[r].result != arfusionRemoteError) return r;
    if (first < 0) first = r;
  }
  return first;
}

arfusionResult_t bootstrap_vote(const arfusionBootstrap_t* bootstrap, arfusionResult_t mine) {
  struct vote few[ARFUSION_MAX_RANKS], *votes = few;
  arfusionResult_t result;
  struct vote vote = {.result = mine};
  char text[VOTE_TEXT_BYTES + 32];

  if (mine != arfusionSuccess) snprintf(vote.text, sizeof(vote.text), "%s", error_last());
  if (bootstrap->nranks > ARFUSION_MAX_RANKS) {
    votes = malloc((size_t)bootstrap->nranks * sizeof(*votes));
    if (votes == NULL) return error_set(arfusionSystemError, "bootstrap: no memory for %d votes", bootstrap->nranks);
  }
  result = bootstrap_all_gather(bootstrap, &vote, votes, sizeof(vote));
  if (result != arfusionSuccess && mine != arfusionSuccess) {
    result = error_keep(mine, vote.text); /* this came first */
  } else if (result == arfusionSuccess) {
    int r = vote_that_counts(votes, bootstrap->nranks);
    if (r >= 0) {
      result = (arfusionResult_t)votes[r].result;
      if (votes[r].result < 0 || votes[r].result > arfusionInProgress) result = arfusionInternalError;
      snprintf(text, sizeof(text), "rank %d: %.*s", r, VOTE_TEXT_BYTES - 1, votes[r].text);
      if (r == bootstrap->rank) {
        error_keep(result, text); /* it was logged when it happened */
      } else {
        error_set(result, "%s", text);
      }
    }
  }
  if (votes != few) free(votes);
  return result;
}
