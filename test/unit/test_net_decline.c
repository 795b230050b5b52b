/* SPDX-License-Identifier: Apache-2.0
 *
 * test_net_decline.c: NCCL's network symbols when nobody asks for this network: no call fails, there are no devices,
 * the reason is logged once, also when the library is closed and opened again.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin/net/nccl_net.h"
#include "test/unit/support.h"

static int declined_lines;

static void logger(arfusionLogLevel_t level, unsigned long flags, const char* file, int line, const char* fmt, ...) {
  char text[512];
  va_list args;
  (void)level, (void)flags, (void)file, (void)line;
  va_start(args, fmt);
  vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  if (strstr(text, "declined")) declined_lines++;
}

/* As NCCL opens it: by file, local symbols, all of them at once. */
static void* open_plugin(void) {
  void* library = dlopen(getenv("ARFUSION_PLUGIN"), RTLD_NOW | RTLD_LOCAL);
  if (!library) fail_msg("%s", dlerror());
  return library;
}

static void decline(const struct nccl_net* net, const struct nccl_collnet* collnet) {
  void *ctx = &ctx, *coll_ctx = &coll_ctx;
  int ndev = -1;
  assert_string_equal(net->name, "arfusion");
  assert_string_equal(collnet->name, net->name);
  assert_int_equal(net->init(&ctx, 1, NULL, logger, NULL), arfusionSuccess);
  assert_int_equal(net->devices(&ndev), arfusionSuccess);
  assert_int_equal(ndev, 0);
  assert_int_equal(net->finalize(ctx), arfusionSuccess);
  assert_int_equal(net->finalize(NULL), arfusionSuccess);
  assert_int_equal(collnet->init(&coll_ctx, 1, logger), arfusionSuccess);
  ndev = -1;
  assert_int_equal(collnet->devices(&ndev), arfusionSuccess);
  assert_int_equal(ndev, 0);
  assert_int_equal(collnet->finalize(coll_ctx), arfusionSuccess);
}

static void declined(int reopen) {
  void* library = open_plugin();
  for (int round = 0; round < 3; round++) {
    decline(dlsym(library, "ncclNetPlugin_v11"), dlsym(library, "ncclCollNetPlugin_v11"));
    decline(dlsym(library, "ncclNetPlugin_v12"), dlsym(library, "ncclCollNetPlugin_v12"));
    if (!reopen) continue;
    dlclose(library);
    library = open_plugin();
  }
  dlclose(library);
}

static void test_not_asked_for(void** state) {
  (void)state;
  support_setting("NCCL_NET", NULL);
  declined_lines = 0;
  declined(0);
  assert_int_equal(declined_lines, 1);
  declined(1);
}

static void test_another_is_asked_for(void** state) {
  (void)state;
  support_setting("NCCL_NET", "Socket");
  declined_lines = 0;
  declined(0);
  assert_int_equal(declined_lines, 1);
}

static void test_a_setting_is_not_valid(void** state) {
  (void)state;
  support_setting("NCCL_NET", "arfusion");
  support_setting("ARFUSION_TIMEOUT", "soon");
  declined_lines = 0;
  declined(0);
  assert_int_equal(declined_lines, 1);
  support_setting("ARFUSION_TIMEOUT", NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_not_asked_for),
      cmocka_unit_test(test_another_is_asked_for),
      cmocka_unit_test(test_a_setting_is_not_valid),
  };
  support_use_plugin();
  support_setting("NCCL_CONF_FILE", "/dev/null");
  return cmocka_run_group_tests(tests, NULL, NULL);
}
