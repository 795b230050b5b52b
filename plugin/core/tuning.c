/* SPDX-License-Identifier: Apache-2.0
 *
 * tuning.c: routing tables and the file they are in; see tuning.h.
 */
#include "plugin/core/tuning.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "plugin/core/log.h"
#include "plugin/core/names.h"

enum { FILE_BYTES = 64 << 10, LINE_BYTES = 256, SHOWN = 60 /* characters of a word that is wrong */ };

int tuning_equal(const struct route_table* a, const struct route_table* b) {
  if (a->slower_from_bytes != b->slower_from_bytes) return 0;
  for (int i = 0; i < ROUTE_MAX_SEGMENTS; ++i) {
    if (a->automatic[i].up_to_bytes != b->automatic[i].up_to_bytes) return 0;
    if (a->automatic[i].algorithm != b->automatic[i].algorithm) return 0;
    if (a->automatic[i].up_to_bytes == INT64_MAX) break;
  }
  return 1;
}

void tuning_text(const struct route_table* table, char text[TUNING_TEXT_BYTES]) {
  size_t length = 0;
  for (int i = 0; i < ROUTE_MAX_SEGMENTS && length < TUNING_TEXT_BYTES; ++i) {
    const char* name = name_of_algorithm(table->automatic[i].algorithm);
    const int64_t up_to = table->automatic[i].up_to_bytes;
    char* end = text + length;
    if (up_to == INT64_MAX) {
      length += (size_t)snprintf(end, TUNING_TEXT_BYTES - length, "%s%s", i ? "then " : "", name);
      break;
    }
    length += (size_t)snprintf(end, TUNING_TEXT_BYTES - length, "%s up to %lld bytes, ", name, (long long)up_to);
  }
  if (table->slower_from_bytes != INT64_MAX && length < TUNING_TEXT_BYTES) {
    snprintf(text + length, TUNING_TEXT_BYTES - length, "; slower from %lld bytes",
             (long long)table->slower_from_bytes);
  }
}

/* ---------------------------------------------------------------- lines */

struct reader {
  const char* path;
  const char *at, *end;  /* what has not been read yet */
  int number;            /* of the line */
  char line[LINE_BYTES]; /* without spaces at its ends */
};

__attribute__((format(printf, 2, 3)))
static arfusionResult_t line_error(const struct reader* reader, const char* fmt, ...) {
  char text[512];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  return error_set(arfusionInvalidArgument, "ARFUSION_TUNING_FILE: %s, line %d: %s", reader->path, reader->number,
                   text);
}

static int is_space(char c) { return c == ' ' || c == '\t' || c == '\r'; }

static arfusionResult_t line_take(struct reader* reader, const char* start, size_t length) {
  for (size_t i = 0; i < length; ++i) {
    const unsigned char byte = (unsigned char)start[i];
    if (iscntrl(byte) && !is_space((char)byte)) return line_error(reader, "the byte 0x%02x is not text", byte);
  }
  if (length >= LINE_BYTES) return line_error(reader, "%zu characters, at most %d", length, LINE_BYTES - 1);
  while (length > 0 && is_space(*start)) ++start, --length;
  while (length > 0 && is_space(start[length - 1])) --length;
  memcpy(reader->line, start, length);
  reader->line[length] = '\0';
  return arfusionSuccess;
}

/* The next line that says something, into reader->line; "" at the end of the file. */
static arfusionResult_t line_next(struct reader* reader) {
  reader->line[0] = '\0';
  while (reader->at < reader->end && (reader->line[0] == '\0' || reader->line[0] == '#')) {
    const size_t rest = (size_t)(reader->end - reader->at);
    const char* newline = memchr(reader->at, '\n', rest);
    const size_t length = newline ? (size_t)(newline - reader->at) : rest;
    ++reader->number;
    FORWARD_IF_ERROR(line_take(reader, reader->at, length));
    reader->at += length + (newline != NULL);
  }
  if (reader->line[0] == '#') reader->line[0] = '\0';
  return arfusionSuccess;
}

/* What follows the line's first word if that is `key`, else NULL. */
static const char* line_value(const struct reader* reader, const char* key) {
  const size_t length = strlen(key);
  const char* at = reader->line;
  if (strncmp(at, key, length) != 0 || !(at[length] == '\0' || is_space(at[length]))) return NULL;
  at += length;
  while (is_space(*at)) ++at;
  return at;
}

/* The line must begin with `key`. */
static arfusionResult_t line_begins(const struct reader* reader, const char* key, const char* form,
                                    const char** value) {
  *value = line_value(reader, key);
  if (*value) return arfusionSuccess;
  if (reader->line[0] == '\0') return line_error(reader, "the file ends where '%s' is expected", form);
  return line_error(reader, "'%.*s' where '%s' is expected", SHOWN, reader->line, form);
}

