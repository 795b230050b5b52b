# SPDX-License-Identifier: Apache-2.0
# arfusion-topo with bad options, bad files, and nowhere to write to: the exit status, and one line that names what is
# wrong.
set -u
tool=$(realpath "$B/arfusion-topo")
hgx=test/data/topologies/nccl-hgx-h200-8.xml
. test/expect.sh

# ---- usage
expect 64 'unknown command toplogy' toplogy
expect 64 'one command at a time' doctor probe
expect 64 'unrecognized option' --jsno
expect 64 'one file at a time' --nccl-xml a --hwloc-xml b
expect 64 'probe measures this machine' probe --nccl-xml $hgx
expect 64 'probe measures this machine' --hwloc-xml $hgx probe
expect 64 'export needs --format' export
expect 64 'there are hwloc-xml' export --format png
expect 64 'belong to export' --format dot
expect 64 'belong to export' doctor -o "$scratch/x"
expect 0 '' --help
expect 0 '' --version
grep -q '^arfusion-topo [0-9]' "$scratch/out" || { echo "--version: $(cat "$scratch/out")"; bad=1; }
for before in "--json --redact export --format dot" "export --json --format dot --redact" \
  "-f dot export --redact --json"; do
  expect 0 '' $before --nccl-xml $hgx
  grep -q '"content": "graph' "$scratch/out" || { echo "$before: $(head -c 300 "$scratch/out")"; bad=1; }
done

# ---- files: the message has the file, and the line and element where there is one; with --json it is a document
head -c 3000 test/data/topologies/hwloc-dgx2.xml >"$scratch/cut.xml"
head -c 900 $hgx >"$scratch/cut-nccl.xml"
echo 'no XML at all' >"$scratch/text.xml"
: >"$scratch/empty.xml"
/usr/bin/python3 -c 'print("<system version=\"1\">" + "<cpu>" * 100000)' >"$scratch/deep.xml"
head -c 4000 /dev/urandom >"$scratch/random.xml"
expect 3 'cut.xml, line 35' --hwloc-xml "$scratch/cut.xml"
expect 3 'cut-nccl.xml, line' --nccl-xml "$scratch/cut-nccl.xml" doctor
expect 3 'text.xml, line 1' --nccl-xml "$scratch/text.xml"
expect 3 'empty.xml' --hwloc-xml "$scratch/empty.xml"
expect 3 'deep.xml' --nccl-xml "$scratch/deep.xml"
expect 3 'random.xml' --hwloc-xml "$scratch/random.xml" export --format dot
expect 3 'No such file' --nccl-xml "$scratch/none.xml"
expect 3 'topology>' --hwloc-xml $hgx
expect 3 'system>' --nccl-xml test/data/topologies/hwloc-dgx2.xml
expect 3 'text.xml, line 1' --json doctor --nccl-xml "$scratch/text.xml"
grep -q '"line": 1,' "$scratch/out" && grep -q '"exit_code": 3' "$scratch/out" || { echo "no error document"; bad=1; }

# A file that contradicts itself is read, and what is wrong with it is said.
sed '0,/target="0000:c3:00.0"/s//target="0000:83:00.0"/; 0,/tclass="0x068000"/s//tclass="0x030200"/' $hgx \
  >"$scratch/self.xml"
expect 1 '' --nccl-xml "$scratch/self.xml"
grep -q 'nvlink.self' "$scratch/out" || { echo "a GPU linked to itself: $(cat "$scratch/out")"; bad=1; }
expect 1 '' doctor --nccl-xml "$scratch/self.xml"
grep -q '^FAIL  *nvlink.self' "$scratch/out" || { echo "a GPU linked to itself: $(cat "$scratch/out")"; bad=1; }
sed '0,/target="0000:c3:00.0"/s//target="0000:d3:00.0"/' $hgx >"$scratch/target.xml"
expect 1 '' doctor --nccl-xml "$scratch/target.xml"
grep -q '^FAIL  *nvlink.targets  *GPU0 (0000:83:00.0)' "$scratch/out" ||
  { echo "wrong target: $(cat "$scratch/out")"; bad=1; }

# ---- what libhwloc leaves out without a word, whatever its place in the tree: PCI domains of more than four digits
vm=test/data/topologies/nccl-vm-4x2-nogpu.xml
for lost in 'GPU 10001:00:00.0' 'network card 10101:00:00.0' 'bridge 1ffff:ff:01.0'; do
  sed "s/\"${lost##* 1}\"/\"${lost##* }\"/" $vm >"$scratch/domain.xml"
  expect 3 "without $lost: libhwloc takes PCI domains up to ffff" export -f hwloc-xml --nccl-xml "$scratch/domain.xml"
  if [ -s "$scratch/out" ] || [ "$(wc -l <"$scratch/err")" != 1 ]; then echo "$lost: not one line alone"; bad=1; fi
  expect 0 '' export -f nccl-xml --nccl-xml "$scratch/domain.xml"
done

# ---- what others wrote (settings, names of files) ends no line and steers no terminal
odd=$(printf 'a\nb\033[31m\177')
cp $hgx "$scratch/$odd.xml"
plain() { # plain WHAT FILE...: no control characters, and no line that begins with b
  ! LC_ALL=C grep -nE "$(printf '[\001-\010\013-\037\177]')|^b" "${@:2}" || { echo "$1: not plain text"; bad=1; }
}
for command in "" doctor; do
  expect 0 '' $command --nccl-xml "$scratch/$odd.xml"
  plain "${command:-overview} of a file of that name" "$scratch/out"
  for name in NCCL_P2P_LEVEL NCCL_TOPO_FILE NCCL_CONF_FILE ARFUSION_ALGO ARFUSION_NCCL_LIB CUDA_VISIBLE_DEVICES; do
    env "$name=$odd" "$tool" $command >"$scratch/out" 2>"$scratch/err"
    plain "${command:-overview} with $name" "$scratch/out" "$scratch/err"
  done
done
expect 3 '' --nccl-xml "$scratch/$odd.none"
plain "a file that is not there" "$scratch/err"
expect 3 '' export -f dot --nccl-xml $hgx -o "$scratch/no/$odd"
plain "an output in no folder" "$scratch/err"
expect 64 '' "$odd"
plain "an unknown command" "$scratch/err"
expect 64 '' export -f "$odd"
plain "an unknown format" "$scratch/err"

# ---- nowhere to write to
expect 3 'no/such' export --format dot --nccl-xml $hgx -o "$scratch/no/such/file"
expect 3 '/dev/full: No space left' export --format dot --nccl-xml $hgx -o /dev/full
# not_written STATUS WHAT: after such a run there is one line that says so
not_written() {
  if [ $1 != 3 ] || ! grep -q 'cannot write the output' "$scratch/err" || [ "$(wc -l <"$scratch/err")" != 1 ]; then
    echo "$2: exit $1, $(cat "$scratch/err")"; bad=1
  fi
}
for arguments in "" "--json" "doctor" "doctor --json" "export --format nccl-xml" "export --format dot --json"; do
  status=0
  "$tool" --nccl-xml $hgx $arguments >/dev/full 2>"$scratch/err" || status=$?
  not_written $status "$arguments to a full disk"
  status=0
  "$tool" --nccl-xml $hgx $arguments >&- 2>"$scratch/err" || status=$?
  not_written $status "$arguments to a closed stdout"
done
# A file is not mistaken for a stdout that is closed.
"$tool" export --format dot --nccl-xml $hgx -o "$scratch/picture.dot" >&- && grep -q '^}' "$scratch/picture.dot" ||
  { echo "-o with stdout closed"; bad=1; }
exit $bad
