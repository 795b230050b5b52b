# SPDX-License-Identifier: Apache-2.0
"""flashinfer.comm is arfusion's: by install(), and by arfusion/compat on PYTHONPATH, with FlashInfer and without."""

import importlib.util
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import ranks
from ranks import KIND

COMPAT = os.path.join(ranks.PACKAGE, "arfusion", "compat")
# A package that is laid out as the real one is.
REAL = {
    "__init__.py": "from . import norm\n__version__ = '9.9'\nchosen = 'real'\n",
    "norm.py": "rmsnorm = 'real'\n",
    "utils.py": "def get_compute_capability(device): return 'real'\n",
    "comm/__init__.py": "from .allreduce import allreduce_fusion\n"
    "from .trtllm_ar import AllReduceFusionPattern, trtllm_allreduce_fusion, trtllm_moe_allreduce_fusion\n"
    "from .mapping import Mapping\n",
    "comm/allreduce.py": "from .trtllm_ar import trtllm_allreduce_fusion\n"
    "def allreduce_fusion(): return trtllm_allreduce_fusion\n",
    "comm/trtllm_ar.py": "class AllReduceFusionPattern: kAllReduce = 'real'\n"
    "def trtllm_allreduce_fusion(): pass\ndef trtllm_moe_allreduce_fusion(): pass\nhidden = 'real'\n",
    "comm/mapping.py": "Mapping = 'real'\n",
    "comm/mnnvl.py": "TorchDistBackend = 'real'\n",
}
OURS = """
import sys
import flashinfer, flashinfer.comm as comm, flashinfer.comm
import arfusion.flashinfer as ours
for name in ours.COMM_NAMES:
    assert getattr(comm, name) is getattr(ours, name), name
from flashinfer.comm import allreduce_fusion
from flashinfer.comm.mnnvl import TorchDistBackend
from flashinfer.utils import get_compute_capability
"""
BESIDE_THE_REAL = """
import flashinfer.norm
from flashinfer.comm import allreduce, trtllm_ar
assert flashinfer.__version__ == "9.9" and flashinfer.chosen == "real" and flashinfer.norm.rmsnorm == "real"
assert comm.Mapping == "real" and TorchDistBackend == "real" and get_compute_capability(0) == "real"
assert trtllm_ar.trtllm_allreduce_fusion is ours.trtllm_allreduce_fusion and trtllm_ar.hidden == "real"
assert allreduce.trtllm_allreduce_fusion is ours.trtllm_allreduce_fusion and not hasattr(allreduce, "Mapping")
assert not hasattr(trtllm_ar, "create_allreduce_fusion_workspace")
"""
ALONE = """
assert TorchDistBackend is ours.TorchDistBackend
try:
    get_compute_capability(type("device", (), {"type": "cpu"})())
except ValueError as error:
    assert "device" in str(error)
else:
    raise AssertionError("a GPU is needed")
try:
    import flashinfer.norm
except ImportError:
    pass
else:
    raise AssertionError("flashinfer.norm is not there")
"""


@unittest.skipIf(KIND != "numpy", "the kind of arrays makes no difference here")
class Install(unittest.TestCase):
    def setUp(self):
        self._folder = tempfile.TemporaryDirectory()
        self.real = self._folder.name
        for name, text in REAL.items():
            path = pathlib.Path(self.real, "flashinfer", name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def tearDown(self):
        self._folder.cleanup()

    def run_code(self, code, *path):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path), "PYTHONDONTWRITEBYTECODE": "1"},
        )
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_compat_beside_the_real_one(self):
        self.run_code(OURS + BESIDE_THE_REAL, COMPAT, self.real)
        self.run_code(OURS + BESIDE_THE_REAL, COMPAT, self.real, ranks.PACKAGE)

    def test_compat_reaches_workers(self):
        worker = (
            "import flashinfer.comm as c, arfusion.flashinfer as o; assert c.allreduce_fusion is o.allreduce_fusion"
        )
        code = f"import flashinfer, subprocess, sys; subprocess.run([sys.executable, '-c', {worker!r}], check=True)"
        self.run_code(code, COMPAT, self.real)

    def test_compat_keeps_the_real_ones_errors(self):
        pathlib.Path(self.real, "flashinfer/norm.py").write_text("import no_such_module\n")
        code = "try: import flashinfer\nexcept ImportError as e: assert 'no_such_module' in str(e)\n"
        code += "else: raise AssertionError"
        self.run_code(code, COMPAT, self.real)

    def test_install_beside_the_real_one(self):
        code = "import arfusion.flashinfer as f; made = f.install()\n"
        code += "import flashinfer.comm as c; assert made is c; f.install()\n"
        self.run_code(code + OURS + BESIDE_THE_REAL, ranks.PACKAGE, self.real)

    @unittest.skipIf(importlib.util.find_spec("flashinfer"), "FlashInfer is installed")
    def test_without_the_real_one(self):
        self.run_code(OURS + ALONE, COMPAT)
        code = "import arfusion.flashinfer as f; made = f.install()\n"
        code += "import flashinfer.comm as c; assert made is c; f.install()\n"
        self.run_code(code + OURS + ALONE, ranks.PACKAGE)


if __name__ == "__main__":
    unittest.main()
