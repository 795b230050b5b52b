# SPDX-License-Identifier: Apache-2.0
# arfusion-topo on machines that are not here gives the recorded answers, as text and as JSON, with options before and
# after the command. UPDATE=1 writes what it says now into test/data/topologies/expected/ instead.
set -u
folder=test/data/topologies
bad=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# golden NAME STATUS ARGUMENTS...: stdout and exit status; the version of arfusion does not count
golden() {
  local expected=$folder/expected/$1 want=$2 status=0
  shift 2
  "$B/arfusion-topo" "$@" >"$scratch/out" 2>"$scratch/err" || status=$?
  sed -i 's/^ "version": "[^"]*",$/ "version": "",/' "$scratch/out"
  if [ "${UPDATE:-0}" = 1 ]; then cp "$scratch/out" "$expected"; fi
  if [ $status != "$want" ] || ! diff -u "$expected" "$scratch/out" || [ -s "$scratch/err" ]; then
    echo "arfusion-topo $*: exit $status, expected $want; $(cat "$scratch/err")"
    bad=1
  fi
}

# machine NAME KIND STATUS DOCTOR'S-STATUS
machine() {
  local file=$folder/$1.xml
  golden "$1.txt" "$3" "--$2-xml" "$file"
  golden "$1.json" "$3" --json "--$2-xml=$file"
  golden "$1.doctor.txt" "$4" doctor "--$2-xml" "$file"
  golden "$1.doctor.txt" "$4" "--$2-xml" "$file" doctor
  golden "$1.doctor.json" "$4" --json doctor "--$2-xml" "$file"
}

machine hwloc-dgx2 hwloc 2 2 # V100: all to all, but too old for the kernels
machine hwloc-power8-4gpu hwloc 2 2
machine nccl-hgx-h200-8 nccl 0 0
machine nccl-vm-4x2-nogpu nccl 3 3

# The answers that these files are known to have, whatever the layout of the text is.
answer() { # answer NAME PYTHON-EXPRESSION over the document d
  ${PYTHON:-/usr/bin/python3} - "$folder/expected/$1.json" "$2" <<'END' || { echo "$1: not so: $2"; bad=1; }
import json, sys
d = json.load(open(sys.argv[1]))
cells = lambda inside: {p["cell"] for p in d["pairs"] if (node[p["from"]] == node[p["to"]]) == inside}
node = {g["bus_id"]: g["numa"] for g in d["gpus"]}
sys.exit(not eval(sys.argv[2]))
END
}
answer hwloc-dgx2 'len(d["gpus"]) == 16 and len(d["switches"]) == 12 and {p["cell"] for p in d["pairs"]} == {"NV6"}'
answer hwloc-dgx2 'all(p["via"] == "switch" and p["nvlink_raw_mb_s"] == 150000 for p in d["pairs"])'
answer hwloc-dgx2 'd["verdict"]["nvlink_all_to_all"]["state"] == "OK"'
answer hwloc-power8-4gpu 'cells(True) == {"NV2"} and cells(False) == {"SYS"} and len(d["gpus"]) == 4'
answer hwloc-power8-4gpu 'all(p["nvlink_raw_mb_s"] in (0, 40000) for p in d["pairs"])'
answer hwloc-power8-4gpu 'd["verdict"]["nvlink_all_to_all"]["state"] == "FAIL"'
answer nccl-hgx-h200-8 '{p["cell"] for p in d["pairs"]} == {"NV18"}'
answer nccl-hgx-h200-8 '[g["numa"] for g in d["gpus"]] == [0] * 4 + [1] * 4'
answer nccl-hgx-h200-8 'all(p["pcie"] == ("NODE" if node[p["from"]] == node[p["to"]] else "SYS") for p in d["pairs"])'
answer nccl-hgx-h200-8 'd["verdict"]["nvlink_all_to_all"]["state"] == "OK" and d["exit_code"] == 0'
answer nccl-vm-4x2-nogpu 'len(d["gpus"]) == 4 and cells(True) == {"PIX"} and cells(False) == {"SYS"}'
answer nccl-vm-4x2-nogpu 'all(p["nvlink_count"] is None for p in d["pairs"]) and d["exit_code"] == 3'

# This machine, whatever it is, gets an answer from every command; without a GPU it is "cannot tell".
for command in '' doctor probe; do
  status=0
  "$B/arfusion-topo" $command >"$scratch/out" 2>"$scratch/err" || status=$?
  if [ $status -gt 3 ] || ! [ -s "$scratch/out" ]; then echo "$command: exit $status, $(cat "$scratch/err")"; bad=1; fi
  if ! ls /dev/nvidia0 >/dev/null 2>&1 && [ $status != 3 ]; then echo "$command: exit $status without a GPU"; bad=1; fi
  "$B/arfusion-topo" --json $command 2>/dev/null >"$scratch/out"
  ${PYTHON:-/usr/bin/python3} -m json.tool "$scratch/out" >/dev/null || { echo "$command: no JSON"; bad=1; }
done
exit $bad
