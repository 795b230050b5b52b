/* SPDX-License-Identifier: Apache-2.0
 *
 * The doctor's checks: a healthy machine of four GPUs behind an NVSwitch is broken in each of the ways that users have
 * met, and the check that is there for it says so, with evidence and a remedy; all others stay as they were.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "plugin/tools/topo/check.h"
#include "plugin/tools/topo/odd.h"

#define GPUS 4
#define MIB ((uint64_t)1 << 20)

static struct topo* topo;
static struct host host;

static const struct topo_fact yes = {.value = 1, .state = TOPO_OK}, none = {0};
static struct topo_fact known(int value) { return (struct topo_fact){.value = value, .state = TOPO_OK}; }
static struct topo_fact failed(int value) { return (struct topo_fact){.value = value, .state = TOPO_FAIL}; }

/* What NVML and CUDA would have said, added to what the file says. */
static void make_live(void) {
  topo->origin = TOPO_FROM_LIVE;
  snprintf(topo->driver, sizeof(topo->driver), "580.1");
  topo->cuda_driver = topo->cuda_runtime = known(13000);
  for (int i = 0; i < GPUS; i++) {
    struct topo_gpu* gpu = &topo->gpus[i];
    gpu->cuda = gpu->nvml = known(i);
    gpu->mig = known(0);
    gpu->fabric = known(3);
    gpu->fabric_status = gpu->clique = known(0);
    for (int to = 0; to < GPUS; to++) {
      struct topo_pair* pair = &topo->pairs[i * GPUS + to];
      pair->p2p_read = pair->p2p_write = pair->p2p_nvlink = pair->p2p_atomics = known(TOPO_P2P_OK);
      pair->access = yes;
    }
  }
}

static int make_machine(void** state) {
  static char text[8192];
  struct topo_error error;
  (void)state;
  text[0] = '\0';
  tool_append(text, sizeof(text), "<system version=\"1\"><cpu numaid=\"0\" affinity=\"0000000f\">");
  for (int i = 0; i < GPUS; i++) {
    tool_append(text, sizeof(text),
                "<pci busid=\"0000:0%d:00.0\" class=\"0x060400\" link_width=\"16\"><pci busid=\"0000:1%d:00.0\" "
                "class=\"0x030200\" "
                "link_speed=\"32.0 GT/s PCIe\" link_width=\"16\"><gpu dev=\"%d\" sm=\"90\" rank=\"%d\" gdr=\"1\">"
                "<nvlink target=\"0000:c0:00.0\" count=\"9\" tclass=\"0x068000\"/>"
                "<nvlink target=\"0000:c1:00.0\" count=\"9\" tclass=\"0x068000\"/></gpu></pci></pci>",
                i + 1, i + 1, i, i);
  }
  tool_append(text, sizeof(text), "</cpu></system>");
  if (topo_read_nccl_xml_buffer(text, strlen(text), "test.xml", &topo, &error) != 0 || topo->ngpus != GPUS) return -1;
  make_live();
  memset(&host, 0, sizeof(host));
  host.shm_bytes = host.shm_free = 16384 * MIB;
  host.iommu_groups = 8;
  host.acs.bridges = GPUS;
  host.nccl_version = 22809;
  snprintf(host.nccl, sizeof(host.nccl), "ncclGetVersion of libnccl.so.2: 22809");
  snprintf(host.cpus, sizeof(host.cpus), "0-3");
  return 0;
}

static int free_machine(void** state) {
  (void)state;
  topo_free(topo);
  host_free(&host);
  return 0;
}

static void set(const char* name, const char* value) {
  struct host_setting* grown = realloc(host.settings, (size_t)(host.nsettings + 1) * sizeof(*grown));
  assert_non_null(grown);
  host.settings = grown;
  struct host_setting* setting = &grown[host.nsettings++];
  snprintf(setting->name, sizeof(setting->name), "%s", name);
  snprintf(setting->value, sizeof(setting->value), "%s", value);
  snprintf(setting->where, sizeof(setting->where), "environment");
}

