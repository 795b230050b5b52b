# SPDX-License-Identifier: Apache-2.0
# The tests that test/README.md names exist: for each file of a table, the functions named after it are defined there.
# So do the bugs that its promises name: patches of test/mutations, and in capitals variants of test/model. Every patch
# of a unit test belongs to a promise.
set -eu
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

bad=0
complain() { echo "test/README.md, $1"; bad=1; }

tests_check() { # tests_check WHAT TEXT: the tests that are named in it
  local file='' named=0 word
  for word in $(grep -oE '`[^` ]+`' <<<"$2" | tr -d '`'); do
    case $word in
      */*) file=$word named=$((named + 1)); [ -f "$file" ] || complain "$1: there is no $file" ;;
      *) grep -qE "^([a-z].* \**)?$word\(" "$file" || complain "$1: $word is not in $file" ;;
    esac
  done
  [ $named -gt 0 ] || complain "$1: no test"
}

number=0
grep -E '^\| [0-9]+\. ' test/README.md >"$scratch/lessons"
while IFS= read -r row; do
  number=$((number + 1))
  [ "${row%%.*}" = "| $number" ] || complain "lesson $number: missing or out of order"
  grep -oE '[A-Za-z-]+#[0-9]+' <<<"$row" >/dev/null || complain "lesson $number: no tracker"
  tests_check "lesson $number" "$row"
done <"$scratch/lessons"
[ $number = 30 ] || complain "$number lessons, not 30"

sed -n '/^## What is promised/,/^## Bugs/p' test/README.md | grep '^| ' | tail -n +2 >"$scratch/promises"
[ -s "$scratch/promises" ] || complain "no promises"
while IFS='|' read -r _ promise tests bugs _; do
  tests_check "promise$promise" "$tests"
  for bug in ${bugs//[,;]/ }; do
    case $bug in
      *[a-z]*)
        compgen -G "test/mutations/$bug.patch" >>"$scratch/found" || complain "promise$promise: there is no $bug" ;;
      *) grep -qE "^ \* Broken:.* $bug( |$)" test/model/*.pml || complain "promise$promise: no model has $bug" ;;
    esac
  done
done <"$scratch/promises"
for patch in $(grep -l '^Test: ' test/mutations/*.patch); do
  grep -qxF "$patch" "$scratch/found" || complain "no promise has $patch"
done
exit $bad
