/* SPDX-License-Identifier: Apache-2.0
 *
 * cases.h: cases of libarfusion-nccl.so that are processes of their own, since the library reads its settings and opens
 * the plugin once.
 */
#ifndef ARFUSION_TEST_NCCL_CASES_H_
#define ARFUSION_TEST_NCCL_CASES_H_

#include <stddef.h>

struct process_case {
  const char* name;
  void (*run)(void);
  const char *variable, *value; /* of its environment; NULL: none */
  const char* lines;            /* what stderr must have, as "a|b"; NULL: nothing at all on stderr */
  int count;                    /* of lines there; -1: any */
};

#define CASE(name) #name, name

/* A program's main: all cases, or the one of that number, in this process. */
int cases_run(int argc, char** argv, const struct process_case* cases, size_t count);

#endif
