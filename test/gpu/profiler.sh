#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The plugin as NCCL's profiler under programs that know nothing of it, on two GPUs or one (cases.sh): PyTorch, and
# nccl-tests where they are built (NCCL_TESTS: the folder of all_reduce_perf). They run as before, the report has the
# calls that they made, and steps of 160 allreduces take as long as without.
#
#   B=build bash test/gpu/profiler.sh OUTDIR          OUTDIR gets the reports and overhead.json
set -u
out=${1:?usage: profiler.sh OUTDIR}
: "${B:=build}" "${PYTHON:=python3}" "${NCCL_TESTS:=$B/nccl-tests/build}"
mkdir -p "$out"
out=$(cd "$out" && pwd)
script=test/gpu/profiler_torch.py
. test/gpu/cases.sh
port=$((20000 + RANDOM % 20000))
LD_LIBRARY_PATH=$(cd "$B" && pwd)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
"$PYTHON" -c "import torch, sys; sys.exit(torch.cuda.device_count() < $gpus_needed)" 2>/dev/null ||
  { echo "$PYTHON has no torch that sees $gpus_needed GPUs"; exit 77; }

both() { # both LIMIT VARIABLE=VALUE... ARGUMENT...: the script on two ranks, each with the variables
  local limit=$1 status=0 log
  shift
  port=$((port + 10)) log=$out/both-$port
  two_ranks "$limit" "$log" env MASTER_PORT=$port "${@:1:$#-2}" "$PYTHON" $script "${@: -2}" || status=$?
  cat "$log"-[01]
  return $status
}

counts() { # counts VARIABLE: the report under VARIABLE=arfusion is what the program did
  mkdir -p "$out/$1"
  both 180 "$1=arfusion" "ARFUSION_REPORT=$out/$1/report.json" run "$out/$1" &&
    "$PYTHON" $script check "$out/$1/report.json" "$out/$1"
}

without() { # nobody asks, nothing is written
  mkdir -p "$out/unasked"
  both 180 "ARFUSION_REPORT=$out/unasked/report.json" run "$out/unasked" && [ ! -e "$out/unasked/report.json" ]
}

unwritable() { # one warning each time that a process makes its first communicator (twice), and it goes on
  local folder=$out/unwritable
  mkdir -p "$folder"
  both 180 NCCL_PROFILER_PLUGIN=arfusion ARFUSION_REPORT=/nowhere/report.json run "$folder" >"$folder/said" ||
    return 1
  warnings=$(grep -c 'ARFUSION_REPORT: /nowhere/report.json' "$folder/said")
  echo "$warnings warnings"
  [ "$warnings" -ge 2 ] && [ "$warnings" -le 4 ]
}

perf() { # perf VARIABLE: one process with both GPUs if there are two, eager and captured
  local graph status
  for graph in 0 3; do
    status=0
    nccl_test $fewest_processes 120 "$out/perf-$1-$graph" env "$1=arfusion" \
      "ARFUSION_REPORT=$out/perf-$1-$graph.json" "$NCCL_TESTS/all_reduce_perf" -b 8 -e 4M -f 8 -d half -w 2 -n 10 \
      -G $graph || status=$?
    cat "$out/perf-$1-$graph"-[01]
    [ $status = 0 ] || return 1
    "$PYTHON" $script alike "$out/perf-$1-$graph.json" || return 1
  done
}

overhead() { # alternating, so that a machine that warms up favours nobody
  for run in 1 2 3; do
    both 60 NCCL_PROFILER_PLUGIN=none time "$out/without-$run.json" || return 1
    both 60 NCCL_PROFILER_PLUGIN=arfusion time "$out/with-$run.json" || return 1
  done
  "$PYTHON" $script compare "$out"
}

case_of unasked without
case_of torch-profiler counts NCCL_PROFILER_PLUGIN
case_of torch-net counts NCCL_NET_PLUGIN
case_of unwritable unwritable
if [ -x "$NCCL_TESTS/all_reduce_perf" ]; then
  case_of perf-profiler perf NCCL_PROFILER_PLUGIN
  case_of perf-net perf NCCL_NET_PLUGIN
else
  echo "nccl-tests: there is no $NCCL_TESTS/all_reduce_perf"
fi
case_of overhead overhead
echo "$passed passed, $failed failed"
[ $failed = 0 ]
