/* SPDX-License-Identifier: Apache-2.0
 *
 * test_settings.c: the three sources and their order, the forms of values, and what is said about wrong ones.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* The sources themselves, so that the system's file can be one of the test's. */
static char system_file[128];
#define CONF_SYSTEM_FILE system_file
#include "plugin/core/conf.c"
#include "plugin/core/settings.c"

#include <sys/stat.h>

static char folder[64], user_file[128], named_file[128];
static char lines[16384]; /* what was logged */

static void logger(arfusionLogLevel_t level, unsigned long flags, const char* file, int line, const char* fmt, ...)
    __attribute__((format(printf, 5, 6)));

static void logger(arfusionLogLevel_t level, unsigned long flags, const char* file, int line, const char* fmt, ...) {
  size_t length = strlen(lines);
  va_list args;
  (void)flags, (void)file, (void)line;
  length += (size_t)snprintf(lines + length, sizeof(lines) - length, "%d ", (int)level);
  va_start(args, fmt);
  length += (size_t)vsnprintf(lines + length, sizeof(lines) - length, fmt, args);
  va_end(args);
  snprintf(lines + length, sizeof(lines) - length, "\n");
}

static void write_file(const char* path, const char* text) {
  FILE* file = fopen(path, "we");
  assert_non_null(file);
  assert_true(fputs(text, file) >= 0);
  assert_int_equal(fclose(file), 0);
}

static int setup(void** state) {
  (void)state;
  for (int id = 0; id < SETTING_COUNT; id++) unsetenv(setting_info((enum setting_id)id)->name);
  unsetenv("NCCL_CONF_FILE");
  unsetenv("ARFUSION_TIMEUOT");
  strcpy(folder, "/tmp/arfusion-settings-XXXXXX");
  if (mkdtemp(folder) == NULL) return -1;
  snprintf(system_file, sizeof(system_file), "%s/system.conf", folder);
  snprintf(user_file, sizeof(user_file), "%s/.nccl.conf", folder);
  snprintf(named_file, sizeof(named_file), "%s/named.conf", folder);
  setenv("HOME", folder, 1);
  lines[0] = '\0';
  log_configure(logger, arfusionLogWarn);
  return 0;
}

static int teardown(void** state) {
  (void)state;
  unlink(system_file);
  unlink(user_file);
  unlink(named_file);
  return rmdir(folder);
}

static void test_table(void** state) {
  (void)state;
  for (int id = 0; id < SETTING_COUNT; id++) {
    const struct setting_info* info = setting_info((enum setting_id)id);
    assert_non_null(info->name);
    assert_non_null(info->default_text);
    assert_non_null(info->help);
    assert_int_equal(info->choices != NULL, info->kind == SETTING_KIND_CHOICE);
    for (int other = 0; other < id; other++)
      assert_string_not_equal(info->name, setting_info((enum setting_id)other)->name);
  }
}

static void test_defaults(void** state) {
  struct settings settings;
  (void)state;

  assert_int_equal(settings_load(&settings), arfusionSuccess);
  assert_int_equal(settings.value[SETTING_DEVICE], DEVICE_AUTO);
  assert_int_equal(settings.value[SETTING_ALGO], ALGO_AUTO);
  assert_int_equal(settings.value[SETTING_PREFER], PREFER_BITS);
  assert_int_equal(settings.value[SETTING_TIMEOUT], 600);
  assert_int_equal(settings.value[SETTING_INIT_TIMEOUT], 120);
  assert_int_equal(settings.value[SETTING_IPC], IPC_AUTO);
  assert_int_equal(settings.value[SETTING_SHARED_GPU], 0);
  assert_int_equal(settings.value[SETTING_CHECK], 0);
  assert_int_equal(settings.value[SETTING_COUNT_NAN], 0);
  assert_int_equal(settings.value[SETTING_WORKSPACE_LIMIT], 288ll << 20);
  assert_string_equal(settings.text[SETTING_WORKSPACE_LIMIT], "288M");
  assert_string_equal(settings.text[SETTING_PLUGIN], "");
  assert_string_equal(settings.text[SETTING_HOSTID], "");
  for (int id = 0; id < SETTING_COUNT; id++) assert_string_equal(settings.source[id], "default");
  assert_string_equal(lines, "");
}

