# SPDX-License-Identifier: Apache-2.0
# test/gpu/session.sh with programs that need no GPU: steps in the order asked for, their time limits, what they leave
# running, and what comes back.
set -u
fail() { echo "$1"; exit 1; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export B=$scratch/build PYTHON=false LIMIT=20
mkdir -p "$B/test/gpu"
program() { # program NAME: of what is on standard input
  { echo '#!/bin/sh'; cat; } >"$B/test/gpu/$1" && chmod +x "$B/test/gpu/$1"
}
program test_chains_cuda <<<'echo no GPU; exit 77'
program test_cuda_kernels <<<"sleep 300 & echo \$! >$scratch/left; echo 1 passed"
program test_overlap_cuda <<<'echo begun; sleep 300'

said=$(bash test/gpu/session.sh "$scratch/none" kernels kernles 2>&1)
[ $? = 2 ] && [[ $said == "there is no step kernles; there are: kernels overlap "* ]] || fail "a wrong step: $said"
said=$(bash test/gpu/session.sh "$scratch/out" chains kernels overlap streams 2>&1)
[ $? = 1 ] || fail "it did not fail: $said"
wanted='chains .*exit 77, [0-9]+ s: no GPU
kernels .*exit 0, [0-9]+ s: 1 passed
overlap .*exit 124, [0-9]+ s: begun
streams .*exit 124, 0 s: there was no time for it
1 passed, 2 failed, 1 skipped'
[[ $said =~ $wanted ]] && [ "$said" = "$(cat "$scratch/out/summary.txt")" ] || fail "it said: $said"
! kill -0 "$(cat "$scratch/left")" 2>/dev/null || fail "what a step left running still runs"
[ "$(cd "$scratch/out" && echo *)" = "session.tar.gz summary.txt" ] || fail "there is more in $(ls "$scratch/out")"
tar -tzf "$scratch/out/session.tar.gz" | grep -qx session/logs/overlap.log || fail "the archive lacks a log"
echo "steps, limits and results are as they should be"