static struct topo_pair* pair_of(int from, int to) { return &topo->pairs[from * GPUS + to]; }

static struct check run(check_fn fn) {
  static struct decision decision;
  struct check check;
  decide(topo, &host, &decision);
  const struct check_input input = {.topo = topo, .host = &host, .decision = &decision};
  memset(&check, 0, sizeof(check));
  fn(&input, &check);
  assert_true(check.evidence[0] != '\0');
  return check;
}

static void expect_ok(check_fn fn) {
  struct check check = run(fn);
  if (check.status != CHECK_OK) fail_msg("status %d: %s", check.status, check.evidence);
}

static void expect_bad(check_fn fn, enum check_status status, const char* evidence) {
  struct check check = run(fn);
  if (check.status != status) fail_msg("status %d: %s", check.status, check.evidence);
  if (strstr(check.evidence, evidence) == NULL) fail_msg("'%s' is not in '%s'", evidence, check.evidence);
  assert_true(check.meaning[0] != '\0' && check.remedy[0] != '\0');
}

static enum tool_status verdict(void) {
  struct decision decision;
  decide(topo, &host, &decision);
  return decision.status;
}

/* ---------------------------------------------------------------- tests */

static void test_healthy(void** state) {
  static const check_fn all[] = {
      check_driver_version,  check_cuda_version,      check_cuda_start,   check_nccl_version, check_gpu_visible,
      check_gpu_order,       check_gpu_arch,          check_gpu_mig,      check_nvlink_links, check_nvlink_targets,
      check_nvlink_symmetry, check_nvlink_all_to_all, check_fabric_state, check_p2p_access,   check_p2p_nvlink,
      check_p2p_atomics,     check_pci_acs,           check_pci_width,    check_pci_tree,     check_numa_affinity,
      check_iommu_type,      check_shm_size,          check_env_nccl,     check_env_arfusion};
  (void)state;
  for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) expect_ok(all[i]);
  assert_int_equal(verdict(), TOOL_GOOD);
}

/* What cannot be known without trying is said to be so, with where to try it. */
static void test_never_guessed(void** state) {
  (void)state;
  expect_bad(check_p2p_functional, CHECK_NOT_OBSERVABLE, "writing and reading back");
  assert_string_equal(run(check_p2p_functional).remedy, "arfusion-topo probe");
  expect_bad(check_nvlink_multicast, CHECK_NOT_OBSERVABLE, "multicast");
  assert_non_null(strstr(run(check_nvlink_multicast).meaning, "401"));
}

/* Every ordered pair counts, not the first peer alone. */
static void test_no_access(void** state) {
  (void)state;
  pair_of(3, 1)->p2p_write = failed(TOPO_P2P_CHIPSET);
  expect_bad(check_p2p_access, CHECK_FAIL,
             "write fails for 1 of 12 ordered pairs, first from GPU3 (0000:14:00.0) to GPU1");
  assert_int_equal(verdict(), TOOL_UNUSABLE);
  pair_of(3, 1)->p2p_write = known(TOPO_P2P_OK);
  pair_of(0, 2)->access = failed(0);
  expect_bad(check_p2p_access, CHECK_FAIL, "CUDA peer access fails for 1 of 12");
}

static void test_nvlink_disabled(void** state) {
  (void)state;
  for (int i = 0; i < GPUS * GPUS; i++) topo->pairs[i].p2p_nvlink = failed(TOPO_P2P_DISABLED);
  expect_bad(check_p2p_nvlink, CHECK_FAIL, "fails for 12 of 12");
  assert_non_null(strstr(run(check_p2p_nvlink).remedy, "NVreg_RegistryDwords"));
}

