/* SPDX-License-Identifier: Apache-2.0
 *
 * settings.h: every setting of the project, in one table (settings.c). A value comes from the environment, then from
 * the file NCCL_CONF_FILE or ~/.nccl.conf, then from /etc/nccl.conf (KEY=VALUE lines, # comments), then the default.
 */
#ifndef ARFUSION_CORE_SETTINGS_H_
#define ARFUSION_CORE_SETTINGS_H_

#include "arfusion_plugin.h"

enum setting_id {
  SETTING_PLUGIN,          /* string, local: read by the host library */
  SETTING_NCCL_LIB,        /* string, local: the libnccl that completes what the plugin turns down */
  SETTING_DEVICE,          /* choice, agreed: auto, cuda, host */
  SETTING_ALGO,            /* choice, agreed: auto, none, oneshot_lamport, oneshot_sync, twoshot */
  SETTING_PREFER,          /* choice, agreed: bits, speed */
  SETTING_TIMEOUT,         /* seconds, agreed: 600; 0 off */
  SETTING_INIT_TIMEOUT,    /* seconds, local: 120 */
  SETTING_IPC,             /* choice, agreed: auto, legacy */
  SETTING_SHARED_GPU,      /* choice, agreed: 0, 1 */
  SETTING_WORKSPACE_LIMIT, /* bytes (suffixes K, M, G), agreed: 288M */
  SETTING_TUNING_FILE,     /* string, its contents agreed: the routing table; see tuning.h */
  SETTING_REPORT,          /* string, local: where the report on an NCCL application's allreduces goes */
  SETTING_CHECK,           /* choice, agreed: 0, 1 */
  SETTING_COUNT_NAN,       /* choice, local: 0, 1 */
  SETTING_STATS,           /* choice, local: 0, 1; read by libarfusion-nccl.so */
  SETTING_DEBUG,           /* choice, local: none, version, warn, info, trace */
  SETTING_NET_TRANSPORT,   /* choice, local: auto, tcp; of the NCCL network */
  SETTING_HOSTID,          /* string, local: NCCL_HOSTID; not ours, but respected */
  SETTING_P2P_DISABLE,     /* string, local: NCCL_P2P_DISABLE; as NCCL_HOSTID */
  SETTING_P2P_LEVEL,       /* string, local: NCCL_P2P_LEVEL; as NCCL_HOSTID */
  SETTING_NET,             /* string, local: NCCL_NET; as NCCL_HOSTID, like the two below */
  SETTING_SOCKET_IFNAME,   /* string, local: NCCL_SOCKET_IFNAME */
  SETTING_SOCKET_FAMILY,   /* string, local: NCCL_SOCKET_FAMILY */
  SETTING_COUNT
};

enum setting_device { DEVICE_AUTO, DEVICE_CUDA, DEVICE_HOST };
enum setting_algo { ALGO_AUTO, ALGO_NONE, ALGO_ONESHOT_LAMPORT, ALGO_ONESHOT_SYNC, ALGO_TWOSHOT };
enum setting_prefer { PREFER_BITS, PREFER_SPEED };
enum setting_ipc { IPC_AUTO, IPC_LEGACY };

enum setting_net_transport { NET_TRANSPORT_AUTO, NET_TRANSPORT_TCP };

enum setting_kind { SETTING_KIND_STRING, SETTING_KIND_CHOICE, SETTING_KIND_INTEGER, SETTING_KIND_BYTES };

struct setting_info {
  const char* name;        /* "ARFUSION_TIMEOUT" */
  enum setting_kind kind;
  int agreed;              /* must be equal on all ranks of a communicator */
  const char* choices;     /* space-separated, in the order of the enum; NULL unless a choice */
  const char* default_text;
  int64_t min, max;        /* of integers and bytes */
  const char* unit;        /* "s", "bytes"; NULL: none */
  const char* help;        /* a sentence */
};

struct settings {
  int64_t value[SETTING_COUNT];      /* integer, bytes or index of the choice */
  char text[SETTING_COUNT][256];     /* as written where it was found, or the default */
  const char* source[SETTING_COUNT]; /* "environment", "configuration file" or "default" */
  int silent;                        /* nothing but errors is logged */
};

const struct setting_info* setting_info(enum setting_id id);

/* Whether NAME=TEXT is a setting with a value that it may have: 0; -1 with what is allowed; or 1: no setting. */
int setting_check(const char* name, const char* text, char* allowed, size_t bytes);

/* Reads all of them. arfusionInvalidArgument names the setting, where it was found, its value and what is allowed. Sets
 * the log's level from ARFUSION_DEBUG, then logs a "set by environment" line at INFO for each that is not at its
 * default (call log_configure first, if there is a logger). */
arfusionResult_t settings_load(struct settings* settings);

/* The same, but logs nothing other than an error: for what opens the plugin, which logs the lines. */
arfusionResult_t settings_load_silently(struct settings* settings);

/* Whether no source has a value. */
int setting_is_default(const struct settings* settings, enum setting_id id);

/* Another default for a setting: counts if no source has a value. arfusionInvalidArgument: no setting, or not a value
 * of it. */
arfusionResult_t settings_default(struct settings* settings, const char* name, const char* text);

#endif
