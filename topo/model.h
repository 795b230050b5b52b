/* SPDX-License-Identifier: Apache-2.0
 *
 * model.h: how readers build a model. They add what they find by bus id; topo_derive then puts the GPUs in order, finds
 * out where their links end and works out the pairs, whose other facts may follow. Running out of memory is remembered
 * and told once, by topo_finish.
 */
#ifndef ARFUSION_TOPO_MODEL_H_
#define ARFUSION_TOPO_MODEL_H_

#include "topo/topo.h"

enum {
  TOPO_MOST_DEVICES = 8192,
  TOPO_MOST_NUMAS = 1024,
  TOPO_MOST_FINDINGS = 256, /* one more says how many there were */
  TOPO_MOST_SOURCES = 4096
};

struct topo_builder {
  struct topo* topo;
  int out_of_memory;
  int findings_left_out;
};

/* 0, or -1 with *error filled in. */
int topo_begin(struct topo_builder* builder, enum topo_origin origin, const char* file, struct topo_error* error);
/* After the last GPU, device and link: the order of the GPUs, the ends of the links, the pairs. */
void topo_derive(struct topo_builder* builder);
/* Ends it: *out, or an error with everything freed. */
int topo_finish(struct topo_builder* builder, struct topo** out, struct topo_error* error);
void topo_discard(struct topo_builder* builder);

/* Each adds one, zeroed but for indices, which are -1, and returns its index; -1 if there is no memory. The arrays may
 * move. */
int topo_add_numa(struct topo_builder* builder, int id, uint16_t source);
int topo_add_device(struct topo_builder* builder, const char* bus_id, enum topo_device_kind kind, int parent, int numa,
                    uint16_t source);
int topo_add_gpu(struct topo_builder* builder, const char* bus_id, int device);
int topo_add_switch(struct topo_builder* builder, const char* bus_id, int device, uint16_t source);
int topo_add_nic(struct topo_builder* builder, const char* bus_id, int device);

/* `count` links of a GPU that end at `target` ("": invisible). Links to one place are kept together. */
void topo_add_links(struct topo_builder* builder, int gpu, enum topo_remote remote, const char* target, int count,
                    int inactive, uint16_t source);

/* Says that two switches are linked, and so are one fabric. */
void topo_join_switches(struct topo* topo, int a, int b);

void topo_find(struct topo_builder* builder, const char* id, enum topo_state state, int line, const char* element,
               const char* fmt, ...) __attribute__((format(printf, 6, 7)));

/* The number of a source's text; the same text has the same number. */
uint16_t topo_add_source(struct topo_builder* builder, const char* fmt, ...) __attribute__((format(printf, 2, 3)));

static inline struct topo_fact topo_known(int32_t value, uint16_t source) {
  return (struct topo_fact){.value = value, .source = source, .state = TOPO_OK};
}
static inline struct topo_fact topo_failed(int32_t value, uint16_t source) {
  return (struct topo_fact){.value = value, .source = source, .state = TOPO_FAIL};
}
static inline struct topo_fact topo_unknown(uint16_t source) { return (struct topo_fact){.source = source}; }

/* Copies text into a field of a struct, cut where it is too long. */
#define TOPO_COPY(field, text) topo_copy(field, sizeof(field), text)
void topo_copy(char* to, size_t bytes, const char* text);

/* text is "" before; returns -1. */
int topo_fail(struct topo_error* error, const char* fmt, ...) __attribute__((format(printf, 2, 3)));

/* Whether a bus id in key form is what machines show instead of a device: "ffffffff:ff:ff.0". */
int topo_bus_id_hidden(const char* bus_id);

/* MT/s from "32.0 GT/s PCIe", as the system writes it; 0 if it is something else. */
int topo_link_speed_parse(const char* text);

/* The device with this bus id, in key form; -1. */
int topo_device_find(const struct topo* topo, const char* bus_id);
int topo_switch_find(const struct topo* topo, const char* bus_id);

/* "0-3,8", to be freed; NULL if there is no memory. `bits`: 8 * `bytes` bits, the lowest first. */
char* topo_list_of_bits(const unsigned char* bits, size_t bytes);

/* What is known of an architecture. nvlink_version 0: it has none. */
struct topo_arch {
  int sm, nvlink_version, raw, effective; /* MB/s one way of one link */
};
const struct topo_arch* topo_arch_of_sm(int sm); /* NULL: not known */
int topo_sm_of_device(uint16_t pci_device);      /* of NVIDIA's GPUs; 0: not known */

#endif
