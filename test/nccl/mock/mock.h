/* SPDX-License-Identifier: Apache-2.0
 *
 * mock.h: a libnccl for threads of one process, in host memory, for the tests of libarfusion-nccl.so. Its
 * communicators, groups and operations behave as NCCL's do: streams run what is enqueued on threads of their own, an
 * operation waits for the other ranks', a nonblocking communicator is in progress until all ranks are there, pointers
 * of destroyed communicators are used again at once. Ranks whose operations do not match are an error of the test, and
 * end it.
 */
#ifndef ARFUSION_TEST_MOCK_H_
#define ARFUSION_TEST_MOCK_H_

#include <stddef.h>
#include <stdint.h>

#define MOCK_API __attribute__((visibility("default")))

/* ---------------------------------------------------------------- streams */

MOCK_API void* mockStreamCreate(void);
MOCK_API void mockStreamDestroy(void* stream); /* waits for it */
MOCK_API void mockStreamRun(void* stream, void (*function)(void*), void* argument);
MOCK_API void mockStreamWait(void* stream);
MOCK_API int mockStreamIsIdle(void* stream);

/* ---------------------------------------------------------------- what tests ask */

/* ncclAllReduce calls with a count that is not 0 that reached the mock. */
MOCK_API uint64_t mockAllReduces(void);

/* From now on ncclAllGather does not return before its communicator is aborted: as NCCL's, while it connects to a rank
 * that never comes. */
MOCK_API void mockAllGatherHangs(void);

/* From now on ncclCommAbort is in progress when it returns, in a group ncclGroupEnd is: the communicator ends a while
 * later, and until then what it gathers may be written. */
MOCK_API void mockAbortsLast(void);

/* Communicators that exist. */
MOCK_API int mockCommunicators(void);

/* What a function of an NCCL that nobody here knows may look like: arguments in all registers and on the stack, a
 * result that is returned in memory. It gives back what it was given. */
struct mock_wide {
  long whole[10];
  double real[9];
};
#define MOCK_WIDE_PARAMETERS                                                                                \
  long a, double p, long b, double q, long c, double r, long d, double s, long e, double t, long f, double u, \
      long g, double v, long h, double w, long i, double x, long j
MOCK_API struct mock_wide ncclTeamCft(MOCK_WIDE_PARAMETERS);

/* See plugin/nccl/gather_host.h. */
MOCK_API int arfusionHostNcclDone(void* comm);

#endif
