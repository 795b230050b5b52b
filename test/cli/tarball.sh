# SPDX-License-Identifier: Apache-2.0
# The tarball works where it is unpacked, with nothing set: the tools, and a program that is built against it.
set -eu
[ -z "${SANITIZED:-}" ] || { echo "the programs of others are not sanitized"; exit 77; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
tarball=$(make --no-print-directory tarball BUILDDIR="$B" | tail -n 1)
mkdir "$scratch/any where"
tar -C "$scratch/any where" -xzf "$tarball"
mv "$scratch/any where"/arfusion-* "$scratch/here"
here=$scratch/here
if ls /dev/nvidia0 >/dev/null 2>&1; then export ARFUSION_DEVICE=host; fi # the example uses host memory
cases=$PWD/test/data/cases.json
cd /
"$here/bin/arfusion-topo" --version
"$here/bin/arfusion-bench" check --cases "$cases" --algo twoshot --ranks-as threads | tail -n 1 | grep ' 0 differ$'
export PKG_CONFIG_PATH=$here/lib/pkgconfig
g++ -std=c++17 "$OLDPWD/test/examples/linked.cc" $(pkg-config --cflags --libs arfusion) -pthread \
  -Wl,-rpath,"$here/lib" -o "$here/cc"
"$here/cc"
! grep -rlE --binary-files=text "$OLDPWD|$B/" "$here/lib/pkgconfig" "$here/share"