static void test_environment(void** state) {
  struct settings settings;
  (void)state;

  setenv("ARFUSION_DEVICE", "host", 1);
  setenv("ARFUSION_ALGO", "twoshot", 1);
  setenv("ARFUSION_PREFER", "speed", 1);
  setenv("ARFUSION_TIMEOUT", "0", 1);
  setenv("ARFUSION_SHARED_GPU", "1", 1);
  setenv("ARFUSION_WORKSPACE_LIMIT", "3k", 1);
  setenv("ARFUSION_IPC", "", 1); /* no value */
  setenv("ARFUSION_DEBUG", "INFO", 1);
  setenv("NCCL_HOSTID", "a b", 1);
  assert_int_equal(settings_load(&settings), arfusionInvalidArgument);
  setenv("ARFUSION_WORKSPACE_LIMIT", "3G", 1);
  lines[0] = '\0';
  assert_int_equal(settings_load(&settings), arfusionSuccess);
  assert_int_equal(settings.value[SETTING_DEVICE], DEVICE_HOST);
  assert_int_equal(settings.value[SETTING_ALGO], ALGO_TWOSHOT);
  assert_int_equal(settings.value[SETTING_PREFER], PREFER_SPEED);
  assert_int_equal(settings.value[SETTING_TIMEOUT], 0);
  assert_int_equal(settings.value[SETTING_SHARED_GPU], 1);
  assert_int_equal(settings.value[SETTING_WORKSPACE_LIMIT], 3ll << 30);
  assert_int_equal(settings.value[SETTING_DEBUG], 3);
  assert_string_equal(settings.text[SETTING_HOSTID], "a b");
  assert_string_equal(settings.source[SETTING_DEVICE], "environment");
  assert_string_equal(settings.source[SETTING_IPC], "default");
  assert_non_null(strstr(lines, "3 ARFUSION/ARFUSION_DEVICE set by environment to host.\n"));
  assert_non_null(strstr(lines, "3 ARFUSION/ARFUSION_DEBUG set by environment to INFO.\n"));
  assert_null(strstr(lines, "ARFUSION_IPC"));
}

static void test_order(void** state) {
  struct settings settings;
  (void)state;

  write_file(system_file, "ARFUSION_TIMEOUT=1\nARFUSION_INIT_TIMEOUT=1\nARFUSION_DEVICE=cuda\nARFUSION_ALGO=twoshot\n");
  write_file(user_file, "ARFUSION_TIMEOUT=2\nARFUSION_INIT_TIMEOUT=2\nARFUSION_DEVICE=host\nARFUSION_DEVICE=cuda\n");
  write_file(named_file, "ARFUSION_TIMEOUT=3\n");
  setenv("ARFUSION_INIT_TIMEOUT", "4", 1);
  assert_int_equal(settings_load(&settings), arfusionSuccess);
  assert_int_equal(settings.value[SETTING_TIMEOUT], 2);
  assert_int_equal(settings.value[SETTING_INIT_TIMEOUT], 4);
  assert_int_equal(settings.value[SETTING_DEVICE], DEVICE_HOST);
  assert_int_equal(settings.value[SETTING_ALGO], ALGO_TWOSHOT);
  assert_string_equal(settings.source[SETTING_TIMEOUT], "configuration file");
  setenv("NCCL_CONF_FILE", named_file, 1); /* instead of the one in the home folder */
  assert_int_equal(settings_load(&settings), arfusionSuccess);
  assert_int_equal(settings.value[SETTING_TIMEOUT], 3);
  assert_int_equal(settings.value[SETTING_DEVICE], DEVICE_CUDA);
}

static void test_file_form(void** state) {
  struct settings settings;
  char want[256];
  (void)state;

  write_file(user_file,
             "# a comment\n\n  \t ARFUSION_TIMEOUT \t=  7  # seconds\r\nNCCL_DEBUG=INFO\nnonsense of somebody else\n"
             "#ARFUSION_DEVICE=cuda\nARFUSION_PLUGIN=/a#b=c\nARFUSION_IPC=\nNCCL_HOSTID=me");
  assert_int_equal(settings_load(&settings), arfusionSuccess);
  assert_int_equal(settings.value[SETTING_TIMEOUT], 7);
  assert_int_equal(settings.value[SETTING_DEVICE], DEVICE_AUTO);
  assert_string_equal(settings.text[SETTING_PLUGIN], "/a#b=c");
  assert_string_equal(settings.text[SETTING_HOSTID], "me");
  assert_string_equal(settings.source[SETTING_IPC], "default");
  snprintf(want, sizeof(want), "3 ARFUSION/ARFUSION_TIMEOUT set by file %s, line 3 to 7.\n", user_file);
  assert_non_null(strstr(lines, want));
  assert_null(strstr(lines, "not a setting"));
}

