# SPDX-License-Identifier: Apache-2.0
# What the scripts that run programs of others are made of, for them to source: cases that are counted in $passed and
# $failed, each with a log in $out, and programs that run as two ranks. What NCCL logs is kept there and not printed.
passed=0 failed=0

# two_ranks LIMIT LOG COMMAND...: the command as RANK 0 and 1 of WORLD_SIZE 2 at the same time; what each says goes into
# LOG-0 and LOG-1
two_ranks() {
  local limit=$1 log=$2 status=0 rank pids=()
  shift 2
  for rank in 0 1; do
    RANK=$rank WORLD_SIZE=2 timeout -k 5 "$limit" "$@" >"$log-$rank" 2>&1 &
    pids+=($!)
  done
  for rank in "${pids[@]}"; do wait "$rank" || status=$?; done
  return $status
}

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
