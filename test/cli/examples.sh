# SPDX-License-Identifier: Apache-2.0
# The examples of ten lines, in C and in Python, as two ranks with torchrun's variables, on the host device; those that
# start vLLM and SGLang up to the command that they run.
set -eu
: "${PYTHON:=/usr/bin/python3}"
[ -z "$SANITIZED" ] || { echo "the programs of others are not sanitized"; exit 77; }
fail() { echo "$1" >&2; exit 1; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export ARFUSION_DEVICE=host LD_LIBRARY_PATH=$B PYTHONPATH=plugin/python

both_run() { # both_run COMMAND...: as ranks 0 and 1
  for rank in 0 1; do
    RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29511 TORCHELASTIC_RUN_ID=$$.$1 \
      "$@" >"$scratch/$rank" 2>&1 &
  done
  wait
}
both() { # both EXPECTED COMMAND...
  expected=$1
  shift
  both_run "$@"
  for rank in 0 1; do
    [ "$(cat "$scratch/$rank")" = "$expected" ] || fail "rank $rank of $*: $(cat "$scratch/$rank")"
  done
}

${CC:-gcc} -std=c11 -Wall -Wextra -Werror -Iinclude test/examples/ten_lines.c -L"$B" -larfusion -o "$scratch/c"
both 'sum + residual = 4, norm = 191.755' "$scratch/c"
both 'sum + residual = 4, norm = 1' "$PYTHON" test/examples/ten_lines.py

# Nothing is said twice, though the library and the plugin both read the settings; without a plugin it is said, too.
ARFUSION_DEBUG=info ARFUSION_ALGO=none ARFUSION_MISSPELT=1 both_run "$scratch/c"
for line in 'ARFUSION_ALGO set by environment to none' 'ARFUSION_MISSPELT (in the environment) is not a setting' \
  'turned off by configuration (ARFUSION_ALGO=none)$'; do
  [ "$(grep -c "$line" "$scratch/0")" = 1 ] || fail "not one line '$line': $(cat "$scratch/0")"
done
ARFUSION_PLUGIN=/no/plugin.so ARFUSION_MISSPELT=1 both_run "$scratch/c"
[ "$(grep -c ARFUSION_MISSPELT "$scratch/0")" = 1 ] || fail "no plugin: $(cat "$scratch/0")"

# An operation that fails says with whom, and over what.
sed 's/  if (arfusionAllReduce/  if (comm \&\& getenv("MISSING")[0] == getenv("RANK")[0]) return 0;\n&/
  s/stdio.h>/&\n#include <stdlib.h>/' test/examples/ten_lines.c >"$scratch/missing.c"
${CC:-gcc} -std=c11 -D_GNU_SOURCE -Iinclude "$scratch/missing.c" -L"$B" -larfusion -o "$scratch/missing"
MISSING=0 ARFUSION_TIMEOUT=1 both_run "$scratch/missing"
grep -q '^the operation did not end, outputs are undefined: rank 1 waited for rank 0 until the time-out.*token 0' \
  "$scratch/1" || fail "$(cat "$scratch/1")"

# Programs that say how they were called take the place of vLLM's and SGLang's; what they would import is arfusion's.
printf '#!/bin/sh\necho "vllm $*"\nexec python3 -c "import flashinfer; print(flashinfer.__file__)"\n' >"$scratch/vllm"
cat >"$scratch/python3" <<END
#!/bin/sh
if [ "\$1" = -m ]; then
  echo "python3 \$*"
  set -- -c "import flashinfer; print(flashinfer.__file__)"
fi
exec $PYTHON "\$@"
END
chmod +x "$scratch/vllm" "$scratch/python3"
compat=$PWD/plugin/python/arfusion/compat/flashinfer/__init__.py
for stack in vllm sglang; do
  PATH=$scratch:$PATH bash test/examples/$stack.sh some/model >"$scratch/said"
  grep -q 'some/model --tensor-parallel-size 2' "$scratch/said" || fail "$stack: $(cat "$scratch/said")"
  tail -n 1 "$scratch/said" | grep -q -e "$compat" -e site-packages || fail "$stack: $(cat "$scratch/said")"
done
