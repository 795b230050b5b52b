/* SPDX-License-Identifier: Apache-2.0
 *
 * write_text.c: see write_text.h.
 */
#include "topo/write_text.h"

#include <stdlib.h>
#include <string.h>

FILE* begin_text(char** text, size_t* bytes, struct topo_error* error) {
  FILE* stream = open_memstream(text, bytes);
  if (!stream) topo_fail(error, "out of memory for a topology's text");
  return stream;
}

int end_text(FILE* stream, char** text, struct topo_error* error) {
  const int bad = ferror(stream);
  if (fclose(stream) == 0 && !bad) return 0;
  free(*text);
  *text = NULL;
  return topo_fail(error, "out of memory for a topology's text");
}

void write_attribute(FILE* stream, const char* name, const char* value) {
  if (!value || value[0] == '\0') return;
  fprintf(stream, " %s=\"", name);
  for (; *value; ++value) {
    switch (*value) {
      case '&': fputs("&amp;", stream); break;
      case '<': fputs("&lt;", stream); break;
      case '>': fputs("&gt;", stream); break;
      case '"': fputs("&quot;", stream); break;
      default:
        if ((unsigned char)*value >= ' ') fputc(*value, stream);
    }
  }
  fputc('"', stream);
}

uint32_t class_of(const struct topo_device* device) {
  static const uint32_t classes[] = {[TOPO_DEVICE_BRIDGE] = 0x060400,
                                     [TOPO_DEVICE_GPU] = 0x030200,
                                     [TOPO_DEVICE_SWITCH] = 0x068000,
                                     [TOPO_DEVICE_NIC] = 0x020000,
                                     [TOPO_DEVICE_OTHER] = 0x060400};
  return device->class_id ? device->class_id : classes[device->kind];
}

enum { MOST_BITS = 1 << 16 };

int list_for_each(const char* list, void (*take)(void* opaque, int number), void* opaque) {
  while (*list) {
    char* end;
    const long first = strtol(list, &end, 10);
    long last = first;
    if (end == list || first < 0 || first >= MOST_BITS) return -1;
    if (*end == '-') {
      list = end + 1;
      last = strtol(list, &end, 10);
      if (end == list || last < first || last >= MOST_BITS) return -1;
    }
    for (long number = first; number <= last; ++number) take(opaque, (int)number);
    if (*end != '\0' && *end != ',') return -1;
    list = *end ? end + 1 : end;
  }
  return 0;
}

static void take_bit(void* opaque, int bit) { ((uint32_t*)opaque)[bit / 32] |= 1u << bit % 32; }

int write_set(FILE* stream, const char* list, const char* prefix) {
  uint32_t words[MOST_BITS / 32] = {0};
  int highest = MOST_BITS / 32 - 1;
  if (!list || list_for_each(list, take_bit, words)) return 0;
  while (highest > 0 && !words[highest]) --highest;
  if (!words[highest]) return 0;
  for (int i = highest; i >= 0; --i) fprintf(stream, "%s%s%08x", i == highest ? "" : ",", prefix, words[i]);
  return 1;
}
