/* SPDX-License-Identifier: Apache-2.0
 *
 * settings.c: the table of all settings, and how they are read. See settings.h.
 *
 * Files are read as NCCL reads them: the first line for a name counts, names that are not ours are somebody else's, and
 * an empty value is no value.
 */
#include "plugin/core/settings.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "plugin/core/conf.h"
#include "plugin/core/log.h"

#define OUR_PREFIX "ARFUSION_"
#define SECONDS_MAX 1000000
#define WORKSPACE_MIN ((int64_t)4096)
#define WORKSPACE_MAX ((int64_t)1 << 40)

static const char source_environment[] = "environment";
static const char source_file[] = "configuration file";
static const char source_default[] = "default";

static const struct setting_info setting_table[SETTING_COUNT] = {
    [SETTING_PLUGIN] = {"ARFUSION_PLUGIN", SETTING_KIND_STRING, 0, NULL, "", 0, 0, NULL,
                        "The plugin to load: foo tries foo, then libarfusion-plugin-foo.so; none loads none."},
    [SETTING_NCCL_LIB] = {"ARFUSION_NCCL_LIB", SETTING_KIND_STRING, 0, NULL, "", 0, 0, NULL,
                          "The libnccl for what the plugin turns down; empty: one that is loaded, else libnccl.so.2."},
    [SETTING_DEVICE] =
        {"ARFUSION_DEVICE", SETTING_KIND_CHOICE, 1, "auto cuda host", "auto", 0, 0, NULL,
         "Where operations run: on CUDA devices, in host memory, or on the host only if there is no GPU."},
    [SETTING_ALGO] = {"ARFUSION_ALGO", SETTING_KIND_CHOICE, 1, "auto none oneshot_lamport oneshot_sync twoshot", "auto",
                      0, 0, NULL, "The algorithm of every operation; none turns every request down."},
    [SETTING_PREFER] =
        {"ARFUSION_PREFER", SETTING_KIND_CHOICE, 1, "bits speed", "bits", 0, 0, NULL,
         "bits never turns a request down because another way is faster, so that results stay the same."},
    [SETTING_TIMEOUT] = {"ARFUSION_TIMEOUT", SETTING_KIND_INTEGER, 1, NULL, "600", 0, SECONDS_MAX, "s",
                         "How long an operation waits for another rank before the communicator fails; 0 for ever."},
    [SETTING_INIT_TIMEOUT] = {"ARFUSION_INIT_TIMEOUT", SETTING_KIND_INTEGER, 0, NULL, "120", 1, SECONDS_MAX, "s",
                              "How long each step of making a communicator waits for the other ranks."},
    [SETTING_IPC] =
        {"ARFUSION_IPC", SETTING_KIND_CHOICE, 1, "auto legacy", "auto", 0, 0, NULL,
         "How device memory is shared: legacy uses cudaIpc even where virtual-memory allocations would do."},
    [SETTING_SHARED_GPU] = {"ARFUSION_SHARED_GPU", SETTING_KIND_CHOICE, 1, "0 1", "0", 0, 0, NULL,
                            "1 lets several ranks of a communicator use one GPU."},
    [SETTING_WORKSPACE_LIMIT] = {"ARFUSION_WORKSPACE_LIMIT", SETTING_KIND_BYTES, 1, NULL, "288M", WORKSPACE_MIN,
                                 WORKSPACE_MAX, "bytes", "The largest workspace of one rank of a communicator."},
    [SETTING_TUNING_FILE] = {"ARFUSION_TUNING_FILE", SETTING_KIND_STRING, 1, NULL, "", 0, 0, NULL,
                             "A routing table that arfusion-bench tune has written; none, or empty: the one that is "
                             "built in."},
    [SETTING_REPORT] = {"ARFUSION_REPORT", SETTING_KIND_STRING, 0, NULL, "", 0, 0, NULL,
                        "NCCL's profiler: the file to which each communicator's report is added, a line of JSON; %h, "
                        "%p, %c and %r in its name are the host, the process, the communicator and the rank."},
    [SETTING_CHECK] = {"ARFUSION_CHECK", SETTING_KIND_CHOICE, 1, "0 1", "0", 0, 0, NULL,
                       "1 compares what the ranks were asked for before each operation, at the cost of a kernel: if "
                       "they disagree, it is not begun, and the error names what differs."},
    [SETTING_COUNT_NAN] = {"ARFUSION_COUNT_NAN", SETTING_KIND_CHOICE, 0, "0 1", "0", 0, 0, NULL,
                           "1 counts the NaNs in inputs, residuals and outputs, at the cost of two kernels an "
                           "operation."},
    [SETTING_STATS] = {"ARFUSION_STATS", SETTING_KIND_CHOICE, 0, "0 1", "0", 0, 0, NULL,
                       "1: libarfusion-nccl.so says at exit which ncclAllReduce calls it took, and why not the "
                       "others."},
    [SETTING_DEBUG] = {"ARFUSION_DEBUG", SETTING_KIND_CHOICE, 0, "none version warn info trace", "warn", 0, 0, NULL,
                       "Which lines go to stderr when the host has no logger of its own."},
    [SETTING_NET_TRANSPORT] =
        {"ARFUSION_NET_TRANSPORT", SETTING_KIND_CHOICE, 0, "auto tcp", "auto", 0, 0, NULL,
         "How the plugin's network for NCCL reaches ranks on this host: through shared memory where it can, or over "
         "TCP."},
    [SETTING_HOSTID] = {"NCCL_HOSTID", SETTING_KIND_STRING, 0, NULL, "", 0, 0, NULL,
                        "NCCL's: ranks with different values count as on different hosts."},
    [SETTING_P2P_DISABLE] = {"NCCL_P2P_DISABLE", SETTING_KIND_STRING, 0, NULL, "", 0, 0, NULL,
                             "NCCL's: 1 turns every request down on GPUs, which need peer access."},
    [SETTING_P2P_LEVEL] = {"NCCL_P2P_LEVEL", SETTING_KIND_STRING, 0, NULL, "", 0, 0, NULL,
                           "NCCL's: how far apart GPUs may be for peer access: LOC, NVL, PIX, PXB, PHB or SYS."},
    [SETTING_NET] = {"NCCL_NET", SETTING_KIND_STRING, 0, NULL, "", 0, 0, NULL,
                     "NCCL's: the network it uses; only arfusion makes the plugin serve as one."},
    [SETTING_SOCKET_IFNAME] = {"NCCL_SOCKET_IFNAME", SETTING_KIND_STRING, 0, NULL, "", 0, 0, NULL,
                               "NCCL's: the network interfaces to use, by the beginnings of their names."},
    [SETTING_SOCKET_FAMILY] = {"NCCL_SOCKET_FAMILY", SETTING_KIND_STRING, 0, NULL, "", 0, 0, NULL,
                               "NCCL's: AF_INET or AF_INET6, for one kind of addresses alone."},
};

