/* SPDX-License-Identifier: Apache-2.0
 *
 * plugin_load.c: plugin lookup; see plugin_load.h.
 */
#include "plugin/host/plugin_load.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_FILE "libarfusion-plugin.so"
#define NEWEST_KNOWN_VERSION 9 /* symbols of other ABI versions are looked for up to this one, to name them */

/* One lookup: what has been tried so far, and where errors go. */
struct lookup {
  char tried[768];
  char* error;
  size_t error_bytes;
};

/* Where `path` does not exist (or the loader finds no such file): 0. Where it does: 1, and *handle is NULL if it does
 * not open, with the loader's reason in `error`. */
static int lookup_open(struct lookup* lookup, const char* path, void** handle) {
  size_t used = strlen(lookup->tried);
  snprintf(lookup->tried + used, sizeof(lookup->tried) - used, "%s%s", used > 0 ? ", " : "", path);
  *handle = NULL;
  if (strchr(path, '/') != NULL && access(path, F_OK) != 0) return 0;
  *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (*handle != NULL) return 1;
  const char* reason = dlerror();
  if (reason == NULL) reason = "unknown reason";
  /* "NAME: cannot open shared object file: No such file or directory" about NAME itself means: go on looking. About
   * another file it means that the plugin was found and that something which it needs was not. */
  size_t length = strlen(path);
  if (strchr(path, '/') == NULL && strncmp(reason, path, length) == 0 && reason[length] == ':' &&
      strstr(reason, "No such file or directory") != NULL) {
    return 0;
  }
  snprintf(lookup->error, lookup->error_bytes, "cannot open plugin %s", reason); /* begins with the path */
  return 1;
}

/* The folder of the object that this code is in, without the last slash; 0 if it cannot be told. */
static int own_folder(char* folder, size_t bytes) {
  static const char anchor = 0;
  Dl_info info;
  struct link_map* map = NULL;
  char resolved[PATH_MAX];
  if (dladdr1(&anchor, &info, (void**)&map, RTLD_DL_LINKMAP) == 0 || map == NULL) return 0;
  /* The main program has no name there (and its argv[0] may be relative to a folder that is no longer current). */
  if (realpath(map->l_name[0] != '\0' ? map->l_name : "/proc/self/exe", resolved) == NULL) return 0;
  char* slash = strrchr(resolved, '/');
  if (slash == NULL) return 0;
  *slash = '\0';
  return snprintf(folder, bytes, "%s", resolved) < (int)bytes;
}

static int looks_like_library(const char* name) {
  size_t length = strlen(name);
  return strchr(name, '/') == NULL && strncmp(name, "lib", 3) == 0 && length > 6 &&
         strcmp(name + length - 3, ".so") == 0;
}

/* As lookup_open, wherever a file of this name may be. */
static int lookup_file(struct lookup* lookup, const char* file, void** handle) {
  static const char* const places[] = {"", "/..", "/../lib", "/../lib/arfusion"};
  char folder[PATH_MAX];
  if (lookup_open(lookup, file, handle)) return 1;
  if (!looks_like_library(file) || !own_folder(folder, sizeof(folder))) return 0;
  for (size_t i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof(path), "%s%s/%s", folder, places[i], file) >= (int)sizeof(path)) continue;
    if (lookup_open(lookup, path, handle)) return 1;
  }
  return 0;
}

/* The table of version 1, or NULL with `error` set. */
static const arfusionPlugin_v1_t* library_table(void* handle, const char* path, char* error, size_t error_bytes) {
  const arfusionPlugin_v1_t* table = dlsym(handle, ARFUSION_PLUGIN_SYMBOL);
  if (table == NULL) {
    for (int version = ARFUSION_PLUGIN_ABI_VERSION + 1; version <= NEWEST_KNOWN_VERSION; version++) {
      char symbol[32];
      snprintf(symbol, sizeof(symbol), "arfusionPlugin_v%d", version);
      if (dlsym(handle, symbol) == NULL) continue;
      snprintf(error, error_bytes, "%s has plugin ABI version %d only; this program needs version %d", path, version,
               ARFUSION_PLUGIN_ABI_VERSION);
      return NULL;
    }
    snprintf(error, error_bytes, "%s is not an arfusion plugin: it has no symbol %s", path, ARFUSION_PLUGIN_SYMBOL);
    return NULL;
  }
  if (table->size < ARFUSION_PLUGIN_V1_SIZE) {
    snprintf(error, error_bytes, "%s has a table of %zu bytes in %s; version %d has %zu", path, table->size,
             ARFUSION_PLUGIN_SYMBOL, ARFUSION_PLUGIN_ABI_VERSION, (size_t)ARFUSION_PLUGIN_V1_SIZE);
    return NULL;
  }
  return table;
}

enum plugin_load_result plugin_load(const char* name, struct plugin_library* library, char* error, size_t error_bytes) {
  struct lookup lookup = {.error = error, .error_bytes = error_bytes};
  void* handle = NULL;
  memset(library, 0, sizeof(*library));
  if (name == NULL || name[0] == '\0') name = DEFAULT_FILE;
  if (strcmp(name, "none") == 0) {
    snprintf(error, error_bytes, "the plugin is turned off (" PLUGIN_LOAD_SETTING "=none)");
    return PLUGIN_LOAD_OFF;
  }

  int found = lookup_file(&lookup, name, &handle);
  if (!found && strchr(name, '/') == NULL && !looks_like_library(name)) {
    char file[NAME_MAX + 1];
    if (snprintf(file, sizeof(file), "libarfusion-plugin-%s.so", name) < (int)sizeof(file)) {
      found = lookup_file(&lookup, file, &handle);
    }
  }
  if (!found) {
    snprintf(error, error_bytes, "no plugin found; tried %s", lookup.tried);
    return PLUGIN_LOAD_MISSING;
  }
  if (handle == NULL) return PLUGIN_LOAD_INVALID;

  struct link_map* map = NULL;
  const char* path = dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 && map->l_name[0] != '\0' ? map->l_name : name;
  const arfusionPlugin_v1_t* table = library_table(handle, path, error, error_bytes);
  if (table == NULL) {
    dlclose(handle);
    return PLUGIN_LOAD_INVALID;
  }
  library->handle = handle;
  memcpy(&library->table, table, table->size < sizeof(*table) ? table->size : sizeof(*table));
  snprintf(library->path, sizeof(library->path), "%s", path);
  return PLUGIN_LOAD_OK;
}

void plugin_unload(struct plugin_library* library) {
  if (library->handle != NULL) dlclose(library->handle);
  memset(library, 0, sizeof(*library));
}
