/* SPDX-License-Identifier: Apache-2.0
 *
 * team.c: ranks as processes or threads; see team.h.
 */
#include "plugin/tools/bench/team.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "plugin/tools/bench/bench.h"

/* Between the ranks; shared memory, also between threads of one process. */
struct team_shared {
  pthread_barrier_t barrier;
  unsigned char slots[ARFUSION_MAX_RANKS][TEAM_GATHER_BYTES];
};

/* In front of each message in a pipe. */
enum frame_kind { FRAME_MESSAGE, FRAME_FAILED, FRAME_DONE };
struct frame {
  uint32_t kind;
  uint32_t bytes;
};
#define FRAME_MAX_BYTES (1u << 20)

/* ---------------------------------------------------------------- the ranks' side */

static void pipe_write(int fd, const void* data, size_t bytes) {
  const char* at = data;
  while (bytes > 0) {
    ssize_t written = write(fd, at, bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return; /* the parent is gone, and this process with it in a moment */
    at += written;
    bytes -= (size_t)written;
  }
}

static void frame_send(struct team_rank* self, enum frame_kind kind, const void* data, size_t bytes) {
  struct frame frame = {.kind = kind, .bytes = (uint32_t)bytes};
  pipe_write(self->pipe, &frame, sizeof(frame));
  pipe_write(self->pipe, data, bytes);
}

void team_send(struct team_rank* self, const void* data, size_t bytes) { frame_send(self, FRAME_MESSAGE, data, bytes); }

int team_fail(struct team_rank* self, const char* fmt, ...) {
  char text[1536];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof(text), fmt, args);
  va_end(args);
  frame_send(self, FRAME_FAILED, text, strlen(text) + 1);
  return -1;
}

void team_barrier(struct team_rank* self) { pthread_barrier_wait(&self->shared->barrier); }

void team_all_gather(struct team_rank* self, const void* send, void* recv, size_t bytes) {
  memcpy(self->shared->slots[self->rank], send, bytes);
  team_barrier(self);
  for (int r = 0; r < self->nranks; r++) memcpy((char*)recv + (size_t)r * bytes, self->shared->slots[r], bytes);
  team_barrier(self);
}

/* ---------------------------------------------------------------- starting them */

struct runner {
  const struct team* team;
  struct team_shared* shared;
  int pipes[ARFUSION_MAX_RANKS][2];
  pid_t children[ARFUSION_MAX_RANKS];
  int nchildren;
};

struct thread_start {
  const struct team* team;
  struct team_rank self;
};

static int rank_run(const struct team* team, struct team_rank* self) {
  if (team->run_rank(self, team->rank_arg) != 0) return -1;
  frame_send(self, FRAME_DONE, NULL, 0);
  return 0;
}

static void* thread_main(void* arg) {
  struct thread_start* start = arg;
  return rank_run(start->team, &start->self) == 0 ? NULL : start;
}

/* All ranks as threads of the calling process. 0, or -1 if one failed. */
static int threads_run(const struct runner* runner) {
  struct thread_start starts[ARFUSION_MAX_RANKS];
  pthread_t threads[ARFUSION_MAX_RANKS];
  int result = 0;
  for (int r = 0; r < runner->team->nranks; r++) {
    starts[r] = (struct thread_start){
        .team = runner->team,
        .self = {.rank = r, .nranks = runner->team->nranks, .pipe = runner->pipes[r][1], .shared = runner->shared}};
    int error = pthread_create(&threads[r], NULL, thread_main, &starts[r]);
    if (error != 0) return team_fail(&starts[r].self, "cannot start a thread: %s", strerror(error));
  }
  for (int r = 0; r < runner->team->nranks; r++) {
    void* failed;
    pthread_join(threads[r], &failed);
    if (failed != NULL) result = -1;
  }
  return result;
}

/* The child's life: rank `rank`, or all of them. Does not return. */
static void child_main(const struct runner* runner, int rank, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL); /* no rank outlives a parent that was killed */
  if (getppid() != parent) _exit(BENCH_FAILED);
  for (int r = 0; r < runner->team->nranks; r++) {
    close(runner->pipes[r][0]);
    if (!runner->team->as_threads && r != rank) close(runner->pipes[r][1]);
  }
  int result;
  if (runner->team->as_threads) {
    result = threads_run(runner);
  } else {
    struct team_rank self = {
        .rank = rank, .nranks = runner->team->nranks, .pipe = runner->pipes[rank][1], .shared = runner->shared};
    result = rank_run(runner->team, &self);
  }
  exit(result == 0 ? BENCH_EQUAL : BENCH_FAILED);
}

static int runner_fork(struct runner* runner) {
  pid_t parent = getpid();
  int count = runner->team->as_threads ? 1 : runner->team->nranks;
  fflush(NULL); /* or every child would print what is still buffered */
  for (int i = 0; i < count; i++) {
    pid_t child = fork();
    if (child == 0) child_main(runner, i, parent);
    if (child < 0) {
      bench_fail("cannot start rank %d: %s", i, strerror(errno));
      return -1;
    }
    runner->children[runner->nchildren++] = child;
  }
  return 0;
}

/* ---------------------------------------------------------------- the parent's side */