/* The level for each choice of ARFUSION_DEBUG. */
static const arfusionLogLevel_t debug_levels[] = {arfusionLogNone, arfusionLogVersion, arfusionLogWarn, arfusionLogInfo,
                                                  arfusionLogTrace};

const struct setting_info* setting_info(enum setting_id id) { return &setting_table[id]; }

static int setting_find(const char* name) {
  for (int id = 0; id < SETTING_COUNT; id++) {
    if (strcmp(setting_table[id].name, name) == 0) return id;
  }
  return -1;
}

/* ---------------------------------------------------------------- values */

static int choice_parse(const char* choices, const char* text, int64_t* value) {
  size_t length = strlen(text);
  int64_t index = 0;

  for (const char* at = choices; *at != '\0'; index++) {
    size_t word = strcspn(at, " ");
    if (word == length && strncasecmp(at, text, word) == 0) { /* ARFUSION_DEBUG=INFO, as for NCCL_DEBUG */
      *value = index;
      return 1;
    }
    at += word;
    if (*at == ' ') at++;
  }
  return 0;
}

static int integer_parse(const struct setting_info* info, const char* text, int64_t* value) {
  int64_t number = 0, unit = 1;
  const char* at = text;

  if (!isdigit((unsigned char)*at)) return 0;
  for (; isdigit((unsigned char)*at); at++) {
    if (__builtin_mul_overflow(number, 10, &number) || __builtin_add_overflow(number, *at - '0', &number)) return 0;
  }
  if (info->kind == SETTING_KIND_BYTES && *at != '\0') {
    switch (toupper((unsigned char)*at++)) {
      case 'K': unit = (int64_t)1 << 10; break;
      case 'M': unit = (int64_t)1 << 20; break;
      case 'G': unit = (int64_t)1 << 30; break;
      default: return 0;
    }
  }
  if (*at != '\0' || __builtin_mul_overflow(number, unit, &number)) return 0;
  if (number < info->min || number > info->max) return 0;
  *value = number;
  return 1;
}

