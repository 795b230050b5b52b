# SPDX-License-Identifier: Apache-2.0
# libarfusion-nccl.so and the dynamic loader: its symbols against real libnccls and headers, every way of getting it
# into a program, allocators and sanitizers beside it, and what it says when it has nothing to forward to.
set -eu
[ -z "${SANITIZED:-}" ] || { echo "the programs of others are not sanitized"; exit 77; }
fail() { echo "$1" >&2; exit 1; }
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
B=$(cd "$B" && pwd)
front=$B/libarfusion-nccl.so mock=$B/test/nccl
export ARFUSION_DEVICE=host ARFUSION_WORKSPACE_LIMIT=1M

# ---------------------------------------------------------------- symbols
exported=$(nm -D --defined-only "$front" | awk '{ print $3 }' | grep -v '^arfusionNcclFront$' | sort)
listed=$(sed -n 's/^\(nccl[A-Za-z0-9]*\).*/\1\np\1/p' plugin/nccl/functions.txt | sort)
[ "$exported" = "$listed" ] ||
  fail "exported and listed functions differ: $(diff <(echo "$exported") <(echo "$listed"))"
needs=$(readelf -d "$front" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | grep -vE '^(libc|libm|ld-linux.*)\.so' || true)
[ -z "$needs" ] || fail "libarfusion-nccl.so needs $needs"
real=$(ldconfig -p 2>/dev/null | sed -n 's/.*libnccl\.so\.2.*=> //p' | head -n 1)
cuda=${CUDA_HOME:-/usr/local/cuda}
[ -n "$real" ] || real=$(ls "$cuda"/lib*/libnccl.so.2 2>/dev/null | head -n 1 || true)
headers=$(ls "$cuda/include/nccl.h" "$cuda/include/nccl_device/core.h" /usr/include/nccl.h 2>/dev/null || true)
missing=$(sh plugin/nccl/functions.sh missing $real $headers)
[ -z "$missing" ] || fail "not exported: $missing"

# ---------------------------------------------------------------- ways in
cc="${CC:-gcc} -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -O1 -g"
$cc -o "$root/linked" test/nccl/loader/app.c -L"$mock" -l:libnccl.so.2 -Wl,-rpath,"$mock"
$cc -DOPENS_BY_HAND -o "$root/by-hand" test/nccl/loader/app.c -ldl
$cc -DOPENS_BY_HAND -o "$root/by-hand-rpath" test/nccl/loader/app.c -ldl -Wl,-rpath,"$mock"
$cc -shared -fPIC -fno-builtin -o "$root/allocator.so" test/nccl/loader/allocator.c

# run NAME WANTED-STDOUT PATTERN-OF-STDERR COMMAND...; no pattern: nothing on stderr
run() {
  local name=$1 wanted=$2 pattern=$3 status=0
  shift 3
  timeout 60 "$@" >"$root/out" 2>"$root/err" || status=$?
  [ $status = 0 ] && [ "$(cat "$root/out")" = "$wanted" ] || fail "$name: exit $status, $(cat "$root/out" "$root/err")"
  if [ -z "$pattern" ]; then
    [ ! -s "$root/err" ] || fail "$name: $(cat "$root/err")"
  else
    grep -qE "$pattern" "$root/err" || fail "$name: no '$pattern' in: $(cat "$root/err")"
  fi
}
right="version 22809 sum 200"
taken='ARFUSION_STATS .*: 2 ncclAllReduce, 2 taken, 0 left to NCCL'
export ARFUSION_PLUGIN=$mock/libarfusion-plugin-stream.so

run "without the library" "$right" "" "$root/linked"
run "preloaded and linked" "$right" "" env LD_PRELOAD="$front" "$root/linked"
run "it takes" "$right" "$taken" env ARFUSION_STATS=1 LD_PRELOAD="$front" "$root/linked"
run "by path, libnccl loaded" "$right" "$taken" \
  env ARFUSION_STATS=1 LD_PRELOAD="$mock/libnccl.so.2" "$root/by-hand" "$front"
run "by path, ARFUSION_NCCL_LIB" "$right" "$taken" \
  env ARFUSION_STATS=1 ARFUSION_NCCL_LIB="$mock/libnccl.so.2" "$root/by-hand" "$front"
