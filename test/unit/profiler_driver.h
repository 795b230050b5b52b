/* SPDX-License-Identifier: Apache-2.0
 *
 * profiler_driver.h: NCCL's side of its profiler interface, for tests: opens the library under the name and in the way
 * that NCCL does, and sends events in NCCL's order. Its declarations are its own, so that a wrong one in the plugin
 * shows.
 */
#ifndef ARFUSION_TEST_PROFILER_DRIVER_H_
#define ARFUSION_TEST_PROFILER_DRIVER_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Kinds of events: 1 << these. */
enum { GROUP, COLL, P2P, PROXY_OP, PROXY_STEP, PROXY_CTRL, KERNEL_CH, NET_PLUGIN };
enum { GROUP_API = 8, COLL_API, P2P_API, KERNEL_LAUNCH, CE_COLL, CE_SYNC, CE_BATCH, KINDS };

struct event {
  uint64_t type;
  void* parent;
  int rank;
  union {
    struct {
      bool captured;
      int depth;
    } group_api;
    struct {
      const char* func;
      size_t count;
      const char* datatype;
      int root;
      void* stream;
      bool captured;
    } coll_api;
    unsigned char others[88]; /* the largest kind of version 6 */
  };
};

struct profiler {
  const char* name;
  int (*init)(void** context, uint64_t id, int* mask, const char* name, int nnodes, int nranks, int rank,
              void (*logger)(int level, unsigned long flags, const char* file, int line, const char* fmt, ...));
  int (*start)(void* context, void** handle, struct event* event);
  int (*stop)(void* handle);
  int (*record)(void* handle, int state, void* args);
  int (*finalize)(void* context);
};

struct driver {
  void* library;
  const struct profiler* profiler;
  int mask; /* one for all communicators, as NCCL has it */
};

/* One communicator on one rank. */
struct driver_comm {
  struct driver* driver;
  void* context;
};

/* BUILDDIR/NAME. */
void driver_path(const char* name, char path[4096]);

/* Version 5 or 6. Test failures end the process. */
void driver_open(struct driver* driver, int version);
void driver_close(struct driver* driver);

void driver_begin(struct driver* driver, struct driver_comm* comm, uint64_t id, const char* name, int nnodes,
                  int nranks, int rank);
void driver_end(struct driver_comm* comm);

/* A collective in a group of its own, as ncclAllReduce makes one; only the events that the mask asks for are sent. */
void driver_call(struct driver_comm* comm, const char* func, const char* datatype, size_t count, bool captured);

/* One event of `kind`, whatever the mask, full of garbage, with all that can follow its start; for threads of NCCL's
 * own. */
void driver_event(struct driver_comm* comm, int kind);

#endif
