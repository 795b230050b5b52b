#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# arfusion-topo on a machine with GPUs: every command, its times, and whether NCCL and hwloc's own programs accept what
# it exports.
#
#   bash test/gpu/topo.sh OUTDIR        B: the build folder (build)
#
# OUTDIR gets what each command printed. Exit 0: the verdict and the probe are good, the exports are accepted.
set -u
out=${1:?usage: topo.sh OUTDIR}
: "${B:=build}"
mkdir -p "$out"
bad=0
export NCCL_NVLS_ENABLE=0

# run NAME MOST-STATUS MOST-MS ARGUMENTS...: exit status and time of one command
run() {
  local name=$1 most=$2 limit=$3 status=0 start ms
  shift 3
  start=$(date +%s%N)
  timeout 120 "$B/arfusion-topo" "$@" >"$out/$name" 2>"$out/$name.err" || status=$?
  ms=$((($(date +%s%N) - start) / 1000000))
  echo "$name: exit $status, $ms ms"
  if [ $status -le "$most" ] && [ $ms -le "$limit" ]; then return; fi
  echo "  expected exit up to $most within $limit ms"
  cat "$out/$name.err"
  bad=1
}

nvidia-smi topo -m >"$out/nvidia-smi.txt" 2>&1
nvidia-smi nvlink --status >>"$out/nvidia-smi.txt" 2>&1
run warm-up.txt 0 60000
run overview.txt 0 500
run overview.json 0 500 --json
run doctor.txt 1 3000 doctor
run doctor.json 1 3000 doctor --json
run probe.txt 0 30000 probe
run probe.json 0 30000 --json probe
run redacted.json 0 500 --redact --json
for format in hwloc-xml nccl-xml dot svg; do
  if [ $format = svg ] && ! command -v dot >/dev/null; then echo "no graphviz: no SVG"; continue; fi
  run "machine.$format" 0 3000 export --format $format
done
run again-hwloc.txt 0 500 --hwloc-xml "$out/machine.hwloc-xml"
run again-nccl.txt 0 500 --nccl-xml "$out/machine.nccl-xml"
cat "$out/overview.txt" "$out/doctor.txt" "$out/probe.txt"

# The matrix of nvidia-smi topo -m, cell by cell.
cells() { # cells FILE GPUS
  sed 's/\x1b\[[0-9;]*m//g' "$1" |
    awk -v n="$2" '/^GPU[0-9]/ && !seen[$1]++ { row = $1; for (i = 2; i <= n + 1; i++) row = row " " $i; print row }'
}
gpus=$(nvidia-smi -L | wc -l)
if [ "$(cells "$out/nvidia-smi.txt" "$gpus")" != "$(cells "$out/overview.txt" "$gpus")" ]; then
  echo "the matrix is not nvidia-smi's:"; cells "$out/nvidia-smi.txt" "$gpus"; cells "$out/overview.txt" "$gpus"; bad=1
fi

# NCCL reads the topology and builds its communicator on it.
if NCCL_TOPO_FILE=$out/machine.nccl-xml NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,GRAPH,ENV timeout 120 \
    "$B/arfusion-bench" perf --device cuda --tokens 1 --hidden 4096 >"$out/nccl.log" 2>&1 &&
    grep -q 'NCCL_TOPO_FILE set by environment' "$out/nccl.log" &&
    ! grep -Eiq 'NCCL WARN.*(xml|topo)' "$out/nccl.log"; then
  echo "NCCL accepts the exported XML"
else
  echo "NCCL does not accept the exported XML: $(grep -i warn "$out/nccl.log" | head -n 3)"; bad=1
fi
if ! command -v lstopo-no-graphics >/dev/null; then
  echo "no lstopo: not tried"
elif lstopo-no-graphics -i "$out/machine.hwloc-xml" --distances >"$out/lstopo.txt" 2>&1 &&
    grep -q arfusionNVLinkBandwidth "$out/lstopo.txt"; then
  echo "lstopo accepts the exported XML, with the distances in it"
else
  echo "lstopo does not accept the exported XML: $(tail -n 3 "$out/lstopo.txt")"; bad=1
fi
[ $bad = 0 ] && echo "good" || echo "bad"
exit $bad