static void test_malformed(void** state) {
  static const struct {
    const char *name, *value, *allowed;
  } cases[] = {
      {"ARFUSION_DEVICE", "gpu", "one of: auto cuda host"},
      {"ARFUSION_DEVICE", "hos", "one of: auto cuda host"},
      {"ARFUSION_DEVICE", "auto cuda", "one of: auto cuda host"},
      {"ARFUSION_SHARED_GPU", "2", "one of: 0 1"},
      {"ARFUSION_TIMEOUT", "-1", "a whole number from 0 to 1000000 s"},
      {"ARFUSION_TIMEOUT", "5s", "a whole number from 0 to 1000000 s"},
      {"ARFUSION_TIMEOUT", " 5", "a whole number from 0 to 1000000 s"},
      {"ARFUSION_TIMEOUT", "0x10", "a whole number from 0 to 1000000 s"},
      {"ARFUSION_TIMEOUT", "1.5", "a whole number from 0 to 1000000 s"},
      {"ARFUSION_TIMEOUT", "1000001", "a whole number from 0 to 1000000 s"},
      {"ARFUSION_TIMEOUT", "99999999999999999999999", "a whole number from 0 to 1000000 s"},
      {"ARFUSION_TIMEOUT", "1K", "a whole number from 0 to 1000000 s"},
      {"ARFUSION_INIT_TIMEOUT", "0", "a whole number from 1 to 1000000 s"},
      {"ARFUSION_WORKSPACE_LIMIT", "M", "bytes from 4096 to 1099511627776, also with K, M or G behind the number"},
      {"ARFUSION_WORKSPACE_LIMIT", "1MB", "bytes from 4096 to 1099511627776, also with K, M or G behind the number"},
      {"ARFUSION_WORKSPACE_LIMIT", "1T", "bytes from 4096 to 1099511627776, also with K, M or G behind the number"},
      {"ARFUSION_WORKSPACE_LIMIT", "9999999999G",
       "bytes from 4096 to 1099511627776, also with K, M or G behind the number"},
      {"ARFUSION_DEBUG", "loud", "one of: none version warn info trace"},
  };
  struct settings settings;
  char want[512];
  (void)state;

  for (size_t c = 0; c < sizeof(cases) / sizeof(cases[0]); c++) {
    setenv(cases[c].name, cases[c].value, 1);
    assert_int_equal(settings_load(&settings), arfusionInvalidArgument);
    unsetenv(cases[c].name);
    snprintf(want, sizeof(want), "%s=%s (set by environment) is not valid: %s", cases[c].name, cases[c].value,
             cases[c].allowed);
    assert_string_equal(error_last(), want);
  }
  write_file(user_file, "\nARFUSION_ALGO = ring # no\n");
  assert_int_equal(settings_load(&settings), arfusionInvalidArgument);
  snprintf(want, sizeof(want),
           "ARFUSION_ALGO=ring (set by file %s, line 2) is not valid: one of: auto none oneshot_lamport oneshot_sync "
           "twoshot",
           user_file);
  assert_string_equal(error_last(), want);
  write_file(user_file, "ARFUSION_DEVICE host\n");
  assert_int_equal(settings_load(&settings), arfusionInvalidArgument);
  snprintf(want, sizeof(want), "ARFUSION_DEVICE host (in file %s, line 1) is not valid: NAME=VALUE is allowed",
           user_file);
  assert_string_equal(error_last(), want);
}

static void test_too_long(void** state) {
  static char value[300];
  struct settings settings;
  (void)state;

  memset(value, 'p', 255);
  setenv("ARFUSION_PLUGIN", value, 1);
  assert_int_equal(settings_load(&settings), arfusionSuccess);
  assert_string_equal(settings.text[SETTING_PLUGIN], value);
  value[255] = 'p';
  setenv("ARFUSION_PLUGIN", value, 1);
  assert_int_equal(settings_load(&settings), arfusionInvalidArgument);
  assert_non_null(strstr(error_last(), "up to 255 characters"));
}

