/* SPDX-License-Identifier: Apache-2.0
 *
 * profiler.c: what NCCL calls when the plugin is opened as its profiler (NCCL_PROFILER_PLUGIN=arfusion, or
 * NCCL_NET_PLUGIN=arfusion, in whose library NCCL looks as well). Both ask for the report: there is no other switch.
 *
 * One call of a collective is one look-up and one addition; it has no handle, so that NCCL does not come back for its
 * end. Nothing here makes NCCL fail: without memory or with wrong settings a communicator has no report. NCCL may
 * close the library after the last communicator and open it again, so that nothing outlives that; communicators that
 * are never destroyed are reported on when the process ends, if it gets that far.
 */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "plugin/core/comm.h"
#include "plugin/core/log.h"
#include "plugin/nccl/profiler_abi.h"
#include "plugin/nccl/profiler_file.h"

struct profiler_comm {
  struct profiler_facts facts;
  struct timespec began;
  char path[PATH_MAX]; /* "": no file */
  int told;            /* its report has been written */
  struct profiler_comm *next, **link;
  struct profiler_calls calls;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of what follows */
static struct profiler_comm* comms;
static pid_t comms_pid;        /* whose they are; a process that was forked has copies */
static struct context* plugin; /* while there are any */
static int file_warned;

extern const arfusionPlugin_v1_t arfusionPlugin_v1;

/* ---------------------------------------------------------------- a communicator's beginning */

static void file_warn(const char* path, int error) {
  if (file_warned) return;
  file_warned = 1;
  LOG_WARN("ARFUSION_REPORT: %.500s: %s. There is no report in a file.", path, strerror(error));
}

static void path_choose(struct profiler_comm* comm) {
  const char* name = plugin->settings.text[SETTING_REPORT];
  if (!name[0]) return;
  int error = profiler_file_path(name, &comm->facts, comm->path);
  if (!error) error = profiler_file_append(comm->path, "", 0);
  if (!error) return;
  file_warn(error == ENAMETOOLONG ? name : comm->path, error);
  comm->path[0] = '\0';
}

static arfusionResult_t facts_fill(struct profiler_facts* facts) {
  arfusionProperties_t properties = {.size = sizeof properties};
  int dev;
  facts->pid = getpid();
  if (gethostname(facts->host, sizeof facts->host - 1)) facts->host[0] = '\0';
  FORWARD_IF_ERROR(plugin->device->current(&dev));
  FORWARD_IF_ERROR(plugin->device->properties(dev, &properties));
  snprintf(facts->device, sizeof facts->device, "%s", properties.name);
  facts->compute_major = properties.computeMajor;
  facts->compute_minor = properties.computeMinor;
  tuning_arch(facts->compute_major, facts->compute_minor, facts->arch);
  return comm_predict(plugin, dev, facts->nranks, facts->nnodes, &facts->route, &facts->table);
}

static void plugin_release(void) {
  if (comms || !plugin) return;
  arfusionPlugin_v1.finalize(plugin);
  plugin = NULL;
  file_warned = 0;
}

/* Communicators of the process that this one was forked from: it reports on them itself. NCCL may still finalize the
 * copies. Holding the lock. */
static void inherited_forget(void) {
  if (comms_pid != getpid()) comms = NULL;
  comms_pid = getpid();
}

/* Holding the lock. */
static arfusionResult_t comm_begin(struct profiler_comm* comm) {
  if (!plugin) FORWARD_IF_ERROR(arfusionPlugin_v1.init((void**)&plugin, NULL));
  FORWARD_IF_ERROR(facts_fill(&comm->facts));
  path_choose(comm);
  clock_gettime(CLOCK_MONOTONIC, &comm->began);
  comm->next = comms;
  comm->link = &comms;
  if (comms) comms->link = &comm->next;
  comms = comm;
  return arfusionSuccess;
}

static arfusionResult_t profiler_init(void** context, uint64_t comm_id, int* mask, const char* comm_name, int nnodes,
                                      int nranks, int rank, arfusionDebugLogger_t logger) {
  (void)logger; /* it is silent unless NCCL_DEBUG is set */
  if (!context || !mask) return arfusionSuccess;
  struct profiler_comm* comm = calloc(1, sizeof *comm);
  arfusionResult_t result = comm ? arfusionSuccess : error_set(arfusionSystemError, "out of memory for a profile");
  pthread_mutex_lock(&lock);
  inherited_forget();
  if (result == arfusionSuccess) {
    comm->facts = (struct profiler_facts){.id = comm_id, .rank = rank, .nranks = nranks, .nnodes = nnodes};
    snprintf(comm->facts.name, sizeof comm->facts.name, "%s", comm_name ? comm_name : "");
    result = comm_begin(comm);
  }
  /* The mask is that of all communicators: one that fails must not silence the others, whose events read it
   * meanwhile. */
  __atomic_store_n(mask, comms ? NCCL_PROFILER_COLL_API : 0, __ATOMIC_RELAXED);
  if (result != arfusionSuccess) plugin_release();
  pthread_mutex_unlock(&lock);
  if (result != arfusionSuccess) {
    LOG_WARN("NCCL communicator 0x%llx has no report", (unsigned long long)comm_id);
    free(comm);
    comm = NULL;
  }
  *context = comm;
  return arfusionSuccess;
}

/* ---------------------------------------------------------------- events */

static arfusionResult_t profiler_start_event(void* context, void** handle, const struct nccl_profiler_event* event) {
  struct profiler_comm* comm = context;
  if (handle) *handle = NULL;
  if (!comm || !event || event->type != NCCL_PROFILER_COLL_API || !event->coll_api.func) return arfusionSuccess;
  if (strcmp(event->coll_api.func, "AllReduce") != 0) {
    atomic_fetch_add_explicit(&comm->calls.others, 1, memory_order_relaxed);
    return arfusionSuccess;
  }
  profiler_calls_count(&comm->calls, report_type_parse(event->coll_api.datatype), event->coll_api.count,
                       event->coll_api.graph_captured);
  return arfusionSuccess;
}

static arfusionResult_t profiler_stop_event(void* handle) {
  (void)handle;
  return arfusionSuccess;
}

static arfusionResult_t profiler_record_event_state(void* handle, int state, const void* args) {
  (void)handle;
  (void)state;
  (void)args;
  return arfusionSuccess;
}

/* ---------------------------------------------------------------- a communicator's end */

typedef void (*print_function)(const struct report* report, FILE* out);

/* NULL: out of memory. */
static char* print(print_function function, const struct report* report, size_t* bytes) {
  char* text = NULL;
  FILE* out = open_memstream(&text, bytes);
  if (!out) return NULL;
  function(report, out);
  if (!ferror(out) && !fclose(out)) return text;
  free(text);
  return NULL;
}

static void text_write(const struct report* report) {
  size_t bytes;
  char* text = print(report_print_text, report, &bytes);
  if (text) log_text(text, bytes);
  free(text);
}

static void file_write(const struct profiler_comm* comm, const struct report* report) {
  size_t bytes;
  char* text = print(report_print_json, report, &bytes);
  const int error = text ? profiler_file_append(comm->path, text, bytes) : ENOMEM;
  if (error) file_warn(comm->path, error);
  free(text);
}

/* All ranks make the same calls: rank 0 writes the text for all of them. Holding the lock. */
static void comm_tell(struct profiler_comm* comm, int ended) {
  struct timespec now;
  struct report report;
  if (comm->told) return;
  comm->told = 1;
  if (report_make(&report, &comm->facts, &comm->calls)) {
    LOG_WARN("out of memory for the report on NCCL communicator 0x%llx", (unsigned long long)comm->facts.id);
    return;
  }
  clock_gettime(CLOCK_MONOTONIC, &now);
  report.seconds = (double)(now.tv_sec - comm->began.tv_sec) + (double)(now.tv_nsec - comm->began.tv_nsec) * 1e-9;
  report.ended = ended;
  if (comm->facts.rank == 0) text_write(&report);
  if (comm->path[0]) file_write(comm, &report);
  report_free(&report);
}

static arfusionResult_t profiler_finalize(void* context) {
  struct profiler_comm* comm = context;
  /* In a process that was forked the communicator is somebody else's, and the lock may stay locked for ever. */
  if (!comm || comm->facts.pid != getpid()) return arfusionSuccess;
  pthread_mutex_lock(&lock);
  comm_tell(comm, 1);
  *comm->link = comm->next;
  if (comm->next) comm->next->link = comm->link;
  plugin_release();
  pthread_mutex_unlock(&lock);
  free(comm);
  return arfusionSuccess;
}

/* Events may still be counted meanwhile, and NCCL may still finalize afterwards. */
__attribute__((destructor)) static void comms_tell(void) {
  if (comms_pid != getpid()) return;
  pthread_mutex_lock(&lock);
  for (struct profiler_comm* comm = comms; comm; comm = comm->next) comm_tell(comm, 0);
  pthread_mutex_unlock(&lock);
}

/* ---------------------------------------------------------------- what NCCL looks up */

#define PROFILER                                                                                                       \
  {                                                                                                                    \
    .name = "arfusion", .init = profiler_init, .start_event = profiler_start_event, .stop_event = profiler_stop_event, \
    .record_event_state = profiler_record_event_state, .finalize = profiler_finalize                                   \
  }

extern const struct nccl_profiler ncclProfiler_v5, ncclProfiler_v6;
__attribute__((visibility("default"))) const struct nccl_profiler ncclProfiler_v5 = PROFILER;
__attribute__((visibility("default"))) const struct nccl_profiler ncclProfiler_v6 = PROFILER;
