/* SPDX-License-Identifier: Apache-2.0
 *
 * support.h: what the tests of libarfusion-nccl.so share.
 */
#ifndef ARFUSION_TEST_NCCL_SUPPORT_H_
#define ARFUSION_TEST_NCCL_SUPPORT_H_

#include <stddef.h>
#include <stdint.h>

#include "plugin/nccl/nccl_abi.h"
#include "test/nccl/mock/mock.h"

/* Of the mock only; the library passes them on. */
int ncclGetUniqueId(nccl_unique_id* id);
int ncclRedOpCreatePreMulSum(int* operation, void* scalar, int type, int residence, void* comm);
int ncclRedOpDestroy(int operation, void* comm);

/* An ncclConfig_t of a communicator that does not block. */
struct nccl_config support_nonblocking(void);

/* The host device with streams, small workspaces, quiet. Before the first NCCL call. */
void support_settings(void);

/* Of stream_plugin.c, once the library has opened it: the plugin's communicators that have not ended, and what the
 * library has made its defaults. */
int support_plugin_communicators(void);
const char* support_plugin_defaults(void);

/* The plugin's communicators end with NCCL's; after an abort by a thread of their own. */
void support_plugin_ends(void);

/* Ends the process if it is not so. */
#define CHECK(condition)                                                    \
  do {                                                                      \
    if (!(condition)) support_fail(__FILE__, __LINE__, #condition);         \
  } while (0)
void support_fail(const char* file, int line, const char* condition) __attribute__((noreturn));

/* Runs `function` on `count` threads, with 0 to count - 1, and waits for all. */
void support_threads(int count, void (*function)(int index, void* argument), void* argument);

/* Of a clock that only goes forward. */
double support_seconds(void);

/* Waits until a communicator is in progress no more; gives what it is then. */
int support_wait(void* comm);

#endif
