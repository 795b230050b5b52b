# SPDX-License-Identifier: Apache-2.0
# What cannot be installed or packed is said in one line, which says what to do.
set -u
bad=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# expect TEXT COMMAND...: exit 1, and one line with the text on stderr
expect() {
  local text=$1 status=0
  shift
  "$@" >"$scratch/out" 2>"$scratch/err" || status=$?
  if [ $status != 1 ] || [ "$(wc -l <"$scratch/err")" != 1 ] || ! grep -q -- "$text" "$scratch/err"; then
    echo "$*: exit $status, expected one line with '$text'; stderr: $(cat "$scratch/err")"
    bad=1
  fi
}
install_to() { env B="$B" VERSION=0 PREFIX="$1" LIBDIR="$1/lib" DESTDIR="${2:-}" sh plugin/packaging/install.sh; }

touch "$scratch/file"
expect "cannot write to $scratch/file/prefix/bin: choose another PREFIX" install_to "$scratch/file/prefix"
expect "PREFIX and LIBDIR are absolute" install_to local
[ -e local ] && { echo "local was made"; bad=1; }
for tool in sh cat; do ln -s "$(command -v $tool)" "$scratch"; done
expect 'apt-get install -y dpkg-dev debhelper' \
  env PATH="$scratch" B="$B/none" VERSION=0 "$scratch/sh" plugin/packaging/deb.sh
[ -e "$B/none" ] && { echo "a copy was made"; bad=1; }

# With CUDA into a folder without, or the other way round: before anything is built.
mkdir "$scratch/build"
echo "in another way" >"$scratch/build/kind"
if make BUILDDIR="$scratch/build" all >"$scratch/out" 2>"$scratch/err" ||
  ! grep -q "$scratch/build was built in another way, this would be with.* CUDA: make clean, or" "$scratch/err"; then
  echo "make in a folder of another kind: $(cat "$scratch/out" "$scratch/err")"
  bad=1
fi
exit $bad
