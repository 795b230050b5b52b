/* SPDX-License-Identifier: Apache-2.0
 *
 * test_bootstrap_hostile.c: a peer that has the secret and then says what no peer says: lengths, ranks and results
 * that are none, half of something, too much. The others get an error soon, and nothing of theirs is overwritten.
 */
#include <signal.h>

#include "plugin/core/bootstrap_star.h"
#include "test/unit/bootstrap_world.h"

struct vote {
  int32_t result;
  char text[508];
};

static char junk[1 << 16]; /* all A */

static void send_all(int fd, const void* data, size_t bytes) { (void)net_send(fd, data, bytes, net_deadline(2)); }

static void assert_error_soon(int i, const char* what, size_t number) {
  if ((int)outcomes[i].result > arfusionSuccess && outcomes[i].seconds < SOON) return;
  fail_msg("%s %zu: result %d after %.1f s: %s", what, number, (int)outcomes[i].result, outcomes[i].seconds,
           outcomes[i].text);
}

/* ---------------------------------------------------------------- in rank 0's place */

struct answer {
  struct star_frame frame;
  size_t frame_bytes, junk_bytes; /* what is sent of them */
  const char* text;               /* part of the error */
};

#define FRAME_BYTES sizeof(struct star_frame)
#define FRAME(...) {.magic = STAR_FRAME_MAGIC, __VA_ARGS__}
static const struct answer welcomes[] = {
    {FRAME(.kind = STAR_FAILURE, .result = arfusionRemoteError, .bytes = 1 << 16), FRAME_BYTES, 1 << 16,
     "sent something"},
    {FRAME(.kind = STAR_FAILURE, .result = arfusionRemoteError, .bytes = BOOTSTRAP_TEXT_BYTES), FRAME_BYTES,
     BOOTSTRAP_TEXT_BYTES, "sent something"},
    {FRAME(.kind = STAR_FAILURE, .result = arfusionRemoteError, .bytes = UINT64_MAX), FRAME_BYTES, 1 << 16,
     "sent something"},
    {FRAME(.kind = STAR_FAILURE, .result = arfusionRemoteError, .bytes = BOOTSTRAP_TEXT_BYTES - 1), FRAME_BYTES,
     BOOTSTRAP_TEXT_BYTES - 1, "AAAA"},
    {FRAME(.kind = STAR_FAILURE, .result = arfusionRemoteError, .bytes = 100), FRAME_BYTES, 99, "has left"},
    {FRAME(.kind = STAR_FAILURE, .result = arfusionRemoteError, .bytes = 0), FRAME_BYTES, 0, "does not say why"},
    {FRAME(.kind = STAR_FAILURE, .result = arfusionSuccess, .bytes = 4), FRAME_BYTES, 4, "sent something"},
    {FRAME(.kind = STAR_FAILURE, .result = -1, .bytes = 4), FRAME_BYTES, 4, "sent something"},
    {FRAME(.kind = STAR_FAILURE, .result = 1000, .bytes = 4), FRAME_BYTES, 4, "sent something"},
    {FRAME(.kind = STAR_DATA, .bytes = 8), FRAME_BYTES, 8, "sent something"},
    {FRAME(.kind = 77), FRAME_BYTES, 0, "sent something"},
    {{.magic = 1, .kind = STAR_WELCOME}, FRAME_BYTES, 0, "sent something"},
    {FRAME(.kind = STAR_WELCOME), FRAME_BYTES - 1, 0, "has left"},
    {FRAME(.kind = STAR_WELCOME), FRAME_BYTES, 0, "does not know the secret"},
};

struct root_world {
  struct world world;
  struct answer answer;
  int in_gather; /* the answer comes after a proper welcome */
};

