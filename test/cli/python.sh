# SPDX-License-Identifier: Apache-2.0
# The Python package on the host device: with numpy, and once more with torch's tensors if this Python has torch. The
# library that make built is the one that is loaded.
set -eu
: "${PYTHON:=/usr/bin/python3}"
[ -z "$SANITIZED" ] || { echo "Python itself is not built with sanitizers"; exit 77; }
export LD_LIBRARY_PATH=$B:${LD_LIBRARY_PATH:-} ARFUSION_DEBUG=none
"$PYTHON" -m unittest discover -s test/python
"$PYTHON" -c 'import torch' 2>/dev/null || exit 0
TEST_ARRAYS=torch "$PYTHON" -m unittest discover -s test/python
