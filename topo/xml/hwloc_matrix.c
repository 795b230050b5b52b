/* SPDX-License-Identifier: Apache-2.0
 *
 * hwloc_matrix.c: hwloc's NVLinkBandwidth distances: MB/s one way between GPUs, switches and CPUs. Counts of links
 * follow from them only where the bandwidth of one link is known.
 */
#include <stdlib.h>
#include <string.h>

#include "topo/xml/hwloc_read.h"

void hwloc_matrix_free(struct hwloc_matrix* matrix) {
  free(matrix->indexes);
  free(matrix->values);
  memset(matrix, 0, sizeof *matrix);
}

void hwloc_matrix_start(struct xml_reader* xml, struct hwloc_matrix* matrix, const char** attributes) {
  const char* name = xml_attribute(attributes, "name");
  int64_t n = 0;
  matrix->wanted = 0;
  if (!name || strcmp(name, "NVLinkBandwidth") != 0) return;
  if (matrix->n) {
    xml_find(xml, "xml.duplicate", "a second matrix of NVLinks: it is left out");
    return;
  }
  if (xml_integer(xml, attributes, "nbobjs", 1, HWLOC_MOST_MATRIX, &n)) {
    xml_fail(xml, "nbobjs must be from 1 to %d", HWLOC_MOST_MATRIX);
    return;
  }
  matrix->indexes = calloc((size_t)n, sizeof *matrix->indexes);
  matrix->values = calloc((size_t)n * (size_t)n, sizeof *matrix->values);
  if (!matrix->indexes || !matrix->values) {
    xml->builder.out_of_memory = 1;
    xml_fail(xml, "out of memory");
    return;
  }
  matrix->n = (int)n;
  matrix->wanted = 1;
}

static void number_take(struct xml_reader* xml, struct hwloc_matrix* matrix, int is_value) {
  char* end;
  matrix->number[matrix->length] = '\0';
  matrix->length = 0;
  const char* colon = strchr(matrix->number, ':'); /* "OSDev:802" in matrices of several types */
  const char* digits = colon ? colon + 1 : matrix->number;
  const unsigned long long number = strtoull(digits, &end, 10);
  if (end == digits || *end != '\0' || digits[0] == '-') {
    xml_fail(xml, "\"%s\" is not a number", matrix->number);
  } else if (is_value && matrix->nvalues == (size_t)matrix->n * (size_t)matrix->n) {
    xml_fail(xml, "more values than %d x %d", matrix->n, matrix->n);
  } else if (!is_value && matrix->nindexes == matrix->n) {
    xml_fail(xml, "more objects than nbobjs=\"%d\"", matrix->n);
  } else if (is_value) {
    matrix->values[matrix->nvalues++] = number > UINT32_MAX ? UINT32_MAX : (uint32_t)number;
  } else {
    matrix->indexes[matrix->nindexes++] = number;
  }
}

void hwloc_matrix_text(struct xml_reader* xml, struct hwloc_matrix* matrix, int is_value, const char* text, int bytes) {
  if (!matrix->wanted) return;
  if (bytes == 0 && matrix->length) number_take(xml, matrix, is_value);
  for (int i = 0; i < bytes && !xml->failed; ++i) {
    const int space = text[i] == ' ' || text[i] == '\n' || text[i] == '\t' || text[i] == '\r';
    if (space && matrix->length) number_take(xml, matrix, is_value);
    if (space) continue;
    if (matrix->length == HWLOC_MOST_NUMBER) {
      xml_fail(xml, "a number of more than %d characters", HWLOC_MOST_NUMBER);
      return;
    }
    matrix->number[matrix->length++] = text[i];
  }
}

void hwloc_matrix_end(struct xml_reader* xml, struct hwloc_matrix* matrix) {
  if (!matrix->wanted) return;
  matrix->wanted = 0;
  if (matrix->nindexes != matrix->n || matrix->nvalues != (size_t)matrix->n * (size_t)matrix->n) {
    xml_fail(xml, "%d objects and %zu values, nbobjs=\"%d\" needs %zu values", matrix->nindexes, matrix->nvalues,
             matrix->n, (size_t)matrix->n * (size_t)matrix->n);
  }
}

/* ---------------------------------------------------------------- links */

struct applier {
  struct topo_builder* builder;
  const struct hwloc_matrix* matrix;
  struct hwloc_named* ends; /* [n] */
  uint16_t source;
};

static int compare_named(const void* a, const void* b) {
  const uint64_t left = ((const struct hwloc_named*)a)->gp_index, right = ((const struct hwloc_named*)b)->gp_index;
  return left < right ? -1 : left > right;
}

/* What hwloc writes for one link of this GPU; 0: not known. */
static uint32_t megabytes_of_link(const struct topo_gpu* gpu) {
  const struct topo_arch* arch = gpu->sm.state == TOPO_OK ? topo_arch_of_sm(gpu->sm.value) : NULL;
  if (!arch || !arch->nvlink_version) return 0;
  return arch->nvlink_version == 1 ? 20000 : arch->nvlink_version >= 5 ? 50000 : 25000;
}