/* 0, or -1 at the end of the pipe. */
static int pipe_read(int fd, void* data, size_t bytes) {
  char* at = data;
  while (bytes > 0) {
    ssize_t got = read(fd, at, bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return -1;
    at += got;
    bytes -= (size_t)got;
  }
  return 0;
}

/* Says how the child that rank `rank` ran in has ended. */
static void report_death(struct runner* runner, int rank) {
  int child = runner->team->as_threads ? 0 : rank;
  const char* who = runner->team->as_threads ? "the process of all ranks" : "its process";
  int status;
  if (waitpid(runner->children[child], &status, 0) != runner->children[child]) return;
  runner->children[child] = 0;
  if (WIFSIGNALED(status)) {
    bench_fail("rank %d ended early: %s was killed by signal %d (%s)", rank, who, WTERMSIG(status),
               strsignal(WTERMSIG(status)));
  } else {
    bench_fail("rank %d ended early: %s exited with code %d", rank, who, WEXITSTATUS(status));
  }
}

/* One frame of rank `rank`. 1: it is done; 0: go on; -1: the run has failed. */
static int frame_receive(struct runner* runner, int rank, char* buffer) {
  const struct team* team = runner->team;
  struct frame frame;
  if (pipe_read(runner->pipes[rank][0], &frame, sizeof(frame)) != 0 || frame.bytes > FRAME_MAX_BYTES ||
      pipe_read(runner->pipes[rank][0], buffer, frame.bytes) != 0) {
    report_death(runner, rank);
    return -1;
  }
  if (frame.kind == FRAME_DONE) return 1;
  if (frame.kind == FRAME_FAILED) {
    bench_fail("rank %d of %d: %s", rank, team->nranks, buffer);
    return -1;
  }
  if (team->on_message == NULL) return 0;
  if (frame.bytes != team->message_bytes) {
    bench_fail("rank %d sent %zu bytes in place of %zu", rank, (size_t)frame.bytes, team->message_bytes);
    return -1;
  }
  return team->on_message(team->message_arg, rank, buffer);
}

/* Until all ranks are done. */
static int runner_listen(struct runner* runner) {
  const struct team* team = runner->team;
  struct pollfd fds[ARFUSION_MAX_RANKS];
  int running = team->nranks, result = 0;
  char* buffer = malloc(FRAME_MAX_BYTES);
  if (buffer == NULL) {
    bench_fail("out of memory");
    return -1;
  }
  for (int r = 0; r < team->nranks; r++) fds[r] = (struct pollfd){.fd = runner->pipes[r][0], .events = POLLIN};
  while (running > 0 && result == 0) {
    int ready = poll(fds, (nfds_t)team->nranks, team->silence_s * 1000);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      bench_fail("%d ranks: no rank has answered for %d s; all were killed", team->nranks, team->silence_s);
      result = -1;
    }
    for (int r = 0; r < team->nranks && result == 0; r++) {
      if (fds[r].fd < 0 || fds[r].revents == 0) continue;
      int received = frame_receive(runner, r, buffer);
      if (received < 0) result = -1;
      if (received > 0) {
        fds[r].fd = -1;
        running--;
      }
    }
  }
  free(buffer);
  return result;
}

/* Waits for the children. After a failure they are killed first. A child that fails in the end counts too. */
static int runner_reap(struct runner* runner, int failed) {
  int result = 0;
  for (int i = 0; i < runner->nchildren; i++) {
    if (failed && runner->children[i] > 0) kill(runner->children[i], SIGKILL);
  }
  for (int i = 0; i < runner->nchildren; i++) {
    int status = 0;
    if (runner->children[i] <= 0) continue;
    while (waitpid(runner->children[i], &status, 0) < 0 && errno == EINTR) continue;
    if (failed || (WIFEXITED(status) && WEXITSTATUS(status) == 0)) continue;
    if (result == 0) {
      bench_fail("rank %d ended badly after its work was done (%s %d)", i, WIFSIGNALED(status) ? "signal" : "exit code",
                 WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
    result = -1;
  }
  return result;
}

static int shared_make(struct team_shared** shared, int nranks) {
  void* memory = mmap(NULL, sizeof(**shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return -1;
  *shared = memory;
  pthread_barrierattr_t attr;
  pthread_barrierattr_init(&attr);
  pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(&(*shared)->barrier, &attr, (unsigned)nranks);
  pthread_barrierattr_destroy(&attr);
  return 0;
}

int team_run(const struct team* team) {
  struct runner runner = {.team = team};
  int npipes = 0, result = -1;
  if (shared_make(&runner.shared, team->nranks) != 0) {
    bench_fail("cannot map shared memory: %s", strerror(errno));
    return -1;
  }
  for (; npipes < team->nranks; npipes++) {
    if (pipe(runner.pipes[npipes]) == 0) continue;
    bench_fail("cannot make a pipe: %s", strerror(errno));
    goto err_close_pipes;
  }
  result = runner_fork(&runner);
  for (int r = 0; r < team->nranks; r++) {
    close(runner.pipes[r][1]);
    runner.pipes[r][1] = -1;
  }
  if (result == 0) result = runner_listen(&runner);
  if (runner_reap(&runner, result != 0) != 0) result = -1;

err_close_pipes:
  for (int r = 0; r < npipes; r++) {
    close(runner.pipes[r][0]);
    if (runner.pipes[r][1] >= 0) close(runner.pipes[r][1]);
  }
  munmap(runner.shared, sizeof(*runner.shared));
  return result;
}
