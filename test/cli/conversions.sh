# SPDX-License-Identifier: Apache-2.0
# Where the architecture converts to e4m3 (sm_89 and up) and e2m1 (the families of sm_100 and sm_120) by itself, the
# kernels let it: seen in the disassembly of the plugin that has been built.
set -eu
[ "$CUDA" = 1 ] || { echo "kernels are part of CUDA builds"; exit 77; }
PATH=$PATH:${CUDA_HOME:-/usr/local/cuda}/bin
command -v cuobjdump >/dev/null || { echo "cuobjdump is not here"; exit 77; }
plugin=$B/libarfusion-plugin.so
archs=$(cuobjdump -lelf "$plugin" | sed -n 's/.*\.\(sm_[0-9]*\)[a-z]*\.cubin$/\1/p' | sort -u)
[ -n "$archs" ] || { echo "no kernels in $plugin"; exit 1; }

bad=0
expect() { # expect ARCH WANTED INSTRUCTION
  local found
  found=$(grep -cE "F2FP\.[A-Z0-9.]*$3" "$disassembly") || true
  echo "$1: $found conversions to $3"
  [ $((found > 0)) = "$2" ] || { echo "$1: expected $([ "$2" = 1 ] || echo no) conversions"; bad=1; }
}
disassembly=$(mktemp)
trap 'rm -f "$disassembly"' EXIT
for arch in $archs; do
  number=${arch#sm_}
  cuobjdump -sass -arch "$arch" "$plugin" >"$disassembly"
  expect "$arch" $((number >= 89)) E4M3
  expect "$arch" $((number >= 100)) E2M1
done
exit $bad
