/* SPDX-License-Identifier: Apache-2.0
 *
 * hwloc_read.h: the two halves of the hwloc XML reader: the objects (hwloc_read.c) and the NVLink matrix between them
 * (hwloc_matrix.c).
 */
#ifndef ARFUSION_TOPO_XML_HWLOC_READ_H_
#define ARFUSION_TOPO_XML_HWLOC_READ_H_

#include "topo/xml/parse.h"

/* An object that a matrix can name, by its gp_index. */
struct hwloc_named {
  uint64_t gp_index;
  enum { HWLOC_NAMED_GPU, HWLOC_NAMED_SWITCH, HWLOC_NAMED_CPU, HWLOC_NAMED_OTHER } kind;
  int index; /* of the GPU or switch */
};

enum { HWLOC_MOST_MATRIX = 1280, HWLOC_MOST_NUMBER = 32 };

struct hwloc_matrix {
  int wanted;     /* the element we are in is a matrix of NVLinks */
  int n, nindexes;
  size_t nvalues;
  uint64_t* indexes; /* [n] */
  uint32_t* values;  /* [n * n], MB/s from row to column; more than 32 bits is cut */
  char number[HWLOC_MOST_NUMBER + 1]; /* the one being read; text comes in pieces */
  int length;
};

/* <distances2> or <distances2hetero>: begins a matrix if it is one of NVLinks. */
void hwloc_matrix_start(struct xml_reader* xml, struct hwloc_matrix* matrix, const char** attributes);
/* Text within <indexes> (is_value 0) or <u64values> (1); bytes 0 ends it. */
void hwloc_matrix_text(struct xml_reader* xml, struct hwloc_matrix* matrix, int is_value, const char* text, int bytes);
/* Its end: the matrix is whole. */
void hwloc_matrix_end(struct xml_reader* xml, struct hwloc_matrix* matrix);
/* After all objects: the links of the GPUs in it. */
void hwloc_matrix_apply(struct topo_builder* builder, const struct hwloc_matrix* matrix,
                        const struct hwloc_named* named, int nnamed, uint16_t source);
void hwloc_matrix_free(struct hwloc_matrix* matrix);

#endif
