# SPDX-License-Identifier: Apache-2.0
# arfusion-topo on a machine whose NVML is a fake one: what it says of this machine, sound and with something broken.
set -u
if ls /dev/nvidia0 >/dev/null 2>&1; then echo "this machine has an NVML of its own"; exit 77; fi
bad=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
${CC:-gcc} -shared -fPIC -I. test/cli/fake_nvml.c -o "$scratch/libnvidia-ml.so.1" || exit 1
export LD_LIBRARY_PATH=$scratch
for name in $(env | sed -n 's/^\(NCCL_[^=]*\|ARFUSION_[^=]*\|CUDA_VISIBLE_DEVICES\)=.*/\1/p'); do unset "$name"; done
# Built with CUDA, it finds that CUDA does not start on a machine without a driver, and that decides.
cuda=$("$B/arfusion-topo" --json | grep -c '"cuda_runtime": "')

# expect STATUS MACHINE ARGUMENTS -- PATTERN...: exit status, and patterns in stdout
expect() {
  local want=$1 machine=$2 status=0 arguments=()
  shift 2
  while [ "$1" != -- ]; do arguments+=("$1"); shift; done
  shift
  FAKE_NVML=$machine "$B/arfusion-topo" "${arguments[@]}" >"$scratch/out" 2>"$scratch/err" || status=$?
  if [ $status != "$want" ]; then echo "$machine: ${arguments[*]}: exit $status, expected $want"; bad=1; fi
  for pattern in "$@"; do
    grep -Eq -- "$pattern" "$scratch/out" && continue
    echo "$machine: ${arguments[*]}: no '$pattern' in:"
    cat "$scratch/out" "$scratch/err"
    bad=1
  done
}

if [ "$cuda" = 1 ]; then
  expect 2 "" -- 'CUDA does not start: cuda' '^GPU0     X       NV18   ' '^P2P: *all to all: yes$'
  expect 2 "" doctor -- '^FAIL  *cuda.start' 'nvidia-fabricmanager'
  exit $bad
fi
expect 0 "" -- '^GPU0     X       NV18   ' '^GPU1     NV18    X ' 'yes, 18 links a pair; assumed' \
  '^P2P: *all to all: yes$' \
  '^GPU0    0000:00:06.0 .* sm_90  NVIDIA H200  18 x 26.562 GB/s raw, 20.6 effective  GPU-1$' \
  'driver 580.159.04, 2 GPUs'
expect 0 "" --redact -- '^GPU0    0000:00:06.0 .* effective  \?$'
expect 0 "" --json -- '"nvml_index": \{"state": "OK", "value": 1,' '"cell": "NV18", .*"via": "hidden switch"' \
  '"p2p_write": \{"state": "OK", "source": "nvmlDeviceGetP2PStatus"\}'
expect 0 "" export --format dot --json -- '"content": "graph'
# NVML's GPUs are not in the PCI tree here: where they are is not known, and what is written of them says no more.
nodes=$("$B/arfusion-topo" | sed -n 's/.*, \([0-9]* NUMA nodes*\)$/\1/p')
for format in nccl hwloc; do
  expect 0 "" export -f $format-xml -o "$scratch/$format.xml" --
  expect 0 "" --$format-xml "$scratch/$format.xml" -- \
    '^GPU0     X       NV18   \?  *\?$' '^GPU1     NV18    X      \?  *\?$' "^Machine:.*, $nodes\$"
  expect 0 "" --json --$format-xml "$scratch/$format.xml" -- \
    '"bus_id": "0000:00:06.0", .*"numa": null' '"from": "0000:00:06.0", .*"pcie": null'
done
expect 1 "gpus=4 fewer=3" -- '^GPU0     X       NV15    NV15    NV15' 'has 15 active NVLinks, GPU .* has 18'
expect 1 "gpus=4 fewer=3" doctor -- '^FAIL  *nvlink.links  *GPU0 \(0000:00:06.0\) has 15 active NVLinks'
expect 1 "fabric=2" doctor -- '^FAIL  *fabric.state .*state 2' 'nvidia-fabricmanager'
expect 1 "nvlink=4" doctor -- '^FAIL  *p2p.nvlink  *P2P over NVLink fails for 2 of 2 ordered pairs'
expect 2 "write=1" doctor -- '^FAIL  *p2p.access  *write fails for 1 of 2 ordered pairs'
expect 2 "mig=1" doctor -- '^FAIL  *gpu.mig  *MIG is on for GPU0'
expect 2 "sm=75" -- 'is sm_75, and the kernels need sm_80'
expect 3 "gpus=1" -- 'Only one GPU is seen'
export NCCL_P2P_LEVEL=LOC
expect 2 "" doctor -- '^FAIL  *env.nccl  *NCCL_P2P_LEVEL=LOC \(environment\)' '^P2P: *all to all: no'
unset NCCL_P2P_LEVEL
exit $bad
