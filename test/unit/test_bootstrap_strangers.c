/* SPDX-License-Identifier: Apache-2.0
 *
 * test_bootstrap_strangers.c: processes of other users, and processes of this user without the secret, while ranks
 * meet: they do not get in, and do not keep the ranks from meeting. What needs another user is skipped without root.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "test/unit/bootstrap_world.h"

#define OTHER_UID 65534

static void assert_met(int count) {
  for (int i = 0; i < count; i++) {
    if (outcomes[i].result != arfusionSuccess) fail_msg("rank %d: %s", i, outcomes[i].text);
    if (outcomes[i].seconds > SOON) fail_msg("rank %d needed %.1f s", i, outcomes[i].seconds);
  }
}

/* A process beside the ranks, from before they begin until the test ends it. It has begun when it has written a byte.
 * */
struct stranger {
  pid_t pid;
};

typedef void (*stranger_function)(struct world* world);

static struct stranger stranger_start(stranger_function function, struct world* world, uid_t uid) {
  struct stranger stranger;
  int ends[2];
  char byte = 0;

  assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
  fflush(NULL);
  stranger.pid = fork();
  if (stranger.pid == 0) {
    if (uid != geteuid() && setuid(uid) != 0) _exit(1);
    close(ends[0]);
    dup2(ends[1], STDIN_FILENO); /* where stranger_ready writes */
    alarm(60);
    function(world);
    _exit(0);
  }
  close(ends[1]);
  assert_int_equal(read(ends[0], &byte, 1), 1);
  close(ends[0]);
  return stranger;
}

static void stranger_ready(void) {
  if (write(STDIN_FILENO, "", 1) != 1) _exit(1);
  close(STDIN_FILENO);
}

static void stranger_end(struct stranger stranger) {
  int status;

  kill(stranger.pid, SIGKILL);
  assert_int_equal(waitpid(stranger.pid, &status, 0), stranger.pid);
  assert_true(WIFSIGNALED(status)); /* until then it did what it had to */
}

/* ---------------------------------------------------------------- without the secret */

/* Index 0 and 1 are the ranks; the others connect and say nothing, too little, or nonsense. */
static arfusionResult_t stranger_rank(int index, void* context) {
  static const char nonsense[300] = "GET / HTTP/1.1\r\n\r\n and more of it than any hello has";
  struct world* world = context;
  int fds[120];

  if (index < 2) return world_rank(index, world);
  for (int i = 0; i < 120; i++) fds[i] = connect_to(world->meeting.name);
  for (int i = 0; i < 120; i++) {
    size_t done = 0;
    if (i % 3 > 0) (void)net_send_some(fds[i], nonsense, i % 3 == 1 ? 5 : sizeof(nonsense), &done);
    if (i % 4 == 0) close(fds[i]);
  }
  pause_ms(700);
  for (int i = 0; i < 120; i++) {
    if (i % 4 > 0) close(fds[i]);
  }
  return arfusionSuccess;
}

static void test_strangers(void** state) {
  struct world world;
  (void)state;

  world_make(&world, 2, LIMIT_S);
  world.delay_ms[1] = 300;
  ranks_as_processes(4, stranger_rank, &world, outcomes);
  for (int i = 0; i < 2; i++) {
    if (outcomes[i].result != arfusionSuccess) fail_msg("rank %d: %s", i, outcomes[i].text);
    assert_true(outcomes[i].seconds < SOON);
  }
}

struct secret_world {
  arfusionUniqueId_t id;
  size_t altered; /* the byte that rank 1 has wrong */
};

static arfusionResult_t secret_rank(int index, void* context) {
  struct secret_world* world = context;
  arfusionUniqueId_t id = world->id;
  arfusionBootstrap_t bootstrap;

  if (index == 1) id.internal[world->altered] ^= 0x10;
  FORWARD_IF_ERROR(bootstrap_from_unique_id(&id, 2, index, SHORT_S, &bootstrap));
  bootstrap_destroy(&bootstrap);
  return arfusionSuccess;
}

static void test_wrong_secret(void** state) {
  struct secret_world world = {.altered = 32};
  (void)state;

  assert_int_equal(bootstrap_unique_id(&world.id), arfusionSuccess);
  ranks_as_processes(2, secret_rank, &world, outcomes);
  assert_failed(0, arfusionRemoteError, "rank 1 of 2 did not come within 1 s", LATE);
  assert_failed(1, arfusionInvalidArgument, "rank 0 has another secret", SOON);
  world.altered = 40; /* the half that rank 0 shows */
  ranks_as_processes(2, secret_rank, &world, outcomes);
  assert_int_equal(outcomes[0].result, arfusionSuccess);
  assert_failed(1, arfusionSystemError, "does not know the secret", SOON);
}

