/* SPDX-License-Identifier: Apache-2.0
 *
 * model.c: the model's memory. See model.h.
 */
#include "topo/model.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topo/hwloc_library.h"
#include "topo/one_line.h"

/* ---------------------------------------------------------------- texts and errors */

void topo_copy(char* to, size_t bytes, const char* text) {
  snprintf(to, bytes, "%s", text ? text : "");
  text_one_line(to);
}

int topo_fail(struct topo_error* error, const char* fmt, ...) {
  va_list args;
  va_start(args, fmt);
  memset(error, 0, sizeof *error);
  vsnprintf(error->text, sizeof error->text, fmt, args);
  va_end(args);
  text_one_line(error->text);
  return -1;
}

static int hex_field(const char** at, int most, char* digits) {
  int n = 0;
  for (; n < most; ++n, ++*at) {
    const char c = **at;
    if (c >= 'A' && c <= 'F') {
      digits[n] = (char)(c - 'A' + 'a');
    } else if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'f')) {
      digits[n] = c;
    } else {
      break;
    }
  }
  digits[n] = '\0';
  return n;
}

int topo_bus_id_parse(const char* text, char out[TOPO_BUS_ID_BYTES]) {
  char domain[9], bus[3], slot[3], function[2] = "0";
  if (hex_field(&text, 8, domain) == 0 || *text++ != ':') return -1;
  if (hex_field(&text, 2, bus) != 2 || *text++ != ':') return -1;
  if (hex_field(&text, 2, slot) != 2) return -1;
  if (*text == '.') {
    ++text;
    if (hex_field(&text, 1, function) != 1) return -1;
  }
  if (*text != '\0') return -1;
  const unsigned long number = strtoul(domain, NULL, 16);
  snprintf(out, TOPO_BUS_ID_BYTES, "%04lx:%s:%s.%s", number, bus, slot, function);
  return 0;
}

/* A slot has five bits. */
int topo_bus_id_hidden(const char* bus_id) {
  const char* slot = strrchr(bus_id, ':');
  return slot && strtol(slot + 1, NULL, 16) > 0x1f;
}

int topo_link_speed_parse(const char* text) {
  char* end;
  const double speed = strtod(text, &end);
  while (*end == ' ') ++end;
  return end != text && speed > 0 && speed < 1000 && strncmp(end, "GT/s", 4) == 0 ? (int)(speed * 1000 + 0.5) : 0;
}

char* topo_list_of_bits(const unsigned char* bits, size_t bytes) {
  char* text = NULL;
  size_t length = 0, capacity = 0;
  for (size_t bit = 0; bit < bytes * 8;) {
    if (!(bits[bit / 8] >> (bit % 8) & 1)) {
      ++bit;
      continue;
    }
    size_t last = bit;
    while (last + 1 < bytes * 8 && (bits[(last + 1) / 8] >> ((last + 1) % 8) & 1)) ++last;
    if (length + 48 > capacity) {
      char* more = realloc(text, capacity = capacity * 2 + 64);
      if (!more) {
        free(text);
        return NULL;
      }
      text = more;
    }
    const char* comma = length ? "," : "";
    length += (size_t)(last == bit ? snprintf(text + length, 48, "%s%zu", comma, bit)
                                   : snprintf(text + length, 48, "%s%zu-%zu", comma, bit, last));
    bit = last + 1;
  }
  return text ? text : strdup("");
}

/* ---------------------------------------------------------------- arrays */

/* One more element at the end of an array of *count, zeroed; NULL if there is no memory. Arrays double at powers of
 * two, so they need no capacity of their own. */
static void* array_add(struct topo_builder* builder, void* array_pointer, int* count, size_t size) {
  void* array;
  memcpy(&array, array_pointer, sizeof array);
  if ((*count & (*count - 1)) == 0) {
    void* more = realloc(array, (*count ? (size_t)*count * 2 : 1) * size);
    if (!more) {
      builder->out_of_memory = 1;
      return NULL;
    }
    array = more;
    memcpy(array_pointer, &array, sizeof array);
  }
  void* added = (char*)array + (size_t)*count * size;
  memset(added, 0, size);
  ++*count;
  return added;
}

