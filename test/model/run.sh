#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Checks the models with spin. Each must hold with 2 and with 3 ranks; each broken variant that its head names (Broken:
# ...) must be found out with one of them. Ends with `N passed, N failed`. Environment: B (a folder to build in), CC.
set -u
passed=0 failed=0
B=$(realpath -m "${B:-build/model}")
command -v spin >/dev/null || { echo "there is no spin: make deps installs it"; exit 1; }

# What the search of all states has found: "holds", the violation, or "?" if it did not get that far.
model_search() { # model_search NAME RANKS [VARIANT]
  local dir=$B/$1-$2-${3:-} log
  rm -rf "$dir" && mkdir -p "$dir" && cp test/model/*.pml "$dir" && cd "$dir" || return
  log=$(spin -a "-DRANKS=$2" ${3:+"-D$3"} "$1.pml" 2>&1 &&
    "${CC:-gcc}" -O1 -w -DSAFETY -DCOLLAPSE -DMEMLIM=1024 -o pan pan.c 2>&1 &&
        timeout -k 5 120 ./pan -n -m200000 2>&1)
  if grep -qE 'search not completed|max search depth too small|out of memory|pan: reached -DMEMLIM' <<<"$log" &&
    ! grep -q '^pan:1: ' <<<"$log"; then
    echo "? $log"
  elif grep -q 'errors: 0$' <<<"$log"; then
    echo "holds, $(sed -n 's/^ *\([0-9]*\) states, stored$/\1/p' <<<"$log") states"
  else
    sed -n 's/^pan:1: \(.*\) (at depth.*/\1/p' <<<"$log" | grep . || echo "? $log"
  fi
}

result() { # result OK TEXT
  if [ "$1" = 1 ]; then passed=$((passed + 1)); echo "PASS  $2"; else failed=$((failed + 1)); echo "FAIL  $2"; fi
}

for model in "$@"; do
  name=$(basename "$model" .pml)
  for ranks in 2 3; do
    found=$(model_search "$name" $ranks)
    ok=0; [ "${found#holds}" = "$found" ] || ok=1
    result $ok "$name, $ranks ranks: $found"
  done
  for variant in $(sed -n 's/^ \* Broken: //p' "$model"); do
    for ranks in 2 3; do
      found=$(model_search "$name" $ranks "$variant")
      ok=0
      case $found in holds*) ;; \?*) break ;; *) ok=1; break ;; esac
    done
    result $ok "$name, $variant: $found"
  done
done
echo "$passed passed, $failed failed"
[ $failed = 0 ] && [ $passed -gt 0 ]
