/* SPDX-License-Identifier: Apache-2.0
 *
 * Ranks as processes and as threads: they talk to each other and to the parent; one that fails, dies or falls silent
 * ends the run instead of hanging it.
 */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "plugin/tools/bench/team.h"

#define RANKS 4

struct seen {
  int messages;
  int sum;
};

static int on_message(void* arg, int rank, const void* message) {
  struct seen* seen = arg;
  const int value = *(const int*)message;
  assert_int_equal(value % 100, rank);
  seen->messages++;
  seen->sum += value / 100;
  return 0;
}

/* Every rank gathers all ranks' squares and sends the sum. */
static int run_gather(struct team_rank* self, void* arg) {
  int own = self->rank * self->rank, all[RANKS], sum = 0;
  (void)arg;
  team_all_gather(self, &own, all, sizeof(own));
  for (int r = 0; r < self->nranks; r++) sum += all[r];
  int message = sum * 100 + self->rank;
  team_send(self, &message, sizeof(message));
  return 0;
}

/* Rank 2 does not come to the barrier, in the way that `arg` says. */
enum trouble { FAILS, EXITS, CRASHES, SLEEPS };

static int run_trouble(struct team_rank* self, void* arg) {
  if (self->rank == 2) {
    switch (*(const enum trouble*)arg) {
      case FAILS: return team_fail(self, "on purpose");
      case EXITS: _exit(3);
      case CRASHES: kill(getpid(), SIGKILL); break;
      case SLEEPS: sleep(60); break;
    }
  }
  team_barrier(self);
  return 0;
}

static void test_gather(void** state) {
  (void)state;
  for (int as_threads = 0; as_threads < 2; as_threads++) {
    struct seen seen = {0};
    struct team team = {.nranks = RANKS,
                        .as_threads = as_threads,
                        .silence_s = 30,
                        .run_rank = run_gather,
                        .on_message = on_message,
                        .message_bytes = sizeof(int),
                        .message_arg = &seen};
    assert_int_equal(team_run(&team), 0);
    assert_int_equal(seen.messages, RANKS);
    assert_int_equal(seen.sum, RANKS * (0 + 1 + 4 + 9));
  }
}

static void test_message_of_another_size(void** state) {
  (void)state;
  struct seen seen = {0};
  struct team team = {.nranks = RANKS,
                      .silence_s = 30,
                      .run_rank = run_gather,
                      .on_message = on_message,
                      .message_bytes = sizeof(int) + 1,
                      .message_arg = &seen};
  assert_int_equal(team_run(&team), -1);
  assert_int_equal(seen.messages, 0);
}

static void test_trouble(void** state) {
  (void)state;
  for (int as_threads = 0; as_threads < 2; as_threads++) {
    for (enum trouble trouble = FAILS; trouble <= SLEEPS; trouble++) {
      struct team team = {.nranks = RANKS,
                          .as_threads = as_threads,
                          .silence_s = trouble == SLEEPS ? 1 : 30,
                          .run_rank = run_trouble,
                          .rank_arg = &trouble};
      assert_int_equal(team_run(&team), -1);
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(test_gather), cmocka_unit_test(test_message_of_another_size),
                                     cmocka_unit_test(test_trouble)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
