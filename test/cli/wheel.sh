# SPDX-License-Identifier: Apache-2.0
# The wheel has the package and its shared objects, and works from a folder of its own with nothing set.
set -eu
: "${PYTHON:=/usr/bin/python3}"
[ -z "$SANITIZED" ] || { echo "Python itself is not built with sanitizers"; exit 77; }
"$PYTHON" -c 'import setuptools, wheel, numpy' 2>/dev/null ||
  { echo "$PYTHON lacks setuptools, wheel or numpy"; exit 77; }
version=$(sed -n 's/^VERSION *:= *//p' Makefile)
wheel=$(PYTHON=$PYTHON VERSION=$version sh plugin/packaging/wheel.sh)
[ "$wheel" = "$B/arfusion-$version-py3-none-linux_$(uname -m).whl" ]
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$PYTHON" -m zipfile -e "$wheel" "$scratch"
for file in py.typed flashinfer/workspace.py compat/flashinfer/comm/mnnvl.py lib/libarfusion.so.1 \
  lib/libarfusion-plugin.so; do
  [ -e "$scratch/arfusion/$file" ] || { echo "the wheel has no arfusion/$file" >&2; exit 1; }
done
[ -e "$scratch/arfusion-$version.dist-info/LICENSE" ] || [ -e "$scratch/arfusion-$version.dist-info/licenses/LICENSE" ]
grep -q '^Tag: py3-none-linux_' "$scratch/arfusion-$version.dist-info/WHEEL"
if find "$scratch" -name '*.log' -o -name test -o -name __pycache__ | grep .; then
  echo "the wheel has the files above" >&2
  exit 1
fi
cd "$scratch"
unset LD_LIBRARY_PATH
ARFUSION_DEVICE=host "$PYTHON" - <<'END'
import threading
import numpy as np
import arfusion

assert arfusion.__file__.startswith(__import__("os").getcwd()), arfusion.__file__
comms = arfusion.Communicator.all_ranks(2, max_tokens=1, hidden=64, dtype="float32")
sums = [np.full(64, rank + 1, np.float32) for rank in range(2)]
threads = [threading.Thread(target=comm.all_reduce, args=(x,)) for comm, x in zip(comms, sums)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert all((x == 3).all() for x in sums)
assert comms[0].route.algorithm >= arfusion.Algorithm.ONESHOT_LAMPORT  # by the plugin beside the library
END
cd - >/dev/null
# What is missing is one line.
printf '#!/bin/sh\nexit 1\n' >"$scratch/python"
chmod +x "$scratch/python"
status=0
said=$(PYTHON=$scratch/python VERSION=$version sh plugin/packaging/wheel.sh 2>&1) || status=$?
[ $status = 1 ] && [ "$(echo "$said" | wc -l)" = 1 ]
echo "$said" | grep -q 'python3-setuptools python3-wheel'
