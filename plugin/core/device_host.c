/* SPDX-License-Identifier: Apache-2.0
 *
 * device_host.c: the host device. A rank's workspace is a memfd that all ranks map; calls are synchronous.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include "kernels/host/host_kernels.h"
#include "plugin/core/bootstrap.h"
#include "plugin/core/device.h"
#include "plugin/core/failure.h"
#include "plugin/core/log.h"
#include "plugin/core/peers.h"

/* Larger slots would only leave the caches; requests that exceed one go out as several launches. */
static const int64_t largest_workspace = 32 << 20;

struct device_comm {
  struct host_comm kernels;
  int count_nan;
  uint64_t nan_counts[KERNEL_NAN_PLACES];
};

static arfusionResult_t host_count(int* ndev) {
  *ndev = 1;
  return arfusionSuccess;
}

static arfusionResult_t host_current(int* dev) {
  *dev = 0;
  return arfusionSuccess;
}

static int usable_processors(void) {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
}

static arfusionResult_t host_properties(int dev, arfusionProperties_t* properties) {
  struct sysinfo info;
  (void)dev;
  snprintf(properties->name, sizeof properties->name, "host");
  properties->isHost = 1;
  properties->deviceOrdinal = -1;
  properties->multiprocessors = usable_processors();
  if (!sysinfo(&info)) properties->memoryBytes = (size_t)info.totalram * info.mem_unit;
  return arfusionSuccess;
}

static arfusionResult_t host_facts(int dev, struct device_facts* facts) {
  (void)dev;
  facts->shareable_memory = 1;
  return arfusionSuccess;
}

static int host_unreachable(const struct device_setup* setup) {
  (void)setup;
  return PEERS_ALL;
}

/* A workspace is as large as it will ever be: who maps a peer's must not fault (SIGBUS) because that makes it
 * smaller. */
