#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs the given fuzzers, two at a time. What breaks one stays in B, with its log. Ends with `N passed, N failed`.
# Environment: B (a folder for logs and for corpora that grow), SECONDS_EACH.
set -u
export ASAN_OPTIONS=quarantine_size_mb=64 # memory stays below libFuzzer's limit
passed=0 failed=0
here=$(realpath test/fuzz)
B=$(realpath "$B")

fuzzer_run() { # fuzzer_run PROGRAM
  local kind=${1##*/fuzz_} program log
  local options=(-max_total_time="$SECONDS_EACH" -timeout=10 -rss_limit_mb=512 -max_len=16384 -print_final_stats=1)
  local corpora=("$B/corpus-$kind" "$here/corpus/$kind")
  program=$(realpath "$1") log=$B/$kind.log
  mkdir -p "$B/corpus-$kind"
  [ ! -f "$here/$kind.dict" ] || options+=(-dict="$here/$kind.dict")
  case $kind in
    hwloc | nccl) options+=(-dict="$here/xml.dict"); corpora+=("$here/../data/topologies") ;;
  esac
  if ! (cd "$B" && "$program" "${options[@]}" "${corpora[@]}") >"$log" 2>&1; then
    echo "FAIL  $kind: $log"
    sed -nE '/ERROR|runtime error/,$p' "$log" | grep -v '^stat::' | cut -c1-160 | head -n 30 | sed 's/^/      /'
    sed -n 's/.*Test unit written to \(.*\)/\1/p' "$log" | while read -r input; do
      echo "      $input in base64:"; base64 -w 120 "$B/$input" | head -n 20 | sed 's/^/      /'
    done
    return 1
  fi
  echo "PASS  $kind: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs," \
    "$(sed -n 's/^.*INITED cov: \([0-9]*\).*/from \1/p; s/.*DONE *cov: \([0-9]*\).*/to \1 edges/p' "$log" | xargs)"
}

running=0
count() { if wait -n; then passed=$((passed + 1)); else failed=$((failed + 1)); fi; running=$((running - 1)); }
for fuzzer in "$@"; do
  [ $running -lt 2 ] || count
  fuzzer_run "$fuzzer" &
  running=$((running + 1))
done
while [ $running -gt 0 ]; do count; done
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed -gt 0 ]
