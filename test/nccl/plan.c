/* SPDX-License-Identifier: Apache-2.0
 *
 * plan.c: see plan.h.
 */
#include "test/nccl/plan.h"

#include <string.h>

#include "arfusion_plugin.h"

struct random {
  uint64_t state;
};

static uint64_t draw(struct random* random, uint64_t below) {
  random->state += 0x9e3779b97f4a7c15u;
  uint64_t z = random->state;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return (z ^ z >> 31) % below;
}

/* The communicators as they are after the steps so far. */
struct world {
  unsigned members[PLAN_COMMS][PLAN_RANKS]; /* all 0: nothing there */
};

static int exists(const struct plan* plan, const struct world* world, int comm) {
  for (int r = 0; r < plan->nranks; ++r) {
    if (world->members[comm][r]) return 1;
  }
  return 0;
}

/* A place that has a communicator, or one that has none; -1: there is no such place. */
static int pick(const struct plan* plan, const struct world* world, struct random* random, int existing) {
  const int first = (int)draw(random, PLAN_COMMS);
  for (int i = 0; i < PLAN_COMMS; ++i) {
    const int comm = (first + i) % PLAN_COMMS;
    if (exists(plan, world, comm) == existing) return comm;
  }
  return -1;
}

/* ---------------------------------------------------------------- calls */

static void call_draw(struct plan_call* call, struct random* random, int comm) {
  static const size_t counts[] = {0, 1, 2, 3, 7, 8, 9, 64, 257, 1000, 3001, 70001};
  static const int types[] = {arfusionFloat16, arfusionFloat32, arfusionBfloat16, arfusionInt32};
  static const int reductions[] = {arfusionMax, arfusionMin, arfusionProd, PLAN_PRE_MUL_SUM};
  memset(call, 0, sizeof *call);
  call->comm = comm;
  call->operation = draw(random, 10) < 7 ? PLAN_ALL_REDUCE : (enum plan_operation)(1 + draw(random, 4));
  call->type = types[draw(random, draw(random, 6) ? 3 : 4)];
  call->count = counts[draw(random, draw(random, 16) ? 11 : 12)];
  if (call->operation == PLAN_ALL_REDUCE && draw(random, 6) == 0) call->reduction = reductions[draw(random, 4)];
  if (call->reduction == PLAN_PRE_MUL_SUM) call->type = arfusionFloat32;
  call->in_place = call->operation == PLAN_ALL_REDUCE && draw(random, 2);
  call->stream = (int)draw(random, PLAN_STREAMS);
  call->twin = draw(random, 8) == 0;
}

/* Whether arfusion does it, if it is alone. */
static int can_be_taken(const struct plan_call* call) {
  return call->operation == PLAN_ALL_REDUCE && call->reduction == arfusionSum && call->type != arfusionInt32 &&
         call->count > 0;
}

static int collectives_of(const struct plan_step* step, int comm) {
  int collectives = 0;
  for (int i = 0; i < step->ncalls; ++i) {
    collectives += step->calls[i].comm == comm && step->calls[i].operation != PLAN_EXCHANGE && step->calls[i].count > 0;
  }
  return collectives;
}

static void calls_predict(struct plan* plan, const struct world* world, const struct plan_step* step) {
  for (int i = 0; i < step->ncalls; ++i) {
    const struct plan_call* call = &step->calls[i];
    if (call->operation != PLAN_ALL_REDUCE || call->count == 0) continue;
    const int taken = can_be_taken(call) && collectives_of(step, call->comm) == 1;
    for (int r = 0; r < plan->nranks; ++r) {
      const int size = __builtin_popcount(world->members[call->comm][r]);
      if (size == 0) continue;
      if (taken && size > 1) {
        ++plan->taken;
      } else {
        ++plan->forwarded;
      }
    }
  }
}

/* ---------------------------------------------------------------- communicators */

static void create_draw(struct plan* plan, struct world* world, struct random* random, struct plan_step* step,
                        int comm) {
  step->kind = PLAN_CREATE;
  step->comm = comm;
  step->blocking = draw(random, 3) > 0;
  step->in_group = plan->threads < plan->nranks || draw(random, 3) == 0;
  for (int r = 0; r < plan->nranks; ++r) step->members[r] = (1u << plan->nranks) - 1;
  memcpy(world->members[comm], step->members, sizeof step->members);
}

static void split_draw(struct plan* plan, struct world* world, struct random* random, struct plan_step* step,
                       int parent, int comm) {
  const int parity = (int)draw(random, 2);
  step->kind = PLAN_SPLIT;
  step->parent = parent;
  step->comm = comm;
  step->blocking = draw(random, 3) > 0;
  step->in_group = plan->threads < plan->nranks || draw(random, 3) == 0;
  for (int r = 0; r < plan->nranks; ++r) step->colors[r] = parity ? r % 2 : r == 0 ? -1 : 0;
  for (int r = 0; r < plan->nranks; ++r) {
    for (int s = 0; s < plan->nranks; ++s) {
      const int together = step->colors[r] >= 0 && step->colors[r] == step->colors[s];
      if (together && (world->members[parent][r] >> s & 1)) step->members[r] |= 1u << s;
    }
  }
  memcpy(world->members[comm], step->members, sizeof step->members);
}

static void end_draw(struct world* world, struct random* random, struct plan_step* step, int comm) {
  static const enum plan_kind kinds[] = {PLAN_DESTROY, PLAN_DESTROY, PLAN_FINALIZE, PLAN_ABORT};
  step->kind = kinds[draw(random, 4)];
  step->comm = comm;
  memcpy(step->members, world->members[comm], sizeof step->members);
  memset(world->members[comm], 0, sizeof world->members[comm]);
}

static void step_draw(struct plan* plan, struct world* world, struct random* random, struct plan_step* step) {
  const int existing = pick(plan, world, random, 1), place = pick(plan, world, random, 0);
  const int choice = (int)draw(random, 20);
  memset(step, 0, sizeof *step);
  step->wait = draw(random, 3) == 0;
  if (existing < 0 || (choice < 2 && place >= 0)) {
    create_draw(plan, world, random, step, place);
  } else if (choice < 5 && place >= 0) {
    split_draw(plan, world, random, step, existing, place);
  } else if (choice < 8) {
    end_draw(world, random, step, existing);
  } else {
    step->kind = choice < 14 ? PLAN_CALL : PLAN_GROUP;
    step->ncalls = step->kind == PLAN_CALL ? 1 : 1 + (int)draw(random, PLAN_CALLS);
    for (int i = 0; i < step->ncalls; ++i) {
      call_draw(&step->calls[i], random, i == 0 ? existing : pick(plan, world, random, 1));
    }
    calls_predict(plan, world, step);
  }
}

void plan_draw(struct plan* plan, uint64_t seed) {
  struct random random = {seed};
  struct world world;
  memset(plan, 0, sizeof *plan);
  memset(&world, 0, sizeof world);
  plan->nranks = 2 + (int)draw(&random, PLAN_RANKS - 1);
  plan->threads = draw(&random, 2) ? plan->nranks : 1 + (int)draw(&random, (uint64_t)plan->nranks);
  plan->nsteps = PLAN_STEPS;
  const int last = PLAN_STEPS - PLAN_COMMS;
  for (int i = 0; i < last; ++i) step_draw(plan, &world, &random, &plan->steps[i]);
  for (int i = last; i < PLAN_STEPS; ++i) {
    const int comm = pick(plan, &world, &random, 1);
    if (comm < 0) {
      plan->nsteps = i;
      break;
    }
    end_draw(&world, &random, &plan->steps[i], comm);
  }
}
