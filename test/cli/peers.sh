# SPDX-License-Identifier: Apache-2.0
# The script that measures others says in one line what it lacks. (What it measures needs PyTorch and two GPUs.)
set -eu
python=$(command -v "${PYTHON:-/usr/bin/python3}") || { echo "no Python"; exit 77; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# expect TEXT ARGUMENTS...: exit 2, and one line with the text. No packages but those in $scratch.
expect() {
  local text=$1 status=0
  shift
  PYTHONPATH=$scratch "$python" -BS test/bench/perf_peers.py "$@" >"$scratch/out" 2>&1 || status=$?
  if [ $status != 2 ] || ! grep -qF -- "$text" "$scratch/out"; then
    echo "perf_peers.py $*: exit $status, expected 2 with '$text': $(cat "$scratch/out")"
    exit 1
  fi
}

expect 'PyTorch is needed' -o "$scratch/peers.json"
cat >"$scratch/torch.py" <<'PY'
class cuda:
    device_count = staticmethod(lambda: 1)
PY
expect '2 ranks, but 1 GPUs' -o "$scratch/peers.json"
echo 'class cuda: device_count = staticmethod(lambda: 2)' >"$scratch/torch.py"
expect "$scratch/no/such: No such file" -o "$scratch/no/such"
expect 'required: -o' --tokens 1
expect '--tokens' -o "$scratch/peers.json" --tokens 1,0
expect '--ranks' -o "$scratch/peers.json" --ranks 1
[ ! -e "$scratch/peers.json" ]
