#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# fill.sh FILE DOC_TABLES roff|markdown: FILE with each of its tables as the code has it now. A table stands between a
# line with "begin table NAME" and a line with "end table"; @VERSION@ is the version.
set -eu
file=$1 tables=$2 form=$3
while IFS= read -r line; do
  case $line in
    *"begin table "*)
      name=${line#*begin table }
      printf '%s\n' "$line"
      "$tables" "$form" "${name%% *}"
      skip=1
      ;;
    *"end table"*) skip=0 ;;
  esac
  case ${skip:-0} in 0) printf '%s\n' "$line" ;; esac
done <"$file" | sed "s/@VERSION@/${VERSION:-@VERSION@}/"
