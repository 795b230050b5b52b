#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Packs what session.sh needs, for a machine that has GPUs and no network: built here for one architecture, and what
# others have written fetched (nccl-tests, FlashInfer's test; without them their steps are skipped there).
#
#   bash test/gpu/pack.sh [FILE]        FILE: build/gpu.tar.xz
#
# There, with this tree and FILE in it:
#
#   mkdir -p build && tar -xJf FILE -C build && B=build/gpu bash test/gpu/session.sh OUTDIR [STEP...]
#
# (`python3 -m tarfile -e FILE build` where there is no xz.)
#
# Environment: NVCC_GENCODE (sm_90), JOBS (2); NCCL_TESTS_SOURCE, FLASHINFER: clones to fetch from.
set -eu
cd "$(dirname "$0")/../.."
file=$(realpath -m "${1:-build/gpu.tar.xz}")
export B=build/gpu NVCC_GENCODE=${NVCC_GENCODE:--gencode=arch=compute_90,code=sm_90} JOBS=${JOBS:-2}
build() { make --no-print-directory -j"$JOBS" NVCC_GENCODE="$NVCC_GENCODE" "$@"; }

gpu_programs=$(for f in test/gpu/*.c; do echo "${f%.c}"; done)
build BUILDDIR=$B all bench $B/test/gpu/libhosts.so ${gpu_programs//test\//$B/test/}
build BUILDDIR=$B/racecheck RACECHECK=1 all $B/racecheck/test/gpu/test_soak_cuda
[ -e $B/nccl-tests/revision ] || bash test/gpu/nccl_tests.sh build || echo "without nccl-tests"
[ -e $B/flashinfer/revision ] || PYTHON=/usr/bin/python3 bash test/gpu/flashinfer.sh fetch ||
  echo "without FlashInfer's test"

staged=$(mktemp -d)
trap 'rm -rf "$staged"' EXIT
tar -C build -c --exclude=obj --exclude=emu --exclude='*.a' --exclude=gen gpu | tar -C "$staged" -x
find "$staged" -type f -size +100k \( -perm -u+x -o -name '*.so*' \) -exec strip --strip-debug {} + 2>/dev/null || true
# Every program has the same kernels in it, and the dictionary room for several programs.
tar -C "$staged" -c gpu | xz --lzma2=preset=1,dict=96MiB >"$file"
ls -l "$file"
