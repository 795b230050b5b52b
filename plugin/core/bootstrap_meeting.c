/* SPDX-License-Identifier: Apache-2.0
 *
 * bootstrap_meeting.c: where processes meet: the place that a unique id names, or the one that torchrun's environment
 * names.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plugin/core/bootstrap_internal.h"
#include "plugin/core/log.h"

#define ID_MAGIC 0x5546524164492d31ull
#define ID_VERSION 1u

/* What is in an arfusionUniqueId_t; the rest of it is 0. */
struct unique_id {
  uint64_t magic;
  uint32_t version;
  uint32_t reserved;
  uint64_t name[2];
  uint64_t secret[2];
};

_Static_assert(sizeof(struct unique_id) <= sizeof(arfusionUniqueId_t), "a unique id has 128 bytes");

/* The environment's variables as text, which are hashed; MASTER_PORT itself is torchrun's and never opened. */
static const char* const meeting_variables[] = {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID",
                                                "TORCHELASTIC_RESTART_COUNT"};

static void meeting_name(struct bootstrap_meeting* meeting, uint64_t high, uint64_t low) {
  snprintf(meeting->name, sizeof(meeting->name), "arfusion-%u-%016llx%016llx", (unsigned)geteuid(),
           (unsigned long long)high, (unsigned long long)low);
}

arfusionResult_t bootstrap_unique_id(arfusionUniqueId_t* id) {
  struct unique_id content = {.magic = ID_MAGIC, .version = ID_VERSION};
  int error;

  if (id == NULL) return error_set(arfusionInvalidArgument, "bootstrap: id is NULL");
  error = net_random(content.name, sizeof(content.name));
  if (error == 0) error = net_random(content.secret, sizeof(content.secret));
  if (error != 0) return error_set(arfusionSystemError, "bootstrap: no random bytes: %s", strerror(-error));
  memset(id, 0, sizeof(*id));
  memcpy(id->internal, &content, sizeof(content));
  return arfusionSuccess;
}

arfusionResult_t bootstrap_from_unique_id(const arfusionUniqueId_t* id, int nranks, int rank, int64_t timeout_s,
                                          arfusionBootstrap_t* bootstrap) {
  struct bootstrap_meeting meeting;
  struct unique_id content;

  if (id == NULL) return error_set(arfusionInvalidArgument, "bootstrap: id is NULL");
  if (bootstrap == NULL) return error_set(arfusionInvalidArgument, "bootstrap: bootstrap is NULL");
  memcpy(&content, id->internal, sizeof(content));
  if (content.magic != ID_MAGIC) {
    return error_set(arfusionInvalidArgument, "bootstrap: id is not what getUniqueId makes (wrong first bytes)");
  }
  if (content.version != ID_VERSION) {
    return error_set(arfusionInvalidArgument, "bootstrap: id is of version %u, allowed is %u", content.version,
                     ID_VERSION);
  }
  FORWARD_IF_ERROR(bootstrap_check_ranks(nranks, rank));
  meeting_name(&meeting, content.name[0], content.name[1]);
  memcpy(meeting.secret, content.secret, sizeof(meeting.secret));
  return bootstrap_socket_create(&meeting, nranks, rank, timeout_s, bootstrap);
}

/* A whole number in a variable. Missing: `missing`, or an error if that is negative. */
static arfusionResult_t variable_read(const char* name, long min, long max, long missing, long* value) {
  const char* text = getenv(name);
  char* end;

  if (text == NULL || text[0] == '\0') {
    *value = missing;
    if (missing >= 0) return arfusionSuccess;
    return error_set(arfusionInvalidArgument, "bootstrap: %s is not set in the environment", name);
  }
  *value = strtol(text, &end, 10); /* what does not fit becomes LONG_MAX, which is no allowed value */
  if (text[0] < '0' || text[0] > '9' || *end != '\0' || *value < min || *value > max) {
    return error_set(arfusionInvalidArgument, "bootstrap: %s is %.100s, allowed is a whole number from %ld to %ld",
                     name, text, min, max);
  }
  return arfusionSuccess;
}

static void meeting_from_environment(uint64_t call, struct bootstrap_meeting* meeting) {
  uint64_t words[4], uid = geteuid();

  for (uint64_t w = 0; w < 4; w++) {
    uint64_t hash = bootstrap_hash(w + 1, &uid, sizeof(uid));
    hash = bootstrap_hash(hash, &call, sizeof(call));
    for (size_t v = 0; v < sizeof(meeting_variables) / sizeof(meeting_variables[0]); v++) {
      const char* text = getenv(meeting_variables[v]);
      if (text == NULL) text = "";
      hash = bootstrap_hash(hash, text, strlen(text) + 1);
    }
    words[w] = hash;
  }
  meeting_name(meeting, words[0], words[1]);
  memcpy(meeting->secret, words + 2, sizeof(meeting->secret));
}

arfusionResult_t bootstrap_from_environment(int64_t timeout_s, arfusionBootstrap_t* bootstrap, int* local_rank) {
  static _Atomic uint64_t calls; /* the n-th call of a process meets the n-th of the others */
  const char* address = getenv("MASTER_ADDR");
  long nranks, rank, local, local_nranks, port;
  uint64_t call = atomic_fetch_add(&calls, 1);
  struct bootstrap_meeting meeting;

  if (bootstrap == NULL) return error_set(arfusionInvalidArgument, "bootstrap: bootstrap is NULL");
  FORWARD_IF_ERROR(variable_read("WORLD_SIZE", 1, BOOTSTRAP_MAX_RANKS, -1, &nranks));
  FORWARD_IF_ERROR(variable_read("RANK", 0, nranks - 1, -1, &rank));
  FORWARD_IF_ERROR(variable_read("LOCAL_WORLD_SIZE", 1, nranks, nranks, &local_nranks));
  FORWARD_IF_ERROR(variable_read("LOCAL_RANK", 0, local_nranks - 1, -1, &local));
  FORWARD_IF_ERROR(variable_read("MASTER_PORT", 1, 65535, -1, &port));
  if (address == NULL || address[0] == '\0') {
    return error_set(arfusionInvalidArgument, "bootstrap: MASTER_ADDR is not set in the environment");
  }
  if (local_nranks < nranks) {
    *bootstrap = (arfusionBootstrap_t){.size = sizeof(*bootstrap),
                                       .rank = (int)rank,
                                       .nranks = (int)nranks,
                                       .nhosts = (int)((nranks + local_nranks - 1) / local_nranks)};
  } else {
    meeting_from_environment(call, &meeting);
    FORWARD_IF_ERROR(bootstrap_socket_create(&meeting, (int)nranks, (int)rank, timeout_s, bootstrap));
  }
  if (local_rank != NULL) *local_rank = (int)local;
  return arfusionSuccess;
}
