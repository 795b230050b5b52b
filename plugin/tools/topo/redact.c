/* SPDX-License-Identifier: Apache-2.0
 *
 * redact.c: see redact.h.
 */
#include "plugin/tools/topo/redact.h"

#include <ctype.h>
#include <string.h>

void redact_uuids(char* text) {
  while (*text != '\0') {
    if (strncmp(text, "GPU-", 4) != 0 && strncmp(text, "MIG-", 4) != 0) {
      text++;
      continue;
    }
    int nested = strncmp(text + 4, "GPU-", 4) == 0; /* "MIG-GPU-...": the inner one is next */
    for (text += 4; !nested && (isxdigit((unsigned char)*text) || *text == '-'); text++) {
      if (*text != '-') *text = 'x';
    }
  }
}
