/* SPDX-License-Identifier: Apache-2.0
 *
 * parse.c: see parse.h.
 */
#include "topo/xml/parse.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK = 1 << 16 };

int xml_line(const struct xml_reader* reader) { return (int)XML_GetCurrentLineNumber(reader->parser); }

static void fail_at(struct xml_reader* reader, const char* text) {
  struct topo_error* error = reader->error;
  const char* element = reader->elements[reader->depth];
  if (reader->failed) return;
  reader->failed = 1;
  const int line = xml_line(reader);
  topo_fail(error, "%.120s, line %d%s%s%s: %.120s", reader->name, line, element[0] ? ", in <" : "", element,
            element[0] ? ">" : "", text);
  TOPO_COPY(error->file, reader->name);
  TOPO_COPY(error->element, element);
  error->line = line;
  error->column = (int)XML_GetCurrentColumnNumber(reader->parser) + 1;
}

void xml_fail(struct xml_reader* reader, const char* fmt, ...) {
  char text[256];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  fail_at(reader, text);
  XML_StopParser(reader->parser, XML_FALSE);
}

/* ---------------------------------------------------------------- expat's callbacks */

static void XMLCALL on_start(void* user, const XML_Char* element, const XML_Char** attributes) {
  struct xml_reader* reader = user;
  if (reader->failed) return;
  if (reader->depth == TOPO_MOST_XML_DEPTH) {
    xml_fail(reader, "elements are nested deeper than %d", TOPO_MOST_XML_DEPTH);
    return;
  }
  TOPO_COPY(reader->elements[++reader->depth], element);
  reader->format->start(reader, element, attributes);
}

static void XMLCALL on_end(void* user, const XML_Char* element) {
  struct xml_reader* reader = user;
  if (reader->failed) return;
  if (reader->format->end) reader->format->end(reader, element);
  --reader->depth;
}

static void XMLCALL on_text(void* user, const XML_Char* text, int bytes) {
  struct xml_reader* reader = user;
  if (!reader->failed) reader->format->text(reader, text, bytes);
}

/* Topologies need none, and they are how a small file becomes a huge one. */
static void XMLCALL on_entity(void* user, const XML_Char* name, int is_parameter, const XML_Char* value, int bytes,
                              const XML_Char* base, const XML_Char* system, const XML_Char* public,
                              const XML_Char* notation) {
  (void)name, (void)is_parameter, (void)value, (void)bytes, (void)base, (void)system, (void)public, (void)notation;
  xml_fail(user, "entities of its own are not allowed in a topology");
}

/* ---------------------------------------------------------------- parsing */

static void parse_failed(struct xml_reader* reader) {
  const enum XML_Error code = XML_GetErrorCode(reader->parser);
  if (code == XML_ERROR_NO_MEMORY) reader->builder.out_of_memory = 1;
  fail_at(reader, code == XML_ERROR_NO_ELEMENTS && reader->depth ? "the file ends here: it is cut off"
                                                                  : XML_ErrorString(code));
}

static int feed(struct xml_reader* reader, FILE* file, const char* data, size_t bytes) {
  size_t at = 0;
  for (int last = 0; !last && !reader->failed;) {
    void* buffer = XML_GetBuffer(reader->parser, CHUNK);
    if (!buffer) {
      parse_failed(reader);
      break;
    }
    size_t got;
    if (file) {
      got = fread(buffer, 1, CHUNK, file);
      if (got == 0 && ferror(file)) {
        fail_at(reader, strerror(errno));
        break;
      }
      last = got == 0;
    } else {
      got = bytes - at < CHUNK ? bytes - at : CHUNK;
      memcpy(buffer, data + at, got);
      at += got;
      last = at == bytes;
    }
    reader->bytes += got;
    if (reader->bytes > TOPO_MOST_XML_BYTES) {
      char text[80];
      snprintf(text, sizeof text, "the file is larger than %u MiB", TOPO_MOST_XML_BYTES >> 20);
      fail_at(reader, text);
    } else if (XML_ParseBuffer(reader->parser, (int)got, last) == XML_STATUS_ERROR) {
      parse_failed(reader);
    }
  }
  return reader->failed ? -1 : 0;
}

/* Parses `file`, or `data` if that is NULL. */
static int parse(struct xml_reader* reader, FILE* file, const char* data, size_t bytes, struct topo_error* error) {
  reader->error = error;
  reader->parser = XML_ParserCreate(NULL);
  if (!reader->parser) return topo_fail(error, "out of memory for a topology");
  XML_SetUserData(reader->parser, reader);
  XML_SetElementHandler(reader->parser, on_start, on_end);
  if (reader->format->text) XML_SetCharacterDataHandler(reader->parser, on_text);
  XML_SetEntityDeclHandler(reader->parser, on_entity);
  const int result = feed(reader, file, data, bytes);
  XML_ParserFree(reader->parser);
  reader->parser = NULL;
  return result;
}

