/* SPDX-License-Identifier: Apache-2.0
 *
 * names.h: texts for the ABI's enums. Static memory.
 */
#ifndef ARFUSION_CORE_NAMES_H_
#define ARFUSION_CORE_NAMES_H_

#include "arfusion_plugin.h"

const char* name_of_reason(arfusionReason_t reason);
const char* name_of_algorithm(arfusionAlgorithm_t algorithm);

#endif
