#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian packages that the build and the tests need and that are missing. No network when all are there.
set -eu
packages="gcc g++ libc6-dev binutils pkg-config libcmocka-dev libjansson-dev libmd-dev libhwloc-dev libexpat1-dev \
clang libclang-rt-dev spin gnuplot-nox graphviz hwloc-nox iproute2 openmpi-bin libopenmpi-dev groff-base \
build-essential debhelper dh-python lintian debootstrap python3-numpy python3-setuptools python3-wheel python3-venv"

if ! command -v dpkg-query >/dev/null 2>&1; then
  echo "make deps knows Debian's packages only; install what matches these: $packages" >&2
  exit 1
fi
missing=
for package in $packages; do
  status=$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) || status=
  [ "$status" = installed ] || missing="$missing $package"
done
if [ -z "$missing" ]; then
  echo "make deps: everything is there"
  exit 0
fi
install="apt-get install -y --no-install-recommends$missing"
if [ "$(id -u)" = 0 ]; then
  sudo=
elif command -v sudo >/dev/null 2>&1; then
  sudo=sudo
else
  echo "make deps: packages are missing; as root: apt-get update && $install" >&2
  exit 1
fi
export DEBIAN_FRONTEND=noninteractive
$sudo apt-get update -q
$sudo $install
