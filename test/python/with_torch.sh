# SPDX-License-Identifier: Apache-2.0
# The tests of the Python package with PyTorch's tensors in host memory, in a virtual environment in the build folder:
# pip downloads PyTorch once (0.7 GB with a CUDA toolkit here, whose libraries it then uses, 3 GB without). Where it
# cannot be had the tests count as skipped. Environment: B, PYTHON, CUDA_HOME, TORCH (its version).
set -u
: "${B:=build}" "${PYTHON:=/usr/bin/python3}" "${CUDA_HOME:=/usr/local/cuda}" "${TORCH:=2.11.0}"
B=$(realpath -m "$B")
venv=$B/venv-torch-$TORCH

# PyTorch's wheel on PyPI is the one for CUDA 13: it loads CUDA's libraries even where there is no GPU.
has_toolkit() {
  local library
  for library in cudart.so.13 cublas.so.13 cudnn.so.9 nccl.so.2 cupti.so.13; do
    [ -e "$CUDA_HOME/lib64/lib$library" ] || return 1
  done
}

make_venv() (
  set -e
  rm -rf "$venv"
  "$PYTHON" -m venv "$venv"
  pip="$venv/bin/python -m pip install --quiet --disable-pip-version-check"
  if has_toolkit; then
    $pip --no-deps "torch==$TORCH" nvidia-cusparselt-cu13==0.8.0 nvidia-nvshmem-cu13==3.4.5 nvidia-cufile==1.15.1.6
    $pip numpy sympy filelock typing_extensions networkx jinja2 fsspec setuptools expecttest
    libraries=$(echo "$venv"/lib/python3*/site-packages/nvidia/cu13/lib)
    ln -s "$CUDA_HOME"/lib64/*.so.* "$libraries" 2>/dev/null || true # those that the wheels brought stay
  else
    $pip "torch==$TORCH" numpy expecttest
  fi
  "$venv/bin/python" -c 'import torch'
)

if ! "$venv/bin/python" -c 'import torch' 2>/dev/null && ! make_venv >"$B/venv-torch.log" 2>&1; then
  echo "SKIP  PyTorch $TORCH cannot be installed: $(tail -n 1 "$B/venv-torch.log")"
  echo "0 passed, 0 failed, 1 skipped"
  exit 0
fi
export LD_LIBRARY_PATH=$B ARFUSION_DEBUG=none TEST_ARRAYS=torch PYTHONWARNINGS=ignore
exec timeout -k 10 "${TEST_LIMIT:-900}" "$venv/bin/python" -m unittest discover -s test/python
