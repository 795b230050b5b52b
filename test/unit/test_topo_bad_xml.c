/* SPDX-License-Identifier: Apache-2.0
 *
 * test_topo_bad_xml.c: files that are cut off, are not XML, are too deep or too large, or contradict themselves: an
 * error that says where, or a finding; and large machines, which are neither.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "topo/topo.h"

typedef int (*reader)(const char* data, size_t bytes, const char* name, struct topo** out, struct topo_error* error);

#define CPU "<system version=\"1\"><cpu numaid=\"0\">"
#define END_CPU "</cpu></system>"
#define GPU(id, links) \
  "<pci busid=\"" id "\" class=\"0x030200\" vendor=\"0x10de\"><gpu dev=\"0\" sm=\"90\">" links "</gpu></pci>\n"
#define LINK(target, count) "<nvlink target=\"" target "\" count=\"" count "\" tclass=\"0x030200\"/>"
#define MATRIX(n, text) \
  "<topology version=\"2.0\"><distances2 name=\"NVLinkBandwidth\" nbobjs=\"" n "\">" text "</distances2></topology>"

#define NUMA(cpus, nodes, family)                                                                 \
  "<object type=\"NUMANode\" os_index=\"0\" cpuset=\"" cpus "\" nodeset=\"" nodes "\"/><object type=\"Package\">\n" \
  "<info name=\"CPUFamilyNumber\" value=\"" family "\"/></object>"
#define HWLOC_GPU(more) \
  "<object type=\"PCIDev\" " more "pci_busid=\"0000:01:00.0\" pci_type=\"0302 [10de:2335] [10de:18be] a1\"/>"
#define HWLOC_MATRIX(n, indexes, values)                                                                           \
  "<topology>" HWLOC_GPU("gp_index=\"7\" ") "<distances2 name=\"NVLinkBandwidth\" nbobjs=\"" n "\"><indexes>" indexes \
  "</indexes><u64values>" values "</u64values></distances2></topology>"

/* ---------------------------------------------------------------- errors */

struct bad {
  const char* data;
  size_t bytes; /* 0: a string */
  int line;
  const char* element;
  const char* says;
};

static void expect_errors(reader read, const struct bad* bad, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    struct topo* topo = NULL;
    struct topo_error error;
    const size_t bytes = bad[i].bytes ? bad[i].bytes : strlen(bad[i].data);
    if (!read(bad[i].data, bytes, "bad.xml", &topo, &error)) fail_msg("case %zu was read", i);
    assert_null(topo);
    if (!strstr(error.text, bad[i].says)) fail_msg("case %zu says \"%s\", not \"%s\"", i, error.text, bad[i].says);
    if (error.line != bad[i].line) fail_msg("case %zu is in line %d, said is %d", i, bad[i].line, error.line);
    assert_string_equal(error.element, bad[i].element);
    assert_string_equal(error.file, "bad.xml");
    assert_non_null(strstr(error.text, "bad.xml, line "));
  }
}

static void test_nccl_errors(void** state) {
  (void)state;
  static const struct bad cases[] = {
      {"", 0, 1, "", "no element found"},
      {"#!/bin/sh\necho\n", 0, 1, "", "not well-formed"},
      {"\x7f" "ELF\x02\x01\x01\0\0\0", 10, 1, "", "not well-formed"},
      {CPU "\n<pci busid=\"0000:01:00.0\">", 0, 2, "pci", "it is cut off"},
      {CPU "\n<pci busid=\"0000:01", 0, 2, "cpu", "unclosed token"},
      {CPU "\n</system>", 0, 2, "cpu", "mismatched tag"},
      {"<topology/>", 0, 1, "topology", "begins with <system>"},
      {"<system version=\"2\"/>", 0, 1, "system", "version 1 is read"},
      {CPU "\n\n<pci class=\"0x030200\"/>" END_CPU, 0, 3, "pci", "not a PCI bus id"},
      {CPU "<pci busid=\"0000:01:00.0;rm\"/>" END_CPU, 0, 1, "pci", "\"0000:01:00.0;rm\" is not a PCI bus id"},
      {"<?xml version=\"1.0\" encoding=\"KLINGON\"?><system/>", 0, 1, "", "unknown encoding"},
      {"<system version=\"1\">\n<cpu arch=\"\xff\xfe\"/></system>", 0, 2, "system", "not well-formed"},
      {"<!DOCTYPE s [<!ENTITY a \"b\">]><system>&a;</system>", 0, 1, "", "entities"},
  };
  expect_errors(topo_read_nccl_xml_buffer, cases, sizeof cases / sizeof cases[0]);
}

