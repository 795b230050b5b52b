/* SPDX-License-Identifier: Apache-2.0
 *
 * test_topo_files.c: the topology files of test/data/topologies give the answers that are known of these machines,
 * also after having been written and read again, in either format.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "topo/topo.h"

#define FOLDER "test/data/topologies/"

typedef int (*reader)(const char* path, struct topo** out, struct topo_error* error);
typedef int (*buffer_reader)(const char* data, size_t bytes, const char* name, struct topo** out,
                             struct topo_error* error);
typedef int (*writer)(const struct topo* topo, char** text, size_t* bytes, struct topo_error* error);

static struct topo* read_file(reader read, const char* path) {
  struct topo* topo = NULL;
  struct topo_error error;
  if (read(path, &topo, &error)) fail_msg("%s", error.text);
  return topo;
}

static struct topo* write_and_read(const struct topo* topo, writer write, buffer_reader read) {
  struct topo* again = NULL;
  struct topo_error error;
  char* text;
  size_t bytes;
  if (write(topo, &text, &bytes, &error)) fail_msg("%s", error.text);
  assert_int_equal(bytes, strlen(text));
  if (read(text, bytes, "again.xml", &again, &error)) fail_msg("%s", error.text);
  free(text);
  return again;
}

static void expect_cell(const struct topo* topo, int from, int to, const char* cell) {
  char text[8];
  topo_pair_cell(topo, from, to, text);
  if (strcmp(text, cell) != 0) fail_msg("GPU %d to %d: %s, expected %s", from, to, text, cell);
}

static struct topo_verdict verdict_of(const struct topo* topo) {
  struct topo_verdict verdict;
  topo_verdict(topo, NULL, 0, TOPO_LEVEL_SYS, &verdict);
  assert_int_equal(verdict.p2p.state, TOPO_NOT_OBSERVABLE); /* no file says it */
  assert_true(verdict.p2p.why[0] != '\0');
  return verdict;
}

/* Runs `check` on the machine, which ends here, and on what is read from what is written of it. */
static void in_all_forms(struct topo* topo, void (*check)(const struct topo* topo)) {
  struct topo* hwloc = write_and_read(topo, topo_write_hwloc_xml, topo_read_hwloc_xml_buffer);
  struct topo* nccl = write_and_read(topo, topo_write_nccl_xml, topo_read_nccl_xml_buffer);
  assert_int_equal(topo->nfindings + hwloc->nfindings + nccl->nfindings, 0);
  check(topo);
  check(hwloc);
  check(nccl);
  topo_free(topo);
  topo_free(hwloc);
  topo_free(nccl);
}

/* ---------------------------------------------------------------- the machines */

static void check_dgx2(const struct topo* topo) {
  assert_int_equal(topo->ngpus, 16);
  assert_int_equal(topo->nswitches, 12);
  for (int a = 0; a < 16; ++a) {
    assert_int_equal(topo->gpus[a].nvlink_active.value, 6);
    assert_int_equal(topo->gpus[a].sm.value, 70);
    for (int b = 0; b < 16; ++b) {
      expect_cell(topo, a, b, a == b ? "X" : "NV6");
      if (a != b) assert_int_equal(topo_pair(topo, a, b)->via, TOPO_VIA_SWITCH);
    }
  }
  /* Two boards: GPUs 0 to 7 at one CPU, and two at each PCIe switch. */
  assert_int_equal(topo_pair(topo, 0, 1)->pcie.value, TOPO_PCIE_PIX);
  assert_int_equal(topo_pair(topo, 0, 2)->pcie.value, TOPO_PCIE_PXB);
  assert_int_equal(topo_pair(topo, 0, 4)->pcie.value, TOPO_PCIE_NODE);
  assert_int_equal(topo_pair(topo, 0, 8)->pcie.value, TOPO_PCIE_SYS);
  const struct topo_verdict verdict = verdict_of(topo);
  assert_int_equal(verdict.nvlink.state, TOPO_OK);
  assert_int_equal(verdict.nvlink_count, 6);
  assert_true(verdict.assumed); /* the boards' switches are linked, and no GPU shows it */
}

