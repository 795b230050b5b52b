/* SPDX-License-Identifier: Apache-2.0
 *
 * test_security.c: what a communicator lets others see and do: its memory, its sockets, its log, and what it makes of
 * the memory that a peer gives it. See .github/SECURITY.md; who may join is in test_bootstrap_strangers.c.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/unit/support.h"

enum { OWN_UID = 65533, OTHER_UID = 65534 };

static const arfusionPlugin_v1_t* const plugin = &arfusionPlugin_v1;
static const arfusionConfig_t small = {
    .size = sizeof small, .maxTokens = 16, .hidden = 64, .dataType = arfusionFloat32};

/* A child that goes on when it is told to, and says when it has got there. */
struct child {
  pid_t pid;
  int say, hear; /* this side's ends */
};

static void step(int say, int hear) {
  char byte;
  if (write(say, "", 1) != 1 || read(hear, &byte, 1) != 1) _exit(1);
}

static void child_wait(const struct child* child) {
  char byte;
  assert_int_equal(read(child->hear, &byte, 1), 1);
}

static void child_go(const struct child* child) { assert_int_equal(write(child->say, "", 1), 1); }

static struct child child_start(void (*function)(int say, int hear, void* argument), void* argument) {
  struct child child;
  int there[2], back[2];
  assert_int_equal(pipe2(there, O_CLOEXEC), 0);
  assert_int_equal(pipe2(back, O_CLOEXEC), 0);
  fflush(NULL);
  child.pid = fork();
  if (child.pid == 0) {
    close(there[1]);
    close(back[0]);
    alarm(60);
    function(back[1], there[0], argument);
    _exit(0);
  }
  close(there[0]);
  close(back[1]);
  child.say = there[1];
  child.hear = back[0];
  return child;
}

static int child_status(const struct child* child) {
  int status;
  close(child->say);
  close(child->hear);
  assert_int_equal(waitpid(child->pid, &status, 0), child->pid);
  assert_true(WIFEXITED(status));
  return WEXITSTATUS(status);
}

static void child_end(const struct child* child) { assert_int_equal(child_status(child), 0); }

/* ---------------------------------------------------------------- memory */

static void victim(int say, int hear, void* argument) {
  void *ctx, *comms[2];
  (void)argument;
  if (setuid(OWN_UID) != 0 || prctl(PR_SET_DUMPABLE, 1) != 0) _exit(2); /* as a process that began as this user */
  ctx = support_context();
  if (!ctx || plugin->commInitAll(ctx, 2, NULL, &small, comms) != arfusionSuccess) _exit(3);
  if (!support_operation_all(comms, 2)) _exit(4);
  step(say, hear);
  if (!support_operation_all(comms, 2)) _exit(5);
  for (int r = 0; r < 2; ++r) plugin->commFinalize(comms[r]);
  plugin->finalize(ctx);
}

/* How many files of a folder can be opened; -1: not even the folder. */
static int openable(const char* folder_name, int flags) {
  DIR* folder = opendir(folder_name);
  int count = 0;
  if (!folder) return -1;
  for (struct dirent* entry; (entry = readdir(folder)) != NULL;) {
    char path[512];
    if (entry->d_name[0] == '.') continue;
    snprintf(path, sizeof path, "%s/%s", folder_name, entry->d_name);
    const int fd = open(path, flags | O_CLOEXEC);
    if (fd < 0) continue;
    ++count;
    close(fd);
  }
  closedir(folder);
  return count;
}

/* The victim is a fork: it has what this process has at the same address. */
static int reads_memory(pid_t pid) {
  char byte;
  struct iovec here = {&byte, 1}, there = {(void*)(uintptr_t)&small, 1};
  return process_vm_readv(pid, &here, 1, &there, 1, 0) == 1;
}

struct attack {
  pid_t pid;
  uid_t uid;
};
enum { REACHED = 2 };

static void attacker(int say, int hear, void* argument) {
  const struct attack* attack = argument;
  const pid_t pid = attack->pid;
  char path[64];
  int broken = 0;
  (void)say;
  (void)hear;
  if (setuid(attack->uid) != 0) _exit(1);
  static const char* const folders[] = {"fd", "map_files"};
  for (int i = 0; i < 2; ++i) {
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, folders[i]);
    broken |= openable(path, O_RDONLY) > 0 || openable(path, O_RDWR) > 0;
  }
  snprintf(path, sizeof path, "/proc/%d/mem", (int)pid);
  broken |= open(path, O_RDONLY) >= 0;
  broken |= reads_memory(pid);
  broken |= ptrace(PTRACE_SEIZE, pid, NULL, NULL) == 0;
  _exit(broken ? REACHED : 0);
}

