# SPDX-License-Identifier: Apache-2.0
# For scripts to source whose steps are all run, whatever becomes of one: each is printed with its command before, and
# with its outcome and its time after it.
passed=0 failed=0

step() { # step NAME COMMAND...
  local name=$1 start=$SECONDS
  shift
  echo "== $name: $*"
  if "$@"; then
    passed=$((passed + 1)); echo "== $name: passed ($((SECONDS - start)) s)"
  else
    failed=$((failed + 1)); echo "== $name: FAILED ($((SECONDS - start)) s)"
  fi
}

steps_end() {
  echo "$passed passed, $failed failed"
  [ $failed = 0 ]
}
