#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# completion.sh PROGRAM: bash's completion of its commands and options, from what they print for --help.
set -eu
program=$1 name=${1##*/}
function=_$(printf '%s' "$name" | tr - _)
export ARGP_HELP_FMT=rmargin=9999

option_lines() { grep '^ \{1,6\}-'; }
options() { grep -o -e '--[a-z][a-z-]*' | sort -u | tr '\n' ' ' | sed 's/ $//'; }
# The options whose value is one of a few words: "--device=host|cuda"; those whose value is a file's name.
choices() { sed -n 's/.*\(--[a-z-]*\)=\([a-z0-9_-]*|[a-z0-9_|-]*\).*/\1 \2/p'; }
files() { sed -n 's/.*\(--[a-z-]*\)=FILE.*/\1/p' | sort -u | tr '\n' '|' | sed 's/|$//'; }

help=$("$program" --help)
commands=$(printf '%s\n' "$help" | sed -n '/^Commands/,/^$/s/^  \([a-z]*\) .*/\1/p' | tr '\n' ' ' | sed 's/ $//')
all=$help
if printf '%s\n' "$help" | grep -q 'each has --help'; then
  for command in $commands; do all="$all
$("$program" "$command" --help)"; done
fi
cat <<END
# bash's completion of $name; made from its --help.
$function() {
  local word=\${COMP_WORDS[COMP_CWORD]} before=\${COMP_WORDS[COMP_CWORD-1]} command= options i
  [ "\$word" = = ] && word=
  [ "\$before" = = ] && before=\${COMP_WORDS[COMP_CWORD-2]}
  case \$before in
$(printf '%s\n' "$all" | option_lines | choices | sort -u | while read -r option values; do
    printf '    %s) COMPREPLY=($(compgen -W "%s" -- "$word")); return ;;\n' "$option" "$(echo "$values" | tr '|' ' ')"
  done)
    $(printf '%s\n' "$all" | option_lines | files)) COMPREPLY=(\$(compgen -f -- "\$word")); return ;;
  esac
  for ((i = 1; i < COMP_CWORD; i++)); do
    case " $commands " in *" \${COMP_WORDS[i]} "*) command=\${COMP_WORDS[i]} ;; esac
  done
  case \$command in
$(if printf '%s\n' "$help" | grep -q 'each has --help'; then
    for command in $commands; do
      printf '    %s) options="%s" ;;\n' "$command" "$("$program" "$command" --help | option_lines | options)"
    done
  fi)
    *) options="$(printf '%s\n' "$help" | option_lines | options)" ;;
  esac
  [ -n "\$command" ] || options="\$options $commands"
  case \$word in
    */* | .*) COMPREPLY=(\$(compgen -f -- "\$word")) ;;
    *) COMPREPLY=(\$(compgen -W "\$options" -f -- "\$word")) ;;
  esac
}
complete -o filenames -F $function $name
END
