# SPDX-License-Identifier: Apache-2.0
# test/gpu/net.sh and profiler.sh with stand-ins for nccl-tests and for Python with PyTorch, which print what NCCL and
# these print: all cases are run, as one process or as two ranks, and a rank that fails is seen.
set -u
fail() { echo "$1"; exit 1; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export PYTHON=$scratch/python NCCL_TESTS=$scratch/tests
mkdir "$NCCL_TESTS"

cat >"$NCCL_TESTS/all_reduce_perf" <<'PROGRAM'
#!/bin/bash
[ -z "${WORLD_SIZE:-}" ] || [ -e "${RANKS_FILE:-}" ] || { echo "mpi.h: RANKS_FILE cannot be opened"; exit 1; }
[ "${RANK:-}" = 0 ] || echo "#  Rank  1 Group 0"
echo "NCCL INFO Using network ${NCCL_NET:-Socket}
NCCL INFO Algo COLLNET_CHAIN
NCCL INFO connected to a over TCP
NCCL INFO NET/arfusion: declined"
if [ "${NCCL_NET:-}" = arfusion ]; then figures='5 0 9'; else figures='20 0 3'; fi
for bytes in 8 67108864; do echo "$bytes 2 float sum -1 $figures"; done
echo "# Out of bounds values : 0 OK"
PROGRAM
cat >"$PYTHON" <<'PROGRAM'
#!/bin/bash
[ -n "${RANK:-}" ] || exit 0
echo "NCCL INFO Using network arfusion"
[ "${ARFUSION_REPORT:-}" != /nowhere/report.json ] || echo "ARFUSION_REPORT: /nowhere/report.json" >&2
[ "$RANK" != "${FAILS:-}" ]
PROGRAM
chmod +x "$NCCL_TESTS/all_reduce_perf" "$PYTHON"
for name in all_gather reduce_scatter broadcast sendrecv alltoall; do
  ln -s all_reduce_perf "$NCCL_TESTS/${name}_perf"
done

expect() { # expect COUNTS SCRIPT: its last line
  local said
  said=$(timeout 60 bash "test/gpu/$2.sh" "$scratch/$2" 2>&1)
  [ "$(tail -n 1 <<<"$said")" = "$1" ] || fail "$2.sh, with rank ${FAILS:-none} failing: $said"
}
expect '30 passed, 0 failed' net
expect '7 passed, 0 failed' profiler
FAILS=0 expect '27 passed, 3 failed' net
FAILS=1 expect '27 passed, 3 failed' net
FAILS=1 expect '2 passed, 5 failed' profiler
echo "all cases are run and judged"
