# SPDX-License-Identifier: Apache-2.0
# plot draws what perf wrote and what is kept of earlier runs; what it cannot draw is one line that names what is wrong.
set -eu
bench=$(realpath "$B/arfusion-bench")
plot() { PATH=${search:-$PATH} "$bench" plot "$@"; }
tool=plot
. test/expect.sh

"$bench" perf --device host --tokens 1,2,4 --hidden 64,128 --json "$scratch/perf.json" >"$scratch/table"
for path in auto oneshot_lamport oneshot_sync twoshot unfused epilogue; do
  [ "$(grep -c "\"path\": \"$path\"" "$scratch/perf.json")" = 6 ] || { echo "not 6 sizes of $path"; exit 1; }
  grep -q " $path " "$scratch/table"
done
! grep -q nccl "$scratch/perf.json"
grep -Eq '^auto is (not )?faster than unfused at ' "$scratch/table"

"$bench" plot "$scratch/perf.json" -o "$scratch/perf.svg"
"$bench" plot test/bench/results/h200x2.json -o "$scratch/h200x2.svg"
for text in 'hidden 64' 'hidden 128' 'twoshot' 'tokens' '</svg>'; do grep -q "$text" "$scratch/perf.svg"; done
for text in 'hidden 2880' 'hidden 8192' 'NVIDIA H200' 'nccl'; do grep -q "$text" "$scratch/h200x2.svg"; done

# change PATTERN REPLACEMENT: the document with something else in its lines
change() { sed "s/$1/$2/" "$scratch/perf.json" >"$scratch/changed.json"; }

svg=$scratch/none.svg
expect 2 '--output FILE' "$scratch/perf.json"
expect 2 'document of perf' -o "$svg"
expect 2 'missing.json' "$scratch/missing.json" -o "$svg"
expect 2 'no/such' "$scratch/perf.json" -o "$scratch/no/such.svg"
expect 2 '/dev/full' "$scratch/perf.json" -o /dev/full
echo '{"machine": {' >"$scratch/changed.json"
expect 2 'changed.json:2: ' "$scratch/changed.json" -o "$svg"
change '"measurements"' '"results"'
expect 2 'changed.json: Object item not found: measurements' "$scratch/changed.json" -o "$svg"
change '"device"' '"gpu"'
expect 2 'Object item not found: device' "$scratch/changed.json" -o "$svg"
change '"tokens": 4' '"words": 4'
expect 2 'measurement 12: tokens: an integer is needed' "$scratch/changed.json" -o "$svg"
change '"tokens": 4' '"tokens": -4'
expect 2 'measurement 12: tokens must be greater than 0' "$scratch/changed.json" -o "$svg"
change '"tokens": 4' '"tokens": "four"'
expect 2 'measurement 12: tokens: an integer is needed' "$scratch/changed.json" -o "$svg"
change '"ranks": 2' '"ranks": 0'
expect 2 'measurement 0: ranks must be greater than 0' "$scratch/changed.json" -o "$svg"
change '"pdl": false' '"pdl": 0'
expect 2 'pdl: true or false is needed' "$scratch/changed.json" -o "$svg"
change '"dtype": "bf16"' '"dtype": 16'
expect 2 'dtype: a text is needed' "$scratch/changed.json" -o "$svg"
change '"launch": "eager"' '"launch": "a\\nb\\u001b[31m"'
expect 2 'launch is a b' "$scratch/changed.json" -o "$svg"
expect 2 "$scratch: Is a directory" "$scratch" -o "$svg"
change '"launch": "eager"' '"launch": "lazy"'
expect 2 'launch is lazy' "$scratch/changed.json" -o "$svg"
change '"dtype": "bf16"' '"dtype": "fp16"'
expect 2 'dtype is fp16, but bf16 before' "$scratch/perf.json" "$scratch/changed.json" -o "$svg"
expect 2 'is there twice' "$scratch/perf.json" "$scratch/perf.json" -o "$svg"
echo '{"machine": {"device": "x"}, "measurements": []}' >"$scratch/changed.json"
expect 2 'not empty' "$scratch/changed.json" -o "$svg"
search=$scratch expect 2 gnuplot-nox "$scratch/perf.json" -o "$svg"
[ ! -e "$svg" ]
exit $bad