static void test_hwloc_errors(void** state) {
  (void)state;
  static const struct bad cases[] = {
      {"", 0, 1, "", "no element found"},
      {"<system/>", 0, 1, "system", "begins with <topology>"},
      {"<topology>\n<object type=\"Machine\">", 0, 2, "object", "it is cut off"},
      {"<topology>\n<object/></topology>", 0, 2, "object", "without a type"},
      {"<topology>\n<object type=\"PCIDev\" pci_busid=\"zz\"/></topology>", 0, 2, "object", "not a PCI bus id"},
      {MATRIX("0", ""), 0, 1, "distances2", "nbobjs must be from 1 to"},
      {MATRIX("-1", ""), 0, 1, "distances2", "nbobjs must be from 1 to"},
      {MATRIX("1000000000", ""), 0, 1, "distances2", "nbobjs must be from 1 to"},
      {MATRIX("2", "<indexes>1 2</indexes><u64values>1 2 3</u64values>"), 0, 1, "distances2", "needs 4 values"},
      {MATRIX("1", "<indexes>1 2</indexes>"), 0, 1, "indexes", "more objects than"},
      {MATRIX("1", "<indexes>1</indexes><u64values>1 2</u64values>"), 0, 1, "u64values", "more values than"},
      {MATRIX("1", "<indexes>PCIDev:x</indexes>"), 0, 1, "indexes", "is not a number"},
      {MATRIX("1", "<indexes>111111111111111111111111111111111</indexes>"), 0, 1, "indexes", "more than 32 characters"},
  };
  expect_errors(topo_read_hwloc_xml_buffer, cases, sizeof cases / sizeof cases[0]);
}

static void test_deep_and_huge(void** state) {
  static const char open[] = "<pci busid=\"0000:01:00.0\">";
  const reader readers[] = {topo_read_nccl_xml_buffer, topo_read_hwloc_xml_buffer};
  const size_t bytes = TOPO_MOST_XML_BYTES + 100;
  char* text = malloc(bytes);
  struct topo* topo = NULL;
  struct topo_error error;
  (void)state;
  assert_non_null(text);
  for (int r = 0; r < 2; ++r) {
    size_t at = (size_t)sprintf(text, "%s", r ? "<topology>" : "<system>");
    const size_t start = at;
    while (at + sizeof open < 100000) at += (size_t)sprintf(text + at, "%s", open);
    assert_int_equal(readers[r](text, at, "deep.xml", &topo, &error), -1);
    assert_non_null(strstr(error.text, "nested deeper than 128"));
    memset(text + start, ' ', bytes - start);
    assert_int_equal(readers[r](text, bytes, "huge.xml", &topo, &error), -1);
    assert_non_null(strstr(error.text, "larger than 32 MiB"));
  }
  free(text);
}

static void test_no_file(void** state) {
  struct topo* topo = NULL;
  struct topo_error error;
  (void)state;
  assert_int_equal(topo_read_nccl_xml("test/data/none.xml", &topo, &error), -1);
  assert_string_equal(error.text, "test/data/none.xml cannot be opened: No such file or directory");
  assert_int_equal(topo_read_hwloc_xml("test/data", &topo, &error), -1);
  assert_non_null(strstr(error.text, "Is a directory"));
}

/* ---------------------------------------------------------------- contradictions */

struct odd {
  reader read;
  const char* data;
  const char* id;
  int line;
  const char* says;
  int ngpus;
};

