/* SPDX-License-Identifier: Apache-2.0
 *
 * export.h: the sub-command `export`: the machine as a file for other programs, or as a picture.
 */
#ifndef ARFUSION_TOPO_EXPORT_H_
#define ARFUSION_TOPO_EXPORT_H_

#include "plugin/tools/topo/decide.h"

/* TOOL_FORMAT_NONE for an unknown name. */
enum tool_format export_format_parse(const char* name);

/* Makes the file and writes it to options->output or stdout; with options->json a report of that, which has the text
 * in it unless there is an output file. Returns the exit code: 0 once it is written, whatever the machine is like. */
int export_run(const struct topo* topo, const struct decision* decision, const struct tool_options* options);

#endif
