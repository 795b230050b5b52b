# SPDX-License-Identifier: Apache-2.0
# What arfusion-topo exports is the same machine again for itself, and a picture for graphviz; --redact leaves nothing
# that names a machine or a board; a machine of 300 GPUs takes little time and memory.
set -eu
folder=test/data/topologies
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
tool=$(realpath "$B/arfusion-topo")
fail() { echo "$1"; exit 1; }
# Verdicts are exit codes; only 3 with nothing on stdout would be an error.
topo() { local status=0; "$tool" "$@" || status=$?; [ $status -le 3 ]; }
matrix() { sed -n '/^  *GPU0  *GPU1/,/^$/p' "$1"; }

for machine in hwloc-dgx2 hwloc-power8-4gpu nccl-hgx-h200-8 nccl-vm-4x2-nogpu; do
  from=--${machine%%-*}-xml
  topo $from $folder/$machine.xml >"$scratch/text"
  [ -n "$(matrix "$scratch/text")" ]
  for format in hwloc nccl; do
    "$tool" export --format $format-xml $from $folder/$machine.xml -o "$scratch/$format.xml"
    topo --$format-xml "$scratch/$format.xml" >"$scratch/again"
    [ "$(matrix "$scratch/text")" = "$(matrix "$scratch/again")" ] ||
      fail "$machine as $format XML: $(matrix "$scratch/again")"
  done
  lstopo-no-graphics -i "$scratch/hwloc.xml" --distances >"$scratch/lstopo"
  grep -q arfusionNVLinkBandwidth "$scratch/lstopo" || fail "lstopo and $machine: $(cat "$scratch/lstopo")"
  "$tool" --format=dot export $from $folder/$machine.xml >"$scratch/picture"
  gpus=$(grep -c '^GPU[0-9]* *[0-9a-f]*:' "$scratch/text")
  [ "$(grep -c '^    gpu[0-9]* \[label=' "$scratch/picture")" = "$gpus" ] || fail "$machine: not $gpus GPUs drawn"
  "$tool" export -f svg $from $folder/$machine.xml -o "$scratch/svg"
  [ "$(grep -c '<title>gpu[0-9]*</title>' "$scratch/svg")" = "$gpus" ] || fail "$machine: not $gpus GPUs in the SVG"
  grep -q '</svg>' "$scratch/svg"
  ! grep -q '#d00000' "$scratch/picture" || fail "$machine: something is red"
done

# The odd one is red, and nobody else.
sed '0,/count="4"/s//count="3"/' $folder/nccl-hgx-h200-8.xml >"$scratch/odd.xml"
"$tool" export -f dot --nccl-xml "$scratch/odd.xml" >"$scratch/picture"
[ "$(grep -c 'gpu.*label.*#d00000' "$scratch/picture")" = 1 ] || fail "not one GPU is red"
grep -q 'gpu0.*not as many as the others' "$scratch/picture" || fail "the odd GPU"

# Without graphviz the message names its package.
status=0
PATH=$scratch/bin "$tool" export -f svg --nccl-xml "$scratch/odd.xml" >"$scratch/out" 2>"$scratch/err" || status=$?
grep -q 'apt-get install graphviz' "$scratch/err" || fail "no graphviz: $(cat "$scratch/err")"
[ $status = 3 ] && ! [ -s "$scratch/out" ]
mkdir "$scratch/bin"
printf '#!/bin/sh\nexit 7\n' >"$scratch/bin/dot"
chmod +x "$scratch/bin/dot"
status=0
PATH=$scratch/bin:$PATH "$tool" export -f svg --nccl-xml "$scratch/odd.xml" >"$scratch/out" 2>"$scratch/err" ||
  status=$?
[ $status = 3 ] && grep -q 'exit code 7' "$scratch/err" || fail "a dot that fails: $(cat "$scratch/err")"

# ---- --redact
host=$(uname -n)
for command in "" "--json" "doctor" "doctor --json" "export -f hwloc-xml" "export -f nccl-xml" \
  "export -f dot --json"; do
  for machine in hwloc-dgx2 hwloc-power8-4gpu nccl-hgx-h200-8 ''; do
    source=${machine:+--${machine%%-*}-xml $folder/$machine.xml}
    NCCL_HOSTID=0x5ec2e7 CUDA_VISIBLE_DEVICES=GPU-d3977428 topo --redact $command $source >"$scratch/out" 2>/dev/null
    for secret in 'GPU-[0-9a-f]' 'MIG-[0-9a-f]' 'host_hash="0x[1-9]' '0321019030775' '0x5ec2e7' 'HostName'; do
      ! grep -E "$secret" "$scratch/out" || fail "$command $source --redact: $secret"
    done
    if [ -n "$machine" ] || [ ${#host} -le 3 ]; then continue; fi # too short a name is in other words
    ! grep -w "$host" "$scratch/out" || fail "$command --redact: the host's name"
  done
done
topo --redact | grep -q '^Machine: this machine, '
topo --redact --json | grep -q '"host": null'
topo --hwloc-xml $folder/hwloc-dgx2.xml | grep -q GPU-d3977428 || fail "without --redact the UUID is shown"

# ---- 300 GPUs
/usr/bin/python3 - >"$scratch/many.xml" <<'END'
print('<system version="1">')
for cpu in range(2):
    print(f'<cpu numaid="{cpu}" affinity="ffffffff">')
    for gpu in range(150):
        n = cpu * 150 + gpu
        links = "".join(f'<nvlink target="00ff:{s:02x}:00.0" count="{s % 2 + 4}" tclass="0x068000"/>' for s in range(4))
        print(f'<pci busid="{n // 30:04x}:{n % 30 + 1:02x}:00.0" class="0x030200" link_width="16">'
              f'<gpu dev="{n}" sm="90" rank="{n}" gdr="1">{links}</gpu></pci>')
    print('</cpu>')
print('</system>')
END
[ -n "${SANITIZED:-}" ] || ulimit -v 65536 # KiB
for command in "" "--json" "doctor" "export -f nccl-xml" "export -f dot"; do
  start=$(date +%s%N)
  topo --nccl-xml "$scratch/many.xml" $command >"$scratch/out"
  ms=$((($(date +%s%N) - start) / 1000000))
  echo "300 GPUs: $command: $ms ms"
  [ -n "${SANITIZED:-}" ] || [ $ms -lt 2000 ] || fail "300 GPUs: $command: $ms ms"
done
grep -c '^    gpu' "$scratch/out" | grep -qx 300