static const struct odd odd_cases[] = {
    {topo_read_nccl_xml_buffer, CPU GPU("0000:01:00.0", "\n" LINK("0000:01:00.0", "4")) END_CPU, "nvlink.self", 2,
     "GPU 0000:01:00.0 has 4 NVLinks to itself", 1},
    {topo_read_nccl_xml_buffer, CPU GPU("0000:01:00.0", LINK("0000:09:00.0", "4")) END_CPU, "nvlink.target", 0,
     "4 NVLinks to 0000:09:00.0, which is not there", 1},
    {topo_read_nccl_xml_buffer, CPU GPU("0000:01:00.0", LINK("0000:02:00.0", "0")) GPU("0000:02:00.0", "") END_CPU,
     "nvlink.count", 1, "count=\"0\"", 2},
    {topo_read_nccl_xml_buffer, CPU GPU("0000:01:00.0", LINK("0000:02:00.0", "-1")) GPU("0000:02:00.0", "") END_CPU,
     "nvlink.count", 1, "count=\"-1\"", 2},
    {topo_read_nccl_xml_buffer,
     CPU GPU("0000:01:00.0", LINK("0000:02:00.0", "1000000000")) GPU("0000:02:00.0", "") END_CPU, "nvlink.count", 1,
     "count=\"1000000000\"", 2},
    {topo_read_nccl_xml_buffer, CPU GPU("0000:01:00.0", LINK("0000:02:00.0", "4x")) GPU("0000:02:00.0", "") END_CPU,
     "nvlink.count", 1, "count=\"4x\"", 2},
    {topo_read_nccl_xml_buffer,
     CPU GPU("0000:01:00.0", LINK("0000:02:00.0", "4")) GPU("0000:02:00.0", LINK("0000:01:00.0", "2")) END_CPU,
     "nvlink.lopsided", 0, "has 4 NVLinks to GPU 0000:02:00.0, which has 2 back", 2},
    {topo_read_nccl_xml_buffer, CPU GPU("0000:01:00.0", "") GPU("0:01:00.0", "") END_CPU, "xml.duplicate", 2,
     "0000:01:00.0 stands here again", 1},
    {topo_read_nccl_xml_buffer, CPU "</cpu>\n<cpu numaid=\"0\">" END_CPU, "xml.duplicate", 2, "NUMA node 0", 0},
    {topo_read_nccl_xml_buffer, CPU "<frob/>" END_CPU, "xml.element", 1, "<frob> in <cpu>", 0},
    {topo_read_nccl_xml_buffer, CPU "<pci busid=\"0000:01:00.0\" link_width=\"many\"/>" END_CPU, "xml.value", 1,
     "link_width=\"many\"", 0},
    {topo_read_nccl_xml_buffer, CPU "<pci busid=\"0000:01:00.0\" link_speed=\"fast\"/>" END_CPU, "xml.value", 1,
     "link_speed=\"fast\"", 0},
    {topo_read_nccl_xml_buffer, "<system><cpu affinity=\"xyz\"/></system>", "xml.value", 1, "affinity=\"xyz\"", 0},
    {topo_read_hwloc_xml_buffer, "<topology>" NUMA("junk", "0x1", "6") "</topology>", "xml.value", 1,
     "cpuset=\"junk\"", 0},
    {topo_read_hwloc_xml_buffer, "<topology>" NUMA(",0x1", "0x1", "6") "</topology>", "xml.value", 1,
     "cpuset=\",0x1\"", 0},
    {topo_read_hwloc_xml_buffer, "<topology>" NUMA("0x1", "0x1;", "6") "</topology>", "xml.value", 1,
     "nodeset=\"0x1;\"", 0},
    {topo_read_hwloc_xml_buffer, "<topology>" NUMA("0x1", "0x1", "6th") "</topology>", "xml.value", 2,
     "CPUFamilyNumber=\"6th\"", 0},
    {topo_read_hwloc_xml_buffer, "<topology>" HWLOC_GPU("") "\n" HWLOC_GPU("") "</topology>", "xml.duplicate", 2,
     "0000:01:00.0 stands here again", 1},
    {topo_read_hwloc_xml_buffer, HWLOC_MATRIX("1", "7", "25000"), "nvlink.self", 0, "to itself", 1},
    {topo_read_hwloc_xml_buffer, HWLOC_MATRIX("2", "7 8", "0 25000 0 0"), "nvlink.target", 0,
     "not a GPU, a switch or a CPU", 1},
    {topo_read_hwloc_xml_buffer, HWLOC_MATRIX("2", "7 8", "0 1234 0 0"), "nvlink.count", 0, "1234 MB/s", 1},
};

static void test_findings(void** state) {
  (void)state;
  for (size_t i = 0; i < sizeof odd_cases / sizeof odd_cases[0]; ++i) {
    struct topo* topo = NULL;
    struct topo_error error;
    const struct odd* odd = &odd_cases[i];
    if (odd->read(odd->data, strlen(odd->data), "odd.xml", &topo, &error)) fail_msg("case %zu: %s", i, error.text);
    if (topo->ngpus != odd->ngpus) fail_msg("case %zu has %d GPUs", i, topo->ngpus);
    int found = 0;
    for (int f = 0; f < topo->nfindings; ++f) {
      const struct topo_finding* finding = &topo->findings[f];
      found |= strcmp(finding->id, odd->id) == 0 && finding->line == odd->line && strstr(finding->text, odd->says);
    }
    if (!found) {
      fail_msg("case %zu has %d findings, the first: %s %d %s", i, topo->nfindings,
               topo->nfindings ? topo->findings[0].id : "", topo->nfindings ? topo->findings[0].line : 0,
               topo->nfindings ? topo->findings[0].text : "");
    }
    topo_free(topo);
  }
}