static void apply_cell(const struct applier* applier, int g, const struct hwloc_named* end, uint32_t value,
                       uint32_t link) {
  struct topo* topo = applier->builder->topo;
  const struct topo_gpu* gpu = &topo->gpus[g];
  const uint32_t count = value / link;
  if (value % link || count > TOPO_MOST_LINKS) {
    topo_find(applier->builder, "nvlink.count", TOPO_FAIL, 0, "u64values",
              "%u MB/s from GPU %s is not a number of NVLinks of %u MB/s, 1 to %d can be: left out", value, gpu->bus_id,
              link, TOPO_MOST_LINKS);
    return;
  }
  switch (end->kind) {
    case HWLOC_NAMED_GPU:
      topo_add_links(applier->builder, g, TOPO_REMOTE_GPU, topo->gpus[end->index].bus_id, (int)count, 0,
                     applier->source);
      break;
    case HWLOC_NAMED_SWITCH:
      topo_add_links(applier->builder, g, TOPO_REMOTE_SWITCH, topo->switches[end->index].bus_id, (int)count, 0,
                     applier->source);
      break;
    case HWLOC_NAMED_CPU:
      topo_add_links(applier->builder, g, TOPO_REMOTE_CPU, "", (int)count, 0, applier->source);
      break;
    case HWLOC_NAMED_OTHER:
      topo_find(applier->builder, "nvlink.target", TOPO_FAIL, 0, "indexes",
                "GPU %s has NVLinks to an object that is not a GPU, a switch or a CPU", gpu->bus_id);
      break;
  }
}

static void apply_row(const struct applier* applier, int row) {
  const struct hwloc_matrix* matrix = applier->matrix;
  struct topo* topo = applier->builder->topo;
  const int g = applier->ends[row].index;
  struct topo_gpu* gpu = &topo->gpus[g];
  const uint32_t* values = &matrix->values[(size_t)row * (size_t)matrix->n];
  const uint32_t link = megabytes_of_link(gpu), itself = values[row];
  int any = 0;
  for (int i = 0; i < matrix->n; ++i) any |= i != row && values[i];
  if (itself && itself != 1000000) {
    topo_find(applier->builder, "nvlink.self", TOPO_FAIL, 0, "u64values",
              "GPU %s has NVLinks to itself, of %u MB/s: they are left out", gpu->bus_id, itself);
  }
  if (!any) return; /* hwloc writes this too when it cannot see where links end */
  if (!link) {
    topo_find(applier->builder, "nvlink.count", TOPO_NOT_OBSERVABLE, 0, "u64values",
              "GPU %s has NVLinks; how many is not known, for its model is not", gpu->bus_id);
    return;
  }
  if (gpu->nvlink_active.state == TOPO_OK) {
    topo_find(applier->builder, "xml.duplicate", TOPO_FAIL, 0, "indexes", "GPU %s stands in the matrix again: left out",
              gpu->bus_id);
    return;
  }
  gpu->nvlink_active = topo_known(0, applier->source);
  gpu->nvlink_speed = topo_known((int32_t)link, applier->source);
  for (int i = 0; i < matrix->n; ++i) {
    if (i != row && values[i]) apply_cell(applier, g, &applier->ends[i], values[i], link);
  }
}

void hwloc_matrix_apply(struct topo_builder* builder, const struct hwloc_matrix* matrix,
                        const struct hwloc_named* named, int nnamed, uint16_t source) {
  const int n = matrix->n;
  struct applier applier = {builder, matrix, calloc((size_t)n + 1, sizeof *applier.ends), source};
  struct hwloc_named* sorted = malloc(((size_t)nnamed + 1) * sizeof *sorted);
  if (!applier.ends || !sorted) {
    builder->out_of_memory = 1;
    goto out;
  }
  if (nnamed) memcpy(sorted, named, (size_t)nnamed * sizeof *sorted);
  qsort(sorted, (size_t)nnamed, sizeof *sorted, compare_named);
  for (int i = 0; i < n; ++i) {
    const struct hwloc_named key = {.gp_index = matrix->indexes[i]};
    const struct hwloc_named* found = bsearch(&key, sorted, (size_t)nnamed, sizeof key, compare_named);
    applier.ends[i] = found ? *found : (struct hwloc_named){.kind = HWLOC_NAMED_OTHER, .index = -1};
  }
  for (int i = 0; i < n; ++i) {
    if (applier.ends[i].kind == HWLOC_NAMED_GPU) apply_row(&applier, i);
    for (int k = 0; k < n && applier.ends[i].kind == HWLOC_NAMED_SWITCH; ++k) {
      if (k != i && matrix->values[(size_t)i * (size_t)n + (size_t)k] && applier.ends[k].kind == HWLOC_NAMED_SWITCH) {
        topo_join_switches(builder->topo, applier.ends[i].index, applier.ends[k].index);
      }
    }
  }
out:
  free(sorted);
  free(applier.ends);
}
