/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_runtime_api.h: the same functions by CUDA's other name.
 */
#include "test/emu/cuda_runtime.h"
