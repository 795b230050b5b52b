#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Everything that needs GPUs, on a machine that has little time: correctness first, then speed.
#
#   bash test/gpu/session.sh OUTDIR [STEP...]        in this order; with no STEP, all of them in the order below
#
# OUTDIR gets summary.txt, a line for each step, and session.tar.gz with the steps' logs and results (JSON documents,
# plots). Each step has a time limit, and together they have LIMIT seconds (36000): a step for which none are left is
# not begun and has failed; those that can leave something out do so in time. What a step leaves running is ended. One
# that lacks a second GPU, or a program of others (gnuplot, PyTorch), is skipped. Ends with `N passed, N failed, N
# skipped`. B: the build folder (build). PYTHON: the Python that has PyTorch (python3).
#
# On one GPU most of what is right or wrong runs as well, without NVLink: ranks share it, as processes under CUDA's MPS
# where it is there (else they take turns, a hundred times slower), and NCCL takes them for two hosts (hosts/hosts.c).
#
# Two H200s for half an hour, in calls of ten minutes at most (seconds as measured there, or ~ as estimated):
#
#   1  LIMIT=570, ~520: plugin 5 check ~12 watchdog ~60 library 6 overlap 3 chains 5 streams 3 soak 4 soak-4 3
#      soak-16 3 soak-processes 3 topology 3 nccl-abort ~20 nccl-python ~15 library-preloaded ~8 ranges ~8 sanitize 40
#      check-threads ~30 communicators 65 kernels ~180 check-legacy-threads ~30
#   2  LIMIT=580, ~550, what is timed, so nothing beside it: nccl-tests-speed ~70 profiler ~135 net ~185 python-cost ~15
#      torch-host-time ~15 llama ~120
#   3  what is only right or wrong. Two sessions at the same time, LIMIT=400 and an OUTDIR each: nccl-torch ~40
#      nccl-tests-forms ~55 nccl-tests-programs ~60 nccl-tests-correct ~145; python ~60 torch-operators ~110
#      python-expandable ~60. Then flashinfer, in the time that is left
#
# One H200 whose ranks share it (~450 for all but net and profiler, which want a call for themselves): plugin 4 check 3
# watchdog 37 overlap 2 chains 5 streams 1 soak 3 soak-4 3 soak-16 3 soak-processes 4 check-threads 12 sanitize 49
# communicators 60 nccl-abort 15 nccl-python 10 nccl-torch 16 nccl-tests-forms 21 nccl-tests-programs 31 net 163
# profiler 113 python-cost ~55 torch-host-time 11 torch-operators 61 flashinfer 16 a case llama ~70; kernels over 400
#
# Not in there: many-gpus ~210 (has check-processes ~100, topo 9, tune 7 and perf 20 in it, too; in call 1 in place of
# kernels), quant ~25, peers 25, demo 14, soak-long 600.
set -u
out=${1:?usage: session.sh OUTDIR [STEP...]}
shift
declare -A commands
known=()
: "${B:=build}" "${PYTHON:=python3}"
logs=$out/session/logs results=$out/session/results
mkdir -p "$logs" "$results"
passed=0 failed=0 skipped=0 end=$((SECONDS + ${LIMIT:-36000})) child=
export NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1 NVSHMEM_DISABLE_NVLS=1
cases=test/data/cases.json

say() { # say NAME WHAT: a line of the summary
  printf '%-28s %s\n' "$1" "$2" | tee -a "$out/summary.txt"
}

left() { echo $((end - SECONDS - 10)); } # seconds; what is kept is for the end

end_session() { # end_session PROCESS: the session of processes that this one leads; without pkill, which may lack
  local stat fields
  [ -n "$1" ] || return 0
  for stat in /proc/[0-9]*/stat; do
    { read -r fields <"$stat"; } 2>/dev/null || continue
    fields=(${fields##*) }) # behind the name: state, parent, group, session
    [ "${fields[3]}" != "$1" ] || kill -KILL "${stat//[!0-9]/}" 2>/dev/null
  done
}

pack() {
  tar -C "$out" -czf "$out/session.tar.gz" session && rm -rf "$out/session"
}

step() { # step NAME LIMIT COMMAND...: that there is this step
  known+=("$1")
  commands[$1]=$(printf '%q ' "$@")
}

step_run() { # step_run NAME LIMIT COMMAND...; exit 77: skipped
  local name=$1 limit=$2 start=$SECONDS status=0
  shift 2
  [ "$limit" -le "$(left)" ] || limit=$(left)
  if [ "$limit" -ge 5 ]; then
    STEP_SECONDS=$limit setsid timeout -k 5 "$limit" "$@" >"$logs/$name.log" 2>&1 &
    child=$!
    wait $child || status=$?
    end_session $child
    child=
  else
    echo "there was no time for it" >"$logs/$name.log"
    status=124
  fi
  case $status in
    0) passed=$((passed + 1)) ;;
    77) skipped=$((skipped + 1)) ;;
    *) failed=$((failed + 1)) ;;
  esac
  say "$name" "exit $status, $((SECONDS - start)) s: $(tail -n 1 "$logs/$name.log" | cut -c -200)"
}

