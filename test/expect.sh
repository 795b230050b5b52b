# SPDX-License-Identifier: Apache-2.0
# For tests of what $tool (a command, or a function) says when it cannot run, to source. Each that fails is printed, and
# sets $bad. $scratch is a folder that goes away.
bad=0
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# expect STATUS TEXT ARGUMENTS...: exit status, and a text in what it says on stderr; stdout is then in $scratch/out
expect() {
  local want=$1 text=$2 status=0
  shift 2
  "$tool" "$@" >"$scratch/out" 2>"$scratch/err" </dev/null || status=$?
  if [ $status != "$want" ] || { [ -n "$text" ] && ! grep -qF -- "$text" "$scratch/err"; }; then
    echo "${tool##*/} $*: exit $status, expected $want with '$text'; stderr: $(cat "$scratch/err")"
    bad=1
  fi
}
