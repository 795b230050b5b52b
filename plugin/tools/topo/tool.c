/* SPDX-License-Identifier: Apache-2.0
 *
 * tool.c: errors and texts; see tool.h.
 */
#include "plugin/tools/topo/tool.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "topo/one_line.h"

int tool_fail(const char* fmt, ...) {
  char text[2048];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof(text), fmt, args);
  va_end(args);
  text_one_line(text);
  fprintf(stderr, "arfusion-topo: %s\n", text);
  return TOOL_CANNOT_TELL;
}

const char* tool_status_name(enum tool_status status) {
  static const char* const names[] = {"good", "degraded", "unusable", "cannot tell"};
  return names[status];
}

void tool_append(char* text, size_t bytes, const char* fmt, ...) {
  size_t used = strlen(text);
  va_list args;
  va_start(args, fmt);
  vsnprintf(text + used, bytes - used, fmt, args);
  va_end(args);
}

const struct topo_finding* tool_finding(const struct topo* topo, const char* id, int* count) {
  const struct topo_finding* first = NULL;
  int found = 0;
  for (int i = 0; i < topo->nfindings; i++) {
    if (strcmp(topo->findings[i].id, id) != 0) continue;
    if (found++ == 0) first = &topo->findings[i];
  }
  if (count != NULL) *count = found;
  return first;
}
