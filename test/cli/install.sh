# SPDX-License-Identifier: Apache-2.0
# Installed into an empty folder, a C program that opens the plugin by hand and a C++ program that links libarfusion
# compile against the installed headers and run with only ARFUSION_PLUGIN set.
set -eu
[ -z "${SANITIZED:-}" ] || { echo "the programs of others are not sanitized"; exit 77; }
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
make --no-print-directory install BUILDDIR="$B" PREFIX=/opt/arfusion DESTDIR="$root" >/dev/null
prefix=$root/opt/arfusion
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$root
${CC:-gcc} -std=c11 -D_DEFAULT_SOURCE -Wall -Wextra -Werror test/examples/plugin_only.c \
  $(pkg-config --cflags arfusion) -o "$root/c" -ldl -lpthread
g++ -std=c++17 -Wall -Wextra -Werror test/examples/linked.cc $(pkg-config --cflags --libs arfusion) -pthread \
  -o "$root/cc"
export ARFUSION_PLUGIN=$prefix/lib/libarfusion-plugin.so
if ls /dev/nvidia0 >/dev/null 2>&1; then export ARFUSION_DEVICE=host; fi # the examples use host memory
# The libraries that arfusion(7) lists are those that are there (the development link excepted).
page=$prefix/share/man/man7/arfusion.7
sed -n '/^\.SH FILES/,/^\.SH SEE/s/^\.I \(.*lib.*\)/\1/p' "$page" | tr -d '\\' | tr -s ', ' '\n' | sort >"$root/listed"
(cd "$prefix/lib" && find . -name 'lib*' ! -name libarfusion.so | sed 's|^\./||' | sort) | diff "$root/listed" -
for name in net profiler; do # as NCCL looks for them
  cmp "$prefix/lib/libnccl-$name-arfusion.so" "$prefix/lib/libarfusion-plugin.so"
done
(cd / && "$root/c")
(cd / && LD_LIBRARY_PATH=$prefix/lib "$root/cc")
unset ARFUSION_PLUGIN
(cd / && LD_LIBRARY_PATH=$prefix/lib "$root/cc") # beside libarfusion
(cd / && "$prefix/bin/arfusion-bench" check --cases "$OLDPWD/test/data/cases.json" --algo twoshot --ranks-as threads)
(cd / && "$prefix/bin/arfusion-topo" --nccl-xml "$OLDPWD/test/data/topologies/nccl-hgx-h200-8.xml" >/dev/null)