int topo_add_numa(struct topo_builder* builder, int id, uint16_t source) {
  struct topo* topo = builder->topo;
  struct topo_numa* numa = array_add(builder, &topo->numas, &topo->nnumas, sizeof *numa);
  if (!numa) return -1;
  numa->id = id;
  numa->family = numa->model = -1;
  numa->source = source;
  return topo->nnumas - 1;
}

int topo_add_device(struct topo_builder* builder, const char* bus_id, enum topo_device_kind kind, int parent, int numa,
                    uint16_t source) {
  struct topo* topo = builder->topo;
  struct topo_device* device = array_add(builder, &topo->devices, &topo->ndevices, sizeof *device);
  if (!device) return -1;
  TOPO_COPY(device->bus_id, bus_id);
  device->kind = kind;
  device->parent = parent;
  device->numa = numa;
  device->index = -1;
  device->source = source;
  return topo->ndevices - 1;
}

int topo_add_gpu(struct topo_builder* builder, const char* bus_id, int device) {
  struct topo* topo = builder->topo;
  struct topo_gpu* gpu = array_add(builder, &topo->gpus, &topo->ngpus, sizeof *gpu);
  if (!gpu) return -1;
  TOPO_COPY(gpu->bus_id, bus_id);
  gpu->device = device;
  gpu->numa = device >= 0 ? topo->devices[device].numa : -1;
  return topo->ngpus - 1;
}

int topo_add_switch(struct topo_builder* builder, const char* bus_id, int device, uint16_t source) {
  struct topo* topo = builder->topo;
  struct topo_switch* added = array_add(builder, &topo->switches, &topo->nswitches, sizeof *added);
  if (!added) return -1;
  TOPO_COPY(added->bus_id, bus_id);
  added->device = device;
  added->group = topo->nswitches - 1;
  added->source = source;
  return topo->nswitches - 1;
}

int topo_add_nic(struct topo_builder* builder, const char* bus_id, int device) {
  struct topo* topo = builder->topo;
  struct topo_nic* nic = array_add(builder, &topo->nics, &topo->nnics, sizeof *nic);
  if (!nic) return -1;
  TOPO_COPY(nic->bus_id, bus_id);
  nic->device = device;
  return topo->nnics - 1;
}

void topo_add_links(struct topo_builder* builder, int gpu, enum topo_remote remote, const char* target, int count,
                    int inactive, uint16_t source) {
  struct topo_gpu* owner = &builder->topo->gpus[gpu];
  for (int i = 0; i < owner->nlinks; ++i) {
    struct topo_nvlink* link = &owner->links[i];
    if (link->remote == remote && strcmp(link->target, target) == 0) {
      link->count += count;
      link->inactive += inactive;
      return;
    }
  }
  struct topo_nvlink* link = array_add(builder, &owner->links, &owner->nlinks, sizeof *link);
  if (!link) return;
  link->remote = remote;
  TOPO_COPY(link->target, target);
  link->target_gpu = link->target_switch = -1;
  link->count = count;
  link->inactive = inactive;
  link->source = source;
}

void topo_join_switches(struct topo* topo, int a, int b) {
  const int from = topo->switches[b].group, to = topo->switches[a].group;
  for (int i = 0; i < topo->nswitches; ++i) {
    if (topo->switches[i].group == from) topo->switches[i].group = to;
  }
}

