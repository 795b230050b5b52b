# SPDX-License-Identifier: Apache-2.0
# What the shared objects export and need.
set -eu
fail() { echo "$1" >&2; exit 1; }
exported() { nm -D --defined-only "$1" | awk '{ print $3 }' | sort; }

wanted='arfusionPlugin_v1 ncclCollNetPlugin_v11 ncclCollNetPlugin_v12 ncclNetPlugin_v11 ncclNetPlugin_v12'
wanted="$wanted ncclProfiler_v5 ncclProfiler_v6"
[ "$(exported "$B/libarfusion-plugin.so" | xargs)" = "$wanted" ] ||
  fail "the plugin exports: $(exported "$B/libarfusion-plugin.so")"
declared=$(grep -o 'arfusion[A-Z][A-Za-z]*(' include/arfusion.h | tr -d '(' | sort -u)
[ "$(exported "$B/libarfusion.so.1")" = "$declared" ] ||
  fail "libarfusion exports other functions than its header declares: $(exported "$B/libarfusion.so.1")"
recorded=$(sed -n 's/^ \([A-Za-z_]*\)@.*/\1/p' plugin/packaging/debian/libarfusion1.symbols | sort)
[ "$recorded" = "$declared" ] ||
  fail "not as debian/libarfusion1.symbols has it: $(printf '%s\n' "$recorded" "$declared" | sort | uniq -u)"
for name in libarfusion-plugin.so libarfusion.so.1 libarfusion-nccl.so arfusion-bench arfusion-topo; do
  object=$B/$name
  [ -e "$object" ] || fail "$object is not there"
  if ldd "$object" | grep -E 'libcuda\.|libcudart|libnvidia|libnccl'; then fail "$object links the libraries above"; fi
done
