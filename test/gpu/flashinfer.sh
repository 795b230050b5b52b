#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# FlashInfer's own public test of this operation, tests/comm/test_trtllm_allreduce_fusion.py, against arfusion: with
# arfusion/compat on PYTHONPATH. It is fetched, not kept here.
#
#   bash test/gpu/flashinfer.sh fetch            puts it, and pytest, into $B/flashinfer; needs a network, and no GPU
#   bash test/gpu/flashinfer.sh run [ARGUMENTS]  runs it for world size 2 on two GPUs; ARGUMENTS go to pytest, such as
#                                                -k "1024 and dtype0" (all of it takes about half an hour)
#
# B: the build folder (build). PYTHON: the Python that has PyTorch (python3). FLASHINFER: where to clone it from. Ends
# with pytest's line of results; exit 77 if something is lacking.
set -eu
cd "$(dirname "$0")/../.."
: "${B:=build}" "${PYTHON:=python3}" "${FLASHINFER:=https://github.com/flashinfer-ai/flashinfer}"
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

run() {
  [ -e "$folder/$file" ] || { echo "FlashInfer's test is not there: bash test/gpu/flashinfer.sh fetch"; exit 77; }
  "$PYTHON" -c 'import torch, sys; sys.exit(torch.cuda.device_count() < 2)' ||
    { echo "two GPUs and PyTorch are needed"; exit 77; }
  cat "$folder/revision"
  export LD_LIBRARY_PATH=$PWD/$B${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  export PYTHONPATH=$PWD/plugin/python/arfusion/compat:$PWD/$folder/site
  # The test's workers import it by name, from here.
  cd "$folder"
  "$PYTHON" -c 'import flashinfer.comm as c, arfusion.flashinfer as a
assert c.allreduce_fusion is a.allreduce_fusion'
  # Its names hold the parameters: [weight_bias-legacy_api-hidden_dim-dtype-world_size].
  "$PYTHON" -m pytest -q -x -p no:cacheprovider "$file" "$@"
}

case ${1:-} in
  fetch) fetch ;;
  run) shift; run "$@" ;;
  *) echo "usage: flashinfer.sh fetch | run [PYTEST'S ARGUMENTS]" >&2; exit 2 ;;
esac
