/* SPDX-License-Identifier: Apache-2.0
 *
 * real.c: see real.h.
 */
#include "plugin/nccl/real.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "plugin/core/log.h"
#include "plugin/core/settings.h"
#include "plugin/nccl/stats.h"

#define SONAME "libnccl.so.2"

/* Every copy of this library has it, whatever it is called. */
extern const char arfusionNcclFront;
NCCL_EXPORT const char arfusionNcclFront = 1;

void* forward_slots[REAL_COUNT];
_Thread_local int real_depth;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int searched;
static void* library;
static int lacks_logged;

#define HERE(name, index) #name,
#define FORWARD HERE
static const char* const names[REAL_COUNT] = {
#include "nccl_functions.h"
};
#undef HERE
#undef FORWARD

static int not_found(void) { return NCCL_SYSTEM_ERROR; }
static int too_old(void) { return NCCL_INVALID_USAGE; }

/* ---------------------------------------------------------------- the search */

struct search {
  char tried[1024];
  void* handle;
};

static void search_note(struct search* search, const char* what, const char* why) {
  const size_t used = strlen(search->tried);
  snprintf(search->tried + used, sizeof search->tried - used, "%s%s%s%s%s", used ? ", " : "", what, why ? " (" : "",
           why ? why : "", why ? ")" : "");
}

/* Why `handle` cannot be forwarded to; NULL: it can. */
static const char* handle_refuse(void* handle) {
  static const char* const needed[] = {"ncclGetVersion", "ncclGetUniqueId", "ncclCommInitRank", "ncclAllReduce"};
  if (dlsym(handle, "arfusionNcclFront")) return "that is libarfusion-nccl.so itself";
  for (size_t i = 0; i < sizeof needed / sizeof needed[0]; ++i) {
    if (!dlsym(handle, needed[i])) return "not a libnccl";
  }
  return NULL;
}

/* Takes the library if it will do. `what` is how the line of errors calls it. */
static int search_open(struct search* search, const char* path, int flags, const char* what) {
  void* handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | flags);
  const char* why = handle ? handle_refuse(handle) : flags & RTLD_NOLOAD ? NULL : dlerror();
  if (handle && !why) {
    search->handle = handle;
    return 1;
  }
  if (handle) dlclose(handle);
  search_note(search, what, why);
  return 0;
}

/* The folders of `caller`'s object, as the loader would search them for what it needs. */
static void search_beside_caller(struct search* search, const void* caller) {
  Dl_info info;
  Dl_serinfo size, *folders = NULL;
  char path[1024];
  struct link_map* map = NULL;
  if (!dladdr1(caller, &info, (void**)&map, RTLD_DL_LINKMAP) || !map) return;
  void* object = dlopen(map->l_name[0] ? map->l_name : NULL, RTLD_LAZY | RTLD_NOLOAD);
  if (!object) return;
  if (dlinfo(object, RTLD_DI_SERINFOSIZE, &size) == 0 && (folders = malloc(size.dls_size)) != NULL) {
    folders->dls_size = size.dls_size;
    folders->dls_cnt = size.dls_cnt;
    if (dlinfo(object, RTLD_DI_SERINFO, folders) != 0) folders->dls_cnt = 0;
    for (unsigned i = 0; i < folders->dls_cnt && !search->handle; ++i) {
      const int length = snprintf(path, sizeof path, "%s/" SONAME, folders->dls_serpath[i].dls_name);
      if (length < (int)sizeof path && access(path, F_OK) == 0) search_open(search, path, 0, path);
    }
  }
  free(folders);
  dlclose(object);
}

static void search_run(struct search* search, const void* caller) {
  struct settings settings;
  char what[320];
  /* A setting that is wrong has been logged; those before it have been read. */
  const int usable = settings_load_silently(&settings) == arfusionSuccess;
  if (usable && settings.value[SETTING_STATS]) stats_enable();
  const char* named = settings.text[SETTING_NCCL_LIB];
  if (named[0]) {
    snprintf(what, sizeof what, "ARFUSION_NCCL_LIB=%s", named);
    search_open(search, named, 0, what);
    return;
  }
  if (search_open(search, SONAME, RTLD_NOLOAD, "a " SONAME " that is loaded")) return;
  search_beside_caller(search, caller);
  if (!search->handle) search_open(search, SONAME, 0, SONAME);
}

static void* real_library(const void* caller) {
  if (__atomic_load_n(&searched, __ATOMIC_ACQUIRE)) return library;
  pthread_mutex_lock(&mutex);
  if (!searched) {
    struct search search = {{0}, NULL};
    search_run(&search, caller);
    library = search.handle;
    if (!library) error_set(arfusionSystemError, "no libnccl to forward to; tried %s", search.tried);
    __atomic_store_n(&searched, 1, __ATOMIC_RELEASE);
  }
  pthread_mutex_unlock(&mutex);
  return library;
}

/* ---------------------------------------------------------------- functions */

void* real_resolve(int index, const void* caller) {
  void* handle = real_library(caller);
  void* function = handle ? dlsym(handle, names[index]) : (void*)not_found;
  if (!function) {
    if (!__atomic_exchange_n(&lacks_logged, 1, __ATOMIC_RELAXED)) {
      LOG_WARN("the libnccl behind libarfusion-nccl.so is too old to have %s: it returns ncclInvalidUsage",
               names[index]);
    }
    function = (void*)too_old;
  }
  __atomic_store_n(&forward_slots[index], function, __ATOMIC_RELEASE);
  return function;
}

int real_found(const void* caller) { return real_library(caller) != NULL; }

void* real_extra(const char* symbol) { return library ? dlsym(library, symbol) : NULL; }