/* What NCCL dumps where NVLink joins hosts has all of them in it, with the same bus ids. One is shown, and it is said
 * which; nothing of the others counts. */
static void test_two_hosts(void** state) {
#define HOST(hash, numa, id)                                                                          \
  "<cpu host_hash=\"" hash "\" numaid=\"" numa "\">" GPU(id, LINK("0000:02:00.0", "4"))                \
      "<nic><net name=\"eth0\"/></nic></cpu>\n"
  static const char text[] =
      "<system>\n" HOST("0xfedcba9876543210", "0", "0000:01:00.0") HOST("0x2", "0", "0000:01:00.0")
      HOST("0xFEDCBA9876543210", "1", "0000:02:00.0") HOST("0x2", "1", "0000:02:00.0")
      HOST("0x3", "0", "0000:01:00.0") "<cpu host_hash=\"0x1z\" numaid=\"2\"/></system>";
  struct topo* topo = NULL;
  struct topo_error error;
  (void)state;
  assert_int_equal(topo_read_nccl_xml_buffer(text, sizeof text - 1, "hosts.xml", &topo, &error), 0);
  assert_int_equal(topo->ngpus, 2);
  assert_int_equal(topo->nnics, 2);
  assert_int_equal(topo->nnumas, 3);
  assert_int_equal(topo->numas[topo->gpus[1].numa].id, 1);
  assert_string_equal(topo->findings[0].id, "xml.hosts");
  assert_int_equal(topo->findings[0].state, TOPO_NOT_OBSERVABLE);
  assert_int_equal(topo->findings[0].line, 4);
  assert_string_equal(topo->findings[0].text,
                      "the file holds several hosts: the first, from line 2 on, is shown; the one from line 4 on, with "
                      "another host_hash, and any more are left out");
  int hosts = 0, values = 0;
  for (int i = 0; i < topo->nfindings; ++i) {
    hosts += strcmp(topo->findings[i].id, "xml.hosts") == 0;
    values += strcmp(topo->findings[i].id, "xml.value") == 0;
  }
  assert_int_equal(hosts, 1);
  assert_int_equal(values, 1); /* 0x1z */
  topo_free(topo);
}

/* hwloc's sets without an end are sets: of a machine of which no node is known. */
static void test_infinite_sets(void** state) {
  static const char text[] = "<topology>" NUMA("0xf...f", "0xf...f,0xfffffffe", "6") "</topology>";
  struct topo* topo = NULL;
  struct topo_error error;
  (void)state;
  assert_int_equal(topo_read_hwloc_xml_buffer(text, sizeof text - 1, "infinite.xml", &topo, &error), 0);
  assert_int_equal(topo->nfindings, 0);
  assert_null(topo->numas[0].cpus);
  topo_free(topo);
}

/* What is left out does not count: no GPU has a link here. */
static void test_left_out(void** state) {
  static const char text[] = CPU GPU("0000:01:00.0", LINK("0000:01:00.0", "4") LINK("0000:02:00.0", "0"))
      GPU("0000:02:00.0", LINK("0000:01:00.0", "-1")) END_CPU;
  struct topo* topo = NULL;
  struct topo_error error;
  struct topo_verdict verdict;
  (void)state;
  assert_int_equal(topo_read_nccl_xml_buffer(text, sizeof text - 1, "odd.xml", &topo, &error), 0);
  topo_verdict(topo, NULL, 0, TOPO_LEVEL_SYS, &verdict);
  assert_int_equal(topo->gpus[0].nvlink_active.value, 0);
  assert_int_equal(verdict.nvlink.state, TOPO_FAIL);
  topo_free(topo);
}

/* Links in the wild that end at nothing that is seen (virtual machines): all to all is concluded, and called
 * assumed. */
