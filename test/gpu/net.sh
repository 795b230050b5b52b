#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The plugin as NCCL's network and collective network, under unmodified nccl-tests (NCCL_TESTS: the folder of
# all_reduce_perf) and PyTorch, on two GPUs (or one: cases.sh) that are kept from reaching each other otherwise. All
# results are right, NCCL's log names the network, and NCCL's own Socket network in the same run is slower.
#
#   B=build bash test/gpu/net.sh OUTDIR          OUTDIR gets a log for each case and compare.txt
#
# nccl-tests are those of nccl_tests.sh, whose two processes need no mpirun. PyTorch (PYTHON) runs where it is.
set -u
out=${1:?usage: net.sh OUTDIR}
: "${B:=build}" "${PYTHON:=python3}" "${NCCL_TESTS:=$B/nccl-tests/build}"
mkdir -p "$out"
. test/gpu/cases.sh
port=$((20000 + RANDOM % 20000))
LD_LIBRARY_PATH=$(cd "$B" && pwd)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH NCCL_P2P_DISABLE=1 NCCL_SHM_DISABLE=1 NCCL_PROFILER_PLUGIN=none
export NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,TUNING
programs="all_reduce all_gather reduce_scatter broadcast sendrecv alltoall"
asked="NCCL_NET_PLUGIN=arfusion NCCL_NET=arfusion"
collnet="NCCL_COLLNET_ENABLE=1 NCCL_ALGO=CollNetChain"
types="int8 uint8 int32 uint32 int64 uint64 half bfloat16 float double" # what CollNet reduces: no fp8

# perf PROGRAM PROCESSES WANTED ARGUMENT...: nothing is wrong, and NCCL's log has WANTED (a pattern).
perf() {
  local program=$NCCL_TESTS/$1_perf processes=$2 wanted=$3 log status=0
  shift 3
  log=$(mktemp -d)
  nccl_test "$processes" 120 "$log/of" "$program" "$@" || status=$?
  cat "$log"/of-* >"$log/all"
  cat "$log/all"
  if [ $status != 0 ]; then echo "exit $status"
  elif ! grep -q 'Out of bounds values : 0 OK' "$log/all"; then status=1; echo "results are wrong"
  elif ! grep -Eq '^# +Rank +1 ' "$log/all"; then status=1; echo "there is no rank 1"
  elif ! grep -Eq "$wanted" "$log/all"; then status=1; echo "NCCL's log has no: $wanted"
  else echo "right, and the log has: $wanted"; fi
  rm -r "$log"
  return $status
}

torch() { # torch VARIABLE=VALUE...: two processes
  local status=0 log
  port=$((port + 10)) log=$out/torch-$port
  two_ranks 150 "$log" env MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$@" "$PYTHON" test/gpu/net_torch.py || status=$?
  cat "$log"-[01]
  [ $status = 0 ] && grep -q 'Using network arfusion' "$log-0" && echo "right, over arfusion"
}

# figure NETWORK BYTES ITERATIONS COLUMN: of all_reduce_perf, out of place: 6 is the time in µs, 8 the bus bandwidth.
figure() {
  nccl_test $fewest_processes 100 "$out/compare-run" env $1 "$NCCL_TESTS/all_reduce_perf" -b "$2" -e "$2" -d float \
    -w 10 -n "$3" -c 0
  tee -a "$out/compare-runs.log" <"$out/compare-run-0" |
    awk -v bytes="$2" -v column="$4" '$1 == bytes { print $column; exit }'
}

median() { sort -g | sed -n 2p; }

compare() { # alternating, so that a machine that warms up favours nobody; medians of three
  local bytes=$((64 << 20)) socket="NCCL_NET=Socket NCCL_DEBUG=WARN" memory="$asked NCCL_DEBUG=WARN"
  local tcp="$memory ARFUSION_NET_TRANSPORT=tcp" network run
  rm -f "$out"/figures-*
  for run in 1 2 3; do
    for network in socket memory tcp; do
      figure "${!network}" 8 300 6 >>"$out/figures-$network-8"
      figure "${!network}" $bytes 10 8 >>"$out/figures-$network-$bytes"
    done
  done
  for network in socket memory tcp; do
    echo "$network $(median <"$out/figures-$network-8") $(median <"$out/figures-$network-$bytes")"
  done | tee "$out/compare.txt"
  awk '{ time[$1] = $2; speed[$1] = $3 }
    END {
      bad = !(speed["memory"] >= 2 * speed["socket"] && time["memory"] < time["socket"] &&
              speed["tcp"] >= speed["socket"])
      printf "8 bytes in us: Socket %s, memory %s, TCP %s; 64 MB in GB/s: %s, %s, %s%s\n", time["socket"],
        time["memory"], time["tcp"], speed["socket"], speed["memory"], speed["tcp"],
        bad ? ": not what was aimed at" : ""
      exit bad
    }' "$out/compare.txt"
}

# Nobody asks for it: NCCL takes another one, and says so.
declines() {
  perf all_reduce $fewest_processes 'NET/arfusion: declined' -b 8 -e 1M -f 8 &&
    grep -Eq 'Using network (Socket|IB)' "$1"
}

export -f two_ranks nccl_test perf declines
export NCCL_TESTS fewest_processes
if [ -x "$NCCL_TESTS/all_reduce_perf" ]; then
  for processes in $(seq $fewest_processes 2); do
    for program in $programs; do
      case_of $program-$processes env $asked \
        bash -c "perf $program $processes 'Using network arfusion' -b 8 -e 64M -f 8 -w 2 -n 5"
    done
  done
  for program in all_reduce sendrecv; do
    case_of tcp-$program env $asked ARFUSION_NET_TRANSPORT=tcp \
      bash -c "perf $program $fewest_processes 'connected to .* over TCP' -b 8 -e 64M -f 8 -w 2 -n 5"
  done
  for type in $types; do
    case_of collnet-$type env $asked $collnet \
      bash -c "perf all_reduce $fewest_processes 'Algo COLLNET_CHAIN' -b 8 -e 16M -f 16 -w 1 -n 3 -o all -d $type"
  done
  case_of declined bash -c "NCCL_NET_PLUGIN=arfusion declines '$out/declined.log'"
  case_of compare compare
  [ $fewest_processes = 2 ] || case_of two-collnet env $asked $collnet \
    bash -c "perf all_reduce 2 'Algo COLLNET_CHAIN' -b 8 -e 16M -f 16 -w 1 -n 3 -o all -d float"
else
  echo "nccl-tests: there is no $NCCL_TESTS/all_reduce_perf"
fi
if "$PYTHON" -c "import torch, sys; sys.exit(torch.cuda.device_count() < $gpus_needed)" 2>/dev/null; then
  case_of torch torch $asked
  case_of torch-tcp torch $asked ARFUSION_NET_TRANSPORT=tcp
  case_of torch-collnet torch $asked NCCL_COLLNET_ENABLE=1
fi
echo "$passed passed, $failed failed"
[ $((passed + failed)) != 0 ] || exit 77
[ $failed = 0 ]
