# SPDX-License-Identifier: Apache-2.0
# The list of NCCL's functions (functions.txt), for the compiler and against what NCCL has.
#
#   functions.sh generate          FORWARD(name, index) or HERE(name, index) for each, as C and the assembler include it
#   functions.sh missing FILE...   the functions of a libnccl (nm -D), or of a header (what it declares with a pnccl
#                                  twin or as NCCL_EXTERN_C __host__), that the list lacks
set -eu
list=$(dirname "$0")/functions.txt

# Twins are told by their names: pncclFoo stands for ncclFoo.
functions_of() {
  case $1 in
    *.h) grep -E '\<pnccl[A-Z]|NCCL_EXTERN_C __host__' "$1" | grep -oE '\<p?nccl[A-Z][A-Za-z0-9]*\(' | tr -d '(' ;;
    *) nm -D --defined-only "$1" | awk '{ print $3 }' | grep -E '^p?nccl[A-Z]' ;;
  esac | sed 's/^p//' | sort -u
}

case ${1:-} in
  generate) awk '/^nccl/ { printf "%s(%s, %d)\n", $2 == "here" ? "HERE" : "FORWARD", $1, count++ }' "$list" ;;
  missing)
    shift
    for file in "$@"; do
      functions_of "$file" | while read -r name; do grep -qE "^$name( |\$)" "$list" || echo "$name"; done
    done ;;
  *) sed -n 's/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
