/* SPDX-License-Identifier: Apache-2.0
 *
 * test_faults.c: a rank's process is killed, stopped or ends, anywhere: before and within set-up, between calls, within
 * operations. The others, two threads of this process, learn of it within the time limit, clean up and make a new
 * communicator; nothing is left over.
 *
 *   test_faults [CYCLES [SEED]]    so many of them at random points (1000)
 */
#include <dirent.h>
#include <malloc.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "test/gpu/random.h"
#include "test/unit/support.h"

static const arfusionPlugin_v1_t* const plugin = &arfusionPlugin_v1;

enum { NRANKS = 3, VICTIM = 1, OPERATIONS = 3, GATHERS = 8, ENDLESS = 1000000 };
enum { OPERATION_LIMIT = 2, SET_UP_LIMIT = 3 }; /* seconds, of the hasty context */

enum how { KILL, EXIT, STOP };

/* Where it happens: just before these, in the order of the calls; or some time after the first operation. */
enum where {
  BOOTSTRAP,
  SET_UP,                        /* commInit */
  GATHER,                        /* its all-gather number `gather` */
  OPERATION = GATHER + GATHERS,  /* and those that follow */
  FINALIZE = OPERATION + OPERATIONS,
  DESTROY,
  RUNNING,
  PLACES
};

struct fault {
  enum how how;
  int where;     /* enum where, GATHER + n, or OPERATION + n */
  int microseconds; /* RUNNING: when */
  int aborted;   /* whoever watches aborts a survivor when the victim has died */
};

static void* hasty;
static void* patient; /* its waits do not end by themselves before the tests do */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) /* some 30 s, too */
static int cycles = 100;
#else
static int cycles = 1000;
#endif
static uint64_t seed;

/* What the victim leaves where this process sees it. */
struct last_words {
  atomic_int running; /* it has done its first operation */
  int gathers;        /* it has come to */
  arfusionResult_t result;
  int ended;
};
static struct last_words* last_words;

/* ---------------------------------------------------------------- the victim */

static void happen(const struct fault* fault) {
  switch (fault->how) {
    case KILL: raise(SIGKILL); break;
    case EXIT: _exit(0);
    case STOP: raise(SIGSTOP); break; /* and goes on when it is woken */
  }
}

static void reach(const struct fault* fault, int where) {
  if (fault->where == where) happen(fault);
}

struct counted {
  const struct fault* fault;
  arfusionBootstrap_t inner;
  int gathers;
};

static arfusionResult_t counted_gather(void* opaque, const void* send, void* recv, size_t bytes) {
  struct counted* counted = opaque;
  last_words->gathers = counted->gathers + 1;
  reach(counted->fault, GATHER + counted->gathers++);
  return counted->inner.allGather(counted->inner.opaque, send, recv, bytes);
}

static arfusionResult_t victim_call(void* ctx, const arfusionUniqueId_t* id, const struct fault* fault) {
  struct counted counted = {.fault = fault, .inner = {.size = sizeof counted.inner}};
  void* comm;
  reach(fault, BOOTSTRAP);
  arfusionResult_t result = plugin->bootstrapUniqueId(ctx, id, NRANKS, VICTIM, &counted.inner);
  if (result != arfusionSuccess) return result;
  arfusionBootstrap_t bootstrap = counted.inner;
  bootstrap.opaque = &counted;
  bootstrap.allGather = counted_gather;
  reach(fault, SET_UP);
  result = plugin->commInit(ctx, 0, NULL, &bootstrap, &comm);
  if (result != arfusionSuccess) return result;
  const int operations = fault->where == RUNNING ? ENDLESS : OPERATIONS;
  for (int i = 0; i < operations && result == arfusionSuccess; ++i) {
    if (fault->where != RUNNING) reach(fault, OPERATION + i);
    result = support_operation(comm, VICTIM, NRANKS);
    atomic_store(&last_words->running, 1);
  }
  reach(fault, FINALIZE);
  plugin->commFinalize(comm);
  reach(fault, DESTROY);
  plugin->bootstrapDestroy(ctx, &counted.inner);
  return result;
}

/* ---------------------------------------------------------------- the survivors */

