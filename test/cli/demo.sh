# SPDX-License-Identifier: Apache-2.0
# The demo: no progress bar off a terminal, a row for each model and phase, all bits equal.
set -eu
start=$SECONDS
output=$(ARFUSION_DEVICE=host "$B/arfusion-bench" demo)
echo "$output"
[ -n "${SANITIZED:-}" ] || [ $((SECONDS - start)) -lt 60 ]
[ "$(echo "$output" | grep -c ' equal *$')" = 20 ]
! echo "$output" | grep -q $'\r'