/* Connects without end and says nothing. */
static void silent_crowd(struct world* world) {
  struct net_peer peer;
  int fds[500], count = 0;

  stranger_ready();
  for (;;) {
    int fd = net_connect(world->meeting.name, &peer);
    if (fd < 0) {
      pause_ms(1);
      continue;
    }
    if (count >= 500) close(fds[count % 500]);
    fds[count++ % 500] = fd;
    if (count % 100 == 0) pause_ms(1);
  }
}

static void test_silent_crowd(void** state) {
  struct world world;
  struct stranger stranger;
  (void)state;

  world_make(&world, 4, LIMIT_S);
  for (int r = 1; r < 4; r++) world.delay_ms[r] = 100 * r; /* they come into the crowd */
  stranger = stranger_start(silent_crowd, &world, geteuid());
  ranks_as_processes(4, world_rank, &world, outcomes);
  stranger_end(stranger);
  assert_met(4);
}

static int crowded;

/* In place of libc's: with `crowded`, there is always somebody at rank 0's door, gone again when it is opened. */
int poll(struct pollfd* fds, nfds_t count, int timeout) {
  int milliseconds = crowded && (timeout < 0 || timeout > 1) ? 1 : timeout;
  struct timespec limit = {.tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1000000l};
  int ready = ppoll(fds, count, milliseconds < 0 ? NULL : &limit, NULL);

  if (!crowded || ready != 0 || count < 2) return ready;
  fds[0].revents = POLLIN;
  return 1;
}

static arfusionResult_t crowded_rank(int index, void* context) {
  crowded = index == 0;
  alarm(10);
  return world_rank(index, context);
}

/* The limit holds, too, while strangers keep coming. */
static void test_crowd_and_missing_rank(void** state) {
  struct world world;
  (void)state;

  world_make(&world, 3, SHORT_S);
  world.rank[2] = -1;
  ranks_as_processes(2, crowded_rank, &world, outcomes);
  for (int i = 0; i < 2; i++) assert_failed(i, arfusionRemoteError, "rank 2 of 3 did not come within 1 s", LATE);
}

/* What comes with a descriptor (bootstrap_fds.c). */
struct fds_header {
  uint64_t magic, secret;
  int32_t rank;
  uint32_t reserved;
};