void topo_find(struct topo_builder* builder, const char* id, enum topo_state state, int line, const char* element,
               const char* fmt, ...) {
  struct topo* topo = builder->topo;
  va_list args;
  if (topo->nfindings >= TOPO_MOST_FINDINGS) {
    ++builder->findings_left_out;
    return;
  }
  struct topo_finding* finding = array_add(builder, &topo->findings, &topo->nfindings, sizeof *finding);
  if (!finding) return;
  finding->id = id;
  finding->state = state;
  finding->line = line;
  TOPO_COPY(finding->element, element);
  va_start(args, fmt);
  if (vasprintf(&finding->text, fmt, args) < 0) {
    finding->text = NULL;
    builder->out_of_memory = 1;
  } else {
    text_one_line(finding->text);
  }
  va_end(args);
}

uint16_t topo_add_source(struct topo_builder* builder, const char* fmt, ...) {
  struct topo* topo = builder->topo;
  char text[320];
  va_list args;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  for (int i = 0; i < topo->nsources; ++i) {
    if (strcmp(topo->sources[i], text) == 0) return (uint16_t)i;
  }
  if (topo->nsources >= TOPO_MOST_SOURCES) return 0;
  char** source = array_add(builder, &topo->sources, &topo->nsources, sizeof *source);
  if (!source) return 0;
  if (!(*source = strdup(text))) {
    --topo->nsources;
    builder->out_of_memory = 1;
    return 0;
  }
  return (uint16_t)(topo->nsources - 1);
}

/* ---------------------------------------------------------------- beginning and end */

int topo_begin(struct topo_builder* builder, enum topo_origin origin, const char* file, struct topo_error* error) {
  memset(builder, 0, sizeof *builder);
  builder->topo = calloc(1, sizeof *builder->topo);
  if (!builder->topo) return topo_fail(error, "out of memory for a topology");
  builder->topo->origin = origin;
  if (file && !(builder->topo->file = strdup(file))) builder->out_of_memory = 1;
  topo_add_source(builder, "%s", "");
  return 0;
}

void topo_discard(struct topo_builder* builder) {
  topo_free(builder->topo);
  builder->topo = NULL;
}

int topo_finish(struct topo_builder* builder, struct topo** out, struct topo_error* error) {
  struct topo* topo = builder->topo;
  if (builder->findings_left_out && topo->nfindings == TOPO_MOST_FINDINGS) {
    struct topo_finding* last = &topo->findings[topo->nfindings - 1];
    free(last->text);
    last->id = "xml.value";
    last->line = 0;
    last->element[0] = '\0';
    if (asprintf(&last->text, "%d more findings are not listed", builder->findings_left_out + 1) < 0) {
      last->text = NULL;
      builder->out_of_memory = 1;
    }
  }
  if (builder->out_of_memory) {
    topo_discard(builder);
    return topo_fail(error, "out of memory for a topology");
  }
  *out = topo;
  builder->topo = NULL;
  return 0;
}

void topo_free(struct topo* topo) {
  if (!topo) return;
  for (int i = 0; i < topo->ngpus; ++i) free(topo->gpus[i].links);
  for (int i = 0; i < topo->nnumas; ++i) free(topo->numas[i].cpus);
  for (int i = 0; i < topo->nfindings; ++i) free(topo->findings[i].text);
  for (int i = 0; i < topo->nsources; ++i) free(topo->sources[i]);
  if (topo->tree) hwloc_tree_free(topo->tree);
  free(topo->gpus);
  free(topo->numas);
  free(topo->devices);
  free(topo->switches);
  free(topo->nics);
  free(topo->findings);
  free(topo->pairs);
  free(topo->sources);
  free(topo->file);
  free(topo);
}

void topo_redact(struct topo* topo) {
  topo->host[0] = '\0';
  for (int i = 0; i < topo->ngpus; ++i) {
    struct topo_gpu* gpu = &topo->gpus[i];
    memset(gpu->uuid, 0, sizeof gpu->uuid);
    memset(gpu->serial, 0, sizeof gpu->serial);
    memset(gpu->cluster, 0, sizeof gpu->cluster);
  }
  /* hwloc's own has serials and addresses in many places: what is written from now on comes from the model. */
  if (topo->tree) hwloc_tree_free(topo->tree);
  topo->tree = NULL;
}
