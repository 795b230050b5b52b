#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Builds the Debian packages in a copy of the sources in $B/deb, and leaves them there. CUDA, CUDA_HOME, NCCL_HOME and
# NVCC_GENCODE as in the Makefile.
set -eu
: "${B:?}" "${VERSION:?}"

missing=
for tool in dpkg-buildpackage:dpkg-dev dh:debhelper dh_python3:dh-python; do
  command -v "${tool%%:*}" >/dev/null 2>&1 || missing="$missing ${tool#*:}"
done
if [ -z "$missing" ] && ! unmet=$(dpkg-checkbuilddeps plugin/packaging/debian/control 2>&1); then
  missing=" $(printf '%s' "$unmet" | sed 's/.*dependencies: //; s/:native//g; s/ ([^)]*)//g')"
fi
if [ -n "$missing" ]; then
  echo "make deb: packages are missing; as root: apt-get install -y$missing" >&2
  exit 1
fi

# What is in the sources' folder, without what was built there.
copy=$B/deb/arfusion-$VERSION
rm -rf "$B/deb"
mkdir -p "$copy"
tar --exclude=./build --exclude=./.git --exclude=./shared --exclude=__pycache__ -cf - . | tar -C "$copy" -xf -
mv "$copy/plugin/packaging/debian" "$copy/debian"
date=$(date -R -u ${SOURCE_DATE_EPOCH:+-d "@$SOURCE_DATE_EPOCH"})
sed -i "s/@VERSION@/$VERSION/; s/@DATE@/$date/" "$copy/debian/changelog"

# The variables of this make are not that one's: PREFIX, BUILDDIR and the like would follow from here.
unset MAKEFLAGS MFLAGS MAKELEVEL DESTDIR PREFIX LIBDIR BUILDDIR
log=$(cd "$B/deb" && pwd)/build.log
export DEB_BUILD_OPTIONS="${DEB_BUILD_OPTIONS:-parallel=$(nproc)}"
if ! (cd "$copy" && dpkg-buildpackage -b -us -uc) >"$log" 2>&1; then
  tail -n 30 "$log" >&2
  echo "make deb: the packages were not built; all of it: $log" >&2
  exit 1
fi
rm -rf "$copy"
ls "$B"/deb/*.deb
