#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# nccl-tests, NCCL's own public test programs, with libarfusion-nccl.so in front of NCCL. Its source is fetched, not
# kept here.
#
#   bash test/gpu/nccl_tests.sh build         into $B/nccl-tests; needs nvcc and a network, and no GPU
#   bash test/gpu/nccl_tests.sh run PART OUT  on two GPUs (or ranks that share one: cases.sh, without speed): correct,
#                                             forms, programs, speed (nccl_tests/run.py); into OUT
#
# B: the build folder (build). CUDA_HOME, NCCL_HOME, NVCC_GENCODE: as for make. NCCL_TESTS_SOURCE: where to clone it
# from.
set -eu
cd "$(dirname "$0")/../.."
: "${B:=build}" "${PYTHON:=python3}" "${NCCL_TESTS_SOURCE:=https://github.com/NVIDIA/nccl-tests}"
: "${CUDA_HOME:=/usr/local/cuda}"
: "${NCCL_HOME:=$CUDA_HOME}" "${NVCC_GENCODE:=-gencode=arch=compute_90,code=sm_90}"
folder=$B/nccl-tests

build() {
  rm -rf "$folder"
  mkdir -p "$folder"
  git clone -q --depth 1 "$NCCL_TESTS_SOURCE" "$folder/source"
  local libraries top=$PWD
  libraries=$(dirname "$(ls "$CUDA_HOME"/lib{64,}/libcudart_static.a 2>/dev/null | head -n 1)")
  mkdir "$folder/mpi" "$folder/mpi/lib"
  ar rc "$folder/mpi/lib/libmpi.a" # mpi.h is all of it
  ln -s "$top/test/gpu/nccl_tests" "$folder/mpi/include"
  make -C "$folder/source/src" ${JOBS:+-j$JOBS} MPI=1 MPI_HOME="$(realpath "$folder/mpi")" CUDARTLIB=cudart_static \
    CUDA_HOME="$CUDA_HOME" CUDA_LIB="$libraries" NCCL_HOME="$NCCL_HOME" NVCC_GENCODE="$NVCC_GENCODE" \
    BUILDDIR="$(realpath "$folder")/build" build
  git -C "$folder/source" log -1 --format='nccl-tests %H, %cd' >"$folder/revision"
  rm -rf "$folder/source" "$folder/mpi" "$folder"/build/*.o "$folder/build/os" "$folder/build/verifiable"
  strip "$folder"/build/*_perf
  cat "$folder/revision"
}

run() {
  [ -x "$folder/build/all_reduce_perf" ] ||
    { echo "nccl-tests is not there: bash test/gpu/nccl_tests.sh build"; exit 77; }
  . test/gpu/cases.sh
  [ "$(nvidia-smi --list-gpus 2>/dev/null | wc -l)" -ge $gpus_needed ] ||
    { echo "$gpus_needed GPUs are needed"; exit 77; }
  cat "$folder/revision"
  exec "$PYTHON" test/gpu/nccl_tests/run.py "$1" --programs "$folder/build" \
    --front "$(realpath "$B/libarfusion-nccl.so")" --out "$2"
}

case ${1:-} in
  build) build ;;
  run) run "${2:?PART}" "${3:?OUT}" ;;
  *) sed -n 's/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
