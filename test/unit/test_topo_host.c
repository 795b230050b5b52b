/* SPDX-License-Identifier: Apache-2.0
 *
 * What arfusion-topo reads of a host: IOMMU types, PCIe access control from configuration space, CPUs, virtualization,
 * settings, from a copy of /sys and /proc made here; and what --redact takes out.
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

#include "plugin/tools/topo/host.h"
#include "plugin/tools/topo/redact.h"

static char root[64];
static struct topo* topo;

static void file_write(const char* path, const void* data, size_t bytes) {
  char full[256];
  snprintf(full, sizeof(full), "%s%s", root, path);
  for (char* slash = full + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
    *slash = '\0';
    mkdir(full, 0700);
    *slash = '/';
  }
  FILE* file = fopen(full, "w");
  assert_non_null(file);
  assert_int_equal(fwrite(data, 1, bytes, file), bytes);
  assert_int_equal(fclose(file), 0);
}

static void text_write(const char* path, const char* text) { file_write(path, text, strlen(text)); }

static void group_write(const char* device, const char* group, const char* type) {
  char path[128], link[256], target[128];
  snprintf(path, sizeof(path), "/sys/kernel/iommu_groups/%s/type", group);
  text_write(path, type);
  snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/class", device);
  text_write(path, "");
  snprintf(link, sizeof(link), "%s/sys/bus/pci/devices/%s/iommu_group", root, device);
  snprintf(target, sizeof(target), "../../../../kernel/iommu_groups/%s", group);
  assert_int_equal(symlink(target, link), 0);
}

/* Configuration space with two extended capabilities, the second of which is access control. */
static void config_write(const char* bridge, unsigned control, size_t bytes) {
  unsigned char config[4096] = {0};
  char path[128];
  config[0x100] = 0x01, config[0x102] = 0x01, config[0x103] = 0x20; /* error reporting, next at 0x200 */
  config[0x200] = 0x0d, config[0x202] = 0x01;                       /* access control, the last */
  config[0x206] = (unsigned char)control, config[0x207] = (unsigned char)(control >> 8);
  snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/config", bridge);
  file_write(path, config, bytes);
}

static int make_root(void** state) {
  static const char text[] =
      "<system version=\"1\"><cpu numaid=\"0\">"
      "<pci busid=\"0000:01:00.0\" class=\"0x060400\"><pci busid=\"0000:02:00.0\" class=\"0x030200\"/></pci>"
      "<pci busid=\"0000:03:00.0\" class=\"0x060400\"><pci busid=\"0000:04:00.0\" "
      "class=\"0x030200\"/></pci></cpu></system>";
  struct topo_error error;
  (void)state;
  snprintf(root, sizeof(root), "/tmp/topo-host-XXXXXX");
  if (mkdtemp(root) == NULL || topo_read_nccl_xml_buffer(text, sizeof(text) - 1, "test", &topo, &error) != 0) return -1;
  for (char** entry = environ; *entry != NULL;) {
    char name[64];
    snprintf(name, sizeof(name), "%.*s", (int)strcspn(*entry, "="), *entry);
    if (strncmp(name, "NCCL_", 5) == 0 || strncmp(name, "ARFUSION_", 9) == 0 || strncmp(name, "CUDA_", 5) == 0) {
      unsetenv(name);
    } else {
      entry++;
    }
  }
  return setenv("HOME", root, 1);
}

static int remove_root(void** state) {
  char command[128];
  (void)state;
  topo_free(topo);
  snprintf(command, sizeof(command), "rm -r %s", root);
  return system(command);
}

static struct host read_host(void) {
  struct host host;
  assert_int_equal(host_read(topo, root, &host), 0);
  return host;
}

static void test_bare(void** state) {
  (void)state;
  struct host host = read_host();
  assert_int_equal(host.iommu_groups, -1);
  assert_int_equal(host.acs.bridges, 2);
  assert_int_equal(host.acs.unreadable, 2);
  assert_int_equal(host.acs.redirects, 0);
  assert_int_equal(host.hypervisor, -1);
  assert_string_equal(host.cpus, "");
  assert_true(host.shm_error != 0);
  assert_int_equal(host.nsettings, 0);
  host_free(&host);
}

static void test_iommu(void** state) {
  (void)state;
  group_write("0000:01:00.0", "7", "identity\n");
  group_write("0000:02:00.0", "8", "DMA-FQ\n");
  group_write("0000:99:00.0", "9", "DMA\n"); /* no GPU's */
  struct host host = read_host();
  assert_int_equal(host.iommu_groups, 2);
  assert_int_equal(host.iommu_translated, 1);
  assert_string_equal(host.iommu_example, "DMA-FQ of group 8");
  host_free(&host);
}