static int read_any(const struct xml_format* format, FILE* file, const char* data, size_t bytes, const char* name,
                    struct topo** out, struct topo_error* error) {
  struct xml_reader* reader = calloc(1, format->reader_bytes);
  if (!reader) return topo_fail(error, "out of memory for a topology");
  int result = topo_begin(&reader->builder, format->origin, name, error);
  if (!result) {
    reader->format = format;
    reader->name = name;
    reader->source = topo_add_source(&reader->builder, "%.300s", name);
    if (format->begin) format->begin(reader);
    result = parse(reader, file, data, bytes, error);
    if (result) {
      topo_discard(&reader->builder);
    } else {
      format->complete(reader);
      result = topo_finish(&reader->builder, out, error);
    }
  }
  if (format->release) format->release(reader);
  free(reader);
  return result;
}

int xml_read_file(const struct xml_format* format, const char* path, struct topo** out, struct topo_error* error) {
  FILE* file = fopen(path, "re");
  if (!file) {
    topo_fail(error, "%.200s cannot be opened: %s", path, strerror(errno));
    TOPO_COPY(error->file, path);
    return -1;
  }
  const int result = read_any(format, file, NULL, 0, path, out, error);
  fclose(file);
  return result;
}

int xml_read_buffer(const struct xml_format* format, const char* data, size_t bytes, const char* name,
                    struct topo** out, struct topo_error* error) {
  return read_any(format, NULL, data, bytes, name, out, error);
}

/* ---------------------------------------------------------------- attributes */

const char* xml_attribute(const char** attributes, const char* name) {
  for (; *attributes; attributes += 2) {
    if (strcmp(attributes[0], name) == 0) return attributes[1];
  }
  return NULL;
}

int xml_integer(struct xml_reader* reader, const char** attributes, const char* name, int64_t min, int64_t max,
                int64_t* value) {
  const char* text = xml_attribute(attributes, name);
  char* end;
  if (!text || text[0] == '\0') return -1;
  errno = 0;
  const long long number = strtoll(text, &end, strncmp(text, "0x", 2) == 0 ? 16 : 10);
  if (errno || end == text || *end != '\0' || number < min || number > max) {
    xml_find(reader, "xml.value", "%s=\"%.40s\" is not a whole number from %lld to %lld: it is left out", name, text,
             (long long)min, (long long)max);
    return -1;
  }
  *value = number;
  return 0;
}

enum { MOST_PROCESSORS = 1 << 16 };

/* Fills in bits, the lowest first; -1 for what is not a finite set. */
static int set_parse(const char* text, unsigned char bits[MOST_PROCESSORS / 8]) {
  memset(bits, 0, MOST_PROCESSORS / 8);
  const char* end = text + strlen(text);
  for (size_t word = 0; end > text || word == 0; ++word) {
    const char* start = end;
    while (start > text && start[-1] != ',') --start;
    if (word >= MOST_PROCESSORS / 32) return -1;
    const char* digits = start;
    if (end - digits > 2 && digits[0] == '0' && digits[1] == 'x') digits += 2;
    if (end - digits > 8) return -1;
    uint32_t value = 0;
    for (; digits < end; ++digits) {
      char* stop;
      const char digit[2] = {*digits, '\0'};
      const long number = strtol(digit, &stop, 16);
      if (*stop != '\0' || stop == digit) return -1;
      value = value << 4 | (uint32_t)number;
    }
    for (int i = 0; i < 4; ++i) bits[word * 4 + (size_t)i] = (unsigned char)(value >> 8 * i);
    if (start == text) return 0;
    end = start - 1;
  }
  return -1; /* it began with a comma */
}

static int set_of(struct xml_reader* reader, const char** attributes, const char* name,
                  unsigned char bits[MOST_PROCESSORS / 8]) {
  const char* text = xml_attribute(attributes, name);
  if (!text || !text[0] || strncmp(text, "0xf...f", 7) == 0) return -1;
  if (!set_parse(text, bits)) return 0;
  xml_find(reader, "xml.value", "%s=\"%.40s\" is not a set in hexadecimal: it is left out", name, text);
  return -1;
}

char* xml_set(struct xml_reader* reader, const char** attributes, const char* name) {
  unsigned char bits[MOST_PROCESSORS / 8];
  if (set_of(reader, attributes, name, bits)) return NULL;
  char* list = topo_list_of_bits(bits, sizeof bits);
  if (!list) reader->builder.out_of_memory = 1;
  return list;
}

int xml_only_bit(struct xml_reader* reader, const char** attributes, const char* name) {
  unsigned char bits[MOST_PROCESSORS / 8];
  int only = -1;
  if (set_of(reader, attributes, name, bits)) return -1;
  for (int i = 0; i < MOST_PROCESSORS; ++i) {
    if (!bits[i / 8]) {
      i |= 7;
    } else if (bits[i / 8] >> i % 8 & 1) {
      if (only >= 0) return -1;
      only = i;
    }
  }
  return only;
}
