/* SPDX-License-Identifier: Apache-2.0
 *
 * profiler_file.h: the file that ARFUSION_REPORT names. Each report is a line of JSON that is added to its end in one
 * write, so that the ranks and communicators of a host, and one run after another, can share a file.
 */
#ifndef ARFUSION_NCCL_PROFILER_FILE_H_
#define ARFUSION_NCCL_PROFILER_FILE_H_

#include "plugin/nccl/profiler_report.h"

/* The absolute path for `facts`: %h, %p, %c and %r in `name` become host, process, communicator and rank, %% becomes %.
 * Returns 0; or an errno, ENAMETOOLONG or that of the current folder. */
int profiler_file_path(const char* name, const struct profiler_facts* facts, char path[PATH_MAX]);

/* Adds `bytes` bytes to the file. One that is not there is made, readable by its owner alone; one that is a link, not
 * a regular file, of another user or has a second name is left alone. Returns 0 or an errno. With bytes 0 it says
 * whether that would do, and makes the file. */
int profiler_file_append(const char* path, const char* text, size_t bytes);

#endif
