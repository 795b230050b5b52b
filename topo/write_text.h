/* SPDX-License-Identifier: Apache-2.0
 *
 * write_text.h: what both writers need to write text.
 */
#ifndef ARFUSION_TOPO_WRITE_TEXT_H_
#define ARFUSION_TOPO_WRITE_TEXT_H_

#include <stdio.h>

#include "topo/model.h"

/* A stream whose text becomes *text. -1 with *error filled in; end_text closes it. */
FILE* begin_text(char** text, size_t* bytes, struct topo_error* error);
int end_text(FILE* stream, char** text, struct topo_error* error);

/* ` name="value"` with what XML needs escaped; characters that XML does not allow are left out. Nothing for "" or
 * NULL. */
void write_attribute(FILE* stream, const char* name, const char* value);

/* A device's PCI class, also where the source gave none: both forms tell by it what a device is. What has others below
 * it is a bridge. */
uint32_t class_of(const struct topo_device* device);

/* "0-3,8" as 32-bit words, the highest first, `prefix` before each; false if nothing is in it or it is not such a
 * list. */
int write_set(FILE* stream, const char* list, const char* prefix);

/* The numbers in such a list: calls `take` for each. -1 if it is not one. */
int list_for_each(const char* list, void (*take)(void* opaque, int number), void* opaque);

#endif
