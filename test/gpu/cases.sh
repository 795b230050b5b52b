# SPDX-License-Identifier: Apache-2.0
# What the scripts that run programs of others are made of, for them to source: cases that are counted in $passed and
# $failed, each with a log in $out, and programs that run as two ranks. What NCCL logs is kept there and not printed.
# ARFUSION_SHARED_GPU=1: one GPU is enough, for two processes that NCCL takes for two hosts (hosts/hosts.c).
passed=0 failed=0
gpus_needed=$([ "${ARFUSION_SHARED_GPU:-}" = 1 ] && echo 1 || echo 2)
fewest_processes=$((3 - gpus_needed)) # that two ranks of NCCL run as

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

# nccl_test PROCESSES LIMIT LOG PROGRAM ARGUMENT...: one of nccl-tests as two ranks of one process, which needs two
# GPUs, or of two
nccl_test() {
  local processes=$1 limit=$2 log=$3
  shift 3
  if [ "$processes" = 1 ]; then
    timeout -k 5 "$limit" "$@" -g 2 >"$log-0" 2>&1
  else
    : >"$log.ranks"
    RANKS_FILE=$log.ranks two_ranks "$limit" "$log" "$@" -g 1
  fi
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