static void setting_allowed(const struct setting_info* info, char* text, size_t bytes) {
  switch (info->kind) {
    case SETTING_KIND_CHOICE: snprintf(text, bytes, "one of: %s", info->choices); break;
    case SETTING_KIND_INTEGER:
      snprintf(text, bytes, "a whole number from %lld to %lld%s%s", (long long)info->min, (long long)info->max,
               info->unit != NULL ? " " : "", info->unit != NULL ? info->unit : "");
      break;
    case SETTING_KIND_BYTES:
      snprintf(text, bytes, "bytes from %lld to %lld, also with K, M or G behind the number", (long long)info->min,
               (long long)info->max);
      break;
    case SETTING_KIND_STRING:
      snprintf(text, bytes, "up to %zu characters", sizeof(((struct settings*)NULL)->text[0]) - 1);
      break;
  }
}

static int setting_parse(const struct setting_info* info, const char* text, int64_t* value) {
  if (strlen(text) >= sizeof(((struct settings*)NULL)->text[0])) return 0;
  switch (info->kind) {
    case SETTING_KIND_CHOICE: return choice_parse(info->choices, text, value);
    case SETTING_KIND_INTEGER:
    case SETTING_KIND_BYTES: return integer_parse(info, text, value);
    case SETTING_KIND_STRING: *value = 0; return 1;
  }
  return 0;
}

int setting_check(const char* name, const char* text, char* allowed, size_t bytes) {
  int64_t value;
  int id = setting_find(name);
  if (id < 0) return 1;
  if (setting_parse(&setting_table[id], text, &value)) return 0;
  setting_allowed(&setting_table[id], allowed, bytes);
  return -1;
}

/* Takes `text`, found at `where` ("environment", or a file and line), unless an earlier source had a value. */
static arfusionResult_t setting_take(struct settings* settings, int id, const char* text, const char* source,
                                     const char* where) {
  const struct setting_info* info = &setting_table[id];
  char allowed[160];

  if (settings->source[id] != NULL || text[0] == '\0') return arfusionSuccess;
  if (!setting_parse(info, text, &settings->value[id])) {
    setting_allowed(info, allowed, sizeof(allowed));
    return error_set(arfusionInvalidArgument, "%s=%.300s (set by %s) is not valid: %s", info->name, text, where,
                     allowed);
  }
  strcpy(settings->text[id], text);
  settings->source[id] = source;
  if (id == SETTING_DEBUG) log_set_level(debug_levels[settings->value[id]]);
  if (source != source_default && !settings->silent) {
    LOG_INFO(ARFUSION_LOG_ENV, "%s set by %s to %s.", info->name, where, text);
  }
  return arfusionSuccess;
}

/* ---------------------------------------------------------------- sources */

/* Settings are read in two passes, ARFUSION_DEBUG first: it decides which lines the second one may log. */
enum pass { PASS_DEBUG, PASS_ALL };

static int pass_takes(enum pass pass, int id) { return pass == PASS_ALL || id == SETTING_DEBUG; }

/* Also in the way of a shell, or in small letters: names that do nothing, and were meant to. */
static int name_looks_ours(const char* name) {
  static const char export[] = "export";
  const size_t length = strlen(export);
  if (strncmp(name, export, length) == 0 && isblank((unsigned char)name[length])) {
    name += length;
    while (isblank((unsigned char)*name)) name++;
  }
  return strncasecmp(name, OUR_PREFIX, strlen(OUR_PREFIX)) == 0;
}

