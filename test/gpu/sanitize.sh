#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# compute-sanitizer's memcheck and racecheck over short runs on one or two GPUs. Each step has a time limit. Ends with
# `N passed, N failed`; exit 77 where there is no compute-sanitizer.
#
#   bash test/gpu/sanitize.sh [OUTDIR]       OUTDIR: for the logs (a new one). B: the build folder (build)
#
# racecheck needs kernels that it can follow: `make RACECHECK=1 BUILDDIR=$B/racecheck all
# $B/racecheck/test/gpu/test_soak_cuda`.
#
# Ranks are processes in all of it. Under these tools a process may have to wait for the end of each kernel that it
# launches before it can launch another, from whatever thread; a kernel that waits for one of a peer in the same
# process would then wait in vain. With a process for each rank it is only its own launches that a rank waits for. On
# one GPU the processes take turns, so that kernels that wait for each other still go on. (test_cuda_kernels has its
# ranks in one process, so the cases of arfusion-bench stand in for it: every form of a request, with every algorithm.)
#
# `mistake` steps pass if the tool finds the mistake that is made on purpose: that it does look into the ranks'
# processes.
set -u
: "${B:=build}"
out=${1:-$(mktemp -d)}
mkdir -p "$out"
sanitizer=$(PATH=$PATH:/usr/local/cuda/bin command -v compute-sanitizer) || {
  echo "compute-sanitizer is not installed: skipped"
  exit 77
}
passed=0 failed=0
# A rank that the tool slows down is not one that has gone.
export ARFUSION_TIMEOUT=100 ARFUSION_INIT_TIMEOUT=100

# What a tool writes about what it has found.
complaints='Invalid __|Misaligned|Race reported|hazard detected|SUMMARY: [1-9]'

step() { # step NAME LIMIT finds|clean TOOL COMMAND...
  local name=$1 limit=$2 wanted=$3 tool=$4 start=$SECONDS status=0 seen=clean verdict=ok
  shift 4
  local log=$out/sanitize-$name.log options=
  [ $tool = racecheck ] || options="--report-api-errors no" # those are the program's to handle
  timeout -k 5 "$limit" "$sanitizer" --tool "$tool" --target-processes all --error-exitcode 9 --print-limit 20 \
    $options "$@" >"$log" 2>&1 || status=$?
  if grep -q -E "$complaints" "$log"; then seen=finds; fi
  if [ $wanted = clean ] && [ $status != 0 ]; then seen="exit $status"; fi
  if [ "$seen" = $wanted ]; then passed=$((passed + 1)); else failed=$((failed + 1)) verdict=FAILED; fi
  printf '%-28s %s, exit %d, %d s\n' "$name" $verdict $status $((SECONDS - start))
  [ $verdict = ok ] || tail -n 40 "$log"
}

# Small cases of two ranks: one of each pattern, data type and kind of values.
cases=$out/sanitize-cases.json
{
  echo "["
  grep '"nranks": 2,' test/data/cases.json | grep -v '"quant": ' |
    awk -F'"tokens": ' '{ split($2, t, /[^0-9]/); if (t[1] + 0 <= 5) print }' | head -n 8 | sed 's/,$//; $!s/$/,/'
  echo "]"
} >"$cases"

for tool in memcheck racecheck; do
  programs=$B
  [ $tool = memcheck ] || programs=$B/racecheck
  step $tool-mistake 60 finds $tool "$programs/test/gpu/test_soak_cuda" 10 1 2 mistake
  step $tool-soak 120 clean $tool "$programs/test/gpu/test_soak_cuda" 300 1 2 processes
  step $tool-cases 120 clean $tool "$programs/arfusion-bench" check --cases "$cases" --device cuda --ranks-as processes
done
echo "$passed passed, $failed failed"
[ $failed = 0 ]
