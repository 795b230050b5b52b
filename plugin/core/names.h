/* SPDX-License-Identifier: Apache-2.0
 *
 * names.h: texts for the ABI's enums. Static memory.
 */
#ifndef ARFUSION_CORE_NAMES_H_
#define ARFUSION_CORE_NAMES_H_

#include <stddef.h>

#include "arfusion_plugin.h"

const char* name_of_reason(arfusionReason_t reason);
/* The same with its value and limit, where it has any, in `text`. */
const char* text_of_reason(char* text, size_t bytes, arfusionReason_t reason, int64_t value, int64_t limit);
const char* key_of_reason(arfusionReason_t reason); /* the enumerator's name: "hidden_alignment" */
const char* name_of_algorithm(arfusionAlgorithm_t algorithm);
/* "unknown ..." for other values. */
const char* name_of_pattern(arfusionPattern_t pattern);
const char* name_of_data_type(arfusionDataType_t dtype);
const char* name_of_quantization(arfusionQuant_t quantization);

#endif
