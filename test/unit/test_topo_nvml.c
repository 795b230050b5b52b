/* SPDX-License-Identifier: Apache-2.0
 *
 * test_topo_nvml.c: models from an NVML that answers as machines do: two H200s of a virtual machine, a fabric that
 * is not up, GPUs without NVLink, calls that fail; and the verdicts on them.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "test/unit/fake_nvml.h"

static const struct nvml_library fake = {
    .Init = fake_init,
    .Shutdown = fake_shutdown,
    .ErrorString = fake_error,
    .DeviceGetCount = fake_count,
    .DeviceGetHandleByIndex = fake_handle,
    .DeviceGetPciInfo = fake_pci,
    .DeviceGetNvLinkState = fake_link_state,
    .SystemGetDriverVersion = fake_driver,
    .DeviceGetName = fake_name,
    .DeviceGetUUID = fake_uuid,
    .DeviceGetCudaComputeCapability = fake_sm,
    .DeviceGetMigMode = fake_mig,
    .DeviceGetGpuFabricInfoV = fake_fabric,
    .DeviceGetFieldValues = fake_fields,
    .DeviceGetNvLinkVersion = fake_link_version,
    .DeviceGetNvLinkRemotePciInfo = fake_remote_pci,
    .DeviceGetNvLinkRemoteDeviceType = fake_remote_type,
    .DeviceGetP2PStatus = fake_p2p,
    .DeviceGetTopologyCommonAncestor = fake_ancestor,
};

static struct topo* discover(const struct nvml_library* nvml) {
  static struct nvml_session session;
  struct topo_builder builder;
  struct topo_error error;
  struct topo* topo = NULL;
  assert_int_equal(topo_begin(&builder, TOPO_FROM_LIVE, NULL, &error), 0);
  nvml_read_gpus(&builder, nvml, "there is no NVML", &session);
  topo_derive(&builder);
  nvml_read_pairs(&builder, &session);
  assert_int_equal(topo_finish(&builder, &topo, &error), 0);
  return topo;
}

/* The verdict on the machine as it stands, which is then freed. */
static struct topo_verdict judge(enum topo_level level) {
  struct topo_verdict verdict;
  struct topo* topo = discover(&fake);
  topo_verdict(topo, NULL, 0, level, &verdict);
  topo_free(topo);
  return verdict;
}

/* ---------------------------------------------------------------- tests */

static void test_two_h200(void** state) {
  char cell[8];
  (void)state;
  machine_reset();
  machine.sleeping = 4; /* present all the same */
  struct topo* topo = discover(&fake);
  assert_int_equal(topo->ngpus, 2);
  assert_string_equal(topo->driver, "580.159.04");
  assert_string_equal(topo->gpus[0].bus_id, "0000:00:06.0"); /* by bus id, whatever NVML's order */
  assert_int_equal(topo->gpus[0].nvml.value, 1);
  assert_string_equal(topo->gpus[0].uuid, "GPU-1");
  assert_int_equal(topo->gpus[0].nvlink_active.value, 18);
  assert_int_equal(topo->gpus[0].nvlink_version.value, 4);
  assert_int_equal(topo->gpus[0].clique.value, 7);
  const struct topo_pair* pair = topo_pair(topo, 0, 1);
  topo_pair_cell(topo, 0, 1, cell);
  assert_string_equal(cell, "NV18");
  assert_int_equal(pair->nvlink_raw.value, 18 * 26562);
  assert_string_equal(topo_source(topo, pair->nvlink_raw.source), "nvmlDeviceGetFieldValues(NVLINK_GET_SPEED)");
  assert_string_equal(topo_source(topo, pair->p2p_write.source), "nvmlDeviceGetP2PStatus");
  assert_int_equal(pair->p2p_atomics.state, TOPO_OK);
  assert_int_equal(pair->access.state, TOPO_NOT_OBSERVABLE); /* CUDA was not asked */
  assert_int_equal(pair->pcie.value, TOPO_PCIE_PHB);
  assert_int_equal(topo->nfindings, 0);
  topo_free(topo);
  const struct topo_verdict verdict = judge(TOPO_LEVEL_SYS);
  assert_int_equal(verdict.nvlink.state, TOPO_OK);
  assert_true(verdict.assumed);
  assert_int_equal(verdict.nvlink_count, 18);
  assert_int_equal(verdict.p2p.state, TOPO_OK);
}