static arfusionResult_t root_rank(int index, void* context) {
  struct root_world* root = context;
  struct star_frame welcome = FRAME(.kind = STAR_WELCOME, .secret = root->world.meeting.secret[1]);
  arfusionBootstrap_t bootstrap;
  struct net_peer peer;
  char data[16] = "";
  int listener, fd;

  if (index == 1) {
    char all[2 * sizeof(data) + 4];
    memset(all, 'x', sizeof(all));
    FORWARD_IF_ERROR(bootstrap_socket_create(&root->world.meeting, 2, 1, LIMIT_S, &bootstrap));
    arfusionResult_t result = bootstrap_all_gather(&bootstrap, data, all, sizeof(data));
    if (memcmp(all + 2 * sizeof(data), "xxxx", 4) != 0) raise(SIGABRT);
    bootstrap_destroy(&bootstrap);
    return result;
  }
  listener = net_listen(root->world.meeting.name);
  while ((fd = net_accept(listener, &peer)) < 0) pause_ms(1);
  if (root->in_gather) send_all(fd, &welcome, sizeof(welcome));
  send_all(fd, &root->answer.frame, root->answer.frame_bytes);
  send_all(fd, junk, root->answer.junk_bytes);
  pause_ms(50);
  close(fd);
  close(listener);
  return arfusionSuccess;
}

static void root_run(const struct answer* answers, size_t count, int in_gather) {
  for (size_t i = 0; i < count; i++) {
    struct root_world root = {.answer = answers[i], .in_gather = in_gather};
    world_make(&root.world, 2, LIMIT_S);
    ranks_as_processes(2, root_rank, &root, outcomes);
    assert_error_soon(1, "answer", i);
    if (strstr(outcomes[1].text, answers[i].text) == NULL) fail_msg("answer %zu: %s", i, outcomes[1].text);
  }
}

static void test_welcomes(void** state) {
  (void)state;
  root_run(welcomes, sizeof(welcomes) / sizeof(welcomes[0]), 0);
}

static void test_data(void** state) {
  static const struct answer answers[] = {
      {FRAME(.kind = STAR_DATA, .bytes = 33), FRAME_BYTES, 33, "sent 33 bytes instead of 32"},
      {FRAME(.kind = STAR_DATA, .bytes = 0), FRAME_BYTES, 0, "sent 0 bytes instead of 32"},
      {FRAME(.kind = STAR_DATA, .bytes = UINT64_MAX), FRAME_BYTES, 1 << 16, "instead of 32"},
      {FRAME(.kind = STAR_DATA, .bytes = 32), FRAME_BYTES, 31, "has left"},
      {FRAME(.kind = STAR_FAILURE, .result = arfusionRemoteError, .bytes = 1 << 16), FRAME_BYTES, 1 << 16,
     "sent something"},
  };
  (void)state;
  root_run(answers, sizeof(answers) / sizeof(answers[0]), 1);
}

/* ---------------------------------------------------------------- in another rank's place */

struct leaf_world {
  struct world world;
  struct hello hello;
  struct star_frame frame;
  size_t hello_bytes, frame_bytes, junk_bytes;
};

static arfusionResult_t leaf_rank(int index, void* context) {
  struct leaf_world* leaf = context;
  arfusionBootstrap_t bootstrap;
  char data[16] = "", all[2 * sizeof(data) + 4];
  arfusionResult_t result;
  int fd;

  if (index == 0) {
    memset(all, 'x', sizeof(all));
    FORWARD_IF_ERROR(bootstrap_socket_create(&leaf->world.meeting, 2, 0, LIMIT_S, &bootstrap));
    result = bootstrap_all_gather(&bootstrap, data, all, sizeof(data));
    if (memcmp(all + 2 * sizeof(data), "xxxx", 4) != 0) raise(SIGABRT);
    bootstrap_destroy(&bootstrap);
    return result;
  }
  fd = connect_to(leaf->world.meeting.name);
  send_all(fd, &leaf->hello, leaf->hello_bytes);
  send_all(fd, &leaf->frame, leaf->frame_bytes);
  send_all(fd, junk, leaf->junk_bytes);
  pause_ms(50);
  close(fd);
  return arfusionSuccess;
}

static struct leaf_world leaf_make(void) {
  struct leaf_world leaf = {.hello_bytes = sizeof(struct hello)};

  world_make(&leaf.world, 2, LIMIT_S);
  leaf.hello = world_hello(&leaf.world, 1);
  return leaf;
}

