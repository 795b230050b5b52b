/* SPDX-License-Identifier: Apache-2.0
 *
 * comm_init.c: making a communicator. Every rank tells the others who it is, what it was asked for and what its
 * settings are (one all-gather); then all of them draw the same conclusions from the same records: an error, a
 * communicator that turns everything down, or the workspaces.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/core/bootstrap.h"
#include "plugin/core/comm.h"
#include "plugin/core/log.h"
#include "plugin/core/names.h"
#include "plugin/core/peers.h"
#include "plugin/core/structs.h"
#include "plugin/core/tuning.h"

enum { RECORD_BYTES = 2048, ERROR_TEXT = 640 };
enum { MOST_RANKS = 1 << 16 }; /* that talk to each other; more than ARFUSION_MAX_RANKS are turned down */
static const uint64_t record_magic = 0x314e4f4953554641; /* "AFUSION1" */

/* What each rank says of itself. Its size on the wire never changes, so that another version's can be recognised. */
struct record {
  uint64_t magic;
  uint32_t abi_version;
  int32_t rank, nranks;
  int32_t result; /* arfusionResult_t of what this rank checked by itself */
  int32_t is_host;
  int32_t has_table; /* ARFUSION_TUNING_FILE has one for this rank: `table` */
  uint64_t host;
  int64_t max_tokens, hidden, data_type;
  int64_t settings[SETTING_COUNT];
  struct device_facts facts;
  struct route_table table;
  char error[ERROR_TEXT];
};
_Static_assert(sizeof(struct record) <= RECORD_BYTES, "a record must fit its place on the wire");

static const int64_t default_tokens = 16384, default_hidden = 8192;

/* ---------------------------------------------------------------- what this rank can check by itself */

static arfusionResult_t config_read(arfusionConfig_t* own, const arfusionConfig_t* callers) {
  *own = (arfusionConfig_t){.size = sizeof *own};
  if (callers) FORWARD_IF_ERROR(struct_read(own, sizeof *own, callers, ARFUSION_CONFIG_V1_SIZE, "config"));
  if (own->reserved) return error_set(arfusionInvalidArgument, "config.reserved is %d, it must be 0", own->reserved);
  if (own->maxTokens == 0 && own->hidden == 0 && own->dataType == 0) {
    own->maxTokens = default_tokens;
    own->hidden = default_hidden;
    own->dataType = arfusionBfloat16;
  }
  if (own->maxTokens <= 0) {
    return error_set(arfusionInvalidArgument, "config.maxTokens is %lld, at least 1", (long long)own->maxTokens);
  }
  if (own->hidden <= 0) {
    return error_set(arfusionInvalidArgument, "config.hidden is %lld, at least 1", (long long)own->hidden);
  }
  if (own->dataType != arfusionFloat16 && own->dataType != arfusionBfloat16 && own->dataType != arfusionFloat32) {
    return error_set(arfusionInvalidArgument, "config.dataType is %d, one of %d (float16), %d (float32), %d (bfloat16)",
                     own->dataType, arfusionFloat16, arfusionFloat32, arfusionBfloat16);
  }
  if (own->maxTokens > INT64_MAX / 64 / own->hidden) {
    return error_set(arfusionInvalidArgument,
                     "config.maxTokens x config.hidden is %lld x %lld, more than can be addressed",
                     (long long)own->maxTokens, (long long)own->hidden);
  }
  return arfusionSuccess;
}

