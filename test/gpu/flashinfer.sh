#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# FlashInfer's own public test of this operation, tests/comm/test_trtllm_allreduce_fusion.py, against arfusion: with
# arfusion/compat on PYTHONPATH. It is fetched, not kept here.
#
#   bash test/gpu/flashinfer.sh fetch            puts it, and pytest, into $B/flashinfer; needs a network, and no GPU
#   bash test/gpu/flashinfer.sh run [SECONDS]    runs its 40 cases of world size 2 on two GPUs, as many as fit into the
#                                                time (3600); the next run goes on with those that have not passed
#
# ARFUSION_SHARED_GPU=1: on one, with hosts/hosts.c preloaded; the test's ranks then take GPU 0 and not that of their
# number, which is all that is changed in it.
#
# Any ten cases in a row have all sizes and types. JOBS of them (4) run at the same time: most of a case is start-up and
# host work. B: the build folder (build), where the list `passed` and each case's log are kept. PYTHON: the Python that
# has PyTorch (python3). FLASHINFER: where to clone it from. Exit 77 if something is lacking.
set -eu
cd "$(dirname "$0")/../.."
: "${B:=build}" "${PYTHON:=python3}" "${JOBS:=4}" "${FLASHINFER:=https://github.com/flashinfer-ai/flashinfer}"
B=$(realpath -m "$B")
folder=$B/flashinfer file=test_trtllm_allreduce_fusion.py

fetch() {
  rm -rf "$folder"
  mkdir -p "$folder"
  git clone -q --depth 1 --no-checkout "$FLASHINFER" "$folder/repository"
  git -C "$folder/repository" show "HEAD:tests/comm/$file" >"$folder/$file"
  git -C "$folder/repository" log -1 --format='FlashInfer %H, %cd' >"$folder/revision"
  rm -rf "$folder/repository"
  "$PYTHON" -m pip install -q --target "$folder/site" pytest
  cat "$folder/revision"
}

case_run() { # case_run ID LIMIT: one case; its name is added to `passed` if it has
  local log=logs/${1//[^A-Za-z0-9.-]/_} start=$SECONDS
  if timeout -k 5 "$2" "$PYTHON" -m pytest -q -p no:cacheprovider "$1" >"$log" 2>&1; then
    echo "$1" >>passed
    echo "passed $1, $((SECONDS - start)) s"
  else
    echo "$1" >>failed
    echo "FAILED $1, $((SECONDS - start)) s"
    tail -n 40 "$log"
  fi
}

run() {
  local end=$((SECONDS + ${1:-3600})) ids i id step=11 begun=0 gpus=2
  [ -e "$folder/$file" ] || { echo "FlashInfer's test is not there: bash test/gpu/flashinfer.sh fetch"; exit 77; }
  if [ "${ARFUSION_SHARED_GPU:-}" = 1 ]; then
    gpus=1 JOBS=1 # kernels of several cases would keep each other from the multiprocessors
    sed -e 's/cuda:{rank + gpu_offset}/cuda:0/' -e 's/torch.cuda.device_count()/2/' "$folder/$file" \
      >"$folder/test_shared.py"
    cmp -s "$folder/$file" "$folder/test_shared.py" && { echo "$file: has other lines than it had"; exit 1; }
    file=test_shared.py
  fi
  "$PYTHON" -c "import torch, sys; sys.exit(torch.cuda.device_count() < $gpus)" ||
    { echo "$gpus GPUs and PyTorch are needed"; exit 77; }
  cat "$folder/revision"
  export LD_LIBRARY_PATH=$B${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} ARFUSION_TIMEOUT=60
  export PYTHONPATH=$PWD/plugin/python/arfusion/compat:$folder/site PYTEST_DISABLE_PLUGIN_AUTOLOAD=1
  # The test's workers import it by name, from here.
  cd "$folder"
  "$PYTHON" -c 'import flashinfer.comm as c, arfusion.flashinfer as a
assert c.allreduce_fusion is a.allreduce_fusion'
  # Its names hold the parameters: [weight_bias-legacy_api-hidden_dim-dtype-world_size], dtype0 is fp16, dtype1 bf16.
  "$PYTHON" -m pytest -q -p no:cacheprovider --collect-only "$file" >collected
  mapfile -t ids < <(grep -E '_fusion\[.*-2\]$' collected)
  [ ${#ids[@]} != 0 ] || { echo "no cases of world size 2:"; tail -n 5 collected; exit 1; }
  ((${#ids[@]} % step)) || step=1
  mkdir -p logs
  touch passed
  : >failed
  for ((i = 0; i < ${#ids[@]}; i++)); do
    id=${ids[$((i * step % ${#ids[@]}))]}
    ! grep -qxF "$id" passed || continue
    while [ "$(jobs -rp | wc -l)" -ge "$JOBS" ]; do wait -n || true; done
    [ $SECONDS -lt $((end - 60)) ] || break
    case_run "$id" $((end - SECONDS)) &
    begun=$((begun + 1))
  done
  wait
  echo "$begun begun, $(wc -l <failed) failed; $(sort -u passed | wc -l) of ${#ids[@]} have passed so far"
  [ ! -s failed ] && [ -s passed ]
}

case ${1:-} in
  fetch) fetch ;;
  run) run "${2:-}" ;;
  *) echo "usage: flashinfer.sh fetch | run [SECONDS]" >&2; exit 2 ;;
esac
