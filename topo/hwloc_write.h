/* SPDX-License-Identifier: Apache-2.0
 *
 * hwloc_write.h: the model as hwloc 2 XML, made from nothing else.
 */
#ifndef ARFUSION_TOPO_HWLOC_WRITE_H_
#define ARFUSION_TOPO_HWLOC_WRITE_H_

#include "topo/model.h"

int hwloc_write_model(const struct topo* topo, char** text, size_t* bytes, struct topo_error* error);

#endif
