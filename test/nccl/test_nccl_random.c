/* SPDX-License-Identifier: Apache-2.0
 *
 * test_nccl_random.c: random sequences of NCCL calls through libarfusion-nccl.so, compared with a model (plan.h): what
 * ends in every buffer, and how many allreduces reach NCCL.
 *
 *   test_nccl_random [SEQUENCES [SEED]]     the default is 1000 from seed 1 (sanitizers: 200)
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "arfusion_plugin.h"
#include "plugin/tools/bench/number.h"
#include "test/nccl/plan.h"
#include "test/nccl/support.h"

int pncclAllReduce(const void* send, void* receive, size_t count, int type, int operation, void* comm, void* stream);

/* An operation that has been called and not been looked at. */
struct pending {
  struct pending* next;
  struct plan_call call;
  unsigned members;
  int tag;
  void *send, *receive; /* the same if in place */
};

struct rank {
  void* comms[PLAN_COMMS];
  unsigned members[PLAN_COMMS];
  void* streams[PLAN_STREAMS];
  struct pending* pending;
};

struct run {
  const struct plan* plan;
  nccl_unique_id ids[PLAN_STEPS];
  struct rank ranks[PLAN_RANKS];
  pthread_barrier_t all_threads;
};

/* ---------------------------------------------------------------- values */

/* Small whole numbers: all sums and products are exact in every type. */
static float input_of(int rank, int tag, size_t i) { return (float)(((size_t)rank * 7 + (size_t)tag * 3 + i) % 5) - 2; }

static int members_count(unsigned members) { return __builtin_popcount(members); }

/* The world rank of the communicator's n-th. */
static int member(unsigned members, int n) {
  for (int r = 0;; ++r) {
    if ((members >> r & 1) && n-- == 0) return r;
  }
}

static int place_in(unsigned members, int rank) { return members_count(members & ((1u << rank) - 1)); }

static float reduced(const struct pending* pending, size_t i) {
  float result = 0;
  for (int n = 0; n < members_count(pending->members); ++n) {
    const float value = input_of(member(pending->members, n), pending->tag, i);
    switch (n == 0 ? -1 : pending->call.reduction) {
      case -1: result = pending->call.reduction == PLAN_PRE_MUL_SUM ? 2 * value : value; break;
      case arfusionMax: result = value > result ? value : result; break;
      case arfusionMin: result = value < result ? value : result; break;
      case arfusionProd: result *= value; break;
      case PLAN_PRE_MUL_SUM: result += 2 * value; break;
      default: result += value;
    }
  }
  return result;
}

static float expected_of(const struct pending* pending, int rank, size_t i) {
  const struct plan_call* call = &pending->call;
  const int n = members_count(pending->members), own = place_in(pending->members, rank);
  switch (call->operation) {
    case PLAN_ALL_REDUCE: return reduced(pending, i);
    case PLAN_BROADCAST: return input_of(member(pending->members, 0), pending->tag, i);
    case PLAN_ALL_GATHER:
      return input_of(member(pending->members, (int)(i / call->count)), pending->tag, i % call->count);
    case PLAN_REDUCE_SCATTER: return reduced(pending, (size_t)own * call->count + i);
    case PLAN_EXCHANGE: return input_of(member(pending->members, (own + n - 1) % n), pending->tag, i);
  }
  return 0;
}

static size_t elements_sent(const struct plan_call* call, int nranks) {
  return call->count * (call->operation == PLAN_REDUCE_SCATTER ? (size_t)nranks : 1);
}

static size_t elements_received(const struct plan_call* call, int nranks) {
  return call->count * (call->operation == PLAN_ALL_GATHER ? (size_t)nranks : 1);
}

static void store(int type, void* to, size_t i, float value) {
  if (type == arfusionInt32) {
    ((int32_t*)to)[i] = (int32_t)value;
  } else {
    number_store((arfusionDataType_t)type, &value, 1, (char*)to + i * (type == arfusionFloat32 ? 4 : 2));
  }
}

static float load(int type, const void* from, size_t i) {
  float value = 0;
  if (type == arfusionInt32) return (float)((const int32_t*)from)[i];
  number_load((arfusionDataType_t)type, (const char*)from + i * (type == arfusionFloat32 ? 4 : 2), 1, &value);
  return value;
}

/* ---------------------------------------------------------------- calls */

static struct pending* pending_new(struct rank* own, int rank, const struct plan_call* call, int tag) {
  struct pending* pending = malloc(sizeof *pending);
  CHECK(pending);
  *pending = (struct pending){.next = own->pending, .call = *call, .members = own->members[call->comm], .tag = tag};
  own->pending = pending;
  const int nranks = members_count(pending->members);
  const size_t sent = elements_sent(call, nranks), received = elements_received(call, nranks);
  pending->send = malloc(sent * 4 + 4);
  pending->receive = call->in_place ? pending->send : malloc(received * 4 + 4);
  CHECK(pending->send && pending->receive);
  if (!call->in_place) memset(pending->receive, 0x7e, received * 4 + 4);
  for (size_t i = 0; i < sent; ++i) store(call->type, pending->send, i, input_of(rank, tag, i));
  return pending;
}

