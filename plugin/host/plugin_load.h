/* SPDX-License-Identifier: Apache-2.0
 *
 * plugin_load.h: how a host program finds and opens the plugin, in NCCL's manner. Shared by libarfusion and the tools.
 *
 *   name             what is tried, in this order
 *   ---------------  ----------------------------------------------------------------------------------------------
 *   NULL or ""       libarfusion-plugin.so
 *   "none"           nothing: the plugin is turned off
 *   foo              foo, then libarfusion-plugin-foo.so (unless foo has a slash or looks like lib*.so)
 *
 * lib*.so without a slash is looked for where the loader looks, then beside the calling object (the program or library
 * that this file is linked into), then in .., ../lib and ../lib/arfusion from there.
 */
#ifndef ARFUSION_HOST_PLUGIN_LOAD_H_
#define ARFUSION_HOST_PLUGIN_LOAD_H_

#include "arfusion_plugin.h"

#define PLUGIN_LOAD_SETTING "ARFUSION_PLUGIN" /* whose value is the name */

enum plugin_load_result {
  PLUGIN_LOAD_OK = 0,
  PLUGIN_LOAD_OFF = 1,     /* turned off by "none" */
  PLUGIN_LOAD_MISSING = 2, /* no such file anywhere */
  PLUGIN_LOAD_INVALID = 3, /* the file does not open, or is not a plugin of this ABI version */
};

struct plugin_library {
  void* handle; /* of dlopen */
  arfusionPlugin_v1_t table; /* the plugin's; functions added after its release are NULL */
  char path[1024]; /* of the file that was opened */
};

/* Opens the plugin called `name`. Anything but PLUGIN_LOAD_OK leaves `library` zeroed and one line in `error`. */
enum plugin_load_result plugin_load(const char* name, struct plugin_library* library, char* error, size_t error_bytes);

/* Closes it. Its contexts must have been finalized. A zeroed library is allowed. */
void plugin_unload(struct plugin_library* library);

#endif