/* Files of a user in the folders where programs put shared memory. */
static int files_of(uid_t uid) {
  static const char* const folders[] = {"/dev/shm", "/tmp", "/var/tmp"};
  int count = 0;
  for (int i = 0; i < 3; ++i) {
    DIR* folder = opendir(folders[i]);
    if (!folder) continue;
    for (struct dirent* entry; (entry = readdir(folder)) != NULL;) {
      struct stat status;
      count += !fstatat(dirfd(folder), entry->d_name, &status, AT_SYMLINK_NOFOLLOW) && status.st_uid == uid;
    }
    closedir(folder);
  }
  return count;
}

static void another_user_cannot_reach_the_memory(void** state) {
  (void)state;
  if (geteuid() != 0) skip();
  const int files = files_of(OWN_UID);
  struct child own = child_start(victim, NULL);
  child_wait(&own);
  assert_int_equal(files_of(OWN_UID), files);
  struct attack attack = {own.pid, OWN_UID};
  struct child other = child_start(attacker, &attack);
  assert_int_equal(child_status(&other), REACHED); /* it knows how */
  attack.uid = OTHER_UID;
  other = child_start(attacker, &attack);
  assert_int_equal(child_status(&other), 0);
  child_go(&own);
  child_end(&own);
}

/* ---------------------------------------------------------------- sockets */

/* The line of a socket in one of /proc/net's tables, whose n-th word is its inode. */
static int table_has(const char* table, unsigned long inode, int n, char* line, size_t bytes) {
  FILE* file = fopen(table, "re");
  int found = 0;
  while (file && !found && fgets(line, (int)bytes, file)) {
    char copy[512], *rest = copy, *word = NULL;
    snprintf(copy, sizeof copy, "%s", line);
    for (int i = 0; i <= n && (word = strtok_r(i ? NULL : copy, " \n", &rest)) != NULL; ++i) continue;
    found = word && strtoul(word, NULL, 10) == inode;
  }
  if (file) fclose(file);
  return found;
}

struct sockets {
  int all, listening;
};

/* A process's sockets, none of which may be anything but a Unix socket without a place in the file system. */
static struct sockets sockets_of(pid_t pid) {
  static const char* const others[] = {"/proc/net/tcp", "/proc/net/tcp6", "/proc/net/udp", "/proc/net/udp6",
                                       "/proc/net/raw"};
  struct sockets sockets = {0, 0};
  char path[400], link[64], line[512];
  snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
  DIR* folder = opendir(path);
  assert_non_null(folder);
  for (struct dirent* entry; (entry = readdir(folder)) != NULL;) {
    unsigned long inode;
    const ssize_t length = readlinkat(dirfd(folder), entry->d_name, link, sizeof link - 1);
    if (length <= 0) continue;
    link[length] = '\0';
    if (sscanf(link, "socket:[%lu]", &inode) != 1) continue;
    ++sockets.all;
    for (int i = 0; i < 5; ++i) assert_false(table_has(others[i], inode, 9, line, sizeof line));
    assert_true(table_has("/proc/net/unix", inode, 6, line, sizeof line));
    if (strstr(line, " 00010000 ")) {
      ++sockets.listening;
      assert_non_null(strstr(line, " @arfusion-"));
    }
    assert_null(strstr(line, " /"));
  }
  closedir(folder);
  return sockets;
}

static void rank_0(int say, int hear, void* argument) {
  void* ctx = support_context();
  arfusionBootstrap_t bootstrap = {.size = sizeof bootstrap};
  void* comm;
  if (!ctx || plugin->bootstrapUniqueId(ctx, argument, 2, 0, &bootstrap) != arfusionSuccess) _exit(2);
  step(say, hear);
  if (plugin->commInit(ctx, 0, &small, &bootstrap, &comm) != arfusionSuccess) _exit(3);
  plugin->bootstrapDestroy(ctx, &bootstrap);
  step(say, hear);
  if (support_operation(comm, 0, 2) != arfusionSuccess) _exit(4);
  plugin->commFinalize(comm);
  plugin->finalize(ctx);
}

