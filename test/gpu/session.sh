#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Everything that needs GPUs, in one go, on a machine that has little time: correctness first, then speed.
#
#   bash test/gpu/session.sh OUTDIR [STEP...]        with no STEP, all of them
#
# OUTDIR gets a log for each step, the JSON documents, the plot, and summary.txt. Each step has a time limit; one that
# lacks a program of others (gnuplot, PyTorch) is skipped. Ends with `N passed, N failed, N skipped`. B: the build folder
# (build). PYTHON: the Python that has PyTorch (python3).
set -u
out=${1:?usage: session.sh OUTDIR [STEP...]}
shift
steps=" $* "
: "${B:=build}" "${PYTHON:=python3}"
mkdir -p "$out"
passed=0 failed=0 skipped=0
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
cases=test/data/cases.json

step() { # step NAME LIMIT COMMAND...: one step
  local name=$1 limit=$2 start=$SECONDS status=0
  shift 2
  [ "$steps" = "  " ] || [[ $steps == *" $name "* ]] || return 0
  timeout -k 5 "$limit" "$@" >"$out/$name.log" 2>&1 || status=$?
  case $status in
    0) passed=$((passed + 1)) ;;
    77) skipped=$((skipped + 1)) ;;
    *) failed=$((failed + 1)) ;;
  esac
  printf '%-28s exit %d, %d s: %s\n' "$name" $status $((SECONDS - start)) "$(tail -n 1 "$out/$name.log")" |
    tee -a "$out/summary.txt"
}

check() { "$B/arfusion-bench" check --cases $cases --device cuda --algo oneshot_lamport "$@"; }
legacy() { ARFUSION_IPC=legacy "$@"; }
tune() { # the table of this machine, and the plugin reads it
  "$B/arfusion-bench" tune --device cuda -o "$out/tuning.txt" &&
    ARFUSION_TUNING_FILE=$out/tuning.txt "$B/arfusion-bench" perf --device cuda --tokens 1,128,2048 --hidden 4096
}
peers() {
  "$PYTHON" -c 'import torch' 2>/dev/null || { echo "$PYTHON has no torch"; exit 77; }
  "$PYTHON" test/bench/perf_peers.py -o "$out/peers.json"
}
plot() { # what perf measured, and the peers where they were
  command -v gnuplot >/dev/null || { echo "gnuplot is not there"; exit 77; }
  [ ! -e "$out/peers.json" ] || "$B/arfusion-bench" plot "$out/perf.json" "$out/peers.json" -o "$out/peers.svg" || exit 1
  "$B/arfusion-bench" plot "$out/perf.json" -o "$out/perf.svg"
}
export -f check legacy tune peers plot
export B PYTHON cases out

nvidia-smi --query-gpu=index,name,pci.bus_id,driver_version --format=csv >"$out/machine.txt" 2>&1
step kernels 240 "$B/test/gpu/test_cuda_kernels"
step plugin 120 "$B/test/gpu/test_plugin_cuda"
step library 120 "$B/test/gpu/test_library_cuda"
step check-processes 150 bash -c 'check --ranks-as processes'
step check-threads 150 bash -c 'check --ranks-as threads'
step check-legacy-processes 150 bash -c 'legacy check --ranks-as processes'
step check-legacy-threads 150 bash -c 'legacy check --ranks-as threads'
step kernel-times 60 "$B/test/gpu/bench_kernels"
step perf 240 "$B/arfusion-bench" perf --device cuda --json "$out/perf.json"
step tune 150 bash -c tune
step peers 420 bash -c peers
step plot 60 bash -c plot
step demo 120 "$B/arfusion-bench" demo
echo "$passed passed, $failed failed, $skipped skipped" | tee -a "$out/summary.txt"
[ $failed = 0 ]
