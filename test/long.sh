#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# What `make test` leaves out because it takes minutes. Ends with `N passed, N failed`. Environment: MAKE.
set -u
: "${MAKE:=make}"
. test/steps.sh
step model "$MAKE" --no-print-directory test-model
step mutations "$MAKE" --no-print-directory test-mutations
step fuzz "$MAKE" --no-print-directory fuzz
step install "$MAKE" --no-print-directory test-install
steps_end
