# SPDX-License-Identifier: Apache-2.0
# make builds again what was built with other flags, and nothing else.
set -eu
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
unset MAKEFLAGS MFLAGS MAKEOVERRIDES WERROR DEBUG # of the make that runs this

expect() { # expect built|nothing VARIABLE...: what make does with an object that is there
  local wanted=$1 did=nothing
  shift
  make --no-print-directory CUDA=0 BUILDDIR="$scratch" "$@" "$scratch/obj/topo/names.c.o" >"$scratch/out"
  ! grep -q '^  CC ' "$scratch/out" || did=built
  [ $did = "$wanted" ] || { echo "make $*: $did, expected $wanted"; exit 1; }
}
expect built
expect nothing
expect built DEBUG=1
expect nothing DEBUG=1
expect built CFLAGS="-O1 -DX='a b'"
expect nothing CFLAGS="-O1 -DX='a b'"
expect built CFLAGS="-O1 -DX='a b'" WERROR=1
expect nothing CFLAGS="-O1 -DX='a b'"