static void test_dgx2(void** state) {
  (void)state;
  in_all_forms(read_file(topo_read_hwloc_xml, FOLDER "hwloc-dgx2.xml"), check_dgx2);
  struct topo* topo = read_file(topo_read_hwloc_xml, FOLDER "hwloc-dgx2.xml");
  assert_string_equal(topo->gpus[0].bus_id, "0000:34:00.0");
  assert_string_equal(topo->gpus[0].uuid, "GPU-d3977428-7a30-086b-2e20-5c1eeed647c6");
  assert_string_equal(topo->gpus[0].serial, "0321019030775");
  assert_string_equal(topo->gpus[0].name, "Tesla V100-SXM3-32GB-H");
  assert_int_equal(topo->gpus[0].nvml.value, 0);
  assert_int_equal(topo->gpus[0].cuda.state, TOPO_NOT_OBSERVABLE);
  assert_int_equal(topo_pair(topo, 0, 15)->nvlink_raw.value, 150000);
  assert_int_equal(topo_pair(topo, 0, 15)->nvlink_effective.value, 120000);
  assert_string_equal(topo_source(topo, topo_pair(topo, 0, 15)->nvlink_raw.source), FOLDER "hwloc-dgx2.xml");
  topo_free(topo);
}

static void check_power8(const struct topo* topo) {
  assert_int_equal(topo->ngpus, 4);
  assert_int_equal(topo->nnumas, 2);
  for (int a = 0; a < 4; ++a) {
    for (int b = 0; b < 4; ++b) {
      const struct topo_pair* pair = topo_pair(topo, a, b);
      expect_cell(topo, a, b, a == b ? "X" : a / 2 == b / 2 ? "NV2" : "SYS");
      if (a / 2 == b / 2 && a != b) {
        assert_int_equal(pair->nvlink_raw.value, 40000);
        assert_int_equal(pair->via, TOPO_VIA_DIRECT);
      }
    }
    assert_int_equal(topo->gpus[a].nvlink_active.value, 4); /* two of them to the CPU */
  }
  assert_string_equal(topo->numas[1].cpus, "80-81,88-89,96-97,104-105");
  const struct topo_verdict verdict = verdict_of(topo);
  assert_int_equal(verdict.nvlink.state, TOPO_FAIL);
  assert_int_equal(verdict.nvlink.from, 0);
  assert_int_equal(verdict.nvlink.to, 2);
  assert_string_equal(verdict.nvlink.why, "no NVLink from GPU 0002:01:00.0 to GPU 000a:01:00.0");
  assert_int_equal(verdict.worst_pcie, TOPO_PCIE_SYS);
}

static void test_power8(void** state) {
  (void)state;
  in_all_forms(read_file(topo_read_hwloc_xml, FOLDER "hwloc-power8-4gpu.xml"), check_power8);
}

static void check_hgx_h200(const struct topo* topo) {
  assert_int_equal(topo->ngpus, 8);
  assert_int_equal(topo->nswitches, 4);
  for (int a = 0; a < 8; ++a) {
    assert_int_equal(topo->numas[topo->gpus[a].numa].id, a / 4);
    assert_int_equal(topo->gpus[a].sm.value, 90);
    for (int b = 0; b < 8; ++b) {
      const struct topo_pair* pair = topo_pair(topo, a, b);
      expect_cell(topo, a, b, a == b ? "X" : "NV18");
      assert_string_equal(topo_pair_nccl_path(topo, a, b), a == b ? "LOC" : "NVL");
      if (a == b) continue;
      assert_int_equal(pair->pcie.value, a / 4 == b / 4 ? TOPO_PCIE_NODE : TOPO_PCIE_SYS);
      assert_int_equal(pair->nvlink_version.value, 4);
      assert_int_equal(pair->nvlink_raw.value, 18 * 26562);
      assert_int_equal(pair->nvlink_effective.value, 18 * 20600);
    }
  }
  assert_string_equal(topo->numas[0].cpus, "0-95");
  assert_string_equal(topo->numas[1].cpus, "96-191");
  const struct topo_verdict verdict = verdict_of(topo);
  assert_int_equal(verdict.nvlink.state, TOPO_OK);
  assert_int_equal(verdict.nvlink_count, 18);
  assert_false(verdict.assumed);
}

