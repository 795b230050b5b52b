#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Applies each of the given patches to a copy of the sources and runs the emulated kernels' test there, which must fail.
# A patch that does not apply, or with which the kernels do not build, is an error. Ends with `N passed, N failed`.
# Environment: B (a folder for the copies), MAKE, JOBS (mutations at a time).
set -u
passed=0 failed=0
B=$(realpath -m "${B:-build/mutations}")
# A mutant need not be free of warnings: what it no longer uses is not the point.
build() { # build CFLAGS
  "${MAKE:-make}" --no-print-directory CUDA=0 WERROR=0 BUILDDIR=build CFLAGS="$1" build/test/emu/test_emu_kernels
}

# The sources, built once; copies of it build again only what a patch changes, and quickly.
base=$B/base
mkdir -p "$base"
cp -a --parents Makefile include kernels test/emu test/gpu plugin/tools/bench "$base" || exit 1
(cd "$base" && build -O1) >"$B/base.log" 2>&1 || { cat "$B/base.log"; exit 1; }

mutation_run() { # mutation_run PATCH: ends with 0 if the test fails as it should
  local name dir log status
  name=$(basename "$1" .patch)
  dir=$B/$name log=$B/$name.log
  rm -rf "$dir" && cp -a "$base" "$dir" || return 1
  if ! (cd "$dir" && patch -p1 -s --no-backup-if-mismatch && build -O0) <"$1" >"$log" 2>&1; then
    echo "FAIL  $name: does not apply or does not build"; sed 's/^/      /' "$log"
    return 1
  fi
  timeout -k 10 "${TEST_LIMIT:-300}" "$dir/build/test/emu/test_emu_kernels" >"$log" 2>&1
  status=$?
  rm -rf "$dir"
  case $status in
    0) echo "FAIL  $name: nothing notices"; return 1 ;;
    124 | 137) echo "PASS  $name: does not end" ;;
    *) echo "PASS  $name: $(grep -m 1 -v '^$' "$log")" ;;
  esac
}

running=0
count() { if wait -n; then passed=$((passed + 1)); else failed=$((failed + 1)); fi; running=$((running - 1)); }
for patch in "$@"; do
  [ $running -lt "${JOBS:-2}" ] || count
  mutation_run "$patch" &
  running=$((running + 1))
done
while [ $running -gt 0 ]; do count; done
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed -gt 0 ]