static void test_hidden_switches(void** state) {
  static const char hidden[] = CPU GPU("0000:01:00.0", "<nvlink target=\"fffffff:ff:ff.0\" count=\"18\"/>")
      GPU("0000:02:00.0", "<nvlink target=\"fffffff:ff:ff.0\" count=\"18\" tclass=\"0x068000\"/>") END_CPU;
  static const char unequal[] = CPU GPU("0000:01:00.0", "<nvlink target=\"fffffff:ff:ff.0\" count=\"12\"/>")
      GPU("0000:02:00.0", "<nvlink target=\"fffffff:ff:ff.0\" count=\"18\"/>") END_CPU;
  struct topo* topo = NULL;
  struct topo_error error;
  struct topo_verdict verdict;
  (void)state;
  assert_int_equal(topo_read_nccl_xml_buffer(hidden, sizeof hidden - 1, "vm.xml", &topo, &error), 0);
  topo_verdict(topo, NULL, 0, TOPO_LEVEL_SYS, &verdict);
  assert_int_equal(verdict.nvlink.state, TOPO_OK);
  assert_int_equal(verdict.nvlink_count, 18);
  assert_true(verdict.assumed);
  assert_int_equal(topo_pair(topo, 0, 1)->via, TOPO_VIA_HIDDEN_SWITCH);
  topo_free(topo);
  assert_int_equal(topo_read_nccl_xml_buffer(unequal, sizeof unequal - 1, "vm.xml", &topo, &error), 0);
  topo_verdict(topo, NULL, 0, TOPO_LEVEL_SYS, &verdict);
  assert_int_equal(verdict.nvlink.state, TOPO_FAIL);
  assert_string_equal(verdict.nvlink.why, "GPU 0000:01:00.0 has 12 active NVLinks, GPU 0000:02:00.0 has 18");
  topo_free(topo);
}

/* ---------------------------------------------------------------- large machines */

static char* machine_of(int ngpus, size_t* bytes) {
  char* text = NULL;
  FILE* stream = open_memstream(&text, bytes);
  assert_non_null(stream);
  fputs("<system version=\"1\"><cpu numaid=\"0\" affinity=\"ff\">\n", stream);
  for (int g = 0; g < ngpus; ++g) {
    fprintf(stream, "<pci busid=\"%04x:%02x:00.0\" class=\"0x030200\"><gpu dev=\"%d\" sm=\"90\">", g / 200, g % 200, g);
    for (int s = 0; s < 9; ++s)
      fprintf(stream, "<nvlink target=\"ffee:%02x:00.0\" count=\"2\" tclass=\"0x068000\"/>", s);
    fputs("</gpu></pci>\n", stream);
  }
  fputs("</cpu></system>\n", stream);
  fclose(stream);
  return text;
}

static void test_300_gpus(void** state) {
  size_t bytes;
  struct topo* topo = NULL;
  struct topo_error error;
  struct topo_verdict verdict;
  (void)state;
  char* text = machine_of(300, &bytes);
  assert_int_equal(topo_read_nccl_xml_buffer(text, bytes, "large.xml", &topo, &error), 0);
  free(text);
  assert_int_equal(topo->ngpus, 300);
  topo_verdict(topo, NULL, 0, TOPO_LEVEL_SYS, &verdict);
  assert_int_equal(verdict.nvlink.state, TOPO_OK);
  assert_int_equal(verdict.nvlink_count, 18);
  assert_int_equal(topo_write_hwloc_xml(topo, &text, &bytes, &error), 0);
  topo_free(topo);
  assert_int_equal(topo_read_hwloc_xml_buffer(text, bytes, "large.xml", &topo, &error), 0);
  assert_int_equal(topo->ngpus, 300);
  assert_int_equal(topo_pair(topo, 299, 0)->nvlink_count.value, 18);
  topo_free(topo);
  free(text);
}

static void test_too_many_gpus(void** state) {
  size_t bytes;
  struct topo* topo = NULL;
  struct topo_error error;
  (void)state;
  char* text = machine_of(TOPO_MOST_GPUS + 1, &bytes);
  assert_int_equal(topo_read_nccl_xml_buffer(text, bytes, "large.xml", &topo, &error), -1);
  assert_string_equal(error.text, "large.xml, line 1026, in <pci>: more than 1024 GPUs");
  free(text);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_nccl_errors),   cmocka_unit_test(test_hwloc_errors),
      cmocka_unit_test(test_deep_and_huge), cmocka_unit_test(test_no_file),
      cmocka_unit_test(test_findings),      cmocka_unit_test(test_left_out),
      cmocka_unit_test(test_two_hosts),     cmocka_unit_test(test_infinite_sets),
      cmocka_unit_test(test_hidden_switches), cmocka_unit_test(test_300_gpus),
      cmocka_unit_test(test_too_many_gpus),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
