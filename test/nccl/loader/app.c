/* SPDX-License-Identifier: Apache-2.0
 *
 * app.c: an NCCL application that knows nothing of arfusion, for test/cli/nccl_loader.sh: two ranks in one thread, one
 * allreduce of 100 floats. Linked with a libnccl, or (OPENS_BY_HAND) given one's path. Prints NCCL's version and the
 * sum, or the results of calls that must not succeed.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int ncclGetVersion(int* version);
int ncclCommInitAll(void** comms, int ndev, const int* devs);
int ncclGroupStart(void);
int ncclGroupEnd(void);
int ncclAllReduce(const void* send, void* receive, size_t count, int type, int operation, void* comm, void* stream);
int ncclCommDestroy(void* comm);
int arfusionHostNcclDone(void* comm);

#ifdef OPENS_BY_HAND
static void* library;
static void* function(const char* name) {
  void* symbol = dlsym(library, name);
  if (!symbol) fprintf(stderr, "%s\n", dlerror());
  return symbol;
}
#define CALL(name) ((__typeof__(&name))function(#name))
#else
#define CALL(name) name
#endif

int main(int argc, char** argv) {
  void* comms[2] = {NULL, NULL};
  float data[2][100];
  int version = 0;
  (void)argc;
#ifdef OPENS_BY_HAND
  library = dlopen(argv[1], RTLD_NOW);
  if (!library) return fprintf(stderr, "%s\n", dlerror()), 1;
#else
  (void)argv;
#endif
  const int asked = CALL(ncclGetVersion)(&version), made = asked ? asked : CALL(ncclCommInitAll)(comms, 2, NULL);
  if (asked || made) {
    printf("results %d %d %d\n", asked, CALL(ncclGroupStart)(), CALL(ncclCommInitAll)(comms, 2, NULL));
    return 0;
  }
  CALL(ncclGroupStart)();
  for (int r = 0; r < 2; ++r) {
    for (int i = 0; i < 100; ++i) data[r][i] = (float)(i + r);
    CALL(ncclAllReduce)(data[r], data[r], 100, 7, 0, comms[r], NULL);
  }
  if (CALL(ncclGroupEnd)()) return 1;
  for (int r = 0; r < 2; ++r) CALL(ncclCommDestroy)(comms[r]); /* waits */
  printf("version %d sum %g\n", version, (double)(data[0][99] + data[1][0]));
  return 0;
}
