/* SPDX-License-Identifier: Apache-2.0
 *
 * json.c: the frame of all documents, and what all of them say; see json.h.
 */
#include "plugin/tools/topo/json.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define SCHEMA "arfusion-topo/1"

json_t* json_text(const char* text) {
  if (text == NULL || text[0] == '\0') return json_null();
  json_t* value = json_string(text);
  char* copy = value == NULL ? strdup(text) : NULL;
  if (copy == NULL) return value;
  for (char* at = copy; *at != '\0'; at++) {
    if ((unsigned char)*at >= 0x80) *at = '?';
  }
  value = json_string(copy);
  free(copy);
  return value;
}

static void value_write(struct json_document* document, json_t* value) {
  if (value == NULL || json_dumpf(value, stdout, JSON_ENCODE_ANY | JSON_REAL_PRECISION(6)) != 0) {
    /* No memory, unless stdout has an error of its own, which main tells at the end. */
    document->failed |= !ferror(stdout);
    printf("null");
  }
  json_decref(value);
}

void json_begin(struct json_document* document, const char* command) {
  *document = (struct json_document){0};
  printf("{\"schema\": \"%s\",\n \"version\": \"%s\",\n \"command\": \"%s\"", SCHEMA, ARFUSION_VERSION, command);
}

void json_member(struct json_document* document, const char* name, json_t* value) {
  printf(",\n \"%s\": ", name);
  value_write(document, value);
}

void json_array_begin(struct json_document* document, const char* name) {
  document->elements = 0;
  printf(",\n \"%s\": [", name);
}

void json_array_element(struct json_document* document, json_t* value) {
  printf("%s\n  ", document->elements++ == 0 ? "" : ",");
  value_write(document, value);
}

void json_array_text(struct json_document* document, const char* fmt, ...) {
  va_list args;
  printf("%s\n  ", document->elements++ == 0 ? "" : ",");
  va_start(args, fmt);
  vprintf(fmt, args);
  va_end(args);
}

void json_array_finish(struct json_document* document) { printf("%s]", document->elements == 0 ? "" : "\n "); }

int json_end(struct json_document* document, enum tool_status status) {
  if (document->failed) status = (enum tool_status)tool_fail("out of memory: the document is not whole");
  json_member(document, "status", json_string(tool_status_name(status)));
  json_member(document, "exit_code", json_integer(status));
  printf("}\n");
  return status;
}

int json_error(const char* command, const struct topo_error* error) {
  struct json_document document;
  json_begin(&document, command);
  json_member(&document, "error",
              json_pack("{s:o, s:o, s:i, s:i, s:o}", "text", json_text(error->text), "file", json_text(error->file),
                        "line", error->line, "column", error->column, "element", json_text(error->element)));
  return json_end(&document, TOOL_CANNOT_TELL);
}

/* ---------------------------------------------------------------- the machine and the verdict */

static json_t* version_or_null(const struct topo_fact* fact) {
  char text[16];
  if (fact->state != TOPO_OK) return json_null();
  snprintf(text, sizeof(text), "%d.%d", fact->value / 1000, fact->value % 1000 / 10);
  return json_string(text);
}

void json_machine(struct json_document* document, const struct topo* topo) {
  static const char* const origins[] = {"live", "hwloc-xml", "nccl-xml"};
  json_member(document, "machine",
              json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "origin", origins[topo->origin], "file",
                        json_text(topo->file), "host", json_text(topo->host), "driver", json_text(topo->driver),
                        "cuda_driver", version_or_null(&topo->cuda_driver), "cuda_runtime",
                        version_or_null(&topo->cuda_runtime), "hwloc", json_text(topo->hwloc)));
}

/* The bus id of a GPU by its index, or null. */
static json_t* gpu_or_null(const struct topo* topo, int gpu) {
  return gpu >= 0 && gpu < topo->ngpus ? json_string(topo->gpus[gpu].bus_id) : json_null();
}

static json_t* answer_value(const struct topo* topo, const struct topo_answer* answer) {
  return json_pack("{s:s, s:o, s:o, s:o, s:o}", "state", topo_state_name(answer->state), "from",
                   gpu_or_null(topo, answer->from), "to", gpu_or_null(topo, answer->to), "why", json_text(answer->why),
                   "source", json_text(topo_source(topo, answer->source)));
}

void json_decision(struct json_document* document, const struct topo* topo, const struct decision* decision) {
  const struct topo_verdict* verdict = &decision->verdict;
  json_member(document, "verdict",
              json_pack("{s:s, s:s, s:s, s:o, s:b, s:i, s:o}", "status", tool_status_name(decision->status), "path",
                        decision->path, "why", decision->why, "nvlink_all_to_all", answer_value(topo, &verdict->nvlink),
                        "nvlink_assumed", verdict->assumed, "nvlink_count", verdict->nvlink_count, "p2p_all_to_all",
                        answer_value(topo, &verdict->p2p)));
}