static void leaf_run(const struct leaf_world* leaf, const char* text) {
  struct leaf_world copy = *leaf;

  ranks_as_processes(2, leaf_rank, &copy, outcomes);
  assert_error_soon(0, text, 0);
  if (strstr(outcomes[0].text, text) == NULL) fail_msg("wanted \"%s\", text \"%s\"", text, outcomes[0].text);
}

static void test_hellos(void** state) {
  static const int32_t ranks[] = {-1, 2, INT32_MIN, INT32_MAX};
  struct leaf_world leaf;
  (void)state;

  for (size_t i = 0; i < sizeof(ranks) / sizeof(ranks[0]); i++) {
    leaf = leaf_make();
    leaf.hello.rank = ranks[i];
    leaf_run(&leaf, "says that it is rank");
  }
  leaf = leaf_make();
  leaf.hello.rank = 0;
  leaf_run(&leaf, "there are two ranks 0");
  leaf = leaf_make();
  leaf.hello.nranks = INT32_MAX;
  leaf_run(&leaf, "says that there are 2147483647 ranks");
  leaf = leaf_make();
  leaf.hello.version = UINT32_MAX;
  leaf_run(&leaf, "speaks version 4294967295");
  leaf = leaf_make();
  leaf.hello.deadline = INT64_MIN; /* it has given up long ago */
  leaf_run(&leaf, "bootstrap: rank");
}

static void test_gathers(void** state) {
  static const uint64_t lengths[] = {0, 15, 17, (uint64_t)1 << 63, UINT64_MAX};
  struct leaf_world leaf = leaf_make();
  (void)state;

  for (size_t i = 0; i < sizeof(lengths) / sizeof(lengths[0]); i++) {
    leaf = leaf_make();
    leaf.frame = (struct star_frame)FRAME(.kind = STAR_DATA, .bytes = lengths[i], .deadline = leaf.hello.deadline);
    leaf.frame_bytes = FRAME_BYTES;
    leaf.junk_bytes = sizeof(junk);
    leaf_run(&leaf, "rank 1 of 2 gathers");
  }
  leaf = leaf_make();
  leaf.frame = (struct star_frame)FRAME(.kind = STAR_FAILURE, .bytes = 16);
  leaf.frame_bytes = FRAME_BYTES;
  leaf_run(&leaf, "is not for an all-gather");
  leaf.frame = (struct star_frame)FRAME(.kind = STAR_DATA, .bytes = 16, .deadline = INT64_MAX);
  leaf.junk_bytes = 15; /* and leaves */
  leaf_run(&leaf, "rank 1 of 2 has left");
  leaf.frame_bytes = 3;
  leaf.junk_bytes = 0;
  leaf_run(&leaf, "rank 1 of 2 has left");
}

/* ---------------------------------------------------------------- votes */

static arfusionResult_t vote_rank(int index, void* context) {
  struct world* world = context;
  arfusionBootstrap_t bootstrap;
  struct vote vote = {.result = world->rank[2]}, votes[2];
  arfusionResult_t result;

  memset(vote.text, 'A', sizeof(vote.text)); /* without an end */
  FORWARD_IF_ERROR(bootstrap_socket_create(&world->meeting, 2, index, LIMIT_S, &bootstrap));
  result = index == 0 ? bootstrap_vote(&bootstrap, arfusionSuccess)
                      : bootstrap_all_gather(&bootstrap, &vote, votes, sizeof(vote));
  bootstrap_destroy(&bootstrap);
  return result;
}

static void test_votes(void** state) {
  static const int32_t results[] = {-1, INT32_MIN, arfusionInProgress + 1, INT32_MAX};
  struct world world;
  (void)state;

  for (size_t i = 0; i < sizeof(results) / sizeof(results[0]); i++) {
    world_make(&world, 2, LIMIT_S);
    world.rank[2] = results[i];
    ranks_as_processes(2, vote_rank, &world, outcomes);
    assert_failed(0, arfusionInternalError, "rank 1: AAAA", SOON);
    assert_true(strlen(outcomes[0].text) < 560);
  }
}

int main(void) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
  const struct CMUnitTest tests[] = {CASE(test_welcomes), CASE(test_data), CASE(test_hellos), CASE(test_gathers),
                                     CASE(test_votes)};
  memset(junk, 'A', sizeof(junk));
  log_configure(NULL, arfusionLogNone);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
