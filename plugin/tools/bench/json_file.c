/* SPDX-License-Identifier: Apache-2.0
 *
 * json_file.c: see json_file.h.
 */
#include "plugin/tools/bench/json_file.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "topo/one_line.h"

json_t* json_file_load(const char* path, char* error, size_t error_bytes) {
  json_error_t json_error;
  FILE* file = fopen(path, "r");
  if (file == NULL) {
    snprintf(error, error_bytes, "%s: %s", path, strerror(errno));
    return NULL;
  }
  errno = 0;
  json_t* root = json_loadf(file, JSON_REJECT_DUPLICATES, &json_error);
  if (root == NULL && ferror(file)) { /* a folder opens, too */
    snprintf(error, error_bytes, "%s: %s", path, strerror(errno != 0 ? errno : EIO));
  } else if (root == NULL) {
    text_one_line(json_error.text); /* it quotes the file */
    snprintf(error, error_bytes, "%s:%d: %s", path, json_error.line, json_error.text);
  }
  fclose(file);
  return root;
}