static void test_no_nvlink(void** state) {
  (void)state;
  for (int i = 0; i < GPUS; i++) {
    topo->gpus[i].nlinks = 0;
    topo->gpus[i].nvlink_active = known(0);
  }
  for (int i = 0; i < GPUS * GPUS; i++) topo->pairs[i].nvlink_count = known(0);
  expect_bad(check_nvlink_all_to_all, CHECK_WARN, "no NVLink from GPU 0000:11:00.0 to GPU 0000:12:00.0");
  assert_int_equal(run(check_nvlink_links).status, CHECK_WARN);
  assert_int_equal(verdict(), TOOL_DEGRADED);
  host.acs.redirects = 1; /* peers now meet on PCIe */
  expect_bad(check_pci_acs, CHECK_FAIL, "redirect");
}

static void test_lost_links(void** state) {
  (void)state;
  topo->gpus[2].links[0].count = 8;
  topo->gpus[2].links[0].inactive = 1;
  topo->gpus[2].nvlink_active = known(17);
  expect_bad(check_nvlink_links, CHECK_FAIL,
             "GPU2 (0000:13:00.0) has 17 active NVLinks and 1 that are not active, most GPUs have 18");
  unsigned char* odd = odd_find(topo, NULL);
  assert_int_equal(odd[2], ODD_LINK_COUNT);
  assert_int_equal(odd[0] | odd[1] | odd[3], 0);
  free(odd);
}

/* One GPU of several links to something else. */
static void test_wrong_target(void** state) {
  int usual;
  (void)state;
  topo->gpus[1].links[1].target_switch = -1;
  topo->gpus[1].links[1].remote = TOPO_REMOTE_UNKNOWN;
  snprintf(topo->gpus[1].links[1].target, TOPO_BUS_ID_BYTES, "0000:ee:00.0");
  expect_bad(check_nvlink_targets, CHECK_FAIL, "GPU1 (0000:12:00.0) has NVLinks to switches as no other GPU has");
  assert_non_null(strstr(run(check_nvlink_targets).evidence, "9 to 0000:c0:00.0, 9 to 0000:ee:00.0"));
  unsigned char* odd = odd_find(topo, &usual);
  assert_int_equal(odd[1], ODD_LINK_TARGETS | ODD_LINK_LOST);
  assert_int_equal(usual, 18);
  free(odd);
}

static void test_fabric(void** state) {
  (void)state;
  topo->gpus[3].fabric = failed(2);
  expect_bad(check_fabric_state, CHECK_FAIL, "state 2 (in progress)");
  assert_non_null(strstr(run(check_fabric_state).meaning, "802"));
  topo->gpus[3].fabric = known(3);
  topo->gpus[3].clique = known(5);
  expect_bad(check_fabric_state, CHECK_FAIL, "another cluster or clique");
  for (int i = 0; i < GPUS; i++) topo->gpus[i].fabric = none;
  assert_int_equal(run(check_fabric_state).status, CHECK_NOT_OBSERVABLE);
}

static void test_acs(void** state) {
  (void)state;
  host.acs.redirects = 2;
  host.acs.control = 0x1d;
  snprintf(host.acs.example, sizeof(host.acs.example), "0000:01:00.0");
  expect_bad(
      check_pci_acs, CHECK_WARN,
      "2 of 4 bridges above GPUs redirect peer requests (ReqRedir+), first 0000:01:00.0: ACS control register 0x001d");
  assert_non_null(strstr(run(check_pci_acs).remedy, "setpci -s 0000:01:00.0 ECAP_ACS+0x6.w=0000"));
  host.acs.redirects = 0;
  host.acs.unreadable = 4;
  assert_int_equal(run(check_pci_acs).status, CHECK_NOT_OBSERVABLE);
}

static void test_iommu(void** state) {
  (void)state;
  host.iommu_translated = 3;
  snprintf(host.iommu_example, sizeof(host.iommu_example), "DMA-FQ of group 12");
  expect_bad(check_iommu_type, CHECK_WARN,
             "3 of 8 IOMMU groups of GPUs and bridges translate, first DMA-FQ of group 12");
  assert_non_null(strstr(run(check_iommu_type).remedy, "iommu=pt"));
}