static arfusionResult_t bootstrap_read(arfusionBootstrap_t* own, const arfusionBootstrap_t* callers) {
  FORWARD_IF_ERROR(struct_read(own, sizeof *own, callers, ARFUSION_BOOTSTRAP_V1_SIZE, "bootstrap"));
  if (own->nranks < 1 || own->nranks > MOST_RANKS) {
    return error_set(arfusionInvalidArgument, "bootstrap.nranks is %d, 1 to %d", own->nranks, MOST_RANKS);
  }
  if (own->rank < 0 || own->rank >= own->nranks) {
    return error_set(arfusionInvalidArgument, "bootstrap.rank is %d, 0 to %d", own->rank, own->nranks - 1);
  }
  if (own->nhosts < 0) return error_set(arfusionInvalidArgument, "bootstrap.nhosts is %d, at least 0", own->nhosts);
  if (!own->allGather && own->nhosts <= 1 && own->nranks > 1) {
    return error_set(arfusionInvalidArgument, "bootstrap.allGather is NULL");
  }
  if (own->reserved) return error_set(arfusionInvalidArgument, "bootstrap.reserved is %d, it must be 0", own->reserved);
  return arfusionSuccess;
}

static arfusionResult_t device_check(const struct context* ctx, int dev) {
  int ndev;
  FORWARD_IF_ERROR(ctx->device->count(&ndev));
  if (dev < 0 || dev >= ndev) return error_set(arfusionInvalidArgument, "dev is %d, 0 to %d", dev, ndev - 1);
  return arfusionSuccess;
}

static arfusionResult_t tuning_file_read(const struct context* ctx, int dev, struct record* record) {
  const char* path = ctx->settings.text[SETTING_TUNING_FILE];
  arfusionProperties_t properties = {.size = sizeof properties};
  if (!path[0] || strcmp(path, "none") == 0) return arfusionSuccess;
  if (record->nranks < 2 || record->nranks > ARFUSION_MAX_RANKS) return arfusionSuccess;
  FORWARD_IF_ERROR(ctx->device->properties(dev, &properties));
  const struct tuning_target target = {.gpu = properties.name,
                                       .compute_major = record->facts.compute_major,
                                       .compute_minor = record->facts.compute_minor,
                                       .nranks = record->nranks};
  FORWARD_IF_ERROR(tuning_read(path, &target, &record->has_table, &record->table));
  if (!record->has_table) LOG_INFO(ARFUSION_LOG_TUNING, "%s has no table for %d ranks", path, record->nranks);
  return arfusionSuccess;
}

static void record_fill(struct record* record, const struct context* ctx, int dev, const arfusionConfig_t* callers,
                        arfusionConfig_t* config, const arfusionBootstrap_t* bootstrap) {
  record->magic = record_magic;
  record->abi_version = ARFUSION_PLUGIN_ABI_VERSION;
  record->rank = bootstrap->rank;
  record->nranks = bootstrap->nranks;
  record->is_host = ctx->device->is_host;
  record->host = bootstrap_host_hash(ctx->settings.text[SETTING_HOSTID]);
  arfusionResult_t result = config_read(config, callers);
  if (result == arfusionSuccess) result = device_check(ctx, dev);
  if (result == arfusionSuccess) result = ctx->device->facts(dev, &record->facts);
  if (result == arfusionSuccess) result = tuning_file_read(ctx, dev, record);
  record->result = result;
  if (result != arfusionSuccess) strncpy(record->error, error_last(), sizeof record->error - 1);
  record->max_tokens = config->maxTokens;
  record->hidden = config->hidden;
  record->data_type = config->dataType;
  for (int i = 0; i < SETTING_COUNT; ++i) {
    if (setting_info(i)->agreed) record->settings[i] = ctx->settings.value[i];
  }
}

/* Texts of others may have no end, and results may be none. */
static void record_take(struct record* record, const unsigned char* wire) {
  memcpy(record, wire, sizeof *record);
  record->error[sizeof record->error - 1] = '\0';
  record->facts.bus_id[sizeof record->facts.bus_id - 1] = '\0';
  if (record->result < arfusionSuccess || record->result >= arfusionInProgress) record->result = arfusionInternalError;
}

/* ---------------------------------------------------------------- what all conclude from all records */

static arfusionResult_t disagree(const char* what, int rank_a, int64_t a, int rank_b, int64_t b) {
  return error_set(arfusionInvalidUsage, "ranks disagree on %s: %lld on rank %d, %lld on rank %d", what, (long long)a,
                   rank_a, (long long)b, rank_b);
}