struct survivor {
  pthread_t thread;
  pthread_mutex_t lock; /* of `comm`, which whoever watches may abort, and of `over` */
  void *ctx, *comm;
  const arfusionUniqueId_t* id;
  int rank, nranks, operations;
  int inited, over; /* over: there is nothing to abort any more */
  arfusionResult_t result, async;
  double seconds; /* of the last call */
  char text[512];
};

static void* survivor_run(void* argument) {
  struct survivor* self = argument;
  void* const ctx = self->ctx;
  arfusionBootstrap_t bootstrap = {.size = sizeof bootstrap};
  void* comm = NULL;
  double start = support_now();
  self->result = plugin->bootstrapUniqueId(ctx, self->id, self->nranks, self->rank, &bootstrap);
  const int joined = self->result == arfusionSuccess;
  if (joined) {
    start = support_now();
    self->result = plugin->commInit(ctx, 0, NULL, &bootstrap, &comm);
  }
  self->inited = comm != NULL;
  pthread_mutex_lock(&self->lock);
  self->comm = comm;
  pthread_mutex_unlock(&self->lock);
  for (int i = 0; comm && i < self->operations && self->result == arfusionSuccess; ++i) {
    start = support_now();
    self->result = support_operation(comm, self->rank, self->nranks);
  }
  self->seconds = support_now() - start;
  if (self->result != arfusionSuccess) snprintf(self->text, sizeof self->text, "%s", plugin->getLastError());
  pthread_mutex_lock(&self->lock);
  self->comm = NULL;
  self->over = 1;
  pthread_mutex_unlock(&self->lock);
  if (comm) {
    plugin->commGetAsyncError(comm, &self->async, NULL, 0);
    plugin->commFinalize(comm);
  }
  if (joined) plugin->bootstrapDestroy(ctx, &bootstrap);
  return NULL;
}

static void survivor_start(struct survivor* self, void* ctx, const arfusionUniqueId_t* id, int nranks, int rank,
                           int operations) {
  *self = (struct survivor){.ctx = ctx, .id = id, .nranks = nranks, .rank = rank, .operations = operations};
  pthread_mutex_init(&self->lock, NULL);
  if (pthread_create(&self->thread, NULL, survivor_run, self)) abort();
}

static void survivor_join(struct survivor* self) {
  pthread_join(self->thread, NULL);
  pthread_mutex_destroy(&self->lock);
}

/* As soon as it has a communicator, which on a busy machine may take longer than the victim lived. */
static void survivor_abort(struct survivor* self) {
  for (int done = 0; !done; support_sleep(0.001)) {
    pthread_mutex_lock(&self->lock);
    if (self->comm) plugin->commAbort(self->comm);
    done = self->comm || self->over;
    pthread_mutex_unlock(&self->lock);
  }
}

/* ---------------------------------------------------------------- a cycle */

static char complaint[1024];

#define COMPLAIN_IF(condition, ...)                           \
  do {                                                        \
    if (condition) {                                          \
      snprintf(complaint, sizeof complaint, __VA_ARGS__);     \
      return complaint;                                       \
    }                                                         \
  } while (0)

/* The victim has done its part of all operations. */
static int none_fails(const struct fault* fault) { return fault->where == FINALIZE || fault->where == DESTROY; }

/* NULL, or what was not as it should be. */
static const char* check_survivor(const struct fault* fault, const struct survivor* s) {
  const int set_up = fault->where < OPERATION;
  if (none_fails(fault)) {
    COMPLAIN_IF(s->result != arfusionSuccess, "rank %d failed for no reason: %s", s->rank, s->text);
    return NULL;
  }
  COMPLAIN_IF(s->result != arfusionRemoteError && !(fault->aborted && s->result == arfusionInvalidUsage),
              "rank %d: result %d, %s", s->rank, s->result, s->text);
  COMPLAIN_IF(s->inited == set_up, "rank %d: set-up %s: %s", s->rank, s->inited ? "succeeded" : "failed", s->text);
  COMPLAIN_IF(s->inited && s->async != s->result, "rank %d: result %d, then %d", s->rank, s->result, s->async);
  const double limit = set_up ? SET_UP_LIMIT : OPERATION_LIMIT;
  COMPLAIN_IF(s->seconds > limit + 5, "rank %d: after %.1f s: %s", s->rank, s->seconds, s->text);
  return NULL;
}