static void test_shm(void** state) {
  (void)state;
  host.shm_bytes = host.shm_free = 64 * MIB; /* docker's default */
  expect_bad(check_shm_size, CHECK_WARN, "64 MiB free of 64");
  host.shm_free = MIB;
  expect_bad(check_shm_size, CHECK_FAIL, "1 MiB free of 64");
  host.shm_error = 2;
  expect_bad(check_shm_size, CHECK_FAIL, "No such file");
}

static void test_environment(void** state) {
  (void)state;
  set("NCCL_P2P_LEVEL", "LOC");
  expect_bad(check_env_nccl, CHECK_FAIL, "NCCL_P2P_LEVEL=LOC (environment)");
  assert_int_equal(verdict(), TOOL_UNUSABLE);
  snprintf(host.settings[0].value, sizeof(host.settings[0].value), "NVL");
  expect_bad(check_env_nccl, CHECK_WARN, "NCCL_P2P_LEVEL=NVL");
  assert_int_equal(verdict(), TOOL_GOOD); /* all pairs have NVLink */
  snprintf(host.settings[0].value, sizeof(host.settings[0].value), "fast");
  expect_bad(check_env_nccl, CHECK_WARN, "NCCL_P2P_LEVEL=fast");
  set("NCCL_P2P_DISABLE", "1");
  expect_bad(check_env_nccl, CHECK_FAIL, "NCCL_P2P_DISABLE=1");
  assert_int_equal(verdict(), TOOL_UNUSABLE);
}

static void test_environment_file(void** state) {
  (void)state;
  set("NCCL_TOPO_FILE", "/no/such/file.xml");
  expect_bad(check_env_nccl, CHECK_WARN, "NCCL_TOPO_FILE=/no/such/file.xml");
  host.nsettings = 0;
  snprintf(host.conf_error, sizeof(host.conf_error), "/no/conf: No such file");
  expect_bad(check_env_nccl, CHECK_WARN, "no NCCL_ variable");
}

static void test_turned_off(void** state) {
  static const char* const settings[][2] = {
      {"ARFUSION_DEVICE", "host"}, {"ARFUSION_ALGO", "NONE"}, {"ARFUSION_PLUGIN", "none"}};
  (void)state;
  for (int i = 0; i < 3; i++) {
    host.nsettings = 0;
    set(settings[i][0], settings[i][1]);
    expect_bad(check_env_arfusion, CHECK_WARN, settings[i][0]);
    assert_int_equal(verdict(), TOOL_UNUSABLE);
  }
}

static void test_wrong_setting(void** state) {
  (void)state;
  set("ARFUSION_ALGOS", "twoshot");
  expect_bad(check_env_arfusion, CHECK_WARN, "ARFUSION_ALGOS=twoshot");
  set("ARFUSION_DEVICE", "host");
  assert_int_equal(run(check_env_arfusion).status, CHECK_WARN);
  assert_string_equal(run(check_env_arfusion).remedy, "unset ARFUSION_DEVICE");
  set("ARFUSION_ALGO", "ring");
  expect_bad(check_env_arfusion, CHECK_FAIL, "ARFUSION_ALGO=ring");
  assert_string_equal(run(check_env_arfusion).remedy, "unset ARFUSION_ALGO, or correct it");
  assert_non_null(strstr(run(check_env_arfusion).meaning, "oneshot_lamport oneshot_sync twoshot"));
}

static void test_gpus(void** state) {
  (void)state;
  topo->gpus[1].mig = failed(1);
  expect_bad(check_gpu_mig, CHECK_FAIL, "MIG is on for GPU1 (0000:12:00.0)");
  assert_int_equal(verdict(), TOOL_UNUSABLE);
  topo->gpus[1].mig = known(0);
  topo->gpus[1].sm = known(75);
  assert_int_equal(run(check_gpu_arch).status, CHECK_FAIL);
  assert_int_equal(verdict(), TOOL_UNUSABLE);
}

