/* SPDX-License-Identifier: Apache-2.0
 *
 * probe.c: the parent of the measuring processes, which is their watchdog; see probe.h.
 */
#include "plugin/tools/topo/probe.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define REAP_LIMIT_MS 3000

static const char* const metric_names[PROBE_METRICS + 1] = {"stores", "loads", "copies", "latency", "start"};

struct child {
  pid_t pid;
  int pipe;
};

struct probe_cell* probe_cell(const struct probe_results* results, enum probe_metric metric, int from, int to) {
  size_t n = (size_t)results->ngpus;
  return &results->cells[((size_t)metric * n + (size_t)from) * n + (size_t)to];
}

static int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---------------------------------------------------------------- starting and ending a child */

/* The environment with only this pair visible: CUDA then starts faster, and a third GPU that is broken does not
 * matter. To be freed; NULL: out of memory. `visible` must live as long. */
static char** child_environment(const char* visible) {
  size_t count = 0, used = 0;
  while (environ[count] != NULL) count++;
  char** copy = calloc(count + 2, sizeof(*copy));
  for (size_t i = 0; copy != NULL && i < count; i++) {
    if (visible[0] == '\0' || strncmp(environ[i], "CUDA_VISIBLE_DEVICES=", 21) != 0) copy[used++] = environ[i];
  }
  if (copy != NULL && visible[0] != '\0') copy[used] = (char*)visible;
  return copy;
}

static int child_start(const struct probe_plan* plan, const struct topo_gpu* first, const struct topo_gpu* second,
                       struct child* child) {
  char pair[2 * TOPO_BUS_ID_BYTES + 16], visible[256] = "";
  char* arguments[] = {"arfusion-topo", "probe", pair, NULL};
  int ends[2];
  posix_spawn_file_actions_t actions;
  snprintf(pair, sizeof(pair), "--pair=%s,%s", first->bus_id, second->bus_id);
  if (first->uuid[0] != '\0' && second->uuid[0] != '\0') {
    snprintf(visible, sizeof(visible), "CUDA_VISIBLE_DEVICES=%s,%s", first->uuid, second->uuid);
  }
  if (pipe2(ends, O_CLOEXEC) != 0) return errno;
  char** environment = child_environment(visible);
  int error = environment != NULL ? posix_spawn_file_actions_init(&actions) : ENOMEM;
  if (error == 0) {
    error = posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    if (error == 0) error = posix_spawn(&child->pid, plan->program, &actions, NULL, arguments, environment);
    posix_spawn_file_actions_destroy(&actions);
  }
  free(environment);
  close(ends[1]);
  child->pipe = ends[0];
  if (error != 0) close(ends[0]);
  return error;
}

