/* SPDX-License-Identifier: Apache-2.0
 *
 * json.h: the documents that --json prints; SCHEMA.md describes them. Pairs are written as they are made: a machine of
 * many GPUs has more of them than fit comfortably into memory as a tree.
 */
#ifndef ARFUSION_TOPO_JSON_H_
#define ARFUSION_TOPO_JSON_H_

#include <jansson.h>
#include <stdio.h>

#include "plugin/tools/topo/decide.h"

/* A document under way on stdout: one member of the outermost object a line. */
struct json_document {
  int elements; /* of the array that is open */
  int failed;   /* memory ran out: what was written is not whole */
};

/* Begins it with schema, version and command. */
void json_begin(struct json_document* document, const char* command);
/* These take over the reference. */
void json_member(struct json_document* document, const char* name, json_t* value);
void json_array_begin(struct json_document* document, const char* name);
void json_array_element(struct json_document* document, json_t* value);
/* An element that is JSON already. */
void json_array_text(struct json_document* document, const char* fmt, ...) __attribute__((format(printf, 2, 3)));
void json_array_finish(struct json_document* document);
/* The last members: status and exit code. Returns the exit code. */
int json_end(struct json_document* document, enum tool_status status);

/* What all commands say about the machine. */
void json_machine(struct json_document* document, const struct topo* topo);
void json_decision(struct json_document* document, const struct topo* topo, const struct decision* decision);

/* The whole model. Returns the exit code. */
int json_overview(const struct topo* topo, const struct decision* decision);

/* A document that is nothing but an error. Returns TOOL_CANNOT_TELL. */
int json_error(const char* command, const struct topo_error* error);

/* The text, or null for "" and NULL. Bytes that are not UTF-8 become question marks. */
json_t* json_text(const char* text);

#endif