static void only_rank_0_listens_and_only_until_all_are_there(void** state) {
  void *ctx = support_context(), *comm;
  arfusionBootstrap_t bootstrap = {.size = sizeof bootstrap};
  arfusionUniqueId_t id;
  struct sockets sockets;
  (void)state;
  assert_int_equal(plugin->getUniqueId(ctx, &id), arfusionSuccess);
  struct child child = child_start(rank_0, &id);
  for (int i = 0; i < 500 && sockets_of(child.pid).listening == 0; ++i) support_sleep(0.01);
  sockets = sockets_of(child.pid);
  assert_int_equal(sockets.all, 1);
  assert_int_equal(sockets.listening, 1);
  assert_int_equal(plugin->bootstrapUniqueId(ctx, &id, 2, 1, &bootstrap), arfusionSuccess);
  child_wait(&child);
  sockets = sockets_of(child.pid);
  assert_int_equal(sockets.all, 1); /* the other rank */
  assert_int_equal(sockets.listening, 0);
  child_go(&child);
  assert_int_equal(plugin->commInit(ctx, 0, &small, &bootstrap, &comm), arfusionSuccess);
  assert_int_equal(plugin->bootstrapDestroy(ctx, &bootstrap), arfusionSuccess);
  child_wait(&child);
  assert_int_equal(sockets_of(child.pid).all, 0);
  assert_int_equal(sockets_of(getpid()).all, 0);
  child_go(&child);
  assert_int_equal(support_operation(comm, 1, 2), arfusionSuccess);
  child_end(&child);
  plugin->commFinalize(comm);
  plugin->finalize(ctx);
}

/* ---------------------------------------------------------------- the log */

static char lines[1 << 18];
static size_t lines_bytes;
static pthread_mutex_t lines_lock = PTHREAD_MUTEX_INITIALIZER;

static void keep_lines(arfusionLogLevel_t level, unsigned long flags, const char* file, int line, const char* fmt,
                       ...) {
  va_list args;
  (void)level;
  (void)flags;
  (void)file;
  (void)line;
  pthread_mutex_lock(&lines_lock);
  va_start(args, fmt);
  lines_bytes += (size_t)vsnprintf(lines + lines_bytes, sizeof lines - lines_bytes, fmt, args);
  va_end(args);
  assert_true(lines_bytes < sizeof lines);
  pthread_mutex_unlock(&lines_lock);
}

struct talk {
  void* ctx;
  arfusionUniqueId_t id[2]; /* of each rank */
};

static arfusionResult_t talk_rank(int rank, void* argument, struct support_outcome* outcome) {
  struct talk* talk = argument;
  arfusionBootstrap_t bootstrap = {.size = sizeof bootstrap};
  void* comm;
  (void)outcome;
  arfusionResult_t result = plugin->bootstrapUniqueId(talk->ctx, &talk->id[rank], 2, rank, &bootstrap);
  if (result != arfusionSuccess) return result;
  result = plugin->commInit(talk->ctx, 0, &small, &bootstrap, &comm);
  plugin->bootstrapDestroy(talk->ctx, &bootstrap);
  if (result != arfusionSuccess) return result;
  result = support_operation(comm, rank, 2);
  plugin->commFinalize(comm);
  return result;
}

static void assert_no_secret(const arfusionUniqueId_t* id) {
  static const char* const forms[] = {"%llx", "%llX", "%llu", "%lld"};
  for (size_t at = 32; at < 48; at += 8) {
    unsigned long long word;
    memcpy(&word, id->internal + at, sizeof word);
    assert_true(word > 0xffffffff); /* else it is too short to be told from other numbers */
    for (int form = 0; form < 4; ++form) {
      char text[32];
      snprintf(text, sizeof text, forms[form], word);
      if (strstr(lines, text)) fail_msg("a secret is in the log: %s", lines);
    }
  }
}

static void secrets_are_not_logged(void** state) {
  struct support_outcome outcomes[2];
  struct talk talk;
  (void)state;
  support_setting("ARFUSION_INIT_TIMEOUT", "1");
  assert_int_equal(plugin->init(&talk.ctx, keep_lines), arfusionSuccess);
  for (int wrong = 0; wrong < 3; ++wrong) { /* which of the two secrets */
    assert_int_equal(plugin->getUniqueId(talk.ctx, &talk.id[0]), arfusionSuccess);
    talk.id[1] = talk.id[0];
    if (wrong) talk.id[1].internal[24 + 8 * wrong] ^= 1;
    support_threads(2, talk_rank, &talk, outcomes);
    assert_int_equal(outcomes[1].result == arfusionSuccess, wrong == 0);
    for (int r = 0; r < 2; ++r) assert_no_secret(&talk.id[r]);
  }
  assert_true(support_text_has(lines, "rank 1 of 2 on device 0|has another secret|does not know the secret"));
  plugin->finalize(talk.ctx);
  support_setting("ARFUSION_INIT_TIMEOUT", NULL);
}