static const char* check_new_communicator(void) {
  arfusionUniqueId_t id;
  struct survivor again[2];
  COMPLAIN_IF(plugin->getUniqueId(patient, &id) != arfusionSuccess, "no new id");
  for (int r = 0; r < 2; ++r) survivor_start(&again[r], patient, &id, 2, r, 2);
  for (int r = 0; r < 2; ++r) survivor_join(&again[r]);
  for (int r = 0; r < 2; ++r) {
    COMPLAIN_IF(again[r].result != arfusionSuccess, "a new communicator, rank %d: %s", r, again[r].text);
  }
  return NULL;
}

/* The victim has stopped or ended, or is to be. */
static void watch(const struct fault* fault, pid_t victim, struct survivor* first) {
  int status;
  if (fault->where == RUNNING) {
    for (int i = 0; i < 10000 && !atomic_load(&last_words->running); ++i) support_sleep(0.001);
    support_sleep(fault->microseconds * 1e-6);
    kill(victim, fault->how == STOP ? SIGSTOP : SIGKILL);
  }
  waitpid(victim, &status, WUNTRACED);
  if (!fault->aborted || none_fails(fault)) return;
  support_sleep(0.002);
  survivor_abort(first);
}

static const char* cycle_run(void* ctx, const struct fault* fault) {
  arfusionUniqueId_t id;
  struct survivor survivors[2];
  int status;
  memset(last_words, 0, sizeof *last_words);
  COMPLAIN_IF(plugin->getUniqueId(ctx, &id) != arfusionSuccess, "no id: %s", plugin->getLastError());
  fflush(NULL);
  const pid_t victim = fork();
  if (victim == 0) {
    alarm(30);
    last_words->result = victim_call(ctx, &id, fault);
    last_words->ended = 1;
    _exit(0);
  }
  COMPLAIN_IF(victim < 0, "no process");
  for (int i = 0; i < 2; ++i) {
    survivor_start(&survivors[i], ctx, &id, NRANKS, i ? 2 : 0, fault->where == RUNNING ? ENDLESS : OPERATIONS);
  }
  watch(fault, victim, &survivors[0]);
  for (int i = 0; i < 2; ++i) survivor_join(&survivors[i]);
  if (fault->how == STOP) { /* it learns of it when it is woken, and ends by itself */
    kill(victim, SIGCONT);
    waitpid(victim, &status, 0);
    COMPLAIN_IF(!last_words->ended, "the process that had been stopped hung or died");
    COMPLAIN_IF((last_words->result == arfusionSuccess) != none_fails(fault),
                "the process that had been stopped: result %d", last_words->result);
  }
  for (int i = 0; i < 2; ++i) {
    const char* wrong = check_survivor(fault, &survivors[i]);
    if (wrong) return wrong;
  }
  return check_new_communicator();
}

/* ---------------------------------------------------------------- what may be left over */

static int count_files(const char* folder, const char* name) {
  DIR* entries = opendir(folder);
  const struct dirent* entry;
  int count = 0;
  while (entries && (entry = readdir(entries))) count += strstr(entry->d_name, name) != NULL;
  if (entries) closedir(entries);
  return count;
}

struct left_over {
  /* sockets, and the names at which ranks meet, last as long as a descriptor */
  int descriptors, mappings, shared_files;
  size_t heap;
};

static struct left_over left_over_now(void) {
  return (struct left_over){.descriptors = support_descriptors(), .mappings = support_mappings("arfusion-workspace"),
                            .shared_files = count_files("/dev/shm", "arfusion"), .heap = mallinfo2().uordblks};
}

/* ---------------------------------------------------------------- tests */

/* Nothing happens: set-up has as many all-gathers as there are places for. */
static void all_places_are_known(void** state) {
  (void)state;
  const struct fault none = {.how = EXIT, .where = DESTROY};
  const char* wrong = cycle_run(patient, &none);
  if (wrong) fail_msg("%s", wrong);
  assert_int_equal(last_words->gathers, GATHERS);
}

static struct fault fault_draw(uint32_t* random) {
  struct fault fault = {.how = random_draw(random, 4) ? KILL : EXIT, .aborted = 1};
  fault.where = SET_UP + (int)random_draw(random, PLACES - SET_UP);
  fault.microseconds = (int)random_draw(random, 5000);
  if (fault.where == RUNNING) fault.how = KILL;
  return fault;
}