/* Sends `count` copies of a descriptor and a header that knows all but the secret. */
static void descriptors_send(int connection, int fd, size_t count, size_t bytes) {
  struct fds_header header = {.magic = 0x7364664672412121ull, .rank = 1};
  union {
    char bytes[CMSG_SPACE(16 * sizeof(int))];
    struct cmsghdr align;
  } control = {.bytes = {0}};
  struct iovec data = {.iov_base = &header, .iov_len = bytes};
  struct msghdr message = {.msg_iov = &data,
                           .msg_iovlen = 1,
                           .msg_control = control.bytes,
                           .msg_controllen = CMSG_SPACE(count * sizeof(int))};
  struct cmsghdr* part = CMSG_FIRSTHDR(&message);

  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(count * sizeof(int));
  for (size_t i = 0; i < count; i++) memcpy(CMSG_DATA(part) + i * sizeof(int), &fd, sizeof(fd));
  (void)sendmsg(connection, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* Finds the ranks' sockets where everybody can, and offers descriptors in rank 1's name. */
static void offers_descriptors(struct world* world) {
  static const size_t counts[] = {1, 2, 16};
  int gift = memfd_create("stranger", MFD_CLOEXEC);
  (void)world;

  stranger_ready();
  for (;;) {
    FILE* file = fopen("/proc/net/unix", "re");
    char line[512], name[NET_NAME_BYTES];
    while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
      const char* at = strstr(line, " @arfusion-fds-");
      struct net_peer peer;
      if (at == NULL || strstr(line, " 00010000 ") == NULL || sscanf(at, " @%63s", name) != 1) continue;
      for (size_t i = 0; i < 3; i++) {
        int fd = net_connect(name, &peer);
        if (fd >= 0) descriptors_send(fd, gift, counts[i], i == 1 ? 5 : sizeof(struct fds_header));
        if (fd >= 0) close(fd);
      }
    }
    if (file != NULL) fclose(file);
    pause_ms(5);
  }
}

/* Rank 2 comes late, so that the others wait for it with open sockets. */
static arfusionResult_t late_all_gather(void* opaque, const void* send, void* recv, size_t bytes) {
  const arfusionBootstrap_t* inner = opaque;
  arfusionResult_t result = bootstrap_all_gather(inner, send, recv, bytes);

  if (inner->rank == 2) pause_ms(200);
  return result;
}

static arfusionResult_t descriptors_rank(int index, void* context) {
  struct world* world = context;
  arfusionBootstrap_t inner, outer;
  int mine = memfd_create("rank", MFD_CLOEXEC), fds[3], before;
  arfusionResult_t result;

  FORWARD_IF_ERROR(bootstrap_socket_create(&world->meeting, 3, index, LIMIT_S, &inner));
  if (ftruncate(mine, index + 1) != 0) return arfusionSystemError;
  outer = inner;
  outer.opaque = &inner;
  outer.allGather = late_all_gather;
  before = descriptors_open();
  result = bootstrap_exchange_fds(&outer, mine, fds, LIMIT_S);
  for (int r = 0; r < 3 && result == arfusionSuccess; r++) {
    struct stat status;
    if (r == index) continue;
    if (fstat(fds[r], &status) != 0 || status.st_size != r + 1) {
      result = error_set(arfusionInternalError, "rank %d's descriptor is not its own", r);
    }
    close(fds[r]);
  }
  if (result == arfusionSuccess && descriptors_open() != before) {
    result = error_set(arfusionInternalError, "descriptors of strangers are still open");
  }
  bootstrap_destroy(&inner);
  close(mine);
  return result;
}

static void test_descriptors_of_strangers(void** state) {
  struct world world;
  struct stranger stranger;
  (void)state;

  world_make(&world, 3, LIMIT_S);
  stranger = stranger_start(offers_descriptors, &world, geteuid());
  ranks_as_processes(3, descriptors_rank, &world, outcomes);
  stranger_end(stranger);
  assert_met(3);
}

/* ---------------------------------------------------------------- another user */

/* Index 0 is another user, who knows the secret and wants to be rank 1. */
static arfusionResult_t other_user_connects(int index, void* context) {
  struct world* world = context;
  struct hello hello = world_hello(world, 1);
  struct net_peer peer;
  char byte;
  int fd;

  if (index > 0) return world_rank(index - 1, world);
  if (setuid(OTHER_UID) != 0) return arfusionInternalError;
  fd = connect_to(world->meeting.name);
  (void)net_send(fd, &hello, sizeof(hello), net_deadline(5));
  if (fd < 0 || net_receive(fd, &byte, 1, net_deadline(5)) != NET_CLOSED) return arfusionInternalError;
  close(fd);
  fd = net_connect_beside(world->meeting.name, &peer); /* nor does it find one of its own */
  return fd < 0 ? arfusionSuccess : arfusionInternalError;
}

static void test_other_user(void** state) {
  struct world world;
  (void)state;

  if (geteuid() != 0) skip();
  world_make(&world, 2, LIMIT_S);
  world.delay_ms[1] = 500;
  ranks_as_processes(3, other_user_connects, &world, outcomes);
  assert_met(3);
}

/* As a rank it looks for a listener of its own, and hears whose it has found. */
static arfusionResult_t other_user_rank(int index, void* context) {
  struct world* world = context;
  arfusionBootstrap_t bootstrap;

  if (index == 0) return world_rank(0, world);
  if (setuid(OTHER_UID) != 0) return arfusionInternalError;
  return bootstrap_socket_create(&world->meeting, 2, 1, SHORT_S, &bootstrap);
}

static void test_rank_of_other_user(void** state) {
  struct world world;
  (void)state;

  if (geteuid() != 0) skip();
  world_make(&world, 2, SHORT_S);
  ranks_as_processes(2, other_user_rank, &world, outcomes);
  assert_failed(0, arfusionRemoteError, "rank 1 of 2 did not come within 1 s", LATE);
  assert_failed(1, arfusionRemoteError, "of uid 0, this is uid 65534", LATE);
}

static int bound_socket(const char* name) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);

  memcpy(address.sun_path + 1, name, strlen(name));
  if (bind(fd, (struct sockaddr*)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + strlen(name))) != 0)
    _exit(1);
  return fd;
}

