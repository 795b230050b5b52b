# SPDX-License-Identifier: Apache-2.0
# Man pages, completions and README.md say what the code has, and nothing else; links in Markdown lead somewhere.
set -eu
fail() { echo "$1" >&2; exit 1; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export ARGP_HELP_FMT=rmargin=9999
same() { diff "$scratch/$1" "$scratch/$2" >&2 || fail "$3: only in the code (<), only there (>)"; }
sorted() { sort -u >"$scratch/$1"; }

sh plugin/packaging/fill.sh README.md "$B/doc_tables" markdown | diff README.md - >&2 ||
  fail "README.md is stale: make readme"

# Links between the Markdown files, and paths in backquotes there, lead to something.
find . \( -path ./build -o -path ./.git -o -path ./shared \) -prune -o -name '*.md' -print >"$scratch/markdown"
while read -r file; do
  grep -oE '\]\([^)]*\)' "$file" | sed -E 's/^\]\(//; s/\)$//; s/#.*//' | grep -vE '^(https?:|$)' |
    sed "s|^|${file%/*}/|"
  grep -oE '`(include|topo|kernels|plugin|test|\.ci|\.github)/[A-Za-z0-9_./-]+`' "$file" | tr -d '`'
done <"$scratch/markdown" | sort -u | while read -r path; do [ -e "$path" ] || echo "$path"; done >"$scratch/broken"
[ ! -s "$scratch/broken" ] || fail "Markdown names what is not there: $(cat "$scratch/broken")"

for page in "$B"/man/*; do
  groff -ww -man -Tutf8 -z "$page" 2>"$scratch/warnings"
  [ ! -s "$scratch/warnings" ] || fail "$page: $(cat "$scratch/warnings")"
done

# Settings: the table's, and no variable that something else reads.
grep -oE '"(ARFUSION|NCCL)_[A-Z0-9_]+"' plugin/core/settings.c | tr -d '"' | grep -vx NCCL_CONF_FILE | sorted code
sed -n '/^\.SH SETTINGS/,/^\.SH REASONS/s/^\.B \([A-Z0-9_]*\)$/\1/p' "$B/man/arfusion.7" | grep -vx NCCL_CONF_FILE |
  sorted page
same code page 'settings in arfusion.7'
for name in $(grep -rhoE 'getenv\("ARFUSION_[A-Z_]*"' topo kernels plugin | grep -o 'ARFUSION_[A-Z_]*' | sort -u); do
  grep -qx "$name" "$scratch/code" || fail "$name is read, but it is not in the table of settings"
done

# Reasons: the header's numbers.
sed -nE 's/^  arfusionReason[A-Za-z]+ = ([1-9][0-9]*).*/\1/p' include/arfusion_plugin.h | sorted code
sed -n 's/^\.B \([0-9][0-9]*\)$/\1/p' "$B/man/arfusion.7" | sorted page
same code page 'reasons in arfusion.7'

# Options of each program and command, in its part of the page and in the completion.
page_part() { # page_part PROGRAM COMMAND: "" is what stands before the first command
  local title
  title=$(echo "$1 $2" | tr '[:lower:]' '[:upper:]')
  awk -v title=".SH $title" -v top="$2" '/^\.SH (ARFUSION-BENCH|SEE)/ { here = 0 }
    $0 == title || (top == "" && NR == 1) { here = 1 }
    here' "$B/man/$1.1"
}
completed() { # completed WORD...: what bash offers for the last one
  bash -c 'source "$1"; shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); "_${1//-/_}"
    printf "%s\n" "${COMPREPLY[@]}"' - "$B/completions/$1" "$@"
}
long_options() { grep -oE -- ' --[a-z][a-z-]*' | tr -d ' '; }
check_options() { # check_options PROGRAM [COMMAND]
  "$B/$1" ${2:+"$2"} --help | grep '^ *-' | long_options | sorted code
  page_part "$1" "${2:-}" | sed -n 's/^\.B \(.*\)$/ \1/p' | sed 's/\\-/-/g' | long_options | sorted page
  same code page "options of $* in $1.1"
  completed "$1" ${2:+"$2"} -- | sorted page
  same code page "options of $* in its completion"
}
check_options arfusion-topo
check_options arfusion-bench
for command in $(grep -oE '"arfusion-bench [a-z]+"' plugin/tools/bench/main.c | tr -d '"' | cut -d" " -f2); do
  check_options arfusion-bench "$command"
done
[ "$(completed arfusion-bench check --device = h)" = host ] || fail "--device=h is not completed"
[ "$(completed arfusion-bench tune --dtype fp3)" = fp32 ] || fail "--dtype fp3 is not completed"
touch "$scratch/cases.json"
[ "$(completed arfusion-bench check --cases "$scratch/ca")" = "$scratch/cases.json" ] || fail "files are not completed"
[ "$(completed arfusion-topo doc)" = doctor ] || fail "commands are not completed"

# Exit codes.
exit_codes() {
  awk '/^\.S[HS] EXIT STATUS/ { on = 1; next } /^\.S/ { on = 0 } on' "$1" |
    grep -oE '(^|, |: )[0-9]+' | grep -oE '[0-9]+'
}
grep -oE 'TOOL_[A-Z_]+( =)? [0-9]+' plugin/tools/topo/tool.h | grep -oE '[0-9]+' | sorted code
exit_codes "$B/man/arfusion-topo.1" | sorted page
same code page 'exit codes in arfusion-topo.1'
grep -oE 'BENCH_[A-Z_]+ = [0-9]+' plugin/tools/bench/bench.h | grep -oE '[0-9]+' | sorted code
exit_codes "$B/man/arfusion-bench.1" | sorted page
same code page 'exit codes in arfusion-bench.1'
