/* SPDX-License-Identifier: Apache-2.0
 *
 * json_file.h: reading a JSON document, with one line where it cannot be read.
 */
#ifndef ARFUSION_BENCH_JSON_FILE_H_
#define ARFUSION_BENCH_JSON_FILE_H_

#include <jansson.h>

/* The document, whose reference is the caller's; or NULL, with the file and what is wrong with it in `error`. */
json_t* json_file_load(const char* path, char* error, size_t error_bytes);

#endif
