/* SPDX-License-Identifier: Apache-2.0
 *
 * test_plugin_load.c: the lookup of plugins, with little shared objects that this test compiles: good ones, ones of
 * another version, and files that only look like one.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "plugin/host/plugin_load.h"
#include "test/unit/support.h"

static char folder[] = "/tmp/arfusion-plugin-load-XXXXXX";
static char beside[512]; /* the folder that this program is in */

static void shell(const char* format, ...) __attribute__((format(printf, 1, 2)));

static void shell(const char* format, ...) {
  char command[4096];
  va_list args;
  va_start(args, format);
  vsnprintf(command, sizeof command, format, args);
  va_end(args);
  if (system(command)) fail_msg("cannot run: %s", command);
}

static void compile(const char* name, const char* source, const char* options) {
  const char* compiler = getenv("CC");
  char line[1024];
  snprintf(line, sizeof line, "%s -shared -fPIC -x c -o '%s/%s' - -x none %s", compiler && *compiler ? compiler : "cc",
           folder, name, options);
  FILE* pipe = popen(line, "w");
  assert_non_null(pipe);
  fputs(source, pipe);
  assert_int_equal(pclose(pipe), 0);
}

/* A table of `size` bytes as symbol arfusionPlugin_v<version>. */
static void table_source(char* text, size_t bytes, int version, size_t size) {
  snprintf(text, bytes,
           "const struct { unsigned long size; const char* name; void* f[64]; } arfusionPlugin_v%d = {%zu, \"v%d\"};\n",
           version, size, version);
}

static int set_up(void** state) {
  char text[2048], line[1024];
  (void)state;
  if (!mkdtemp(folder)) return 1;
  const ssize_t length = readlink("/proc/self/exe", beside, sizeof beside - 1);
  if (length < 0) return 1;
  beside[length] = '\0';
  *strrchr(beside, '/') = '\0';

  table_source(text, sizeof text, 1, sizeof(arfusionPlugin_v1_t));
  compile("good.so", text, "");
  table_source(text, sizeof text, 1, sizeof(arfusionPlugin_v1_t) + 8);
  compile("newer.so", text, "");
  table_source(text, sizeof text, 1, 16);
  compile("short.so", text, "");
  table_source(text, sizeof text, 3, sizeof(arfusionPlugin_v1_t));
  compile("v3.so", text, "");
  table_source(text, sizeof text, 2, sizeof(arfusionPlugin_v1_t));
  table_source(text + strlen(text), sizeof text - strlen(text), 1, sizeof(arfusionPlugin_v1_t));
  compile("both.so", text, "");
  compile("other.so", "int some_other_symbol;\n", "");
  compile("undefined.so", "extern int no_such_function(void);\nint f(void) { return no_such_function(); }\n", "");
  compile("libarfusiontestneeded.so", "int needed;\n", "");
  snprintf(line, sizeof line, "-Wl,--no-as-needed -L'%s' -larfusiontestneeded", folder);
  table_source(text, sizeof text, 1, sizeof(arfusionPlugin_v1_t));
  compile("needs.so", text, line);
  shell("cd '%s' && rm libarfusiontestneeded.so && : > empty.so && echo '#!/bin/sh' > script.so && mkdir folder.so && "
        "head -c 200 good.so > cut.so && cp good.so closed.so && chmod 0 closed.so",
        folder);
  return 0;
}

static int tear_down(void** state) {
  (void)state;
  shell("chmod -R u+rw '%s' && rm -rf '%s' '%s'/../lib/arfusion/libarfusion-plugin-lookup*.so && "
        "rmdir --ignore-fail-on-non-empty '%s'/../lib/arfusion '%s'/../lib",
        folder, folder, beside, beside, beside);
  return 0;
}