static int reduction_of(const struct plan_call* call, void* comm) {
  float two = 2;
  int operation;
  if (call->reduction != PLAN_PRE_MUL_SUM) return call->reduction;
  CHECK(ncclRedOpCreatePreMulSum(&operation, &two, arfusionFloat32, 1, comm) == NCCL_SUCCESS);
  return operation;
}

static int call_one(struct rank* own, int rank, const struct plan_call* call, int tag) {
  void* comm = own->comms[call->comm];
  void* stream = own->streams[call->stream];
  const struct pending* pending = pending_new(own, rank, call, tag);
  const int n = members_count(pending->members), place = place_in(pending->members, rank);
  switch (call->operation) {
    case PLAN_ALL_REDUCE:
      return (call->twin ? pncclAllReduce : ncclAllReduce)(pending->send, pending->receive, call->count, call->type,
                                                           reduction_of(call, comm), comm, stream);
    case PLAN_BROADCAST:
      return ncclBroadcast(pending->send, pending->receive, call->count, call->type, 0, comm, stream);
    case PLAN_ALL_GATHER: return ncclAllGather(pending->send, pending->receive, call->count, call->type, comm, stream);
    case PLAN_REDUCE_SCATTER:
      return ncclReduceScatter(pending->send, pending->receive, call->count, call->type, arfusionSum, comm, stream);
    case PLAN_EXCHANGE:
      CHECK(ncclGroupStart() == NCCL_SUCCESS);
      CHECK(ncclSend(pending->send, call->count, call->type, (place + 1) % n, comm, stream) == NCCL_SUCCESS);
      CHECK(ncclRecv(pending->receive, call->count, call->type, (place + n - 1) % n, comm, stream) == NCCL_SUCCESS);
      return ncclGroupEnd();
  }
  return NCCL_INVALID_USAGE;
}

static void look(struct rank* own, int rank) {
  for (int s = 0; s < PLAN_STREAMS; ++s) mockStreamWait(own->streams[s]);
  for (struct pending *pending = own->pending, *next; pending; pending = next) {
    const size_t elements = elements_received(&pending->call, members_count(pending->members));
    next = pending->next;
    for (size_t i = 0; i < elements; ++i) {
      const float value = load(pending->call.type, pending->receive, i), expected = expected_of(pending, rank, i);
      if (value == expected) continue;
      fprintf(stderr, "rank %d, step %d, call %d, element %zu: %g, not %g\n", rank, pending->tag / PLAN_CALLS,
              pending->tag % PLAN_CALLS, i, (double)value, (double)expected);
      support_fail(__FILE__, __LINE__, "a buffer holds what the model says");
    }
    if (pending->receive != pending->send) free(pending->receive);
    free(pending->send);
    free(pending);
  }
  own->pending = NULL;
}

/* ---------------------------------------------------------------- steps */

/* The ranks of a thread: r with r % threads == index. */
#define FOR_RANKS(r) for (int r = index; r < run->plan->nranks; r += run->plan->threads)

static void step_calls(struct run* run, int index, int number) {
  const struct plan_step* step = &run->plan->steps[number];
  const int grouped = step->kind == PLAN_GROUP || run->plan->threads < run->plan->nranks;
  if (grouped) CHECK(ncclGroupStart() == NCCL_SUCCESS);
  for (int i = 0; i < step->ncalls; ++i) {
    const struct plan_call* call = &step->calls[i];
    FOR_RANKS(r) {
      struct rank* own = &run->ranks[r];
      if (!own->members[call->comm]) continue;
      const int result = call_one(own, r, call, number * PLAN_CALLS + i);
      if (result == NCCL_IN_PROGRESS) {
        CHECK(!grouped && support_wait(own->comms[call->comm]) == NCCL_SUCCESS);
      } else {
        CHECK(result == NCCL_SUCCESS);
      }
    }
  }
  if (grouped) CHECK(ncclGroupEnd() == NCCL_SUCCESS);
}

static void check_made(int result) { CHECK(result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS); }

