# SPDX-License-Identifier: Apache-2.0
# The tests that test/README.md names exist: for each file of the table, the functions named after it are defined there.
set -eu
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
table=$scratch/table
grep -E '^\| [0-9]+\. ' test/README.md >"$table"

bad=0
complain() { echo "test/README.md, lesson $1"; bad=1; }
number=0
while IFS= read -r row; do
  number=$((number + 1))
  [ "${row%%.*}" = "| $number" ] || complain "$number: missing or out of order"
  grep -oE '[A-Za-z-]+#[0-9]+' <<<"$row" >/dev/null || complain "$number: no tracker"
  file= named=0
  for word in $(grep -oE '`[^` ]+`' <<<"$row" | tr -d '`'); do
    case $word in
      */*) file=$word named=$((named + 1)); [ -f "$file" ] || complain "$number: there is no $file" ;;
      *) grep -qE "^([a-z].* \**)?$word\(" "$file" || complain "$number: $word is not in $file" ;;
    esac
  done
  [ $named -gt 0 ] || complain "$number: no test"
done <"$table"
[ $number = 30 ] || { echo "test/README.md: $number lessons, not 30"; bad=1; }
exit $bad
