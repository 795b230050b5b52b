/* SPDX-License-Identifier: Apache-2.0
 *
 * bootstrap_world.h: ranks that meet at a place of their own, each of which can be what the test says; for the tests
 * of what goes wrong. A case must leave as many descriptors open as there were.
 */
#ifndef ARFUSION_TEST_BOOTSTRAP_WORLD_H_
#define ARFUSION_TEST_BOOTSTRAP_WORLD_H_

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "plugin/core/bootstrap_star.h"
#include "test/unit/bootstrap_ranks.h"

#define LIMIT_S 20 /* never reached */
#define SHORT_S 1  /* reached */
#define SOON 5.0   /* seconds within which is seen what is seen at once, also on a busy machine */
#define LATE (SHORT_S + 2.0)

static struct outcome outcomes[RANKS_MAX];
static int descriptors_before;

static inline int setup(void** state) {
  (void)state;
  descriptors_before = descriptors_open();
  return 0;
}

static inline int teardown(void** state) {
  (void)state;
  return descriptors_open() == descriptors_before ? 0 : -1;
}

static inline void assert_failed(int i, arfusionResult_t result, const char* text, double within) {
  if (outcomes[i].result == result && strstr(outcomes[i].text, text) != NULL && outcomes[i].seconds <= within) return;
  fail_msg("rank %d: result %d after %.2f s, text \"%s\", wanted %d, \"%s\" within %.1f s", i, (int)outcomes[i].result,
           outcomes[i].seconds, outcomes[i].text, (int)result, text, within);
}

static inline void pause_ms(int milliseconds) { usleep((useconds_t)milliseconds * 1000); }

/* A world in which rank `index` is what the test says. */
struct world {
  struct bootstrap_meeting meeting;
  int rank[RANKS_MAX], nranks[RANKS_MAX], delay_ms[RANKS_MAX];
  int64_t limit_s;
};

static inline void world_make(struct world* world, int nranks, int64_t limit_s) {
  uint64_t random = 0;

  memset(world, 0, sizeof(*world));
  assert_int_equal(net_random(&random, sizeof(random)), 0);
  assert_int_equal(net_random(world->meeting.secret, sizeof(world->meeting.secret)), 0);
  snprintf(world->meeting.name, sizeof(world->meeting.name), "arfusion-test-%016llx", (unsigned long long)random);
  world->limit_s = limit_s;
  for (int r = 0; r < RANKS_MAX; r++) {
    world->rank[r] = r;
    world->nranks[r] = nranks;
  }
}

static inline arfusionResult_t world_rank(int index, void* context) {
  struct world* world = context;
  arfusionBootstrap_t bootstrap;

  if (world->rank[index] < 0) return arfusionSuccess;
  pause_ms(world->delay_ms[index]);
  FORWARD_IF_ERROR(
      bootstrap_socket_create(&world->meeting, world->nranks[index], world->rank[index], world->limit_s, &bootstrap));
  bootstrap_destroy(&bootstrap);
  return arfusionSuccess;
}

static inline struct hello world_hello(const struct world* world, int rank) {
  return (struct hello){.magic = HELLO_MAGIC,
                        .version = 1,
                        .rank = rank,
                        .secret = world->meeting.secret[0],
                        .deadline = net_deadline(LIMIT_S),
                        .nranks = world->nranks[rank]};
}

/* Waits for the listener. */
static inline int connect_to(const char* name) {
  struct net_peer peer;
  int fd = -1;

  for (int i = 0; fd < 0 && i < 2000; i++) {
    fd = net_connect(name, &peer);
    if (fd < 0) pause_ms(1);
  }
  return fd;
}

#endif
