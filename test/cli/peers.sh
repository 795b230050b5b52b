# SPDX-License-Identifier: Apache-2.0
# The script that measures others says in one line what it lacks. (What it measures needs PyTorch and two GPUs.)
set -eu
python=$(command -v "${PYTHON:-/usr/bin/python3}") || { echo "no Python"; exit 77; }
perf_peers() { PYTHONPATH=$scratch "$python" -BS test/bench/perf_peers.py "$@"; } # no packages but those in $scratch
tool=perf_peers
. test/expect.sh

expect 2 'PyTorch is needed' -o "$scratch/peers.json"
cat >"$scratch/torch.py" <<'PY'
class cuda:
    device_count = staticmethod(lambda: 1)
PY
expect 2 '2 ranks, but 1 GPUs' -o "$scratch/peers.json"
echo 'class cuda: device_count = staticmethod(lambda: 2)' >"$scratch/torch.py"
expect 2 "$scratch/no/such: No such file" -o "$scratch/no/such"
expect 2 'required: -o' --tokens 1
expect 2 '--tokens' -o "$scratch/peers.json" --tokens 1,0
expect 2 '--ranks' -o "$scratch/peers.json" --ranks 1
[ ! -e "$scratch/peers.json" ]
exit $bad
