# SPDX-License-Identifier: Apache-2.0
# Every case, with every algorithm, as processes and as threads.
set -eu
summary='239 cases: 239 equal, 0 skipped, 0 differ'
if [ -e ../shared/oracle/cases.json ]; then cmp ../shared/oracle/cases.json test/data/cases.json; fi
for ranks_as in processes threads; do
  output=$("$B/arfusion-bench" check --cases test/data/cases.json --device host --algo all --ranks-as $ranks_as)
  echo "$output" | tail -n 5
  [ "$(echo "$output" | tail -n 1)" = "$summary" ]
done
# On three ranks, for which most cases have no digests.
[ -z "${SANITIZED:-}" ] || exit 0
output=$("$B/arfusion-bench" check --cases test/data/cases.json --device host --ranks 3 --ranks-as threads)
[ "$output" = "$summary" ]
