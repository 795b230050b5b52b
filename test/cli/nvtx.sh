# SPDX-License-Identifier: Apache-2.0
# A tool that NVTX loads sees a range for each operation, with its algorithm and its bytes; on the host device too.
set -eu
fail() { echo "$1" >&2; exit 1; }
[ "$CUDA" = 1 ] || { echo "NVTX is part of CUDA builds"; exit 77; }
[ -z "${SANITIZED:-}" ] || { echo "the programs of others are not sanitized"; exit 77; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cuda=${CUDA_HOME:-$(dirname "$(dirname "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")")}
[ -e "$cuda/include/nvtx3/nvToolsExt.h" ] || { echo "NVTX is not installed beside CUDA"; exit 77; }
${CC:-gcc} -shared -fPIC -Wall -Wextra -Werror -isystem "$cuda/include" test/cli/fake_nvtx_tool.c -o "$scratch/tool.so"
${CC:-gcc} -std=c11 -D_DEFAULT_SOURCE -Iinclude test/examples/plugin_only.c -o "$scratch/program" -ldl -lpthread
export ARFUSION_DEVICE=host ARFUSION_PLUGIN=$(realpath "$B")/libarfusion-plugin.so NVTX_TOOL_OUTPUT=$scratch/ranges
"$scratch/program" >"$scratch/without"
[ ! -e "$scratch/ranges" ] || fail "a tool was loaded that nobody asked for"
ARFUSION_ALGO=twoshot NVTX_INJECTION64_PATH=$scratch/tool.so "$scratch/program" >"$scratch/with"
diff "$scratch/without" "$scratch/with"
# Two ranks (threads of one process), one operation of 3 x 4096 fp32 each.
printf 'pop\npop\npush residual_rmsnorm twoshot 49152\npush residual_rmsnorm twoshot 49152\n' >"$scratch/expected"
sort "$scratch/ranges" | diff "$scratch/expected" - || fail "other ranges (>) than expected (<)"
