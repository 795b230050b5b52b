# SPDX-License-Identifier: Apache-2.0
# The sources' rules that a compiler does not check: dependencies go one way, lines and files are of a size that can be
# read, every file says what it is for, every folder has a door.
set -u
export LC_ALL=C.UTF-8 # columns are characters
bad=0
complain() { echo "$1"; bad=1; }

# Includes: file by file, what its folder may not use.
forbidden() { # forbidden FOLDER PATTERN...: no file in FOLDER includes a path with one of these beginnings
  local folder=$1 found
  shift
  found=$(grep -rnE "^#include \"($(IFS='|'; echo "$*"))" "$folder")
  [ -z "$found" ] || complain "not for $folder to use: $found"
}
forbidden include topo/ kernels/ plugin/ test/
forbidden topo kernels/ plugin/ test/
forbidden kernels topo/ plugin/ test/
forbidden plugin/core plugin/host/ plugin/nccl/ plugin/net/ plugin/tools/ plugin/packaging/ test/
forbidden plugin/host plugin/nccl/ plugin/net/ plugin/tools/ plugin/packaging/ test/
forbidden plugin/net plugin/host/ plugin/nccl/ plugin/tools/ plugin/packaging/ test/
forbidden plugin/nccl plugin/net/ plugin/tools/ plugin/packaging/ test/
# arfusion-bench knows the plugin by its ABI alone, but for the format of routing tables (tuning.h) and one_line.h.
forbidden plugin/tools/bench 'topo/[^o]' kernels/ 'plugin/core/[^t]' plugin/nccl/ plugin/net/ plugin/tools/topo/ test/
forbidden plugin/tools/topo plugin/nccl/ plugin/net/ plugin/host/ plugin/tools/bench/ test/

for folder in topo kernels plugin test; do
  [ -f "$folder/README.md" ] || complain "$folder has no README.md"
done

# Sources; not data, recorded results, and what others wrote (LICENSE). Tables in Markdown have no line breaks.
sources=$(find . \( -path ./build -o -path ./.git -o -path ./shared -o -path ./test/data -o \
  -path ./test/fuzz/corpus -o -path ./test/bench/results \) -prune -o -type f -regextype egrep \
  -regex '.*(\.(c|h|cc|cu|cuh|inc|sh|py|md|mk|awk)|Makefile|\.ci/run)' -print)
for file in $sources; do
  case $file in
    *.md) ;;
    *) head -n 3 "$file" | grep -q 'SPDX-License-Identifier: Apache-2.0' || complain "$file: no SPDX line" ;;
  esac
  lines=$(wc -l <"$file")
  [ "$lines" -le 600 ] || complain "$file: $lines lines, at most 600"
done
wide=$(grep -nE '^.{121}' $sources | grep -vE '\.md:[0-9]+:\|' | cut -d: -f1,2)
[ -z "$wide" ] || complain "over 120 columns: $wide"
todo=$(grep -nwE 'TODO|FIXME|XXX' $sources | grep -v '^./test/cli/layout.sh')
[ -z "$todo" ] || complain "left undone: $todo"
exit $bad
