#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A long soak: the host device, and where there are GPUs the kernels and the plugin there, in turns until the time is
# over.
#
#   bash test/soak.sh [SECONDS]        3600; the programs must have been made (make programs)
#
# Its short form is in `make test` (test_soak) and in test/gpu/session.sh. The first failure ends it; its seed is
# printed. Ends with `N passed, N failed`; exit 77 if there is nothing to run. B: the build folder (build).
set -u
: "${B:=build}"
end=$((SECONDS + ${1:-3600})) passed=0

turn() { # turn LIMIT COMMAND...: if there is time, and the program; exit 77 counts as nothing
  local limit=$1 status=0
  shift
  [ $SECONDS -lt $end ] && [ -x "$1" ] || return 0
  echo "== $* ($((end - SECONDS)) s left)"
  timeout -k 10 "$limit" "$@" || status=$?
  case $status in
    0) passed=$((passed + 1)) ;;
    77) ;;
    *) echo "$passed passed, 1 failed (exit $status)"; exit 1 ;;
  esac
}

while [ $SECONDS -lt $end ]; do
  turn 600 "$B/test/unit/test_soak" $(((end - SECONDS) / 10 + 5))
  turn 400 "$B/test/unit/test_faults" 1000 $RANDOM
  for ranks in 2 4 8 16; do turn 450 "$B/test/gpu/test_soak_cuda" 20000 $RANDOM $ranks; done
  turn 450 "$B/test/gpu/test_soak_cuda" 20000 $RANDOM 2 processes
  turn 450 "$B/test/gpu/test_communicators_cuda" 60 $RANDOM
  turn 400 "$B/test/gpu/test_watchdog_cuda" 0 $RANDOM
  [ $passed != 0 ] || { echo "nothing of it can run here (make programs)"; exit 77; }
done
echo "$passed passed, 0 failed"