static void ranks_die_anywhere_and_nothing_is_left(void** state) {
  (void)state;
  enum { WARM_UP = 20 };
  uint32_t random = random_seed(seed, 1);
  struct left_over before = {0};
  const double start = support_now();
  for (int i = 0; i < cycles; ++i) {
    const struct fault fault = fault_draw(&random);
    const char* wrong = cycle_run(patient, &fault);
    if (wrong) fail_msg("cycle %d of seed %llu, at %d: %s", i, (unsigned long long)seed, fault.where, wrong);
    if (i == WARM_UP) before = left_over_now();
  }
  const struct left_over after = left_over_now();
  printf("%d cycles in %.1f s; descriptors %d, heap %+lld bytes\n", cycles, support_now() - start, after.descriptors,
         (long long)after.heap - (long long)before.heap);
  assert_int_equal(after.descriptors, before.descriptors);
  assert_int_equal(after.mappings, 0);
  assert_int_equal(after.shared_files, before.shared_files);
  assert_true(after.heap < before.heap + 16384);
}

/* Nobody aborts: the time limits end it. */
static const struct fault slow_faults[] = {
    {KILL, OPERATION, 0, 0},     {KILL, OPERATION + 2, 0, 0}, {EXIT, OPERATION + 1, 0, 0},  {KILL, RUNNING, 300, 0},
    {KILL, BOOTSTRAP, 0, 0},     {STOP, SET_UP, 0, 0},        {STOP, GATHER, 0, 0},         {STOP, GATHER + 2, 0, 0},
    {STOP, GATHER + 4, 0, 0},    {STOP, GATHER + 6, 0, 0},    {STOP, OPERATION, 0, 0},      {STOP, OPERATION + 1, 0, 0},
    {STOP, RUNNING, 100, 0},     {STOP, RUNNING, 3000, 0},    {STOP, FINALIZE, 0, 0},       {STOP, OPERATION + 2, 0, 1},
};
enum { SLOW_FAULTS = sizeof slow_faults / sizeof slow_faults[0] };

static arfusionResult_t slow_run(int which, void* argument, struct support_outcome* outcome) {
  (void)argument;
  last_words += which;
  const char* wrong = cycle_run(hasty, &slow_faults[which]);
  if (!wrong) return arfusionSuccess;
  fprintf(stderr, "fault %d: %s\n", which, wrong);
  outcome->value[0] = 1;
  return arfusionInternalError;
}

static void without_an_abort_time_limits_end_it(void** state) {
  (void)state;
  struct support_outcome outcomes[SLOW_FAULTS];
  support_processes(SLOW_FAULTS, slow_run, NULL, outcomes);
  for (int i = 0; i < SLOW_FAULTS; ++i) {
    if (!outcomes[i].ended || outcomes[i].result != arfusionSuccess) fail_msg("fault %d", i);
  }
}

static void* context_with(int operation_seconds, int set_up_seconds) {
  char text[16];
  snprintf(text, sizeof text, "%d", operation_seconds);
  support_setting("ARFUSION_TIMEOUT", text);
  snprintf(text, sizeof text, "%d", set_up_seconds);
  support_setting("ARFUSION_INIT_TIMEOUT", text);
  return support_context();
}

static int set_up(void** state) {
  (void)state;
  support_setting("ARFUSION_DEVICE", "host");
  support_setting("ARFUSION_WORKSPACE_LIMIT", "2M"); /* or most of the time goes into clearing it */
  hasty = context_with(OPERATION_LIMIT, SET_UP_LIMIT);
  patient = context_with(60, 60);
  last_words = mmap(NULL, SLOW_FAULTS * sizeof *last_words, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return !hasty || !patient || last_words == MAP_FAILED;
}

static int tear_down(void** state) {
  (void)state;
  return plugin->finalize(hasty) != arfusionSuccess || plugin->finalize(patient) != arfusionSuccess;
}

int main(int argc, char** argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(all_places_are_known),
      cmocka_unit_test(without_an_abort_time_limits_end_it),
      cmocka_unit_test(ranks_die_anywhere_and_nothing_is_left),
  };
  seed = (uint64_t)time(NULL);
  if (argc > 1) cycles = atoi(argv[1]);
  if (argc > 2) seed = strtoull(argv[2], NULL, 0);
  return cmocka_run_group_tests_name("faults", tests, set_up, tear_down);
}
