/* SPDX-License-Identifier: Apache-2.0
 *
 * structs.h: reading and writing the ABI's structs, whose `size` says which version of the header the caller has.
 */
#ifndef ARFUSION_CORE_STRUCTS_H_
#define ARFUSION_CORE_STRUCTS_H_

#include "arfusion_plugin.h"

/* Copies the caller's struct to `own` (of own_size bytes): missing fields are 0, and surplus bytes must be. `name` is
 * for the error text, v1_size the smallest size there ever was. */
arfusionResult_t struct_read(void* own, size_t own_size, const void* callers, size_t v1_size, const char* name);

/* Whether the caller's struct can take results. */
arfusionResult_t struct_check_output(const void* callers, size_t v1_size, const char* name);

/* Copies results to the caller's struct, up to the caller's size, which stays as it is. */
void struct_write(void* callers, const void* own, size_t own_size);

#endif