enum { SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

/* Allocates now what would otherwise be a fault at first use, when memory is full. */
static arfusionResult_t memory_create(size_t bytes, int* fd) {
  *fd = memfd_create("arfusion-workspace", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (*fd < 0) return error_set(arfusionSystemError, "no shared memory: memfd_create: %s", strerror(errno));
  int error = ftruncate(*fd, (off_t)bytes) ? errno : 0;
  while (!error && (error = posix_fallocate(*fd, 0, (off_t)bytes)) == EINTR) error = 0;
  if (!error && fcntl(*fd, F_ADD_SEALS, SEALS)) error = errno;
  if (error) {
    close(*fd);
    *fd = -1;
    return error_set(arfusionSystemError, "no shared memory for a workspace of %zu bytes: %s", bytes, strerror(error));
  }
  return arfusionSuccess;
}

static arfusionResult_t memory_map(int fd, size_t bytes, unsigned char** out) {
  void* address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) {
    return error_set(arfusionSystemError, "a workspace of %zu bytes cannot be mapped: %s", bytes, strerror(errno));
  }
  *out = address;
  return arfusionSuccess;
}

static void host_destroy(struct device_comm* comm) {
  for (int r = 0; r < comm->kernels.nranks; ++r) {
    if (comm->kernels.workspace[r]) munmap(comm->kernels.workspace[r], comm->kernels.layout.total);
  }
  free(comm);
}

static arfusionResult_t own_workspace(struct host_comm* kernels, int* fd) {
  FORWARD_IF_ERROR(memory_create(kernels->layout.total, fd));
  FORWARD_IF_ERROR(memory_map(*fd, kernels->layout.total, &kernels->workspace[kernels->rank]));
  host_comm_reset(kernels);
  return arfusionSuccess;
}

/* What came as the workspace of rank r. */
static arfusionResult_t memory_check(int fd, size_t bytes, int r) {
  struct stat status;
  const int seals = fcntl(fd, F_GET_SEALS);
  if (fstat(fd, &status) || (size_t)status.st_size != bytes || seals < 0 || (seals & SEALS) != SEALS) {
    return error_set(arfusionRemoteError, "what rank %d gave as its workspace is no sealed memory of %zu bytes", r,
                     bytes);
  }
  return arfusionSuccess;
}

static arfusionResult_t map_peers(struct host_comm* kernels, int* fds) {
  arfusionResult_t result = arfusionSuccess;
  for (int r = 0; r < kernels->nranks; ++r) {
    if (fds[r] < 0) continue;
    if (result == arfusionSuccess) result = memory_check(fds[r], kernels->layout.total, r);
    if (result == arfusionSuccess) result = memory_map(fds[r], kernels->layout.total, &kernels->workspace[r]);
    close(fds[r]);
  }
  return result;
}

static void launch_bytes_fill(const struct host_layout* layout, struct route_facts* route) {
  static const arfusionAlgorithm_t algorithms[] = {arfusionAlgoOneshotLamport, arfusionAlgoOneshotSync,
                                                   arfusionAlgoTwoshot};
  for (int i = 0; i < 3; ++i) {
    route->launch_bytes[algorithms[i]] = (int64_t)host_layout_launch_bytes(layout, algorithms[i]);
  }
}

static arfusionResult_t layout_choose(const struct device_setup* setup, struct host_layout* layout) {
  const int64_t limit = setup->settings->value[SETTING_WORKSPACE_LIMIT];
  host_layout_compute(layout, setup->nranks, setup->max_request_bytes,
                      limit < largest_workspace ? limit : largest_workspace);
  return device_check_limit(setup, (int64_t)layout->total);
}

static arfusionResult_t host_plan(const struct device_setup* setup, struct route_facts* route) {
  struct host_layout layout;
  FORWARD_IF_ERROR(layout_choose(setup, &layout));
  launch_bytes_fill(&layout, route);
  return arfusionSuccess;
}

static arfusionResult_t host_create(const struct device_setup* setup, struct device_comm** out,
                                    struct route_facts* route, int64_t* workspace_bytes) {
  int fd = -1, fds[ARFUSION_MAX_RANKS];
  struct device_comm* comm = aligned_alloc(64, (sizeof *comm + 63) / 64 * 64);
  arfusionResult_t result = comm ? arfusionSuccess : error_set(arfusionSystemError, "out of memory for a communicator");
  if (comm) {
    memset(comm, 0, sizeof *comm);
    comm->kernels.rank = setup->rank;
    comm->kernels.nranks = setup->nranks;
    comm->kernels.yield = setup->nranks > usable_processors();
    comm->count_nan = setup->settings->value[SETTING_COUNT_NAN] != 0;
    comm->kernels.timeout_ns = (uint64_t)setup->settings->value[SETTING_TIMEOUT] * 1000000000u;
    result = layout_choose(setup, &comm->kernels.layout);
    if (result == arfusionSuccess) result = own_workspace(&comm->kernels, &fd);
  }
  result = bootstrap_vote(setup->bootstrap, result);
  if (result != arfusionSuccess) goto fail;
  result = bootstrap_exchange_fds(setup->bootstrap, fd, fds, setup->settings->value[SETTING_INIT_TIMEOUT]);
  if (result == arfusionSuccess) result = map_peers(&comm->kernels, fds);
  result = bootstrap_vote(setup->bootstrap, result);
  if (result != arfusionSuccess) goto fail;
  close(fd);
  launch_bytes_fill(&comm->kernels.layout, route);
  *workspace_bytes = (int64_t)comm->kernels.layout.total;
  peers_log_place(setup->rank);
  *out = comm;
  return arfusionSuccess;
fail:
  if (fd >= 0) close(fd);
  if (comm) host_destroy(comm);
  return result;
}

static arfusionResult_t host_test_peers(struct device_comm* comm, uint32_t lost, uint64_t limit_ns, int* peer) {
  *peer = host_peer_test(&comm->kernels, lost, limit_ns);
  return arfusionSuccess;
}

static void host_failure(struct device_comm* comm, struct kernel_failure* failure) {
  if (__atomic_load_n(&comm->kernels.failure.kind, __ATOMIC_ACQUIRE) == KERNEL_FAILURE_NONE) return;
  *failure = comm->kernels.failure;
}

/* The caller is there to be told at once. */
static arfusionResult_t host_failed(struct device_comm* comm, const char* what) {
  struct kernel_failure failure = {0};
  char text[512];
  host_failure(comm, &failure);
  failure_text(&failure, text, sizeof text);
  return error_set(failure_result(&failure), "%s: %s", what, text);
}

static arfusionResult_t host_check_call(struct device_comm* comm, arfusionAlgorithm_t algorithm,
                                        const struct kernel_call* call, void* stream) {
  (void)stream;
  if (host_check(&comm->kernels, algorithm, call)) {
    return host_failed(comm, "the operation was not begun, nothing was written");
  }
  return arfusionSuccess;
}

static arfusionResult_t host_run_op(struct device_comm* comm, arfusionAlgorithm_t algorithm, const struct kernel_op* op,
                                    void* stream) {
  (void)stream;
  if (comm->count_nan) host_nan_count(op, 0, comm->nan_counts);
  if (host_run(&comm->kernels, algorithm, op)) {
    return host_failed(comm, "the operation did not end, outputs are undefined");
  }
  if (comm->count_nan) host_nan_count(op, 1, comm->nan_counts);
  return arfusionSuccess;
}

static arfusionResult_t host_run_epilogue(int dev, const struct kernel_op* op, void* stream) {
  (void)dev;
  (void)stream;
  host_epilogue(op);
  return arfusionSuccess;
}

static void host_abort(struct device_comm* comm) { host_comm_abort(&comm->kernels); }

static void host_workspace(const struct device_comm* comm, arfusionWorkspace_t* view) {
  view->flagsOffset = 0;
  view->lamportOffset = (int64_t)comm->kernels.layout.lamport;
  view->stageOffset = (int64_t)comm->kernels.layout.stage;
  for (int r = 0; r < comm->kernels.nranks; ++r) view->address[r] = comm->kernels.workspace[r];
}

static void host_nan_counts(struct device_comm* comm, int all, uint64_t counts[KERNEL_NAN_PLACES]) {
  (void)all;
  memcpy(counts, comm->nan_counts, sizeof comm->nan_counts);
}

const struct device_ops device_host = {
    .is_host = 1,
    .count = host_count,
    .current = host_current,
    .properties = host_properties,
    .facts = host_facts,
    .unreachable = host_unreachable,
    .plan = host_plan,
    .create = host_create,
    .test_peers = host_test_peers,
    .destroy = host_destroy,
    .check = host_check_call,
    .run = host_run_op,
    .epilogue = host_run_epilogue,
    .abort = host_abort,
    .failure = host_failure,
    .workspace = host_workspace,
    .nan_counts = host_nan_counts,
};
