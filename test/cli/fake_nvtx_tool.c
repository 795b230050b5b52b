/* SPDX-License-Identifier: Apache-2.0
 *
 * fake_nvtx_tool.c: a tool as NVTX loads it (NVTX_INJECTION64_PATH): writes each range of the domain "arfusion" to the
 * file named by NVTX_TOOL_OUTPUT, a line "push NAME BYTES" or "pop" each.
 */
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STRINGS = 64 };
static char strings[STRINGS][64];
static int nstrings;
static int domain; /* its address stands for the domain */
static FILE* output;

static nvtxDomainHandle_t domain_create(const char* name) {
  return strcmp(name, "arfusion") == 0 ? (nvtxDomainHandle_t)(void*)&domain : NULL;
}

static nvtxStringHandle_t string_register(nvtxDomainHandle_t where, const char* text) {
  if ((void*)where != &domain || nstrings == STRINGS) return NULL;
  snprintf(strings[nstrings], sizeof strings[0], "%s", text);
  return (nvtxStringHandle_t)(void*)strings[nstrings++];
}

static int range_push(nvtxDomainHandle_t where, const nvtxEventAttributes_t* event) {
  if ((void*)where != &domain || event->messageType != NVTX_MESSAGE_TYPE_REGISTERED ||
      event->payloadType != NVTX_PAYLOAD_TYPE_INT64) {
    fprintf(output, "strange range\n");
  } else {
    fprintf(output, "push %s %lld\n", (const char*)(const void*)event->message.registered,
            (long long)event->payload.llValue);
  }
  return 0;
}

static int range_pop(nvtxDomainHandle_t where) {
  fprintf(output, (void*)where == &domain ? "pop\n" : "strange pop\n");
  return 0;
}

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_export_table);
int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_export_table) {
  const NvtxExportTableCallbacks* callbacks = get_export_table(NVTX_ETID_CALLBACKS);
  NvtxFunctionTable table;
  unsigned int size = 0;
  const char* name = getenv("NVTX_TOOL_OUTPUT");
  output = name ? fopen(name, "w") : NULL;
  if (!output || !callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size)) return 0;
  setvbuf(output, NULL, _IOLBF, 0);
  *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)domain_create;
  *table[NVTX_CBID_CORE2_DomainRegisterStringA] = (NvtxFunctionPointer)string_register;
  *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)range_push;
  *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)range_pop;
  return 1;
}
