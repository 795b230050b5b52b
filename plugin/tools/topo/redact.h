/* SPDX-License-Identifier: Apache-2.0
 *
 * redact.h: what --redact takes out of texts that are not part of the model (topo_redact does that).
 */
#ifndef ARFUSION_TOPO_REDACT_H_
#define ARFUSION_TOPO_REDACT_H_

/* Writes x over the hexadecimal digits of every GPU-... and MIG-... UUID, also of a beginning of one, as
 * CUDA_VISIBLE_DEVICES takes it. */
void redact_uuids(char* text);

#endif