share_gpu() { # gives $sharing what lets two processes share the only GPU
  sharing=(ARFUSION_SHARED_GPU=1 CUDA_DEVICE_MAX_CONNECTIONS=32 NCCL_TESTS_DEVICE=0
    LD_PRELOAD="$(realpath "$B/test/gpu/libhosts.so")")
  PATH=$PATH:/usr/local/nvidia/bin
  command -v nvidia-cuda-mps-control >/dev/null || return 0
  mps=$(mktemp -d)
  CUDA_MPS_PIPE_DIRECTORY=$mps CUDA_MPS_LOG_DIRECTORY=$mps nvidia-cuda-mps-control -d
}
end_sharing() { [ -z "$mps" ] || echo quit | CUDA_MPS_PIPE_DIRECTORY=$mps nvidia-cuda-mps-control; }

step_ranks() { # step_ranks NAME LIMIT COMMAND...: one whose two ranks are processes, and can share a GPU
  step "$1" "$2" ${sharing:+env "${sharing[@]}" ${mps:+CUDA_MPS_PIPE_DIRECTORY="$mps"}} "${@:3}"
}
step_turns() { # step_turns NAME LIMIT COMMAND...: the same with more processes, or some that are killed: without MPS
  step "$1" "$2" ${sharing:+env "${sharing[@]}"} "${@:3}"
}
step2() { # step2 NAME LIMIT COMMAND...: one that needs two GPUs
  [ "$gpus" -ge 2 ] || set -- "$1" 5 sh -c 'echo two GPUs are needed; exit 77'
  step "$@"
}

check() { "$B/arfusion-bench" check --cases $cases --device cuda --algo all "$@"; }
legacy() { ARFUSION_IPC=legacy "$@"; }
tune() { # the table of this machine, and the plugin reads it
  "$B/arfusion-bench" tune --device cuda -o "$results/tuning.txt" &&
    ARFUSION_TUNING_FILE=$results/tuning.txt "$B/arfusion-bench" perf --device cuda --tokens 1,128,2048 --hidden 4096
}
quant() { # each quantization beside the same request without
  for form in none fp8 fp8_token fp8_group nvfp4; do
    "$B/arfusion-bench" perf --device cuda --quant $form --tokens 1,8,64,512 --hidden 4096,7168 \
      --json "$results/quant-$form.json" ||
      exit 1
  done
}
peers() {
  "$PYTHON" -c 'import torch' 2>/dev/null || { echo "$PYTHON has no torch"; exit 77; }
  "$PYTHON" test/bench/perf_peers.py -o "$results/peers.json"
}
plot() { # what perf measured, and the peers where they were
  command -v gnuplot >/dev/null || { echo "gnuplot is not there"; exit 77; }
  [ ! -e "$results/peers.json" ] ||
    "$B/arfusion-bench" plot "$results/perf.json" "$results/peers.json" -o "$results/peers.svg" || exit 1
  "$B/arfusion-bench" plot "$results/perf.json" -o "$results/perf.svg"
}
python_package() { # python_package PATTERN: these tests of test/python on GPUs
  "$PYTHON" -c 'import torch' 2>/dev/null || { echo "$PYTHON has no torch"; exit 77; }
  LD_LIBRARY_PATH=$B:${LD_LIBRARY_PATH:-} TEST_ARRAYS=cuda "$PYTHON" -m unittest discover -s test/python -p "$1" 2>&1
}
python_cost() {
  "$PYTHON" -c 'import torch' 2>/dev/null || { echo "$PYTHON has no torch"; exit 77; }
  LD_LIBRARY_PATH=$B:${LD_LIBRARY_PATH:-} TEST_ARRAYS=cuda "$PYTHON" test/gpu/python_cost.py
}
torch_bench() { # torch_bench SCRIPT ARGUMENT...
  "$PYTHON" -c 'import torch' 2>/dev/null || { echo "$PYTHON has no torch"; exit 77; }
  LD_LIBRARY_PATH=$B:${LD_LIBRARY_PATH:-} PYTHONPATH=plugin/python "$PYTHON" "test/bench/$@"
}
llama() { # with libarfusion-nccl.so in front where it has been built
  local front=$B/libarfusion-nccl.so
  torch_bench llama.py --json "$results/llama.json" $([ ! -e "$front" ] || echo --preload "$(realpath "$front")")
}
many_gpus() { # of the time that is left, ten minutes at most
  "$PYTHON" test/bench/many_gpus "$gpus" "$results/many_gpus" --build "$B" --limit $((STEP_SECONDS - 10))
}
export -f python_package python_cost torch_bench llama check legacy tune quant peers plot many_gpus
export B PYTHON cases results
gpus=$(nvidia-smi --list-gpus 2>/dev/null | wc -l) sharing=() mps=
export gpus
trap 'end_session "$child"; end_sharing; pack; exit 1' TERM INT
[ "$gpus" != 1 ] || share_gpu
step kernels 400 "$B/test/gpu/test_cuda_kernels"
step overlap 60 "$B/test/gpu/test_overlap_cuda"
step chains 300 "$B/test/gpu/test_chains_cuda"
step streams 240 "$B/test/gpu/test_streams_cuda"
step soak 240 "$B/test/gpu/test_soak_cuda" 100000
step soak-4 240 "$B/test/gpu/test_soak_cuda" 20000 4 4
step soak-16 240 "$B/test/gpu/test_soak_cuda" 5000 16 16
step_ranks soak-processes 240 "$B/test/gpu/test_soak_cuda" 20000 2 2 processes
step2 topology 60 "$B/test/gpu/test_topo_cuda"
step2 topo 240 bash test/gpu/topo.sh "$logs/topo"
step communicators 150 "$B/test/gpu/test_communicators_cuda" 60
step check 120 "$B/test/gpu/test_check_cuda"
step watchdog 240 "$B/test/gpu/test_watchdog_cuda"
step plugin 120 "$B/test/gpu/test_plugin_cuda"
step ranges 180 bash test/gpu/ranges.sh
step2 library 120 "$B/test/gpu/test_library_cuda"
step_ranks check-processes 150 bash -c 'check --ranks-as processes'
step check-threads 150 bash -c 'check --ranks-as threads'
step_ranks check-legacy-processes 150 bash -c 'legacy check --ranks-as processes'
step check-legacy-threads 150 bash -c 'legacy check --ranks-as threads'
step sanitize 600 bash test/gpu/sanitize.sh "$logs"
step_turns python 420 bash -c 'python_package "test_[!t]*.py"'
step_turns python-expandable 420 env PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True \
  bash -c 'python_package "test_[!t]*.py"'