/* Reads the next line, which must begin with `key`. */
static arfusionResult_t line_expect(struct reader* reader, const char* key, const char* form, const char** value) {
  FORWARD_IF_ERROR(line_next(reader));
  return line_begins(reader, key, form, value);
}

/* A whole number that ends where a word does; *rest is what follows it. */
static int number_parse(const char* text, int64_t* number, const char** rest) {
  char* end;
  if (!isdigit((unsigned char)*text)) return 0;
  errno = 0;
  *number = strtoll(text, &end, 10);
  if (errno || !(*end == '\0' || is_space(*end))) return 0;
  while (is_space(*end)) ++end;
  *rest = end;
  return 1;
}

/* A size of a request: neither 0 nor what stands for unlimited. */
static int bytes_parse(const char* text, int64_t* bytes, const char** rest) {
  return number_parse(text, bytes, rest) && *bytes > 0 && *bytes < INT64_MAX;
}

/* ---------------------------------------------------------------- the parts of a table */

static arfusionResult_t version_read(const struct reader* reader) {
  const char *value, *rest;
  int64_t version;
  char form[48];
  snprintf(form, sizeof form, "%s %d", TUNING_FORMAT, TUNING_VERSION);
  FORWARD_IF_ERROR(line_begins(reader, TUNING_FORMAT, form, &value));
  if (number_parse(value, &version, &rest) && *rest == '\0' && version == TUNING_VERSION) return arfusionSuccess;
  return line_error(reader, "version '%.*s', this plugin reads version %d", SHOWN, value, TUNING_VERSION);
}

static int arch_is_one(const char* text) {
  int64_t number;
  const char* rest;
  if (!strcmp(text, "host")) return 1;
  return !strncmp(text, "sm_", 3) && number_parse(text + 3, &number, &rest) && *rest == '\0';
}

/* What a table is for, against what is looked for. */
struct match {
  int device;
  int nranks; /* the table's */
};

static arfusionResult_t device_read(struct reader* reader, const struct tuning_target* target, struct match* match) {
  const char* value;
  char arch[TUNING_ARCH_BYTES];
  FORWARD_IF_ERROR(line_expect(reader, "arch", "arch sm_NN or host", &value));
  tuning_arch(target->compute_major, target->compute_minor, arch);
  if (!arch_is_one(value)) return line_error(reader, "'%.*s' is no architecture: sm_NN or host", SHOWN, value);
  match->device = strcmp(value, arch) == 0;
  FORWARD_IF_ERROR(line_next(reader));
  value = line_value(reader, "gpu");
  if (!value) return arfusionSuccess;
  if (strcmp(value, target->gpu) != 0) match->device = 0;
  return line_next(reader);
}

static arfusionResult_t target_read(struct reader* reader, const struct tuning_target* target, struct match* match) {
  const char *value, *rest;
  int64_t nranks;
  FORWARD_IF_ERROR(device_read(reader, target, match));
  FORWARD_IF_ERROR(line_begins(reader, "ranks", "ranks NUMBER", &value));
  if (!number_parse(value, &nranks, &rest) || *rest || nranks < 2 || nranks > ARFUSION_MAX_RANKS) {
    return line_error(reader, "ranks is '%.*s', a number from 2 to %d", SHOWN, value, ARFUSION_MAX_RANKS);
  }
  match->nranks = (int)nranks;
  return arfusionSuccess;
}

static int algorithm_parse(const char* text, arfusionAlgorithm_t* algorithm) {
  for (int a = arfusionAlgoOneshotLamport; a < ARFUSION_NUM_ALGORITHMS; ++a) {
    if (strcmp(text, name_of_algorithm((arfusionAlgorithm_t)a)) != 0) continue;
    *algorithm = (arfusionAlgorithm_t)a;
    return 1;
  }
  return 0;
}

static arfusionResult_t segments_read(struct reader* reader, struct route_table* table) {
  int64_t before = 0;
  for (int i = 0; before != INT64_MAX; ++i) {
    const char *value, *rest;
    int64_t bytes = INT64_MAX;
    FORWARD_IF_ERROR(line_expect(reader, "up_to", "up_to BYTES ALGORITHM", &value));
    if (i == ROUTE_MAX_SEGMENTS) {
      return line_error(reader, "more than %d lines with up_to, none of them up_to unlimited", ROUTE_MAX_SEGMENTS);
    }
    const size_t word = strcspn(value, " \t\r");
    if (word == strlen("unlimited") && !strncmp(value, "unlimited", word)) {
      rest = value + word + strspn(value + word, " \t\r");
    } else if (!bytes_parse(value, &bytes, &rest)) {
      return line_error(reader, "up_to '%.*s', a number of bytes from 1 to %lld or unlimited",
                        word < SHOWN ? (int)word : SHOWN, value, (long long)INT64_MAX - 1);
    }
    if (bytes <= before) {
      return line_error(reader, "up_to %lld after up_to %lld: sizes must rise", (long long)bytes, (long long)before);
    }
    if (!algorithm_parse(rest, &table->automatic[i].algorithm)) {
      return line_error(reader, "'%.*s' is no algorithm: oneshot_lamport, oneshot_sync or twoshot", SHOWN, rest);
    }
    table->automatic[i].up_to_bytes = before = bytes;
  }
  return arfusionSuccess;
}