static void name_warn(const struct settings* settings, const char* name, size_t length, const char* where) {
  if (settings->silent) return;
  LOG_WARN("%.*s (in %s) is not a setting: nothing is done with it", (int)(length > 100 ? 100 : length), name, where);
}

static arfusionResult_t environment_read(struct settings* settings, enum pass pass) {
  for (int id = 0; id < SETTING_COUNT; id++) {
    const char* text = getenv(setting_table[id].name);
    if (text == NULL || !pass_takes(pass, id)) continue;
    FORWARD_IF_ERROR(setting_take(settings, id, text, source_environment, source_environment));
  }
  for (char** entry = environ; pass == PASS_ALL && entry != NULL && *entry != NULL; entry++) {
    size_t length = strcspn(*entry, "=");
    char name[128];
    if (!name_looks_ours(*entry)) continue;
    if (length < sizeof(name)) {
      memcpy(name, *entry, length);
      name[length] = '\0';
      if (setting_find(name) >= 0) continue;
    }
    name_warn(settings, *entry, length, "the environment");
  }
  return arfusionSuccess;
}

struct file_reading {
  struct settings* settings;
  enum pass pass;
};

static arfusionResult_t file_line_take(void* arg, const char* name, const char* value, const char* where) {
  const struct file_reading* reading = arg;
  int id = setting_find(name), ours = name_looks_ours(name);

  if (value == NULL) {
    if (reading->pass == PASS_DEBUG || !ours) return arfusionSuccess;
    return error_set(arfusionInvalidArgument, "%.100s (in %s) is not valid: NAME=VALUE is allowed", name, where);
  }
  if (id >= 0) {
    return pass_takes(reading->pass, id) ? setting_take(reading->settings, id, value, source_file, where)
                                         : arfusionSuccess;
  }
  if (reading->pass == PASS_ALL && ours) name_warn(reading->settings, name, strlen(name), where);
  return arfusionSuccess;
}

static arfusionResult_t files_read(struct settings* settings, enum pass pass) {
  struct file_reading reading = {.settings = settings, .pass = pass};
  int unread;

  FORWARD_IF_ERROR(conf_read(file_line_take, &reading, &unread));
  if (unread != 0 && pass == PASS_ALL && !settings->silent) { /* the user named this file, so it is worth a line */
    LOG_INFO(ARFUSION_LOG_ENV, "NCCL_CONF_FILE %.300s is not read: %s", getenv("NCCL_CONF_FILE"), strerror(unread));
  }
  return arfusionSuccess;
}

static arfusionResult_t settings_read(struct settings* settings, int silent) {
  memset(settings, 0, sizeof(*settings));
  settings->silent = silent;
  for (int pass = PASS_DEBUG; pass <= PASS_ALL; pass++) {
    FORWARD_IF_ERROR(environment_read(settings, (enum pass)pass));
    FORWARD_IF_ERROR(files_read(settings, (enum pass)pass));
    for (int id = 0; id < SETTING_COUNT; id++) {
      if (settings->source[id] != NULL || !pass_takes((enum pass)pass, id)) continue;
      FORWARD_IF_ERROR(setting_take(settings, id, setting_table[id].default_text, source_default, source_default));
      settings->source[id] = source_default; /* also of an empty default, which leaves no value */
    }
  }
  return arfusionSuccess;
}

arfusionResult_t settings_load(struct settings* settings) { return settings_read(settings, 0); }

arfusionResult_t settings_load_silently(struct settings* settings) { return settings_read(settings, 1); }

int setting_is_default(const struct settings* settings, enum setting_id id) {
  return settings->source[id] == source_default;
}

arfusionResult_t settings_default(struct settings* settings, const char* name, const char* text) {
  const int id = setting_find(name);
  if (id < 0) return error_set(arfusionInvalidArgument, "%.100s is not a setting", name);
  if (!setting_is_default(settings, (enum setting_id)id)) return arfusionSuccess;
  settings->source[id] = NULL;
  const arfusionResult_t result = setting_take(settings, id, text, source_default, "the host program");
  settings->source[id] = source_default;
  return result;
}