static void test_acs(void** state) {
  (void)state;
  config_write("0000:01:00.0", 0x001d, 4096);
  config_write("0000:03:00.0", 0x0011, 4096);
  struct host host = read_host();
  assert_int_equal(host.acs.unreadable, 0);
  assert_int_equal(host.acs.redirects, 1);
  assert_string_equal(host.acs.example, "0000:01:00.0");
  assert_int_equal(host.acs.control, 0x1d);
  host_free(&host);
  config_write("0000:01:00.0", 0x001d, 64); /* what an ordinary user gets */
  host = read_host();
  assert_int_equal(host.acs.unreadable, 1);
  assert_int_equal(host.acs.redirects, 0);
  host_free(&host);
}

/* Capabilities that point at each other, backwards, or beyond the end. */
static void test_bad_config(void** state) {
  static const unsigned next[] = {0x100, 0x040, 0xffc};
  (void)state;
  for (size_t i = 0; i < sizeof(next) / sizeof(next[0]); i++) {
    unsigned char config[4096] = {0};
    config[0x100] = 1, config[0x102] = (unsigned char)((next[i] & 0xf) << 4),
    config[0x103] = (unsigned char)(next[i] >> 4);
    file_write("/sys/bus/pci/devices/0000:01:00.0/config", config, sizeof(config));
    struct host host = read_host();
    assert_int_equal(host.acs.unreadable, 2);
    host_free(&host);
  }
}

static void test_system(void** state) {
  (void)state;
  text_write("/proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu vme hypervisor sse\n");
  text_write("/proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-3,8\n");
  text_write("/sys/class/dmi/id/product_name", "Virtual Machine\n");
  text_write("/dev/shm/x", "");
  struct host host = read_host();
  assert_int_equal(host.hypervisor, 1);
  assert_string_equal(host.cpus, "0-3,8");
  assert_string_equal(host.product, "Virtual Machine");
  assert_int_equal(host.shm_error, 0);
  assert_true(host.shm_bytes > 0);
  host_free(&host);
}

/* The environment before the file; other people's variables are not looked at. */
static void test_settings(void** state) {
  const char* where;
  char conf[128];
  (void)state;
  text_write("/.nccl.conf", "NCCL_P2P_LEVEL=LOC # forgotten\nNCCL_DEBUG=INFO\nOTHER=1\n");
  setenv("NCCL_DEBUG", "WARN", 1);
  setenv("NCCL_HOSTID", "0xdeadbeef", 1);
  setenv("CUDA_VISIBLE_DEVICES", "GPU-d3977428-7a30,1", 1);
  struct host host = read_host();
  assert_string_equal(host_setting_get(&host, "NCCL_P2P_LEVEL", &where), "LOC");
  snprintf(conf, sizeof(conf), "file %s/.nccl.conf, line 1", root);
  assert_string_equal(where, conf);
  assert_string_equal(host_setting_get(&host, "NCCL_DEBUG", &where), "WARN");
  assert_string_equal(where, "environment");
  assert_null(host_setting_get(&host, "OTHER", NULL));
  assert_null(host_setting_get(&host, "HOME", NULL));
  host_redact(&host);
  assert_string_equal(host_setting_get(&host, "NCCL_HOSTID", NULL), "redacted");
  assert_string_equal(host_setting_get(&host, "CUDA_VISIBLE_DEVICES", NULL), "GPU-xxxxxxxx-xxxx,1");
  host_free(&host);
  setenv("NCCL_SOCKET_IFNAME", "", 1); /* as if not set, which what CUDA takes for a list is not */
  setenv("CUDA_VISIBLE_DEVICES", "", 1);
  host = read_host();
  assert_null(host_setting_get(&host, "NCCL_SOCKET_IFNAME", NULL));
  assert_non_null(host_setting_get(&host, "CUDA_VISIBLE_DEVICES", NULL));
  assert_string_equal(host_setting_get(&host, "CUDA_VISIBLE_DEVICES", NULL), "");
  host_free(&host);
  setenv("NCCL_CONF_FILE", "/no/such/file", 1);
  host = read_host();
  assert_string_equal(host.conf_error, "/no/such/file: No such file or directory");
  assert_null(host_setting_get(&host, "NCCL_P2P_LEVEL", NULL));
  host_free(&host);
}

static void test_uuids(void** state) {
  char text[] = "0,GPU-12ab-CD and MIG-GPU-99-1/2, MIG-7f; GPUS, GPU";
  (void)state;
  redact_uuids(text);
  assert_string_equal(text, "0,GPU-xxxx-xx and MIG-GPU-xx-x/2, MIG-xx; GPUS, GPU");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_root, remove_root)

int main(void) {
  const struct CMUnitTest tests[] = {TEST(test_bare),   TEST(test_iommu),    TEST(test_acs),  TEST(test_bad_config),
                                     TEST(test_system), TEST(test_settings), TEST(test_uuids)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