static void step_make(struct run* run, int index, int number) {
  const struct plan_step* step = &run->plan->steps[number];
  struct nccl_config config = support_nonblocking();
  if (step->blocking) config.blocking = NCCL_UNDEFINED;
  if (step->in_group) CHECK(ncclGroupStart() == NCCL_SUCCESS);
  FOR_RANKS(r) {
    struct rank* own = &run->ranks[r];
    void** place = &own->comms[step->comm];
    *place = NULL;
    if (step->kind == PLAN_SPLIT) {
      if (!own->members[step->parent]) continue;
      if (step->blocking) config.blocking = 1;
      check_made(ncclCommSplit(own->comms[step->parent], step->colors[r], r, place, &config));
    } else if (step->blocking && number % 2) {
      check_made(ncclCommInitRank(place, run->plan->nranks, run->ids[number], r));
    } else {
      check_made(ncclCommInitRankConfig(place, run->plan->nranks, run->ids[number], r, &config));
    }
  }
  if (step->in_group) check_made(ncclGroupEnd());
  FOR_RANKS(r) {
    struct rank* own = &run->ranks[r];
    if (step->kind == PLAN_SPLIT && own->members[step->parent])
      CHECK(support_wait(own->comms[step->parent]) == NCCL_SUCCESS);
    own->members[step->comm] = step->members[r];
  }
  FOR_RANKS(r) {
    const struct rank* own = &run->ranks[r];
    CHECK((own->comms[step->comm] != NULL) == (step->members[r] != 0));
    if (step->members[r]) CHECK(support_wait(own->comms[step->comm]) == NCCL_SUCCESS);
  }
}

static void step_end(struct run* run, int index, int number) {
  const struct plan_step* step = &run->plan->steps[number];
  FOR_RANKS(r) {
    if (step->kind != PLAN_DESTROY) look(&run->ranks[r], r);
  }
  /* An abort takes what the other ranks have not finished. */
  if (step->kind == PLAN_ABORT) pthread_barrier_wait(&run->all_threads);
  FOR_RANKS(r) {
    struct rank* own = &run->ranks[r];
    void* comm = own->comms[step->comm];
    own->members[step->comm] = 0;
    if (!comm) continue;
    if (step->kind == PLAN_FINALIZE) CHECK(ncclCommFinalize(comm) == NCCL_SUCCESS);
    CHECK((step->kind == PLAN_ABORT ? ncclCommAbort : ncclCommDestroy)(comm) == NCCL_SUCCESS);
  }
}

static void thread_run(int index, void* argument) {
  struct run* run = argument;
  for (int i = 0; i < run->plan->nsteps; ++i) {
    switch (run->plan->steps[i].kind) {
      case PLAN_CALL:
      case PLAN_GROUP: step_calls(run, index, i); break;
      case PLAN_CREATE:
      case PLAN_SPLIT: step_make(run, index, i); break;
      case PLAN_DESTROY:
      case PLAN_FINALIZE:
      case PLAN_ABORT: step_end(run, index, i); break;
    }
    if (run->plan->steps[i].wait) {
      FOR_RANKS(r) look(&run->ranks[r], r);
    }
  }
  FOR_RANKS(r) look(&run->ranks[r], r);
}

static uint64_t sequence_run(uint64_t seed) {
  struct plan plan;
  struct run run = {.plan = &plan};
  plan_draw(&plan, seed);
  for (int i = 0; i < plan.nsteps; ++i) CHECK(ncclGetUniqueId(&run.ids[i]) == NCCL_SUCCESS);
  for (int r = 0; r < plan.nranks; ++r) {
    for (int s = 0; s < PLAN_STREAMS; ++s) run.ranks[r].streams[s] = mockStreamCreate();
  }
  const uint64_t before = mockAllReduces();
  pthread_barrier_init(&run.all_threads, NULL, (unsigned)plan.threads);
  support_threads(plan.threads, thread_run, &run);
  pthread_barrier_destroy(&run.all_threads);
  for (int r = 0; r < plan.nranks; ++r) {
    for (int s = 0; s < PLAN_STREAMS; ++s) mockStreamDestroy(run.ranks[r].streams[s]);
  }
  CHECK(mockCommunicators() == 0);
  if (mockAllReduces() - before != plan.forwarded) {
    fprintf(stderr, "%llu allreduces reached NCCL, %llu by the model\n",
            (unsigned long long)(mockAllReduces() - before), (unsigned long long)plan.forwarded);
    support_fail(__FILE__, __LINE__, "as many allreduces reach NCCL as the model says");
  }
  return plan.taken;
}

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
enum { SEQUENCES = 200 };
#else
enum { SEQUENCES = 1000 };
#endif

int main(int argc, char** argv) {
  const long sequences = argc > 1 ? atol(argv[1]) : SEQUENCES;
  const uint64_t first = argc > 2 ? strtoull(argv[2], NULL, 0) : 1;
  uint64_t taken = 0;
  support_settings();
  for (long i = 0; i < sequences; ++i) {
    fprintf(stderr, "\rsequence %llu ", (unsigned long long)(first + (uint64_t)i));
    taken += sequence_run(first + (uint64_t)i);
  }
  fprintf(stderr, "\n");
  CHECK(taken > 0);
  const struct timespec pause = {0, 10000000};
  for (int i = 0; i < 1000 && support_plugin_communicators(); ++i) nanosleep(&pause, NULL); /* of those aborted last */
  CHECK(support_plugin_communicators() == 0);
  printf("%ld sequences, %llu allreduces taken\n", sequences, (unsigned long long)taken);
  return 0;
}
