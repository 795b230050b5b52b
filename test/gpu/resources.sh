# SPDX-License-Identifier: Apache-2.0
# Reads what `ptxas -v` says and prints a line a kernel and architecture: registers, shared memory, stack, spills. Exit
# 1 if a kernel spills or has a stack, or if there is none, since it did not compile.
c++filt | awk '
  /Compiling entry function/ {
    line = $0
    match(line, /\047.*\047 for \047/)
    name = substr(line, RSTART + 1, RLENGTH - 8)
    sub(/^void /, "", name); sub(/\(.*/, "", name)
    match(line, /sm_[0-9a-z]+/); arch = substr(line, RSTART, RLENGTH)
  }
  /bytes stack frame/ { stack = $1; stores = $5; loads = $9 }
  /Used [0-9]+ registers/ {
    match($0, /Used [0-9]+/); registers = substr($0, RSTART + 5, RLENGTH - 5)
    shared = 0
    if (match($0, /[0-9]+ bytes smem/)) shared = substr($0, RSTART, RLENGTH - 11)
    seen = 1
    printf "%-8s %3d registers %5d shared %4d stack %4d/%d spilled  %s\n",
      arch, registers, shared, stack, stores, loads, name
    if (stack || stores || loads) bad = 1
  }
  /error/ { print }
  END { exit bad || !seen }'
