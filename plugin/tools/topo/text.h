/* SPDX-License-Identifier: Apache-2.0
 *
 * text.h: what a terminal gets. All of it goes to stdout; whether that worked is seen at the end (main.c).
 */
#ifndef ARFUSION_TOPO_TEXT_H_
#define ARFUSION_TOPO_TEXT_H_

#include "plugin/tools/topo/decide.h"

/* `head`, then the text in lines of up to 100 columns, all but the first one indented by `indent`. Lines end where they
 * are full alone, whatever characters the text has. */
void text_wrapped(const char* head, int indent, const char* text);

/* The first lines: status, path, why, and where all this comes from. */
void text_verdict(const struct topo* topo, const struct decision* decision);

/* The verdict, the matrix, the GPUs, what was found to be wrong. */
void text_overview(const struct topo* topo, const struct decision* decision);

/* "26.562" for 26562 MB/s. */
void text_gb_s(char* text, size_t bytes, int mb_s);

/* CUDA's and NCCL's ways of writing a version as a number: 13000 is 13.0, 22809 is 2.28.9. */
void text_cuda_version(char* text, size_t bytes, int version);

#endif
