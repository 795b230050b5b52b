#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# man.sh PROGRAM: its manual page, from what it and its commands print for --help.
set -eu
program=$1 name=${1##*/} here=$(dirname "$0")
export ARGP_HELP_FMT=rmargin=9999

help=$("$program" --help)
purpose=$(printf '%s\n' "$help" | sed -n '2{s/\.$//;p;}')
title=$(printf '%s' "$name" | tr '[:lower:]' '[:upper:]')
printf '.TH %s 1 "" "arfusion %s" "arfusion"\n.SH NAME\n' "$title" "$VERSION"
printf '%s \\- %s\n' "$name" "$purpose" | sed 's/\([a-z]\)-\([a-z]\)/\1\\-\2/g'
printf '%s\n' "$help" | awk -v section=SH -f "$here/man.awk"
if printf '%s\n' "$help" | grep -q 'each has --help'; then
  for command in $(printf '%s\n' "$help" | sed -n '/^Commands/,/^$/s/^  \([a-z]*\) .*/\1/p'); do
    printf '.SH %s %s\n' "$title" "$(printf '%s' "$command" | tr '[:lower:]' '[:upper:]')"
    "$program" "$command" --help | awk -v section=SS -f "$here/man.awk"
  done
fi
printf '.SH SEE ALSO\n.BR arfusion (7): settings, and the reasons why a request is turned down\n'