static void test_hgx_h200(void** state) {
  (void)state;
  in_all_forms(read_file(topo_read_nccl_xml, FOLDER "nccl-hgx-h200-8.xml"), check_hgx_h200);
}

static void check_vm(const struct topo* topo) {
  static const char* const cells[4][4] = {
      {"X", "PIX", "SYS", "SYS"}, {"PIX", "X", "SYS", "SYS"}, {"SYS", "SYS", "X", "PIX"}, {"SYS", "SYS", "PIX", "X"}};
  assert_int_equal(topo->ngpus, 4);
  assert_int_equal(topo->nnics, 4);
  for (int a = 0; a < 4; ++a) {
    assert_int_equal(topo->gpus[a].nvlink_active.state, TOPO_NOT_OBSERVABLE);
    for (int b = 0; b < 4; ++b) {
      expect_cell(topo, a, b, cells[a][b]);
      if (a != b) assert_int_equal(topo_pair(topo, a, b)->nvlink_count.state, TOPO_NOT_OBSERVABLE);
    }
  }
  assert_int_equal(verdict_of(topo).nvlink.state, TOPO_NOT_OBSERVABLE);
}

static void test_vm_without_gpu_elements(void** state) {
  (void)state;
  in_all_forms(read_file(topo_read_nccl_xml, FOLDER "nccl-vm-4x2-nogpu.xml"), check_vm);
}

/* ---------------------------------------------------------------- what is not known stays so */

static struct topo* read_nccl(const char* text) {
  struct topo* topo = NULL;
  struct topo_error error;
  if (topo_read_nccl_xml_buffer(text, strlen(text), "unknown.xml", &topo, &error)) fail_msg("%s", error.text);
  return topo;
}

static void expect_nowhere(const struct topo* topo) {
  assert_int_equal(topo->ngpus, 2);
  for (int g = 0; g < 2; ++g) {
    const struct topo_gpu* gpu = &topo->gpus[g];
    if (gpu->numa >= 0 && (topo->numas[gpu->numa].id >= 0 || topo->numas[gpu->numa].cpus)) {
      fail_msg("GPU %d is at NUMA node %d (%s)", g, topo->numas[gpu->numa].id, topo->numas[gpu->numa].cpus);
    }
    assert_int_equal(gpu->nvml.state, TOPO_NOT_OBSERVABLE);
    assert_int_equal(topo->devices[gpu->device].link_width.state, TOPO_NOT_OBSERVABLE);
    expect_cell(topo, g, 1 - g, "?");
  }
}

#define GPU_ALONE(id, width) "<pci busid=\"" id "\" class=\"0x030200\"" width "><gpu/></pci>"
#define NOWHERE             \
  "<cpu numaid=\"-1\">" GPU_ALONE("0000:01:00.0", "") GPU_ALONE("0000:02:00.0", " link_width=\"0\"") "</cpu>"

/* A node is known, and the GPUs are not at it. */
static void check_gpus_nowhere(const struct topo* topo) {
  int found = 0;
  expect_nowhere(topo);
  for (int i = 0; i < topo->nnumas; ++i) {
    const struct topo_numa* numa = &topo->numas[i];
    if (numa->id != -1 || numa->cpus) found += numa->id == 0 && strcmp(numa->cpus, "0-1") == 0 ? 1 : 100;
  }
  assert_int_equal(found, 1);
}

