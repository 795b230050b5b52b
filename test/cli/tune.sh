# SPDX-License-Identifier: Apache-2.0
# arfusion-bench tune writes a file, the plugin takes it, and a file that is wrong is an error that says where.
set -u
bad=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export ARFUSION_DEVICE=host
small='--tokens 1,2,4,8 --hidden 64,128'

fail() { echo "$1"; bad=1; }

# run STATUS ARGUMENTS...: exit status; what it says goes to out and err
run() {
  local want=$1 status=0
  shift
  "$B/arfusion-bench" "$@" >"$scratch/out" 2>"$scratch/err" </dev/null || status=$?
  [ $status = "$want" ] || fail "arfusion-bench $*: exit $status, expected $want; stderr: $(cat "$scratch/err")"
}
said() { grep -q -- "$1" "$scratch/err" || fail "no '$1' in: $(cat "$scratch/err")"; }

# one_line TEXT: all that it says is one line, with that in it
one_line() {
  said "$1"
  [ "$(wc -l <"$scratch/err")" = 1 ] || fail "more than one line: $(cat "$scratch/err")"
}

# ---- what tune writes is what the plugin takes, on every rank
run 0 tune $small -o "$scratch/tuned"
for form in '^arfusion-tuning 1$' '^arch host$' '^ranks 2$' '^up_to unlimited [a-z_]*$' '^slower_from never$'; do
  grep -q "$form" "$scratch/tuned" || fail "no $form in $(cat "$scratch/tuned")"
done
[ "$(grep -c '^#  *[0-9]* x [0-9]*  *[0-9]* ' "$scratch/tuned")" = 8 ] || fail "not 8 sizes in $(cat "$scratch/tuned")"
diff <(grep -v '^# written' "$scratch/out") "$scratch/tuned" || fail 'the file is not what was printed'
ARFUSION_TUNING_FILE=$scratch/tuned ARFUSION_DEBUG=info run 0 perf --tokens 1 --hidden 64
[ "$(grep -c 'of 2, host, table (ARFUSION_TUNING_FILE)' "$scratch/err")" = 2 ] ||
  fail "not taken: $(cat "$scratch/err")"
run 0 tune $small --ranks 3
cp "$scratch/out" "$scratch/three" # without -o, standard output is the file
ARFUSION_TUNING_FILE=$scratch/three run 0 perf --tokens 1 --hidden 64 --ranks 3
ARFUSION_TUNING_FILE=$scratch/three run 0 tune --tokens 1,2 --hidden 64 # for other ranks: measured anew all the same

head='arfusion-tuning 1\narch host\nranks 2\n'
routed() { grep -q "^ *1 x 64  $1 " "$scratch/out" || fail "not $1: $(cat "$scratch/out")"; }
printf "${head}up_to unlimited twoshot\nslower_from 64\n" >"$scratch/twoshot"
ARFUSION_TUNING_FILE=$scratch/twoshot run 0 perf --tokens 1 --hidden 64
routed twoshot

# ---- files put together: each rank count takes its own table, or the one that is built in
cat "$scratch/twoshot" "$scratch/three" >"$scratch/both"
ARFUSION_TUNING_FILE=$scratch/both run 0 perf --tokens 1 --hidden 64
routed twoshot
for ranks in 3 4; do
  ARFUSION_TUNING_FILE=$scratch/both ARFUSION_DEBUG=info run 0 perf --tokens 1 --hidden 64 --ranks $ranks
  [ "$(grep -c "of $ranks, host, table (ARFUSION_TUNING_FILE)" "$scratch/err")" = $((ranks == 3 ? 3 : 0)) ] ||
    fail "not the table of $ranks ranks: $(cat "$scratch/err")"
done
said "both has no table for 4 ranks"

# ---- every file that is wrong, with its line
tail='up_to unlimited twoshot\nslower_from never\n'
wrong() { # wrong LINE TEXT FILE
  printf "$3" >"$scratch/wrong"
  ARFUSION_TUNING_FILE=$scratch/wrong run 2 perf --tokens 1 --hidden 64
  one_line "ARFUSION_TUNING_FILE: $scratch/wrong, line $1: .*$2"
}
wrong 1 'arfusion-tuning 1' '{"version": 1}\n'
wrong 1 'this plugin reads version 1' 'arfusion-tuning 2\n'
wrong 5 'for this device, host' "arfusion-tuning 1\\narch sm_90\\nranks 2\\n$tail"
wrong 2 'no architecture' 'arfusion-tuning 1\narch hopper\n'
wrong 6 'for this device, host' "arfusion-tuning 1\\narch host\\ngpu NVIDIA H200\\nranks 2\\n$tail"
wrong 3 'ranks is' 'arfusion-tuning 1\narch host\nranks many\n'
wrong 3 'file ends' "$head"
wrong 4 'from 1 to' "${head}up_to 99999999999999999999 twoshot\n"
wrong 4 'no algorithm' "${head}up_to 5 ring\n"
wrong 5 'rise' "${head}up_to 5 twoshot\nup_to 4 twoshot\n"
wrong 5 'slower_from' "${head}up_to unlimited twoshot\nslower_from sometimes\n"
wrong 4 '0x00' "${head}up_to 5 two\\000shot\n"
wrong 4 '300 characters' "$head$(printf '#%.0s' $(seq 300))\n"
wrong 6 "'more' where" "$head${tail}more\\n"
wrong 6 'second table for 2 ranks' "$head$tail$head$tail"
ARFUSION_TUNING_FILE=$scratch/missing run 2 perf --tokens 1 --hidden 64
one_line "$scratch/missing: No such file"
ARFUSION_TUNING_FILE=$scratch run 2 perf --tokens 1 --hidden 64
one_line 'not a regular file'
head -c 100000 /dev/zero | tr '\0' '\n' >"$scratch/huge"
ARFUSION_TUNING_FILE=$scratch/huge run 2 perf --tokens 1 --hidden 64
one_line 'larger than 65536 bytes'

# ---- what tune cannot do
run 2 tune $small -o "$scratch/no/such/file"
one_line 'no/such/file: No such file'
run 2 tune $small -o /dev/full
one_line '/dev/full: No space'
run 2 tune $small --ranks 17
said '2 to 16'
run 2 tune --hidden 7
one_line 'multiple of 16 bytes'
run 2 tune somewhere
said 'somewhere'
ARFUSION_ALGO=none run 2 tune $small -o "$scratch/none"
one_line 'no algorithm'
[ ! -e "$scratch/none" ] || fail 'a file without a table stays behind'
cp "$scratch/tuned" "$scratch/kept"
ARFUSION_ALGO=none run 2 tune $small -o "$scratch/kept"
cmp "$scratch/tuned" "$scratch/kept" || bad=1
if ! ls /dev/nvidia0 >/dev/null 2>&1; then
  run 2 tune --device cuda
  one_line CUDA
fi
exit $bad
