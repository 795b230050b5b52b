#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Copies what is built in $B to $DESTDIR$PREFIX and $DESTDIR$LIBDIR. RELOCATABLE=1: the pkg-config file finds itself.
set -eu
: "${B:?}" "${VERSION:?}" "${PREFIX:?}" "${LIBDIR:?}" "${DESTDIR=}"

fail() {
  echo "make install: $1" >&2
  exit 1
}

for path in "$PREFIX" "$LIBDIR"; do
  case $path in
    /*) ;;
    *) fail "$path is relative: PREFIX and LIBDIR are absolute paths, DESTDIR goes in front of them" ;;
  esac
done
bin=$DESTDIR$PREFIX/bin lib=$DESTDIR$LIBDIR include=$DESTDIR$PREFIX/include share=$DESTDIR$PREFIX/share
completions=$share/bash-completion/completions
for folder in "$bin" "$lib/arfusion" "$lib/pkgconfig" "$include" "$share/man/man1" "$share/man/man7" \
  "$share/doc/arfusion" "$completions"; do
  { mkdir -p "$folder" && [ -w "$folder" ]; } 2>/dev/null ||
    fail "cannot write to $folder: choose another PREFIX (PREFIX=\$HOME/arfusion), or install as root"
done

install -m 755 "$B/libarfusion-plugin.so" "$B/libarfusion.so.1" "$lib"
install -m 755 "$B/libarfusion-nccl.so" "$lib/arfusion"
ln -sf libarfusion.so.1 "$lib/libarfusion.so"
for name in net profiler; do ln -sf libarfusion-plugin.so "$lib/libnccl-$name-arfusion.so"; done
install -m 755 "$B/arfusion-bench" "$B/arfusion-topo" "$bin"
install -m 644 include/arfusion_plugin.h include/arfusion.h "$include"
install -m 644 "$B"/man/*.1 "$share/man/man1"
install -m 644 "$B"/man/*.7 "$share/man/man7"
install -m 644 "$B"/completions/* "$completions"
# The notices of what the tools contain.
for library in libexpat1-dev libjansson-dev libmd-dev; do
  notice=/usr/share/doc/$library/copyright
  [ ! -e "$notice" ] || install -m 644 "$notice" "$share/doc/arfusion/$library.copyright"
done
prefix=$PREFIX libdir=$LIBDIR
if [ "${RELOCATABLE:-}" = 1 ]; then
  prefix='${pcfiledir}/../..' libdir='${prefix}/lib'
fi
sed -e "s|@PREFIX@|$prefix|; s|@LIBDIR@|$libdir|; s|@VERSION@|$VERSION|" plugin/packaging/arfusion.pc.in \
  >"$lib/pkgconfig/arfusion.pc"
