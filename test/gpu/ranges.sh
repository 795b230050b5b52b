# SPDX-License-Identifier: Apache-2.0
# A tool that NVTX loads sees the operations of test_plugin_cuda, which passes as it does without one; and what an
# enqueue pays for tools, log and counters on this machine's host.
set -eu
fail() { echo "$1" >&2; exit 1; }
cuda=${CUDA_HOME:-/usr/local/cuda}
command -v gcc >/dev/null && [ -e "$cuda/include/nvtx3/nvToolsExt.h" ] || { echo "gcc or NVTX is not there"; exit 77; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
gcc -shared -fPIC -isystem "$cuda/include" test/cli/fake_nvtx_tool.c -o "$scratch/tool.so"
NVTX_TOOL_OUTPUT=$scratch/ranges NVTX_INJECTION64_PATH=$scratch/tool.so "$B/test/gpu/test_plugin_cuda"
pushed=$(grep -c '^push' "$scratch/ranges") popped=$(grep -c '^pop' "$scratch/ranges")
[ "$pushed" = "$popped" ] || fail "$pushed ranges begin, $popped end"
grep -q '^push residual_rmsnorm oneshot_lamport [1-9]' "$scratch/ranges" || fail "no range of oneshot_lamport"
if grep '^strange' "$scratch/ranges"; then fail "the ranges above have no registered name, or no bytes"; fi
observed=$("$B/test/bench/observe_bench") || fail "too slow: $observed"
echo "$pushed ranges; $observed"
