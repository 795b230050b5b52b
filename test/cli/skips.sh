# SPDX-License-Identifier: Apache-2.0
# What is skipped is counted, functions of unit tests too, and where there is a list of what may be, the rest fails.
set -eu
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
printf 'echo no such thing here\nexit 77\n' >"$scratch/whole.sh"
skipped='[  SKIPPED ]'
printf 'echo "%s"\n' "$skipped test_one" "$skipped 1 test(s), listed below:" "$skipped test_one" >"$scratch/part.sh"

run() { # run EXPECTED-STATUS EXPECTED-LAST-LINE [VARIABLE=VALUE]
  local status=0
  env -u SKIPS B="$scratch" ${3:+"$3"} bash test/run.sh "$scratch/whole.sh" "$scratch/part.sh" >"$scratch/out" ||
    status=$?
  [ $status = "$1" ] && [ "$(tail -n 1 "$scratch/out")" = "$2" ] ||
    { cat "$scratch/out"; echo "exit $status, not: $2"; exit 1; }
}
run 0 '1 passed, 0 failed, 2 skipped'
for first in "whole.sh: no such thing here" "*: no such thing here"; do
  echo "$first" >"$scratch/list"
  run 1 '1 passed, 1 failed, 1 skipped' SKIPS="$scratch/list"
  grep -qF "part.sh: test_one: a skip that is not in" "$scratch/out"
  echo "part.sh: test_one" >>"$scratch/list"
  run 0 '1 passed, 0 failed, 2 skipped' SKIPS="$scratch/list"
done