/* No node is known: none is made up, though hwloc wants one, with a processor. */
static void check_no_node(const struct topo* topo) {
  expect_nowhere(topo);
  for (int i = 0; i < topo->nnumas; ++i) {
    assert_int_equal(topo->numas[i].id, -1);
    assert_null(topo->numas[i].cpus);
  }
}

/* Numbers with gaps; whose processors and vendor are not known for one, and the number not for another. */
static void check_nodes(const struct topo* topo) {
  int found = 0;
  assert_int_equal(topo->nnumas, 3);
  for (int i = 0; i < 3; ++i) {
    const struct topo_numa* numa = &topo->numas[i];
    if (numa->id == 0 && strcmp(numa->cpus, "0-3") == 0 && strcmp(numa->vendor, "AuthenticAMD") == 0) found |= 1;
    if (numa->id == 8 && !numa->cpus && !numa->vendor[0]) found |= 2;
    if (numa->id == -1 && strcmp(numa->cpus, "4-7") == 0 && !numa->vendor[0] && numa->family == -1) found |= 4;
  }
  assert_int_equal(found, 7);
  assert_int_equal(topo->ngpus, 2);
  assert_string_equal(topo->numas[topo->gpus[0].numa].cpus, "0-3");
  assert_string_equal(topo->numas[topo->gpus[1].numa].cpus, "4-7");
}

static void test_unknown_stays_unknown(void** state) {
  (void)state;
  in_all_forms(read_nccl("<system><cpu numaid=\"0\" affinity=\"3\"/>" NOWHERE "</system>"), check_gpus_nowhere);
  in_all_forms(read_nccl("<system>" NOWHERE "</system>"), check_no_node);
  in_all_forms(read_nccl("<system><cpu numaid=\"-1\" affinity=\"\"/>" NOWHERE "</system>"), check_no_node);
  in_all_forms(read_nccl("<system><cpu numaid=\"0\" affinity=\"f\" vendor=\"AuthenticAMD\" familyid=\"25\">" GPU_ALONE(
                   "0000:01:00.0", "") "</cpu><cpu numaid=\"8\"/><cpu numaid=\"-1\" affinity=\"f0\">" GPU_ALONE(
                   "0000:02:00.0", "") "</cpu></system>"),
               check_nodes);
}

/* A GPU by its <gpu> alone, without a class: hwloc's form has nothing but classes to tell one by. */
static void check_classless(const struct topo* topo) { assert_int_equal(topo->ngpus, 1); }

static void test_gpu_without_class(void** state) {
  (void)state;
  in_all_forms(read_nccl("<system><cpu numaid=\"0\"><pci busid=\"0000:01:00.0\"><gpu/></pci></cpu></system>"),
               check_classless);
}

/* ---------------------------------------------------------------- this machine, whatever it is */

static void test_live(void** state) {
  struct topo *topo = NULL, *again;
  struct topo_error error;
  (void)state;
  if (topo_discover_live(TOPO_USE_ALL, &topo, &error)) fail_msg("%s", error.text);
  assert_true(topo->host[0] != '\0');
  assert_true(topo->nnumas >= 1);
  assert_non_null(topo->numas[0].cpus);
  assert_true(topo->numas[0].arch[0] != '\0');
  for (int g = 0; g < topo->ngpus; ++g) assert_int_equal(topo_gpu_by_bus_id(topo, topo->gpus[g].bus_id), g);
  for (int i = 0; i < topo->nfindings; ++i) assert_true(topo->findings[i].text[0] != '\0');
  again = write_and_read(topo, topo_write_hwloc_xml, topo_read_hwloc_xml_buffer);
  assert_int_equal(again->ngpus, topo->ngpus);
  assert_int_equal(again->nnumas, topo->nnumas);
  assert_string_equal(again->numas[0].cpus, topo->numas[0].cpus);
  topo_free(again);
  again = write_and_read(topo, topo_write_nccl_xml, topo_read_nccl_xml_buffer);
  assert_int_equal(again->ngpus, topo->ngpus);
  assert_string_equal(again->numas[0].cpus, topo->numas[0].cpus);
  topo_free(again);
  topo_free(topo);
  assert_int_equal(topo_discover_live(0, &topo, &error), 0); /* nobody is asked */
  assert_int_equal(topo->ngpus + topo->nnumas + topo->nfindings, 0);
  topo_free(topo);
}

