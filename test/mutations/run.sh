#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Applies each of the given patches to a copy of the sources and runs a test there, which must fail: the one that the
# patch's head names, `Test: PROGRAM [FUNCTION]`, else that of the emulated kernels. PROGRAM is one of test/unit.
# FUNCTION is the cmocka test that must be among those that fail, unless the program dies or does not end. Nothing is
# counted for a test that also fails without a mutation. A patch that does not apply, or does not build, is an error. A
# test whose FUNCTION is skipped (it needs root) proves nothing: the patch is skipped, too. Ends with `N passed, N
# failed, N skipped`. Environment: B (a folder for the copies), MAKE, JOBS (mutations at a time).
set -u
passed=0 failed=0 skipped=0
B=$(realpath -m "${B:-build/mutations}")
jobs=${JOBS:-$(($(nproc) + 1))} # the host code's tests mostly wait

# A mutant need not be free of warnings: what it no longer uses is not the point.
build() { # build CFLAGS PROGRAM...
  local flags=$1
  shift
  "${MAKE:-make}" --no-print-directory -j"$jobs" CUDA=0 WERROR=0 BUILDDIR=build CFLAGS="$flags" "${@/#/build/}"
}

test_of() { # test_of PATCH: its program, and the function if one is named
  local line
  line=$(sed -n '/^---/q; s/^Test: //p' "$1")
  echo "${line:-test/emu/test_emu_kernels}"
}

test_run() { # test_run FOLDER PROGRAM
  (cd "$1" && timeout -k 10 "${TEST_LIMIT:-300}" "build/$2" 2>&1)
}

ignore_flags() { sed -i 's/ -O1 / -O0 /' build/flags/* && touch -d @0 build/flags/*; }

# The sources, built once; copies of it build again only what a patch changes, and quickly: with other flags, which are
# no reason to build the rest again.
base=$B/base
mkdir -p "$base"
programs=$(for patch in "$@"; do test_of "$patch"; done | cut -d ' ' -f 1 | sort -u)
cp -a --parents Makefile include topo kernels plugin test/emu test/gpu test/unit test/data "$base" || exit 1
(cd "$base" && build -O1 $programs) >"$B/base.log" 2>&1 || { cat "$B/base.log"; exit 1; }

unmutated_run() { # unmutated_run PROGRAM
  local log=$B/unmutated-${1##*/}.log
  test_run "$base" "$1" >"$log" || { cat "$log"; echo "FAIL  $1 fails without a mutation"; return 1; }
}

mutation_run() { # mutation_run PATCH: ends with 0 if the test fails as it should
  local name dir log status program function
  name=$(basename "$1" .patch)
  dir=$B/$name log=$B/$name.log
  read -r program function <<<"$(test_of "$1")"
  rm -rf "$dir" && cp -a "$base" "$dir" || return 1
  if ! (cd "$dir" && patch -p1 -s --no-backup-if-mismatch && ignore_flags && build -O0 "$program") \
    <"$1" >"$log" 2>&1; then
    echo "FAIL  $name: does not apply or does not build"; sed 's/^/      /' "$log"
    return 1
  fi
  test_run "$dir" "$program" >"$log"
  status=$?
  rm -rf "$dir"
  case $status in
    0)
      if [ -n "$function" ] && grep -q "^\[  SKIPPED \] $function$" "$log"; then
        echo "SKIP  $name: $function is skipped here"; return 77
      fi
      echo "FAIL  $name: nothing notices"; return 1 ;;
    124 | 137) echo "PASS  $name: does not end"; return 0 ;;
    12[89] | 1[3-9]?) echo "PASS  $name: dies of signal $((status - 128))"; return 0 ;;
  esac
  if [ -z "$function" ]; then
    echo "PASS  $name: $(grep -m 1 -v '^$' "$log")"
  elif grep -q "^\[  FAILED  \] $function$" "$log"; then
    echo "PASS  $name: $function"
  else
    echo "FAIL  $name: $function does not notice"; sed 's/^/      /' "$log"
    return 1
  fi
}

running=0
count() {
  wait -n
  case $? in 0) passed=$((passed + 1)) ;; 77) skipped=$((skipped + 1)) ;; *) failed=$((failed + 1)) ;; esac
  running=$((running - 1))
}
each() { # each FUNCTION ARGUMENT...: a few at a time
  local function=$1 argument
  shift
  for argument in "$@"; do
    [ $running -lt "$jobs" ] || count
    $function "$argument" &
    running=$((running + 1))
  done
  while [ $running -gt 0 ]; do count; done
}

each unmutated_run $programs
[ $failed = 0 ] || exit 1
passed=0
each mutation_run "$@"
echo "$passed passed, $failed failed, $skipped skipped"
[ $failed = 0 ] && [ $passed -gt 0 ]
