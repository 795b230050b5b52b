/* SPDX-License-Identifier: Apache-2.0
 *
 * tool.h: what the parts of arfusion-topo share: exit codes, options, the one line that an error is.
 */
#ifndef ARFUSION_TOPO_TOOL_H_
#define ARFUSION_TOPO_TOOL_H_

#include <stddef.h>

#include "topo/topo.h"

/* What is said about a machine; also the exit code. */
enum tool_status {
  TOOL_GOOD = 0,
  TOOL_DEGRADED = 1,
  TOOL_UNUSABLE = 2,
  TOOL_CANNOT_TELL = 3 /* also after an error: nothing was found out, or nobody could be told */
};
#define TOOL_USAGE 64

enum tool_command { TOOL_OVERVIEW, TOOL_DOCTOR, TOOL_PROBE, TOOL_EXPORT };
enum tool_format { TOOL_FORMAT_NONE, TOOL_FORMAT_HWLOC_XML, TOOL_FORMAT_NCCL_XML, TOOL_FORMAT_DOT, TOOL_FORMAT_SVG };

struct tool_options {
  enum tool_command command;
  int json;
  int redact;
  const char* hwloc_xml; /* files to read in place of this machine; NULL */
  const char* nccl_xml;
  enum tool_format format; /* of export */
  const char* output;      /* of export; NULL: stdout */
  const char* pair[2];     /* the probe's own children: the bus ids to measure; NULL */
};

/* Prints "arfusion-topo: TEXT" on stderr. Returns TOOL_CANNOT_TELL. */
int tool_fail(const char* fmt, ...) __attribute__((format(printf, 1, 2)));

/* "good", "degraded", "unusable", "cannot tell". */
const char* tool_status_name(enum tool_status status);

/* The first thing with this id that was found while reading, or NULL. *count (may be NULL): how many there are. */
const struct topo_finding* tool_finding(const struct topo* topo, const char* id, int* count);

/* Appends to a text in a buffer of `bytes`; what does not fit is left away. */
void tool_append(char* text, size_t bytes, const char* fmt, ...) __attribute__((format(printf, 3, 4)));

#endif