/* As it is written: the word of a choice, else the number. */
static void setting_text(enum setting_id id, int64_t value, char* text, size_t bytes) {
  const struct setting_info* info = setting_info(id);
  const char* word = info->choices;
  if (!word) {
    snprintf(text, bytes, "%lld", (long long)value);
    return;
  }
  for (; value > 0 && strchr(word, ' '); --value) word = strchr(word, ' ') + 1;
  snprintf(text, bytes, "%.*s", (int)strcspn(word, " "), word);
}

static arfusionResult_t disagree_on_setting(enum setting_id id, int rank_a, int64_t a, int rank_b, int64_t b) {
  char text_a[64], text_b[64];
  setting_text(id, a, text_a, sizeof text_a);
  setting_text(id, b, text_b, sizeof text_b);
  return error_set(arfusionInvalidUsage, "ranks disagree on %s: %s on rank %d, %s on rank %d", setting_info(id)->name,
                   text_a, rank_a, text_b, rank_b);
}

static void table_text(const struct record* record, char text[TUNING_TEXT_BYTES]) {
  if (record->has_table) {
    tuning_text(&record->table, text);
  } else {
    snprintf(text, TUNING_TEXT_BYTES, "none");
  }
}

static arfusionResult_t tables_agree(const struct record* a, const struct record* b) {
  char text_a[TUNING_TEXT_BYTES], text_b[TUNING_TEXT_BYTES];
  if (a->has_table == b->has_table && (!a->has_table || tuning_equal(&a->table, &b->table))) return arfusionSuccess;
  table_text(a, text_a);
  table_text(b, text_b);
  return error_set(arfusionInvalidUsage, "ranks disagree on %s: rank %d has '%s', rank %d has '%s'",
                   setting_info(SETTING_TUNING_FILE)->name, a->rank, text_a, b->rank, text_b);
}

static arfusionResult_t records_agree(const struct record* records, int nranks, int my_rank) {
  for (int r = 0; r < nranks; ++r) {
    const struct record* other = &records[r];
    if (other->magic != record_magic || other->abi_version != ARFUSION_PLUGIN_ABI_VERSION) {
      return error_set(arfusionInvalidUsage, "rank %d does not run this version of the plugin (ABI version %d)", r,
                       ARFUSION_PLUGIN_ABI_VERSION);
    }
    if (other->nranks != nranks) return disagree("the number of ranks", r, other->nranks, my_rank, nranks);
    if (other->rank != r) {
      return error_set(arfusionInvalidUsage,
                       "the bootstrap's place %d holds rank %d: two ranks have the same number, or "
                       "allGather is not in rank order",
                       r, other->rank);
    }
  }
  for (int r = 0; r < nranks; ++r) {
    if (records[r].result != arfusionSuccess) {
      return error_set((arfusionResult_t)records[r].result, "rank %d: %s", r, records[r].error);
    }
  }
  const struct record* first = &records[0];
  for (int r = 1; r < nranks; ++r) {
    const struct record* other = &records[r];
    for (int i = 0; i < SETTING_COUNT; ++i) {
      if (other->settings[i] != first->settings[i]) {
        return disagree_on_setting(i, 0, first->settings[i], r, other->settings[i]);
      }
    }
    FORWARD_IF_ERROR(tables_agree(first, other));
    if (other->max_tokens != first->max_tokens)
      return disagree("config.maxTokens", 0, first->max_tokens, r, other->max_tokens);
    if (other->hidden != first->hidden) return disagree("config.hidden", 0, first->hidden, r, other->hidden);
    if (other->data_type != first->data_type)
      return disagree("config.dataType", 0, first->data_type, r, other->data_type);
    if (other->is_host != first->is_host) {
      return disagree("the kind of device (1: host, 0: GPU)", 0, first->is_host, r, other->is_host);
    }
  }
  return arfusionSuccess;
}

static int count_hosts(const struct record* records, int nranks) {
  int hosts = 0;
  for (int r = 0; r < nranks; ++r) {
    int seen = 0;
    for (int s = 0; s < r && !seen; ++s) seen = records[s].host == records[r].host;
    hosts += !seen;
  }
  return hosts;
}

