# SPDX-License-Identifier: Apache-2.0
# What arfusion-bench says and exits with when it cannot run.
set -u
tool=$B/arfusion-bench
. test/expect.sh

echo '[]' >"$scratch/none.json"
echo '[{' >"$scratch/broken.json"
echo '[{"id": "x", "nranks": 1, "dtype": "bf16"}]' >"$scratch/fields.json"
sed 's/"cfba447c/"dfba447c/' test/data/cases.json >"$scratch/other.json"
expect 0 '' --version
grep -q '^arfusion-bench [0-9]' "$scratch/out" || { echo "--version: $(cat "$scratch/out")"; bad=1; }
expect 2 cases check
expect 2 missing.json check --cases "$scratch/missing.json" --device host
expect 2 none.json check --cases "$scratch/none.json" --device host
expect 2 broken.json check --cases "$scratch/broken.json" --device host
expect 2 nranks check --cases "$scratch/fields.json" --device host
expect 2 'host or cuda' check --cases test/data/cases.json --device tpu
expect 2 ring check --cases test/data/cases.json --algo ring
ARFUSION_PLUGIN=none expect 2 none check --cases test/data/cases.json --device host
ARFUSION_PLUGIN=none expect 2 none perf --device host --json "$scratch/perf.json"
[ ! -e "$scratch/perf.json" ] || { echo "perf left an empty file"; bad=1; }
ARFUSION_PLUGIN=$scratch/missing.so expect 2 missing.so check --cases test/data/cases.json --device host
ARFUSION_PLUGIN=libc.so.6 expect 2 arfusionPlugin check --cases test/data/cases.json --device host
ARFUSION_PLUGIN=$'a\nb' expect 2 'tried a b, libarfusion-plugin-a b.so' perf --device host
expect 2 'no such' check --cases $'no\nsuch' --device host

# Settings count wherever they are said; one that is wrong is named once.
wrong="ARFUSION_TIMEOUT=soon (set by"
expect_once() { # as expect, in one line
  expect "$@"
  [ "$(wc -l <"$scratch/err")" = 1 ] || { echo "more than one line: $(cat "$scratch/err")"; bad=1; }
}
ARFUSION_TIMEOUT=soon expect_once 2 "arfusion-bench: $wrong environment)" perf --device host
ARFUSION_DEBUG=loud expect_once 2 'arfusion-bench: ARFUSION_DEBUG=loud' perf --device host
small='perf --tokens 1 --hidden 64'
export NCCL_CONF_FILE=$scratch/nccl.conf ARFUSION_DEVICE=host
echo 'ARFUSION_TIMEOUT=soon' >"$NCCL_CONF_FILE"
expect_once 2 "arfusion-bench: $wrong file $NCCL_CONF_FILE, line 1)" $small
echo 'ARFUSION_PLUGIN=none' >"$NCCL_CONF_FILE"
expect 2 'the plugin is turned off' $small
printf 'ARFUSION_TIMEOUT=5\nARFUSION_DEBUG=info\n' >"$NCCL_CONF_FILE"
expect 0 "ARFUSION_TIMEOUT set by file $NCCL_CONF_FILE, line 1 to 5" $small
! grep -q 'TIMEOUT set by environment' "$scratch/err" || { cat "$scratch/err"; bad=1; }
echo "ARFUSION_TUNING_FILE=$scratch/table" >"$NCCL_CONF_FILE"
expect 0 '' tune --tokens 1,2 --hidden 64 -o "$scratch/table" # which is made by this, and not read
expect 0 '' $small
sed -i 's/ranks 2/ranks 3/; s/host/sm_90/' "$scratch/table"
expect 2 'for this device, host' $small
ARFUSION_TUNING_FILE=none expect 0 '' $small
unset NCCL_CONF_FILE ARFUSION_DEVICE
expect 2 /dev/full perf --device host --tokens 1 --hidden 64 --json /dev/full
expect 2 no/such perf --device host --tokens 1 --hidden 64 --json "$scratch/no/such/file"
expect 2 'graph, eager' perf --device host --launch graph,eagre
expect 2 'on, off' perf --device host --pdl on,
expect 2 '--launch: the host' perf --device host --launch graph
expect 2 '--pdl: the host' perf --device host --pdl off
expect 2 '--ranks 17' perf --device host --ranks 17
expect 2 '--ranks 1:' check --cases test/data/cases.json --ranks 1
expect 2 '--tokens 0' perf --device host --tokens 0
expect 2 '--tokens 4,8,4: expected up to 64 different numbers' perf --device host --tokens 4,8,4
expect 2 'up to 64 different numbers from 1 to 65536' perf --device host --hidden "$(seq -s, 16 16 1040)"
expect 2 '--hidden 12: rows of bf16' perf --device host --hidden 12
expect 2 '--quant is none, fp8' perf --device host --quant fp4
expect 2 '--quant nvfp4: not from fp32' perf --device host --quant nvfp4 --dtype fp32
expect 2 '--hidden 2880: --quant fp8_group needs a multiple of 128' perf --device host --quant fp8_group --hidden 2880
expect 2 '--hidden 24: rows of bf16 must be a multiple of 16 elements' perf --device host --quant nvfp4 --hidden 24
expect 1 '' check --cases "$scratch/other.json" --device host --ranks-as threads
tail -n 1 "$scratch/out" | grep -qx '239 cases: 238 equal, 0 skipped, 1 differ' || { tail -n 1 "$scratch/out"; bad=1; }
if ! ls /dev/nvidia0 >/dev/null 2>&1; then
  expect 2 cuda check --cases test/data/cases.json --device cuda
  expect 2 CUDA perf --device cuda
else
  expect 2 '16 ranks, but only' perf --device cuda --ranks 16
fi
said=$(/usr/bin/python3 test/bench/many_gpus 16 "$scratch/many" 2>&1) # for anyone's number of GPUs up to 15
status=$?
[ $status = 2 ] && echo "$said" | grep -qx 'many_gpus: 16 ranks, but only [0-9]* GPUs*' && [ ! -e "$scratch/many" ] ||
  { echo "many_gpus: exit $status: $said"; bad=1; }
exit $bad