/* Says how it ended; "" if well. A process that hangs in the driver may not even die: it is left behind then. */
static void child_end(struct child* child, int must_die, char* text, size_t bytes) {
  const struct timespec pause = {.tv_nsec = 2000000};
  int64_t deadline = now_ms() + REAP_LIMIT_MS;
  int status = 0;
  pid_t ended;
  text[0] = '\0';
  close(child->pipe);
  if (must_die) kill(child->pid, SIGKILL);
  while ((ended = waitpid(child->pid, &status, WNOHANG)) == 0 || (ended < 0 && errno == EINTR)) {
    if (now_ms() > deadline) {
      if (must_die) {
        snprintf(text, bytes, "its process (%d) cannot be ended", (int)child->pid);
        return;
      }
      kill(child->pid, SIGKILL); /* it had said all it had to say */
      must_die = 1;
      deadline = now_ms() + REAP_LIMIT_MS;
    }
    nanosleep(&pause, NULL);
  }
  if (ended < 0 || must_die) return;
  if (WIFSIGNALED(status))
    snprintf(text, bytes, "its process died of signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
  if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
    snprintf(text, bytes, "its process exited with code %d", WEXITSTATUS(status));
}

/* ---------------------------------------------------------------- listening */

enum heard { HEARD_MESSAGE, HEARD_END, HEARD_NOTHING };

static enum heard child_hear(const struct child* child, int64_t deadline, struct probe_message* message) {
  size_t have = 0;
  while (have < sizeof(*message)) {
    int64_t left = deadline - now_ms();
    struct pollfd fd = {.fd = child->pipe, .events = POLLIN};
    int ready = left > 0 ? poll(&fd, 1, (int)left) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return HEARD_NOTHING;
    ssize_t got = read(child->pipe, (char*)message + have, sizeof(*message) - have);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return HEARD_END;
    have += (size_t)got;
  }
  message->text[sizeof(message->text) - 1] = '\0';
  return message->metric <= PROBE_METRICS && message->backwards <= 1 ? HEARD_MESSAGE : HEARD_END;
}

static void cell_take(struct probe_cell* cell, const struct probe_message* message) {
  cell->value = message->value;
  cell->words = message->words;
  cell->wrong = message->wrong;
  cell->state = message->kind == PROBE_FAILED ? PROBE_NO_WAY : message->wrong > 0 ? PROBE_WRONG : PROBE_GOOD;
  snprintf(cell->text, sizeof(cell->text), "%s", message->text);
  if (message->wrong > 0) {
    snprintf(cell->text, sizeof(cell->text), "%llu of %llu words did not arrive as they were sent",
             (unsigned long long)message->wrong, (unsigned long long)message->words);
  }
}

/* All measurements of the pair that have no result get this one. */
static void cells_fill(struct probe_results* results, int first, int second, enum probe_state state, const char* text) {
  for (int metric = 0; metric < PROBE_METRICS; metric++) {
    for (int backwards = 0; backwards < 2; backwards++) {
      struct probe_cell* cell =
          probe_cell(results, (enum probe_metric)metric, backwards ? second : first, backwards ? first : second);
      if (cell->state != PROBE_NOT_MEASURED) continue;
      cell->state = state;
      snprintf(cell->text, sizeof(cell->text), "%s", text);
    }
  }
}

static void progress(const struct probe_plan* plan, const struct probe_results* results, int first, int second,
                     const char* metric) {
  int n = results->ngpus, done = first * (2 * n - first - 1) / 2 + second - first, all = n * (n - 1) / 2;
  if (!plan->show_progress) return;
  fprintf(stderr, "\rpair %d of %d: GPU%d and GPU%d: %-8s", done, all, results->gpus[first], results->gpus[second],
          metric);
}

static void pair_measure(const struct topo* topo, const struct probe_plan* plan, struct probe_results* results,
                         int first, int second) {
  struct child child;
  struct probe_message message = {.metric = PROBE_METRICS};
  char text[256], ended[160] = "";
  int64_t deadline = now_ms() + plan->start_limit_ms;
  uint32_t now = PROBE_METRICS; /* what is being measured */
  enum heard heard;

  progress(plan, results, first, second, metric_names[PROBE_METRICS]);
  int error = child_start(plan, &topo->gpus[results->gpus[first]], &topo->gpus[results->gpus[second]], &child);
  if (error != 0) {
    snprintf(text, sizeof(text), "cannot start a process: %s", strerror(error));
    cells_fill(results, first, second, PROBE_NO_WAY, text);
    return;
  }
  while ((heard = child_hear(&child, deadline, &message)) == HEARD_MESSAGE && message.kind != PROBE_DONE) {
    deadline = now_ms() + plan->measure_limit_ms;
    now = message.metric;
    if (message.kind == PROBE_BEGIN) {
      progress(plan, results, first, second, metric_names[now]);
    } else if (message.metric == PROBE_METRICS) {
      cells_fill(results, first, second, PROBE_NO_WAY, message.text);
    } else {
      cell_take(probe_cell(results, (enum probe_metric)message.metric, message.backwards ? second : first,
                           message.backwards ? first : second),
                &message);
    }
  }
  child_end(&child, heard == HEARD_NOTHING, ended, sizeof(ended));
  if (heard == HEARD_NOTHING) {
    int limit_ms = now == PROBE_METRICS ? plan->start_limit_ms : plan->measure_limit_ms;
    snprintf(text, sizeof(text), "%s: no answer within %d.%d s; killed%s%s", metric_names[now], limit_ms / 1000,
             limit_ms % 1000 / 100, ended[0] != '\0' ? ", but " : "", ended);
  } else {
    snprintf(text, sizeof(text), "%s: %s", metric_names[now], ended[0] != '\0' ? ended : "its process ended early");
  }
  if (heard != HEARD_MESSAGE) cells_fill(results, first, second, PROBE_HUNG, text);
}

int probe_measure(const struct topo* topo, const struct probe_plan* plan, struct probe_results* results) {
  memset(results, 0, sizeof(*results));
  results->gpus = calloc((size_t)topo->ngpus + 1, sizeof(*results->gpus));
  if (results->gpus == NULL) return -1;
  for (int i = 0; i < topo->ngpus; i++) {
    if (topo->gpus[i].cuda.state == TOPO_OK) results->gpus[results->ngpus++] = i;
  }
  size_t n = (size_t)results->ngpus;
  results->cells = calloc(PROBE_METRICS * n * n + 1, sizeof(*results->cells));
  if (results->cells == NULL) {
    probe_free(results);
    return -1;
  }
  for (int first = 0; first < results->ngpus; first++) {
    for (int second = first + 1; second < results->ngpus; second++) pair_measure(topo, plan, results, first, second);
  }
  if (plan->show_progress) fprintf(stderr, "\r%-60s\r", "");
  return 0;
}

void probe_free(struct probe_results* results) {
  free(results->gpus);
  free(results->cells);
  memset(results, 0, sizeof(*results));
}
