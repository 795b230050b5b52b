/* SPDX-License-Identifier: Apache-2.0
 *
 * cases.c: see cases.h.
 */
#include "test/nccl/cases.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test/nccl/support.h"

/* Everything that the child writes to stderr. */
static int run_child(const char* program, int index, char* text, size_t bytes) {
  char number[16];
  int pipes[2], status;
  size_t used = 0;
  ssize_t got;
  snprintf(number, sizeof number, "%d", index);
  CHECK(pipe(pipes) == 0);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    dup2(pipes[1], STDERR_FILENO);
    close(pipes[0]);
    close(pipes[1]);
    execl(program, program, number, (char*)NULL);
    _exit(127);
  }
  close(pipes[1]);
  while ((got = read(pipes[0], text + used, bytes - 1 - used)) > 0 || (got < 0 && errno == EINTR)) {
    if (got > 0) used += (size_t)got;
  }
  text[used] = '\0';
  close(pipes[0]);
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static int lines_are_right(const struct process_case* own, const char* text) {
  int lines = 0;
  for (const char* at = text; *at; ++at) lines += *at == '\n';
  if (own->count >= 0 && lines != own->count) return 0;
  for (const char* word = own->lines; word;) {
    char wanted[256];
    const size_t length = strcspn(word, "|");
    snprintf(wanted, sizeof wanted, "%.*s", (int)length, word);
    if (!strstr(text, wanted)) return 0;
    word = word[length] ? word + length + 1 : NULL;
  }
  return 1;
}

int cases_run(int argc, char** argv, const struct process_case* cases, size_t count) {
  static char text[1 << 16];
  int failed = 0;
  if (argc > 1) {
    const struct process_case* own = &cases[(size_t)atoi(argv[1]) % count];
    support_settings();
    if (own->variable) setenv(own->variable, own->value, 1);
    own->run();
    return 0;
  }
  for (size_t i = 0; i < count; ++i) {
    const int status = run_child("/proc/self/exe", (int)i, text, sizeof text);
    const int passed = status == 0 && lines_are_right(&cases[i], text);
    printf("%s %s %s\n", passed ? "passed" : "FAILED", cases[i].name, cases[i].variable ? cases[i].value : "");
    if (!passed) printf("exit status %d, and on stderr:\n%s\n", status, text);
    fflush(stdout);
    failed += !passed;
  }
  return failed > 0;
}