static void files_are_opened_or_say_what_is_wrong_with_them(void** state) {
  (void)state;
  char smaller[128];
  snprintf(smaller, sizeof smaller, "short.so|table of 16 bytes|version 1 has %d", ARFUSION_PLUGIN_V1_SIZE);
  const struct {
    const char* file;
    enum plugin_load_result result;
    const char* words;
  } rows[] = {
      {"good.so", PLUGIN_LOAD_OK, ""},
      {"newer.so", PLUGIN_LOAD_OK, ""},
      {"both.so", PLUGIN_LOAD_OK, ""},
      {"short.so", PLUGIN_LOAD_INVALID, smaller},
      {"v3.so", PLUGIN_LOAD_INVALID, "v3.so|ABI version 3|needs version 1"},
      {"other.so", PLUGIN_LOAD_INVALID, "other.so|is not an arfusion plugin|arfusionPlugin_v1"},
      {"undefined.so", PLUGIN_LOAD_INVALID, "undefined.so|no_such_function"},
      {"needs.so", PLUGIN_LOAD_INVALID, "cannot open plugin|libarfusiontestneeded.so"},
      {"empty.so", PLUGIN_LOAD_INVALID, "empty.so|too short"},
      {"script.so", PLUGIN_LOAD_INVALID, "script.so"},
      {"cut.so", PLUGIN_LOAD_INVALID, "cut.so"},
      {"folder.so", PLUGIN_LOAD_INVALID, "folder.so"},
      {"nosuch.so", PLUGIN_LOAD_MISSING, "no plugin found|nosuch.so"},
      {"closed.so", geteuid() ? PLUGIN_LOAD_INVALID : PLUGIN_LOAD_OK, geteuid() ? "closed.so|Permission denied" : ""},
  };
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; ++i) {
    struct plugin_library library;
    char path[512], error[1024] = "";
    memset(&library, 0xa5, sizeof library);
    snprintf(path, sizeof path, "%s/%s", folder, rows[i].file);
    const int descriptors = support_descriptors();
    const enum plugin_load_result result = plugin_load(path, &library, error, sizeof error);
    if (result != rows[i].result) fail_msg("%s: %d instead of %d, %s", rows[i].file, result, rows[i].result, error);
    assert_true(support_text_has(error, rows[i].words));
    assert_null(strchr(error, '\n'));
    if (result == PLUGIN_LOAD_OK) {
      assert_string_equal(library.table.name, "v1");
      assert_string_equal(library.path, path);
    } else {
      assert_true(!library.handle && !library.table.size && !library.path[0]);
    }
    plugin_unload(&library);
    assert_true(!library.handle && !library.table.size && !library.path[0]);
    assert_int_equal(support_descriptors(), descriptors);
    assert_int_equal(support_mappings(path), 0);
  }
}

static void loads(const char* name, const char* file) {
  struct plugin_library library;
  char error[4096] = "", *real = realpath(file, NULL);
  assert_non_null(real);
  if (plugin_load(name, &library, error, sizeof error) != PLUGIN_LOAD_OK)
    fail_msg("%s: %s", name ? name : "NULL", error);
  char* opened = realpath(library.path, NULL);
  assert_string_equal(opened, real);
  plugin_unload(&library);
  free(opened);
  free(real);
}

/* foo, then libarfusion-plugin-foo.so, beside this program and in the folders of an installation. */
static void names_are_looked_up_beside_the_program(void** state) {
  (void)state;
  static const char* const places[] = {"", "/..", "/../lib", "/../lib/arfusion"};
  for (int p = 3; p >= 0; --p) { /* a nearer place goes first */
    char file[1024];
    snprintf(file, sizeof file, "%s%s/libarfusion-plugin-lookup%d.so", beside, places[p], (int)getpid());
    shell("mkdir -p '%s%s' && cp '%s/good.so' '%s'", beside, places[p], folder, file);
    char name[64];
    snprintf(name, sizeof name, "lookup%d", (int)getpid());
    loads(name, file);
    snprintf(name, sizeof name, "libarfusion-plugin-lookup%d.so", (int)getpid());
    loads(name, file);
    if (chdir("/")) fail();
    loads(name, file); /* from any folder */
  }
  shell(
      "cd '%s' && rm libarfusion-plugin-lookup*.so ../libarfusion-plugin-lookup*.so "
      "../lib/libarfusion-plugin-lookup*.so",
      beside);
}

static void a_broken_file_is_not_passed_over(void** state) {
  (void)state;
  struct plugin_library library;
  char file[1024], name[64], error[4096];
  snprintf(name, sizeof name, "libarfusion-plugin-lookup%d.so", (int)getpid());
  snprintf(file, sizeof file, "%s/%s", beside, name);
  shell("cp '%s/v3.so' '%s'", folder, file);
  assert_int_equal(plugin_load(name, &library, error, sizeof error), PLUGIN_LOAD_INVALID);
  assert_true(support_text_has(error, "ABI version 3"));
  unlink(file);
}

static void long_names_and_small_buffers_do_no_harm(void** state) {
  (void)state;
  static char name[8192];
  struct plugin_library library;
  char error[64];
  for (size_t length = 1; length < sizeof name; length = length * 2 + 1) {
    memset(name, 'x', length);
    name[length] = '\0';
    for (int slash = 0; slash < 2; ++slash) {
      name[0] = slash ? '/' : 'x';
      for (size_t bytes = 1; bytes <= sizeof error; bytes *= 4) {
        memset(error, 'y', sizeof error);
        assert_int_not_equal(plugin_load(name, &library, error, bytes), PLUGIN_LOAD_OK);
        assert_non_null(memchr(error, '\0', bytes));
        for (size_t i = bytes; i < sizeof error; ++i) assert_int_equal(error[i], 'y');
      }
    }
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(files_are_opened_or_say_what_is_wrong_with_them),
      cmocka_unit_test(names_are_looked_up_beside_the_program),
      cmocka_unit_test(a_broken_file_is_not_passed_over),
      cmocka_unit_test(long_names_and_small_buffers_do_no_harm),
  };
  return cmocka_run_group_tests_name("plugin_load", tests, set_up, tear_down);
}