/* ---------------------------------------------------------------- hwloc 1 and hwloc 3 */

#define GPU_OF_HWLOC(version_of_pci_type)                                                                  \
  "<object type=\"Bridge\" bridge_type=\"0-1\" bridge_pci=\"0000:[00-ff]\">"                                 \
  "<object type=\"PCIDev\" pci_busid=\"0000:01:00.0\" pci_type=\"0302 [10de:1db8] [10de:131d] a1" version_of_pci_type \
  "\"><object type=\"OSDev\" name=\"cuda0\" osdev_type=\"5\"/></object></object>"

static void test_other_versions_of_hwloc(void** state) {
  static const char* const texts[] = {
      /* 1: NUMA nodes are in the tree. */
      "<topology><object type=\"Machine\"><object type=\"NUMANode\" os_index=\"1\" cpuset=\"0x0000000c\" "
      "nodeset=\"0x00000002\">" GPU_OF_HWLOC("") "</object></object></topology>",
      /* 3: the interface follows the revision. */
      "<topology version=\"3.0\"><object type=\"Machine\"><object type=\"Package\" cpuset=\"0x0000000c\" "
      "nodeset=\"0x00000002\"><object type=\"NUMANode\" os_index=\"1\" cpuset=\"0x0000000c\" "
      "nodeset=\"0x00000002\"/>" GPU_OF_HWLOC(" 00") "</object></object></topology>"};
  (void)state;
  for (int i = 0; i < 2; ++i) {
    struct topo* topo = NULL;
    struct topo_error error;
    if (topo_read_hwloc_xml_buffer(texts[i], strlen(texts[i]), "other.xml", &topo, &error)) fail_msg("%s", error.text);
    assert_int_equal(topo->nfindings, 0);
    assert_int_equal(topo->ngpus, 1);
    assert_int_equal(topo->gpus[0].sm.value, 70);
    assert_int_equal(topo->gpus[0].cuda.value, 0);
    assert_int_equal(topo->numas[topo->gpus[0].numa].id, 1);
    assert_string_equal(topo->numas[topo->gpus[0].numa].cpus, "2-3");
    assert_true(topo_numa_has_cpu(&topo->numas[0], 3));
    assert_false(topo_numa_has_cpu(&topo->numas[0], 4));
    topo_free(topo);
  }
}

/* ---------------------------------------------------------------- redaction */

static void test_redact(void** state) {
  struct topo_error error;
  char* text;
  size_t bytes;
  (void)state;
  struct topo* topo = read_file(topo_read_hwloc_xml, FOLDER "hwloc-dgx2.xml");
  topo_redact(topo);
  assert_int_equal(topo_write_hwloc_xml(topo, &text, &bytes, &error), 0);
  assert_null(strstr(text, "GPU-d3977428"));
  assert_null(strstr(text, "0321019030775"));
  assert_non_null(strstr(text, "Tesla V100"));
  free(text);
  topo_free(topo);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_dgx2),
      cmocka_unit_test(test_power8),
      cmocka_unit_test(test_hgx_h200),
      cmocka_unit_test(test_vm_without_gpu_elements),
      cmocka_unit_test(test_unknown_stays_unknown),
      cmocka_unit_test(test_gpu_without_class),
      cmocka_unit_test(test_live),
      cmocka_unit_test(test_other_versions_of_hwloc),
      cmocka_unit_test(test_redact),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