/* ---------------------------------------------------------------- what a peer gives as its memory */

enum gift { GIFT_SHORT, GIFT_UNSEALED, GIFT_PIPE };

/* A rank's talk; rank 1 gives something else in place of its workspace's descriptor. */
struct giver {
  arfusionBootstrap_t inner;
  enum gift gift;
};

static int gift_make(enum gift gift, off_t bytes) {
  int fd = memfd_create("gift", MFD_CLOEXEC | MFD_ALLOW_SEALING), ends[2];
  if (gift == GIFT_SHORT) bytes = 4096;
  if (fd < 0 || ftruncate(fd, bytes)) return -1;
  if (gift == GIFT_SHORT && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)) return -1;
  if (gift == GIFT_PIPE && pipe2(ends, O_CLOEXEC) == 0) {
    close(fd);
    close(ends[1]);
    fd = ends[0];
  }
  return fd;
}

static void gift_put(enum gift gift) {
  for (int fd = 3; fd < 64; ++fd) {
    char path[64], target[64] = "";
    struct stat status;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (readlink(path, target, sizeof target - 1) < 0 || !strstr(target, "arfusion-workspace")) continue;
    if (fstat(fd, &status)) continue;
    const int other = gift_make(gift, status.st_size);
    if (other < 0 || dup3(other, fd, O_CLOEXEC) != fd) _exit(9);
    close(other);
  }
}

static arfusionResult_t giving_all_gather(void* opaque, const void* send, void* recv, size_t bytes) {
  struct giver* giver = opaque;
  gift_put(giver->gift);
  return giver->inner.allGather(giver->inner.opaque, send, recv, bytes);
}

struct gift_world {
  arfusionUniqueId_t id;
  enum gift gift;
};

static arfusionResult_t gift_rank(int rank, void* argument, struct support_outcome* outcome) {
  const struct gift_world* world = argument;
  struct giver giver = {.inner = {.size = sizeof giver.inner}, .gift = world->gift};
  void *ctx = support_context(), *comm;
  arfusionBootstrap_t outer;
  (void)outcome;
  arfusionResult_t result = plugin->bootstrapUniqueId(ctx, &world->id, 2, rank, &giver.inner);
  if (result != arfusionSuccess) return result;
  outer = giver.inner;
  outer.opaque = &giver;
  outer.allGather = giving_all_gather;
  result = plugin->commInit(ctx, 0, &small, rank == 1 ? &outer : &giver.inner, &comm);
  if (result == arfusionSuccess) {
    result = support_operation(comm, rank, 2);
    plugin->commFinalize(comm);
  }
  plugin->bootstrapDestroy(ctx, &giver.inner);
  plugin->finalize(ctx);
  return result;
}

static void memory_of_a_peer_is_looked_at_before_it_is_used(void** state) {
  struct support_outcome outcomes[2];
  struct gift_world world;
  void* ctx = support_context();
  (void)state;
  for (world.gift = GIFT_SHORT; world.gift <= GIFT_PIPE; ++world.gift) {
    assert_int_equal(plugin->getUniqueId(ctx, &world.id), arfusionSuccess);
    support_processes(2, gift_rank, &world, outcomes);
    for (int r = 0; r < 2; ++r) {
      assert_true(outcomes[r].ended);
      assert_int_equal(outcomes[r].result, arfusionRemoteError);
      assert_true(support_text_has(outcomes[r].text, "what rank 1 gave as its workspace is no sealed memory of "));
    }
  }
  plugin->finalize(ctx);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(another_user_cannot_reach_the_memory),
      cmocka_unit_test(only_rank_0_listens_and_only_until_all_are_there),
      cmocka_unit_test(secrets_are_not_logged),
      cmocka_unit_test(memory_of_a_peer_is_looked_at_before_it_is_used),
  };
  support_setting("ARFUSION_DEVICE", "host");
  return cmocka_run_group_tests(tests, NULL, NULL);
}
