# SPDX-License-Identifier: Apache-2.0
# What a program of argp prints for --help (ARGP_HELP_FMT=rmargin=9999: one line a paragraph), as roff. `section` is SH
# or SS.

function roff(text) {
  gsub(/\\/, "\\e", text)
  gsub(/-/, "\\-", text)
  sub(/^[.']/, "\\\\\\&&", text)
  return text
}

BEGIN { option_column = 29 }

/^Usage: / { printf ".%s SYNOPSIS\n%s\n.%s DESCRIPTION\n", section, roff(substr($0, 8)), section; next }
/^Mandatory or optional arguments/ { getline; next } # argp's own, about how options are written
/^ +-/ { # an option, and its text behind it or in the next line
  if (!in_options++) printf ".%s OPTIONS\n", section
  text = substr($0, option_column)
  name = substr($0, 1, option_column - 1)
  if (length($0) >= option_column && substr($0, option_column - 1, 1) != " ") { name = $0; text = "" }
  gsub(/^ +| +$/, "", name)
  printf ".TP\n.B %s\n%s\n", roff(name), roff(text)
  next
}
/^                    / { gsub(/^ +/, ""); print roff($0); next }
/^  [a-z]+ +[a-z]/ { # a command and what it does
  name = $1
  sub(/^ +[a-z]+ +/, "")
  printf ".TP\n.B %s\n%s\n", roff(name), roff($0)
  next
}
/Exit code: / { # goes last, under a heading of its own
  at = index($0, "Exit code: ")
  exit_status = substr($0, at + 11)
  $0 = substr($0, 1, at - 1)
  if ($0 == "") next
}
/^$/ { if (!blank++) print ".PP"; next }
{ blank = 0 }
/^Commands.*:$/ { printf ".%s %s\n", section, "COMMANDS"; next }
{ print roff($0) }
END { if (exit_status) printf ".%s EXIT STATUS\n%s\n", section, roff(exit_status) }