static void turn_everything_down(struct route_facts* facts, arfusionReason_t reason, int64_t value, int64_t limit) {
  facts->reason = reason;
  facts->reason_value = value;
  facts->reason_limit = limit;
}

static void size_judge(int nranks, int nhosts, struct route_facts* facts) {
  if (nranks < 2 || nranks > ARFUSION_MAX_RANKS) {
    turn_everything_down(facts, arfusionReasonRankCount, nranks, ARFUSION_MAX_RANKS);
  } else if (nhosts > 1) {
    turn_everything_down(facts, arfusionReasonSeveralHosts, nhosts, 1);
  }
}

/* Sets facts->reason if this communicator can never serve anything. */
static void records_judge(const struct record* records, int nranks, struct route_facts* facts) {
  size_judge(nranks, count_hosts(records, nranks), facts);
  if (facts->reason != arfusionReasonNone) return;
  for (int r = 0; r < nranks; ++r) {
    const struct device_facts* own = &records[r].facts;
    if (own->driver_needed) {
      turn_everything_down(facts, arfusionReasonDriver, own->driver, own->driver_needed);
      return;
    }
    for (int s = 0; s < r; ++s) {
      if (own->unique && own->unique == records[s].facts.unique && !records[r].settings[SETTING_SHARED_GPU]) {
        turn_everything_down(facts, arfusionReasonSharedGpu, r, 0);
        return;
      }
    }
  }
}

/* ---------------------------------------------------------------- the communicator */

static const arfusionAlgorithm_t algorithm_of_setting[] = {
    [ALGO_AUTO] = arfusionAlgoAuto,
    [ALGO_NONE] = arfusionAlgoNone,
    [ALGO_ONESHOT_LAMPORT] = arfusionAlgoOneshotLamport,
    [ALGO_ONESHOT_SYNC] = arfusionAlgoOneshotSync,
    [ALGO_TWOSHOT] = arfusionAlgoTwoshot,
};

/* The file's table, or the one built in for the oldest of the devices. Returns where it is from. */
static const char* table_choose(const struct record* records, int my_rank, struct route_facts* facts) {
  const struct device_facts* oldest = &records[0].facts;
  const char* source = setting_info(SETTING_TUNING_FILE)->name;
  char text[TUNING_TEXT_BYTES], arch[TUNING_ARCH_BYTES];
  for (int r = 1; r < facts->nranks; ++r) {
    const struct device_facts* own = &records[r].facts;
    if (own->compute_major * 10 + own->compute_minor < oldest->compute_major * 10 + oldest->compute_minor) oldest = own;
  }
  if (records[0].has_table) {
    facts->table = records[0].table;
  } else {
    source = tuning_builtin(oldest->compute_major, oldest->compute_minor, facts->nranks, &facts->table);
  }
  if (records[0].settings[SETTING_PREFER] != PREFER_SPEED) facts->table.slower_from_bytes = INT64_MAX;
  tuning_arch(oldest->compute_major, oldest->compute_minor, arch);
  tuning_text(&facts->table, text);
  LOG_INFO(ARFUSION_LOG_TUNING, "rank %d of %d, %s, table (%s): %s", my_rank, facts->nranks, arch, source, text);
  return source;
}

/* Every rank reports the first peer it cannot reach; all of them then know the first such pair. */
static arfusionResult_t check_reach(const struct device_ops* device, const struct device_setup* setup,
                                    struct route_facts* facts) {
  int32_t all[ARFUSION_MAX_RANKS];
  const int32_t mine = device->unreachable(setup);
  FORWARD_IF_ERROR(bootstrap_all_gather(setup->bootstrap, &mine, all, sizeof mine));
  for (int r = 0; r < setup->nranks; ++r) {
    if (all[r] == PEERS_DISABLED) {
      turn_everything_down(facts, arfusionReasonDisabled, 0, 0);
      return arfusionSuccess;
    }
  }
  for (int r = 0; r < setup->nranks; ++r) {
    if (all[r] >= 0) {
      turn_everything_down(facts, arfusionReasonNoPeerAccess, r, all[r]);
      return arfusionSuccess;
    }
  }
  return arfusionSuccess;
}