/* Its texts are printed: they end no line there, and steer no terminal. */
static void test_texts(void** state) {
  (void)state;
  machine_reset();
  machine.tail = "\n\033[31m";
  struct topo* topo = discover(&fake);
  assert_string_equal(topo->driver, "580.159.04  [31m");
  assert_string_equal(topo->gpus[0].name, "NVIDIA H200  [31m");
  assert_string_equal(topo->gpus[0].uuid, "GPU-1  [31m");
  topo_free(topo);
}

static void test_before_hopper(void** state) {
  (void)state;
  machine_reset();
  machine.sm = 80;
  machine.links = 12;
  struct topo* topo = discover(&fake);
  assert_int_equal(topo->gpus[0].nvlink_active.value, 12);
  assert_string_equal(topo_source(topo, topo->gpus[0].nvlink_active.source), "nvmlDeviceGetNvLinkState");
  topo_free(topo);
}

static void test_no_nvlink(void** state) {
  (void)state;
  machine_reset();
  machine.links = 0;
  const struct topo_verdict verdict = judge(TOPO_LEVEL_SYS);
  assert_int_equal(verdict.nvlink.state, TOPO_FAIL);
  assert_string_equal(verdict.nvlink.why, "no NVLink from GPU 0000:00:06.0 to GPU 0000:00:07.0");
  assert_int_equal(verdict.p2p.state, TOPO_OK); /* over PCIe */
  assert_int_equal(verdict.worst_pcie, TOPO_PCIE_PHB);
}

/* The first pair that breaks it, in the order of the model: NVML's order is the other way round. */
static void test_write_not_supported(void** state) {
  (void)state;
  machine_reset();
  machine.write_status[0][1] = TOPO_P2P_CHIPSET;
  const struct topo_verdict verdict = judge(TOPO_LEVEL_SYS);
  assert_int_equal(verdict.p2p.state, TOPO_FAIL);
  assert_int_equal(verdict.p2p.from, 1);
  assert_int_equal(verdict.p2p.to, 0);
  assert_string_equal(verdict.p2p.why,
                      "P2P write from GPU 0000:00:07.0 to GPU 0000:00:06.0: not supported by the chipset");
  assert_int_equal(verdict.nvlink.state, TOPO_FAIL);
}

static void test_nvlink_there_but_disabled(void** state) {
  (void)state;
  machine_reset();
  machine.nvlink_status = TOPO_P2P_DISABLED;
  const struct topo_verdict verdict = judge(TOPO_LEVEL_SYS);
  assert_int_equal(verdict.nvlink.state, TOPO_FAIL);
  assert_non_null(strstr(verdict.nvlink.why, "disabled by a registry key"));
}

static void test_fabric(void** state) {
  (void)state;
  machine_reset();
  machine.fabric_state = 2;
  struct topo_verdict verdict = judge(TOPO_LEVEL_SYS);
  assert_int_equal(verdict.nvlink.state, TOPO_FAIL);
  assert_string_equal(verdict.nvlink.why, "the NVLink fabric of GPU 0000:00:06.0 is not up: state 2, status 0");
  machine.fabric_state = 3;
  machine.fabric_status = 999;
  verdict = judge(TOPO_LEVEL_SYS);
  assert_int_equal(verdict.nvlink.state, TOPO_FAIL);
  machine.fabric_state = 0; /* there is none */
  assert_int_equal(judge(TOPO_LEVEL_SYS).nvlink.state, TOPO_OK);
}

static void test_unequal_links(void** state) {
  (void)state;
  machine_reset();
  machine.fewer = 1;
  assert_string_equal(judge(TOPO_LEVEL_SYS).nvlink.why,
                      "GPU 0000:00:06.0 has 17 active NVLinks, GPU 0000:00:07.0 has 18");
}

