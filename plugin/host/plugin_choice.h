/* SPDX-License-Identifier: Apache-2.0
 *
 * plugin_choice.h: what a program must know of the settings before there is a plugin that reads them. From the same
 * sources, the environment and NCCL's configuration files.
 */
#ifndef ARFUSION_HOST_PLUGIN_CHOICE_H_
#define ARFUSION_HOST_PLUGIN_CHOICE_H_

#include <stddef.h>

struct plugin_choice {
  char name[256];   /* ARFUSION_PLUGIN, for plugin_load */
  int debug_is_set; /* somebody has said with ARFUSION_DEBUG what is logged */
};

/* 0; or -1 if a setting, of any name, is wrong: `error` then has one line. Logs nothing. */
int plugin_choice_read(struct plugin_choice* choice, char* error, size_t error_bytes);

#endif