/* Ways to hold a name: to accept, to listen only, to be full, not even to listen. */
static void holds_and_accepts(struct world* world) {
  int listener = net_listen(world->meeting.name);
  stranger_ready();
  for (;;) {
    int fd = accept(listener, NULL, NULL);
    if (fd < 0) pause_ms(1);
  }
}

static void holds_and_listens(struct world* world) {
  if (net_listen(world->meeting.name) < 0) _exit(1);
  stranger_ready();
  for (;;) pause();
}

static void holds_and_is_full(struct world* world) {
  struct net_peer peer;

  if (listen(bound_socket(world->meeting.name), 0) != 0) _exit(1);
  while (net_connect(world->meeting.name, &peer) >= 0) continue;
  stranger_ready();
  for (;;) pause();
}

static void holds_only(struct world* world) {
  (void)bound_socket(world->meeting.name);
  stranger_ready();
  for (;;) pause();
}

/* Also holds what looks like the places beside it. */
static void holds_many(struct world* world) {
  for (unsigned i = 0; i < 200; i++) {
    char name[NET_NAME_BYTES + NET_BESIDE_BYTES];
    snprintf(name, sizeof(name), "%s-%08x", world->meeting.name, i);
    if (net_listen(name) < 0) _exit(1);
  }
  holds_and_listens(world);
}

static void test_name_taken_by_other_user(void** state) {
  static const stranger_function ways[] = {holds_and_accepts, holds_and_listens, holds_and_is_full, holds_only,
                                           holds_many};
  (void)state;

  if (geteuid() != 0) skip();
  for (size_t way = 0; way < sizeof(ways) / sizeof(ways[0]); way++) {
    struct world world;
    struct stranger stranger;
    world_make(&world, 4, LIMIT_S);
    world.delay_ms[0] = 150; /* the others see the stranger first, the last one sees rank 0 at once */
    world.delay_ms[3] = 300;
    stranger = stranger_start(ways[way], &world, OTHER_UID);
    ranks_as_processes(4, world_rank, &world, outcomes);
    stranger_end(stranger);
    assert_met(4);
  }
}

/* Two ranks 0 are still told from each other, and a missing one is still named, with who holds its place. */
static void test_errors_beside(void** state) {
  struct world world;
  struct stranger stranger;
  (void)state;

  if (geteuid() != 0) skip();
  world_make(&world, 3, LIMIT_S);
  world.rank[1] = 0;
  world.delay_ms[1] = 200;
  stranger = stranger_start(holds_and_listens, &world, OTHER_UID);
  ranks_as_processes(3, world_rank, &world, outcomes);
  for (int i = 0; i < 2; i++) assert_failed(i, arfusionInvalidUsage, "there are two ranks 0: pid ", SOON);
  world.rank[0] = world.rank[1] = -1;
  world.limit_s = SHORT_S;
  ranks_as_processes(3, world_rank, &world, outcomes);
  stranger_end(stranger);
  assert_failed(2, arfusionRemoteError, "rank 0 of 3 did not come within 1 s; the meeting point @arfusion-test-", LATE);
}

/* Connects as fast as it can. */
static void floods(struct world* world) {
  struct net_peer peer;

  stranger_ready();
  for (;;) {
    int fd = net_connect(world->meeting.name, &peer);
    if (fd >= 0) close(fd);
  }
}

static void test_flood_of_other_user(void** state) {
  struct world world;
  struct stranger stranger;
  (void)state;

  if (geteuid() != 0) skip();
  world_make(&world, 4, LIMIT_S);
  for (int r = 1; r < 4; r++) world.delay_ms[r] = 100 * r;
  stranger = stranger_start(floods, &world, OTHER_UID);
  ranks_as_processes(4, world_rank, &world, outcomes);
  assert_met(4);
  world.rank[3] = -1;
  world.limit_s = SHORT_S;
  ranks_as_processes(3, world_rank, &world, outcomes);
  stranger_end(stranger);
  for (int i = 0; i < 3; i++) assert_failed(i, arfusionRemoteError, "rank 3 of 4 did not come within 1 s", LATE);
}

int main(void) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
  const struct CMUnitTest tests[] = {
      CASE(test_strangers),
      CASE(test_wrong_secret),
      CASE(test_silent_crowd),
      CASE(test_crowd_and_missing_rank),
      CASE(test_descriptors_of_strangers),
      CASE(test_other_user),
      CASE(test_rank_of_other_user),
      CASE(test_name_taken_by_other_user),
      CASE(test_errors_beside),
      CASE(test_flood_of_other_user),
  };
  log_configure(NULL, arfusionLogNone);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