/* Before first use: writes that do not arrive would be waited for in every operation. */
static arfusionResult_t check_writes(struct comm* comm, const struct device_setup* setup) {
  const arfusionResult_t result = peers_test(comm->device, comm->device_comm, setup, &comm->facts);
  if (result == arfusionSuccess && comm->facts.reason == arfusionReasonNone) return arfusionSuccess;
  comm->device->destroy(comm->device_comm);
  comm->device_comm = NULL;
  comm->capacity.workspaceBytes = 0;
  memset(comm->facts.launch_bytes, 0, sizeof comm->facts.launch_bytes);
  return result;
}

arfusionResult_t device_check_limit(const struct device_setup* setup, int64_t bytes) {
  const int64_t limit = setup->settings->value[SETTING_WORKSPACE_LIMIT];
  if (bytes <= limit) return arfusionSuccess;
  return error_set(arfusionInvalidArgument, "ARFUSION_WORKSPACE_LIMIT is %lld bytes, %d ranks need at least %lld",
                   (long long)limit, setup->nranks, (long long)bytes);
}

static int64_t request_bytes(const arfusionConfig_t* config) {
  return config->maxTokens * config->hidden * kernel_element_size(config->dataType);
}

static arfusionResult_t workspaces_create(struct comm* comm, const struct context* ctx, const arfusionConfig_t* config,
                                          const arfusionBootstrap_t* bootstrap, const struct record* records) {
  struct device_facts facts[ARFUSION_MAX_RANKS];
  for (int r = 0; r < comm->nranks; ++r) facts[r] = records[r].facts;
  const struct device_setup setup = {
      .dev = comm->dev,
      .rank = comm->rank,
      .nranks = comm->nranks,
      .settings = &ctx->settings,
      .facts = facts,
      .bootstrap = bootstrap,
      .max_request_bytes = comm->facts.max_request_bytes = request_bytes(config),
  };
  FORWARD_IF_ERROR(check_reach(comm->device, &setup, &comm->facts));
  if (comm->facts.reason != arfusionReasonNone) return arfusionSuccess;
  FORWARD_IF_ERROR(comm->device->create(&setup, &comm->device_comm, &comm->facts, &comm->capacity.workspaceBytes));
  return check_writes(comm, &setup);
}

static void capacity_fill(struct comm* comm) {
  const arfusionAlgorithm_t forced = comm->facts.forced;
  for (int a = 0; a < ARFUSION_NUM_ALGORITHMS; ++a) {
    if (forced != arfusionAlgoAuto && a != (int)forced) continue;
    if (comm->facts.launch_bytes[a] > comm->capacity.maxLaunchBytes) {
      comm->capacity.maxLaunchBytes = comm->facts.launch_bytes[a];
    }
  }
  comm->capacity.maxRequestBytes = comm->facts.max_request_bytes;
  comm->capacity.maxRowBytes = comm->capacity.maxLaunchBytes < comm->capacity.maxRequestBytes
                                   ? comm->capacity.maxLaunchBytes
                                   : comm->capacity.maxRequestBytes;
}

