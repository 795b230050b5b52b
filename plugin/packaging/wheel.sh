#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the Python package as a wheel that carries the shared objects, into $B. Needs no network.
set -eu
"$PYTHON" -c 'import setuptools, wheel' 2>/dev/null || {
  echo "make wheel: $PYTHON lacks setuptools or wheel (Debian: python3-setuptools python3-wheel)" >&2
  exit 1
}
stage=$B/wheel
rm -rf "$stage"
mkdir -p "$stage"
cp -R plugin/python/. "$stage"
find "$stage" -name __pycache__ -prune -exec rm -rf {} +
cp LICENSE "$stage"
mkdir "$stage/arfusion/lib"
for object in libarfusion.so.1 libarfusion-plugin.so libarfusion-nccl.so; do
  [ ! -e "$B/$object" ] || cp "$B/$object" "$stage/arfusion/lib"
done
file=arfusion-$VERSION-py3-none-linux_$(uname -m).whl
rm -f "$B/$file"
(cd "$stage" && "$PYTHON" -c 'import setuptools; setuptools.setup()' -q bdist_wheel \
  --plat-name "linux_$(uname -m)" -d .. 2>wheel.log) || {
  cat "$stage/wheel.log" >&2
  exit 1
}
[ -e "$B/$file" ] || { echo "make wheel: plugin/python/arfusion/version.py is not $VERSION" >&2; exit 1; }
echo "$B/$file"
