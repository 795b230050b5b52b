/* SPDX-License-Identifier: Apache-2.0
 *
 * parse.h: what both readers need of an XML parser (expat): a file or a buffer in pieces, limits, and errors that
 * say where.
 */
#ifndef ARFUSION_TOPO_XML_PARSE_H_
#define ARFUSION_TOPO_XML_PARSE_H_

#include <expat.h>
#include <stdio.h>

#include "topo/model.h"

enum { XML_ELEMENT_BYTES = 48 };

struct xml_reader;

/* A kind of topology in XML; all but start and complete may be NULL. */
struct xml_format {
  enum topo_origin origin;
  size_t reader_bytes; /* of a struct whose first member is a struct xml_reader; it begins as zeros */
  void (*begin)(struct xml_reader* reader);
  void (*start)(struct xml_reader* reader, const char* element, const char** attributes);
  void (*end)(struct xml_reader* reader, const char* element);
  void (*text)(struct xml_reader* reader, const char* text, int bytes);
  void (*complete)(struct xml_reader* reader); /* behind the last element: what follows from all of them */
  void (*release)(struct xml_reader* reader);  /* also after an error */
};

struct xml_reader {
  struct topo_builder builder;
  const struct xml_format* format;
  const char* name; /* of the file */
  uint16_t source;  /* the file, of facts */
  /* The parser's own. */
  XML_Parser parser;
  struct topo_error* error;
  int failed;
  int depth;      /* of the element that is being started or ended; the root's is 1 */
  size_t bytes;
  char elements[TOPO_MOST_XML_DEPTH + 1][XML_ELEMENT_BYTES]; /* the open ones, by depth */
};

/* Reads such a topology. -1 with *error filled in. */
int xml_read_file(const struct xml_format* format, const char* path, struct topo** out, struct topo_error* error);
int xml_read_buffer(const struct xml_format* format, const char* data, size_t bytes, const char* name,
                    struct topo** out, struct topo_error* error);

/* Ends the parse with an error at this place. The first one counts. */
void xml_fail(struct xml_reader* reader, const char* fmt, ...) __attribute__((format(printf, 2, 3)));

int xml_line(const struct xml_reader* reader);

/* A finding at this place: FAIL, id, then a text. */
#define xml_find(reader, id, ...)                                                                             \
  topo_find(&(reader)->builder, id, TOPO_FAIL, xml_line(reader), (reader)->elements[(reader)->depth], __VA_ARGS__)

/* An attribute's text; NULL if there is none. */
const char* xml_attribute(const char** attributes, const char* name);

/* A whole number, decimal or 0x...: 0, or -1 where there is none or it is not from min to max; the latter is a
 * finding. */
int xml_integer(struct xml_reader* reader, const char** attributes, const char* name, int64_t min, int64_t max,
                int64_t* value);

/* A set, 32-bit words with the highest first ("0x00000303,,0x1", "ffff,ff000000"), as "0-3,8". NULL where there is
 * none, or an infinite one of hwloc's; what is not a set is a finding, too. Out of memory is remembered. */
char* xml_set(struct xml_reader* reader, const char** attributes, const char* name);

/* The lowest bit of such a set if it is the only one; else -1. */
int xml_only_bit(struct xml_reader* reader, const char** attributes, const char* name);

#endif
