# SPDX-License-Identifier: Apache-2.0
# What the scripts that run programs of others are made of, for them to source: cases that are counted in $passed and
# $failed, each with a log in $out. What NCCL logs is kept there and not printed.
passed=0 failed=0

case_of() { # case_of NAME COMMAND...
  local name=$1 status=0
  shift
  "$@" >"$out/$name.log" 2>&1 || status=$?
  if [ $status = 0 ]; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
    grep -v 'NCCL INFO' "$out/$name.log" | tail -n 20
  fi
  echo "$name: exit $status, $(grep -v 'NCCL INFO' "$out/$name.log" | tail -n 1)"
}