static arfusionResult_t comm_set_up(struct comm* comm, const struct context* ctx, const arfusionConfig_t* callers,
                                    const arfusionBootstrap_t* bootstrap) {
  arfusionConfig_t config;
  const int nranks = comm->nranks;
  unsigned char* wire = calloc((size_t)nranks + 1, RECORD_BYTES);
  struct record* records = calloc((size_t)nranks, sizeof *records);
  arfusionResult_t result = arfusionSuccess;
  if (!wire || !records) {
    result = error_set(arfusionSystemError, "out of memory for the records of %d ranks", nranks);
    goto out;
  }
  struct record mine = {0};
  record_fill(&mine, ctx, comm->dev, callers, &config, bootstrap);
  memcpy(wire, &mine, sizeof mine);
  if (nranks == 1) {
    records[0] = mine;
  } else {
    result = bootstrap_all_gather(bootstrap, wire, wire + RECORD_BYTES, RECORD_BYTES);
    if (result != arfusionSuccess) goto out;
    for (int r = 0; r < nranks; ++r) record_take(&records[r], wire + RECORD_BYTES * ((size_t)r + 1));
  }
  result = records_agree(records, nranks, comm->rank);
  if (result != arfusionSuccess) goto out;
  comm->facts.forced = algorithm_of_setting[mine.settings[SETTING_ALGO]];
  records_judge(records, nranks, &comm->facts);
  if (comm->facts.reason == arfusionReasonNone) {
    table_choose(records, comm->rank, &comm->facts);
    result = workspaces_create(comm, ctx, &config, bootstrap, records);
  }
out:
  free(records);
  free(wire);
  return result;
}

arfusionResult_t comm_init(struct context* ctx, int dev, const arfusionConfig_t* config,
                           const arfusionBootstrap_t* callers, struct comm** out) {
  arfusionBootstrap_t bootstrap;
  FORWARD_IF_ERROR(bootstrap_read(&bootstrap, callers));
  struct comm* comm = calloc(1, sizeof *comm);
  if (!comm) return error_set(arfusionSystemError, "out of memory for a communicator");
  comm->device = ctx->device;
  comm->dev = dev;
  comm->check = ctx->settings.value[SETTING_CHECK] != 0;
  comm->count_nan = ctx->settings.value[SETTING_COUNT_NAN] != 0;
  comm->rank = bootstrap.rank;
  comm->nranks = comm->facts.nranks = bootstrap.nranks;
  comm->capacity.size = sizeof comm->capacity;
  comm->stats.size = sizeof comm->stats;
  log_set_device(dev);
  arfusionResult_t result = arfusionSuccess;
  if (bootstrap.nhosts > 1) {
    arfusionConfig_t unused;
    turn_everything_down(&comm->facts, arfusionReasonSeveralHosts, bootstrap.nhosts, 1);
    result = config_read(&unused, config);
    if (result == arfusionSuccess) result = device_check(ctx, dev);
  } else {
    result = comm_set_up(comm, ctx, config, &bootstrap);
  }
  if (result != arfusionSuccess) {
    free(comm);
    return result;
  }
  capacity_fill(comm);
  if (comm->facts.reason != arfusionReasonNone) {
    char text[256];
    LOG_INFO(ARFUSION_LOG_INIT, "rank %d of %d will turn every request down: %s", comm->rank, comm->nranks,
             text_of_reason(text, sizeof text, comm->facts.reason, comm->facts.reason_value, comm->facts.reason_limit));
  } else {
    LOG_INFO(ARFUSION_LOG_INIT, "rank %d of %d on device %d: requests up to %lld bytes, workspace %lld bytes",
             comm->rank, comm->nranks, dev, (long long)comm->capacity.maxRequestBytes,
             (long long)comm->capacity.workspaceBytes);
  }
  *out = comm;
  return arfusionSuccess;
}

/* ---------------------------------------------------------------- one that is only asked about */

