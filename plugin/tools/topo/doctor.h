/* SPDX-License-Identifier: Apache-2.0
 *
 * doctor.h: the sub-command `doctor`: all checks in one list.
 */
#ifndef ARFUSION_TOPO_DOCTOR_H_
#define ARFUSION_TOPO_DOCTOR_H_

#include "plugin/tools/topo/check.h"

/* Runs all checks and prints them, as text or as JSON. Returns the exit code. */
int doctor_run(const struct check_input* in, int json);

#endif