/* CUDA's order is another than NVML's: nothing is broken, but it must be said. */
static void test_order(void** state) {
  (void)state;
  topo->gpus[0].cuda = known(1);
  topo->gpus[1].cuda = known(0);
  expect_ok(check_gpu_order);
  assert_string_equal(run(check_gpu_order).evidence, "0000:11:00.0 is CUDA device 1 and nvidia-smi's GPU 0");
}

static void test_visible(void** state) {
  (void)state;
  set("CUDA_VISIBLE_DEVICES", "2");
  for (int i = 1; i < GPUS; i++) topo->gpus[i].cuda = none;
  expect_bad(check_gpu_visible, CHECK_WARN, "4 GPUs: NVML shows 4, CUDA 1; CUDA_VISIBLE_DEVICES=2 (environment)");
}

/* A program built without CUDA has not asked it, so it says nothing of what CUDA shows. */
static void test_visible_without_cuda(void** state) {
  char text[] = "this program was built without CUDA";
  struct topo_finding finding = {.id = "cuda.open", .state = TOPO_NOT_OBSERVABLE, .text = text};
  (void)state;
  topo->cuda_runtime = topo->cuda_driver = none;
  for (int i = 0; i < GPUS; i++) topo->gpus[i].cuda = none;
  topo->findings = &finding;
  topo->nfindings = 1;
  const struct check visible = run(check_gpu_visible), version = run(check_cuda_version);
  topo->findings = NULL;
  topo->nfindings = 0;
  assert_int_equal(visible.status, CHECK_NOT_OBSERVABLE);
  assert_string_equal(visible.evidence, "4 GPUs: NVML shows 4; this program was built without CUDA");
  assert_int_equal(version.status, CHECK_NOT_OBSERVABLE);
  assert_string_equal(version.evidence, text);
}

/* Set to nothing it hides every GPU, as -1 does. */
static void test_visible_none(void** state) {
  (void)state;
  set("CUDA_VISIBLE_DEVICES", "");
  for (int i = 0; i < GPUS; i++) topo->gpus[i].cuda = none;
  expect_bad(check_gpu_visible, CHECK_WARN, "4 GPUs: NVML shows 4, CUDA 0; CUDA_VISIBLE_DEVICES= (environment)");
  host.nsettings = 0;
  set("CUDA_VISIBLE_DEVICES", "-1");
  expect_bad(check_gpu_visible, CHECK_WARN, "CUDA 0; CUDA_VISIBLE_DEVICES=-1 (environment)");
}

static void test_versions(void** state) {
  (void)state;
  topo->cuda_driver = known(12080);
  expect_bad(check_cuda_version, CHECK_FAIL, ": 12.8; the CUDA runtime here: 13.0");
  topo->cuda_driver = none;
  assert_int_equal(run(check_cuda_version).status, CHECK_NOT_OBSERVABLE);
  topo->driver[0] = '\0';
  expect_bad(check_driver_version, CHECK_FAIL, "NVML does not say");
  host.nccl_version = 0;
  assert_int_equal(run(check_nccl_version).status, CHECK_NOT_OBSERVABLE);
}

/* The Fabric Manager is down: NVML shows the GPUs, CUDA does not start. */
static void test_cuda_fails(void** state) {
  char text[] = "cudaGetDeviceCount: system not yet initialized (802)";
  struct topo_finding finding = {.id = "cuda.open", .state = TOPO_NOT_OBSERVABLE, .text = text};
  (void)state;
  for (int i = 0; i < GPUS; i++) topo->gpus[i].cuda = none;
  assert_int_equal(topo->nfindings, 0);
  topo->findings = &finding;
  topo->nfindings = 1;
  expect_bad(check_cuda_start, CHECK_FAIL, "(802)");
  assert_non_null(strstr(run(check_cuda_start).remedy, "nvidia-fabricmanager"));
  assert_int_equal(verdict(), TOOL_UNUSABLE);
  topo->cuda_runtime = none; /* built without CUDA: nobody asked */
  assert_int_equal(run(check_cuda_start).status, CHECK_NOT_OBSERVABLE);
  assert_int_equal(verdict(), TOOL_GOOD);
  topo->findings = NULL;
  topo->nfindings = 0;
}