run "by path, LD_LIBRARY_PATH" "$right" "$taken" env ARFUSION_STATS=1 LD_LIBRARY_PATH="$mock" "$root/by-hand" "$front"
run "by path, the caller's folders" "$right" "$taken" env ARFUSION_STATS=1 "$root/by-hand-rpath" "$front"
run "preloaded, libnccl by path" "$right" "" env LD_PRELOAD="$front" "$root/by-hand" "$mock/libnccl.so.2"
run "a program without NCCL" "$(ls -d /)" "" env ARFUSION_STATS=1 LD_PRELOAD="$front" ls -d /
run "an allocator in front" "$right" "$taken" env ARFUSION_STATS=1 LD_PRELOAD="$root/allocator.so:$front" "$root/linked"
run "an allocator behind" "$right" "$taken" env ARFUSION_STATS=1 LD_PRELOAD="$front:$root/allocator.so" "$root/linked"
jemalloc=$(ldconfig -p | sed -n 's/.*libjemalloc\.so\.2.*=> //p' | head -n 1)
[ -z "$jemalloc" ] || run jemalloc "$right" "$taken" env ARFUSION_STATS=1 LD_PRELOAD="$jemalloc:$front" "$root/linked"
$cc -fsanitize=address -static-libasan -o "$root/asan" test/nccl/loader/app.c -L"$mock" -l:libnccl.so.2 \
  -Wl,-rpath,"$mock"
run "an application under ASan" "$right" "$taken" env ARFUSION_STATS=1 LD_PRELOAD="$front" "$root/asan"
run "the plugin beside it" "$right" "turned off by configuration" \
  env -u ARFUSION_PLUGIN ARFUSION_ALGO=none ARFUSION_STATS=1 LD_PRELOAD="$front" "$root/linked"
mkdir -p "$root/lib/arfusion"
cp "$front" "$root/lib/arfusion"
cp "$B/libarfusion-plugin.so" "$root/lib"
run "the plugin where both are installed" "$right" "turned off by configuration" \
  env -u ARFUSION_PLUGIN ARFUSION_ALGO=none ARFUSION_STATS=1 LD_PRELOAD="$root/lib/arfusion/libarfusion-nccl.so" \
  "$root/linked"

# As serving engines do it from Python.
timeout 60 env ARFUSION_NCCL_LIB="$mock/libnccl.so.2" ARFUSION_STATS=1 \
  ${PYTHON:-/usr/bin/python3} test/gpu/pynccl.py host "$front" "$mock/libnccl.so.2" \
  >"$root/out" 2>"$root/err" || fail "pynccl: $(cat "$root/out" "$root/err")"
grep -q ' 40 ncclAllReduce, 20 taken, 20 left to NCCL' "$root/err" || fail "pynccl: $(cat "$root/err")"

# ---------------------------------------------------------------- nothing to forward to
one_line() { # one_line NAME PATTERN COMMAND...
  local name=$1 pattern=$2
  shift 2
  run "$name" "results 2 2 2" "$pattern" "$@"
  [ "$(wc -l <"$root/err")" = 1 ] || fail "$name: not one line: $(cat "$root/err")"
}
cp "$front" "$root/libcopy.so"
one_line "a file that is not there" 'no libnccl to forward to; tried ARFUSION_NCCL_LIB=/no/libnccl.so' \
  env ARFUSION_NCCL_LIB=/no/libnccl.so "$root/by-hand" "$front"
one_line "not a libnccl" 'tried ARFUSION_NCCL_LIB=libm.so.6 \(not a libnccl\)' \
  env ARFUSION_NCCL_LIB=libm.so.6 "$root/by-hand" "$front"
one_line "itself" 'that is libarfusion-nccl.so itself' env ARFUSION_NCCL_LIB="$front" "$root/by-hand" "$front"
one_line "a copy of itself" 'that is libarfusion-nccl.so itself' \
  env ARFUSION_NCCL_LIB="$root/libcopy.so" "$root/by-hand" "$front"
mkdir "$root/bogus"
echo 'int none;' | $cc -shared -fPIC -x c - -o "$root/bogus/libnccl.so.2" -Wl,-soname,libnccl.so.2
one_line "no libnccl" 'tried a libnccl.so.2 that is loaded, .*bogus/.* \(not .*\), libnccl.so.2 \(not a libnccl\)' \
  env LD_LIBRARY_PATH="$root/bogus" "$root/by-hand" "$front"

# ---------------------------------------------------------------- a real libnccl, where there is one
[ -n "$real" ] || exit 0
LD_LIBRARY_PATH=${real%/*} ${PYTHON:-/usr/bin/python3} - "$front" "$real" <<'EOF'
import ctypes, sys
version = [ctypes.c_int(), ctypes.c_int()]
for i, path in enumerate(sys.argv[1:]):
    library = ctypes.CDLL(path)
    assert library.ncclGetVersion(ctypes.byref(version[i])) == 0
    unique_id = ctypes.create_string_buffer(128)
    assert library.ncclAllReduce(None, None, ctypes.c_size_t(1), 7, 0, None, None) == 4
    library.ncclGetErrorString.restype = ctypes.c_char_p
    assert library.ncclGetErrorString(5).startswith(b"invalid usage"), library.ncclGetErrorString(5)
assert version[0].value == version[1].value, version
EOF