static void test_unknown(void** state) {
  struct settings settings;
  char* first;
  (void)state;

  setenv("ARFUSION_TIMEUOT", "3", 1);
  write_file(user_file, "ARFUSION_DEVISE=host\n");
  assert_int_equal(settings_load(&settings), arfusionSuccess);
  first = strstr(lines, "2 ARFUSION/ARFUSION_TIMEUOT (in the environment) is not a setting: nothing is done with it\n");
  assert_non_null(first);
  assert_null(strstr(strchr(first, '\n'), "ARFUSION_TIMEUOT"));
  first = strstr(lines, "2 ARFUSION/ARFUSION_DEVISE (in file ");
  assert_non_null(first);
  assert_null(strstr(strchr(first, '\n'), "ARFUSION_DEVISE"));
}

/* Names as a shell has them, or in small letters: not settings either, and not meant for anybody else. */
static void test_unknown_forms(void** state) {
  struct settings settings;
  (void)state;

  setenv("arfusion_algo", "twoshot", 1);
  write_file(user_file, "export ARFUSION_ALGO=twoshot\nArfusion_Check=1\nexport_arfusion=1\nexport NCCL_X=1\n");
  assert_int_equal(settings_load(&settings), arfusionSuccess);
  assert_int_equal(settings.value[SETTING_ALGO], ALGO_AUTO);
  assert_non_null(strstr(lines, "arfusion_algo (in the environment) is not a setting"));
  assert_non_null(strstr(lines, "export ARFUSION_ALGO (in file "));
  assert_non_null(strstr(lines, "Arfusion_Check (in file "));
  assert_null(strstr(lines, "export_arfusion"));
  assert_null(strstr(lines, "NCCL_X"));
  unsetenv("arfusion_algo");
}

static void test_unreadable(void** state) {
  struct settings settings;
  (void)state;

  write_file(user_file, "ARFUSION_TIMEOUT=2\n");
  setenv("NCCL_CONF_FILE", named_file, 1);
  assert_int_equal(settings_load(&settings), arfusionSuccess);
  assert_int_equal(settings.value[SETTING_TIMEOUT], 600); /* the one in the home folder is not a substitute */
  assert_non_null(strstr(lines, "named.conf is not read: No such file or directory\n"));
  setenv("NCCL_CONF_FILE", folder, 1);
  assert_int_equal(settings_load(&settings), arfusionSuccess);
  assert_non_null(strstr(lines, "is not read: Is a directory\n"));
  setenv("NCCL_CONF_FILE", "/dev/zero", 1); /* never ends */
  assert_int_equal(settings_load(&settings), arfusionSuccess);
  assert_non_null(strstr(lines, "/dev/zero is not read: File too large\n"));
  unlink(named_file);
  assert_int_equal(mkfifo(named_file, 0600), 0); /* to which nobody writes */
  setenv("NCCL_CONF_FILE", named_file, 1);
  alarm(10);
  assert_int_equal(settings_load(&settings), arfusionSuccess);
  alarm(0);
}

static void test_hosts_default(void** state) {
  struct settings settings;
  (void)state;

  setenv("ARFUSION_PREFER", "bits", 1);
  assert_int_equal(settings_load(&settings), arfusionSuccess);
  assert_int_equal(settings_default(&settings, "ARFUSION_TIMEOUT", "0"), arfusionSuccess);
  assert_int_equal(settings.value[SETTING_TIMEOUT], 0);
  assert_string_equal(settings.source[SETTING_TIMEOUT], "default");
  assert_int_equal(settings_default(&settings, "ARFUSION_PREFER", "speed"), arfusionSuccess);
  assert_int_equal(settings.value[SETTING_PREFER], PREFER_BITS); /* the user's counts */
  assert_int_equal(settings_default(&settings, "ARFUSION_TIMEOUT", "soon"), arfusionInvalidArgument);
  assert_int_equal(settings.value[SETTING_TIMEOUT], 0);
  assert_int_equal(settings_default(&settings, "ARFUSION_TIMEUOT", "0"), arfusionInvalidArgument);
}

int main(void) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
  const struct CMUnitTest tests[] = {
      CASE(test_table),     CASE(test_defaults), CASE(test_environment), CASE(test_order),      CASE(test_file_form),
      CASE(test_malformed), CASE(test_too_long), CASE(test_unknown),     CASE(test_unknown_forms),
      CASE(test_unreadable), CASE(test_hosts_default),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
