# SPDX-License-Identifier: Apache-2.0
"""flashinfer, for programs that are started with arfusion/compat on PYTHONPATH.

Where the real package is installed, this loads it in its own name and replaces its comm's calls of this operation; all
the rest is the real one's. Where there is none, it has what callers of comm need: comm, comm.mnnvl.TorchDistBackend,
and utils.get_compute_capability.
"""

import importlib.util
import pathlib
import sys
from importlib.machinery import ModuleSpec
from typing import Optional

_HERE = pathlib.Path(__file__).resolve()


def _real_spec() -> Optional[ModuleSpec]:
    """Where the real flashinfer is: what is found when this folder is not looked at."""
    path = sys.path[:]
    sys.path[:] = [place for place in path if pathlib.Path(place).resolve() != _HERE.parents[1]]
    try:
        for finder in sys.meta_path:
            spec = finder.find_spec(__name__, None) if hasattr(finder, "find_spec") else None
            if spec is not None and spec.origin is not None and pathlib.Path(spec.origin).resolve() != _HERE:
                return spec
    finally:
        sys.path[:] = path
    return None


def _become_real(spec: ModuleSpec) -> None:
    module = importlib.util.module_from_spec(spec)
    sys.modules[__name__] = module  # what the import that runs this returns
    spec.loader.exec_module(module)


if __name__ == "flashinfer":
    if importlib.util.find_spec("arfusion") is None:
        sys.path.append(str(_HERE.parents[3]))
    _spec = _real_spec()
    if _spec is not None:
        _become_real(_spec)
        from arfusion.flashinfer.install import replace

        replace()