arfusionResult_t comm_predict(const struct context* ctx, int dev, int nranks, int nhosts, struct route_facts* route,
                              const char** source) {
  const arfusionBootstrap_t bootstrap = {.size = sizeof bootstrap, .nranks = nranks};
  struct record records[ARFUSION_MAX_RANKS] = {0};
  struct device_facts facts[ARFUSION_MAX_RANKS];
  arfusionConfig_t config;
  *route = (struct route_facts){.nranks = nranks, .forced = algorithm_of_setting[ctx->settings.value[SETTING_ALGO]]};
  *source = "none";
  size_judge(nranks, nhosts, route);
  if (route->reason != arfusionReasonNone) return arfusionSuccess;
  record_fill(&records[0], ctx, dev, NULL, &config, &bootstrap);
  FORWARD_IF_ERROR((arfusionResult_t)records[0].result);
  records[0].facts.unique = 0; /* which would mean one GPU for all of them */
  for (int r = 0; r < nranks; ++r) {
    records[r] = records[0];
    facts[r] = records[0].facts;
  }
  records_judge(records, nranks, route);
  if (route->reason != arfusionReasonNone) return arfusionSuccess;
  *source = table_choose(records, 0, route);
  const struct device_setup setup = {
      .dev = dev,
      .nranks = nranks,
      .settings = &ctx->settings,
      .facts = facts,
      .max_request_bytes = route->max_request_bytes = request_bytes(&config),
  };
  if (!ctx->device->is_host && peers_judge(NULL, &setup) == PEERS_DISABLED) {
    turn_everything_down(route, arfusionReasonDisabled, 0, 0);
  }
  return ctx->device->plan(&setup, route);
}

/* ---------------------------------------------------------------- all ranks in one process */

struct init_thread {
  pthread_t thread;
  struct context* ctx;
  int dev;
  const arfusionConfig_t* config;
  const arfusionBootstrap_t* bootstrap;
  struct comm* comm;
  arfusionResult_t result;
  char error[ERROR_TEXT];
};

static void* init_thread_run(void* argument) {
  struct init_thread* self = argument;
  self->result = comm_init(self->ctx, self->dev, self->config, self->bootstrap, &self->comm);
  if (self->result != arfusionSuccess) strncpy(self->error, error_last(), sizeof self->error - 1);
  return NULL;
}

static arfusionResult_t init_threads_run(struct init_thread* threads, int nranks) {
  int started = 0;
  arfusionResult_t result = arfusionSuccess;
  for (; started < nranks; ++started) {
    if (pthread_create(&threads[started].thread, NULL, init_thread_run, &threads[started])) break;
  }
  for (int r = 0; r < started; ++r) pthread_join(threads[r].thread, NULL);
  for (int r = 0; r < started && result == arfusionSuccess; ++r) {
    if (threads[r].result != arfusionSuccess) result = error_set(threads[r].result, "%s", threads[r].error);
  }
  if (started < nranks) result = error_set(arfusionSystemError, "no thread could be started for rank %d", started);
  if (result != arfusionSuccess) {
    for (int r = 0; r < started; ++r) {
      if (threads[r].result == arfusionSuccess) comm_finalize(threads[r].comm);
    }
  }
  return result;
}

arfusionResult_t comm_init_all(struct context* ctx, int nranks, const int* devs, const arfusionConfig_t* config,
                               struct comm** out) {
  int ndev;
  if (nranks < 1) return error_set(arfusionInvalidArgument, "nranks is %d, at least 1", nranks);
  if (nranks > 4096) return error_set(arfusionInvalidArgument, "nranks is %d, at most 4096 in one process", nranks);
  FORWARD_IF_ERROR(ctx->device->count(&ndev));
  arfusionResult_t result = arfusionSuccess;
  struct init_thread* threads = calloc((size_t)nranks, sizeof *threads);
  arfusionBootstrap_t* bootstraps = calloc((size_t)nranks, sizeof *bootstraps);
  if (!threads || !bootstraps) {
    result = error_set(arfusionSystemError, "out of memory for %d ranks", nranks);
    goto out;
  }
  result = bootstrap_from_threads(nranks, ctx->settings.value[SETTING_INIT_TIMEOUT], bootstraps);
  if (result != arfusionSuccess) goto out;
  for (int r = 0; r < nranks; ++r) {
    threads[r] = (struct init_thread){
        .ctx = ctx, .dev = devs ? devs[r] : r % ndev, .config = config, .bootstrap = &bootstraps[r]};
  }
  result = init_threads_run(threads, nranks);
  for (int r = 0; r < nranks; ++r) {
    if (result == arfusionSuccess) out[r] = threads[r].comm;
    bootstrap_destroy(&bootstraps[r]);
  }
out:
  free(bootstraps);
  free(threads);
  return result;
}