step_turns python-cost 120 bash -c python_cost
step_turns torch-operators 400 bash -c 'python_package "test_torch_*.py"'
step_ranks torch-host-time 120 bash -c 'torch_bench ops_host_time.py -o "$results/host-time.json"'
step_ranks llama 540 bash -c llama
step_ranks flashinfer 3600 bash -c 'bash test/gpu/flashinfer.sh run $((STEP_SECONDS - 10))'
step2 soak-long 595 bash -c 'bash test/soak.sh $((STEP_SECONDS - 150))' # a last turn may take so much longer
front=$(realpath -m "$B/libarfusion-nccl.so")
step2 library-preloaded 120 env LD_PRELOAD="$front" "$B/test/gpu/test_library_cuda"
step_ranks nccl-abort 100 "$PYTHON" test/gpu/pynccl.py abort "$front"
step_ranks nccl-python 150 "$PYTHON" test/gpu/pynccl.py gpu "$front"
step_ranks nccl-torch 330 "$PYTHON" test/gpu/torch_nccl.py "$front"
for part in forms programs correct; do
  step_ranks nccl-tests-$part 590 bash test/gpu/nccl_tests.sh run $part "$results/nccl-tests"
done
step2 nccl-tests-speed 590 bash test/gpu/nccl_tests.sh run speed "$results/nccl-tests"
step kernel-times 60 "$B/test/gpu/bench_kernels"
step2 perf 240 "$B/arfusion-bench" perf --device cuda --json "$results/perf.json"
step2 quant 150 bash -c quant
step2 tune 150 bash -c tune
step2 peers 420 bash -c peers
step2 plot 60 bash -c plot
step_ranks profiler 400 bash test/gpu/profiler.sh "$results/profiler"
step_ranks net 590 bash test/gpu/net.sh "$logs/net"
step2 many-gpus 600 bash -c many_gpus
step2 demo 120 "$B/arfusion-bench" demo

[ $# != 0 ] || set -- "${known[@]}"
for name in "$@"; do
  [ -n "${commands[$name]:-}" ] ||
    { echo "there is no step $name; there are: ${known[*]}" >&2; end_sharing; exit 2; }
done
{
  nvidia-smi --query-gpu=index,name,pci.bus_id,driver_version --format=csv
  nvidia-smi topo -m
  uname -a
  nproc
  df -h /dev/shm /tmp
  ldconfig -p | grep -E 'libnccl|libhwloc|libexpat|libcuda'
  # The first import from a cold disk is slow.
  timeout 120 "$PYTHON" -c 'import sys, torch; print(sys.version, torch.__version__, torch.cuda.nccl.version())'
} >"$logs/machine.txt" 2>&1
say machine "$gpus GPUs, $SECONDS s: $(tail -n 1 "$logs/machine.txt")"
for name in "$@"; do eval "step_run ${commands[$name]}"; done
end_sharing
pack
echo "$passed passed, $failed failed, $skipped skipped" | tee -a "$out/summary.txt"
[ $failed = 0 ]
