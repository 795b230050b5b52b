# SPDX-License-Identifier: Apache-2.0
"""Puts arfusion in place as flashinfer.comm."""

import importlib
import importlib.util
import pathlib
import sys
from types import ModuleType

_COMPAT = str(pathlib.Path(__file__).resolve().parents[1] / "compat")
_PATCHED = ("flashinfer.comm", "flashinfer.comm.allreduce", "flashinfer.comm.trtllm_ar")


def install() -> ModuleType:
    """Makes `flashinfer.comm` this package's for the process, and returns it: the real one with these calls replaced,
    or a stand-in where FlashInfer is not installed. Call it before the program imports names from flashinfer."""
    if importlib.util.find_spec("flashinfer") is None:
        sys.path.insert(0, _COMPAT)
        importlib.invalidate_caches()
    replace()
    return sys.modules["flashinfer.comm"]


def replace() -> None:
    """Replaces what flashinfer.comm has of these calls, there and in the modules it took them from."""
    ours = importlib.import_module("arfusion.flashinfer")
    comm = importlib.import_module("flashinfer.comm")
    for module in filter(None, map(sys.modules.get, _PATCHED)):
        for name in ours.COMM_NAMES:
            if module is comm or hasattr(module, name):
                setattr(module, name, getattr(ours, name))
