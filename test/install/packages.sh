# SPDX-License-Identifier: Apache-2.0
# Installed into a minimal Debian system (debootstrap), tools and examples work: what `make install` copies there, then
# the packages that `make deb` builds, which leave nothing behind when they are removed. Built without CUDA, for time.
set -eu
fail() { echo "$1" >&2; exit 1; }
skip() { echo "$1"; exit 77; }
[ "$(id -u)" = 0 ] || skip "a Debian system can only be made by root"
unshare --mount --fork sh -c 'mount -t tmpfs none /mnt' 2>/dev/null || skip "root may not mount anything here"
for tool in debootstrap lintian unshare dpkg-buildpackage dh; do
  command -v $tool >/dev/null || skip "$tool is missing: make deps"
done
mirror=$(apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 'Created-By: Packages' 'Label: Debian' | head -n 1)
[ -n "$mirror" ] || skip "apt has no Debian mirror"

work=$(realpath -m "$B/install-root")
root=$work/root
mkdir -p "$work"
trap 'rm -rf "$root"' EXIT
rm -rf "$root"

# Base system and packages at the same time.
make_root() {
  debootstrap --variant=minbase "${mirror#* }" "$root" "${mirror% *}" >"$work/debootstrap.log" 2>&1 || {
    tail -n 3 "$work/debootstrap.log"
    return 1
  }
}
make_root &
making=$!
make --no-print-directory CUDA=0 BUILDDIR="$B/install-root" deb >"$work/deb.log" 2>&1 ||
  { tail -n 20 "$work/deb.log" >&2; fail "make deb"; }
lintian --fail-on error,warning "$work"/deb/*.deb >"$work/lintian.log" 2>&1 ||
  fail "lintian: $(cat "$work/lintian.log")"
wait $making || fail "debootstrap failed, see above"

# in_root COMMAND: with /proc, which goes away with the command. Its network and time limits are the machine's.
in_root() {
  timeout -k 10 300 unshare --mount --fork \
    sh -c 'mount -t proc proc "$1/proc" && exec chroot "$1" /bin/sh -ec "$2"' - "$root" "$1"
}
apt() { in_root "export DEBIAN_FRONTEND=noninteractive; apt-get -qq -o Dpkg::Use-Pty=0 $1" >"$work/apt.log" 2>&1 ||
  fail "apt-get $1: $(tail -n 5 "$work/apt.log")"; }
files() {
  (cd "$root" && find . -xdev \( -path ./var -o -path ./tmp -o -path ./proc -o -path ./dev \) -prune -o -print | sort)
}
tools_work() {
  in_root 'cd /tmp
    arfusion-topo --nccl-xml nccl-hgx-h200-8.xml | grep -q "^Verdict: good"
    status=0; arfusion-topo doctor >doctor.txt || status=$?; [ $status -le 3 ]
    arfusion-bench check --cases cases.json --algo twoshot --ranks-as threads | tail -n 1 | grep " 0 differ$"
    if ldconfig -p | grep libnccl.so; then exit 1; fi
    find /usr/lib /usr/local/lib -path "*/arfusion/libarfusion-nccl.so" | grep -q .'
}
cp test/data/cases.json test/data/topologies/nccl-hgx-h200-8.xml test/examples/plugin_only.c "$root/tmp"
cp /etc/resolv.conf "$root/etc/resolv.conf"

echo "== make install"
DESTDIR=$root PREFIX=/usr/local LIBDIR=/usr/local/lib B=$B VERSION=0 sh plugin/packaging/install.sh
in_root ldconfig
tools_work
files | grep arfusion | sed "s|^|$root/|" | xargs -d '\n' rm -rf

echo "== packages"
mkdir "$root/tmp/debs"
cp "$work"/deb/*.deb "$root/tmp/debs"
rm -f "$root"/tmp/debs/*-dbgsym_*
apt update
before=$(files)
apt "install -y --no-install-recommends /tmp/debs/libarfusion1_*.deb /tmp/debs/arfusion-tools_*.deb"
tools_work
apt "purge -y libarfusion1 arfusion-tools"
after=$(files)
[ "$before" = "$after" ] ||
  fail "removed, the packages leave behind: $(printf '%s\n%s\n' "$before" "$after" | sort | uniq -u)"

echo "== the C example, against the packages"
apt "install -y --no-install-recommends /tmp/debs/*.deb gcc libc6-dev pkg-config"
in_root 'cd /tmp
  gcc -std=c11 -D_DEFAULT_SOURCE -Wall -Werror plugin_only.c $(pkg-config --cflags --libs arfusion) -o plugin_only
  ./plugin_only
  printf "#include <arfusion.h>\nint main(void) { int n; return arfusionGetDeviceCount(&n) || n != 1; }\n" >linked.c
  gcc linked.c $(pkg-config --cflags --libs arfusion) -o linked
  ./linked'

echo "== Python"
in_root 'cd /tmp && ARFUSION_DEVICE=host python3 -c "import arfusion; print(arfusion.__version__)"'