static arfusionResult_t slower_read(struct reader* reader, struct route_table* table) {
  const char *value, *rest;
  FORWARD_IF_ERROR(line_expect(reader, "slower_from", "slower_from never", &value));
  table->slower_from_bytes = INT64_MAX;
  if (!strcmp(value, "never")) return arfusionSuccess;
  if (bytes_parse(value, &table->slower_from_bytes, &rest) && *rest == '\0') return arfusionSuccess;
  return line_error(reader, "slower_from '%.*s', a number of bytes from 1 to %lld or never", SHOWN, value,
                    (long long)INT64_MAX - 1);
}

/* Every table is read, also those for others: what is wrong with a file is not for one rank count alone to find. */
static arfusionResult_t text_read(struct reader* reader, const struct tuning_target* target, int* found,
                                  struct route_table* out) {
  char arch[TUNING_ARCH_BYTES];
  int device = 0, taken_at = 0;
  FORWARD_IF_ERROR(line_next(reader));
  do {
    struct match match = {0};
    struct route_table table = {0};
    const int number = reader->number;
    FORWARD_IF_ERROR(version_read(reader));
    FORWARD_IF_ERROR(target_read(reader, target, &match));
    FORWARD_IF_ERROR(segments_read(reader, &table));
    FORWARD_IF_ERROR(slower_read(reader, &table));
    device |= match.device;
    if (match.device && match.nranks == target->nranks) {
      if (taken_at) {
        reader->number = number;
        return line_error(reader, "a second table for %d ranks, the first is at line %d", match.nranks, taken_at);
      }
      taken_at = number;
      *out = table;
    }
    FORWARD_IF_ERROR(line_next(reader));
  } while (reader->line[0]);
  *found = taken_at != 0;
  if (device) return arfusionSuccess;
  tuning_arch(target->compute_major, target->compute_minor, arch);
  return line_error(reader, "no table in the file is for this device, %s (%s)", arch, target->gpu);
}

/* ---------------------------------------------------------------- the file */

static arfusionResult_t file_error(const char* path, const char* what) {
  return error_set(arfusionInvalidArgument, "ARFUSION_TUNING_FILE: %s: %s", path, what);
}

/* The first `bytes` bytes; *length, 0 at first, is how many there are. Of a regular file alone: a pipe could make a
 * rank wait for ever. */
static arfusionResult_t file_load(const char* path, char* text, size_t bytes, size_t* length) {
  struct stat status;
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return file_error(path, strerror(errno));
  arfusionResult_t result = arfusionSuccess;
  if (fstat(fd, &status) || !S_ISREG(status.st_mode)) result = file_error(path, "not a regular file");
  while (result == arfusionSuccess && *length < bytes) {
    const ssize_t got = read(fd, text + *length, bytes - *length);
    if (got == 0) break;
    if (got > 0) {
      *length += (size_t)got;
    } else if (errno != EINTR) {
      result = file_error(path, strerror(errno));
    }
  }
  close(fd);
  return result;
}

arfusionResult_t tuning_read(const char* path, const struct tuning_target* target, int* found,
                             struct route_table* table) {
  struct reader reader = {.path = path};
  struct route_table read = {0};
  size_t length = 0;
  char* text = malloc(FILE_BYTES + 1);
  if (!text) return error_set(arfusionSystemError, "out of memory for the tuning file %s", path);
  arfusionResult_t result = file_load(path, text, FILE_BYTES + 1, &length);
  if (result == arfusionSuccess && length > FILE_BYTES) {
    for (size_t i = 0; i < length; ++i) reader.number += text[i] == '\n';
    ++reader.number;
    result = line_error(&reader, "the file is larger than %d bytes", FILE_BYTES);
  }
  if (result == arfusionSuccess) {
    reader.at = text;
    reader.end = text + length;
    *found = 0;
    result = text_read(&reader, target, found, &read);
    if (result == arfusionSuccess && *found) *table = read;
  }
  free(text);
  return result;
}
