#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs the given test programs and scripts one after the other. Exit 0 passes, 77 skips, anything else (also a run past
# its time limit) fails. What a unit test skips of its functions is counted, too.
# Ends with `N passed, N failed, N skipped`; exit 1 if one failed. Environment: B, TEST_LIMIT, SKIPS (a list of what
# may be skipped; any other skip fails. Unset: all may).
passed=0 failed=0 skipped=0

skip() { # skip NAME WHAT
  if [ -z "${SKIPS:-}" ] || grep -qxF -e "$1: $2" -e "*: $2" "$SKIPS"; then
    skipped=$((skipped + 1)); printf 'SKIP  %s: %s\n' "$1" "$2"
  else
    failed=$((failed + 1)); printf 'FAIL  %s: %s: a skip that is not in %s\n' "$1" "$2" "$SKIPS"
  fi
}

for test in "$@"; do
  name=${test#"$B"/}
  log=$(mktemp)
  start=$SECONDS
  case $test in
    *.sh) timeout -k 10 "${TEST_LIMIT:-600}" bash "$test" >"$log" 2>&1 ;;
    *) timeout -k 10 "${TEST_LIMIT:-600}" "$test" >"$log" 2>&1 ;;
  esac
  status=$?
  seconds=$((SECONDS - start))
  case $status in
    0) passed=$((passed + 1)); printf 'PASS  %s (%d s)\n' "$name" "$seconds" ;;
    77) skip "$name" "$(tail -n 1 "$log")" ;;
    *)
      failed=$((failed + 1)); printf 'FAIL  %s (exit %d, %d s)\n' "$name" "$status" "$seconds"
      sed 's/^/      /' "$log" ;;
  esac
  for function in $(sed -n 's/^\[  SKIPPED \] \([A-Za-z_0-9]*\)$/\1/p' "$log" | sort -u); do
    skip "$name" "$function"
  done
  rm -f "$log"
done
printf '%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
[ "$failed" = 0 ]