static void test_level(void** state) {
  enum topo_level level;
  (void)state;
  machine_reset();
  assert_int_equal(judge(TOPO_LEVEL_NVL).p2p.state, TOPO_OK);
  assert_int_equal(judge(TOPO_LEVEL_LOC).p2p.state, TOPO_FAIL);
  machine.links = 0;
  assert_int_equal(judge(TOPO_LEVEL_NVL).p2p.state, TOPO_FAIL);
  assert_string_equal(judge(TOPO_LEVEL_PXB).p2p.why,
                      "the path from GPU 0000:00:06.0 to GPU 0000:00:07.0 is PHB, NCCL_P2P_LEVEL=PXB allows less");
  assert_int_equal(judge(TOPO_LEVEL_PHB).p2p.state, TOPO_OK);
  assert_int_equal(topo_level_parse("phb", &level), 0);
  assert_int_equal(level, TOPO_LEVEL_PHB);
  assert_int_equal(topo_level_parse("0", &level), 0);
  assert_int_equal(level, TOPO_LEVEL_LOC);
  assert_int_equal(topo_level_parse("2", &level), 0);
  assert_int_equal(level, TOPO_LEVEL_PXB);
  assert_int_equal(topo_level_parse("12", &level), 0);
  assert_int_equal(level, TOPO_LEVEL_SYS);
  assert_int_equal(topo_level_parse("near", &level), -1);
  assert_int_equal(topo_level_parse("", &level), -1);
  assert_int_equal(topo_level_of_settings(NULL, NULL, &level), 0);
  assert_int_equal(level, TOPO_LEVEL_SYS);
  assert_int_equal(topo_level_of_settings("0", "PIX", &level), 0);
  assert_int_equal(level, TOPO_LEVEL_PIX);
  assert_int_equal(topo_level_of_settings("1", "PIX", &level), 0);
  assert_int_equal(level, TOPO_LEVEL_LOC);
  assert_int_equal(topo_level_of_settings("", "near", &level), -1);
  assert_int_equal(level, TOPO_LEVEL_SYS);
}

static void test_what_does_not_answer(void** state) {
  struct nvml_library old = fake;
  struct topo_verdict verdict;
  (void)state;
  machine_reset();
  struct topo* topo = discover(NULL);
  assert_int_equal(topo->ngpus, 0);
  assert_string_equal(topo->findings[0].id, "nvml.open");
  assert_string_equal(topo->findings[0].text, "there is no NVML");
  topo_verdict(topo, NULL, 0, TOPO_LEVEL_SYS, &verdict);
  assert_int_equal(verdict.p2p.state, TOPO_NOT_OBSERVABLE);
  topo_free(topo);
  machine.init = 9;
  topo = discover(&fake);
  assert_string_equal(topo->findings[0].text, "nvmlInit: an error (9)");
  topo_free(topo);
  machine_reset();
  machine.names_fail = 1;
  topo = discover(&fake);
  assert_string_equal(topo->findings[0].text,
                      "nvmlDeviceGetCudaComputeCapability of GPU 0000:00:07.0: GPU is lost (15)");
  topo_free(topo);
  machine_reset();
  old.DeviceGetP2PStatus = NULL; /* nobody says it: not a guess */
  old.DeviceGetGpuFabricInfoV = NULL;
  old.DeviceGetFieldValues = NULL;
  topo = discover(&old);
  assert_int_equal(topo->gpus[0].nvlink_active.value, 18);
  topo_verdict(topo, NULL, 0, TOPO_LEVEL_SYS, &verdict);
  assert_int_equal(verdict.nvlink.state, TOPO_NOT_OBSERVABLE);
  assert_int_equal(verdict.p2p.state, TOPO_NOT_OBSERVABLE);
  topo_free(topo);
}

static void test_one_wrong_target(void** state) {
  (void)state;
  machine_reset();
  machine.ngpus = 3;
  machine.remote = 0;
  machine.target = "00000000:00:07.0"; /* of the GPU itself, for one of the three */
  struct topo* topo = discover(&fake);
  int self = 0;
  for (int i = 0; i < topo->nfindings; ++i) self += strcmp(topo->findings[i].id, "nvlink.self") == 0;
  assert_int_equal(self, 1);
  assert_int_equal(topo_pair(topo, 0, 1)->nvlink_count.value, 18);
  topo_free(topo);
  assert_int_equal(judge(TOPO_LEVEL_SYS).nvlink.state, TOPO_FAIL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_two_h200),
      cmocka_unit_test(test_texts),
      cmocka_unit_test(test_before_hopper),
      cmocka_unit_test(test_no_nvlink),
      cmocka_unit_test(test_write_not_supported),
      cmocka_unit_test(test_nvlink_there_but_disabled),
      cmocka_unit_test(test_fabric),
      cmocka_unit_test(test_unequal_links),
      cmocka_unit_test(test_level),
      cmocka_unit_test(test_what_does_not_answer),
      cmocka_unit_test(test_one_wrong_target),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