/* With some GPUs hidden from CUDA, those that are shown count. */
static void test_some_shown(void** state) {
  (void)state;
  topo->gpus[3].cuda = none;
  pair_of(3, 1)->p2p_write = failed(TOPO_P2P_CHIPSET);
  assert_int_equal(verdict(), TOOL_GOOD);
  topo->gpus[1].cuda = topo->gpus[2].cuda = none;
  assert_int_equal(verdict(), TOOL_UNUSABLE); /* one GPU a process: all of them count */
}

static void test_pcie(void** state) {
  (void)state;
  topo->devices[topo->gpus[2].device].link_width = known(8);
  expect_bad(check_pci_width, CHECK_WARN, "GPU2 (0000:13:00.0) has x8, GPU0 (0000:11:00.0) has x16");
  for (int i = 0; i < GPUS; i++) topo->devices[topo->gpus[i].device].parent = -1;
  host.hypervisor = 1;
  expect_bad(check_pci_tree, CHECK_NOT_OBSERVABLE, "of 4 GPUs 4 are in the PCI tree, 0 below a bridge");
  assert_non_null(strstr(run(check_pci_tree).remedy, "NCCL_TOPO_FILE"));
}

static void test_affinity(void** state) {
  (void)state;
  snprintf(host.cpus, sizeof(host.cpus), "4-7,12");
  expect_bad(check_numa_affinity, CHECK_WARN, "may only run on CPUs 4-7,12 (/proc/self/status), and GPU0's are 0-3");
}

/* A machine that is not here: what a file does not say is not observable. */
static void test_offline(void** state) {
  static const check_fn live[] = {check_cuda_version, check_cuda_start,     check_nccl_version, check_gpu_order,
                                  check_fabric_state, check_p2p_functional, check_pci_acs,      check_iommu_type,
                                  check_shm_size,     check_env_nccl,       check_env_arfusion};
  struct decision decision;
  struct check check;
  (void)state;
  topo->origin = TOPO_FROM_NCCL_XML;
  decide(topo, NULL, &decision);
  assert_int_equal(decision.status, TOOL_GOOD);
  for (size_t i = 0; i < sizeof(live) / sizeof(live[0]); i++) {
    memset(&check, 0, sizeof(check));
    live[i](&(struct check_input){.topo = topo, .decision = &decision}, &check);
    assert_int_equal(check.status, CHECK_NOT_OBSERVABLE);
  }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_machine, free_machine)

int main(void) {
  const struct CMUnitTest tests[] = {TEST(test_healthy),
                                     TEST(test_never_guessed),
                                     TEST(test_no_access),
                                     TEST(test_nvlink_disabled),
                                     TEST(test_no_nvlink),
                                     TEST(test_lost_links),
                                     TEST(test_wrong_target),
                                     TEST(test_fabric),
                                     TEST(test_acs),
                                     TEST(test_iommu),
                                     TEST(test_shm),
                                     TEST(test_environment),
                                     TEST(test_environment_file),
                                     TEST(test_turned_off),
                                     TEST(test_wrong_setting),
                                     TEST(test_gpus),
                                     TEST(test_cuda_fails),
                                     TEST(test_some_shown),
                                     TEST(test_order),
                                     TEST(test_visible),
                                     TEST(test_visible_without_cuda),
                                     TEST(test_visible_none),
                                     TEST(test_versions),
                                     TEST(test_pcie),
                                     TEST(test_affinity),
                                     TEST(test_offline)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
