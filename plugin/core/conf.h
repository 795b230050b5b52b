/* SPDX-License-Identifier: Apache-2.0
 *
 * conf.h: NCCL's configuration files: the one that NCCL_CONF_FILE names, else ~/.nccl.conf; then /etc/nccl.conf.
 * KEY=VALUE lines; a # at the start of a line or after a space begins a comment. A file of more than 64 KiB is not
 * read.
 */
#ifndef ARFUSION_CORE_CONF_H_
#define ARFUSION_CORE_CONF_H_

#include "arfusion_plugin.h"

/* Takes one line that is not empty, trimmed. `value` is NULL where there is no =. `where`: "file NAME, line N". A
 * result other than success ends the reading. */
typedef arfusionResult_t (*conf_line_fn)(void* arg, const char* name, const char* value, const char* where);

/* Reads both files, as far as they are there, in the order in which they count. Returns what `take` returned last.
 * *unread (may be NULL): the errno with which the file that NCCL_CONF_FILE names could not be read, or 0. */
arfusionResult_t conf_read(conf_line_fn take, void* arg, int* unread);

#endif
