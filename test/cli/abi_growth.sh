# SPDX-License-Identifier: Apache-2.0
# Programs and plugins of different releases work together: every struct of the ABI, and the table, grown by two fields,
# as a later release may. Programs of this release run with a plugin built with those, and programs built with those
# with this plugin.
set -eu
[ -z "${SANITIZED:-}" ] || { echo "the programs of others are not sanitized"; exit 77; }
later=$(realpath -m "$B/later") now=$(realpath "$B")
rm -rf "$later"
mkdir -p "$later/include"
for header in arfusion_plugin.h arfusion.h; do
  awk '/^typedef struct \{/ { fields = 1 }
    /^\} arfusion[A-Za-z0-9_]*_t;/ && fields { if (!/UniqueId/) print "  uint64_t laterNumber;\n  void* laterPointer;" }
    /^\}/ { fields = 0 } { print }' "include/$header" >"$later/include/$header"
done
grown=$(grep -c laterNumber "$later/include/arfusion_plugin.h")
[ "$grown" = "$(grep -c '^#define ARFUSION_[A-Z]*_V1_SIZE' include/arfusion_plugin.h)" ] ||
  { echo "$grown structs grew"; exit 1; }
make --no-print-directory CUDA=0 BUILDDIR="$B/later" CFLAGS="-O1 -I$later/include" \
  "$B/later/libarfusion-plugin.so" "$B/later/libarfusion.so.1" >/dev/null

# build DIRECTORY: the examples against its headers and its libarfusion
build() {
  ${CC:-gcc} -std=c11 -D_DEFAULT_SOURCE -I"$2" test/examples/plugin_only.c -o "$1/plugin_only" -ldl -lpthread
  g++ -std=c++17 -I"$2" test/examples/linked.cc -o "$1/linked" -L"$1" -larfusion -Wl,-rpath,"$1" -pthread
}
mkdir -p "$later/now"
ln -sf "$now/libarfusion.so.1" "$later/now/libarfusion.so"
ln -sf "$now/libarfusion.so.1" "$later/now/libarfusion.so.1"
build "$later/now" include
build "$later" "$later/include"
if ls /dev/nvidia0 >/dev/null 2>&1; then export ARFUSION_DEVICE=host; fi # the examples use host memory

export ARFUSION_PLUGIN=$later/libarfusion-plugin.so # later than the programs
"$later/now/plugin_only"
"$later/now/linked"
"$B/arfusion-bench" check --cases test/data/cases.json --ranks-as threads | tail -n 1 | grep ' 0 skipped, 0 differ$'
export ARFUSION_PLUGIN=$now/libarfusion-plugin.so # earlier than they are
"$later/plugin_only"
"$later/linked"
